"""`feinsum.jax.einsum`: a primitive of JAX with derivatives, beside `jax.numpy.einsum`."""

from __future__ import annotations

import numpy as np
import pytest

import feinsum as fe
from feinsum.errors import FeinsumError

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(scope="module", autouse=True)
def einsum():
    with jax.enable_x64(True):
        yield fe.jax.einsum


def arrays(*shapes, dtype="float64"):
    rng = np.random.default_rng(21)
    parts = [rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0) for shape in shapes]
    return [jnp.asarray(part, dtype) for part in parts]


EINSUMS = {
    "a product": ("ij,jk->ik", (3, 4), (4, 2)),
    "a diagonal beside an index": ("iji,k->jk", (3, 2, 3), (2,)),
    "three times on a diagonal": ("iii->i", (3, 3, 3)),
    "an index that is only summed": ("ij,k->k", (3, 4), (2,)),
    "axes of length one": ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 2)),
}


def close(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found, expected)


@pytest.mark.parametrize("case", EINSUMS)
def test_values_and_derivatives(einsum, case):
    """At once and compiled, the values and both modes of derivatives are those of JAX."""
    subscripts, *shapes = EINSUMS[case]
    given = arrays(*shapes)
    ours, theirs = (lambda *x: einsum(subscripts, *x)), (lambda *x: jnp.einsum(subscripts, *x))
    close(ours(*given), theirs(*given))
    close(jax.jit(ours)(*given), theirs(*given))
    places = tuple(range(len(given)))

    def squared(f):
        return lambda *x: (f(*x) ** 2).sum()

    close(jax.jit(jax.grad(squared(ours), places))(*given), jax.grad(squared(theirs), places)(*given))
    close(jax.jvp(ours, given, given), jax.jvp(theirs, given, given))


def test_second_derivatives(einsum):
    x, y = arrays((2, 3), (3, 3))

    def quadratic(f):
        return lambda x: f("ij,jk,ik->", x, y, jnp.sin(x))

    expected = jax.hessian(quadratic(jnp.einsum))(x)
    close(jax.jit(jax.hessian(quadratic(einsum)))(x), expected)
    close(jax.jacfwd(jax.jacfwd(quadratic(einsum)))(x), expected)


def test_complex_numbers(einsum):
    given = arrays((3, 3, 2), (3, 2), dtype="complex128")

    def loss(f):
        return lambda *x: jnp.abs(f("iij,ik->k", *x)).sum()

    close(jax.grad(loss(einsum), (0, 1))(*given), jax.grad(loss(jnp.einsum), (0, 1))(*given))


def test_a_real_operand_of_a_complex_einsum(einsum):
    [a], [z] = arrays((3, 4)), arrays((4, 2), dtype="complex128")
    found = jax.grad(lambda a: jnp.abs(einsum("ij,jk->ik", a, z)).sum())(a)
    assert found.dtype == a.dtype
    close(found, jax.grad(lambda a: jnp.abs(jnp.einsum("ij,jk->ik", a, z)).sum())(a))


def test_batches(einsum):
    a, b = arrays((5, 3, 4), (4, 2))
    close(jax.vmap(lambda a: einsum("ij,jk->ik", a, b))(a), a @ b)
    close(jax.jit(jax.vmap(lambda a: einsum("ij,jk->ik", a, b), out_axes=1))(a), jnp.moveaxis(a @ b, 0, 1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_numbers_are_rounded_once(einsum, dtype):
    a, b = arrays((5, 40), (40, 6), dtype=dtype)
    found = einsum("ij,jk->ik", a, b)
    assert found.dtype == a.dtype
    expected = np.asarray(a, "float32") @ np.asarray(b, "float32")
    close(np.asarray(found, "float32"), np.asarray(jnp.asarray(expected, dtype), "float32"))


def test_a_compiled_program_hands_over_its_own_memory(einsum, monkeypatch):
    """Operands and the result are computed with where XLA has them."""
    import feinsum.interop.jax_operator as module

    seen = []

    def spy(subscripts, *operands, out, device, optimize):
        seen.append([one.ctypes.data for one in (*operands, out)])
        return fe.contract(subscripts, *operands, out=out, device=device)

    monkeypatch.setattr(module, "contract", spy)
    a, b = arrays((30, 40), (40, 20))
    result = jax.block_until_ready(jax.jit(lambda a, b: einsum("ij,jk->ik", a, b))(a, b))
    assert seen == [[one.unsafe_buffer_pointer() for one in (a, b, result)]]
    close(result, a @ b)


@pytest.mark.parametrize(
    ("subscripts", "given", "message"),
    [
        ("ij,jk->ik", [(3, 4), (5, 2)], "'j'"),
        ("ij->ik", [(3, 4)], "'k'"),
        ("ij", [(3,)], "1 axes"),
        ("", [], "then arrays; got none"),
    ],
)
def test_errors_name_what_is_wrong(einsum, subscripts, given, message):
    with pytest.raises(FeinsumError, match=message):
        einsum(subscripts, *arrays(*given))


def test_a_list_of_arrays_is_refused(einsum):
    with pytest.raises(fe.ArgumentError, match="got list"):
        einsum("ij,jk->ik", arrays((3, 4), (4, 2)))


def test_derivatives_are_those_of_differences(einsum):
    """To the second order, in both modes, at once: JAX hands constants over as arrays that are none of its own."""
    from jax.test_util import check_grads

    given = arrays((2, 3), (3, 2))
    check_grads(lambda *x: einsum("ij,jk->ik", *x), given, order=2, modes=["fwd", "rev"])


def test_indices_by_number(einsum):
    a, b = arrays((2, 3), (3, 4))
    np.testing.assert_allclose(einsum(a, [0, 1], b, [1, 2], [2, 0]), (a @ b).T)
