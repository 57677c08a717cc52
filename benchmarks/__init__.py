"""Measurements of feinsum: beside its peers, of what calling it costs, and of where tuning spends its time."""

HANDICAPS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Settings for old versions of OpenBLAS, under which one that knows the processor runs at half its speed."""
