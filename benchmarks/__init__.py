"""Measurements of feinsum: beside its peers, of what calling it costs, and of where tuning spends its time."""
