"""Programs in place of functions that are arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feinsum.errors import ValidationError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.syntax import DeclarativeFunction
from feinsum.languages.diagnostics import counted
from feinsum.languages.program import Program


def require_function(name: str, declared: syntax.FunctionType, function: DeclarativeFunction) -> None:
    """Refuse a program that cannot stand for a function.

    :raises ValidationError: if it takes other arguments, or computes several tensors, or changes memory.
    """
    parameters = function.parameters
    if len(parameters) != len(declared.parameters):
        own = ", ".join(p.name for p in parameters) or "nothing"
        raise ValidationError(
            f"the program for {name} takes {counted(len(parameters), 'argument')}, {own}; {name} is declared with "
            f"{len(declared.parameters)}"
        )
    for parameter, type_ in zip(parameters, declared.parameters, strict=True):
        if _axis_count(parameter.type) != _axis_count(type_):
            given, wanted = _type_kind(parameter.type), _type_kind(type_)
            raise ValidationError(
                f"{parameter.name} of the program for {name} is {given}; {name} is declared with {wanted}"
            )
    if len(function.results) != 1:
        own = ", ".join(function.results) or "nothing"
        raise ValidationError(f"the program for {name} computes {own}; a function has one result")
    if any(isinstance(node, syntax.FormCall) and node.kind == "thread" for node in function.body.statements):
        raise ValidationError(f"the program for {name} has a thread scope; a function has none")


def _axis_count(type_: syntax.Type) -> int:
    """The number of axes, or that of functions, which have none."""
    if isinstance(type_, syntax.FunctionType):
        return -1
    return len(type_.extents) if isinstance(type_, syntax.TensorType) else 0


def _type_kind(type_: syntax.Type) -> str:
    axes = _axis_count(type_)
    if axes <= 0:
        return "a number" if axes == 0 else "a function"
    return f"a tensor with {axes} axes" if axes > 1 else "a tensor with 1 axis"


def callable_program(program: Program) -> Callable[..., Any]:
    """A program as a function of its parameters, in order."""
    names = [parameter.name for parameter in program.function().parameters]
    return lambda *values: program.interpret(**dict(zip(names, values, strict=True)))
