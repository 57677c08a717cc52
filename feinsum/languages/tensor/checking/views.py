"""Checks of loads, stores, sizes and views: counts of indices, and the memref types that follow from an operand's."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from feinsum.languages.diagnostics import counted
from feinsum.languages.tensor.checking.check_report import Check, Report
from feinsum.languages.tensor.ir import TensorOperation, TensorValue
from feinsum.languages.tensor.types import INDEX, Extent, PointerGroup, TensorMemref, packed_strides, written_extent


def _check_indices(values: Sequence[TensorValue], report: Report) -> None:
    for value in values:
        if value.type != INDEX:
            report.error("index-type", f"%{value.name} is of type {value.type}, not index; cast it", value)


def _count_fits(found: int, type_: TensorMemref | PointerGroup, value: TensorValue, report: Report) -> bool:
    wanted = 1 if isinstance(type_, PointerGroup) else type_.order
    if found != wanted:
        report.error(
            "index-count", f"{counted(found, 'index')} for %{value.name}, which has {counted(wanted, 'mode')}", value
        )
    return found == wanted


def check_load(operation: TensorOperation, report: Report) -> None:
    source, *indices = operation.operands
    type_, result = source.type, operation.results[0].type
    _check_indices(indices, report)
    if not isinstance(type_, (TensorMemref, PointerGroup)):
        report.error("load-operand", f"%{source.name} is of type {type_}, which has no elements", source)
        return
    _count_fits(len(indices), type_, source, report)
    given = type_.memref if isinstance(type_, PointerGroup) else type_.element
    if result != given:
        report.error("load-type", f"%{source.name} holds {given}, and the result is of type {result}", source)


def check_store(operation: TensorOperation, report: Report) -> None:
    value, target, *indices = operation.operands
    _check_indices(indices, report)
    if not isinstance(target.type, TensorMemref):
        report.error("load-operand", f"%{target.name} is of type {target.type}, and not a memref", target)
        return
    _count_fits(len(indices), target.type, target, report)
    if value.type != target.type.element:
        message = f"%{value.name} is of type {value.type}, and %{target.name} holds {target.type.element}"
        report.error("store-type", message, value, target)


def check_size(operation: TensorOperation, report: Report) -> None:
    (source,), mode = operation.operands, operation.attributes["mode"]
    if not isinstance(source.type, (TensorMemref, PointerGroup)):
        report.error("load-operand", f"%{source.name} is of type {source.type}, which has no size", source)
        return
    order = 1 if isinstance(source.type, PointerGroup) else source.type.order
    if not 0 <= mode < order:
        modes = f"{order} modes, from 0" if order != 1 else "mode 0 only"
        report.error("size-mode", f"there is no mode {mode}: %{source.name} has {modes}", source)
    if operation.results[0].type != INDEX:
        report.error("index-type", f"a size is of type index, not {operation.results[0].type}")


def _memrefs(operation: TensorOperation, report: Report) -> tuple[TensorMemref, TensorMemref] | None:
    """The operand and the result of a view, if they are memrefs of the same elements."""
    source, result = operation.operands[0], operation.results[0]
    for value in (source, result):
        if not isinstance(value.type, TensorMemref):
            report.error("load-operand", f"%{value.name} is of type {value.type}; views are of memrefs", value)
            return None
    assert isinstance(source.type, TensorMemref)
    assert isinstance(result.type, TensorMemref)
    if (source.type.element, source.type.local) != (result.type.element, result.type.local):
        message = f"a view of {source.type} is no {result.type}: elements and address space stay"
        report.error("view-element", message, source)
    return source.type, result.type


def _compare_view(
    shape: Sequence[Extent], strides: Sequence[Extent], result: TensorMemref, source: TensorValue, report: Report
) -> None:
    """The shape that a view has, and the strides, each of which the result may leave unknown."""
    if tuple(shape) != result.shape:
        found = f"{'x'.join(map(written_extent, result.shape)) or 'a single element'}"
        wanted = "x".join(map(written_extent, shape)) or "a single element"
        report.error("view-shape", f"this view of %{source.name} is {wanted}, not {found}", source)
        return
    for mode, (have, given) in enumerate(zip(strides, result.strides, strict=True)):
        if given is not None and given != have:
            said = f"strided<{','.join(map(written_extent, strides))}>"
            message = f"the stride of mode {mode} is {written_extent(have)}, not {given}: write {said} or ?"
            report.error("view-stride", message, source)
            return


def check_expand(operation: TensorOperation, report: Report) -> None:
    types = _memrefs(operation, report)
    source, *dynamic = operation.operands
    _check_indices(dynamic, report)
    if types is None:
        return
    memref, result = types
    mode, sizes = operation.attributes["mode"], operation.attributes["shape"]
    if not 0 <= mode < memref.order:
        report.error("view-mode", f"there is no mode {mode} of %{source.name}, which has {memref.order}", source)
        return
    extent = memref.shape[mode]
    known = prod(size for size in sizes if size is not None)
    if any(size is not None and size < 0 for size in sizes):
        report.error("expand-product", f"{'x'.join(map(written_extent, sizes))} has a negative size")
        return
    if extent is not None and (known != extent if None not in sizes else known == 0 or extent % known):
        report.error(
            "expand-product",
            f"{'x'.join(map(written_extent, sizes))} does not make {extent}, the size of mode {mode}",
            source,
        )
    elif extent is None and None not in sizes:
        report.error("expand-product", f"the size of mode {mode} is unknown, so that of a part has to be a name", source)
    first = memref.strides[mode]
    inner = [None if first is None or part is None else first * part for part in packed_strides(sizes)]
    _compare_view(
        (*memref.shape[:mode], *sizes, *memref.shape[mode + 1 :]),
        (*memref.strides[:mode], *inner, *memref.strides[mode + 1 :]),
        result,
        source,
        report,
    )


def check_fuse(operation: TensorOperation, report: Report) -> None:
    types = _memrefs(operation, report)
    source = operation.operands[0]
    if types is None:
        return
    memref, result = types
    first, last = operation.attributes["first"], operation.attributes["last"]
    if not 0 <= first < last < memref.order:
        report.error(
            "view-mode", f"modes {first} to {last} of %{source.name}, whose modes are 0 to {memref.order - 1}", source
        )
        return
    for mode in range(first, last):
        stride, size, following = memref.strides[mode], memref.shape[mode], memref.strides[mode + 1]
        if None not in (stride, size, following) and (stride or 0) * (size or 0) != following:
            message = f"mode {mode} ends at {stride} * {size}, and mode {mode + 1} steps by {following}"
            report.error("fuse-stride", message, source)
            return
    fused = memref.shape[first : last + 1]
    size = None if None in fused else prod(extent or 0 for extent in fused)
    shape = (*memref.shape[:first], size, *memref.shape[last + 1 :])
    strides = (*memref.strides[: first + 1], *memref.strides[last + 1 :])
    _compare_view(shape, strides, result, source, report)


def check_subview(operation: TensorOperation, report: Report) -> None:
    types = _memrefs(operation, report)
    source, *dynamic = operation.operands
    _check_indices(dynamic, report)
    if types is None:
        return
    memref, result = types
    offsets, sizes = operation.attributes.get("offsets", ()), operation.attributes.get("sizes", ())
    if not _count_fits(len(offsets), memref, source, report):
        return
    for mode, (offset, size, extent) in enumerate(zip(offsets, sizes, memref.shape, strict=True)):
        if (offset or 0) < 0 or (size or 0) < 0:
            report.error(
                "subview-bounds", f"mode {mode} has a negative bound: {written_extent(offset)}:{written_extent(size)}"
            )
        elif offset is not None and size is not None and extent is not None and offset + max(size, 1) > extent:
            report.warn(
                "subview-outside", f"mode {mode} ends at {offset + max(size, 1)}, behind its size of {extent}", source
            )
    kept = [mode for mode, size in enumerate(sizes) if size != 0]
    _compare_view([sizes[mode] for mode in kept], [memref.strides[mode] for mode in kept], result, source, report)


CHECKS: Final[dict[str, Check]] = {
    "load": check_load,
    "store": check_store,
    "size": check_size,
    "expand": check_expand,
    "fuse": check_fuse,
    "subview": check_subview,
}
