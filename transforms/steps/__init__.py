"""Contractions one after the other on CPUs, each a launch of its own."""
