"""Canonical text: one statement a line, four blanks for each block, parentheses only where they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.syntax import Block, Choice, Form, Function, Let, Node, Operation

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


def show(functions: Iterable[Function]) -> str:
    """The canonical text of programs."""
    return "\n".join("\n".join(_lines(f.body)) + "\n" for f in functions)


def _lines(block: Block) -> list[str]:
    found = [line for statement in block.statements for line in _statement(statement).split("\n")]
    return found + (expression(block.value).split("\n") if block.value is not None else [])


def _statement(node: Node) -> str:
    if isinstance(node, Let):
        type_ = f": {show_type(node.type)}" if node.type is not None else ""
        return f"{node.name}{type_} = {expression(node.value)}"
    if isinstance(node, syntax.Declaration):
        return f"{node.name}: {show_type(node.type)}"
    if isinstance(node, syntax.Assignment):
        return f"{expression(node.target)} = {expression(node.value)}"
    if isinstance(node, syntax.Guarded):
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


def _braces(block: Block) -> str:
    return _in_braces(_lines(block))


def _in_braces(lines: Sequence[str]) -> str:
    inner = "\n".join(f"    {line}" for line in lines)
    return f"{{\n{inner}\n}}" if inner else "{}"


def expression(node: Node | None, least: int = _LOOSEST) -> str:
    """The text of an expression; in parentheses where it binds less tightly than `least`."""
    text, binding = _expression(node)
    return f"({text})" if binding < least else text


def _expression(node: Node | None) -> tuple[str, int]:
    """The text of an expression, and how tightly it binds."""
    match node:
        case syntax.Number(value=bool() as value):
            return str(value).lower(), _TIGHTEST
        case syntax.Number(value=value):
            return repr(value), _TIGHTEST
        case syntax.Name(name=name):
            return name, _TIGHTEST
        case syntax.Hole():
            return "...", _TIGHTEST
        case Operation():
            return _operation(node)
        case syntax.Element(base=base, indices=indices):
            return f"{expression(base, _TIGHTEST)}[{', '.join(map(_index, indices))}]", _TIGHTEST
        case syntax.Member(base=base, number=number):
            return f"{expression(base, _TIGHTEST)}.{number}", _TIGHTEST
        case syntax.ListOf(items=items):
            return f"[{', '.join(map(expression, items))}]", _TIGHTEST
        case Choice():
            return _choice(node), _LOOSEST
        case syntax.Call(function=function, arguments=arguments):
            return f"{function}({_arguments(arguments)})", _TIGHTEST
        case Form():
            return _form(node)
        case syntax.Alternative(ways=ways):
            return f"alternative {_braces(Block(ways))}", _TIGHTEST
        case syntax.TensorType():
            return show_type(node), _TIGHTEST
    raise AssertionError(f"no expression: {node}")


def _operation(node: Operation) -> tuple[str, int]:
    if len(node.operands) == 1:
        (operand,) = node.operands
        if node.operator == "not":
            return f"not {expression(operand, 3)}", 3
        return f"-{expression(operand, _SIGN)}", _SIGN
    left, right = node.operands
    binding = _BINDING[node.operator]
    comparison = binding == _BINDING["<"]
    return f"{expression(left, binding + comparison)} {node.operator} {expression(right, binding + 1)}", binding


def _index(node: Node) -> str:
    if isinstance(node, syntax.Slice):
        return ":" if node.start is None else f"{expression(node.start)}:{expression(node.stop)}"
    return expression(node)


def _choice(node: Choice) -> str:
    return f"if {expression(node.condition)} {_braces(node.then)} else {_braces(node.otherwise)}"


def _form(node: Form) -> tuple[str, int]:
    head = f"{node.kind} ({_arguments(node.arguments)}) |{', '.join(map(_parameter, node.binder))}|"
    lines = _lines(node.body)
    if not node.body.statements and len(lines) == 1 and len(lines[0]) < 60:
        # a body without braces goes on as far as it can, so what follows it needs parentheses around the form
        return f"{head} {lines[0]}", _LOOSEST
    return f"{head} {_in_braces(lines)}", _TIGHTEST


def _parameter(node: syntax.Parameter) -> str:
    return node.name + (f": {show_type(node.type)}" if node.type is not None else "")


def _arguments(arguments: Sequence[syntax.Argument]) -> str:
    return ", ".join(map(_argument, arguments))


def _argument(node: syntax.Argument) -> str:
    if node.type is not None:
        return f"{node.name}: {show_type(node.type)}"
    if isinstance(node.value, syntax.Condition):
        return f"{node.name} = |{', '.join(map(_parameter, node.value.binder))}| {expression(node.value.body)}"
    return f"{node.name} = {expression(node.value)}" if node.name else expression(node.value)
