"""Conversion: the rules of narrower operands return the type of the result, as the rules that :mod:`feinsum.lower` writes
do.

    D_(i, j) := D[i, j]                  ──▶   D_(i, j) := cast(np.float64, D[i, j])     where y is float64 and D float32

C converts each factor by itself; OpenCL has no product of a vector of floats and a double.
"""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import TypeCast

from feinsum.match.inference import Inference
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.match import Match


def convert_operands(t_unit: lp.TranslationUnit, match: Match) -> lp.TranslationUnit:
    """Give the rules of a match the type of the result, or its real type where they are real and the result complex.

    :param match: with substitution rules of its own; see :func:`feinsum.match.isolate`.
    """
    targets = _find_targets(match)
    if all(a.dtype in (target, _real(target)) for rule, target in targets.items() for a in _arrays_of_rule(match, rule)):
        return t_unit
    source = SourceKernel(t_unit, t_unit[match.kernel_name])
    inference = Inference(source)
    rules = dict(source.kernel.substitutions)
    for name, target in targets.items():
        computed = inference.infer(source.rule(name), target)
        wanted = target if np.issubdtype(computed, np.complexfloating) else _real(target)
        if computed != wanted:
            rules[name] = rules[name].copy(expression=TypeCast(wanted, rules[name].expression))
    return t_unit.with_kernel(source.kernel.copy(substitutions=rules))


def _find_targets(match: Match) -> dict[str, np.dtype[Any]]:
    """The type of the result that each rule is a factor of; rules of results of several types stay as they are."""
    found: dict[str, set[np.dtype[Any]]] = {}
    for row, dtype in zip(match.rules, match.einsum.dtypes, strict=True):
        for rule in row:
            found.setdefault(rule, set()).add(dtype)
    return {rule: dtypes.pop() for rule, dtypes in found.items() if len(dtypes) == 1}


def _arrays_of_rule(match: Match, rule: str) -> list[Any]:
    """The arrays that a rule stands for."""
    rows = zip(match.rules, match.einsum.args, strict=True)
    return [a for names, entries in rows for name, entry in zip(names, entries, strict=True) if name == rule for a in entry]


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype).real.dtype
