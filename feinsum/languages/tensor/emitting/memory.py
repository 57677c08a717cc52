"""Memory: views as pointers, loads, stores and atomics as C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Final

from feinsum.languages.tensor.emitting.context import (
    Amount,
    Context,
    EmittedGroup,
    EmittedView,
    divisor_of,
    plus,
    product_expression,
    within,
)
from feinsum.languages.tensor.emitting.numbers import pointer_type, rounding, stored_parts
from feinsum.languages.tensor.ir import TensorOperation, TensorValue
from feinsum.languages.tensor.passes.storage import length_of
from feinsum.languages.tensor.types import BF16, F16, TensorMemref

_ALIGNED: Final = 128
"""Elements: what begins where a buffer or an alloca does, begins at a multiple of 16 bytes."""


def loaded_element(view: EmittedView, place: Amount) -> str:
    """The element at a place."""
    element = view.element
    if element == F16:
        return f"vload_half({place}, {view.pointer})"
    if element == BF16:
        return f"as_float((uint){view.pointer}[{place}] << 16)"
    if element.is_complex:
        return f"vload2({place}, {view.pointer})"
    return f"{view.pointer}[{place}]"


def stored(context: Context, view: EmittedView, place: Amount, value: str, atomic: str = "") -> None:
    """Store a value, or add it atomically.

    Parts of complex numbers are stored one by one: Intel's compiler (2026.2) drops the condition of a store of two doubles.
    """
    element = view.element
    pointer = f"{view.pointer} + {within(product_expression(place, stored_parts(element)))}"
    if atomic == "atomic_add":
        _add_atomically(context, view, place, pointer, value)
    elif element == F16:
        context.put(f"vstore_half_rte({value}, {place}, {view.pointer})")
    elif element == BF16:
        context.put(f"{view.pointer}[{place}] = bits_of_bf16({value})")
    elif element.is_complex:
        for number, part in enumerate("xy"):
            context.put(f"{view.pointer}[{plus(product_expression(2, place), number)}] = {within(value)}.{part}")
    else:
        context.put(f"{view.pointer}[{place}] = {value}")


def _add_atomically(context: Context, view: EmittedView, place: Amount, pointer: str, value: str) -> None:
    element = view.element
    if view.space == "private":
        old = within(loaded_element(view, place))
        total = (
            f"({pointer_type(element)})({old} + {value})" if element.is_integer else rounding(f"{old} + {value}", element)
        )
        stored(context, view, place, f"({total})")
    elif element.is_complex:
        for number, part in enumerate("xy"):
            name = f"atomic_add_{element.component}_{view.space}"
            context.put(f"{name}({pointer} + {number}, {within(value)}.{part})")
    else:
        name = "i64" if element.name == "index" else element.name
        context.put(f"atomic_add_{name}_{view.space}({pointer}, {value})")


def _view(context: Context, value: TensorValue) -> EmittedView:
    found: EmittedView = context.values[value]
    return found


def emit_alloca(context: Context, operation: TensorOperation) -> None:
    """A part of the array of its element type, see the pass "storage"."""
    (result,) = operation.results
    assert isinstance(result.type, TensorMemref)
    element, offset = result.type.element, operation.annotations["offset"]
    c = pointer_type(element)
    kept = "ushort" if c == "half" else c
    length = stored_parts(element) * max(offset + length_of(result.type), 1)
    name = context.local_array(f"stack_{element}", kept, length, of_allocas=True)
    space = context.alloca_space
    start = f"({name} + {stored_parts(element) * offset})"
    pointer = context.declare(f"__{space} {c} *const", result.name, f"(__{space} {c} *){start}" if c != kept else start)
    shape, strides = ([size or 0 for size in sizes] for sizes in (result.type.shape, result.type.strides))
    context.values[result] = EmittedView(pointer, element, space, tuple(shape), tuple(strides), _ALIGNED)


def emit_lifetime_stop(context: Context, operation: TensorOperation) -> None:
    """Nothing: the pass "storage" has used it."""


def _index_values(context: Context, values: tuple[TensorValue, ...]) -> list[Amount]:
    return [context.text(value) for value in values]


def emit_load(context: Context, operation: TensorOperation) -> None:
    source, *indices = operation.operands
    (result,) = operation.results
    found = context.values[source]
    if isinstance(found, EmittedGroup):
        _pick(context, found, context.text(indices[0]), result)
        return
    places = _index_values(context, tuple(indices))
    condition = check_indices(context, found, places)
    with context.masked(_both(context.mask, condition)):
        context.assign_if_taking_part(result, loaded_element(found, found.place(places)))


def _both(a: str | None, b: str | None) -> str | None:
    return f"{a} && {b}" if a and b else a or b


def check_indices(context: Context, view: EmittedView, indices: list[Amount]) -> str | None:
    """A variable that says whether indices are within bounds, where these are checked; else None.

    The first work-item with an index that is not reports it.
    """
    if not context.check or not indices:
        return None
    return _reported(
        context, [f"(ulong)({index}) < (ulong)({size})" for index, size in zip(indices, view.shape, strict=True)]
    )


def _reported(context: Context, tests: list[str]) -> str:
    """A variable that says whether all tests hold; where they do not, that is reported."""
    ok = context.declare("int const", "inside", " && ".join(tests))
    outside = f"{context.mask} && !{ok}" if context.mask else f"!{ok}"
    context.spans.append(context.span)
    with context.guard(outside):
        context.put(f"atomic_cmpxchg(fault, 0, {len(context.spans)})")
    return ok


def _pick(context: Context, group: EmittedGroup, index: str, result: TensorValue) -> None:
    """A memref of a group; work-items that take no part get the first."""
    taking = context.mask
    if context.check:
        taking = _both(taking, _reported(context, [f"(ulong){index} < (ulong){group.size}"]))
    at = index if taking is None else f"({taking} ? {index} : 0)"
    c = pointer_type(group.element)
    offset = (
        f"{stored_parts(group.element)} * {group.offsets}[{at}]" if group.element.is_complex else f"{group.offsets}[{at}]"
    )
    pointer = context.declare(f"__global {c} *const", result.name, f"{group.pointer} + {offset}")

    def amounts(tables: tuple[Amount, ...], hint: str) -> tuple[Amount, ...]:
        return tuple(
            table if isinstance(table, int) else context.declare("long const", hint, f"{table}[{at}]") for table in tables
        )

    context.values[result] = EmittedView(
        pointer, group.element, "global", amounts(group.shape, "n"), amounts(group.strides, "s")
    )


def emit_store(context: Context, operation: TensorOperation) -> None:
    """Store an element: in a collective region one work-item stores, but each adds."""
    value, target, *indices = operation.operands
    view = _view(context, target)
    places = _index_values(context, tuple(indices))
    atomic = operation.attributes["atomic"]
    condition = _both(context.mask, check_indices(context, view, places))
    if context.collective and atomic != "atomic_add" and not context.target.is_alone:
        condition = _both(condition, "lid == 0")
    with context.guard(condition):
        stored(context, view, view.place(places), context.text(value), atomic)


def emit_size(context: Context, operation: TensorOperation) -> None:
    found = context.values[operation.operands[0]]
    size = found.size if isinstance(found, EmittedGroup) else found.shape[operation.attributes["mode"]]
    context.values[operation.results[0]] = str(size) if isinstance(size, str) else f"{size}L"


def emit_subview(context: Context, operation: TensorOperation) -> None:
    view = _view(context, operation.operands[0])
    bounds = [[one if isinstance(one, int) else context.text(one) for one in pair] for pair in operation.bounds]
    offsets: list[Amount] = [offset for offset, _ in bounds]
    kept = [(size, stride) for (_, size), stride in zip(bounds, view.strides, strict=True) if size != 0]
    shape, strides = [size for size, _ in kept], [stride for _, stride in kept]
    if context.check:
        _check_emitted_subview(context, operation, view, offsets, shape)
    (result,) = operation.results
    pointer = _moved_pointer(context, view, view.place(offsets), result.name)
    steps = (divisor_of(offset) * divisor_of(step) for offset, step in zip(offsets, view.strides, strict=True))
    aligned = gcd(view.aligned, *steps)
    context.values[result] = EmittedView(pointer, view.element, view.space, tuple(shape), tuple(strides), aligned)


def _check_emitted_subview(
    context: Context, operation: TensorOperation, view: EmittedView, offsets: list[Amount], shape: list[Amount]
) -> None:
    """A block lies inside, and so does a slice, whose size is 1 if it is of any."""
    left = iter(shape)
    tests = []
    for offset, given, size in zip(offsets, operation.attributes["sizes"], view.shape, strict=True):
        end = plus(offset, 1 if given == 0 else next(left))
        if not all(isinstance(amount, int) for amount in (offset, end, size)):
            tests.append(f"{within(offset)} >= 0 && (long)({end}) <= (long)({size})")
    if tests:
        _reported(context, tests)


def _moved_pointer(context: Context, view: EmittedView, place: Amount, hint: str) -> str:
    if place == 0:
        return view.pointer
    by = product_expression(stored_parts(view.element), place)
    type_ = f"__{view.space} {pointer_type(view.element)} *const"
    return context.declare(type_, hint, f"{view.pointer} + {within(by)}")


def emit_expand(context: Context, operation: TensorOperation) -> None:
    source, *dynamic = operation.operands
    view, left = _view(context, source), iter(dynamic)
    mode = operation.attributes["mode"]
    sizes: list[Amount] = [context.text(next(left)) if size is None else size for size in operation.attributes["shape"]]
    strides = [_product_text(view.strides[mode], *sizes[:number]) for number in range(len(sizes))]
    shape = (*view.shape[:mode], *sizes, *view.shape[mode + 1 :])
    steps = (*view.strides[:mode], *strides, *view.strides[mode + 1 :])
    context.values[operation.results[0]] = EmittedView(view.pointer, view.element, view.space, shape, steps, view.aligned)


def _product_text(*factors: Amount) -> Amount:
    found: Amount = 1
    for factor in factors:
        found = product_expression(found, factor)
    return found


def emit_fuse(context: Context, operation: TensorOperation) -> None:
    view = _view(context, operation.operands[0])
    first, last = operation.attributes["first"], operation.attributes["last"]
    fused = _product_text(*view.shape[first : last + 1])
    shape = (*view.shape[:first], fused, *view.shape[last + 1 :])
    strides = (*view.strides[: first + 1], *view.strides[last + 1 :])
    context.values[operation.results[0]] = EmittedView(view.pointer, view.element, view.space, shape, strides, view.aligned)


EMITTERS: Final[Mapping[str, Callable[[Context, TensorOperation], None]]] = {
    "alloca": emit_alloca,
    "expand": emit_expand,
    "fuse": emit_fuse,
    "lifetime_stop": emit_lifetime_stop,
    "load": emit_load,
    "size": emit_size,
    "store": emit_store,
    "subview": emit_subview,
}
