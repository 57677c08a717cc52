"""The version of feinsum."""

__version__ = "0.1.0"
