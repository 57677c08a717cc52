"""The cost model: the time of work by itself, features, trees, and the top predictions of all."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import slower_with
from profiles import CPU, GPU

import feinsum as fe
from feinsum.candidates.predicted import expected_s, top_predictions
from feinsum.cost import Work, in_turn, nest_work, rounds_s
from feinsum.cost import model as models
from feinsum.cost.features import parameter_features, problem_features, waste_features, work_features
from feinsum.cost.model import CostModel, Forest, cost_model
from feinsum.registry import find_space, matching_spaces
from feinsum.space import Instance, Problem, TransformSpace, space
from feinsum.subscripts import parse_subscripts

GEMM = fe.einsum("ij,jk->ik", fe.array("A", ("N", 64)), fe.array("B", (64, 64)))
SIZES = {"N": 10_000}
UNKNOWING = CostModel({})
WORK = Work(flops=1e9, bytes=1e6, groups=1000)


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    "more",
    [
        {"flops": 2e9},
        {"bytes": 1e12},
        {"loads": 1e12},
        {"launches": 1000},
        {"groups": 1},
    ],
    ids=str,
)
def test_more_work_takes_longer(more: dict[str, Any], device: fe.DeviceProfile) -> None:
    """Operations, traffic, loads, launches; and work-groups too few for the device."""
    assert replace(WORK, **more).seconds(device, 8) > WORK.seconds(device, 8)


@pytest.mark.parametrize("less", [{"lanes": 1}, {"sums": 1}], ids=str)
def test_cores_want_full_vectors_and_independent_sums(less: dict[str, Any]) -> None:
    """One lane of eight, or one sum whose latency nothing hides, costs a multiple."""
    assert replace(WORK, **less).seconds(CPU, 8) > 4 * WORK.seconds(CPU, 8)


def test_memory_limits_the_groups_of_a_compute_unit() -> None:
    """Local memory and registers, on a device that has its own."""
    alone = replace(WORK, local_bytes=GPU.static_local_memory_bytes)
    assert alone.at_once(GPU) == GPU.compute_units < WORK.at_once(GPU)
    greedy = replace(WORK, items=256, registers_bytes=4 * 255)
    assert greedy.at_once(GPU) == GPU.compute_units


def test_the_last_groups_leave_units_idle() -> None:
    """One group more than there are cores takes twice as long for each of them."""
    assert replace(WORK, groups=CPU.compute_units).unevenness(CPU) == 1
    assert replace(WORK, groups=CPU.compute_units + 1).unevenness(CPU) == pytest.approx(8 / 5)


def test_groups_of_a_gpu_come_in_rounds() -> None:
    """One more than the device takes at a time is another round; numbers and arrays of them give the same."""
    each = {"flops": 1e9, "shared": 1e7, "local": 1e8, "stored": 1e6}

    def seconds(groups: Any) -> Any:
        counts = {name: count * groups for name, count in each.items()}
        return rounds_s(GPU, 8, **counts, waits=100, groups=groups, held=2, items=128, matrix=True)

    whole, more = (float(seconds(groups)) for groups in (264, 265))
    assert more > 1.4 * whole
    assert float(seconds(132)) < 0.6 * whole
    assert list(seconds(np.array([264, 265]))) == pytest.approx([whole, more])


def test_copies_from_the_shared_cache_take_longer_than_from_local_memory() -> None:
    """Where a space tells them apart."""
    work = replace(WORK, loads=1e10, shared=1e9, items=256)
    assert replace(work, shared=2e9).seconds(GPU, 8) > work.seconds(GPU, 8)
    assert replace(work, waits=1e4).seconds(GPU, 8) > work.seconds(GPU, 8)
    assert "waits" in work_features(work, GPU, 8)
    assert "waits" not in work_features(WORK, GPU, 8)


def test_features_tell_where_rows_begin() -> None:
    """Rows of 64 doubles begin at lines, those of 6 at multiples of 16 bytes."""
    e = fe.einsum("ij,jk->ik", fe.array("A", (100, 6)), fe.array("B", (6, 64)))
    found = problem_features(e, e.resolve({}), GPU)
    assert (found["alignment"], found["alignment of output"]) == (4, 7)


def test_lanes_across_rows_load_more() -> None:
    """A lane along rows of B loads them as they lie; one along the rows of the output that are columns of A does not."""
    indexing, sizes = parse_subscripts("ij,jk->ik"), {"i": 100, "j": 50, "k": 100}
    near, apart = (nest_work(indexing, sizes, 8, lane, 16) for lane in "ki")
    assert near.flops == apart.flops == 2 * 100 * 50 * 100
    assert apart.loads > 4 * near.loads
    assert near.groups == 100 * math.ceil(100 / 16)
    both = in_turn([near, apart])
    assert (both.flops, both.launches) == (2 * near.flops, 2)


def test_a_group_that_goes_across_rows_loads_more() -> None:
    """Work-items that share a sum along one of several indices."""
    alone, several = (
        nest_work(parse_subscripts(text), {"i": 100, "j": 50}, 8, None, 16, shared="j") for text in ("j->", "ij->")
    )
    assert several.loads > 4 * 100 * alone.loads
    generic = find_space("generic")
    line, square = (
        generic.problem(fe.einsum(text, fe.array("A", shape)), {}, CPU)
        for text, shape in (("i->", (10**6,)), ("ij->", (10**3,) * 2))
    )
    times = [generic.work(p, generic.default(p)).seconds(CPU, 8) for p in (line, square)]
    assert times[1] > 1.5 * times[0]


def test_features_of_parameters() -> None:
    """A number is one; a word has one of its own; a letter is its length and how operands lie along it."""
    found = parameter_features(
        "s",
        2,
        {"items": (64, 16), "lane": ("i", "k"), "path": ("fused", "pairwise")},
        {"items": 16, "lane": "k", "path": "fused"},
        {"i": 4, "j": 8, "k": 32},
        parse_subscripts("ij,jk->ik"),
    )
    assert found["s.items"] == 16
    assert (found["s.lane"], found["s.lane in rows"], found["s.lane apart"]) == (5, 1, 0)
    assert found["s.path=fused"] == 1
    assert (found["s.items choice"], found["s.lane choice"], found["s.path choice"]) == (1, 1, 0)
    assert (found["guess"], found["rank"]) == (2, 2)


def test_features_do_not_depend_on_names() -> None:
    """Equal problems have equal features, and all are numbers."""
    other = fe.einsum("pq,qr->pr", fe.array("X", ("M", 64)), fe.array("Y", (64, 64)))
    ours = problem_features(GEMM, GEMM.resolve(SIZES), CPU)
    assert ours == problem_features(other, other.resolve({"M": 10_000}), CPU)
    found = {**ours, **work_features(WORK, CPU, 8)}
    assert all(math.isfinite(value) for value in {**found, **waste_features(found, 1e-3)}.values())


def test_waste_is_in_terms_of_what_a_problem_needs() -> None:
    """Nothing of what moves and computes no more than it must; one of what does twice as much."""
    problem = problem_features(GEMM, GEMM.resolve(SIZES), CPU)
    nbytes, flops = GEMM.min_bytes(GEMM.resolve(SIZES)), GEMM.flops(GEMM.resolve(SIZES))
    works = [Work(flops=k * flops, bytes=k * nbytes) for k in (1, 2)]
    found = [waste_features({**problem, **work_features(w, CPU, 8)}, k * 1e-3) for k, w in enumerate(works, 1)]
    assert found[0]["moved"] == pytest.approx(0)
    assert found[0]["padding"] == pytest.approx(0)
    assert {name: found[1][name] - found[0][name] for name in found[0]} == pytest.approx(dict.fromkeys(found[0], 1))


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "gpu"])
def test_every_space_estimates_what_it_accepts(device: fe.DeviceProfile) -> None:
    """Some work, in some time, for the default of every space that matches some einsum."""
    einsums = [
        (GEMM, SIZES),
        (fe.einsum("ij,j->i", fe.array("A", ("N", 64)), fe.array("x", 64)), SIZES),
        (fe.einsum("xre,rij,ej->xei", *map(fe.array, "JDu", [(3, 3, "N"), (3, 20, 20), ("N", 20)])), SIZES),
        (fe.einsum("abc,cd,de->abe", *map(fe.array, "abc", [(9, "N", 7), (7, 6), (6, 5)])), SIZES),
    ]
    seen = set()
    for e, sizes in einsums:
        for f in top_predictions(Instance.at(e, sizes, device), looked_at=20, model=UNKNOWING):
            seen.add(f.space.name)
            work = f.space.work(f.space.problem(e, sizes, device), f.configuration)
            assert work.flops >= 0
            assert work.bytes > 0
            assert 0 < f.expected_s < 3600
    assert "generic" in seen


LEAF = {"features": ["a"], "spaces": ["s"], "factor": 1.5, "asked": [-1], "beyond": [0], "numbers": [0.5], "roots": [0]}
BROKEN = {
    "a column that is not there": {"asked": [1, -1, -1], "beyond": [2, 0, 0], "numbers": [0, 1, 2]},
    "a node that leads back": {"asked": [0, -1, -1], "beyond": [0, 0, 0], "numbers": [0, 1, 2]},
    "a node that leads out": {"asked": [0, -1, -1], "beyond": [3, 0, 0], "numbers": [0, 1, 2]},
    "a list that is too short": {"asked": [0, -1, -1], "beyond": [2, 0, 0], "numbers": [0, 1]},
    "no leaf at the end": {"asked": [0], "beyond": [0], "numbers": [0]},
    "no number": {"numbers": ["x"]},
    "no nodes": {"asked": [], "beyond": [], "numbers": [], "roots": []},
    "a root that is not there": {"roots": [1]},
    "no features": {"features": None},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_broken_tree_is_refused(change: dict[str, Any]) -> None:
    """Rather than asked for ever."""
    assert Forest.from_json(LEAF).predict([{"space s": 1.0, "a": 1.0}, {"space s": 1.0}]) == pytest.approx([0.5, 0.5])
    with pytest.raises(fe.ValidationError, match="cost model"):
        Forest.from_json({**LEAF, **change})


def test_trees_are_added_up_and_survive_json() -> None:
    """Of two trees, one of them of two levels; a feature that is absent is below all others."""
    forest = Forest(
        ("a", "b"),
        asked=np.array([0, -1, 1, -1, -1, -1]),
        beyond=np.array([2, 0, 4, 0, 0, 0]),
        numbers=np.array([1.0, 10.0, 5.0, 20.0, 30.0, 100.0]),
        roots=np.array([0, 5]),
        spaces=("s",),
        factor=2.0,
    )
    candidates = [{}, {"a": 1.0, "b": 9.0}, {"a": 2.0, "b": 5.0}, {"a": 2.0, "b": 6.0}]
    candidates = [{"space s": 1.0, **c} for c in candidates]
    model = CostModel.from_json(json.loads(json.dumps(CostModel({"cpu": forest}).to_json())))
    for one in (forest, model.forests["cpu"]):
        assert one.predict(candidates) == pytest.approx([110, 110, 120, 130])
    assert (model.factor("cpu"), model.factor("gpu")) == (2.0, None)


def test_a_space_that_was_not_seen_has_to_promise_much() -> None:
    """Nothing is known of what it promises."""
    forest = Forest.from_json(LEAF)
    seen, unseen = forest.predict([{"space s": 1.0}, {"space t": 1.0}])
    assert unseen == pytest.approx(seen + math.log(3))


def test_guesses_and_ranks_count_where_nothing_was_learnt() -> None:
    """Of equal work, the best guess of the most specific space is expected to be quickest."""
    candidates = [{"guess": g, "rank": r} for g, r in ((0.0, 3.0), (5.0, 3.0), (0.0, 0.0))]
    best, farther, generic = UNKNOWING.predict_s(candidates, [1.0] * 3, "gpu")
    assert best == pytest.approx(1)
    assert best < farther
    assert best < generic


def test_a_damaged_model_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And so is one that is not there; the log says so of the first."""
    monkeypatch.setattr(models, "files", lambda _: tmp_path)
    for content, warned in (("{", True), ('{"format": 0}', True), (None, False)):
        (tmp_path / models.FILE).unlink(missing_ok=True)
        if content is not None:
            (tmp_path / models.FILE).write_text(content)
        caplog.clear()
        cost_model.cache_clear()
        with caplog.at_level(logging.WARNING):
            assert not cost_model().forests
        assert bool(caplog.records) == warned
    cost_model.cache_clear()


