"""Kernels in the style of a form compiler."""
