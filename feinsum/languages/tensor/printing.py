"""Printing: the canonical text of functions, from which reading makes equal ones.

One instruction a line, four blanks for each region, types without spaces; what is packed, ``global`` or ``index`` by
default is not written, and numbers have the fewest digits that give them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from feinsum.languages.tensor.definitions import MODIFIERS_OF_FAMILY
from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.types import INDEX

_BARE_NAMES = frozenset({"alignment", "shape_gcd", "stride_gcd", "subgroup_size", "unroll", "work_group_size"})
_INDENT = "    "


def show(functions: Iterable[TensorFunction]) -> str:
    """The canonical text of functions."""
    return "\n".join(map(show_function, functions))


def show_function(function: TensorFunction) -> str:
    """The canonical text of a function, with a line break at its end."""
    parameters = ", ".join(
        f"%{value.name}: {value.type}{_dictionary(attributes, ' ')}"
        for value, attributes in zip(function.parameters, function.parameter_attributes, strict=True)
    )
    attributes = f" attributes{_dictionary(function.attributes)}" if function.attributes else ""
    body = "\n".join(_region_lines(function.body, _INDENT))
    return f"func @{function.name}({parameters}){attributes} {{\n{body}{chr(10) if body else ''}}}\n"


def show_operation(operation: TensorOperation) -> str:
    """The lines of an instruction."""
    return "\n".join(_instruction(operation, ""))


def _region_lines(region: TensorRegion, margin: str) -> Iterable[str]:
    for operation in region.operations:
        yield from _instruction(operation, margin)


def _instruction(operation: TensorOperation, margin: str) -> Iterable[str]:
    family = operation.name.partition(".")[0]
    text = _FORMS.get(family, _show_compute)(operation)
    results = f"{_show_names(operation.results)} = " if operation.results else ""
    if not operation.regions:
        type_ = f" : {_show_types(operation.results)}" if operation.results else ""
        yield f"{margin}{results}{text}{type_}"
        return
    yield f"{margin}{results}{text} {{"
    yield from _region_lines(operation.regions[0], margin + _INDENT)
    for region in operation.regions[1:]:
        yield f"{margin}}} else {{"
        yield from _region_lines(region, margin + _INDENT)
    yield f"{margin}}}{_dictionary(operation.annotations, ' ')}"


def _show_names(values: Iterable[TensorValue]) -> str:
    return ", ".join(f"%{value.name}" for value in values)


def _show_types(values: Iterable[TensorValue]) -> str:
    return ", ".join(str(value.type) for value in values)


def _modifiers(operation: TensorOperation) -> str:
    words = [*operation.attributes.get("transposes", ())]
    words += [operation.attributes.get(key) for key in ("checked", "atomic", "global", "local")]
    return "".join(f".{word}" for word in words if word)


def _show_compute(operation: TensorOperation) -> str:
    """An operation of names."""
    name = operation.name
    if name in MODIFIERS_OF_FAMILY:
        name += f".{operation.attributes[MODIFIERS_OF_FAMILY[name][0]]}"
    operands = f" {_show_names(operation.operands)}" if operation.operands else ""
    return f"{name}{_modifiers(operation)}{operands}"


def _show_cumsum(operation: TensorOperation) -> str:
    alpha, A, beta, B = operation.operands
    mode = operation.attributes["mode"]
    return f"cumsum{_modifiers(operation)} %{alpha.name}, %{A.name}, {mode}, %{beta.name}, %{B.name}"


def _show_expand(operation: TensorOperation) -> str:
    dynamic = iter(operation.operands[1:])
    sizes = [f"%{next(dynamic).name}" if size is None else str(size) for size in operation.attributes["shape"]]
    bounds = f"{operation.attributes['mode']} -> {' x '.join(sizes)}"
    return f"expand %{operation.operands[0].name}[{bounds}]"


def _show_fuse(operation: TensorOperation) -> str:
    bounds = f"{operation.attributes['first']}, {operation.attributes['last']}"
    return f"fuse %{operation.operands[0].name}[{bounds}]"


def _subview(operation: TensorOperation) -> str:
    dynamic = iter(operation.operands[1:])

    def shown(bound: int | None) -> str:
        return f"%{next(dynamic).name}" if bound is None else str(bound)

    entries = []
    for offset, size in zip(operation.attributes["offsets"], operation.attributes["sizes"], strict=True):
        entry = shown(offset)
        entries.append(entry if size == 0 else f"{entry}:{shown(size)}")
    return f"subview %{operation.operands[0].name}[{', '.join(entries)}]"


def _show_load(operation: TensorOperation) -> str:
    memref, *indices = operation.operands
    return f"{operation.name}{_modifiers(operation)} %{memref.name}[{_show_names(indices)}]"


def _show_store(operation: TensorOperation) -> str:
    value, memref, *indices = operation.operands
    return f"{operation.name}{_modifiers(operation)} %{value.name}, %{memref.name}[{_show_names(indices)}]"


def _foreach(operation: TensorOperation) -> str:
    variables = operation.regions[0].parameters
    count = len(variables)
    lower, upper = operation.operands[:count], operation.operands[count:]
    return f"foreach ({_show_names(variables)}){_loop_type(variables[0])} = ({_show_names(lower)}), ({_show_names(upper)})"


def _for(operation: TensorOperation) -> str:
    variable, *carried = operation.regions[0].parameters
    bounds = operation.loop_bounds
    begins = operation.operands[len(bounds) :]
    init = ", ".join(f"%{value.name} = %{begin.name}" for value, begin in zip(carried, begins, strict=True))
    shown = f" init({init}){_carried_types(carried)}" if carried else ""
    return f"for %{variable.name}{_loop_type(variable)} = {_show_names(bounds)}{shown}"


def _loop_type(variable: TensorValue) -> str:
    return "" if variable.type == INDEX else f": {variable.type}"


def _carried_types(values: Sequence[TensorValue]) -> str:
    return f" -> ({_show_types(values)})" if values else ""


_FORMS: Mapping[str, Callable[[TensorOperation], str]] = {
    "alloca": lambda op: f"alloca{_dictionary(op.annotations, ' ')}",
    "builtin": lambda op: f"builtin.{op.attributes['builtin']}",
    "constant": lambda op: f"constant {_show_constant(op.attributes['value'])}",
    "cooperative_matrix_load": _show_load,
    "cooperative_matrix_store": _show_store,
    "cumsum": _show_cumsum,
    "expand": _show_expand,
    "for": _for,
    "foreach": _foreach,
    "fuse": _show_fuse,
    "if": lambda op: f"if %{op.operands[0].name}{_carried_types(op.results)}",
    "load": _show_load,
    "size": lambda op: f"size %{op.operands[0].name}[{op.attributes['mode']}]",
    "store": _show_store,
    "subview": _subview,
    "yield": lambda op: f"yield ({_show_names(op.operands)})",
}
"""The text of instructions without their results and types, by family; of all others :func:`_show_compute`."""


def _show_constant(value: Any) -> str:
    """A constant, written so that it is read as the same one.

    >>> _show_constant(True), _show_constant(-3), _show_constant(1.0), _show_constant(1e300)
    ('true', '-3', '1.0', '1e+300')
    >>> _show_constant(complex(0.5, -2))
    '[0.5,-2.0]'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        return f"[{value.real!r},{value.imag!r}]"
    return repr(value)


def _dictionary(entries: Mapping[str, Any], margin: str = "") -> str:
    if not entries:
        return ""
    shown = (
        f"{key if key in _BARE_NAMES else _quoted_text(key)}={_show_subview_entry(value)}" for key, value in entries.items()
    )
    return f"{margin}{{{', '.join(shown)}}}"


def _show_subview_entry(value: Any) -> str:
    if isinstance(value, Mapping):
        return _dictionary(value) or "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_show_subview_entry, value))}]"
    return _quoted_text(value) if isinstance(value, str) else _show_constant(value)


def _quoted_text(text: str) -> str:
    return f'"{text}"'
