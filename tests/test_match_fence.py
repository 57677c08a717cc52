"""Other instructions beside a transformed einsum: kept apart by barriers, in loops of their own, and right."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest
from kernels import ARRAYS, make_kernel, run
from numpy.testing import assert_allclose

import feinsum as fe
from feinsum.devices import Device
from feinsum.errors import TransformError
from feinsum.match import fence

EINSUM = "y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=einsum}"
DOMAINS = (
    "[n] -> {[e, i, j]: 0 <= e < n and 0 <= i, j < 4}",
    "[n] -> {[p, q]: 0 <= p < n and 0 <= q < 4}",
    "[n] -> {[a, b, c]: 0 <= a < n and 0 <= b, c < 4}",
)

BESIDE = {
    "nothing in common": f"z[p, q] = 3*v[p, q]\n{EINSUM}",
    "a loop in common": f"t[e] = 3*w[e]\n{EINSUM}",
    "what it reads": f"u[p, q] = 3*v[p, q]\n{EINSUM}",
    "what is made of its result": f"{EINSUM}\nz[p, q] = 3*y[p, q]",
    "what is made of its result in the same loops": f"{EINSUM}\nz[e, i] = 3*y[e, i]",
    "its result set to zero before, and a guard": """
        y[e, i] = 0 {id=zero}
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=einsum, dep=zero, if=e > 5}""",
    "two that pass something on beside it": f"t[e] = 3*w[e] {{id=first}}\n{EINSUM}\nz[e, q] = t[e] {{dep=first}}",
    "two that pass something on before and after it": """
        t[e] = 3*w[e] {id=first}
        u[e, q] = t[e] {id=second, dep=first}
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=einsum, dep=second}
        z[e, b] = y[e, b] + t[e] {dep=einsum:first}""",
    "a private scalar for both": """
        <> a0 = 2*w[0] {id=scale}
        scaled(e_, j_) := a0*u[e_, j_]
        y[e, i] = sum(j, D_(i, j)*scaled(e, j)) {id=einsum, dep=scale}
        z[p, q] = y[p, q] + a0 {dep=einsum:scale}""",
    "another einsum": f"{EINSUM}\nz[a, b] = sum(c, D_(c, b)*v_(a, c))",
    "barriers that are there": """
        u[p, q] = 3*v[p, q] {id=first}
        ... gbarrier {id=wait, dep=first}
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=einsum, dep=wait}
        ... gbarrier {id=done, dep=einsum}
        z[a, b] = 3*y[a, b] {dep=done}""",
}


@pytest.mark.parametrize("name", BESIDE)
def test_the_kernel_computes_what_it_did(name: str, cpu: Device, store: str) -> None:
    """Transformed in the midst of sequential instructions, an einsum leaves every array of the kernel as it was."""
    t_unit = make_kernel(BESIDE[name], DOMAINS)
    kernel = lp.remove_unused_arguments(t_unit).default_entrypoint
    rng = np.random.default_rng(0)
    shapes = {arg.name: ARRAYS[arg.name] for arg in kernel.args if arg.is_input and arg.name in ARRAYS}
    inputs = {array: rng.normal(size=[67 if length == "n" else length for length in at]) for array, at in shapes.items()}
    transformed = fe.transform(t_unit, cpu, insn_match="id:einsum", database=store, sizes={"n": 10_000})
    expected, found = run(t_unit, **inputs), run(transformed, **inputs)
    assert expected.keys() == found.keys()
    for array in expected:
        assert_allclose(found[array], expected[array], rtol=1e-12, atol=1e-12, err_msg=array)


@pytest.mark.parametrize("name", ["barriers that are there", None])
def test_a_kernel_with_its_barriers_gets_no_more(name: str | None) -> None:
    """Where the einsum is alone, or global barriers keep it apart, the kernel stays what it is."""
    kernel = make_kernel(BESIDE[name] if name else EINSUM, DOMAINS)
    fenced = fence(kernel, fe.match_einsum(kernel, insn_match="id:einsum"))
    assert fenced["loopy_kernel"] == kernel["loopy_kernel"]


def test_a_loop_that_cannot_be_cut_is_refused(cpu: Device, store: str) -> None:
    """A private scalar of each iteration cannot outlive the loop; the message names it, and both instructions."""
    t_unit = make_kernel(
        """
        <> a0 = 2*w[e] {id=first}
        u[e, q] = a0 {id=second, dep=first}
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=einsum, dep=second}
        z[e, b] = y[e, b] + a0 {id=last, dep=einsum:first}
        """,
        DOMAINS,
    )
    with pytest.raises(TransformError, match="'first' and 'last' share 'a0' from iteration to iteration of the loop 'e'"):
        fe.transform(t_unit, cpu, insn_match="id:einsum", database=store)


def test_priorities_and_wide_lengths_are_no_obstacle(cpu: Device, store: str) -> None:
    """Loops with an order of their own and lengths of 64 bits are what compilers write; both are transformed."""
    t_unit = lp.prioritize_loops(make_kernel(EINSUM, DOMAINS), "i,e")
    kernel = t_unit.default_entrypoint
    wide = [arg.copy(dtype="int64") if arg.name == "n" else arg for arg in kernel.args]
    t_unit = t_unit.with_kernel(kernel.copy(args=wide))
    rng = np.random.default_rng(0)
    D, u = rng.normal(size=(4, 4)), rng.normal(size=(67, 4))
    found = run(fe.transform(t_unit, cpu, database=store, sizes={"n": 10_000}), D=D, u=u)
    assert_allclose(found["y"], u @ D.T, rtol=1e-12)
