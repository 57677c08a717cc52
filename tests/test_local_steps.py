"""Contractions by work-groups: layouts free of bank conflicts, memory that arrays share, kernels that are right."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice, product
from typing import Any

import pytest
from feinsum.transforms.fused_chains.orders import contraction_orders
from hypothesis import given
from hypothesis import strategies as st
from profiles import CPU, GPU
from simulated_units import build_simulated, build_unoptimised

import feinsum as fe
from feinsum.compile.realize import realize
from feinsum.contraction import ContractionStep
from feinsum.devices import DeviceProfile
from feinsum.errors import TransformError
from feinsum.registry import find_space
from feinsum.skeletons.common.digits import Digits
from feinsum.skeletons.fused_chains import BlockSteps, ChainStep, ContractionOrder, sharing_of
from feinsum.skeletons.fused_chains.arrangements import GroupSchedule, arrange
from feinsum.skeletons.fused_chains.events import ContractStep, CopyOperand, LocalArray, StoreResult
from feinsum.skeletons.fused_chains.padded_layouts import LocalAccess, padded_layout
from feinsum.space import Problem
from feinsum.subscripts import parse_subscripts
from feinsum.validate import Workload

UNIT = "fp64-mma-m16n8k4"
WEIGHTED = "1+3 0+4 2+5"
"""The order of :func:`weighted`, in canonical letters, that goes to points, weighs, and comes back."""
FEW = replace(GPU, compute_units=2)
"""A device whose groups that stay have several blocks even where there are few elements."""


def described(subscripts: str, rows: int = 1, dtype: str = "float64", **sizes: int) -> fe.BatchedEinsum:
    """An einsum whose index e is long; each row has its own last operand."""
    terms = subscripts.partition("->")[0].split(",")
    shapes = [tuple("E" if x == "e" else sizes[x] for x in term) for term in terms]
    shared = [fe.array(f"a{k}", shape, dtype) for k, shape in enumerate(shapes[:-1])]
    return fe.batched_einsum(subscripts, [[*shared, fe.array(f"u{row}", shapes[-1], dtype)] for row in range(rows)])


def interpolation(rows: int = 1, dtype: str = "float64", n: int = 4) -> fe.BatchedEinsum:
    return described("ai,bj,ck,eijk->eabc", rows, dtype, i=n, j=n, k=n, a=n + 1, b=n + 1, c=n + 1)


def weighted(dtype: str = "float64") -> fe.BatchedEinsum:
    """Along one axis to points, weights, and back: a result is used where it is made."""
    return described("xa,ex,xi,eij->eaj", 2, dtype, x=5, a=4, i=4, j=2)


def volume(rows: int = 1, dtype: str = "float64") -> fe.BatchedEinsum:
    return described("dkl,edqp,elq->ekp", rows, dtype, d=2, k=10, l=6, q=5, p=5)


def problem(e: fe.BatchedEinsum, profile: DeviceProfile = FEW) -> Problem:
    return find_space("work_group_steps").problem(e, {"E": 1000}, profile)


def configuration(e: fe.BatchedEinsum, **choices: Any) -> dict[str, Any]:
    """These choices, and the first values of the other parameters."""
    first = {name: values[0] for name, values in find_space("work_group_steps").parameters(problem(e)).items()}
    plain = {"unit": "none", "elements": 4, "together": 2, "copy": "needed", "staged": False, "stay": 0}
    return {**first, **plain, "prefetch": False, **choices}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_digits_tell_every_number_apart(counts: list[int], data: st.DataObject) -> None:
    """The digits of a number are below their counts and give it back, the last letter quickest."""
    digits = Digits("abcd"[: len(counts)], tuple(counts))
    number = data.draw(st.integers(0, digits.total - 1))
    found = digits.of(number)
    back = 0
    for letter, count in zip(digits.letters, counts, strict=True):
        assert 0 <= found[letter] < count
        back = back * count + found[letter]
    assert back == number


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("length", [2, 8, 9, 16])
def test_work_items_that_read_a_row_each_meet_in_no_bank(length: int, itemsize: int) -> None:
    """Whatever the length of a row: at one column, as many rows as banks deliver together lie in different banks."""
    banks = 128 // itemsize
    layout = padded_layout("ij", (banks, length), (LocalAccess(Digits("i", (banks,)), length),), itemsize)
    assert len({layout.place((i, 0)) % banks for i in range(banks)}) == banks
    assert len({layout.place(at) for at in product(range(banks), range(length))}) == banks * length


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("rows", [9, 54, 72])
def test_fragments_of_a_matrix_unit_meet_in_no_bank(rows: int, itemsize: int) -> None:
    """Lane 4 g + t reads row g of number t of the sum, 16 lanes at a time of float64 and 32 of float32."""
    access = LocalAccess(Digits("r", (rows,)), 1, Digits("k", (8,)))
    layout = padded_layout("kr", (8, rows), (access,), itemsize, able=(0,))
    together = 128 // itemsize
    for first in range(0, 32, together):
        places = [layout.place((lane % 4, lane // 4)) for lane in range(first, first + together)]
        assert len({place % together for place in places}) == together


def plan(e: fe.BatchedEinsum, **choices: Any) -> BlockSteps:
    """Contractions of an interpolation one after the other, two elements to a work-item and four to a group."""
    order = contraction_orders(e, tuple(e.resolve({"E": 1000}).items()), ("e",))[0]
    steps = tuple(ChainStep(step, {"e": 2}) for step in ContractionOrder.parse(order).steps(e))
    return BlockSteps(steps, {"e": 4}, 32, **{"staged_operands": frozenset(range(e.n)), **choices})


def touched(event: Any) -> set[int]:
    """The arrays that an event reads or writes."""
    if isinstance(event, StoreResult):
        return {event.source.array}
    held = (*event.sources, event.target) if isinstance(event, ContractStep) else (event.target,)
    return {h.array for h in held if isinstance(h, LocalArray)}


def lives(found: GroupSchedule) -> dict[int, tuple[int, int]]:
    """The first and last event of each array; copies for all blocks live throughout."""
    spans: dict[int, tuple[int, int]] = {copy.target.array: (-1, len(found.events)) for copy in found.first}
    for number, event in enumerate(found.events):
        for array in touched(event) - {copy.target.array for copy in found.first}:
            spans[array] = (spans.get(array, (number, 0))[0], number)
    return spans


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_arrays_share_memory_only_one_after_the_other(rows: int, staged: bool) -> None:
    """Two arrays in one memory are never needed at a time, and a barrier lies between; the memory holds each of them."""
    found = arrange(interpolation(rows), plan(interpolation(rows), staged_epilogue=staged), 8)
    assert len(found.sizes) < len(found.layouts)
    spans = lives(found)
    for a, b in product(spans, spans):
        if a < b and found.slots[a] == found.slots[b]:
            (_, end), (begin, _) = sorted((spans[a], spans[b]))
            assert any(end < barrier <= begin for barrier in found.barriers)
    for array, layout in enumerate(found.layouts):
        assert layout.size <= found.sizes[found.slots[array]]


def test_what_is_read_was_written_before_a_barrier() -> None:
    """Every array that an event reads: a work-item may read what another one wrote."""
    found = arrange(interpolation(2), plan(interpolation(2), staged_epilogue=True), 8)
    written = {copy.target.array: -1 for copy in found.first}
    for number, event in enumerate(found.events):
        target = event.target if isinstance(event, (CopyOperand, ContractStep)) else None
        for array in touched(event) - ({target.array} if isinstance(target, LocalArray) else set()):
            assert any(written[array] < barrier <= number for barrier in found.barriers)
        if isinstance(target, LocalArray):
            written[target.array] = number


@pytest.mark.parametrize(
    ("e", "choices"),
    [
        (interpolation(2), {"staged": True, "turns": 3}),
        (interpolation(1, "float32"), {"copy": "all", "stay": 2, "prefetch": True}),
        (interpolation(1), {"stay": 2, "prefetch": True, "early": True, "turns": 1}),
        (weighted(), {"chained": True, "order": WEIGHTED, "turns": 1}),
        (weighted("float32"), {"chained": True, "order": WEIGHTED, "early": True, "turns": 1, "elements": 2}),
        (volume(2), {"together": 1, "staged": True}),
    ],
)
def test_kernels_are_right_at_any_length(cpu: fe.Device, e: fe.BatchedEinsum, choices: dict[str, Any]) -> None:
    """One element, and a prime number of them: the last block of a group sticks out."""
    program = realize(e, {"E": 1000}, find_space("work_group_steps"), configuration(e, **choices), FEW)
    executable = build_unoptimised(cpu, program)
    for length in (1, 67):
        verdict = Workload(e, e.resolve({"E": length}), cpu.queue).check(executable)
        assert verdict.ok, verdict.message


@pytest.mark.parametrize(
    ("dtype", "choices"),
    [
        ("float64", {"staged": True, "stay": 2, "prefetch": True}),
        ("float64", {"early": True, "turns": 1}),
        ("float32", {"stay": 2}),
    ],
)
def test_steps_on_a_matrix_unit_are_right(simulator: fe.Device, dtype: str, choices: dict[str, Any]) -> None:
    """A unit simulated by the sub-groups of a CPU: rows, columns and sums that fill no fragment."""
    e = volume(1, dtype)
    c = configuration(e, unit=UNIT, elements=2, together=1, across=16, **choices)
    program = realize(e, {"E": 1000}, find_space("work_group_steps"), c, FEW)
    executable = build_simulated(simulator, program)
    verdict = Workload(e, e.resolve({"E": 13}), simulator.queue).check(executable)
    assert verdict.ok, verdict.message


@pytest.mark.parametrize("text", [",e,eb,b->eb", "a,ea,eb->eb"])
def test_one_number_is_written_by_one_work_item(cpu: fe.Device, text: str) -> None:
    """As the bounds of its turns say, so that there is nothing to warn of."""
    e = described(text, b=3, a=1)
    space = find_space("work_group_steps")
    problem = space.problem(e, {"E": 67}, cpu.profile)
    for configuration in islice(space.configurations(problem), 3):
        executable = build_unoptimised(cpu, realize(e, {"E": 67}, space, configuration, cpu.profile))
        verdict = Workload(e, e.resolve({"E": 67}), cpu.queue).check(executable)
        assert verdict.ok, verdict.message


def test_local_memory_is_what_the_code_declares() -> None:
    """The space counts bytes as the kernel uses them."""
    e = interpolation()
    c = configuration(e, staged=True)
    source = realize(e, {"E": 1000}, find_space("work_group_steps"), c, FEW).source
    declared = sum(8 * int(size) for size in re.findall(r"__local double \w+\[(\d+)\]", source))
    exact = replace(FEW, static_local_memory_bytes=declared, local_memory_bytes=0)
    assert find_space("work_group_steps").refusal(problem(e, exact), c) is None
    short = replace(exact, static_local_memory_bytes=declared - 1)
    assert "bytes of local memory" in (find_space("work_group_steps").refusal(problem(e, short), c) or "")


def test_a_step_waits_only_for_the_step_before() -> None:
    """Three contractions with nothing copied but matrices: a barrier before each, and no more."""
    e = interpolation()
    source = realize(e, {"E": 1000}, find_space("work_group_steps"), configuration(e), FEW).source
    assert source.count("barrier(CLK_LOCAL_MEM_FENCE)") == 3
    assert source.count("__local double") == 5, "a matrix for each axis, and two partial results that are needed at a time"


def test_nothing_is_loaded_ahead_of_no_block() -> None:
    """Groups that stay are there for no elements too, whose memory nobody may read."""
    e = interpolation()
    c = configuration(e, stay=2, prefetch=True, copy="all", staged=True)
    source = realize(e, {"E": 1000}, find_space("work_group_steps"), c, FEW).source
    ahead = source[: source.index("for (int round")]
    before, load, _ = ahead.partition("= u0[")
    assert load
    assert "< E)" in before


def test_a_chained_result_has_no_local_memory() -> None:
    """Points of an element that a work-item interpolates to and weighs, it integrates at once."""
    e = weighted()
    sources = [
        realize(
            e, {"E": 1000}, find_space("work_group_steps"), configuration(e, chained=chained, order=WEIGHTED, turns=1), FEW
        ).source
        for chained in (False, True)
    ]
    apart, chained = (source.count("barrier(CLK_LOCAL_MEM_FENCE)") for source in sources)
    assert chained < apart


def test_the_best_guess_starts_small_and_ends_along_rows() -> None:
    """The last axis of an interpolation is summed first, from neighbours; the first one last, into long rows."""
    e = described("ai,bj,ck,eijk->eabc", i=8, j=8, k=8, a=9, b=9, c=9)
    first, *rest = contraction_orders(e, tuple(e.resolve({"E": 1000}).items()), ("e",))
    steps = ContractionOrder.parse(first).steps(e)
    assert steps[0].indexing.summed == "k"
    assert steps[-1].indexing.summed == "i"
    assert len(rest) == 5


def test_what_only_multiplies_is_joined_with_the_sum_that_follows() -> None:
    """Weights are multiplied where a later step reads what they weigh."""
    e = weighted()
    steps = ContractionOrder.parse("2+3 1+4 0+5").steps(e)
    assert [str(step.indexing) for step in steps] == ["xi,eij->exj", "xa,ex,exj->eaj"]


def test_the_space_refuses_with_a_reason() -> None:
    """Each choice that cannot be, or that would change nothing."""
    s, e = find_space("work_group_steps"), interpolation()
    refusals = {
        "3 at a time do not divide 4": {"together": 3},
        "groups that do not stay have no next block": {"prefetch": True},
        "nothing is copied": {"prefetch": True, "stay": 2},
        "no work-item has in registers": {"chained": True},
        "no operand is read where it is": {"early": True, "copy": "all"},
        "not one of ['none']": {"unit": UNIT},
    }
    for reason, choices in refusals.items():
        p = problem(e, replace(FEW, matrix_units=()) if "unit" in choices else FEW)
        c = {**configuration(e), **choices}
        assert reason in (s.constraint(p, c) or s.refusal(p, c) or ""), reason


def test_more_long_indices_than_groups_have_axes_are_refused() -> None:
    """By every configuration: what accepted one failed as the kernel was made."""
    e = fe.einsum("dega,gfbc->abcdef", fe.array("x", ("M", "N", 5, "A")), fe.array("y", (5, 4, 5, "C")))
    s = find_space("work_group_steps")
    p = s.problem(e, e.sizes_from(dict.fromkeys(e.indexing.indices, 16) | {"g": 5, "f": 4, "b": 5}), GPU)
    choices = s.parameters(p)
    for values in islice(product(*choices.values()), 50):
        assert s.refusal(p, dict(zip(choices, values, strict=True))) == (
            "an index that is long is summed over, or there are more than three"
        )


def test_a_plan_that_does_not_fit_is_refused() -> None:
    """A tile that does not divide its index, a step without one matrix for a unit, a summed index in blocks."""
    e = interpolation()
    step = ContractionStep((0, 3), parse_subscripts("ai,eijk->eajk"))
    with pytest.raises(TransformError, match="3 of 'a', which do not divide it"):
        sharing_of(e, ChainStep(step, {"a": 3}), {"e": 4})
    with pytest.raises(TransformError, match="is no product with one matrix"):
        sharing_of(e, ChainStep(ContractionStep((0, 1), parse_subscripts("ai,bj->aibj")), matrix_unit=UNIT), {"e": 4})
    with pytest.raises(TransformError, match="cannot treat index 'i'"):
        sharing_of(e, ChainStep(step), {"e": 4, "i": 2})


def test_cpus_get_few_configurations() -> None:
    """Their local memory is ordinary memory, so the space is a last resort there, on which tuning spends few trials."""
    e = interpolation()
    s = find_space("work_group_steps")
    assert 0 < len(list(s.configurations(problem(e, CPU)))) <= 4


@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6).map(tuple))
def test_an_order_reads_back(taken: tuple[tuple[int, ...], ...]) -> None:
    """Records keep it as text."""
    assert ContractionOrder.parse(str(ContractionOrder(taken))) == ContractionOrder(taken)
