"""Canonical text: one statement a line, four blanks for each block, parentheses only where they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.syntax import (
    Conditional,
    DeclarativeFunction,
    FormCall,
    Let,
    OperatorCall,
    StatementBlock,
    SyntaxNode,
)

_LOOSEST, _TIGHTEST = 0, 9
_BINDING: Final = {
    "or": 1,
    "and": 2,
    "not": 3,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
    **dict.fromkeys(("<", ">", "<=", ">=", "==", "!="), 4),
}
_SIGN = 7


def show(functions: Iterable[DeclarativeFunction]) -> str:
    """The canonical text of programs."""
    return "\n".join("\n".join(_block_lines(f.body)) + "\n" for f in functions)


def _block_lines(block: StatementBlock) -> list[str]:
    found = [line for statement in block.statements for line in _show_statement(statement).split("\n")]
    return found + (expression(block.value).split("\n") if block.value is not None else [])


def _show_statement(node: SyntaxNode) -> str:
    if isinstance(node, Let):
        type_ = f": {show_type(node.type)}" if node.type is not None else ""
        return f"{node.name}{type_} = {expression(node.value)}"
    if isinstance(node, syntax.Declaration):
        return f"{node.name}: {show_type(node.type)}"
    if isinstance(node, syntax.Assignment):
        return f"{expression(node.target)} = {expression(node.value)}"
    if isinstance(node, syntax.GuardedBlock):
        return f"if {expression(node.condition)} {_braces(node.body)}"
    return expression(node)


def show_type(node: syntax.Type) -> str:
    """The text of a type."""
    if isinstance(node, syntax.ScalarType):
        return node.name
    if isinstance(node, syntax.TensorType):
        # a sum is the widest that extents may be, as `>` ends them
        extents = ", ".join(expression(extent, 5) for extent in node.extents)
        return f"{node.memory}<{extents}{f'; {node.dtype}' if node.dtype else ''}>"
    parameters = ", ".join(map(show_type, node.parameters))
    alone = len(node.parameters) == 1 and isinstance(node.parameters[0], syntax.TensorType)
    return f"{parameters if alone else f'({parameters})'} -> {show_type(node.result)}"


def _braces(block: StatementBlock) -> str:
    return _in_braces(_block_lines(block))


def _in_braces(lines: Sequence[str]) -> str:
    inner = "\n".join(f"    {line}" for line in lines)
    return f"{{\n{inner}\n}}" if inner else "{}"


def expression(node: SyntaxNode | None, least: int = _LOOSEST) -> str:
    """The text of an expression; in parentheses where it binds less tightly than `least`."""
    text, binding = _expression(node)
    return f"({text})" if binding < least else text


def _expression(node: SyntaxNode | None) -> tuple[str, int]:
    """The text of an expression, and how tightly it binds."""
    match node:
        case syntax.Literal(value=bool() as value):
            return str(value).lower(), _TIGHTEST
        case syntax.Literal(value=value):
            return repr(value), _TIGHTEST
        case syntax.NameUse(name=name):
            return name, _TIGHTEST
        case syntax.Hole():
            return "...", _TIGHTEST
        case OperatorCall():
            return _show_operator(node)
        case syntax.Element(base=base, indices=indices):
            return f"{expression(base, _TIGHTEST)}[{', '.join(map(_show_index, indices))}]", _TIGHTEST
        case syntax.Member(base=base, number=number):
            return f"{expression(base, _TIGHTEST)}.{number}", _TIGHTEST
        case syntax.ListOf(items=items):
            return f"[{', '.join(map(expression, items))}]", _TIGHTEST
        case Conditional():
            return _show_choice(node), _LOOSEST
        case syntax.DeclarativeCall(function=function, arguments=arguments):
            return f"{function}({_show_arguments(arguments)})", _TIGHTEST
        case FormCall():
            return _show_form(node)
        case syntax.Alternative(ways=ways):
            return f"alternative {_braces(StatementBlock(ways))}", _TIGHTEST
        case syntax.TensorType():
            return show_type(node), _TIGHTEST
    raise AssertionError(f"no expression: {node}")


def _show_operator(node: OperatorCall) -> tuple[str, int]:
    if len(node.operands) == 1:
        (operand,) = node.operands
        if node.operator == "not":
            return f"not {expression(operand, 3)}", 3
        return f"-{expression(operand, _SIGN)}", _SIGN
    left, right = node.operands
    binding = _BINDING[node.operator]
    comparison = binding == _BINDING["<"]
    return f"{expression(left, binding + comparison)} {node.operator} {expression(right, binding + 1)}", binding


def _show_index(node: SyntaxNode) -> str:
    if isinstance(node, syntax.DeclarativeSlice):
        return ":" if node.start is None else f"{expression(node.start)}:{expression(node.stop)}"
    return expression(node)


def _show_choice(node: Conditional) -> str:
    return f"if {expression(node.condition)} {_braces(node.then)} else {_braces(node.otherwise)}"


def _show_form(node: FormCall) -> tuple[str, int]:
    head = f"{node.kind} ({_show_arguments(node.arguments)}) |{', '.join(map(_show_parameter, node.binder))}|"
    lines = _block_lines(node.body)
    if not node.body.statements and len(lines) == 1 and len(lines[0]) < 60:
        # a body without braces goes on as far as it can, so what follows it needs parentheses around the form
        return f"{head} {lines[0]}", _LOOSEST
    return f"{head} {_in_braces(lines)}", _TIGHTEST


def _show_parameter(node: syntax.DeclarativeParameter) -> str:
    return node.name + (f": {show_type(node.type)}" if node.type is not None else "")


def _show_arguments(arguments: Sequence[syntax.CallArgument]) -> str:
    return ", ".join(map(_show_argument, arguments))


def _show_argument(node: syntax.CallArgument) -> str:
    if node.type is not None:
        return f"{node.name}: {show_type(node.type)}"
    if isinstance(node.value, syntax.Condition):
        return f"{node.name} = |{', '.join(map(_show_parameter, node.value.binder))}| {expression(node.value.body)}"
    return f"{node.name} = {expression(node.value)}" if node.name else expression(node.value)
