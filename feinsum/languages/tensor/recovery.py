"""Recovery from what does not follow the grammar: what is said of it, and what is left out so that the rest can be read."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from feinsum.languages.diagnostics import Note
from feinsum.languages.scanning import END, UNKNOWN, Token, UnexpectedTokenError, foreign_token_message, named
from feinsum.languages.source import SourceText, Span
from feinsum.languages.tensor.definitions import DEFINITIONS
from feinsum.languages.tensor.drafts import InstructionDraft
from feinsum.languages.tensor.grammar import GRAMMAR, INSTRUCTION_STARTS, WORDS


def lines_to_leave_out(tokens: list[Token], error: UnexpectedTokenError, source: SourceText) -> slice | None:
    """The lines without which the rest may be a function: those of the instruction that cannot be continued."""

    def line(index: int) -> int:
        return source.place(Span(tokens[index].start, tokens[index].end)).line

    stop = error.index
    if stop >= len(tokens):
        return None
    start = stop
    if not _starts_instruction(error.expected):
        begin = _instruction_begin(error)
        while start and tokens[start].start > begin:
            start -= 1
        # where the token begins a line, it is the lines before that are unfinished
        if start < stop and line(stop - 1) != line(stop):
            stop -= 1
    first, last = line(start), line(stop)
    while start and line(start - 1) == first:
        start -= 1
    while stop < len(tokens) and line(stop) == last:
        stop += 1
    if any(token.kind in ("LBRACE", "RBRACE", "FUNC") for token in tokens[start:stop]):
        return None
    return slice(start, stop)


def _instruction_begin(error: UnexpectedTokenError) -> int:
    """Where the instruction begins of which only a part was read."""
    first: object = error.token
    for value in reversed(error.values):
        if isinstance(value, Token) and value.kind == "LBRACE":
            break
        if isinstance(value, list) and value and isinstance(value[0], InstructionDraft):
            break
        if value != []:
            first = value
    while isinstance(first, list):
        first = first[0]
    return first.start if isinstance(first, Token) else error.token.start


def _starts_instruction(expected: frozenset[str]) -> bool:
    return expected >= INSTRUCTION_STARTS


def explain_token(error: UnexpectedTokenError, tokens: Sequence[Token]) -> str:
    """The message that names the unexpected token and the expected ones."""
    token, expected = error.token, error.expected
    if elsewhere := foreign_token_message(tokens, error.index, "';'")[0]:
        return elsewhere
    found = "end of the text" if token.kind == END else f"'{token.text}'"
    if _starts_instruction(expected):
        if token.kind == UNKNOWN and (token.text[0].isalpha()):
            return f"there is no instruction {found}"
        more = " or '}'" if "RBRACE" in expected else ""
        return f"unexpected {found}; expected an instruction{more}"
    words = named(expected - INSTRUCTION_STARTS - ({"ARROW"} if "COLON" in expected else set()), GRAMMAR.tables, WORDS)
    return f"unexpected {found}; expected {_or(words)}"


def _or(words: Sequence[str]) -> str:
    shown = list(words[:8]) + (["..."] if len(words) > 8 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def slip_hints(error: UnexpectedTokenError, tokens: Sequence[Token]) -> list[Note]:
    """The hints for usual slips that this one resembles."""
    token, expected = error.token, error.expected
    previous = tokens[error.index - 1] if error.index else token
    hint = ""
    if token.kind == UNKNOWN and _starts_instruction(expected):
        known = [*DEFINITIONS, *("builtin.group_id", "math.exp", "cmp.eq")]
        whole = [name for name in known if name.partition(".")[2] == token.text]
        close = whole[:1] or get_close_matches(token.text, known, 1)
        hint = f"did you mean '{close[0]}'?" if close else ""
    elif foreign_token_message(tokens, error.index, "")[0].startswith("there is no"):
        hint = "a name is defined once: `%y = arith.add %x, %z : f32`"
    elif token.kind == END and "RBRACE" in expected:
        hint = "a '}' is missing"
    elif expected & {"MORETHAN"}:
        hint = "a type ends with '>'"
    elif token.kind in ("INTEGER", "FLOATING", "TRUE", "FALSE") and "LOCAL" in expected:
        hint = f"an operand is a name: put `%c = constant {token.text} : T` before"
    elif expected == {"COLON", "ARROW"}:
        hint = "the type of the result is missing: put ': T' behind the operands"
    elif previous.kind == "RPAR" and "ATTRIBUTES" in expected:
        hint = "attributes of a function are written `attributes{subgroup_size=16}`"
    return [Note(hint)] if hint else []
