"""Kernels of SeisSol as programs of the immediate language."""
