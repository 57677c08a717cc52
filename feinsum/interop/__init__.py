"""Arrays of everybody: those of torch, JAX and CuPy, of whoever speaks DLPack, and CUDA's; operators with derivatives.

Nothing here is imported before such an array is seen, or an operator asked for.
"""
