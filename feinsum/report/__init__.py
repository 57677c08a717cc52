"""Reports: the results of a tuning run as plots and as html, and the displays of objects in a notebook.

This room knows data types only: records, peaks, spaces, and the importance of parameters
(:mod:`feinsum.search.importance`).  Plots need matplotlib, which is loaded when the first is drawn.
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
