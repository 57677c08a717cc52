"""Precedents among einsums of the same subscripts: other lengths, other types, another number of rows."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from einsums import check_against_numpy, inputs
from profiles import CPU, GPU

import feinsum as fe
from feinsum.candidates.ladder import ConfigurationChoice, _most_promising_first, candidates
from feinsum.candidates.predicted import Prediction
from feinsum.candidates.records import Inquiry, Question, remoteness
from feinsum.candidates.transfer import _SizedEinsum, adapt, is_better, nearest_configuration
from feinsum.canonicalization import canonicalize_einsum
from feinsum.cost.model import CostModel, Forest
from feinsum.database import TuningRecord, open_stores
from feinsum.devices import Device
from feinsum.registry import find_space, spaces
from feinsum.space import Instance, Problem, TransformSpace, space
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome

GENERIC = find_space("generic")
BEST = {"schedule": "fused", "lane": "last", "items": 32}


def gradients(rows: int, nodes: int = 10, dtype: str = "float64") -> fe.BatchedEinsum:
    """Gradients of as many fields."""
    J, D = fe.array("J", (3, 3, "E"), dtype), fe.array("D", (3, nodes, nodes), dtype)
    return fe.batched_einsum("xre,rij,ej->xei", [[J, D, fe.array(f"u{k}", ("E", nodes), dtype)] for k in range(rows)])


def record_of(
    e: fe.BatchedEinsum,
    on: Device,
    sizes: Mapping[str, int],
    s: TransformSpace = GENERIC,
    configuration: Any = BEST,
    **changes: Any,
) -> TuningRecord:
    """A record of a configuration."""
    task = make_task(e, sizes, on, 0)
    return replace(task.record(task.trial(s, configuration), Outcome("ok", samples_s=(1e-3,))), **changes)


def keep(store: str, *records: TuningRecord) -> None:
    with fe.Database(store) as database:
        for record in records:
            database.add(record)


def first_choice(e: fe.BatchedEinsum, sizes: Mapping[str, int], on: Device, store: str) -> ConfigurationChoice:
    canonical = canonicalize_einsum(e)
    here = Instance.of_canonical(canonical, canonical.renaming.lengths(e.resolve(sizes)), on.profile)
    return next(candidates(here, open_stores(store)))


@pytest.mark.parametrize("seed", range(6))
def test_a_record_of_other_rows_and_lengths_serves(
    seed: int, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer or more, as long as they are near and nothing else is expected to be good; the kernel says what differs."""
    model = slow_where("space generic", 0.5, "itemsize", 0.0, beyond=False)
    monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda: model)
    rng = random.Random(seed)
    few, many, dtype = *rng.sample(range(1, 7), 2), rng.choice(["float32", "float64"])
    there, here = gradients(few, 10, dtype), gradients(many, rng.choice([8, 10]), dtype)
    record = record_of(there, cpu, {"E": 1000})
    keep(store, record)
    kernel = fe.generate(here, cpu, store, {"E": 1000})
    assert (kernel.rung, kernel.record) == ("pattern", record)
    assert f"it has {few} rows, not {many}" in kernel.explain()
    arrays = inputs(here, {"E": 41})
    check_against_numpy(here, arrays, kernel(arrays))


def test_the_nearest_of_rows_lengths_and_types_comes_first(cpu: Device, store: str) -> None:
    """Each by itself: the fewer times as many rows, the nearer; equal types before others; then lengths."""
    asked = gradients(4, 10)
    question = Question.of(Instance.at(asked, {"E": 1000}, cpu.profile), [GENERIC])
    nearer = [(4, 10, "float64"), (3, 10, "float64"), (1, 10, "float64"), (1, 10, "float32"), (1, 35, "float32")]
    records = [record_of(gradients(*what), cpu, {"E": 1000}) for what in nearer]
    far = [remoteness(question, record) for record in records]
    assert far == sorted(far)
    assert far[0] == 0
    keep(store, *reversed(records[1:]))
    assert first_choice(asked, {"E": 1000}, cpu, store).record == records[1]


