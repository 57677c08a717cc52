"""Curated records: JSON Lines, one file per device."""
