"""Calling: what all languages share about calls: signatures, arguments, samples, stages, and the protocols of a build.

A language checks the types of its own arguments.  Names, memory, libraries of arrays and keywords are checked here, so that
a mistake raises the same class of error in all languages, whether a program is interpreted or built.
"""
