"""Lowering: loopy kernels of the grammar that matching reads, along any schedule, that compute the einsum."""

from __future__ import annotations

import random

import loopy as lp
import numpy as np
import pytest
from einsums import check_against_numpy, einsums, inputs
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from running import run

import feinsum as fe
from feinsum.compile.codegen import generate_program
from feinsum.compile.executable import build_executable
from feinsum.contraction import ContractionSchedule, ContractionStep, fused_schedule, pairwise_schedule
from feinsum.devices import Device
from feinsum.subscripts import Subscripts
from feinsum.validate import Workload

D, U, V = fe.array("D", (35, 35)), fe.array("u", ("E", 35)), fe.array("v", ("E", 35))


def text_of(t_unit: lp.TranslationUnit) -> list[str]:
    """The rules and instructions of a kernel, one a line, without loopy's decoration."""
    kernel = t_unit.default_entrypoint
    rules = [f"{r.name}({', '.join(r.arguments)}) := {r.expression}" for r in kernel.substitutions.values()]
    return [*rules, *(str(insn).partition(" {")[0].partition(": ")[2] for insn in kernel.instructions)]


def test_an_einsum_is_an_instruction_over_substitution_rules() -> None:
    """One instruction an output; operands are rules, shared by the rows that share them."""
    t_unit = fe.generate_loopy(fe.batched_einsum("ij,ej->ei", [[D, U], [D, V]]))
    assert text_of(t_unit) == [
        "D_0(i0, i1) := D[i0, i1]",
        "u_1(i0, i1) := u[i0, i1]",
        "v_1(i0, i1) := v[i0, i1]",
        "out_0[e, i] <- reduce(sum, [j], D_0(i, j)*u_1(e, j))",
        "out_1[e, i] <- reduce(sum, [j], D_0(i, j)*v_1(e, j))",
    ]
    kernel = t_unit.default_entrypoint
    assert [arg.name for arg in kernel.args] == ["D", "u", "v", "out_0", "out_1", "E"]
    assert kernel.arg_dict["out_0"].is_output
    assert not kernel.arg_dict["out_0"].is_input


def test_an_epilogue_stands_around_the_sum() -> None:
    """Its arrays are read at the loops of the output, and what a zero multiplies of the output is not looked at."""
    e = fe.einsum("ij,ej->ei", D, U).then("alpha*v + beta*out + b[i]", b=fe.array("b", 35))
    t_unit = fe.generate_loopy(e)
    (line,) = [line for line in text_of(t_unit) if line.startswith("out")]
    sum_of = "reduce(sum, [j], D_0(i, j)*u_1(e, j))"
    zero = "(0.0 if beta == 0.0 else beta*out[e, i])"
    assert line.replace("np.float64(0.0)", "0.0") == f"out[e, i] <- alpha*{sum_of} + {zero} + b[i]"
    kernel = t_unit.default_entrypoint
    assert [arg.name for arg in kernel.args] == ["D", "u", "b", "out", "alpha", "beta", "E"]
    assert kernel.arg_dict["out"].is_input
    assert generate_program(t_unit).source


@pytest.mark.parametrize("text", ["relu(v)", "max(v, 0) - v", "s*(v + out) + 1", "gelu(v + b[i])"])
def test_an_epilogue_is_right_untransformed(text: str, cpu: Device) -> None:
    """Also where something is chosen by the sum, which then has an instruction of its own."""
    b, x, y = fe.array("b", 5), fe.array("x", ("N", 5)), fe.array("y", ("N", 5))
    e = fe.einsum("ni,ni->i", x, y).then(text, **({"b": b} if "b[" in text else {}))
    executable = build_executable(cpu.context, generate_program(fe.generate_loopy(e)))
    verdict = Workload(e, e.resolve({"N": 9}), cpu.queue).check(executable)
    assert verdict.ok, verdict.message


