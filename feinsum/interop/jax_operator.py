"""An einsum as a primitive of JAX: multilinear, so that JAX makes its derivatives of any order, and batches.

Arrays that are there are contracted at once, without a copy.  Under ``jit`` the compiled program calls back with the
buffers that it computes in (``jax.experimental.buffer_callback``, XLA's foreign functions): 30 us a call on two cores of
Zen 5, and no copy; :func:`jax.pure_callback` takes 71 us and copies operands and results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from feinsum.contract.contract import contract
from feinsum.errors import ArgumentError
from feinsum.interop.derivatives import batched_subscripts, derivative, from_interleaved_form, matching_positions, spell
from feinsum.interop.host_device import host_device
from feinsum.interop.library import CPU

_WIDE = {"float16": "float32", "bfloat16": "float32"}
"""For each type that devices lack, the type computed in; the result is rounded once."""


def einsum(
    subscripts: Any,
    *arrays: Any,
    out: None = None,
    optimize: Any = "auto",
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: None = None,
    _dot_general: Any = jax.lax.dot_general,
) -> jax.Array:
    """An einsum of JAX's arrays by feinsum's kernels, in place of :func:`jax.numpy.einsum`.

    It has derivatives of any order in both modes, and works under ``jit``, ``vmap``, ``grad``, ``jvp`` and so on.

    :param subscripts: in the grammar of :func:`numpy.einsum`, with ellipses and implicit output.
    :param arrays: of JAX or numpy, on one device; axes of length one broadcast.  Types are promoted as JAX does, weak ones
        included; float16 and bfloat16 are computed in float32 and rounded once.  Arrays each followed by a list of the
        numbers of its indices are taken as :func:`jax.numpy.einsum` takes them.
    :param optimize: see :func:`feinsum.contract`.
    :param precision: as there; every one is met, for no product is computed in less than the type of its operands.
    :param preferred_element_type: the type of sums and of the result.
    :param out, out_sharding, _dot_general: refused, save for their defaults.
    :raises SubscriptError, ShapeError, ValidationError: naming the operand or index at fault.
    :raises ArgumentError: naming the keyword at fault.

    Arrays on the host are computed with where ``FEINSUM_DEVICE`` says, or on the processor.
    """
    if not isinstance(subscripts, str) and arrays:
        subscripts, arrays = from_interleaved_form((subscripts, *arrays))
    if not arrays or any(isinstance(one, (list, tuple)) for one in arrays):
        given = ", ".join(type(one).__name__ for one in arrays) or "none"
        raise ArgumentError(f"feinsum.jax.einsum takes subscripts and then arrays; got {given}")
    _check_keywords(out, precision, out_sharding, _dot_general)
    dtype, is_weak = jax.dtypes.result_type(*arrays, return_weak_type_flag=True)
    computed = dtype
    if preferred_element_type is not None:
        dtype, is_weak = jax.dtypes.canonicalize_dtype(preferred_element_type), False
        computed = jax.numpy.promote_types(computed, dtype)
        if computed.kind == "c" != dtype.kind:
            raise ArgumentError(f"preferred_element_type is {dtype}, but the operands are complex; pass {computed}")
    wide = np.dtype(_WIDE.get(computed.name, computed.name))
    found = _bind_primitive(subscripts, [jax.numpy.asarray(one, wide) for one in arrays], _hashable(optimize))
    if dtype == wide and not is_weak:
        return found
    result: jax.Array = jax.lax.convert_element_type_p.bind(found, new_dtype=dtype, weak_type=is_weak, sharding=None)
    return result


def _check_keywords(out: Any, precision: Any, out_sharding: Any, dot_general: Any) -> None:
    """Refuse the values of keywords that JAX refuses, and those that a kernel cannot follow.

    :raises ArgumentError: naming the keyword.
    """
    given = {
        "out": out,
        "out_sharding": out_sharding,
        "_dot_general": None if dot_general is jax.lax.dot_general else dot_general,
    }
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(f"feinsum.jax.einsum does not take {name}; omit it, or call jax.numpy.einsum")
    if precision is not None:
        vector = jax.ShapeDtypeStruct((1,), np.float32)
        try:
            jax.eval_shape(partial(jax.lax.dot, precision=precision), vector, vector)
        except ValueError:
            raise ArgumentError(f"precision is {precision!r}; pass one of jax.lax.Precision, as 'highest'") from None


def _hashable(optimize: Any) -> Any:
    """The order of steps as a parameter of a primitive; True where JAX leaves it open, as by default."""
    if isinstance(optimize, (list, tuple)):
        return tuple(tuple(step) if isinstance(step, (list, tuple)) else step for step in optimize)
    return True if isinstance(optimize, str) and optimize == "auto" else optimize


_primitive: Any = Primitive("feinsum_einsum")


def _bind_primitive(subscripts: str, operands: Sequence[Any], optimize: Any = True) -> Any:
    """The primitive, of the subscripts as they are spelled out."""
    e = spell(subscripts, [one.shape for one in operands])
    return _primitive.bind(*operands, subscripts=e.text, optimize=optimize)


def _at_once(*operands: Any, subscripts: str, optimize: Any) -> Any:
    # Constants of a traced function come as arrays of numpy's kind (jax 0.10).
    arrays = [one if isinstance(one, jax.Array) else jax.numpy.asarray(one) for one in operands]
    on_host = all(device.platform == "cpu" for one in arrays for device in one.devices())
    return contract(subscripts, *arrays, optimize=optimize, device=host_device() if on_host else None)


def _abstract_einsum(*operands: Any, subscripts: str, optimize: Any) -> Any:
    e = spell(subscripts, [one.shape for one in operands])
    return jax.core.ShapedArray(e.shape, operands[0].dtype)


def _called_back(*operands: Any, subscripts: str, optimize: Any) -> Any:
    """The function that a compiled program calls."""
    described = _abstract_einsum(*operands, subscripts=subscripts, optimize=optimize)

    def evaluate(context: Any, out: Any, *buffers: Any) -> None:
        kind, number = buffers[0].__dlpack_device__()
        if int(kind) == CPU:
            arrays = map(np.asarray, buffers)
            contract(subscripts, *arrays, out=np.asarray(out), optimize=optimize, device=host_device())
            return
        from feinsum.interop.cuda.holders import holder_for

        held = holder_for("jax")
        adopted = [held.adopt(one, number) for one in (*buffers, out)]
        contract(subscripts, *adopted[:-1], out=adopted[-1], optimize=optimize, stream=int(context.stream))

    wanted = jax.ShapeDtypeStruct(described.shape, described.dtype)
    return buffer_callback(evaluate, wanted)(*operands)


def _tangent(primals: Sequence[Any], tangents: Sequence[Any], *, subscripts: str, optimize: Any) -> tuple[Any, Any]:
    """Σ_k einsum(..., tangent of operand k, ...)."""
    terms = [
        _bind_primitive(subscripts, [*primals[:k], tangent, *primals[k + 1 :]], optimize)
        for k, tangent in enumerate(tangents)
        if not isinstance(tangent, ad.Zero)
    ]
    result = _bind_primitive(subscripts, primals, optimize)
    return result, reduce(lambda a, b: a + b, terms) if terms else ad.Zero.from_primal_value(result)


def _transpose_rule(cotangent: Any, *operands: Any, subscripts: str, optimize: Any) -> list[Any]:
    """The cotangent of the one operand that the einsum is seen as a function of."""
    shapes = [one.aval.shape if ad.is_undefined_primal(one) else one.shape for one in operands]
    [k] = [k for k, one in enumerate(operands) if ad.is_undefined_primal(one)]
    found: list[Any] = [None] * len(operands)
    if isinstance(cotangent, ad.Zero):
        found[k] = ad.Zero(operands[k].aval)
        return found
    how = derivative(spell(subscripts, shapes), k, shapes[k])
    value = _bind_primitive(how.subscripts, [cotangent, *(one for n, one in enumerate(operands) if n != k)])
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
    return jax.numpy.transpose(value, matching_positions(at, repeated))


def _batch_rule(operands: Sequence[Any], axes: Sequence[int | None], *, subscripts: str, optimize: Any) -> tuple[Any, int]:
    moved = [one if axis is None else jax.numpy.moveaxis(one, axis, 0) for one, axis in zip(operands, axes, strict=True)]
    batched = batched_subscripts(subscripts, [one.shape for one in moved], axes)
    return _bind_primitive(batched, moved, optimize), 0


_primitive.def_impl(_at_once)
_primitive.def_abstract_eval(_abstract_einsum)
mlir.register_lowering(_primitive, mlir.lower_fun(_called_back, multiple_results=False))
ad.primitive_jvps[_primitive] = _tangent
ad.primitive_transposes[_primitive] = _transpose_rule
batching.primitive_batchers[_primitive] = _batch_rule
