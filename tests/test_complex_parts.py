"""Complex numbers as pairs of reals: the launches that are left, what they compute, and what is refused."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest
from kernels import make_kernel, run
from numpy.testing import assert_allclose
from profiles import CPU

import feinsum as fe
from feinsum.compile.realize import realize, transformed
from feinsum.contraction import fused_schedule, pairwise_schedule
from feinsum.match import match_einsum
from feinsum.registry import find_space, matching_spaces
from feinsum.skeletons.complex_parts import ComplexParts, write

SPACE = find_space("complex_steps")
EQUATIONS = """
ij,jk->ik ij,kj->ki bij,bjk->bik ijb,jkb->ikb ai,bij->ab i,ij,jk->k ai,bj,ijk->abk abc,cd,de->abe a,a,b,b,c->c ab,c->b
"""


def described(subscripts: str, dtype: str = "complex128", rows: int = 1) -> fe.BatchedEinsum:
    """Rows that share all operands but the last; no length divides another one."""
    terms = subscripts.partition("->")[0].split(",")
    lengths = dict(zip("abcdeijk", (3, 9, 5, 2, 7, 11, 13, 17), strict=True))
    operands = [fe.array(f"A{k}", [lengths[x] for x in term], dtype) for k, term in enumerate(terms)]
    last = [fe.array(f"L{row}", operands[-1].shape, dtype) for row in range(rows)]
    return fe.batched_einsum(subscripts, [[*operands[:-1], own] for own in last])


def numbers(e: fe.BatchedEinsum) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {a.name: (rng.uniform(-1, 1, a.shape) + 1j * rng.uniform(-1, 1, a.shape)).astype(a.dtype) for a in e.arrays}


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("subscripts", EQUATIONS.split())
def test_results_are_those_of_numpy(subscripts: str, dtype: str) -> None:
    """Whatever the roles of the indices, also where partial results are scalars, and for several outputs."""
    e = described(subscripts, dtype, rows=2)
    p = SPACE.problem(e, {}, CPU)
    data = numbers(e)
    found = run(transformed(e, {}, SPACE, SPACE.default(p), CPU), **data)
    for row, output in zip(e.args, e.output_names, strict=True):
        wanted = np.einsum(subscripts, *(data[entry[0].name] for entry in row))
        assert_allclose(found[output], wanted, rtol=1e-4 if dtype == "complex64" else 1e-12)


def test_bytes_that_stay_the_same_are_not_copied() -> None:
    """Of four launches that the kernel has, one makes matrices and one multiplies; rows are the arrays themselves."""
    e = described("ij,jk->ik")
    c = {**SPACE.default(SPACE.problem(e, {}, CPU)), "split": "none"}
    launches = realize(e, {}, SPACE, c, CPU).launches
    assert len(launches) == 2
    assert set(launches[0].arguments) == {"L0", "L0_1_row_matrix"}
    assert set(launches[1].arguments) == {"A0", "L0_1_row_matrix", "out"}


def test_a_result_that_two_outputs_have_is_copied_once() -> None:
    """Equal rows are contracted once; the second output is copied from the first."""
    A, B = fe.array("A", (9, 8), "complex128"), fe.array("B", (8, 7), "complex128")
    e = fe.batched_einsum("ij,jk->ik", [[A, B], [A, B]])
    data = numbers(e)
    kernel = fe.generate(e, "cpu")
    assert kernel.record is None
    for found in kernel(**data):
        assert_allclose(found, data["A"] @ data["B"], rtol=1e-12)
    program = realize(e, {}, SPACE, {**SPACE.default(SPACE.problem(e, {}, CPU)), "split": "none"}, CPU)
    assert set(program.launches[-1].arguments) == {"out_0", "out_1"}


def test_operands_may_be_more_than_arrays() -> None:
    """A rule that computes is copied to memory as rows."""
    t_unit = make_kernel(
        "out[e, i] = sum(j, twice(i, j) * u_(e, j))",
        rules="twice(a, b) := 2 * D[a, b]\nu_(a, b) := u[a, b]\n",
        arrays={"out": ("n", 4)},
        dtypes=dict.fromkeys(("D", "u", "out"), "complex128"),
    )
    match = match_einsum(t_unit)
    plan = ComplexParts(fused_schedule(match.einsum), 4)
    t_unit, (step,) = write(t_unit, match, plan, dict.fromkeys(match.einsum.indexing.indices, 4))
    assert {a.dtype.name for a in step.einsum.arrays} == {"float64"}
    rng = np.random.default_rng(0)
    D, u = (rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape) for shape in ((4, 4), (6, 4)))
    found = run(lp.fix_parameters(t_unit, n=6), D=D, u=u)["out"]
    assert_allclose(found, 2 * u @ D.T, rtol=1e-12)


def test_only_complex_numbers_of_one_kind_have_parts() -> None:
    """Reals are refused with their einsum."""
    e = fe.einsum("ij,jk->ik", fe.array("A", (3, 4)), fe.array("B", (4, 5)))
    t_unit = fe.generate_loopy(e)
    match = match_einsum(t_unit)
    plan = ComplexParts(fused_schedule(match.einsum), 4)
    with pytest.raises(fe.TransformError, match="not complex numbers of one"):
        write(t_unit, match, plan, dict.fromkeys(match.einsum.indexing.indices, 4))


def test_a_plan_has_steps_of_two_operands_and_vectors_of_some_lengths() -> None:
    """Three operands have to be contracted in pairs first; OpenCL has vectors of sixteen reals at most."""
    e = described("abc,cd,de->abe")
    with pytest.raises(
        fe.TransformError, match="step 0 'abc,cd,de->abe' has more than two operands; contract them in pairs"
    ):
        ComplexParts(fused_schedule(e), 4)
    with pytest.raises(fe.TransformError, match="a vector of 16 complex numbers"):
        ComplexParts(pairwise_schedule(e), 16)
    plan = ComplexParts(pairwise_schedule(e), 8)
    assert (plan.local_bytes(), plan.registers()) == (0, 2)


def test_what_streams_by_is_no_business_of_steps() -> None:
    """Matrices of an operand with all indices would be three times the traffic."""
    names = {text: [s.name for s in matching_spaces(described(text))] for text in ("ij,j->i", "ij,jk->ik")}
    assert "complex_steps" not in names["ij,j->i"]
    assert "complex_steps" in names["ij,jk->ik"]