def test_a_set_of_arrays_is_one_rule() -> None:
    """Its value is their product, so that a transformation moves the operand as a whole."""
    t_unit = fe.generate_loopy(fe.einsum("i,i->", (fe.array("b", 5), fe.array("a", 5)), fe.array("c", 5)))
    assert "a_b_0(i0) := a[i0]*b[i0]" in text_of(t_unit)


def test_a_schedule_is_a_chain_of_instructions() -> None:
    """Partial results are global temporaries, with a barrier between steps and inames of their own."""
    A, B, x = fe.array("A", ("N", 8)), fe.array("B", (8, 7)), fe.array("x", 7)
    e = fe.einsum("ij,jk,k->i", A, B, x)
    t_unit = fe.generate_loopy(e, pairwise_schedule(e, {"N": 9}))
    lines = text_of(t_unit)
    assert "partial_0[j_0] <- reduce(sum, [k_0], B_1(j_0, k_0)*x_2(k_0))" in lines
    assert "out[i_1] <- reduce(sum, [j_1], A_0(i_1, j_1)*partial_0_(j_1))" in lines
    kernel = t_unit.default_entrypoint
    assert kernel.temporary_variables["partial_0"].address_space == lp.AddressSpace.GLOBAL
    assert [insn.synchronization_kind for insn in kernel.instructions if isinstance(insn, lp.BarrierInstruction)] == [
        "global"
    ]


def test_partial_results_that_rows_share_are_computed_once() -> None:
    """The product of the operands that two rows have in common is one instruction."""
    A, B, x, y = fe.array("A", (9, 8)), fe.array("B", (8, 7)), fe.array("x", 7), fe.array("y", 7)
    e = fe.batched_einsum("ij,jk,k->i", [[A, B, x], [A, B, y], [A, B, x]])
    schedule = ContractionSchedule((step((0, 1), "ij,jk->ik"), step((2, 3), "k,ik->i")))
    lines = text_of(fe.generate_loopy(e, schedule))
    assert sum(line.startswith("partial_0[") for line in lines) == 1
    assert sum(line.startswith("out_") for line in lines) == 3


def step(operands: tuple[int, ...], text: str) -> ContractionStep:
    left, _, right = text.partition("->")
    return ContractionStep(operands, Subscripts(tuple(left.split(",")), right))


def test_indices_that_name_something_else_are_renamed() -> None:
    """An underscore is appended to an iname whose letter is an array, an output or a long axis."""
    e = fe.einsum("ij,j->i", fe.array("i", ("j", "E")), fe.array("x", "E"))
    t_unit = fe.generate_loopy(e)
    assert t_unit.default_entrypoint.all_inames() == {"i_", "j_"}
    assert fe.is_isomorphic(fe.match_einsum(t_unit).einsum, e)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_lengths_have_the_type_of_indices(dtype: str) -> None:
    """64 bits on demand."""
    t_unit = fe.generate_loopy(fe.einsum("ij->i", fe.array("A", ("N", 3))), index_dtype=dtype)
    assert t_unit.default_entrypoint.arg_dict["N"].dtype.numpy_dtype == np.dtype(dtype)
    assert t_unit.default_entrypoint.index_dtype.numpy_dtype == np.dtype(dtype)


CHAIN = fe.einsum("ij,jk,k->i", fe.array("A", (9, 8)), fe.array("B", (8, 7)), fe.array("x", 7))
BAD_SCHEDULES = {
    "an operand in another layout": (
        [step((1, 2), "kj,k->j")],
        "step 0 of the schedule takes operand 1 as 'kj', which is not there",
    ),
    "an operand twice": (
        [step((1, 2), "jk,k->j"), step((1, 3), "jk,j->k")],
        "step 1 of the schedule takes operand 1 as 'jk', which is not there",
    ),
    "a result that is not there": ([step((0, 7), "ij,j->i")], "step 0 of the schedule takes operand 7 as 'j'"),
    "a sum that comes too early": (
        [step((0, 1), "ij,jk->i"), step((2, 3), "k,i->i")],
        "step 0 of the schedule sums over 'k', which is still needed after it",
    ),
    "something left over": (
        [step((1, 2), "jk,k->j")],
        "the schedule leaves ['ij', 'j'] of 'ij,jk,k->i', not one result 'i'",
    ),
    "another output": (
        [step((0, 1, 2), "ij,jk,k->")],
        "step 0 of the schedule sums over 'i', which is still needed after it",
    ),
    "no steps": ([], "the schedule leaves ['ij', 'jk', 'k'] of 'ij,jk,k->i', not one result 'i'"),
}


