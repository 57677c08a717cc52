"""Compositions: what is recorded for the steps of an einsum makes kernels of the whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from einsums import check_against_numpy, inputs
from feinsum.transforms.steps.contractions import STEP_SPACES
from kernels import run
from loopy import AddressSpace
from models import slower_with
from profiles import GPU

import feinsum as fe
from feinsum.candidates.composed import MOST_CHAINS, best_chains
from feinsum.candidates.ladder import candidates
from feinsum.candidates.records import Inquiry
from feinsum.canonicalization import canonicalize_einsum
from feinsum.compile.executable import build_executable
from feinsum.compile.realize import realize
from feinsum.contraction import step_einsums
from feinsum.database import open_stores
from feinsum.devices import Device
from feinsum.registry import find_space
from feinsum.space import Instance, TransformSpace
from feinsum.space.chain import STEPS, read_chain
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome
from feinsum.validate import Workload

SIZES = {"B": 300}
X, W, Y = fe.array("x", ("B", 7)), fe.array("W", (2, 7, 5)), fe.array("y", ("B", 5))
WHOLE = fe.einsum("bi,oij,bj->bo", X, W, Y)
CHAIN = find_space("contraction_steps")
FIRST = fe.einsum("bi,oij->boj", X, W)
SECOND = fe.einsum("bj,boj->bo", Y, fe.array("xW", ("B", 2, 5)))
"""The steps of WHOLE, as somebody would write them."""


def first_in_other_words() -> fe.BatchedEinsum:
    return fe.einsum("zyx,ey->ezx", fe.array("weights", (2, 7, 5)), fe.array("rows", ("N", 7)))


@pytest.fixture
def at_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cost model that expects nothing good of kernels for three operands at once."""
    monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda: slower_with("operands", 2.5))


def add(
    store: str,
    e: fe.BatchedEinsum,
    on: Device,
    space: str,
    configuration: Mapping[str, Any] | None = None,
    median_s: float = 1e-3,
    **changes: Any,
) -> fe.TuningRecord:
    """Store a record of a space for an einsum with one long axis, of the default configuration unless given."""
    task = make_task(e, dict.fromkeys(e.long_axes, 300), on)
    chosen = find_space(space)
    trial = task.trial(chosen, configuration or chosen.default(task.problem(chosen)))
    record = replace(task.record(trial, Outcome("ok", samples_s=(median_s,))), **changes)
    with fe.Database(store) as database:
        database.add(record)
    return record


def links(configuration: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(link["space"], link["configuration"]) for link in json.loads(configuration["steps"])]


def check(kernel: fe.Kernel) -> None:
    arrays = inputs(WHOLE, {"B": 41})
    check_against_numpy(WHOLE, arrays, kernel(arrays))


def test_tuned_steps_make_the_kernel_of_the_whole(cpu: Device, store: str, at_steps: None) -> None:
    """Tune the steps; the whole is then tried as a chain of their winners, and the record of it is a kernel by itself.

    A cost model that expects much of one kernel for the whole would have that one tried first.
    """
    winners = []
    for step in (first_in_other_words(), SECOND):
        sizes = dict.fromkeys(step.long_axes, 300)
        fe.autotune(step, cpu, store, sizes, "generic", trials=2, workers=1, progress=False)
        best = fe.generate(step, cpu, store, sizes).record
        assert best is not None
        winners.append(best)
    report = fe.autotune(WHOLE, cpu, store, SIZES, "contraction_steps", trials=1, workers=1, progress=False)
    (record,) = report.records
    assert record.status == "ok"
    assert links(record.configuration) == [("generic", dict(r.configuration)) for r in winners]
    kernel = fe.generate(WHOLE, cpu, store, SIZES)
    assert (kernel.rung, kernel.configuration) == ("exact", dict(record.configuration))
    assert [line.strip() for line in kernel.explain().splitlines() if " record " in line][:2] == [
        f"exact record {r.id} of {r.created}, {(r.median_s or 0) * 1e3:.4g} ms" for r in winners
    ]
    check(kernel)


