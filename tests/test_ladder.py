"""The ladder: which evidence `generate` goes by, from an exact record down to the generic space."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from einsums import check_against_numpy, inputs
from models import slower_with

import feinsum as fe
from feinsum.candidates.ladder import candidates
from feinsum.canonicalization import canonicalize_einsum
from feinsum.cost.model import CostModel
from feinsum.database import open_stores
from feinsum.devices import Device
from feinsum.registry import find_space, matching_spaces
from feinsum.space import Instance, TransformSpace
from feinsum.tune.autotune import make_task
from feinsum.tune.trial import Outcome

pytestmark = pytest.mark.slow

A, B, U = fe.array("A", (6, 5)), fe.array("B", (6, 5)), fe.array("u", ("E", 5))
E = fe.batched_einsum("ij,ej->ei", [[A, U], [B, U]])
BEST, OTHER = ({"schedule": "fused", "lane": lane, "items": items} for lane, items in (("last", 16), ("longest", 32)))


def add(
    store: str,
    e: fe.BatchedEinsum,
    device: Device,
    sizes: Mapping[str, int],
    configuration: Any = BEST,
    median_s: float = 1e-3,
    changes: Mapping[str, Any] | None = None,
) -> fe.TuningRecord:
    """Store a record of the generic space, with some fields changed."""
    task = make_task(e, sizes, device, 0)
    outcome = Outcome("ok", samples_s=(median_s,))
    record = replace(task.record(task.trial(find_space("generic"), configuration), outcome), **(changes or {}))
    with fe.Database(store) as database:
        database.add(record)
    return record


def test_the_quickest_exact_record_wins(cpu: Device, store: str) -> None:
    """Of the same lengths, device and driver; the kernel knows it, and what it promises."""
    add(store, E, cpu, {"E": 1000}, OTHER, median_s=2e-3)
    best = add(store, E, cpu, {"E": 1000}, BEST, median_s=1e-3)
    add(store, E, cpu, {"E": 2000}, OTHER, median_s=1e-6)
    kernel = fe.generate(E, cpu, store, {"E": 1000})
    assert kernel.rung == "exact"
    assert kernel.record == best
    assert kernel.configuration == BEST
    text = kernel.explain()
    assert "rung      exact: measured for this einsum at these lengths, on this device and driver" in text
    assert f"record    {best.id}" in text
    assert "time      1 ms" in text
    arrays = inputs(E, {"E": 41})
    check_against_numpy(E, arrays, kernel(arrays))


ANOTHER_LENGTH = fe.batched_einsum("ij,ej->ei", [[fe.array(name, (7, 5)), fe.array("u", ("E", 5))] for name in ("A", "B")])
RUNGS: dict[str, tuple[fe.BatchedEinsum, dict[str, int], dict[str, Any]]] = {
    "lengths": (E, {"E": 500}, {}),
    "pattern": (ANOTHER_LENGTH, {"E": 1000}, {}),
    "driver": (E, {"E": 1000}, {"driver": "an older one"}),
    "architecture": (E, {"E": 1000}, {"device": "cpu:intel:another:64cu"}),
    "cost model, as the device is another": (
        E,
        {"E": 1000},
        {"device": "cpu:intel:another:64cu", "architecture": "another"},
    ),
    "cost model, as the version is another": (E, {"E": 1000}, {"space_version": 999}),
    "cost model, as the space is gone": (E, {"E": 1000}, {"space": "gone"}),
    "cost model, as the configuration is gone": (E, {"E": 1000}, {"configuration": {"items": 7}}),
    "cost model, as the trial failed": (E, {"E": 1000}, {"status": "wrong", "samples_s": ()}),
}


@pytest.mark.parametrize(("recorded", "sizes", "changes"), RUNGS.values(), ids=RUNGS)
def test_every_rung(
    recorded: fe.BatchedEinsum,
    sizes: dict[str, int],
    changes: dict[str, Any],
    request: pytest.FixtureRequest,
    cpu: Device,
    store: str,
) -> None:
    """A record that is not exact counts for what it is; one that cannot be used is a miss."""
    record = add(store, recorded, cpu, sizes, changes=changes)
    kernel = fe.generate(E, cpu, store, {"E": 1000})
    wanted = request.node.callspec.id.partition(",")[0]
    assert kernel.rung == wanted
    assert kernel.record == (None if wanted == "cost model" else record)
    arrays = inputs(E, {"E": 41})
    check_against_numpy(E, arrays, kernel(arrays))


def test_rungs_come_in_order(cpu: Device, store: str) -> None:
    """Each better record that is added takes over, however slow it is."""
    expected = []
    for rung, slowness in (("architecture", 1), ("driver", 2), ("pattern", 3), ("lengths", 4)):
        recorded, sizes, changes = RUNGS[rung]
        expected.append(add(store, recorded, cpu, sizes, median_s=slowness * 1e-3, changes=changes))
        kernel = fe.generate(E, cpu, store, {"E": 1000})
        assert (kernel.rung, kernel.record) == (rung, expected[-1])


def test_the_time_of_a_record_is_changed_as_lengths_are(cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel expects about a hundred times the time for a hundred times the length, and says so."""
    monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda: CostModel({}))
    record = add(store, E, cpu, {"E": 10**5}, median_s=1e-3)
    kernel = fe.generate(E, cpu, store, {"E": 10**7})
    assert (kernel.rung, kernel.record) == ("lengths", record)
    (line,) = (line for line in kernel.explain().splitlines() if line.startswith("  expected  about "))
    assert 30 < float(line.split()[2]) < 300
    assert "the time of the record, changed as the cost model says" in line
    assert "expected" not in fe.generate(E, cpu, store, {"E": 10**5}).explain()


