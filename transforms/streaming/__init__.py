"""Sums and products that memory bounds, on any device: element by element, along or across rows, transposed, diagonals."""
