"""Reading: tokens become drafts function by function, and drafts typed operations as their names are looked up.

Errors do not end the reading where the rest can be understood without what is wrong: a line that fits nowhere is left out
and its names are known to be unknown, so that the lines behind it are read and nothing is said twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from feinsum.languages.diagnostics import MOST_ERRORS, Findings, Note, counted
from feinsum.languages.scanning import Token, TooDeepError, UnexpectedTokenError, foreign_token_message, split_functions
from feinsum.languages.source import SourceText, Span
from feinsum.languages.tensor.definitions import DEFINITIONS
from feinsum.languages.tensor.drafts import Drafter, FunctionDraft, Immediate, InstructionDraft, SubviewEntry
from feinsum.languages.tensor.grammar import GRAMMAR
from feinsum.languages.tensor.ir import Kind, TensorFunction, TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.notation import MOST_NESTED
from feinsum.languages.tensor.recovery import explain_token, lines_to_leave_out, slip_hints
from feinsum.languages.tensor.types import BOOL, INDEX, Boolean, TensorMemref, TensorScalar, Type
from feinsum.languages.tensor.types import UNKNOWN as UNKNOWN_TYPE

_REGION_KINDS: Final[dict[str, Kind]] = {"parallel": "spmd", "foreach": "spmd", "for": "mixed", "if": "mixed"}


def read_module(source: SourceText, findings: Findings, strict: bool = False) -> tuple[TensorFunction, ...]:
    """The functions of a text, whose names and types are looked up; errors are put into `findings`."""
    drafter = Drafter(findings, strict)
    functions: dict[str, TensorFunction] = {}
    for tokens in split_functions(GRAMMAR.scan(source.text), "FUNC", findings.error):
        draft, unknown = _parse_function(tokens, drafter)
        if draft is None:
            continue
        name = draft.name.text[1:]
        if name in functions:
            note = findings.note(f"the other @{name}", functions[name].span)
            span = Span(draft.name.start, draft.name.end)
            findings.error("function-redefined", span, f"there is a function @{name} already", [note])
        made = _FunctionBuilder(drafter, {t.text for t in tokens if t.kind == "LOCAL"}, unknown).function(draft)
        functions.setdefault(name, made)
    return tuple(functions.values())


def _parse_function(tokens: list[Token], drafter: Drafter) -> tuple[FunctionDraft | None, set[str]]:
    """A function, and the names that were defined in lines which had to be left out."""
    unknown: set[str] = set()
    for _ in range(MOST_ERRORS):
        try:
            made: FunctionDraft = GRAMMAR.parse(tokens, drafter.actions)
            return made, unknown
        except TooDeepError as error:
            drafter.findings.error("nesting-depth", Span(error.token.start, error.token.end), error.message)
            return None, unknown
        except UnexpectedTokenError as error:
            token = error.token
            end = foreign_token_message(tokens, error.index, "")[1]
            span = Span(token.start, max(end, token.end, token.start + 1))
            drafter.findings.error("syntax", span, explain_token(error, tokens), slip_hints(error, tokens))
            lines = lines_to_leave_out(tokens, error, drafter.findings.source)
            if lines is None:
                break
            left_out = tokens[lines]
            signs = [t.kind for t in left_out]
            if "EQUAL" in signs:
                unknown |= {t.text for t in left_out[: signs.index("EQUAL")] if t.kind == "LOCAL"}
            tokens = tokens[: lines.start] + tokens[lines.stop :]
    return None, unknown


class _FunctionBuilder:
    """The names that can be seen as one function is put together."""

    def __init__(self, drafter: Drafter, names: set[str], unknown: set[str]) -> None:
        self._drafter, self._findings = drafter, drafter.findings
        self._taken = {name[1:] for name in names}
        self._visible: dict[str, TensorValue] = {name[1:]: TensorValue(name[1:], UNKNOWN_TYPE) for name in unknown}
        self._left_out = {name[1:] for name in unknown}
        self._inserted: list[TensorOperation] = []
        self._depth = 0

    def function(self, draft: FunctionDraft) -> TensorFunction:
        parameters = tuple(self._define(p.name, p.type, p.span) for p in draft.parameters)
        body = self._region(draft.body, "collective")
        return TensorFunction(
            draft.name.text[1:],
            parameters,
            body,
            tuple(p.attributes for p in draft.parameters),
            draft.attributes,
            Span(draft.name.start, draft.name.end),
        )

    def _define(self, name: Token, type_: Type, span: Span | None = None) -> TensorValue:
        word = name.text[1:]
        place = Span(name.start, name.end)
        value = TensorValue(word, type_, span or place)
        if word in self._visible and word not in self._left_out:
            note = self._findings.note(f"the other %{word}", self._visible[word].span)
            self._findings.error("name-redefined", place, f"%{word} is defined already", [note])
        self._left_out.discard(word)
        self._visible[word] = value
        return value

    def _region(
        self, drafts: list[InstructionDraft], kind: Kind, binders: Sequence[tuple[Token, Type | None]] = ()
    ) -> TensorRegion:
        outside = dict(self._visible) if binders or drafts else self._visible
        parameters = tuple(self._define(name, type_ or UNKNOWN_TYPE) for name, type_ in binders)
        operations: list[TensorOperation] = []
        for draft in drafts:
            operation = self._operation(draft)
            if self._inserted:
                operations += self._inserted
                self._inserted = []
            operations.append(operation)
        self._visible = outside
        return TensorRegion(kind, tuple(operations), parameters)

    def _operation(self, draft: InstructionDraft) -> TensorOperation:
        name, attributes = draft.name, draft.attributes
        operands = self._operands(draft)
        if draft.bounds:
            operands += self._bounds(draft, operands[0])
        if name == "cmp":
            self._correct_comparison(draft, operands)
        inserted, self._inserted = self._inserted, []
        regions = self._regions(draft)
        self._inserted = inserted
        if len(draft.names) != len(draft.types):
            form = DEFINITIONS[name].form if not draft.types else f"%a = {DEFINITIONS[name].form}"
            message = f"{counted(len(draft.names), 'name')} for {counted(len(draft.types), 'result')}: {form}"
            self._findings.error("result-count", draft.span, message)
        types: list[Type] = [*draft.types, *[UNKNOWN_TYPE] * max(len(draft.names) - len(draft.types), 0)]
        results = tuple(self._define(token, type_, draft.span) for token, type_ in zip(draft.names, types, strict=False))
        return TensorOperation(name, tuple(operands), results, attributes, draft.annotations, regions, draft.span)

    def _regions(self, draft: InstructionDraft) -> tuple[TensorRegion, ...]:
        if draft.regions and self._depth == MOST_NESTED:
            self._findings.error("nesting-depth", draft.span, f"regions in regions, more than {MOST_NESTED} deep")
            return tuple(self._region([], "mixed", draft.binders) for _ in draft.regions)
        self._depth += 1
        kind = _REGION_KINDS.get(draft.name, "mixed")
        regions = tuple(self._region(region, kind, draft.binders) for region in draft.regions)
        self._depth -= 1
        return regions

    def _operands(self, draft: InstructionDraft) -> list[TensorValue]:
        found: list[TensorValue] = []
        for position, operand in enumerate(draft.operands):
            if isinstance(operand, Immediate):
                found.append(self._constant(draft, position, operand))
            else:
                found.append(self._look_up(operand))
        return found

    def _look_up(self, name: Token) -> TensorValue:
        word = name.text[1:]
        value = self._visible.get(word)
        if value is None:
            close = get_close_matches(word, self._visible, 1)
            notes = [self._findings.note(f"there is %{close[0]}", self._visible[close[0]].span)] if close else []
            span = Span(name.start, name.end)
            self._findings.error("name-undefined", span, f"%{word} is not defined, or not where it can be seen here", notes)
            value = self._visible[word] = TensorValue(word, UNKNOWN_TYPE, span)
            self._left_out.add(word)
        return value

    def _constant(self, draft: InstructionDraft, position: int, immediate: Immediate) -> TensorValue:
        """A number in the place of an operand: a constant, where its type follows from what stands around it."""
        type_ = self._type_of(draft, position)
        written = self._findings.source.text[slice(*immediate.span)]
        if type_ is None:
            message = f"an operand is a name, not {written}"
            self._findings.error("immediate", immediate.span, message, [Note(f"put `%c = constant {written} : T` before")])
            return TensorValue("", UNKNOWN_TYPE)
        message = f"an operand is a name; {written} is taken for a constant of type {type_}"
        self._drafter.lenient("lenient-immediate", immediate.span, message)
        value = TensorValue(self._fresh(f"c{written}"), type_, immediate.span)
        attributes = {"value": immediate.value}
        self._inserted.append(TensorOperation("constant", (), (value,), attributes, span=immediate.span))
        return value

    def _type_of(self, draft: InstructionDraft, position: int) -> Type | None:
        """The type that a number has in the place of an operand; None where none is allowed."""
        if draft.name == "cmp":
            other = draft.operands[1 - position]
            if isinstance(other, Token):
                type_ = self._look_up(other).type
                return type_ if isinstance(type_, (TensorScalar, Boolean)) else UNKNOWN_TYPE
        first = {"load": 1, "store": 2, "cooperative_matrix_load": 1, "cooperative_matrix_store": 2}.get(draft.name)
        return INDEX if first is not None and position >= first else None

    def _fresh(self, wish: str) -> str:
        """A name that the function does not use."""
        word = "".join(c if c.isalnum() else "_" for c in wish)
        number = 0
        while (name := f"{word}_{number}" if number else word) in self._taken:
            number += 1
        self._taken.add(name)
        return name

    def _correct_comparison(self, draft: InstructionDraft, operands: list[TensorValue]) -> None:
        """``cmp.lt %a, %b : i32``, as in a sample of the reference, is one of numbers of this type."""
        (type_,) = draft.types
        if isinstance(type_, TensorScalar) and operands and all(value.type == type_ for value in operands):
            self._drafter.lenient(
                "lenient-cmp", draft.span, f"a comparison is ': bool', whatever it compares (here {type_})"
            )
            draft.types = [BOOL]

    def _bounds(self, draft: InstructionDraft, operand: TensorValue) -> list[TensorValue]:
        """The names among offsets and sizes; what is known of these becomes attributes."""
        dynamic: list[TensorValue] = []
        offsets: list[int | None] = []
        sizes: list[int | None] = []

        def split(entry: Token | TensorValue | int | None) -> int | None:
            if isinstance(entry, int):
                return entry
            if entry is not None:
                dynamic.append(entry if isinstance(entry, TensorValue) else self._look_up(entry))
            return None

        for mode, entry in enumerate(draft.bounds):
            if entry.offset is None:
                entry = self._whole(operand, mode, entry)
            offsets.append(split(entry.offset))
            sizes.append(split(entry.size))
        if draft.name == "expand":
            draft.attributes["shape"] = tuple(sizes)
        else:
            draft.attributes["offsets"], draft.attributes["sizes"] = tuple(offsets), tuple(sizes)
        return dynamic

    def _whole(self, operand: TensorValue, mode: int, entry: SubviewEntry) -> SubviewEntry:
        """The slice that a colon alone is taken for."""
        type_ = operand.type
        if not isinstance(type_, TensorMemref) or mode >= type_.order:
            return SubviewEntry(0, 0, entry.span)
        extent = type_.shape[mode]
        if extent is not None:
            return SubviewEntry(0, extent, entry.span)
        value = TensorValue(self._fresh(f"size{mode}"), INDEX, entry.span)
        self._inserted.append(TensorOperation("size", (operand,), (value,), {"mode": mode}, span=entry.span))
        return SubviewEntry(0, value, entry.span)
