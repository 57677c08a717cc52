"""Alternatives: that all ways compute the same, and in a race which is the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import type_name
from feinsum.languages.diagnostics import broken_rule
from feinsum.languages.source import SourceText
from feinsum.timing.races import Race, run_race

_RACE_S: Final = 5.0
_DIFFER: Final = {"f32": 1e-3, "f64": 1e-9}
"""The largest difference of ways, relative to the largest of their elements."""


def fastest_alternative(
    node: syntax.Alternative, source: SourceText, results: Sequence[Any], samplers: Sequence[Callable[[], float]]
) -> tuple[int, Race]:
    """The fastest way, and the race that decided it.

    :param results: what each way computed, as arrays of numpy.
    :param samplers: what runs each way once, and says how many seconds that took.
    :raises LanguageError: if two ways differ.
    """
    for way, found in zip(node.ways, results, strict=True):
        _require_same(node.ways[0], way, results[0], found, source)
    names = [way.name for way in node.ways]
    race = run_race(dict(zip(names, samplers, strict=True)), seconds=_RACE_S)
    return names.index(race.leader or names[0]), race


def _require_same(one: syntax.Let, way: syntax.Let, first: Sequence[Any], found: Sequence[Any], source: SourceText) -> None:
    for a, b in zip(first, found, strict=True):
        if a.dtype.kind == "f":
            bound = _DIFFER.get(type_name(a.dtype), 0.0) * float(np.max(np.abs(a), initial=0))
            differ = ~np.isclose(a, b, rtol=0, atol=bound, equal_nan=True)
        else:
            differ = np.asarray(a != b)
        if differ.any():
            place = tuple(int(k) for k in np.argwhere(differ)[0])
            values = f"{np.asarray(a)[place]} by {one.name}, {np.asarray(b)[place]} by {way.name}"
            raise broken_rule(source, "run-alternative", way.span, f"element {list(place)} is {values}")
