"""Sums and products limited by memory, on any device: element by element, along or across rows, transposed, diagonals."""
