"""Reading: text becomes functions; errors do not end the reading where the rest can be understood without them.

What fits nowhere is left out up to the next instruction, and its names are known to be unknown, so that nothing is said
twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count
from typing import Final

from feinsum.languages.diagnostics import MOST_ERRORS, Findings, Note
from feinsum.languages.immediate.grammar import GRAMMAR, OPCODES, WORDS
from feinsum.languages.immediate.notation import ImmediateNotation
from feinsum.languages.immediate.syntax import ImmediateFunction
from feinsum.languages.scanning import (
    END,
    UNKNOWN,
    Token,
    TooDeepError,
    UnexpectedTokenError,
    foreign_token_message,
    named,
    split_functions,
)
from feinsum.languages.source import SourceText, Span


@dataclass(frozen=True)
class Reading:
    """A function as it was read, and the names that were defined in what had to be left out."""

    function: ImmediateFunction
    unknown: frozenset[str]


def read_functions(source: SourceText, findings: Findings, strict: bool) -> tuple[Reading, ...]:
    """The functions of a text; errors are put into `findings`."""
    notation = ImmediateNotation(findings, strict)
    readings: dict[str, Reading] = {}
    for tokens in split_functions(GRAMMAR.scan(source.text), "DEFINE", findings.error):
        reading = _parse_tokens(tokens, notation)
        if reading is None:
            continue
        name = reading.function.name
        if name in readings:
            note = findings.note(f"the other @{name}", readings[name].function.span)
            fix = Note(f"write @{name}{next(k for k in count() if f'{name}{k}' not in readings)}")
            message = f"there is a function @{name} already"
            findings.error("function-redefined", reading.function.span, message, [note, fix])
        readings.setdefault(name, reading)
    return tuple(readings.values())


def _parse_tokens(tokens: list[Token], notation: ImmediateNotation) -> Reading | None:
    unknown: set[str] = set()
    for _ in range(MOST_ERRORS):
        try:
            return Reading(GRAMMAR.parse(tokens, notation.actions), frozenset(unknown))
        except TooDeepError as error:
            notation.findings.error("nesting-depth", Span(error.token.start, error.token.end), error.message)
            return None
        except UnexpectedTokenError as error:
            token = error.token
            span = Span(token.start, max(token.end, token.start + 1))
            elsewhere, end = foreign_token_message(tokens, error.index, "';'")
            if elsewhere:
                span = Span(token.start, end)
            notation.findings.error("syntax", span, elsewhere or _explain_syntax(error), _syntax_hints(error, tokens))
            left_out = _to_leave_out(tokens, error)
            if left_out is None:
                return None
            gone = tokens[left_out]
            if len(gone) > 1 and gone[1].kind == "EQUAL":
                unknown.add(gone[0].text[1:])
            tokens = tokens[: left_out.start] + tokens[left_out.stop :]
    return None


def _begins(tokens: Sequence[Token], index: int) -> bool:
    """Whether an instruction begins with a token."""
    if tokens[index].kind in OPCODES:
        return True
    follows = index + 1 < len(tokens) and tokens[index + 1].kind == "EQUAL"
    return tokens[index].kind == "LOCAL" and follows and not (index > 1 and tokens[index - 2].kind == "FOR")


def _to_leave_out(tokens: Sequence[Token], error: UnexpectedTokenError) -> slice | None:
    """The instruction that cannot be continued; None where it is a head or the end of a region."""
    if error.token.kind == END:
        return None
    between = _instruction_expected(error.expected)
    start = stop = error.index
    while start and not between and not _begins(tokens, start):
        start -= 1
    # an instruction that begins where another one has to go on ends that
    if start == stop and not between:
        start -= 1
        while start and not _begins(tokens, start):
            start -= 1
    elif between or error.token.kind != "RBRACE":  # which ends the region: what is before it is not finished
        stop = _behind(tokens, stop if error.token.kind == "LBRACE" else stop + 1)
    if start == 0 or any(token.kind in ("LBRACE", "RBRACE") for token in tokens[start : error.index]):
        return None
    return slice(start, stop)


def _behind(tokens: Sequence[Token], stop: int) -> int:
    """The begin of the next instruction of the region, or its end; braces that were opened are closed."""
    depth = 0
    while stop < len(tokens):
        kind = tokens[stop].kind
        if depth == 0 and (kind == "RBRACE" or _begins(tokens, stop)):
            break
        depth += (kind == "LBRACE") - (kind == "RBRACE")
        stop += 1
    return stop


def _instruction_expected(expected: frozenset[str]) -> bool:
    return expected >= {"LOG", "LOCAL"}


def _explain_syntax(error: UnexpectedTokenError) -> str:
    token, expected = error.token, error.expected
    found = "end of the text" if token.kind == END else f"'{token.text}'"
    if _instruction_expected(expected):
        if token.kind == UNKNOWN and token.text[0].isalpha():
            return f"there is no instruction {found}"
        return f"unexpected {found}; expected an instruction or '}}'"
    words = named(expected, GRAMMAR.tables, WORDS)
    return f"unexpected {found}; expected {' or '.join([', '.join(words[:-1]), words[-1]] if len(words) > 1 else words)}"


_TYPES: Final = {
    "alloca": "memref<f32x16x8>",
    "get_work_item": "group<memref<f32x16x8>,pointers>",
    "subview": "memref<f32x16x8> to memref<f32x8>",
    **dict.fromkeys(("log", "product"), "memref<f32x16x8>, memref<f32x8x8> to memref<f32x16x8>"),
    **dict.fromkeys(("sum", "axpby"), "memref<f32x16x8> to memref<f32x16x8>"),
}
"""The types at the end of an instruction, as an example."""


def _example_types(tokens: Sequence[Token], index: int) -> str:
    """An example of the types of the instruction that a token ends."""
    words = (token.text for token in reversed(tokens[:index]))
    return next((f"its types are missing, as in `: {_TYPES[word]}`" for word in words if word in _TYPES), "")


def _syntax_hints(error: UnexpectedTokenError, tokens: Sequence[Token]) -> list[Note]:
    token, expected = error.token, error.expected
    hint = ""
    if foreign_token_message(tokens, error.index, "")[0].startswith("there is no"):
        hint = "a number before the result says how much of it stays: `log {ik, kj to ij} 1.0, %a, %b, 1.0, %c` adds to %c"
    elif "COLON" in expected and (token.kind == "RBRACE" or _begins(tokens, error.index)):
        hint = _example_types(tokens, error.index)
    elif token.kind == UNKNOWN and _instruction_expected(expected):
        known = ["axpby", "barrier", "for", "lifetime_stop", "log", "product", "sum"]
        close = get_close_matches(token.text, known, 1)
        values = get_close_matches(token.text, ["alloca", "get_work_item", "subview"], 1)
        hint = f"did you mean '{close[0]}'?" if close else f"write `%x = {values[0]} ...`" if values else ""
    elif token.kind == UNKNOWN and "ALLOCA" in expected:
        close = get_close_matches(token.text, ["alloca", "get_work_item", "subview"], 1)
        hint = f"did you mean '{close[0]}'?" if close else ""
    elif token.kind == END and "RBRACE" in expected:
        hint = "a '}' is missing"
    elif expected == {"MAP"}:
        hint = "a map has the word 'to' between the operands and the result: {ik, kj to ij}"
    elif token.kind in ("INTEGER", "FLOATING") and "LOCAL" in expected:
        hint = "tensors are names; constants stand in front of what they are factors of"
    elif token.text == "%" and "LOCAL" in expected:
        hint = "names are numbers, or letters followed by letters, digits and underscores"
    elif "MORETHAN" in expected and token.kind != END:
        hint = "a type ends with '>'"
    return [Note(hint)] if hint else []
