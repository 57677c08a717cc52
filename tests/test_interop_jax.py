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


VALUES = (True, 2, 2.0, 2j, np.float32(2), np.arange(3))
TYPES = ("bool", "int8", "uint32", "int64", "float16", "bfloat16", "float32", "float64", "complex64")


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_weak_types_are_those_of_jax(einsum, dtype, x64):
    """A number of Python leaves the type of an array as it is; what has weak operands only is weak."""
    with jax.enable_x64(x64):
        strong, weak = jnp.ones(3, jax.dtypes.canonicalize_dtype(dtype)), jnp.full(3, 2.0)
        for value in (*VALUES, weak):
            text = f"{'i' * np.ndim(value)},i->i"
            wanted, is_weak = jax.dtypes.result_type(value, strong, return_weak_type_flag=True)
            found = einsum(text, value, strong)
            assert (found.dtype, found.weak_type) == (wanted, is_weak)
        assert einsum("i->", weak).weak_type


@pytest.mark.parametrize(
    "keywords", [{"optimize": o} for o in (True, False, "optimal", [(0, 1), (0, 1)])] + [{"precision": "highest"}]
)
def test_keywords_of_jax_keep_the_result(einsum, keywords):
    given = arrays((2, 3), (3, 4), (4, 2))
    expected = jnp.einsum("ij,jk,kl->il", *given)
    close(einsum("ij,jk,kl->il", *given, **keywords), expected)
    close(jax.jit(lambda *x: einsum("ij,jk,kl->il", *x, **keywords))(*given), expected)
    jax.grad(lambda *x: einsum("ij,jk,kl->il", *x, **keywords).sum())(*given)


def test_a_preferred_type_is_the_one_of_sums(einsum):
    """No sum is rounded to the type of the operands on its way."""
    a, b = (jnp.full((2, 2), 200, "uint8") for _ in range(2))
    found = einsum("ij,jk->ik", a, b, preferred_element_type="int32")
    assert found.dtype == np.int32
    close(found, jnp.full((2, 2), 80000))


@pytest.mark.parametrize(
    "keywords", [{"precision": "junk"}, {"out": 1}, {"out_sharding": 1}, {"_dot_general": max}, {"optimize": "junk"}]
)
def test_keywords_that_no_kernel_follows_are_refused(einsum, keywords):
    [name] = keywords
    with pytest.raises(FeinsumError, match=name):
        einsum("ij,jk,kl->il", *arrays((2, 3), (3, 4), (4, 2)), **keywords)


@pytest.mark.parametrize("form", ["i...->i", "...->", "i...,j...->ij"])
def test_axes_of_an_ellipsis_that_the_output_omits_are_summed(einsum, form):
    given = arrays(*[(2, 3, 3)] * (form.count(",") + 1))
    close(einsum(form, *given), jnp.einsum(form, *given))
