"""Vector panels: contractions on CPUs in private vectors, a tile of a long index after the other."""