@pytest.mark.parametrize(("steps", "message"), BAD_SCHEDULES.values(), ids=BAD_SCHEDULES)
def test_a_schedule_that_does_not_evaluate_the_einsum_is_refused(steps: list[ContractionStep], message: str) -> None:
    """The message names the step and the operand or index."""
    with pytest.raises(fe.SubscriptError) as error:
        fe.generate_loopy(CHAIN, ContractionSchedule(tuple(steps)))
    assert message in str(error.value)


def test_the_pairwise_schedule_is_the_cheapest() -> None:
    """At the lengths given: a chain is contracted from the side of the vector."""
    assert [(s.operands, str(s.indexing)) for s in pairwise_schedule(CHAIN).steps] == [
        ((1, 2), "jk,k->j"),
        ((0, 3), "ij,j->i"),
    ]
    e = fe.einsum("ij,jk,kl->il", fe.array("A", ("N", 8)), fe.array("B", (8, "M")), fe.array("C", ("M", 3)))
    wide, tall = (pairwise_schedule(e, {"N": n, "M": m}) for n, m in ((1, 1000), (1000, 1000)))
    assert wide.steps[0].operands == (0, 1)
    assert tall.steps[0].operands == (1, 2)


def random_schedule(e: fe.BatchedEinsum, rng: random.Random) -> ContractionSchedule:
    """Any order of contractions of two or three operands, partial results with their axes in any order."""
    pool = list(enumerate(e.indexing.inputs))
    steps: list[ContractionStep] = []
    while len(pool) > 1 or not steps:
        taken = rng.sample(pool, min(len(pool), rng.choice([2, 2, 3])))
        pool = [term for term in pool if term not in taken]
        involved = sorted(set("".join(letters for _, letters in taken)))
        needed = set(e.indexing.output).union(*(letters for _, letters in pool))
        kept = rng.sample(involved, len(involved))
        output = "".join(x for x in kept if x in needed) if pool else e.indexing.output
        steps.append(
            ContractionStep(tuple(k for k, _ in taken), Subscripts(tuple(letters for _, letters in taken), output))
        )
        pool.append((e.n + len(steps) - 1, output))
    return ContractionSchedule(tuple(steps))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=einsums(), seed=st.integers(0, 2**32))
def test_every_schedule_computes_the_einsum(
    problem: tuple[fe.BatchedEinsum, dict[str, int]], seed: int, cpu: Device
) -> None:
    """Without any transformation: random einsums along random schedules equal numpy."""
    e, sizes = problem
    assume(0 not in e.resolve(sizes).values())
    arrays = inputs(e, sizes)
    for schedule in (fused_schedule(e), random_schedule(e, random.Random(seed))):
        found = run(generate_program(fe.generate_loopy(e, schedule)), cpu, e, arrays)
        check_against_numpy(e, arrays, found)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=einsums())
def test_what_is_lowered_is_matched(problem: tuple[fe.BatchedEinsum, dict[str, int]]) -> None:
    """Matching reads the same einsum back, up to names."""
    e, _ = problem
    assume(0 not in [axis for axis in e.index_sizes.values() if isinstance(axis, int)])
    assert fe.is_isomorphic(fe.match_einsum(fe.generate_loopy(e)).einsum, e)
