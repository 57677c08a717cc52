"""Notation: what the parser makes of constants, attributes and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from feinsum.languages.diagnostics import Findings, counted
from feinsum.languages.scanning import Action, Token
from feinsum.languages.source import Span
from feinsum.languages.tensor.types import (
    BOOL,
    SCALARS,
    UNKNOWN,
    VOID,
    Coopmatrix,
    Extent,
    PointerGroup,
    TensorMemref,
    TensorScalar,
    Type,
    make_tensor_memref,
)

Constant: TypeAlias = bool | int | float | complex

MOST_NESTED: Final = 64
"""The deepest nesting of regions and attributes, which bounds the recursion depth."""
_LONGEST_INTEGER: Final = 20
"""Characters of the longest integer in range; Python refuses to read those of thousands."""


class TensorNotation:
    """The actions of rules below instructions; those of instructions are in :class:`.Drafter`."""

    def __init__(self, findings: Findings, strict: bool) -> None:
        self.findings, self.strict = findings, strict
        names = (name for name in dir(self) if not name.startswith("_") and name not in ("actions", "lenient"))
        self.actions: dict[str, Action] = {}
        for name in names:
            found: object = getattr(self, name)
            if callable(found):
                self.actions[name] = found
        self._types: dict[str, Type] = {"void": VOID, "bool": BOOL, **SCALARS}
        self._globals: list[int] = []

    def lenient(self, rule: str, span: Span, message: str) -> None:
        """Note a departure from the grammar that is accepted unless the reader is strict."""
        report: Callable[[str, Span, str], None] = self.findings.error if self.strict else self.findings.warn
        report(rule, span, message)

    # constants and attributes

    def integer(self, parts: list[Token], start: int, end: int) -> int:
        text = parts[0].text
        if len(text.lstrip("+-0")) < _LONGEST_INTEGER and -(2**63) < int(text) < 2**63:
            return int(text)
        self.findings.error("integer-range", Span(start, end), f"{text} is not in [-2^63 + 1, 2^63 - 1]")
        return 1

    def floating(self, parts: list[Token], start: int, end: int) -> float:
        return self._number(parts[0])

    def complex(self, parts: list[Token], start: int, end: int) -> Constant:
        return complex(*map(self._number, parts))

    def _number(self, token: Token) -> float:
        text = token.text
        try:
            value = float.fromhex(text) if "x" in text.lower() else float(text)
        except OverflowError:
            value = float("inf")
        if value in (float("inf"), float("-inf")):
            self.findings.error("float-range", Span(token.start, token.end), f"{text} is beyond double precision")
        return value

    def boolean(self, parts: list[Token], start: int, end: int) -> bool:
        return parts[0].text == "true"

    def string(self, parts: list[Token], start: int, end: int) -> str:
        return parts[0].text[1:-1]

    def attribute_name(self, parts: list[Token], start: int, end: int) -> str:
        return parts[0].text.strip('"')

    def array(self, parts: list[Any], start: int, end: int) -> tuple[Any, ...]:
        return tuple(parts)

    shape = strides = array

    def attribute(self, parts: list[Any], start: int, end: int) -> tuple[str, Any, Span]:
        name, value = parts
        if _is_too_deep(value):
            self.findings.error("nesting-depth", Span(start, end), f"arrays in arrays, more than {MOST_NESTED} deep")
            value = ()
        return name, value, Span(start, end)

    def dictionary(self, parts: list[tuple[str, Any, Span]], start: int, end: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value, span in parts:
            if name in found:
                self.findings.error("attribute-duplicate", span, f"'{name}' is in the dictionary already")
            found[name] = value
        return found

    def nothing(self, parts: list[Any], start: int, end: int) -> None:
        return None

    def no_offset(self, parts: list[Any], start: int, end: int) -> int:
        return 0

    def only(self, parts: list[Any], start: int, end: int) -> Any:
        return parts[0]

    # types

    def plain_type(self, parts: list[Token], start: int, end: int) -> Type:
        found = self._types[parts[0].text]
        if found is VOID:
            self.findings.error("type-void", Span(start, end), "nothing has the type void; leave the result out")
            return UNKNOWN
        return found

    def scalar(self, parts: list[Token], start: int, end: int) -> TensorScalar:
        return SCALARS[parts[0].text]

    scalar_type = scalar

    def no_options(self, parts: list[Any], start: int, end: int) -> tuple[None, bool]:
        return None, False

    def strided_option(self, parts: list[Any], start: int, end: int) -> tuple[Any, bool]:
        return parts[0], False

    def space_option(self, parts: list[Any], start: int, end: int) -> tuple[Any, bool]:
        return None, self._is_local(parts[0])

    def both_options(self, parts: list[Any], start: int, end: int) -> tuple[Any, bool]:
        return parts[0], self._is_local(parts[1])

    def _is_local(self, space: Token) -> bool:
        """Whether a memref is in local memory; where it says ``global`` is remembered, as the type is the same without."""
        if space.text == "global":
            self._globals.append(space.start)
        return space.text == "local"

    def memref(self, parts: list[Any], start: int, end: int) -> TensorMemref:
        element, shape, (strides, local) = parts
        span = Span(start, end)
        if any(extent is not None and extent < 0 for extent in shape):
            self.findings.error("memref-size", span, f"a memref of negative size: {shape}")
        if strides is not None:
            if len(strides) != len(shape):
                message = f"{counted(len(strides), 'stride')} for {counted(len(shape), 'mode')}"
                self.findings.error("stride-count", span, message)
                strides = None
            else:
                self._compare_strides(shape, strides, span)
        return make_tensor_memref(element, shape, strides, local)

    def _compare_strides(self, shape: tuple[Extent, ...], strides: tuple[Extent, ...], span: Span) -> None:
        least = 1
        for mode, (size, stride) in enumerate(zip(shape, strides, strict=True)):
            if stride is not None and stride < least:
                why = "1" if mode == 0 or least == 1 else f"{least}, the previous stride times its size"
                self.findings.error("stride-order", span, f"the stride of mode {mode} is {stride}, below {why}")
                return
            # behind an unknown stride or size nothing is known but that strides do not shrink
            least = max(stride or least, 1) if size is None or stride is None else stride * size

    def group_type(self, parts: list[Any], start: int, end: int) -> PointerGroup:
        inner, size, offset = parts
        if size is not None and size < 0:
            self.findings.error("memref-size", Span(start, end), f"a group of negative size: {size}")
        return PointerGroup(inner, size, offset)

    def coopmatrix_type(self, parts: list[Any], start: int, end: int) -> Coopmatrix:
        component, rows, columns, use = parts
        if rows < 1 or columns < 1:
            self.findings.error("coopmatrix-size", Span(start, end), f"a coopmatrix of {rows} x {columns}")
        return Coopmatrix(component, rows, columns, use.text)

    def types(self, parts: list[Type], start: int, end: int) -> list[Type]:
        if not parts:
            self.lenient("lenient-returns", Span(start, end), "a list of types without any; leave it out")
        return list(parts)

    def annotation(self, parts: list[Any], start: int, end: int) -> Type:
        separator, found = parts
        if separator.kind == "ARROW":
            span = Span(separator.start, separator.end)
            self.lenient("lenient-arrow", span, "the type of a result stands behind ':', not '->'")
        type_: Type = found
        return type_


def _is_too_deep(value: object) -> bool:
    """Whether arrays and dictionaries are nested deeper than :data:`MOST_NESTED`."""
    level = [value]
    for _ in range(MOST_NESTED):
        inside = (
            entry.values() if isinstance(entry, dict) else entry for entry in level if isinstance(entry, (tuple, dict))
        )
        level = [each for entries in inside for each in entries]
    return bool(level)
