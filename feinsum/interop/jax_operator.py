"""An einsum as a primitive of JAX: multilinear, so that JAX makes its derivatives of any order, and batches.

Arrays that are there are contracted at once, without a copy.  Under ``jit`` the compiled program calls back with the
buffers that it computes in (``jax.experimental.buffer_callback``, XLA's foreign functions): 30 us a call on two cores of
Zen 5, and no copy; :func:`jax.pure_callback` takes 71 us and copies operands and results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from feinsum.errors import ArgumentError
from feinsum.generate.contract import contract
from feinsum.interop.derivatives import derivative, fresh_letter, from_interleaved_form, places, spell
from feinsum.interop.host import host_device
from feinsum.interop.library import CPU

_WIDE = {"float16": "float32", "bfloat16": "float32"}
"""In which types those are computed that devices have no numbers of; the result is rounded once."""


def einsum(subscripts: Any, *arrays: Any) -> jax.Array:
    """An einsum of JAX's arrays by feinsum's kernels, in place of :func:`jax.numpy.einsum`.

    It has derivatives of any order in both modes, and works under ``jit``, ``vmap``, ``grad``, ``jvp`` and so on.

    :param subscripts: in the grammar of :func:`numpy.einsum`, with ellipses and implicit output.
    :param arrays: of JAX or numpy, on one device; axes of length one broadcast.  Types are promoted as JAX does; float16
        and bfloat16 are computed in float32 and rounded once.  Arrays each followed by a list of the numbers of its indices
        are taken as :func:`jax.numpy.einsum` takes them.
    :raises SubscriptError, ShapeError, ValidationError: naming the operand or index at fault.

    Arrays on the host are computed with where ``FEINSUM_DEVICE`` says, or on the processor.
    """
    if not isinstance(subscripts, str) and arrays:
        subscripts, arrays = from_interleaved_form((subscripts, *arrays))
    if not arrays or any(isinstance(one, (list, tuple)) for one in arrays):
        given = ", ".join(type(one).__name__ for one in arrays) or "none"
        raise ArgumentError(f"feinsum.jax.einsum takes subscripts and then arrays; got {given}")
    dtype = reduce(jax.numpy.promote_types, [jax.numpy.result_type(one) for one in arrays])
    wide = np.dtype(_WIDE.get(dtype.name, dtype.name))
    operands = [jax.numpy.asarray(one, wide) for one in arrays]
    found: jax.Array = _bind(subscripts, operands)
    return found if wide == dtype else found.astype(dtype)


_primitive: Any = Primitive("feinsum_einsum")


def _bind(subscripts: str, operands: Sequence[Any]) -> Any:
    """The primitive, of the subscripts as they are spelled out."""
    e = spell(subscripts, [one.shape for one in operands])
    return _primitive.bind(*operands, subscripts=e.text)


def _at_once(*operands: Any, subscripts: str) -> Any:
    # Constants of a traced function come as arrays of numpy's kind (jax 0.10).
    arrays = [one if isinstance(one, jax.Array) else jax.numpy.asarray(one) for one in operands]
    on_host = all(device.platform == "cpu" for one in arrays for device in one.devices())
    return contract(subscripts, *arrays, device=host_device() if on_host else None)


def _described(*operands: Any, subscripts: str) -> Any:
    e = spell(subscripts, [one.shape for one in operands])
    return jax.core.ShapedArray(e.shape, operands[0].dtype)


def _called_back(*operands: Any, subscripts: str) -> Any:
    """The function that a compiled program calls."""
    described = _described(*operands, subscripts=subscripts)

    def evaluate(context: Any, out: Any, *buffers: Any) -> None:
        kind, number = buffers[0].__dlpack_device__()
        if int(kind) == CPU:
            contract(subscripts, *map(np.asarray, buffers), out=np.asarray(out), device=host_device())
            return
        from feinsum.interop.cuda.holders import holder_for

        held = holder_for("jax")
        adopted = [held.adopt(one, number) for one in (*buffers, out)]
        contract(subscripts, *adopted[:-1], out=adopted[-1], stream=int(context.stream))

    wanted = jax.ShapeDtypeStruct(described.shape, described.dtype)
    return buffer_callback(evaluate, wanted)(*operands)


def _tangent(primals: Sequence[Any], tangents: Sequence[Any], *, subscripts: str) -> tuple[Any, Any]:
    """Σ_k einsum(..., tangent of operand k, ...)."""
    terms = [
        _bind(subscripts, [*primals[:k], tangent, *primals[k + 1 :]])
        for k, tangent in enumerate(tangents)
        if not isinstance(tangent, ad.Zero)
    ]
    result = _bind(subscripts, primals)
    return result, reduce(lambda a, b: a + b, terms) if terms else ad.Zero.from_primal_value(result)


def _transposed(cotangent: Any, *operands: Any, subscripts: str) -> list[Any]:
    """The cotangent of the one operand that the einsum is seen as a function of."""
    shapes = [one.aval.shape if ad.is_undefined_primal(one) else one.shape for one in operands]
    [k] = [k for k, one in enumerate(operands) if ad.is_undefined_primal(one)]
    found: list[Any] = [None] * len(operands)
    if isinstance(cotangent, ad.Zero):
        found[k] = ad.Zero(operands[k].aval)
        return found
    how = derivative(spell(subscripts, shapes), k, shapes[k])
    value = _bind(how.subscripts, [cotangent, *(one for n, one in enumerate(operands) if n != k)])
    value = jax.numpy.broadcast_to(jax.numpy.expand_dims(value, how.new_axes), how.shape)
    if how.on_diagonal:
        value = _on_diagonal(value, how.repeated)
    found[k] = value
    return found


def _on_diagonal(value: Any, repeated: Sequence[int]) -> Any:
    """An array of more axes, of which some are the same: zero off their diagonal."""
    at = list(range(value.ndim))
    for number in range(value.ndim):
        for _ in range(repeated.count(number) - 1):
            axis = len(at) - 1 - at[::-1].index(number)
            n = value.shape[axis]
            one = np.eye(n, dtype=bool).reshape((n, n) + (1,) * (value.ndim - axis - 1))
            value = jax.numpy.where(one, jax.numpy.expand_dims(value, axis), 0)
            at.insert(axis, number)
    return jax.numpy.transpose(value, places(at, repeated))


def _batched(operands: Sequence[Any], axes: Sequence[int | None], *, subscripts: str) -> tuple[Any, int]:
    moved = [one if axis is None else jax.numpy.moveaxis(one, axis, 0) for one, axis in zip(operands, axes, strict=True)]
    shapes = [one.shape if axis is None else one.shape[1:] for one, axis in zip(moved, axes, strict=True)]
    e = spell(subscripts, shapes)
    batch = fresh_letter(e)
    terms = [term if axis is None else batch + term for term, axis in zip(e.terms, axes, strict=True)]
    return _bind(f"{','.join(terms)}->{batch}{e.output}", moved), 0


_primitive.def_impl(_at_once)
_primitive.def_abstract_eval(_described)
mlir.register_lowering(_primitive, mlir.lower_fun(_called_back, multiple_results=False))
ad.primitive_jvps[_primitive] = _tangent
ad.primitive_transposes[_primitive] = _transposed
batching.primitive_batchers[_primitive] = _batched
