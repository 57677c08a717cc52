"""Checking: what every expression is, before anything runs.

Shapes are polynomials in lengths (:mod:`feinsum.languages.declarative.extents`); what two of them leave open, as whether M
is N, is seen when a program is called.  So it is with indices (:mod:`feinsum.languages.declarative.index_bounds`): one that
is outside for every length is an error here.
"""

from __future__ import annotations

from feinsum.languages.declarative.checking.checker import Checker
from feinsum.languages.declarative.syntax import DeclarativeFunction
from feinsum.languages.diagnostics import Findings


def check_program(function: DeclarativeFunction, findings: Findings) -> None:
    """Check a program; errors and warnings are put into `findings`."""
    Checker(findings).program(function)