def test_the_model_that_is_shipped_can_be_read() -> None:
    """It knows CPUs and GPUs."""
    assert set(cost_model().forests) == {"cpu", "gpu"}
    assert all((cost_model().factor(kind) or 0) >= 1 for kind in ("cpu", "gpu"))


def test_top_predictions_are_what_the_model_expects_to_be_quickest() -> None:
    """Best first, the default among them, all of them accepted, each once."""
    generic = find_space("generic")
    problem = generic.problem(GEMM, SIZES, CPU)
    found = top_predictions(Instance.at(GEMM, SIZES, CPU), [generic], model=slower_with("generic.items", 40.0))
    assert [f.expected_s for f in found] == sorted(f.expected_s for f in found)
    assert found[0].configuration["items"] in (16, 32)
    assert generic.default(problem) in [f.configuration for f in found]
    assert all(generic.refusal(problem, f.configuration) is None for f in found)
    assert len({tuple(f.configuration.values()) for f in found}) == len(found)


def test_the_model_chooses_between_spaces() -> None:
    """Whatever their rank."""
    names = [s.name for s in matching_spaces(GEMM)]
    slow = slower_with("space generic", 0.5)
    assert top_predictions(Instance.at(GEMM, SIZES, CPU), model=slow)[0].space.name != "generic"
    only = CostModel(
        {kind: replace(forest, numbers=-forest.numbers + [1.0, 0, 0]) for kind, forest in slow.forests.items()}
    )
    assert top_predictions(Instance.at(GEMM, SIZES, CPU), model=only)[0].space.name == "generic"
    assert names[0] != "generic"


