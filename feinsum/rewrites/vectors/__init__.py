"""Moves that compute on OpenCL vectors: the choice of lanes, and loads and stores of rows of memory."""

from feinsum.rewrites.vectors.vectorize import VectorLanes, vectorize

__all__ = ["VectorLanes", "vectorize"]
