"""Arguments: parameters get their values; lengths and type variables get those of the first arrays that tell them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from feinsum.compile.buffers import library_of
from feinsum.errors import DTypeError, ShapeError, ValidationError
from feinsum.languages.calling.arguments import take_number
from feinsum.languages.calling.signature import BoundArgument, Signature, Taken
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import SCALARS, type_name
from feinsum.languages.declarative.interpreting.function_arguments import callable_program, require_function
from feinsum.languages.declarative.interpreting.machine import ExpressionInterpreter
from feinsum.languages.declarative.interpreting.values import IndexedValue
from feinsum.languages.declarative.syntax import Declaration, DeclarativeFunction
from feinsum.languages.program import Program


def signature(function: DeclarativeFunction) -> Signature[Declaration]:
    """The parameters and results of a program."""
    parameters = {p.name: p for p in function.parameters}
    integers = [n for n, p in parameters.items() if isinstance(p.type, syntax.ScalarType) and p.type.name == "int"]
    lengths = tuple(sorted(length_names(function) - parameters.keys()))
    return Signature(
        "the program", parameters, results=function.results, sizes=(*integers, *lengths), lengths=lengths, sigil=""
    )


def length_names(function: DeclarativeFunction) -> set[str]:
    """The names in the shapes of parameters."""
    return {n.name for p in function.parameters for n in syntax.walk_nodes(p.type) if isinstance(n, syntax.NameUse)}


def bind_arguments(
    machine: ExpressionInterpreter, function: DeclarativeFunction, arguments: Mapping[str, Any]
) -> list[BoundArgument[Declaration]]:
    """Give parameters and lengths their values.

    :raises ValidationError, ShapeError, DTypeError: if an argument is missing or does not fit.
    """
    own = signature(function)
    for name in [name for name in own.lengths if name in arguments]:
        machine.names[name] = IndexedValue(
            take_number(f"length {name!r}", "int", arguments[name], SCALARS["int"]), 0, "int"
        )
    bound = own.bind(arguments, partial(_take, machine))
    if unknown := [name for name in own.lengths if name not in machine.names]:
        raise ValidationError(f"no argument determines {', '.join(unknown)}; give it by name")
    for one in bound:
        for array in one.arrays:
            for axis, (extent, length) in enumerate(zip(one.parameter.type.extents, array.shape, strict=True)):  # type: ignore[union-attr]
                if (wanted := machine.integer(extent)) != length:
                    why = f"line {machine.source.place(extent.span).line} and other arguments say {wanted}"
                    raise ShapeError(f"axis {axis} of argument {one.name!r} is {length} long; {why}")
    return bound


def _take(machine: ExpressionInterpreter, name: str, parameter: Declaration, argument: Any) -> Taken:
    """Take an argument, and note the lengths and types that follow from it."""
    type_, shown = parameter.type, f"argument {name!r}"
    if isinstance(type_, syntax.FunctionType):
        if not isinstance(argument, Program) and not callable(argument):
            kind = type(argument).__name__
            raise ValidationError(f"{shown} is of type {kind}; it is a program here, or a function of arrays")
        if isinstance(argument, Program):
            require_function(name, type_, argument.function())
            argument = callable_program(argument)
        machine.names[name], machine.signatures[name] = argument, type_
        return (), argument
    if isinstance(type_, syntax.ScalarType):
        number = take_number(shown, type_.name, argument, SCALARS.get(type_.name))
        with np.errstate(over="ignore"):  # a number beyond float32 is infinite
            number = number.astype(_wanted(machine, type_.name, number.dtype))
        machine.names[name] = IndexedValue(number, 0, "int" if type_.name == "int" else "")
        return (), machine.names[name]
    array = _as_array(shown, argument)
    if len(array.shape) != len(type_.extents):
        raise ShapeError(f"{shown} has {len(array.shape)} axes; it is declared with {len(type_.extents)}")
    type_name(array.dtype)
    wanted = _wanted(machine, type_.dtype or "dtype", array.dtype)
    if array.dtype != wanted:
        raise DTypeError(f"{shown} is of {array.dtype}; it is {wanted} by its declaration, or by an array before")
    machine.names[name] = IndexedValue(array, 0)
    for extent, length in zip(type_.extents, array.shape, strict=True):
        if isinstance(extent, syntax.NameUse) and extent.name not in machine.names:
            machine.names[extent.name] = IndexedValue(np.asarray(length), 0, "int")
    return (array,), machine.names[name]


def _wanted(machine: ExpressionInterpreter, word: str, dtype: Any) -> Any:
    """The type that a word stands for; for a type variable, that of its first argument."""
    return SCALARS.get(word) or machine.names.setdefault(f"dtype {word}", dtype)


def _as_array(shown: str, argument: Any) -> Any:
    if library_of(argument) == "pyopencl":
        return argument
    if not hasattr(argument, "dtype") and not isinstance(argument, (list, tuple, int, float, complex)):
        raise ValidationError(f"{shown} is a {type(argument).__name__}; pass an array, a list or a number")
    try:
        return np.asarray(argument)
    except ValueError:
        raise ShapeError(f"{shown} is a {type(argument).__name__} of lists of different lengths") from None
