"""Checks of functions: types of parameters, and the dictionaries of functions and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feinsum.languages.diagnostics import counted
from feinsum.languages.source import Span
from feinsum.languages.tensor.checking.check_report import Report
from feinsum.languages.tensor.definitions import DEFAULT_ALIGNMENT
from feinsum.languages.tensor.ir import TensorFunction, TensorValue
from feinsum.languages.tensor.types import Coopmatrix, Extent, PointerGroup, TensorMemref


def check_signature(function: TensorFunction, report: Report) -> None:
    """Check parameters and attributes."""
    for value, attributes in zip(function.parameters, function.parameter_attributes, strict=True):
        report.span = value.span
        _check_parameter(value, attributes, report)
    report.span = function.span
    _check_group_sizes(function.attributes, report)


def _check_parameter(value: TensorValue, attributes: Mapping[str, Any], report: Report) -> None:
    type_ = value.type
    memref = type_.memref if isinstance(type_, PointerGroup) else type_
    if isinstance(type_, Coopmatrix):
        report.error("parameter-type", f"%{value.name} is a coopmatrix, which only a sub-group can hold; pass a memref")
    elif isinstance(memref, TensorMemref) and memref.local:
        report.error("parameter-type", f"%{value.name} is in local memory, which no caller has; use alloca")
    if not attributes:
        return
    if not isinstance(memref, TensorMemref):
        report.error("parameter-attribute", f"%{value.name} is of type {type_}, which has no attributes")
        return
    warn_of_unused(attributes, ("alignment", "shape_gcd", "stride_gcd"), report)
    if "alignment" in attributes:
        check_alignment(attributes["alignment"], memref, report)
    for name, extents in (("shape_gcd", memref.shape), ("stride_gcd", memref.strides)):
        if name in attributes:
            _check_divisors(name, attributes[name], extents, report)


def check_alignment(alignment: object, memref: TensorMemref, report: Report, most: int | None = None) -> None:
    """Check the alignment in bytes that a dictionary gives a memref."""
    size = memref.element.size_bytes
    if type(alignment) is not int:
        report.error("attribute-type", "alignment is an integer")
    elif alignment < 1 or alignment % size:
        report.error("alignment", f"the alignment {alignment} is no multiple of {size}, the bytes of {memref.element}")
    elif most is not None and alignment > most:
        report.error("alignment", f"the alignment {alignment} is above {DEFAULT_ALIGNMENT}, which every device has")


def _check_divisors(name: str, divisors: object, extents: Sequence[Extent], report: Report) -> None:
    if not isinstance(divisors, tuple) or any(type(d) is not int for d in divisors):
        report.error("attribute-type", f"{name} is an array of integers")
        return
    what = "size" if name == "shape_gcd" else "stride"
    if len(divisors) > len(extents):
        report.error("gcd", f"{name} has {counted(len(divisors), 'divisor')} for {counted(len(extents), 'mode')}")
    for mode, (divisor, extent) in enumerate(zip(divisors, extents, strict=False)):
        if divisor < 1:
            report.error("gcd", f"{name} has the divisor {divisor}")
        elif extent is not None and extent % divisor:
            report.error("gcd", f"{name} says that {divisor} divides the {what} of mode {mode}, which is {extent}")


def _check_group_sizes(attributes: Mapping[str, Any], report: Report) -> None:
    """The sizes of sub-groups and work-groups."""
    warn_of_unused(attributes, ("subgroup_size", "work_group_size"), report)
    subgroup, group = attributes.get("subgroup_size"), attributes.get("work_group_size")
    if subgroup is not None and type(subgroup) is not int:
        report.error("attribute-type", "subgroup_size is an integer")
        subgroup = None
    elif subgroup is not None and subgroup < 1:
        report.error("subgroup-size", f"a sub-group of {subgroup} work-items")
        subgroup = None
    if group is None:
        return
    if not isinstance(group, tuple) or len(group) != 2 or any(type(size) is not int for size in group):
        report.error("attribute-type", "work_group_size is an array of two integers, [rows, columns]")
    elif min(group) < 1:
        report.error("work-group-size", f"a work-group of {group[0]} x {group[1]} work-items")
    elif subgroup and group[0] % subgroup:
        report.error("work-group-size", f"{group[0]} rows of work-items are no multiple of sub-groups of {subgroup}")


def warn_of_unused(attributes: Mapping[str, Any], known: Sequence[str], report: Report, span: Span | None = None) -> None:
    """Say which attributes mean nothing here."""
    for name in attributes:
        if name not in known:
            report.warn("attribute-unused", f"'{name}' means nothing here; known are {', '.join(known)}", span=span)
