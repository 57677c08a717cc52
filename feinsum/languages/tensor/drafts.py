"""Drafts: what the parser makes of an instruction, with names not looked up yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from feinsum.languages.diagnostics import counted
from feinsum.languages.scanning import Token
from feinsum.languages.source import Span
from feinsum.languages.tensor.definitions import DEFINITIONS, MODIFIERS_OF_FAMILY
from feinsum.languages.tensor.ir import TensorValue
from feinsum.languages.tensor.notation import Constant, TensorNotation
from feinsum.languages.tensor.types import (
    INDEX,
    UNKNOWN,
    TensorMemref,
    Type,
    make_tensor_memref,
)


class Immediate(NamedTuple):
    """A number in the place of an operand."""

    value: Constant
    span: Span


class SubviewEntry(NamedTuple):
    """An entry of a subview: an offset, and a size or None; both None for a colon alone."""

    offset: Token | int | None
    size: Token | TensorValue | int | None
    span: Span


class TensorParameter(NamedTuple):
    """A parameter of a function."""

    name: Token
    type: Type
    attributes: Mapping[str, Any]
    span: Span


class FunctionDraft(NamedTuple):
    """A function before names are looked up."""

    name: Token
    parameters: list[TensorParameter]
    attributes: Mapping[str, Any]
    body: list[InstructionDraft]
    span: Span


@dataclass(slots=True)
class InstructionDraft:
    """An instruction: `bounds` are the entries of subview and expand, `binders` loop variables and carried values."""

    name: str
    span: Span
    operands: list[Token | Immediate] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    regions: list[list[InstructionDraft]] = field(default_factory=list)
    binders: list[tuple[Token, Type | None]] = field(default_factory=list)
    bounds: list[SubviewEntry] = field(default_factory=list)
    names: list[Token] = field(default_factory=list)


class _Head(NamedTuple):
    """The head of a loop or an `if`."""

    span: Span
    parts: list[Any]


class Drafter(TensorNotation):
    """The actions of the grammar: parts of a rule become types, constants and drafts."""

    # operands

    def operands(self, parts: list[Any], start: int, end: int) -> list[Any]:
        return list(parts)

    names = indices = modifiers = region = parameters = operands

    def immediate(self, parts: list[Any], start: int, end: int) -> Immediate:
        return Immediate(parts[0], Span(start, end))

    immediate_bound = TensorNotation.only

    def single(self, parts: list[Any], start: int, end: int) -> SubviewEntry:
        return SubviewEntry(parts[0], 0, Span(start, end))

    def part(self, parts: list[Any], start: int, end: int) -> SubviewEntry:
        return SubviewEntry(parts[0], parts[1], Span(start, end))

    def whole(self, parts: list[Any], start: int, end: int) -> SubviewEntry:
        self.lenient("lenient-slice", Span(start, end), "a colon alone is no slice: write offset:size")
        return SubviewEntry(None, None, Span(start, end))

    def carried(self, parts: list[Token], start: int, end: int) -> tuple[Token, Token]:
        return parts[0], parts[1]

    # instructions

    def assigned(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        names, draft = parts
        draft.names = names
        made: InstructionDraft = draft
        return made

    def alloca(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        dictionary, found = parts
        span = Span(start, end)
        if isinstance(found, TensorMemref) and any(start <= place < end for place in self._globals):
            self.findings.error("alloca-type", span, "an alloca is in local memory: its type ends with ',local>'")
            found = UNKNOWN
        elif isinstance(found, TensorMemref) and not found.local:
            self.lenient("lenient-space", span, "the memref of an alloca is in local memory: end its type with ',local>'")
            found = make_tensor_memref(found.element, found.shape, found.strides, True)
        return InstructionDraft("alloca", span, types=[found], annotations=dictionary or {})

    def linear(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        word, modifiers, operands = parts
        span, name = Span(start, end), word.text
        if name == "hadamard":
            self.lenient("lenient-hadamard", Span(word.start, word.end), "'hadamard' is written 'hadamard_product'")
            name = "hadamard_product"
        draft = self._with_modifiers(InstructionDraft(name, span, operands), modifiers)
        wanted = len(DEFINITIONS[name].roles) + (name == "cumsum")
        if draft.operands and len(operands) != wanted:
            form = DEFINITIONS[name].form
            self.findings.error(
                "operand-count", span, f"{counted(len(operands), 'operand')}, where {name} has {wanted}: {form}"
            )
            draft.operands = []
        elif name == "cumsum" and draft.operands:
            mode = operands.pop(2)
            if isinstance(mode, Immediate) and type(mode.value) is int:
                draft.attributes["mode"] = mode.value
            else:
                self.findings.error("syntax", span, "the third operand of cumsum is the number of a mode, counted from 0")
                draft.operands = []
        return draft

    def _with_modifiers(self, draft: InstructionDraft, modifiers: list[Token]) -> InstructionDraft:
        """The attributes that modifiers stand for; without operands, and so not checked any further, if they are wrong."""
        name, span = draft.name, draft.span
        definition = DEFINITIONS[name]
        wrong = ""
        words = [token.text[1:] for token in modifiers]
        turned = [word for word in words if word in ("n", "t")]
        rest = [word for word in words if word not in ("n", "t")]
        groups = [[word for word in rest if word in group] for group in definition.flags]
        allowed = [word for group in definition.flags for word in group]
        if len(turned) != definition.transposes:
            count = ("no transposes", "one transpose, .n or .t", "two transposes, such as .n.t")[definition.transposes]
            wrong = f"{name} has {count}: {definition.form}"
            turned = ["n"] * definition.transposes
        if unknown := [word for word in rest if word not in allowed]:
            said = " and ".join(f"'.{word}'" for word in allowed) or "none"
            wrong = f"{name} has no '.{unknown[0]}'; its flags are {said}"
        elif any(len(group) > 1 for group in groups) or rest != [word for group in groups for word in group]:
            wrong = f"'.{'.'.join(rest)}' is no way to write the flags: {definition.form}"
        if rest and turned and words[: len(turned)] != turned:
            self.lenient("lenient-order", span, f"transposes stand first: {name}.{'.'.join(turned + rest)}")
        if wrong:
            self.findings.error("modifiers", span, wrong)
            draft.operands = []
        if definition.transposes:
            draft.attributes["transposes"] = tuple(turned)
        for group, found in zip(definition.flags, groups, strict=True):
            draft.attributes[_attribute(group)] = found[0] if found else ""
        return draft

    def compute(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        word, operands, found = parts
        span = Span(start, end)
        name, attributes = self._split(word)
        if name is None:
            return InstructionDraft("constant", span, types=[UNKNOWN], attributes={"value": 0})
        draft = InstructionDraft(name, span, operands, [found], attributes)
        wanted = len(DEFINITIONS[name].roles)
        if len(operands) != wanted:
            form = DEFINITIONS[name].form
            self.findings.error(
                "operand-count", span, f"{counted(len(operands), 'operand')}, where {word.text} has {wanted}: {form}"
            )
            draft.operands = []
        return draft

    def _split(self, word: Token) -> tuple[str | None, dict[str, Any]]:
        """An instruction, and what its name has behind a dot."""
        if word.text in DEFINITIONS:
            return word.text, {}
        family, _, rest = word.text.partition(".")
        attribute, allowed = MODIFIERS_OF_FAMILY.get(family, ("", ()))
        if rest in allowed:
            return family, {attribute: rest}
        choices = allowed or [name.partition(".")[2] for name in DEFINITIONS if name.startswith(f"{family}.")]
        message = f"there is no instruction '{word.text}'; {family} goes on with {', '.join(choices)}"
        self.findings.error("syntax", Span(word.start, word.end), message)
        return None, {}

    def builtin(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        word, found = parts
        name = word.text.removeprefix("builtin.")
        if name == word.text:
            self.lenient("lenient-builtin", Span(word.start, word.end), f"'{name}' is written 'builtin.{name}'")
        return InstructionDraft("builtin", Span(start, end), types=[found], attributes={"builtin": name})

    def constant_body(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        return InstructionDraft("constant", Span(start, end), types=[parts[1]], attributes={"value": parts[0]})

    def expand(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        operand, mode, *bounds, found = parts
        entries = [SubviewEntry(0, bound, Span(start, end)) for bound in bounds]
        return InstructionDraft("expand", Span(start, end), [operand], [found], {"mode": mode}, bounds=entries)

    def fuse(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        operand, first, last, found = parts
        return InstructionDraft("fuse", Span(start, end), [operand], [found], {"first": first, "last": last})

    def subview(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        operand, *slices, found = parts
        return InstructionDraft("subview", Span(start, end), [operand], [found], bounds=slices)

    def load(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        word, modifiers, operand, indices, found = parts
        span = Span(start, end)
        draft = self._with_modifiers(InstructionDraft(word.text, span, [operand, *indices], [found]), modifiers)
        return self._with_position(draft, indices)

    def store(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        word, modifiers, value, operand, indices = parts
        span = Span(start, end)
        draft = self._with_modifiers(InstructionDraft(word.text, span, [value, operand, *indices]), modifiers)
        return self._with_position(draft, indices)

    def _with_position(self, draft: InstructionDraft, indices: list[Any]) -> InstructionDraft:
        if draft.name.startswith("cooperative") and len(indices) != 2:
            self.findings.error(
                "index-count", draft.span, f"{counted(len(indices), 'index')}, where a matrix has a row and a column"
            )
            draft.operands = []
        return draft

    def size(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        operand, mode, found = parts
        return InstructionDraft("size", Span(start, end), [operand], [found], {"mode": mode})

    def barrier(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        return self._with_modifiers(InstructionDraft("barrier", Span(start, end)), parts[0])

    def lifetime_stop(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        return InstructionDraft("lifetime_stop", Span(start, end), [parts[0]])

    def parallel(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        return InstructionDraft("parallel", Span(start, start + len("parallel")), regions=[parts[0]])

    def foreach_head(self, parts: list[Any], start: int, end: int) -> _Head:
        return _Head(Span(start, end), list(parts))

    for_head = if_head = foreach_head

    def foreach(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        head, body = parts
        names, type_, lower, upper = head.parts
        if not len(names) == len(lower) == len(upper):
            counts = f"{counted(len(names), 'variable')}, {len(lower)} lower and {len(upper)} upper bounds"
            self.findings.error("loop-lists", head.span, f"a foreach of {counts}")
            lower = upper = []
        binders = [(name, type_ or INDEX) for name in names]
        return InstructionDraft("foreach", head.span, [*lower, *upper], regions=[body], binders=binders)

    def init(self, parts: list[Any], start: int, end: int) -> tuple[list[tuple[Token, Token]], list[Type]]:
        *carried, types = parts
        return carried, types

    def for_body(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        head, body, dictionary = parts
        variable, type_, bounds, init = head.parts
        carried, types = init or ([], [])
        if len(bounds) not in (2, 3):
            form = DEFINITIONS["for"].form
            self.findings.error(
                "operand-count", head.span, f"{counted(len(bounds), 'bound')}, where a for has two and a step: {form}"
            )
            bounds = []
        if len(carried) != len(types):
            message = f"{counted(len(carried), 'value')} to carry, and {counted(len(types), 'type')}"
            self.findings.error("loop-carried", head.span, message)
            bounds = []
        known: list[Type | None] = [*types[: len(carried)], *[UNKNOWN] * (len(carried) - len(types))]
        binders = [(variable, type_ or INDEX), *((name, t) for (name, _), t in zip(carried, known, strict=True))]
        operands = [*bounds, *(value for _, value in carried)] if bounds else []
        return InstructionDraft("for", head.span, operands, types, {}, dictionary or {}, [body], binders)

    def if_body(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        head, *regions = parts
        condition, types = head.parts
        return InstructionDraft("if", head.span, [condition], types or [], regions=regions)

    def yield_body(self, parts: list[Any], start: int, end: int) -> InstructionDraft:
        return InstructionDraft("yield", Span(start, end), parts[0])

    # functions

    def parameter(self, parts: list[Any], start: int, end: int) -> TensorParameter:
        return TensorParameter(parts[0], parts[1], parts[2] or {}, Span(start, end))

    def function(self, parts: list[Any], start: int, end: int) -> FunctionDraft:
        name, parameters, attributes, body = parts
        return FunctionDraft(name, parameters, attributes or {}, body, Span(start, end))


def _attribute(group: tuple[str, ...]) -> str:
    """The attribute that holds which flag of a group is set, or nothing."""
    return {"atomic": "atomic", "rows_checked": "checked"}.get(group[0], group[0])
