"""Moves that compute on OpenCL vectors: which axes are lanes, and how rows of memory are loaded and stored."""

from feinsum.rewrites.vectors.vectorize import VectorLanes, vectorize

__all__ = ["VectorLanes", "vectorize"]
