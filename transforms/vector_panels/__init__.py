"""Contractions on CPUs, in vectors."""