def counted(accepts: int, **changes: Any) -> tuple[TransformSpace, list[Mapping[str, Any]]]:
    """A space of two parameters, and the configurations whose work was asked for."""
    asked: list[Mapping[str, Any]] = []

    def estimate(problem: Problem, c: Mapping[str, Any]) -> Work:
        asked.append(dict(c))
        return Work(flops=1e9 / (1 + c["p"] + c["q"]), bytes=1.0)

    @space(
        pattern=lambda e: True,
        version=1,
        parameters={"p": tuple(range(50)), "q": tuple(range(50))},
        constraint=changes.get("constraint", lambda p, c: None if c["p"] + c["q"] <= accepts else "too much"),
        estimate=changes.get("estimate", estimate),
    )
    def counting(t_unit: Any, match: Any, problem: Any, **c: Any) -> Any:
        return t_unit

    return counting, asked


def test_no_more_is_looked_at_than_allowed() -> None:
    """Besides the default; and nothing twice, nor what is refused."""
    s, asked = counted(accepts=60)
    top_predictions(Instance.at(GEMM, SIZES, CPU), [s], looked_at=70, model=UNKNOWING)
    assert len(asked) <= 71
    assert len({tuple(c.values()) for c in asked}) == len(asked)
    assert all(c["p"] + c["q"] <= 60 for c in asked)


