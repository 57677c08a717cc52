"""Warp tiles: products of a long and two short indices on matrix units, a tile of rows to each sub-group."""
