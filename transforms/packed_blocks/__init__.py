"""Packed blocks: contractions rich in operations on CPUs, both operands packed."""