def fail(*_: Any) -> Any:
    raise KeyError("a bug")


@pytest.mark.parametrize("changes", [{"constraint": fail}, {"estimate": fail}], ids=list)
def test_a_space_that_fails_is_passed_over(changes: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """With a warning; the others have their predictions."""
    s, _ = counted(0, **changes)
    found = top_predictions(Instance.at(GEMM, SIZES, CPU), [s, find_space("generic")], model=UNKNOWING)
    assert {f.space.name for f in found} == {"generic"}
    assert "space 'counting' fails when asked" in caplog.text


@pytest.mark.parametrize("what", ["constraint", "estimate"])
def test_what_a_space_found_before_it_fails_stands(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """The default, if it fails at all others."""

    def fail_later(problem: Problem, c: Mapping[str, Any]) -> Any:
        if c["p"] + c["q"] > 0:
            raise KeyError("a bug")
        return None if what == "constraint" else WORK

    s, _ = counted(100, **{what: fail_later})
    found = top_predictions(Instance.at(GEMM, SIZES, CPU), [s], model=UNKNOWING)
    assert [f.configuration for f in found] == [{"p": 0, "q": 0}]
    assert "space 'counting' fails when asked" in caplog.text


def test_a_space_that_accepts_nothing_has_no_predictions(caplog: pytest.LogCaptureFixture) -> None:
    """Which is no fault."""
    s, _ = counted(-1)
    assert top_predictions(Instance.at(GEMM, SIZES, CPU), [s], model=UNKNOWING) == []
    assert not caplog.records


def test_one_configuration_can_be_asked_about() -> None:
    """Longer axes take longer; what the space refuses has no time."""
    generic = find_space("generic")
    c = generic.default(generic.problem(GEMM, SIZES, CPU))
    short, long = (expected_s(Instance.at(GEMM, {"N": n}, CPU), generic, c) for n in (10**5, 10**8))
    assert 0 < short < long
    with pytest.raises(fe.TransformError, match="refuses"):
        expected_s(Instance.at(GEMM, SIZES, CPU), generic, {**c, "items": 7})
