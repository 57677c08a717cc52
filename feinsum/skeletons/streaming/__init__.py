"""Streaming: every operand passes once, in the order in which it lies in memory: ``out[i] = Σ_j A[i, j] x[j]``."""
