"""Training of the cost model: measured times as rows of features, a forest of scikit-learn as data, and starts of searches.

The forest learns the logarithm of a time over what is expected of its work without records.  Every problem weighs as
the square root of how much was measured of it, and what is far from the best of its problem weighs less: the model is
there to find the best.

A search goes from a configuration to those that differ in one parameter, so it does not find what is quicker only where
several have changed.  So searches start at winners of measured problems, too: of each space these are taken one by one,
always the one by which the times expected of measured problems fall most beneath what searches have found so far.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.landscapes import Configuration, Evidence, Problem
from feinsum.candidates.predicted import Oracle, adapted, top_predictions
from feinsum.canonicalization import parse_key
from feinsum.cost.features import SPACE, Features
from feinsum.cost.model import CostModel, Forest, columns_of, prior
from feinsum.devices import DeviceProfile
from feinsum.errors import FeinsumError
from feinsum.registry import spaces
from feinsum.space import Instance, TransformSpace

TREES = {
    "n_estimators": 250,
    "max_depth": 8,
    "learning_rate": 0.06,
    "subsample": 0.6,
    "max_features": 0.2,
    "min_samples_leaf": 10,
    "random_state": 0,
}
LATE = 5.0
"""What takes so many times longer than a first forest says, unlike others of its space, was disturbed by what else ran, and
the second forest does without."""
LEAST_ROWS = 30
"""Measured configurations from which trees are worth it."""


@dataclass(frozen=True)
class Row:
    """One measured configuration.

    :ivar configuration: its parameters, those that a record lacks with what is their default for such records.
    :ivar work_s: the time that its work takes by itself.
    :ivar time_s: the time that it took.
    :ivar is_default: whether it is what its space would try first.
    """

    problem: Problem
    kind: str
    space: str
    rank: int
    is_default: bool
    configuration: Mapping[str, Any]
    features: Features = field(repr=False)
    work_s: float
    time_s: float


def rows_of(evidence: Evidence) -> list[Row]:
    """What was measured of spaces that still accept it; whatever else there is in the evidence is passed over."""
    known = {s.name: s for s in spaces()}
    rows = []
    for problem, measured in evidence.times_s.items():
        profile = evidence.profiles.get(problem.device)
        if profile is None:
            continue
        try:
            e = parse_key(problem.einsum)
            oracle = Oracle(Instance(e, dict(problem.sizes), profile), CostModel({}))
        except FeinsumError:
            continue
        for (name, _), times_s in measured.items():
            if name in known:
                rows += _rows_of_space(oracle, known[name], problem, times_s.items(), profile)
    return rows


def _rows_of_space(oracle: Oracle, s: Any, problem: Problem, times_s: Iterable[Any], profile: DeviceProfile) -> list[Row]:
    try:
        asked = oracle.here.problem(s)
        default, choices = s.default(asked), s.parameters(asked)
    except FeinsumError:
        return []
    rows = []
    for configuration, time_s in times_s:
        c = s.completed(dict(configuration))
        if s.refusal(asked, c) is None:
            features, work_s = oracle.describe(s, asked, choices, c)
            rows.append(Row(problem, profile.kind, s.name, s.rank, c == default, c, features, work_s, time_s))
    return rows


def train(rows: Sequence[Row], factors: dict[str, float] | None = None) -> CostModel:
    """A forest for each kind of device of which enough was measured.

    :param factors: see :attr:`Forest.factor`, by kind of device.
    """
    forests = {}
    for kind in sorted({row.kind for row in rows}):
        own = [row for row in rows if row.kind == kind]
        if len(own) >= LEAST_ROWS:
            forests[kind] = _grow(own, (factors or {}).get(kind, math.nan))
    return CostModel(forests)


def _grow(rows: Sequence[Row], factor: float) -> Forest:
    from sklearn.ensemble import GradientBoostingRegressor

    features = [row.features for row in rows]
    names = tuple(sorted({name for f in features for name in f}))
    wanted = np.log([row.time_s for row in rows]) - prior(features, [row.work_s for row in rows])
    columns, weights = columns_of(features, names), _weights(rows)
    booster = GradientBoostingRegressor(**TREES).fit(columns, wanted, sample_weight=weights)
    in_time = _delays(rows, wanted - booster.predict(columns)) < math.log(LATE)
    if not in_time.all():
        booster.fit(columns[in_time], wanted[in_time], sample_weight=weights[in_time])
    return _as_data(booster, names, factor)


def _delays(rows: Sequence[Row], errors: Any) -> Any:
    """How much later than expected rows are, as logarithms; less what all of a space are late for a problem.

    It is unknown whether a single one was disturbed.
    """
    by_space: dict[tuple[Problem, str], list[float]] = {}
    for row, error in zip(rows, errors, strict=True):
        by_space.setdefault((row.problem, row.space), []).append(error)
    common = {at: max(0.0, min(own)) if len(own) > 1 else 0.0 for at, own in by_space.items()}
    return np.array([error - common[row.problem, row.space] for row, error in zip(rows, errors, strict=True)])


def _weights(rows: Sequence[Row]) -> Any:
    best: dict[Problem, float] = {}
    count: dict[Problem, int] = {}
    for row in rows:
        best[row.problem] = min(best.get(row.problem, math.inf), row.time_s)
        count[row.problem] = count.get(row.problem, 0) + 1
    return np.array([(best[row.problem] / row.time_s / count[row.problem]) ** 0.5 for row in rows])


def _as_data(booster: Any, names: tuple[str, ...], factor: float) -> Forest:
    """The trees as lists; scikit-learn keeps nodes in preorder too, so that the left child is the next node."""
    trees = [tree.tree_ for tree in booster.estimators_[:, 0]]
    start = np.cumsum([0, *(tree.node_count for tree in trees)])
    leaves = [tree.children_left < 0 for tree in trees]
    asked = np.concatenate([np.where(leaf, -1, tree.feature) for tree, leaf in zip(trees, leaves, strict=True)])
    beyond = np.concatenate([tree.children_right + first for tree, first in zip(trees, start, strict=False)])
    numbers = np.concatenate(
        [
            np.where(leaf, booster.learning_rate * tree.value[:, 0, 0], tree.threshold)
            for tree, leaf in zip(trees, leaves, strict=True)
        ]
    )
    constant = float(np.ravel(booster.init_.constant_)[0])
    numbers[: trees[0].node_count][leaves[0]] += constant
    used = sorted(set(asked[asked >= 0].tolist()))
    place = {old: new for new, old in enumerate(used)}
    asked = np.array([place.get(k, -1) for k in asked.tolist()])
    roots = np.array(start[:-1])
    spaces = tuple(name.removeprefix(SPACE) for name in names if name.startswith(SPACE))
    return Forest(tuple(names[k] for k in used), asked, np.where(asked < 0, 0, beyond), numbers, roots, spaces, factor)


MOST = 8
"""Starts of a space."""
WORTHWHILE = 0.5
"""The sum of the logarithms of the gains, over problems, that a start has to bring: three problems a sixth quicker, say."""
_PROBLEMS = 400
"""The most measured problems of a space that are considered."""


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
            found = top_predictions(here, [s], share=math.inf, model=model)
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
