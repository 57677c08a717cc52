"""Reading: tokens become a tree; ends of lines become tokens where they end a statement.

A line goes on where its last token cannot end a statement (an operator, a comma, ``{``) or the next one cannot begin one
(``else``, an operator other than a sign, a closing bracket), and inside of parentheses and brackets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.grammar import GRAMMAR, WORDS
from feinsum.languages.declarative.syntax import (
    CallArgument,
    Conditional,
    DeclarativeCall,
    DeclarativeFunction,
    Expression,
    FormCall,
    Let,
    Literal,
    NameUse,
    OperatorCall,
    StatementBlock,
)
from feinsum.languages.diagnostics import Findings, Note
from feinsum.languages.scanning import END, Action, Token, TooDeepError, UnexpectedTokenError, foreign_token_message, named
from feinsum.languages.source import SourceText, Span

NAME: Final = "main"
"""The name of the function that a text is."""

_GO_ON: Final = frozenset("{ ( [ , = | : -> + - * / % < <= >= == != and or not then else if".split())
"""Tokens behind which a statement goes on."""
_CONTINUE: Final = frozenset(") ] } , | : -> * / % < > <= >= == != and or then else =".split())
"""Tokens before which it does."""
TOO_LARGE: Final = 1 << 63
"""The first integer that has no type here; larger ones are read as this one, and refused where they stand."""
_OPEN, _CLOSE = "([{", ")]}"


def read_program(source: SourceText, findings: Findings) -> DeclarativeFunction | None:
    """The program of a text; None if it does not follow the grammar, which is then found."""
    tokens = with_line_ends(GRAMMAR.scan(source.text), source.text)
    try:
        block: StatementBlock = GRAMMAR.parse(tokens, ACTIONS)
    except UnexpectedTokenError as error:
        token = error.token
        found = "end of the text" if token.kind == END else "end of the line" if token.kind == "SEP" else ""
        words = named(error.expected, GRAMMAR.tables, WORDS)
        shown = ", ".join(words[:6]) + (", ..." if len(words) > 6 else "")
        elsewhere, end = foreign_token_message(tokens, error.index, "'//' or '#'")
        start = token.start - 1 if elsewhere and token.text == "=" else token.start
        message = elsewhere or f"unexpected {found or repr(token.text)}; expected {shown}"
        findings.error("syntax", Span(start, max(end, token.end, token.start + 1)), message, _token_hints(token, elsewhere))
        return None
    except TooDeepError as error:
        findings.error("syntax", Span(error.token.start, max(error.token.end, error.token.start + 1)), error.message)
        return None
    return DeclarativeFunction(NAME, block)


def _token_hints(token: Token, elsewhere: str) -> list[Note]:
    if elsewhere.startswith("there is no"):
        sum_ = "a sum is `reduce (shape = [K], op = sum) |k| A[i, k]`"
        return [Note(f"a name keeps its value: {sum_}, and in a thread scope an element changes by `B[i] = B[i] + x`")]
    if token.text == "=":
        return [Note("equality is written ==")]
    return []


def with_line_ends(tokens: Sequence[Token], text: str) -> list[Token]:
    """The tokens, with those that end statements."""
    found: list[Token] = []
    open_: list[str] = []
    for token in tokens:
        previous = found[-1] if found else None
        if (
            previous is not None
            and (not open_ or open_[-1] == "{")
            and previous.text not in _GO_ON
            and token.text not in _CONTINUE
            and "\n" in text[previous.end : token.start]
        ):
            found.append(Token("SEP", "\n", text.index("\n", previous.end)))
        if token.text in _OPEN:
            open_.append(token.text)
        elif token.text in _CLOSE and open_:
            open_.pop()
        found.append(token)
    return found


def _integer_value(token: Token) -> int:
    """The value of an integer; one of more than 64 bits is any that is too large, as Python reads no 5000 digits."""
    digits = token.text.lstrip("0")
    return TOO_LARGE if len(digits) > len(str(TOO_LARGE)) else min(int(digits or "0"), TOO_LARGE)


def _list_items(parts: list[Any]) -> tuple[Any, ...]:
    return tuple(part for part in parts if not (isinstance(part, Token) and part.kind == "SEP"))


def _statements(parts: list[Any], start: int, end: int) -> StatementBlock:
    statements = list(_list_items(parts))
    value = None
    if statements and not isinstance(statements[-1], (Let, syntax.Declaration, syntax.Assignment, syntax.GuardedBlock)):
        last = statements[-1]
        if not (isinstance(last, FormCall) and _is_statement(last)) and not (
            isinstance(last, DeclarativeCall) and last.function == "sync"
        ):
            value = statements.pop()
    return StatementBlock(tuple(statements), value, span=Span(start, end))


def _is_statement(form: FormCall) -> bool:
    """Whether a form has no value: a thread scope, and a loop of one."""
    return form.kind == "thread" or (form.kind == "affine_for" and form.argument("init") is None)


def _read_operation(operator: str) -> Action:
    return lambda parts, start, end: OperatorCall(operator, tuple(parts), span=Span(start, end))


def _read_binary(parts: list[Any], start: int, end: int) -> OperatorCall:
    left, sign, right = parts
    return OperatorCall(sign.text, (left, right), span=Span(start, end))


def _read_signed(parts: list[Any], start: int, end: int) -> Expression:
    sign, operand = parts
    return OperatorCall("-", (operand,), span=Span(start, end)) if sign.text == "-" else cast(Expression, operand)


def _block_value(value: Expression | StatementBlock | Conditional) -> StatementBlock:
    return value if isinstance(value, StatementBlock) else StatementBlock((), value, span=value.span)


def _read_choice(parts: list[Any], start: int, end: int) -> Conditional:
    condition, then, otherwise = parts
    return Conditional(condition, _block_value(then), _block_value(otherwise), span=Span(start, end))


def _form_call(parts: list[Any], start: int, end: int) -> FormCall:
    name, arguments, binder, body = parts
    return FormCall(name.text, arguments, binder, _block_value(body), span=Span(start, end))


def _tensor_type(parts: list[Any], start: int, end: int) -> syntax.TensorType:
    memory, extents, *dtype = parts
    return syntax.TensorType(memory.text, extents, dtype[0].text if dtype else None, span=Span(start, end))


def _function_type(parts: list[Any], start: int, end: int) -> syntax.FunctionType:
    *parameters, result = parts
    return syntax.FunctionType(tuple(parameters), result, span=Span(start, end))


def _let(parts: list[Any], start: int, end: int) -> Any:
    """``A = Tensor<...>`` is a declaration, spelled as the document does."""
    name, value = parts
    if isinstance(value, syntax.TensorType) and value.memory == "Tensor":
        return syntax.Declaration(name.text, value, span=Span(name.start, end))
    return Let(name.text, value, span=Span(start, end))


def _typed_let(parts: list[Any], start: int, end: int) -> Let:
    name, type_, value = parts
    return Let(name.text, value, type_, span=Span(start, end))


def _read_alternative(parts: list[Any], start: int, end: int) -> syntax.Alternative:
    (block,) = parts
    ways = tuple(s for s in block.statements if isinstance(s, Let))
    if len(ways) != len(block.statements) or block.value is not None:
        ways = ()
    return syntax.Alternative(ways, span=Span(start, end))


ACTIONS: Final[dict[str, Action]] = {
    "program": lambda p, s, e: p[0],
    "statements": _statements,
    "block": lambda p, s, e: StatementBlock(p[0].statements, p[0].value, span=Span(s, e)),
    "let": _let,
    "typed_let": _typed_let,
    "declaration": lambda p, s, e: syntax.Declaration(p[0].text, p[1], span=Span(s, e)),
    "assignment": lambda p, s, e: syntax.Assignment(p[0], p[1], span=Span(s, e)),
    "guarded": lambda p, s, e: syntax.GuardedBlock(p[0], p[1], span=Span(s, e)),
    "value": lambda p, s, e: p[0],
    "scalar_type": lambda p, s, e: syntax.ScalarType(p[0].text, span=Span(s, e)),
    "function_type": _function_type,
    "tensor_type": _tensor_type,
    "extents": lambda p, s, e: tuple(p),
    "choice": _read_choice,
    "disjunction_of": _read_operation("or"),
    "conjunction_of": _read_operation("and"),
    "negation_of": _read_operation("not"),
    "binary": _read_binary,
    "less": _read_operation("<"),
    "greater": _read_operation(">"),
    "signed": _read_signed,
    "element": lambda p, s, e: syntax.Element(p[0], p[1], span=Span(s, e)),
    "member": lambda p, s, e: syntax.Member(p[0], _integer_value(p[1]), span=Span(s, e)),
    "indices": lambda p, s, e: tuple(p),
    "index": lambda p, s, e: p[0],
    "whole": lambda p, s, e: syntax.DeclarativeSlice(span=Span(s, e)),
    "part": lambda p, s, e: syntax.DeclarativeSlice(p[0], p[1], span=Span(s, e)),
    "name": lambda p, s, e: NameUse(p[0].text, span=Span(s, e)),
    "integer": lambda p, s, e: Literal(_integer_value(p[0]), span=Span(s, e)),
    "floating": lambda p, s, e: Literal(float(p[0].text), span=Span(s, e)),
    "special": lambda p, s, e: Literal(float(p[0].text), span=Span(s, e)),
    "true": lambda p, s, e: Literal(True, span=Span(s, e)),
    "false": lambda p, s, e: Literal(False, span=Span(s, e)),
    "hole": lambda p, s, e: syntax.Hole(span=Span(s, e)),
    "grouped": lambda p, s, e: p[0],
    "list": lambda p, s, e: syntax.ListOf(tuple(p), span=Span(s, e)),
    "call": lambda p, s, e: DeclarativeCall(p[0].text, p[1], span=Span(s, e)),
    "form": _form_call,
    "alternative": _read_alternative,
    "allocated": lambda p, s, e: p[0],
    "arguments": lambda p, s, e: tuple(p),
    "positional": lambda p, s, e: CallArgument(p[0], span=Span(s, e)),
    "named": lambda p, s, e: CallArgument(p[1], p[0].text, span=Span(s, e)),
    "parameter_argument": lambda p, s, e: CallArgument(
        NameUse(p[0].text, span=Span(s, e)), p[0].text, p[1], span=Span(s, e)
    ),
    "condition": lambda p, s, e: CallArgument(syntax.Condition(p[1], p[2], span=Span(s, e)), p[0].text, span=Span(s, e)),
    "binder": lambda p, s, e: tuple(p),
    "untyped": lambda p, s, e: syntax.DeclarativeParameter(p[0].text, span=Span(s, e)),
    "typed": lambda p, s, e: syntax.DeclarativeParameter(p[0].text, p[1], span=Span(s, e)),
    "body": lambda p, s, e: p[0],
    "bare": lambda p, s, e: p[0],
}