def test_what_is_recorded_of_steps_is_seen_when_it_changes(cpu: Device, store: str, at_steps: None) -> None:
    """From nothing to a record of one step, then of both, then a better one; and the whole's own record ends it."""
    assert fe.generate(WHOLE, cpu, store, SIZES).rung == "cost model"
    first = add(store, first_in_other_words(), cpu, "generic")
    kernel = fe.generate(WHOLE, cpu, store, SIZES)
    assert kernel.rung == "steps"
    assert links(kernel.configuration)[0] == ("generic", dict(first.configuration))
    assert f"exact record {first.id}" in kernel.explain()
    assert "            cost model" in kernel.explain()
    second = add(store, SECOND, cpu, "generic", {"schedule": "fused", "lane": "last", "items": 32})
    better = add(store, FIRST, cpu, "vector_panels", median_s=1e-4)
    kernel = fe.generate(WHOLE, cpu, store, SIZES)
    assert links(kernel.configuration) == [
        ("vector_panels", dict(better.configuration)),
        ("generic", dict(second.configuration)),
    ]
    assert "step 0    bi,oij->boj by vector_panels" in kernel.explain()
    assert "about 1.1 ms" in kernel.explain()
    assert fe.generate(WHOLE, cpu, store, SIZES) is kernel
    check(kernel)
    add(store, WHOLE, cpu, "generic")
    assert fe.generate(WHOLE, cpu, store, SIZES).rung == "exact"


def test_a_step_is_known_at_other_lengths_too(cpu: Device, store: str, at_steps: None) -> None:
    """Of the same pattern: by letters, order of operands and lengths of any kind it does not differ."""
    alike = fe.einsum("zyx,ey->ezx", fe.array("weights", (9, 4, 5)), fe.array("rows", (77, 4)))
    record = add(store, alike, cpu, "generic")
    kernel = fe.generate(WHOLE, cpu, store, SIZES)
    assert kernel.rung == "steps"
    assert f"pattern record {record.id}" in kernel.explain()
    check(kernel)


