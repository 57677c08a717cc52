"""The time of a kernel: a lower bound, and the time that a configuration is expected to take.

:mod:`feinsum.cost.roofline`  the bound that no kernel beats
:mod:`feinsum.cost.work_model`      the time that follows from operations, traffic and parallelism
:mod:`feinsum.cost.features`  the features of configurations, as numbers
:mod:`feinsum.cost.model`     that time, corrected by what the records teach
"""

from feinsum.cost.roofline import Roofline, roofline, roofline_s
from feinsum.cost.work_model import Work, in_turn, nest_work, rounds_s

__all__ = ["Roofline", "Work", "in_turn", "nest_work", "roofline", "roofline_s", "rounds_s"]
