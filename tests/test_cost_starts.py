"""Searches of the cost model start at the default, and at what was the quickest of other einsums."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
from profiles import GPU

import feinsum as fe
from feinsum.candidates.predicted import top_predictions
from feinsum.cost.model import CostModel, Forest, cost_model
from feinsum.registry import find_space
from feinsum.space import Instance

BLOCKS = find_space("block_contraction")
PRODUCT = fe.einsum("ik,kj->ij", fe.array("A", (2000, 1500), "float64"), fe.array("B", (1500, 1800), "float64"))


def forest(starts: list[dict[str, object]]) -> Forest:
    """One tree that says nothing, and these starts of blocks."""
    nothing = np.array([-1]), np.array([0]), np.array([0.0]), np.array([0])
    return Forest(("rank",), *nothing, (BLOCKS.name,), 1.0, {BLOCKS.name: starts})


def asked_of(starts: list[dict[str, object]]) -> list[dict[str, object]]:
    """The configurations at which a search looks that may look at two."""
    here = Instance.at(PRODUCT, {}, GPU)
    found = top_predictions(here, [BLOCKS], looked_at=2, share=math.inf, model=CostModel({"gpu": forest(starts)}))
    return [dict(f.configuration) for f in found]


def test_a_search_looks_at_the_starts_first() -> None:
    default = BLOCKS.default(Instance.at(PRODUCT, {}, GPU).problem(BLOCKS))
    far = {**default, "packed": "01", "pipeline": "async 2", "ahead": True}
    assert far in asked_of([far])
    assert far not in asked_of([])


def test_values_that_a_problem_does_not_offer_are_those_of_its_default() -> None:
    """A start has what else made it quick."""
    default = BLOCKS.default(Instance.at(PRODUCT, {}, GPU).problem(BLOCKS))
    far = {**default, "packed": "01", "depth": 44}
    assert {**far, "depth": default["depth"]} in asked_of([far])
    assert {**default, "packed": "01"} in asked_of([{"packed": "01"}])
    assert asked_of([{**default, "packed": "seven"}]) == asked_of([])


def test_starts_are_kept() -> None:
    model = CostModel({"gpu": forest([{"packed": "01", "depth": 32}])})
    again = CostModel.from_json(json.loads(json.dumps(model.to_json())))
    assert again.starts("gpu", BLOCKS.name) == [{"packed": "01", "depth": 32}]
    assert again.starts("cpu", BLOCKS.name) == ()
    assert again.starts("gpu", "generic") == ()


def test_a_model_of_before_has_no_starts() -> None:
    data = replace(forest([]), starts={}).to_json()
    del data["starts"]
    assert Forest.from_json(data).starts == {}


def test_the_shipped_starts_are_of_spaces_that_there_are() -> None:
    for kind, own in cost_model().forests.items():
        for name, configurations in own.starts.items():
            assert find_space(name), kind
            assert all(configurations)
