"""Contractions of two and more tensors of any rank and layout on GPUs, in blocks: ``D[m, n] = Σ_k A[m, k] B[k, n]``."""
