"""The meanings of the grammar's rules: numbers, types, maps and instructions, with the errors in each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from feinsum.languages.diagnostics import Findings, Note, counted
from feinsum.languages.immediate.maps import IndexMap, read_map
from feinsum.languages.immediate.syntax import (
    Alloca,
    Fixed,
    For,
    GetWorkItem,
    ImmediateFunction,
    ImmediateName,
    ImmediateParameter,
    ImmediateSlice,
    ImmediateUpdate,
    LifetimeStop,
    OrderBarrier,
    Subview,
)
from feinsum.languages.immediate.types import SCALARS, UNKNOWN, ImmediateMemref, MemrefGroup, Type, make_immediate_memref
from feinsum.languages.scanning import Action, Token
from feinsum.languages.source import Span

_GREATEST = 2**63 - 1


class ImmediateNotation:
    """Makes the parts of programs; `actions` are those of the grammar.

    :param strict: whether what the document writes against its own rules is an error.
    """

    def __init__(self, findings: Findings, strict: bool) -> None:
        self.findings, self.strict = findings, strict
        prefix = "_on_"
        self.actions: dict[str, Action] = {
            name.removeprefix(prefix): getattr(self, name) for name in dir(self) if name.startswith(prefix)
        }

    def lenient(self, rule: str, span: Span, message: str, notes: Sequence[Note] = ()) -> None:
        """Report an error in strict mode, and a warning otherwise."""
        (self.findings.error if self.strict else self.findings.warn)(rule, span, message, notes)

    def integer(self, token: Token) -> int:
        """The value of an integer constant."""
        value = int(token.text) if len(token.text) <= 32 else _GREATEST + 1
        if abs(value) > _GREATEST:
            span = Span(token.start, token.end)
            fix = Note(f"write {-_GREATEST if token.text[0] == '-' else _GREATEST}")
            self.findings.error(
                "integer-range", span, f"{_shortened_text(token.text)} is not in [-2^63 + 1, 2^63 - 1]", [fix]
            )
            return 0
        return value

    # --- functions and types

    def _on_function(self, parts: list[Any], start: int, end: int) -> ImmediateFunction:
        name, parameters, body = parts
        return ImmediateFunction(name.text[1:], tuple(parameters), tuple(body), Span(name.start, name.end))

    def _on_parameters(self, parts: list[Any], start: int, end: int) -> list[Any]:
        return parts

    _on_region = _on_parameters
    _on_shape = _on_parameters
    _on_integers = _on_parameters
    _on_entries = _on_parameters

    def _on_parameter(self, parts: list[Any], start: int, end: int) -> ImmediateParameter:
        token, (type_, _) = parts
        return ImmediateParameter(_token_name(token), type_)

    def _on_type(self, parts: list[Any], start: int, end: int) -> tuple[Type, Span]:
        return parts[0], Span(start, end)

    def _on_scalar_type(self, parts: list[Any], start: int, end: int) -> tuple[Type, Span]:
        return SCALARS[parts[0].text], Span(start, end)

    def _on_void_type(self, parts: list[Any], start: int, end: int) -> tuple[Type, Span]:
        message = "nothing has the type void: there is no use for it"
        self.findings.error("type-void", Span(start, end), message, [Note("write i64")])
        return UNKNOWN, Span(start, end)

    def _on_memref(self, parts: list[Any], start: int, end: int) -> Type:
        _, scalar, lengths, layout = parts
        shape = tuple(self.integer(token) for token in lengths)
        for token, length in zip(lengths, shape, strict=True):
            if length < 1:
                message = f"a length is at least 1, not {token.text}"
                self.findings.error("memref-length", Span(token.start, token.end), message, [Note("write 1")])
        if any(length < 1 for length in shape):
            return UNKNOWN
        packed = make_immediate_memref(SCALARS[scalar.text], shape)
        strides = packed.strides if layout is None else self._strides(layout, packed, Span(start, end))
        if strides is None:
            return UNKNOWN
        made = make_immediate_memref(packed.element, shape, strides)
        if made.extent > _GREATEST:
            message = "a memref spans less than 2^63 elements"
            self.findings.error("memref-length", Span(start, end), message, [Note("divide it among work-items")])
            return UNKNOWN
        return made

    def _strides(self, tokens: list[Token], packed: ImmediateMemref, span: Span) -> tuple[int, ...] | None:
        strides = tuple(self.integer(token) for token in tokens)
        if len(strides) != packed.order:
            message = f"{counted(len(strides), 'stride')} for {counted(packed.order, 'index')}"
            self.findings.error("stride-count", span, message, [Note(f"write {packed}")])
            return None
        least = 1
        for token, stride, length in zip(tokens, strides, packed.shape, strict=True):
            if stride < least:
                message = f"the stride {stride} is below {least}, so elements would overlap or change their order"
                self.findings.error("stride-order", Span(token.start, token.end), message, [Note(f"write {least}")])
                return None
            least = stride * length
        return strides

    def _on_scalar(self, parts: list[Any], start: int, end: int) -> Any:
        return parts[0]

    _on_strides = _on_scalar

    def _on_nothing(self, parts: list[Any], start: int, end: int) -> None:
        return None

    _on_comma = _on_nothing

    def _on_distance(self, parts: list[Any], start: int, end: int) -> int:
        distance = self.integer(parts[0])
        if distance < 0:
            message = f"a distance is not negative: {distance}"
            self.findings.error("distance", Span(parts[0].start, parts[0].end), message, [Note(f"write {-distance}")])
        return max(distance, 0)

    def _on_group(self, parts: list[Any], start: int, end: int) -> Type:
        _, item, distance = parts
        return MemrefGroup(item, distance) if isinstance(item, ImmediateMemref) else UNKNOWN

    # --- instructions

    def _on_assigned(self, parts: list[Any], start: int, end: int) -> Any:
        token, make = parts
        return make(_token_name(token))

    def _on_alloca(self, parts: list[Any], start: int, end: int) -> Any:
        ((type_, span),) = parts
        return lambda name: Alloca(name, type_, span)

    def _on_get_work_item(self, parts: list[Any], start: int, end: int) -> Any:
        operand, offset, (type_, span) = parts
        return lambda name: GetWorkItem(name, _token_name(operand), offset, type_, span)

    def _on_typed(self, parts: list[Any], start: int, end: int) -> Any:
        return SCALARS[parts[0].text], _token_name(parts[1])

    def _on_subview(self, parts: list[Any], start: int, end: int) -> Any:
        operand, entries, (source, _), (type_, span) = parts
        return lambda name: Subview(name, _token_name(operand), tuple(entries), source, type_, Span(start, span.end), span)

    def _on_dynamic(self, parts: list[Any], start: int, end: int) -> Fixed:
        return Fixed(_token_name(parts[1]), SCALARS[parts[0].text], Span(start, end))

    def _on_fixed(self, parts: list[Any], start: int, end: int) -> Fixed:
        return Fixed(self.integer(parts[0]), None, Span(start, end))

    def _on_slice_both(self, parts: list[Any], start: int, end: int) -> ImmediateSlice:
        return ImmediateSlice(self.integer(parts[0]), self.integer(parts[1]), Span(start, end))

    def _on_slice_from(self, parts: list[Any], start: int, end: int) -> ImmediateSlice:
        return ImmediateSlice(self.integer(parts[0]), None, Span(start, end))

    def _on_slice_to(self, parts: list[Any], start: int, end: int) -> ImmediateSlice:
        return ImmediateSlice(None, self.integer(parts[0]), Span(start, end))

    def _on_slice_all(self, parts: list[Any], start: int, end: int) -> ImmediateSlice:
        return ImmediateSlice(None, None, Span(start, end))

    def _on_number(self, parts: list[Any], start: int, end: int) -> tuple[float, Span]:
        token, span = parts[0], Span(start, end)
        if token.kind == "INTEGER":
            fix = f"{self.integer(token)}.0"
            message = f"{token.text} is an integer; alpha and beta are numbers"
            self.findings.error("constant-form", span, message, [Note(f"write {fix}")])
            return float(fix), span
        value = _parse_float(token.text)
        if not math.isfinite(value):
            self.findings.error("float-range", span, f"{_shortened_text(token.text)} is not finite in double precision")
            return 0.0, span
        return value, span

    def _map(self, token: Token) -> IndexMap:
        return read_map(token.text, token.start, lambda span, what: self.findings.error("map-syntax", span, what))

    def _on_binary(self, parts: list[Any], start: int, end: int) -> ImmediateUpdate:
        opcode, map_, _, alpha, a, b, beta, c, *types = parts
        return self._update(opcode, map_, (alpha, beta), (a, b), c, types)

    def _on_unary(self, parts: list[Any], start: int, end: int) -> ImmediateUpdate:
        opcode, map_, _, alpha, a, beta, b, *types = parts
        return self._update(opcode, map_, (alpha, beta), (a,), b, types)

    def _on_short(self, parts: list[Any], start: int, end: int) -> ImmediateUpdate:
        opcode, map_, _, alpha, a, b, *types = parts
        made = self._update(opcode, map_, (alpha, (1.0, Span(b.start, b.start))), (a,), b, types)
        message = f"axpby has two constants; of one alone beta is taken for 1: write {alpha[0]!r}, {a.text}, 1.0, {b.text}"
        self.lenient("lenient-axpby", alpha[1], message)
        return made

    def _update(
        self, opcode: Token, map_: Token, constants: Any, operands: Any, result: Token, types: Any
    ) -> ImmediateUpdate:
        (alpha, alpha_span), (beta, beta_span) = constants
        return ImmediateUpdate(
            opcode.text,  # type: ignore[arg-type]  # the grammar has these four
            self._map(map_),
            alpha,
            tuple(map(_token_name, operands)),
            beta,
            _token_name(result),
            tuple(type_ for type_, _ in types),
            Span(opcode.start, opcode.end),
            (alpha_span, beta_span),
            tuple(span for _, span in types),
        )

    def _on_for_loop(self, parts: list[Any], start: int, end: int) -> For:
        scalar, variable, first, last, body = parts
        span = Span(scalar.start, last.end)
        return For(SCALARS[scalar.text], _token_name(variable), self.integer(first), self.integer(last), tuple(body), span)

    def _on_barrier(self, parts: list[Any], start: int, end: int) -> OrderBarrier:
        return OrderBarrier(Span(start, end))

    def _on_lifetime_stop(self, parts: list[Any], start: int, end: int) -> LifetimeStop:
        return LifetimeStop(_token_name(parts[0]), Span(start, end))


def _token_name(token: Token) -> ImmediateName:
    return ImmediateName(token.text[1:], Span(token.start, token.end))


def _parse_float(text: str) -> float:
    """A floating-point constant; ``inf`` if it is too large."""
    if "x" in text.lower():
        try:
            return float.fromhex(text)
        except OverflowError:
            return math.inf
    return float(text)


def _shortened_text(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
