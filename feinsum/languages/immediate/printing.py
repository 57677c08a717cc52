"""Printing: the canonical text of functions, from which reading makes equal ones.

One instruction a line, its types in the line below where there are several; what is packed has no strides, and numbers
have the fewest digits that give them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from feinsum.languages.immediate.syntax import (
    Alloca,
    Fixed,
    For,
    GetWorkItem,
    ImmediateFunction,
    ImmediateSlice,
    ImmediateUpdate,
    Instruction,
    LifetimeStop,
    OrderBarrier,
    Subview,
)

_INDENT = "    "

Remarks = Mapping[int, str]
"""Comments behind instructions, by the identity of these."""


def show(functions: Iterable[ImmediateFunction], remarks: Remarks | None = None) -> str:
    """The canonical text of functions."""
    return "\n".join(show_function(function, remarks) for function in functions)


def show_function(function: ImmediateFunction, remarks: Remarks | None = None) -> str:
    """The canonical text of a function, with a line break at its end."""
    parameters = ", ".join(f"{p.name}: {p.type}" for p in function.parameters)
    head = f"define @{function.name}({parameters}) {{"
    if len(head) > 100 and len(function.parameters) > 1:
        margin = " " * len(f"define @{function.name}(")
        head = head.replace(", %", f",\n{margin}%")
    body = "".join(f"{line}\n" for line in _body_lines(function.body, _INDENT, remarks or {}))
    return f"{head}\n{body}}}\n"


def _body_lines(body: Iterable[Instruction], margin: str, remarks: Remarks) -> Iterable[str]:
    for instruction in body:
        remark = remarks.get(id(instruction))
        if remark:
            yield f"{margin}; {remark}"
        if isinstance(instruction, For):
            yield f"{margin}{show_instruction(instruction)} {{"
            yield from _body_lines(instruction.body, margin + _INDENT, remarks)
            yield f"{margin}}}"
        else:
            yield from (margin + line for line in show_instruction(instruction).splitlines())


def show_instruction(instruction: Instruction) -> str:
    """The text of an instruction; of a loop its head.

    >>> from feinsum.languages.immediate.maps import index_map
    >>> from feinsum.languages.immediate.syntax import ImmediateName
    >>> from feinsum.languages.immediate.types import SCALARS, make_immediate_memref
    >>> A = make_immediate_memref(SCALARS["f32"], (4, 5))
    >>> B = make_immediate_memref(SCALARS["f32"], (5, 4))
    >>> a, b = ImmediateName("A"), ImmediateName("B")
    >>> print(show_instruction(ImmediateUpdate("axpby", index_map(["ij"], "ji"), 1.0, (a,), 0.5, b, (A, B))))
    axpby {ij to ji} 1.0, %A, 0.5, %B
        : memref<f32x4x5> to memref<f32x5x4>
    """
    match instruction:
        case Alloca(result, type_):
            return f"{result} = alloca : {type_}"
        case GetWorkItem(result, operand, offset, type_):
            behind = f", {offset[0]} {offset[1]}" if offset else ""
            return f"{result} = get_work_item {operand}{behind} : {type_}"
        case Subview(result, operand, entries, source, type_):
            return f"{result} = subview {operand}[{', '.join(map(_show_entry, entries))}]\n{_INDENT}: {source} to {type_}"
        case ImmediateUpdate():
            factors = ", ".join(map(str, instruction.operands))
            numbers = f"{instruction.alpha!r}, {factors}, {instruction.beta!r}"
            types = ", ".join(map(str, instruction.types[:-1]))
            first = f"{instruction.opcode} {instruction.map} {numbers}, {instruction.result}"
            return f"{first}\n{_INDENT}: {types} to {instruction.types[-1]}"
        case LifetimeStop(operand):
            return f"lifetime_stop {operand}"
        case OrderBarrier():
            return "barrier"
        case For():
            return f"for {instruction.type} {instruction.variable} = {instruction.start} to {instruction.stop}"


def _show_entry(entry: ImmediateSlice | Fixed) -> str:
    if isinstance(entry, Fixed):
        return f"{entry.type} {entry.at}" if entry.type is not None else str(entry.at)
    start = "" if entry.start is None else str(entry.start)
    return f"{start}:{'' if entry.stop is None else entry.stop}"
