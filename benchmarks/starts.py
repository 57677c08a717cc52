"""Where searches of the cost model start besides the default: winners of measured problems that it misses for others.

A search goes from a configuration to those that differ in one parameter, so it does not find what is quicker only where
several have changed.  Of each space the winners are taken one by one, always the one by which the times expected of
measured problems fall most beneath what searches have found so far.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.landscapes import Configuration, Evidence
from feinsum.candidates.predicted import Oracle, adapted, favourites
from feinsum.canonicalization import parse_key
from feinsum.cost.model import CostModel
from feinsum.errors import FeinsumError
from feinsum.registry import spaces
from feinsum.space import Instance, TransformSpace

MOST = 8
"""Starts of a space."""
WORTHWHILE = 0.5
"""The sum of the logarithms of the gains, over problems, that a start has to bring: three problems a sixth quicker, say."""
_PROBLEMS = 400
"""Measured problems of a space that are looked at."""


def starts_of(evidence: Evidence, model: CostModel, kind: str) -> dict[str, list[dict[str, Any]]]:
    """The starts for a kind of device, by the name of the space."""
    found = {}
    for s in spaces():
        measured = list(_measured(evidence, s, kind))
        random.Random(0).shuffle(measured)
        if own := _chosen(s, model, measured[:_PROBLEMS]):
            found[s.name] = own
    return found


def _measured(evidence: Evidence, s: TransformSpace, kind: str) -> Iterator[tuple[Instance, Mapping[Configuration, float]]]:
    """The problems of which a space was measured, and how long its configurations took."""
    for problem, own in evidence.times_s.items():
        profile = evidence.profiles.get(problem.device)
        if profile is not None and profile.kind == kind and (s.name, s.version) in own:
            yield Instance(parse_key(problem.einsum), dict(problem.sizes), profile), own[s.name, s.version]


def _chosen(
    s: TransformSpace, model: CostModel, measured: list[tuple[Instance, Mapping[Configuration, float]]]
) -> list[dict[str, Any]]:
    """The winners that help, best first."""
    winners = {tuple(s.completed(dict(min(own, key=own.__getitem__))).items()) for _, own in measured if len(own) > 1}
    expected: list[tuple[float, dict[Any, float]]] = []
    for here, _ in measured:
        try:
            found = favourites(here, [s], share=math.inf, model=model)
            expected.append((found[0].expected_s, dict(_expected(here, s, model, winners))))
        except (FeinsumError, IndexError):
            continue
    chosen: list[Any] = []
    times = [before for before, _ in expected]
    while winners and times and len(chosen) < MOST:
        gains = dict.fromkeys(winners, 0.0)
        for t, (_, own) in zip(times, expected, strict=True):
            for winner, at_start in own.items():
                gains[winner] += math.log(max(1.0, t / at_start))
        best = max(sorted(gains), key=gains.__getitem__)
        if gains[best] < WORTHWHILE:
            break
        chosen.append(best)
        times = [min(t, own.get(best, t)) for t, (_, own) in zip(times, expected, strict=True)]
    return [dict(winner) for winner in chosen]


def _expected(here: Instance, s: TransformSpace, model: CostModel, winners: set[Any]) -> Iterator[tuple[Any, float]]:
    """The times expected of winners, as far as a problem offers their values, where it accepts them."""
    problem, oracle = here.problem(s), Oracle(here, model)
    choices, default = s.parameters(problem), s.default(problem)
    for winner in winners:
        start = adapted(dict(winner), choices, default)
        if s.refusal(problem, start) is None:
            yield winner, oracle.predict(s, problem, choices, [start])[0]