def test_the_cost_model_chooses_between_spaces(cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was measured, whatever their rank; the kernel says what was expected, and how sure that is."""
    spaces = [s.name for s in matching_spaces(E) if s.name != "generic"]
    for length, unloved in enumerate(spaces, 1000):
        monkeypatch.setattr(
            "feinsum.candidates.predicted.cost_model", lambda unloved=unloved: slower_with(f"space {unloved}", 0.5)
        )
        kernel = fe.generate(E, cpu, store, {"E": length})
        assert kernel.rung == "cost model"
        assert kernel.space != unloved
        assert "  expected  about " in kernel.explain()
        arrays = inputs(E, {"E": 41})
        check_against_numpy(E, arrays, kernel(arrays))


def test_a_prediction_that_does_not_work_is_followed_by_the_next(
    cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a record that does not is; the clock does not end the search, so it finds the same twice on a busy machine."""
    monkeypatch.setattr("feinsum.candidates.ladder.SECONDS", math.inf)
    here = Instance.of_canonical(canonicalize_einsum(E), {"a": 999, "b": 6, "c": 5}, cpu.profile)
    first, second, *_ = candidates(here, open_stores(store))
    assert first.rung == second.rung == "cost model"
    original = TransformSpace.apply

    def fail_on_first(space: TransformSpace, t_unit: Any, match: Any, problem: Any, configuration: Any) -> Any:
        if (space.name, configuration) == (first.space.name, first.configuration):
            raise KeyError("a bug")
        return original(space, t_unit, match, problem, configuration)

    monkeypatch.setattr(TransformSpace, "apply", fail_on_first)
    kernel = fe.generate(E, cpu, store, {"E": 999})
    assert kernel.rung == "cost model"
    assert (kernel.space, kernel.configuration) == (second.space.name, second.configuration)


def test_the_nearest_lengths_win(cpu: Device, store: str) -> None:
    """In ratio, whichever is quicker."""
    add(store, E, cpu, {"E": 10}, median_s=1e-6)
    near = add(store, E, cpu, {"E": 3000}, OTHER, median_s=1e-2)
    assert fe.generate(E, cpu, store, {"E": 1000}).record == near


def test_a_record_of_other_lengths_gives_way_to_what_is_expected_to_be_clearly_quicker(
    cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing but the launch counted when it was measured, it says little of the work here, unless by its time."""
    monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda: CostModel({}))
    here = Instance.of_canonical(canonicalize_einsum(E), {"a": 10**6, "b": 6, "c": 5}, cpu.profile)
    small = fe.batched_einsum("ij,ej->ei", [[fe.array(name, (2, 5)), fe.array("u", ("E", 5))] for name in ("A", "B")])
    slow = add(store, small, cpu, {"E": 2})
    found = list(candidates(here, open_stores(store)))
    assert found[0].rung == "cost model"
    assert found[0].space.name != "generic"
    (stays,) = (choice for choice in found if choice.record == slow)
    assert stays.rung == "pattern"
    quick = add(store, small, cpu, {"E": 2}, median_s=1e-12)
    assert next(candidates(here, open_stores(store))).record == quick


def shuffled(e: fe.BatchedEinsum, rng: random.Random) -> tuple[fe.BatchedEinsum, dict[str, str]]:
    """The same einsum in other names and another order of operands and rows, and the new names of its arrays."""
    letters = dict(zip(e.indexing.indices, rng.sample("abcdefghijklmnop", len(e.indexing.indices)), strict=True))
    names = dict(zip((a.name for a in e.arrays), rng.sample(["p", "q", "r", "s"], len(e.arrays)), strict=True))
    operands, rows = rng.sample(range(e.n), e.n), rng.sample(range(e.b), e.b)
    indexing = e.indexing.rename(letters)

    def renamed(a: fe.Array) -> fe.Array:
        return fe.array(names[a.name], ["F" if axis == "E" else axis for axis in a.shape], a.dtype)

    text = f"{','.join(indexing.inputs[k] for k in operands)}->{indexing.output}"
    return fe.batched_einsum(text, [[tuple(map(renamed, e.args[i][k])) for k in operands] for i in rows]), names


@pytest.mark.parametrize("seed", range(4))
def test_an_einsum_in_other_names_and_order_has_the_same_records(seed: int, cpu: Device, store: str) -> None:
    """What one tuned serves the other, and each output is where the row was that asked for it."""
    other, names = shuffled(E, random.Random(seed))
    assert canonicalize_einsum(other).key == canonicalize_einsum(E).key
    record = add(store, E, cpu, {"E": 1000})
    kernel = fe.generate(other, cpu, store, {"F": 1000})
    assert (kernel.rung, kernel.record) == ("exact", record)
    arrays = {names[name]: values for name, values in inputs(E, {"E": 23}).items()}
    check_against_numpy(other, arrays, kernel(arrays))
    assert fe.query(other, cpu, store) == [record]


def test_a_record_that_does_not_work_is_passed_over(cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its transformation raises, the next rung answers, and the log says why."""
    space = find_space("generic")
    original: Callable[..., Any] = space.function

    def fail_on_best(t_unit: Any, match: Any, problem: Any, **configuration: Any) -> Any:
        if configuration == BEST:
            raise KeyError("a bug")
        return original(t_unit, match, problem, **configuration)

    add(store, E, cpu, {"E": 1000}, BEST)
    second = add(store, E, cpu, {"E": 2000}, OTHER)
    monkeypatch.setitem(vars(space), "function", fail_on_best)
    kernel = fe.generate(E, cpu, store, {"E": 1000})
    assert (kernel.rung, kernel.record) == ("lengths", second)


def test_a_wrong_kernel_is_passed_over_below_the_first_rung(
    cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is checked once against the reference before anybody gets it."""
    space = find_space("generic")
    original: Callable[..., Any] = space.function

    def double_on_best(t_unit: Any, match: Any, problem: Any, **configuration: Any) -> Any:
        t_unit = original(t_unit, match, problem, **configuration)
        if configuration == BEST:
            knl = t_unit.default_entrypoint
            doubled = [insn.copy(expression=2 * insn.expression) for insn in knl.instructions]
            t_unit = t_unit.with_kernel(knl.copy(instructions=doubled))
        return t_unit

    add(store, E, cpu, {"E": 500}, BEST)
    monkeypatch.setitem(vars(space), "function", double_on_best)
    kernel = fe.generate(E, cpu, store, {"E": 1000})
    assert kernel.configuration != BEST
    assert "is passed over: 'out_0'" in caplog.text
    arrays = inputs(E, {"E": 41})
    check_against_numpy(E, arrays, kernel(arrays))
