"""The version of feinsum."""

__version__ = "0.2.0"
