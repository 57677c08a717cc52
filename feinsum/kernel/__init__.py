"""Kernels that users hold: called on arrays of any library, explained, saved to files and loaded from them."""
