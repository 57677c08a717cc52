"""Reports: what a tuning run found, as plots and as html, and what objects show of themselves in a notebook.

This room knows data types only: records, peaks, spaces, and what :mod:`feinsum.search.importance` makes of records.  Plots
need matplotlib, which is loaded when the first is drawn.
"""

from feinsum.report.census import Census, take_census
from feinsum.report.plots import (
    PlotError,
    Rooflines,
    choices,
    convergence,
    distribution,
    importance,
    roofline,
    rooflines,
    speedups,
    survivors,
)

__all__ = [
    "Census",
    "PlotError",
    "Rooflines",
    "choices",
    "convergence",
    "distribution",
    "importance",
    "roofline",
    "rooflines",
    "speedups",
    "survivors",
    "take_census",
]
