"""Sub-groups: exchange between work-items, by the shuffles of the device's vendor or through local memory.

Everybody gets here, see :mod:`.control`; who takes no part contributes the identity.  Sums in local memory are in order
of the work-items, as the reference writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from feinsum.languages.tensor.emitting.context import Context
from feinsum.languages.tensor.emitting.numbers import arithmetic_expression, c_type_of, literal
from feinsum.languages.tensor.ir import TensorOperation
from feinsum.languages.tensor.types import F64, TensorScalar

_LOWEST: Final = {"char": "CHAR_MIN", "short": "SHRT_MIN", "int": "INT_MIN", "long": "LONG_MIN"}
_HIGHEST: Final = {"char": "CHAR_MAX", "short": "SHRT_MAX", "int": "INT_MAX", "long": "LONG_MAX"}


def _reduction_identity(name: str, type_: TensorScalar) -> str:
    if name == "add":
        return literal(0j if type_.is_complex else 0, type_)
    c = c_type_of(type_)
    if type_.is_integer:
        return (_HIGHEST if name == "min" else _LOWEST)[c]
    infinity = "INFINITY" if type_ != F64 else "(double)INFINITY"
    return infinity if name == "min" else f"(-{infinity})"


def _scratch(context: Context, type_: Any) -> str:
    c = c_type_of(type_)
    return context.local_array(f"scratch_{c}", c, context.target.work_items)


def emit_broadcast(context: Context, operation: TensorOperation) -> None:
    source, item = operation.operands
    (result,) = operation.results
    assert isinstance(result.type, TensorScalar)
    if context.target.is_alone:
        context.values[result] = context.text(source)
        return
    if _shuffles(context, result.type):
        context.assign(result, _shuffle("idx", context, result.type, context.text(source), context.text(item)))
        return
    array = _scratch(context, result.type)
    context.barrier()
    context.put(f"{array}[lid] = {context.text(source)}")
    context.barrier()
    size = context.target.subgroup_size
    place = f"lid - lane + clamp((int){context.text(item)}, 0, {size - 1})"
    context.assign(result, f"{array}[{place}]")


def emit_scan(context: Context, operation: TensorOperation) -> None:
    (source,), (result,) = operation.operands, operation.results
    name, scan, type_ = operation.name.removeprefix("subgroup_"), operation.attributes["scan"], result.type
    assert isinstance(type_, TensorScalar)
    identity = _reduction_identity(name, type_)
    value = context.text(source)
    if context.mask is not None:
        value = f"({context.mask} ? {value} : {identity})"
    if context.target.subgroup_size == 1:
        context.assign(result, identity if scan == "exclusive_scan" else value)
        return
    if _shuffles(context, type_):
        _by_shuffles(context, operation, name, scan, value, identity)
        return
    array = _scratch(context, type_)
    context.barrier()
    context.put(f"{array}[lid] = {value}")
    context.barrier()
    ends = {"reduce": str(context.target.subgroup_size), "inclusive_scan": "lane + 1", "exclusive_scan": "lane"}
    first = f"{array}[lid - lane]"
    total = context.declare(
        c_type_of(type_), result.name, f"lane ? {first} : {identity}" if scan == "exclusive_scan" else first
    )
    number = context.fresh("k")
    with context.loop(f"int {number} = 1", f"{number} < {ends[scan]}", f"++{number}"):
        context.put(f"{total} = {arithmetic_expression(name, type_, [total, f'{array}[lid - lane + {number}]'], type_)}")
    context.values[result] = total


def _shuffles(context: Context, type_: TensorScalar) -> bool:
    """Whether values of a type go through registers: those of 32 and 64 bits where the vendor has shuffles."""
    return context.target.shuffles is not None and not type_.is_complex


def _shuffle(kind: str, context: Context, type_: TensorScalar, value: str, by: str) -> str:
    c, shuffles = c_type_of(type_), context.target.shuffles
    assert shuffles is not None
    wide = type_.size_bytes == 8 and not type_.is_complex
    bits = {"float": ("as_uint({})", "as_float({})"), "double": ("as_ulong({})", "as_double({})")}.get(
        c, ("(uint)({})", f"({c})({{}})") if not wide else ("(ulong)({})", f"({c})({{}})")
    )
    size = 64 if wide else 32
    return bits[1].format(shuffles.call(kind, context.target.subgroup_size, size, bits[0].format(value), by))


def _by_shuffles(context: Context, operation: TensorOperation, name: str, scan: str, value: str, identity: str) -> None:
    """The scan in log2(sub-group) steps."""
    (result,) = operation.results
    type_ = result.type
    assert isinstance(type_, TensorScalar)
    total = context.declare(c_type_of(type_), result.name, value)
    size = context.target.subgroup_size
    if scan == "reduce":
        for step in (2**k for k in range(int(np.log2(size)))):
            other = context.declare(
                f"{c_type_of(type_)} const", "other", _shuffle("bfly", context, type_, total, str(step))
            )
            context.put(f"{total} = {arithmetic_expression(name, type_, [total, other], type_)}")
        context.values[result] = total
        return
    for step in (2**k for k in range(int(np.log2(size)))):
        other = context.declare(f"{c_type_of(type_)} const", "other", _shuffle("up", context, type_, total, str(step)))
        combined = arithmetic_expression(name, type_, [other, total], type_)
        context.put(f"{total} = lane >= {step} ? {combined} : {total}")
    if scan == "exclusive_scan":
        moved = context.declare(f"{c_type_of(type_)} const", "moved", _shuffle("up", context, type_, total, "1"))
        context.put(f"{total} = lane ? {moved} : {identity}")
    context.values[result] = total


def emit_barrier(context: Context, operation: TensorOperation) -> None:
    context.barrier(bool(operation.attributes["global"]), bool(operation.attributes["local"]))


EMITTERS: Final[Mapping[str, Callable[[Context, TensorOperation], None]]] = {
    "barrier": emit_barrier,
    "subgroup_broadcast": emit_broadcast,
    **dict.fromkeys(("subgroup_add", "subgroup_max", "subgroup_min"), emit_scan),
}