@pytest.mark.parametrize("beaten", [True, False], ids=["slow here", "slow there"])
def test_a_record_of_other_types_stands_against_the_cost_model(
    beaten: bool, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes first unless something is expected to be clearly better here that was not expected to be so there."""
    record = record_of(product(10, 10, "float32"), cpu, {"E": 10**5})
    keep(store, record)
    model = slow_where("itemsize", 4.5, "space generic", 0.5, beyond=beaten)
    monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda: model)
    kernel = fe.generate(product(10, 10), cpu, store, {"E": 10**5})
    assert (kernel.rung, kernel.record) == (("cost model", None) if beaten else ("pattern", record))
    assert ("it is of float32, not float64" in kernel.explain()) != beaten


def test_many_more_rows_are_no_precedent(cpu: Device, store: str) -> None:
    """Where the cost model, which learnt from all records, knows better."""
    far = record_of(gradients(400), cpu, {"E": 1000})
    keep(store, far)
    assert first_choice(gradients(1), {"E": 1000}, cpu, store).record != far


def test_records_of_the_einsum_itself_come_before_others(cpu: Device, store: str) -> None:
    """At whatever lengths of long axes."""
    own = record_of(gradients(3), cpu, {"E": 10})
    keep(store, own, record_of(gradients(2), cpu, {"E": 1000}))
    choice = first_choice(gradients(3), {"E": 1000}, cpu, store)
    assert (choice.rung, choice.record) == ("lengths", own)


@pytest.mark.parametrize(("far_s", "first"), [(1e-6, "vector_panels"), (1.0, "generic")])
def test_the_nearest_record_gives_way_to_one_of_another_space_that_promises_much_less(
    far_s: float, first: str, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its time, scaled as the cost model says: nobody may have tried that space where the nearest was tuned."""
    monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda: CostModel({}))
    panels, there = find_space("vector_panels"), product(12, 10)
    near = record_of(product(11, 10), cpu, {"E": 10**5})
    configuration = panels.default(panels.problem(there, {"E": 10**4}, cpu.profile))
    far = replace(record_of(there, cpu, {"E": 10**4}, panels, configuration), samples_s=(far_s,))
    keep(store, near, far)
    here = Instance.at(product(10, 10), {"E": 10**5}, cpu.profile)
    question, matching = Question.of(here, (GENERIC, panels)), {s.name: s for s in (GENERIC, panels)}
    found = Inquiry(open_stores(store), cpu.profile).precedents(question)
    order = [record.space for _, record in _most_promising_first(found, question, here, matching)]
    assert order == [first, *({"generic", "vector_panels"} - {first})]


def choices(p: Problem) -> Any:
    """Widths that divide j."""
    n = p.sizes["j"]
    return {"width": [w for w in range(1, n + 1) if n % w == 0], "copy": (False, True), "order": ("ij", "ji")}


@space(
    pattern="ij,ej->ei",
    version=1,
    parameters=choices,
    constraint=lambda p, c: "too much" if c["copy"] and c["width"] * p.sizes["i"] > 60 else None,
)
def picky(t_unit: Any, m: Any, p: Any, **c: Any) -> Any:
    """Choices that depend on lengths."""
    return t_unit


def product(i: int, j: int, dtype: str = "float64") -> fe.BatchedEinsum:
    return fe.einsum("ij,ej->ei", fe.array("A", (i, j), dtype), fe.array("u", ("E", j), dtype))


@pytest.mark.parametrize(
    ("i", "j", "wanted"),
    [
        (6, 12, {"width": 6, "copy": True, "order": "ji"}),
        (6, 10, {"width": 5, "copy": True, "order": "ji"}),
        (6, 7, {"width": 7, "copy": True, "order": "ji"}),
        (12, 12, {"width": 4, "copy": True, "order": "ji"}),
        (100, 12, {"width": 6, "copy": False, "order": "ji"}),
    ],
)
def test_values_give_way_to_the_nearest(i: int, j: int, wanted: dict[str, Any]) -> None:
    """First to be choices at all, then to be accepted together, with as few changes as can be."""
    found = nearest_configuration(
        picky.problem(product(i, j), {"E": 100}, CPU), picky, {"width": 6, "copy": True, "order": "ji"}
    )
    assert found == wanted


def test_a_record_of_other_parameters_is_near_to_nothing() -> None:
    """They mean something else."""
    assert nearest_configuration(picky.problem(product(6, 12), {"E": 100}, CPU), picky, {"width": 6}) is None


def slow_where(
    feature: str, limit: float, other: str, other_limit: float, *, beyond: bool = True, times: float = 1000
) -> CostModel:
    """A model of what takes so many times as long where one feature is beyond its limit, or is not, and another is."""
    forest = Forest(
        (feature, other),
        asked=np.array([0, 1, -1, -1, 1, -1, -1]),
        beyond=np.array([4, 3, 0, 0, 6, 0, 0]),
        numbers=np.array([limit, other_limit, 0.0, 0.0, other_limit, 0.0, 0.0]),
        roots=np.array([0]),
        spaces=tuple(s.name for s in spaces()),
        factor=1.5,
    )
    forest.numbers[6 if beyond else 3] = math.log(times)
    return CostModel({"cpu": forest})


