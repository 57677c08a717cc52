"""Contractions of arrays: :func:`feinsum.contract` plans steps, chooses a kernel or numpy for each, and evaluates them."""
