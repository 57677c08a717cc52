"""Schedules as text: recorded chains are read back as they were, and an engineer's own order is tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import feinsum as fe
from benchmarks.landscapes import read_landscapes
from feinsum.cli import cli
from feinsum.contraction import ContractionSchedule, ContractionStep, pairwise_schedule
from feinsum.database import open_stores
from feinsum.database.record import TuningRecord
from feinsum.errors import LanguageError, SubscriptError, TransformError
from feinsum.languages.immediate.marks import Marks
from feinsum.languages.immediate.schedule_attempts import attempts
from feinsum.languages.immediate.schedules import (
    KernelRemark,
    Schedule,
    known_schedule,
    read_schedule,
    recorded_schedule,
    write_schedule,
)
from feinsum.registry import find_space
from feinsum.space.chain import STEPS
from feinsum.subscripts import Subscripts


def einsum_of(text: str, length: int = 3) -> fe.BatchedEinsum:
    """An einsum whose indices have the lengths 3, 4, 5, ..."""
    inputs = text.partition("->")[0].split(",")
    lengths = {x: length + k for k, x in enumerate(dict.fromkeys("".join(inputs)))}
    return fe.einsum(text, *(fe.array("ABCDE"[k], tuple(lengths[x] for x in term)) for k, term in enumerate(inputs)))


CHAINED = ("contraction_steps", "block_contraction_chain", "work_group_steps", "vector_panels")


def test_every_recorded_chain_is_read_back(tmp_path: Path) -> None:
    """Text and back, of all chains that come with feinsum, and of kernels that do several steps; with marks."""
    profiles = read_landscapes().profiles
    records = open_stores(str(tmp_path / "none.sqlite")).curated.query()
    chains = [r for r in records if set(r.configuration) == {STEPS}]
    assert chains
    marks = set()
    for record in (*chains, *(r for r in records if r not in chains and r.space in CHAINED)):
        e = fe.canonicalization.parse_key(record.einsum_key)
        if e.b > 1:
            continue
        sizes = e.sizes_from(record.sizes)
        schedule = recorded_schedule(e, record, profiles.get(record.device), sizes)
        assert (len(schedule.steps.steps) > 1) == (record in chains)
        text = write_schedule(e, schedule, sizes)
        program = fe.program(text, strict=True)
        found = read_schedule(program, e)
        assert (found.steps, found.kernels) == (schedule.steps, schedule.kernels)
        assert write_schedule(e, found, sizes) == text
        assert all(set(own.looped) <= set(all_.looped) for own, all_ in zip(found.marks, schedule.marks, strict=True))
        assert not program.diagnostics
        marks |= {mark for own in found.marks for mark in (*own.fused, *own.looped)}
    assert max(map(len, marks)) > 1
    assert min(map(len, marks)) == 1


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_random_orders_are_read_back(data: st.DataObject) -> None:
    """Also steps of three operands, and such that sum over an index of one operand."""
    terms = data.draw(st.lists(st.permutations("abcd").map(lambda p: "".join(p[:2])), min_size=2, max_size=4))
    inside = sorted(set("".join(terms)))
    output = "".join(data.draw(st.permutations(inside))[: data.draw(st.integers(1, 2))])
    e = einsum_of(f"{','.join(terms)}->{output}")
    pool: list[tuple[int, str]] = list(enumerate(terms))
    steps: list[ContractionStep] = []
    while len(pool) > 1 or not steps:
        count = min(len(pool), data.draw(st.integers(2, 3)))
        taken = [pool.pop(data.draw(st.integers(0, len(pool) - 1))) for _ in range(count)]
        needed = set(output).union(*(letters for _, letters in pool))
        kept = [x for x in inside if x in needed and any(x in letters for _, letters in taken)]
        letters = "".join(data.draw(st.permutations(kept))) if pool else output
        steps.append(ContractionStep(tuple(k for k, _ in taken), Subscripts(tuple(x for _, x in taken), letters)))
        pool.append((e.n + len(steps) - 1, letters))
    kernels = tuple(
        KernelRemark("generic", 1, {"items": k}) if data.draw(st.booleans()) else None for k in range(len(steps))
    )
    schedule = Schedule(ContractionSchedule(tuple(steps)), kernels)
    assert read_schedule(fe.program(write_schedule(e, schedule)), e) == schedule


def test_a_plan_is_a_schedule() -> None:
    """In either order of indices, with a batch or without."""
    e = einsum_of("ij,jk,kl->il")
    for order in "CF":
        steps = read_schedule(fe.plan(e, order=order), e).steps
        steps.check(e.indexing)
        assert len(steps.steps) == 2
    K, Q, S = fe.array("K", (3, 8, 9)), fe.array("Q", ("E", 9, 2)), fe.array("S", ("E", 3, 2, 4))
    volume = fe.einsum("dkl,elq,edqp->ekp", K, Q, S)
    found = read_schedule(fe.plan(volume, order="C"), volume)
    found.steps.check(volume.indexing)
    assert found.kernels == (None, None)


def test_a_kernel_that_does_everything_is_one_step() -> None:
    """Below one remark, whatever the instructions are."""
    e = einsum_of("ij,jk,kl->il")
    kernel = KernelRemark("vector_panels", 3, {"path": "01 01"})
    text = write_schedule(e, Schedule(pairwise_schedule(e), (kernel, None)))
    assert text.count("; @vector_panels 3") == text.count("; @step") == 1
    whole = ContractionSchedule((ContractionStep((0, 1, 2), e.indexing),))
    text = write_schedule(e, Schedule(whole, (kernel,)))
    assert text.count("log ") == 2
    assert read_schedule(fe.program(text), e) == Schedule(whole, (kernel,))


MINE = """define @mine(%A: memref<f64x4x3>, %B: memref<f64x5x4>, %C: memref<f64x6x5>, %out: memref<f64x6x3>) {
    %t = alloca : memref<f64x5x3>
    log {ki, jk to ji} 1.0, %A, %B, 0.0, %t : memref<f64x4x3>, memref<f64x5x4> to memref<f64x5x3>
    log {lk, ki to li} 1.0, %C, %t, 0.0, %out : memref<f64x6x5>, memref<f64x5x3> to memref<f64x6x3>
}
"""


@pytest.mark.parametrize(
    ("old", "new", "words", "line"),
    [
        ("0.0, %out", "1.0, %out", "beta = 0", 4),
        ("%C", "%X", "%X is no operand", 4),
        ("1.0, %C, %t, 0.0, %out", "1.0, %C, %t, 0.0, %u", "the last step gives", 5),
    ],
)
def test_texts_that_are_no_schedule(old: str, new: str, words: str, line: int) -> None:
    """They are refused at the instruction that does not fit."""
    e = einsum_of("ij,jk,kl->il")
    assert len(read_schedule(fe.program(MINE), e).steps.steps) == 2
    text = MINE.replace(old, new)
    if new.endswith("%u"):
        text = text.replace("%t = ", "%u = alloca : memref<f64x6x3>\n%t = ")
    with pytest.raises(LanguageError, match=words) as caught:
        read_schedule(fe.program(text), e)
    assert (caught.value.rule, caught.value.line) == ("schedule", line)


def test_what_no_text_says() -> None:
    """Diagonals, several outputs, and remarks that are broken."""
    A = fe.array("A", (3, 3))
    with pytest.raises(SubscriptError, match="diagonals"):
        write_schedule(fe.einsum("ii->i", A), Schedule(pairwise_schedule(fe.einsum("ii->i", A)), (None,)))
    both = fe.batched_einsum("ij,jk->ik", [[A, A], [A, fe.array("B", (3, 3))]])
    with pytest.raises(SubscriptError, match="several outputs"):
        read_schedule(fe.plan(both), both)
    e = einsum_of("ij,jk->ik")
    text = write_schedule(e, Schedule(pairwise_schedule(e), (None,)))
    for remark, words in (("@generic 1 {", "no version"), ("@generic 1 {1}", "no JSON"), ("@generic", "no version")):
        with pytest.raises(SubscriptError, match=words):
            read_schedule(fe.program(text.replace("@step", remark if remark.endswith("}") else "@generic")), e)


def test_the_engineers_own_order_is_tried_first(cpu: fe.Device, store: str, tmp_path: Path) -> None:
    """From a file, though nothing is recorded of its steps; what is recorded says the same order, and prints as text."""
    subscripts, sizes = "ab,bc,cd->ad", "a=20,b=21,c=22,d=23"
    file = tmp_path / "plan.imm"
    einsum_ = ["--size", sizes]
    # not the order with the fewest operations, and with a partial result in an order of its own
    file.write_text(
        """define @mine(%A: memref<f64x21x20>, %B: memref<f64x22x21>, %C: memref<f64x23x22>, %out: memref<f64x23x20>) {
            %t = alloca : memref<f64x21x23>
            log {cb, dc to bd} 1.0, %B, %C, 0.0, %t : memref<f64x22x21>, memref<f64x23x22> to memref<f64x21x23>
            log {bd, ba to da} 1.0, %t, %A, 0.0, %out : memref<f64x21x23>, memref<f64x21x20> to memref<f64x23x20>
        }"""
    )
    run: Any = CliRunner().invoke
    arguments = ["tune", subscripts, *einsum_, "--schedule", str(file), "--trials", "1", "--database", store]
    result = run(cli, [*arguments, "--device", cpu.id, "--steps", "never"])
    assert result.exit_code == 0, result.output
    e = fe.einsum(subscripts, *(fe.array(n, s) for n, s in (("A", (20, 21)), ("B", (21, 22)), ("C", (22, 23)))))
    record = fe.query(e, cpu, store)[0]
    assert isinstance(record, TuningRecord)
    found = recorded_schedule(e, record, cpu.profile)
    assert found.steps == read_schedule(fe.program(file), e).steps
    shown = run(cli, ["query", subscripts, *einsum_, "--database", store, "--as", "log"])
    assert read_schedule(fe.program(shown.output), e) == found
    explained = run(cli, ["explain", subscripts, *einsum_, "--database", store, "--as", "log", "--device", cpu.id])
    assert read_schedule(fe.program(explained.output), e) == found


def test_marks_are_read_back() -> None:
    """In the letters of the einsum, outer ones first; only where each class and order of letters lets them be."""
    e = einsum_of("abc,dbc,de->ae")
    steps = (
        ContractionStep((0, 1), Subscripts(("abc", "dbc"), "ad")),
        ContractionStep((3, 2), Subscripts(("ad", "de"), "ae")),
    )
    schedule = Schedule(ContractionSchedule(steps), (None, None), (Marks(("bc",), "d"), Marks((), "ae")))
    text = write_schedule(e, schedule)
    assert "log {(cb)a, (cb)[d] to [d]a} " in text
    assert "log {d[a], [e]d to [e][a]} " in text
    assert read_schedule(fe.program(text, strict=True), e) == schedule
    assert read_schedule(fe.plan(einsum_of("ab,cb->ac"), order="C"), einsum_of("ab,cb->ac")).marks == (Marks(),)
    apart = Schedule(ContractionSchedule(steps), (None, None), (Marks(("ac", "ad"), ""), Marks()))
    assert "(" not in write_schedule(e, apart).partition("log")[2].partition("}")[0]


def test_an_array_may_be_several_operands() -> None:
    """Which of them an instruction reads is told by its indices; it is refused where it is read too often."""
    A, u = fe.array("A", (4, 4)), fe.array("u", ("E", 4, 4))
    e = fe.einsum("ia,jb,eab->eij", A, A, u)
    schedule = Schedule(
        ContractionSchedule(
            (
                ContractionStep((1, 2), Subscripts(("jb", "eab"), "eaj")),
                ContractionStep((0, 3), Subscripts(("ia", "eaj"), "eij")),
            )
        ),
        (None, None),
    )
    text = write_schedule(e, schedule, {"E": 5})
    assert read_schedule(fe.program(text), e) == schedule
    with pytest.raises(LanguageError, match="more often than it is an operand"):
        read_schedule(fe.program(text), fe.einsum("jb,ia,eab->eij", A, fe.array("B", (4, 4)), u))


MARKED = """define @mine(%A: memref<f64x30x40>, %B: memref<f64x50x30>, %C: memref<f64x20x50>, %out: memref<f64x20x40>) {
    ; @step
    %t = alloca : memref<f64x40x50>
    log {c[a], bc to [a]b} 1.0, %A, %B, 0.0, %t : memref<f64x30x40>, memref<f64x50x30> to memref<f64x40x50>
    ; @generic 1 {"items":16,"lane":"last","schedule":"fused"}
    log {db, ab to da} 1.0, %C, %t, 0.0, %out : memref<f64x20x50>, memref<f64x40x50> to memref<f64x20x40>
}"""


def test_kernels_and_marks_of_a_text_are_obeyed(cpu: fe.Device, store: str, tmp_path: Path) -> None:
    """A kernel that is named is taken, others make of their indices what marks say; and what is measured is recorded."""
    (tmp_path / "plan.imm").write_text(MARKED)
    shapes = {"A": (40, 30), "B": (30, 50), "C": (50, 20)}
    e = fe.einsum("ac,cb,bd->ad", *(fe.array(name, shape) for name, shape in shapes.items()))
    schedule = read_schedule(fe.program(MARKED), e)
    assert schedule.marks == (Marks((), "a"), Marks())
    found = attempts(e, schedule, cpu.profile, open_stores(store))
    ((space, configuration),) = found.configurations
    assert not found.remarks
    known = known_schedule(e, KernelRemark(space, find_space(space).version, configuration), cpu.profile)
    assert known.steps == schedule.steps
    assert known.kernels[1] == schedule.kernels[1]
    assert "a" in known.marks[0].looped
    arguments = ["tune", "ac,cb,bd->ad", "--size", "a=40,c=30,b=50,d=20", "--trials", "1", "--steps", "never"]
    arguments += ["--database", store, "--device", cpu.id, "--schedule", str(tmp_path / "plan.imm")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    records = [r for r in open_stores(store).working.query() if r.einsum_key == fe.canonicalize_einsum(e).key]
    assert records
    assert all(recorded_schedule(e, record, cpu.profile) == known for record in records)
    shown = CliRunner().invoke(cli, ["query", *arguments[1:4], "--database", store, "--as", "log"])
    assert "[a]" in shown.output
    assert read_schedule(fe.program(shown.output), e).kernels == known.kernels


def test_marks_that_no_kernel_obeys_are_told(cpu: fe.Device, store: str) -> None:
    """By step and reason; and a kernel that cannot be had is refused."""
    e = einsum_of("ac,cb,bd->ad", 20)
    steps = (
        ContractionStep((0, 1), Subscripts(("ac", "cb"), "ab")),
        ContractionStep((3, 2), Subscripts(("ab", "bd"), "ad")),
    )
    schedule = Schedule(ContractionSchedule(steps), (None, None), (Marks((), "ab"), Marks()))
    found = attempts(e, schedule, cpu.profile, open_stores(store))
    assert found.configurations
    assert any("step 0, 'ac,cb->ab'" in remark and "is not obeyed" in remark for remark in found.remarks)
    wrong = Schedule(schedule.steps, (KernelRemark("generic", 1, {"items": 3}), None))
    with pytest.raises(TransformError, match="is refused"):
        attempts(e, wrong, cpu.profile, open_stores(store))
    old = Schedule(schedule.steps, (KernelRemark("generic", 99, {}), None))
    with pytest.raises(TransformError, match="version 99"):
        attempts(e, old, cpu.profile, open_stores(store))
    one = Schedule(ContractionSchedule((ContractionStep((0, 1, 2), e.indexing),)), (KernelRemark("generic", 1, GENERIC),))
    assert attempts(e, one, cpu.profile, open_stores(store)).configurations == (("generic", GENERIC),)


GENERIC = {"schedule": "pairwise", "lane": "last", "items": 64}
