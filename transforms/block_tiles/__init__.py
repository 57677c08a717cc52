"""Contractions of two and more tensors of any rank and layout on GPUs, in blocks."""