@pytest.mark.parametrize(("rows", "believed"), [(3.5, True), (0.5, False)], ids=["here only", "there too"])
def test_the_cost_model_is_believed_about_what_differs(
    rows: float, believed: bool, cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it expected to be better where the record was made as well was not better there."""
    monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda: slow_where("rows", rows, "generic.items", 40))
    record = record_of(gradients(2), cpu, {"E": 10**5}, configuration={"schedule": "fused", "lane": "last", "items": 64})
    found = adapt(record, Instance.at(gradients(5), {"E": 10**5}, cpu.profile), GENERIC)
    assert found is not None
    assert (found["items"] < 40) == believed


def test_a_space_that_fails_is_a_miss(caplog: pytest.LogCaptureFixture, cpu: Device) -> None:
    """Never an exception."""

    @space(pattern="ij,ej->ei", version=1, parameters=lambda p: {"width": (1 // (p.sizes["i"] - 9),)})
    def failing(t_unit: Any, m: Any, p: Any, **c: Any) -> Any:
        return t_unit

    record = record_of(product(10, 4), cpu, {"E": 100}, failing, {"width": 1})
    assert adapt(record, Instance.at(product(9, 4), {"E": 100}, GPU), failing) is None
    assert "ZeroDivisionError" in caplog.text


def test_an_estimate_that_fails_is_a_miss(caplog: pytest.LogCaptureFixture, cpu: Device) -> None:
    """A rival is not preferred to a record because the space of the record cannot say how long its kernels take."""

    def estimate(p: Problem, c: Any) -> Any:
        raise ZeroDivisionError("no work")

    @space(pattern="ij,ej->ei", version=1, parameters={"width": (1,)}, estimate=estimate)
    def failing(t_unit: Any, m: Any, p: Any, **c: Any) -> Any:
        return t_unit

    record = record_of(product(10, 4), cpu, {"E": 100}, failing, {"width": 1})
    rival = Prediction(GENERIC, BEST, 1e-9, 1e-9)
    assert not is_better(rival, record, {"width": 1}, Instance.at(product(9, 4), {"E": 100}, cpu.profile), failing)
    assert "space 'failing' fails when asked what it accepts: ZeroDivisionError: no work" in caplog.text


def test_numbers_of_one_size_are_not_of_one_type(cpu: Device) -> None:
    """What was measured of float64 proves nothing of complex64, for which the cost model is asked."""
    real, same, pairs = (
        _SizedEinsum(Instance.at(gradients(2, dtype=dtype), {"E": 1000}, cpu.profile), GENERIC)
        for dtype in ("float64", "float64", "complex64")
    )
    assert real.is_like(same)
    assert not pairs.is_like(real)


def test_what_was_no_choice_is_left_to_the_cost_model(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of one row says nothing of several together, so the least gain is enough; of what it chose, it is not."""
    panels = find_space("vector_panels")
    there, here = ({"E": 10**5, "e": gradients(rows)} for rows in (1, 3))
    problem = panels.problem(there["e"], {"E": there["E"]}, cpu.profile)
    assert panels.parameters(problem)["rows"] == ("together",)
    sums = ((c, panels.work(problem, c).sums) for c in panels.configurations(problem) if c["streaming"])
    recorded = next(c for c, count in sums if 3 * count <= 32)
    record = record_of(there["e"], cpu, {"E": there["E"]}, panels, recorded)
    for times, rows in ((0.95, "apart"), (0.5, "together")):
        model = slow_where("rows", 1.0, "vector_panels.rows choice", 0.5, times=times)
        monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda model=model: model)
        found = adapt(record, Instance.at(here["e"], {"E": here["E"]}, cpu.profile), panels)
        assert found is not None
        assert found["rows"] == rows
    model = slow_where("rows", 1.0, "vector_panels.streaming choice", 0.5, times=0.95)
    monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda: model)
    found = adapt(record, Instance.at(here["e"], {"E": here["E"]}, cpu.profile), panels)
    assert found is not None
    assert found["streaming"]


def test_parameters_that_follow_a_rule_are_new_to_old_records(cpu: Device) -> None:
    """A record of before loads were in flight keeps its lanes, and gets the loads that the rule wants elsewhere."""
    s = find_space("elementwise_product")

    def outer(n: int) -> fe.BatchedEinsum:
        return fe.einsum("i,j->ij", fe.array("x", (n,)), fe.array("y", (n,)))

    old = {"width": 512, "portion": 1, "streaming": False}
    record = replace(record_of(outer(4096), cpu, {}), space=s.name, space_version=s.version, configuration=old)
    there, elsewhere = (Instance.at(outer(n), {}, GPU) for n in (4096, 8192))
    ruled = s.default(elsewhere.problem(s))
    found = [adapt(record, place, s) or {} for place in (there, elsewhere)]
    assert [(c["strips"], c["vector"]) for c in found] == [(1, 1), (ruled["strips"], ruled["vector"])]
    assert found[0] != found[1]
    known = replace(record, configuration={**old, "strips": 1, "vector": 1})
    assert s.completed(old) == known.configuration