BAD: dict[str, dict[str, Any]] = {
    "has a value that is no choice": {"configuration": {"schedule": "fused", "lane": "last", "items": 7}},
    "has another parameter": {"configuration": {"speed": 3}},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_a_record_that_a_step_cannot_have_is_passed_over(
    changes: dict[str, Any], cpu: Device, store: str, at_steps: None
) -> None:
    """With a reason; the next best is taken."""
    bad = add(store, FIRST, cpu, "generic", median_s=1e-9, **changes)
    good = add(store, FIRST, cpu, "vector_panels", device="cpu:intel:another:64cu")
    kernel = fe.generate(WHOLE, cpu, store, SIZES)
    assert links(kernel.configuration)[0] == ("vector_panels", dict(good.configuration))
    assert f"passed over: record {bad.id}: " in kernel.explain()
    assert f"architecture record {good.id}" in kernel.explain()


def test_steps_that_promise_less_than_the_cost_model_are_no_kernel(cpu: Device, store: str) -> None:
    """A kernel for all operands at once competes with the chain."""
    for step in (FIRST, SECOND):
        add(store, step, cpu, "generic", median_s=10.0)
    assert fe.generate(WHOLE, cpu, store, SIZES).rung == "cost model"


def own_problem(device: Device) -> Any:
    e = canonicalize_einsum(WHOLE).einsum
    return CHAIN.problem(e, dict.fromkeys(e.long_axes, 300), device.profile)


def chain_of(problem: Any, spaces: list[TransformSpace]) -> dict[str, Any]:
    """A chain of default configurations along the first schedule."""
    from feinsum.contraction import step_einsums

    schedule = next(iter(CHAIN.schedules(problem)), None)
    assert schedule is not None
    problems = [
        s.problem(e, e.sizes_from(problem.sizes), problem.device)
        for s, e in zip(spaces, step_einsums(problem.einsum, schedule), strict=True)
    ]
    return CHAIN.chain(schedule, [(s, s.default(own)) for s, own in zip(spaces, problems, strict=True)])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a space that makes no steps": (
        {"space": "dg_gradient"},
        "wants space 'dg_gradient'; 'contraction_steps' has no steps",
    ),
    "an older version": ({"version": 0}, "wants version 0 of 'generic', which has version 1"),
    "a space that does not apply": ({"space": "matrix_product"}, "is nothing that space 'matrix_product' applies to"),
    "a chain in a chain": (
        {"space": "contraction_steps", "version": CHAIN.version, "configuration": {"steps": "[]"}},
        "is a chain itself",
    ),
    "a configuration that its space refuses": (
        {"configuration": {"schedule": "fused", "lane": "last", "items": 7}},
        "'generic' refuses it: items is 7",
    ),
    "other operands": ({"operands": [0, 0]}, "occurs in no operand"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_chain_that_makes_no_kernel_is_refused(changes: dict[str, Any], reason: str, cpu: Device) -> None:
    """With the step and the reason, by refusal and by transformation."""
    problem, generic = own_problem(cpu), find_space("generic")
    good = chain_of(problem, [generic, generic])
    assert CHAIN.refusal(problem, good) is None
    data = json.loads(good["steps"])
    bad = {"steps": json.dumps([{**data[0], **changes}, data[1]], sort_keys=True, separators=(",", ":"))}
    assert reason in (CHAIN.refusal(problem, bad) or "")
    with pytest.raises(fe.TransformError, match="space 'contraction_steps' refuses"):
        fe.timeit(WHOLE, cpu, configuration=bad, space="contraction_steps", sizes=SIZES)
    assert "its parameters are" in (CHAIN.refusal(problem, {**good, "split": "none"}) or "")
    assert "its parameters are" in (generic.refusal(problem, good) or "")


def test_every_space_makes_steps(cpu: Device, store: str) -> None:
    """Each that applies to a step and has a configuration for it on this device, beside a step of another one."""
    problem, generic = own_problem(cpu), find_space("generic")
    made = set()
    for s in (*STEP_SPACES, CHAIN):
        for place in (0, 1):
            spaces = [generic, generic]
            spaces[place] = s
            try:
                chain = chain_of(problem, spaces)
            except fe.TransformError:
                continue
            assert CHAIN.refusal(problem, chain) is None
            assert CHAIN.work(problem, chain).launches >= 2
            record = add(store, WHOLE, cpu, "contraction_steps", chain, median_s=1e-6 / (1 + len(made)))
            kernel = fe.generate(WHOLE, cpu, store, SIZES)
            assert (kernel.rung, kernel.record) == ("exact", record)
            check(kernel)
            made.add((s.name, place))
    assert {("vector_panels", 0), ("vector_panels", 1), ("contraction_steps", 0)} <= made


def test_steps_are_tuned_on_request(cpu: Device, store: str) -> None:
    """First, with trials of their own; what they find is the first that is tried of the whole, and a table names them."""
    report = fe.autotune(WHOLE, cpu, store, SIZES, "contraction_steps", trials=2, steps="always", workers=1, progress=False)
    assert len(report.steps) == 2
    assert all(len(step.records) == 2 and step.best is not None for step in report.steps)
    chains = [r for r in report.records if set(r.configuration) == {"steps"}]
    assert chains
    found = links(chains[0].configuration)
    kernels = [fe.generate(step.einsum, cpu, store, step.sizes) for step in report.steps]
    assert found == [(kernel.space, kernel.configuration) for kernel in kernels]
    assert all(f"step {step.einsum.subscripts}: " in report.table() for step in report.steps)
    assert [step["tried"] for step in report.to_json()["steps"]] == [2, 2]
    assert not fe.autotune(WHOLE, cpu, store, SIZES, trials=1, workers=1, progress=False).steps
    with pytest.raises(fe.SearchError, match="steps is 'often'; it is one of 'auto', 'always', 'never'"):
        fe.autotune(WHOLE, cpu, store, SIZES, steps="often", progress=False)


@pytest.mark.parametrize(
    "spaces", [("packed_product",) * 2, ("packed_product", "vector_panels"), ("vector_panels", "packed_product")]
)
@pytest.mark.parametrize("subscripts", ["ij,jk,kl->il", "ij,kj,lk->li", "ijk,jl,km->ilm"])
def test_packed_products_are_steps(subscripts: str, spaces: tuple[str, str], cpu: Device) -> None:
    """They read partial results, and write them; each with launches of its own."""
    lengths = dict(zip("ijklm", (150, 40, 130, 90, 70), strict=True))
    e = fe.einsum(
        subscripts,
        *(fe.array(f"a{k}", [lengths[x] for x in term]) for k, term in enumerate(subscripts.partition("->")[0].split(","))),
    )
    task = make_task(e, {}, cpu)
    assert task.instance is not None
    problem = task.problem(CHAIN)
    schedule = CHAIN.schedules(problem)[0]
    kernels = []
    for name, step in zip(spaces, step_einsums(problem.einsum, schedule), strict=True):
        space = find_space(name)
        kernels.append((space, space.default(Instance.at(step, {}, cpu.profile).problem(space))))
    program = realize(task.instance.einsum, {}, CHAIN, CHAIN.chain(schedule, kernels), cpu.profile)
    verdict = Workload(task.instance.einsum, task.instance.lengths, cpu.queue).check(build_executable(cpu.context, program))
    assert verdict.ok, verdict.message


def test_a_chain_transforms_the_kernel_of_a_compiler(cpu: Device, store: str, at_steps: None) -> None:
    """In its own letters and order of operands; every step is a launch with a partial result in global memory."""
    for step in (FIRST, SECOND):
        add(store, step, cpu, "vector_panels")
    own = fe.einsum("nz,nx,yxz->ny", fe.array("c", ("n", 5)), fe.array("a", ("n", 7)), fe.array("b", (2, 7, 5)))
    t_unit = fe.transform(fe.generate_loopy(own), cpu, database=store, sizes={"n": 300})
    kernel = t_unit.default_entrypoint
    assert kernel.temporary_variables["partial_0"].address_space == AddressSpace.GLOBAL
    arrays = inputs(own, {"n": 41})
    check_against_numpy(own, arrays, run(t_unit, **arrays)["out"])


def test_without_records_each_step_has_the_kernel_that_is_expected_to_be_fastest(cpu: Device, store: str) -> None:
    """The quickest of several orders of the axes of partial results; what they make is right."""
    shapes = {"T": (6, 5, 4), "A": (19, 6), "B": (17, 5), "C": (21, 4)}
    e = fe.einsum("abc,ia,jb,kc->ijk", *(fe.array(name, shape) for name, shape in shapes.items()))
    task = make_task(e, {}, cpu)
    assert task.instance is not None
    problem = task.problem(CHAIN)
    schedules = CHAIN.schedules(problem)
    assert len(set(schedules)) == len(schedules) > 2
    for schedule in schedules:
        schedule.check(problem.einsum.indexing)
    found = best_chains(CHAIN, problem, Inquiry(open_stores(store), cpu.profile))
    assert [made.rung for made in found] == ["cost model"] * (MOST_CHAINS + 1)
    assert found[0].expected_s <= found[1].expected_s
    best, changed = (read_chain(made.configuration[STEPS]) for made in (found[0], found[-1]))
    assert [link.operands for link in best] == [link.operands for link in changed]
    assert sum(own != other for own, other in zip(best, changed, strict=True)) == 1
    assert all(made.is_cached and CHAIN.refusal(problem, made.configuration) is None for made in found)
    program = realize(task.instance.einsum, {}, CHAIN, found[0].configuration, cpu.profile)
    verdict = Workload(task.instance.einsum, task.instance.lengths, cpu.queue).check(build_executable(cpu.context, program))
    assert verdict.ok, verdict.message


def test_no_partial_result_of_a_guessed_chain_is_taken_to_stay_near_on_a_gpu(store: str) -> None:
    """One launch keeps it in local memory, so a chain has to promise more there."""
    e = fe.einsum("ij,jk,kl->il", fe.array("A", (64, 256)), fe.array("B", (256, 128)), fe.array("C", (128, 64)))
    found = best_chains(CHAIN, CHAIN.problem(e, {}, GPU), Inquiry(open_stores(store), GPU))
    assert found
    assert not any(made.is_cached for made in found)


def test_a_chain_that_promises_too_little_follows_one_launch(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where candidate selection may try it."""
    monkeypatch.setattr("feinsum.candidates.ladder._OF_ONE_LAUNCH", 0.0)
    monkeypatch.setattr("feinsum.candidates.ladder._is_one_launch", lambda *_: True)
    shapes = {"A": (10, 80, 12), "B": (12, 80, 10), "C": (10, 80, 12), "D": (12, 80, 10)}
    e = fe.einsum("aib,bjc,ckd,dla->ijkl", *(fe.array(name, shape, "float32") for name, shape in shapes.items()))
    first, *others = candidates(Instance.at(e, e.resolve({}), GPU), open_stores(store))
    assert (first.rung, STEPS in first.configuration) == ("cost model", False)
    assert any(STEPS in choice.configuration and choice.rung == "cost model" for choice in others)


def test_a_chain_on_a_gpu_has_steps_in_blocks() -> None:
    """The grid of the space is for vectors of CPUs; chains are for every device that has a space for each step."""
    e = fe.einsum("ij,jk,kl->il", fe.array("A", ("N", 256)), fe.array("B", (256, 128)), fe.array("C", (128, 64)))
    problem = CHAIN.problem(e, {"N": 4096}, GPU)
    assert next(CHAIN.configurations(problem), None) is None
    chain = chain_of(problem, [find_space("block_contraction"), find_space("generic")])
    assert CHAIN.refusal(problem, chain) is None
    assert len(realize(e, {"N": 4096}, CHAIN, chain, GPU).launches) >= 2
