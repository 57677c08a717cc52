"""Arrays of torch, JAX, CuPy and numpy beside the bare kernels."""
