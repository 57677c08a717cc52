"""Which parameters matter, told from times that are made up so that the answer is known."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from feinsum.errors import SearchError
from feinsum.search.importance import importance, near_best

Result = tuple[dict[str, Any], float | None]
GRID = [{"tile": t, "unroll": u, "order": o} for t, u, o in itertools.product((1, 2, 4), (False, True), ("ij", "ji"))]


def additive(configuration: dict[str, Any]) -> float:
    """The time is a product of one factor for each parameter; the order has none."""
    return 1e-3 * math.exp(0.4 * configuration["tile"] - 0.2 * configuration["unroll"])


def test_a_product_of_factors_is_explained_by_its_parameters() -> None:
    """In a full grid the shares are those of an analysis of variance, and nothing is left."""
    found = importance([(c, additive(c)) for c in GRID])
    tile = 0.4**2 * 14 / 9  # the variance of 1, 2, 4
    unroll = 0.2**2 / 4
    assert list(found.shares) == ["tile", "unroll", "order"]
    assert found.shares["tile"] == pytest.approx(tile / (tile + unroll), rel=1e-3)
    assert found.shares["unroll"] == pytest.approx(unroll / (tile + unroll), rel=1e-3)
    assert found.shares["order"] == pytest.approx(0, abs=1e-12)
    assert found.rest == pytest.approx(0, abs=1e-6)


def test_an_interaction_is_left_to_the_rest() -> None:
    """What only two parameters together explain belongs to neither."""
    found = importance([(c, 1.0 if c["unroll"] == (c["order"] == "ij") else 2.0) for c in GRID])
    assert max(found.shares.values()) < 1e-6
    assert found.rest == pytest.approx(1)


def test_a_parameter_that_a_search_has_tied_to_another_gets_no_credit() -> None:
    """A search mostly asked the good tile with one order; the order does nothing all the same."""
    chance = random.Random(0)
    results: list[Result] = []
    for _ in range(300):
        tile = chance.choice((1, 2, 4))
        order = "ij" if (tile == 1) == (chance.random() < 0.9) else "ji"
        configuration = {"tile": tile, "unroll": chance.choice((False, True)), "order": order}
        results.append((configuration, additive(configuration)))
    assert importance(results).shares["order"] < 0.001


def test_choices_never_seen_apart_share_their_effect() -> None:
    """Records that cannot tell two parameters apart do not break the decomposition."""
    found = importance([({"a": k, "b": k}, 1.0 + k) for k in (0, 1)])
    assert found.shares["a"] == pytest.approx(found.shares["b"])


def test_equal_times_have_nothing_to_explain() -> None:
    """No variance is shared by nobody, and one record is enough to say so."""
    for results in ([(c, 1.0) for c in GRID], [(GRID[0], 1.0)]):
        found = importance(results)
        assert set(found.shares.values()) == {0.0}
        assert found.rest == 0


def test_slowdowns_compare_the_best_of_every_choice() -> None:
    """What giving up a choice costs; failures do not count, and a choice that never worked has no figure."""
    results: list[Result] = [(c, None if c["tile"] == 4 else additive(c)) for c in GRID]
    slowdowns = importance(results).slowdowns
    assert slowdowns["tile"] == pytest.approx({1: 1, 2: math.exp(0.4)})
    assert slowdowns["unroll"] == pytest.approx({True: 1, False: math.exp(0.2)})
    assert slowdowns["order"] == {"ij": 1, "ji": 1}


def test_configurations_near_the_best_come_fastest_first() -> None:
    """The share is of the best time, and bounds are inclusive."""
    results: list[Result] = [(GRID[0], 1.05), (GRID[1], 1.0), (GRID[2], 1.06), (GRID[3], None), (GRID[4], 1.01)]
    assert near_best(results) == [(GRID[1], 1.0), (GRID[4], 1.01), (GRID[0], 1.05)]
    assert near_best(results, within=0) == [(GRID[1], 1.0)]


@pytest.mark.parametrize("question", [importance, near_best])
def test_nothing_that_worked_explains_nothing(question: Any) -> None:
    """Failures have no time, and configurations of two spaces no common parameters."""
    with pytest.raises(SearchError, match="no configuration worked"):
        question([(GRID[0], None)])
    with pytest.raises(SearchError, match=r"parameters \['a'\], another \['b'\]"):
        question([({"a": 1}, 1.0), ({"b": 1}, 2.0)])


def test_shares_add_up_to_one_where_a_search_favoured_combinations() -> None:
    """Two parameters that the records hardly tell apart, and a third: their variances added up to 175% and more."""
    rng = random.Random(0)
    results: list[Result] = []
    for _ in range(40):
        a, c = rng.randrange(8), rng.randrange(3)
        b = a if rng.random() < 0.9 else rng.randrange(8)
        results.append(({"a": a, "b": b, "c": c}, math.exp(0.5 * a - 0.4 * b + 0.1 * c + rng.gauss(0, 0.02))))
    found = importance(results)
    assert sum(found.shares.values()) + found.rest == pytest.approx(1)
    assert all(0 <= share <= 1 for share in found.shares.values())
