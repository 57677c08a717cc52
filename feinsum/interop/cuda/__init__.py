"""Kernels on CUDA arrays: the PTX of our own programs, launched on the stream of the library that holds the arrays.

NVIDIA's OpenCL driver keeps a program as PTX, the assembly that CUDA's driver loads, too (seen with driver 580).  So a
kernel is built once, and launched by either driver: no array passes through OpenCL, and nothing is copied.
"""
