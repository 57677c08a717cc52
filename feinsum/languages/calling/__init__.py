"""Calling: what all languages check about arguments, and how arrays of any library become arguments of a program."""
