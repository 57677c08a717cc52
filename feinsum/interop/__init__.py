"""Adapters for arrays of torch, JAX, CuPy, any DLPack library and CUDA; operators with derivatives.

Nothing here is imported before such an array is seen, or an operator asked for.
"""
