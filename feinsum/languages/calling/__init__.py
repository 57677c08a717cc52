"""Calling: what all languages share between a caller and a program: signatures, arguments, samples, and how one is built.

A language checks the types of its own arguments.  Names, memory, libraries of arrays and keywords are checked here, so that
a mistake has one class of error in all of them, whether a program is interpreted or built.
"""
