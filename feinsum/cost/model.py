"""The cost model: the time that work takes by itself, corrected by regression trees that the records taught::

    log t  =  log t_work  +  a · guess  -  b · rank  +  Σ_k tree_k(features)

The second and third terms stand for the knowledge of the authors of spaces: they put the best guess first, and a space for
few einsums is better at them than one for many.  Without trees for a kind of device, the first three terms are the model.
For a space that the trees have never seen, the model expects three times the time that they say: it has to promise much.

The trees are data, ``cost-model.json`` beside the curated records, which ``python -m benchmarks cost-model`` makes.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from feinsum.cost.features import GUESS, RANK, SPACE, Features
from feinsum.errors import ValidationError

logger = logging.getLogger(__name__)

FILE = "cost-model.json"
_FORMAT = 1
_ABSENT = -1.0
"""Stands for a feature that does not apply."""
_PER_GUESS = 0.1
_PER_RANK = 0.5
_TOP_RANK = 3
_UNSEEN = math.log(3)

Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Forest:
    """Regression trees, one after the other, the nodes of each in preorder.

    :ivar features: the names of the columns that nodes ask for.
    :ivar asked: the column that each node asks for; -1 for a leaf.
    :ivar beyond: where to go from a node if the feature exceeds the number of the node; otherwise it is the next one.
    :ivar numbers: these numbers; those of leaves are values.
    :ivar roots: the first node of each tree.
    :ivar spaces: the names of the spaces that it learnt from.
    :ivar starts: by the name of a space, configurations that were the quickest of some einsum and are expected to be
        quicker for others than what a search from the default finds.
    :ivar factor: half of the times predicted of einsums that were left out were within this factor of the truth.
    :raises ValidationError: if a node asks for a column that there is not, or leads nowhere.
    """

    features: tuple[str, ...]
    asked: Integers = field(repr=False)
    beyond: Integers = field(repr=False)
    numbers: Numbers = field(repr=False)
    roots: Integers = field(repr=False)
    spaces: tuple[str, ...]
    factor: float
    starts: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        nodes = np.arange(self.asked.size)
        inner = self.asked >= 0
        if not (
            self.asked.shape == self.beyond.shape == self.numbers.shape == nodes.shape
            and self.asked.size
            and not inner[-1]
            and (self.asked < len(self.features)).all()
            and (self.beyond[inner] > nodes[inner]).all()
            and (self.beyond[inner] < nodes.size).all()
            and ((self.roots >= 0) & (self.roots < nodes.size)).all()
        ):
            raise ValidationError("a tree of the cost model leads nowhere; make the model again")

    def predict(self, candidates: Sequence[Features]) -> Numbers:
        """The sum of the trees for each candidate, more for those of spaces that they have not seen."""
        columns = columns_of(candidates, self.features)
        rows = np.arange(len(candidates))[:, None]
        at = np.broadcast_to(self.roots, (len(candidates), self.roots.size))
        while (inner := self.asked[at] >= 0).any():
            following = np.where(columns[rows, self.asked[at]] > self.numbers[at], self.beyond[at], at + 1)
            at = np.where(inner, following, at)
        spaces = {SPACE + name for name in self.spaces}
        seen = [not spaces.isdisjoint(c) for c in candidates]
        return np.asarray(self.numbers[at].sum(axis=1) + np.where(seen, 0.0, _UNSEEN))

    def to_json(self) -> dict[str, Any]:
        """Plain data, numbers with six digits."""
        return {
            "features": list(self.features),
            "spaces": list(self.spaces),
            "factor": float(f"{self.factor:.3g}"),
            "starts": {space: [dict(c) for c in found] for space, found in sorted(self.starts.items())},
            "asked": self.asked.tolist(),
            "beyond": self.beyond.tolist(),
            "numbers": [float(f"{number:.6g}") for number in self.numbers],
            "roots": self.roots.tolist(),
        }

    @staticmethod
    def from_json(data: Any) -> Forest:
        """The inverse of :meth:`to_json`.

        :raises ValidationError: if `data` is not of that form.
        """
        try:
            asked, beyond, roots = (np.asarray(data[name], dtype=np.int64) for name in ("asked", "beyond", "roots"))
            numbers, factor = np.asarray(data["numbers"], dtype=np.float64), float(data["factor"])
            features, spaces = (tuple(map(str, data[name])) for name in ("features", "spaces"))
            starts = {str(space): [dict(c) for c in found] for space, found in data.get("starts", {}).items()}
            return Forest(features, asked, beyond, numbers, roots, spaces, factor, starts)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValidationError(f"not the trees of a cost model: {error}") from None


@dataclass(frozen=True, eq=False)
class CostModel:
    """A predictor of times.

    :ivar forests: the trees that were learnt, by kind of device.
    """

    forests: Mapping[str, Forest]

    def predict_s(self, candidates: Sequence[Features], work_s: Sequence[float], kind: str) -> Numbers:
        """The times expected, in seconds.

        :param work_s: the time that the work of each candidate takes by itself.
        :param kind: of the device.
        """
        log_t = prior(candidates, work_s)
        if kind in self.forests and candidates:
            log_t = log_t + self.forests[kind].predict(candidates)
        return np.asarray(np.exp(log_t))

    def factor(self, kind: str) -> float | None:
        """How far off half of its predictions are; None where nothing was learnt."""
        return self.forests[kind].factor if kind in self.forests else None

    def starts(self, kind: str, space: str) -> Sequence[Mapping[str, Any]]:
        """The configurations at which a search of a space starts besides its default; see :attr:`Forest.starts`."""
        return self.forests[kind].starts.get(space, ()) if kind in self.forests else ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`json.dumps`."""
        return {"format": _FORMAT, "forests": {kind: forest.to_json() for kind, forest in self.forests.items()}}

    @staticmethod
    def from_json(data: Any) -> CostModel:
        """The inverse of :meth:`to_json`.

        :raises ValidationError: if `data` is not of that form.
        """
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT or not isinstance(data.get("forests"), Mapping):
            raise ValidationError(f"not a cost model of format {_FORMAT}; make it again")
        return CostModel({str(kind): Forest.from_json(forest) for kind, forest in data["forests"].items()})


def prior(candidates: Sequence[Features], work_s: Sequence[float]) -> Numbers:
    """The logarithm of the times expected by what is known without records."""
    guesses, ranks = (np.array([c[name] for c in candidates], dtype=float) for name in (GUESS, RANK))
    return np.asarray(np.log(np.array(work_s, dtype=float)) + _PER_GUESS * guesses + _PER_RANK * (_TOP_RANK - ranks))


def columns_of(candidates: Sequence[Features], names: Sequence[str]) -> Numbers:
    """The features of these names: shape ``(candidates, names)``."""
    columns = {name: k for k, name in enumerate(names)}
    found = np.full((len(candidates), len(names)), _ABSENT)
    for row, c in zip(found, candidates, strict=True):
        own = [name for name in c if name in columns]  # few of the names
        row[[columns[name] for name in own]] = [c[name] for name in own]
    return found


@lru_cache(maxsize=1)
def cost_model() -> CostModel:
    """The model that is part of feinsum; one that knows no records if the file is not there or is damaged."""
    file = files("feinsum.tuning_db") / FILE
    if not file.is_file():
        return CostModel({})
    try:
        return CostModel.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, ValidationError) as error:
        logger.warning("going on without what %s teaches: %s", FILE, error)
        return CostModel({})
