"""Interpreting: programs executed by numpy, one work-item after the other; the oracle of everything faster.

Updates are computed in higher precision and rounded once.  Memory of work-items is poisoned before it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.immediate.arguments import bind_parameters, instances, signature
from feinsum.languages.immediate.syntax import (
    Alloca,
    Fixed,
    For,
    GetWorkItem,
    ImmediateFunction,
    ImmediateUpdate,
    Instruction,
    Subview,
)
from feinsum.languages.immediate.types import ImmediateMemref

_HIGHER = {"f": np.float64, "d": np.longdouble}


def execute_function(function: ImmediateFunction, arguments: Mapping[str, Any], count: int | None = None) -> Any:
    """Execute a function for every work-item; see :meth:`feinsum.Program.interpret`."""
    own = signature(function)
    bound = bind_parameters(own, arguments)
    for item in range(instances(function, bound, count)):
        values: dict[str, Any] = {one.parameter.name.text: one.value for one in bound}
        _execute_region(function.body, values, item)
    return own.written_among(arguments)


def _execute_region(body: tuple[Instruction, ...], outside: Mapping[str, Any], item: int) -> None:
    values = dict(outside)
    for instruction in body:
        match instruction:
            case Alloca(result, type_):
                values[result.text] = _poisoned(type_)
            case GetWorkItem(result, operand, offset):
                values[result.text] = _view_part(values[operand.text], item + (values[offset[1].text] if offset else 0))
            case Subview(result, operand, entries):
                values[result.text] = _view_part(values[operand.text], [_index_value(e, values) for e in entries])
            case ImmediateUpdate():
                execute_update(instruction, [values[name.text] for name in (*instruction.operands, instruction.result)])
            case For():
                for value in range(instruction.start, instruction.stop):
                    _execute_region(instruction.body, {**values, instruction.variable.text: value}, item)


def _poisoned(type_: Any) -> Any:
    assert isinstance(type_, ImmediateMemref)
    poison = type_.element.greatest if type_.element.is_integer else np.nan
    return np.full(type_.shape, poison, type_.element.dtype)


def _view_part(tensor: Any, index: Any) -> Any:
    """A view, also of one element."""
    if isinstance(tensor, list):
        return tensor[index]
    return tensor[(*(index if isinstance(index, list) else [index]), ...)]


def _index_value(entry: Any, values: Mapping[str, Any]) -> Any:
    if not isinstance(entry, Fixed):
        return slice(entry.start, entry.stop)
    value = entry.at if isinstance(entry.at, int) else values[entry.at.text]
    if value < 0:
        raise ValidationError(f"{entry.at} is {value}, and an index is not negative")
    return value


def execute_update(instruction: ImmediateUpdate, tensors: list[Any]) -> None:
    """``C := alpha einsum(operands) + beta C``, in place; what has a factor of 0 is not read."""
    *operands, result = tensors
    higher = _HIGHER.get(result.dtype.char, result.dtype.type)
    number = result.dtype.type
    text = ",".join(term.letters for term in instruction.map.inputs) + f"->{instruction.map.output.letters}"
    total = np.zeros(result.shape, higher)
    with np.errstate(all="ignore"):
        if instruction.alpha != 0:
            total += number(instruction.alpha) * np.einsum(text, *(a.astype(higher) for a in operands))
        if instruction.beta != 0:
            total += number(instruction.beta) * result.astype(higher)
        result[...] = total.astype(result.dtype)
