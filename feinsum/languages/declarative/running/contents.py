"""Contents of a call: the lengths and types of arrays, the numbers and the functions that a program is built for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import type_name
from feinsum.languages.declarative.interpreting.arguments import bind_arguments
from feinsum.languages.declarative.interpreting.machine import ExpressionInterpreter
from feinsum.languages.declarative.interpreting.values import IndexedValue
from feinsum.languages.declarative.syntax import DeclarativeFunction
from feinsum.languages.source import SourceText


@dataclass(frozen=True)
class Contents:
    """The facts about arguments that a program is built for: lengths and types of arrays, values of numbers, functions.

    :ivar written: the numbers as text, by which they are compared: 0.0 equals -0.0, and NaN not even itself.
    """

    shapes: tuple[tuple[str, tuple[int, ...], str], ...]
    lengths: tuple[tuple[str, int], ...]
    numbers: tuple[tuple[str, Any], ...] = field(compare=False)
    functions: tuple[tuple[str, Any], ...]
    written: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "written", repr(self.numbers))


def examine_arguments(
    function: DeclarativeFunction, source: SourceText, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], Contents]:
    """The arrays among the arguments, and the facts that the program is to be built for.

    :raises ValidationError, ShapeError, DTypeError: if an argument is missing or does not fit.
    """
    machine = ExpressionInterpreter(source, {})
    bound = bind_arguments(machine, function, arguments)
    arrays = {one.name: one.arrays[0] for one in bound if one.arrays}
    shapes = tuple((name, tuple(array.shape), type_name(array.dtype)) for name, array in arrays.items())
    known = {n: int(v.data) for n, v in machine.names.items() if isinstance(v, IndexedValue) and v.weak == "int"}
    lengths = tuple(sorted((n, v) for n, v in known.items() if n not in {one.name for one in bound}))
    scalars = [(one, one.parameter.type) for one in bound if isinstance(one.parameter.type, syntax.ScalarType)]
    numbers = tuple((one.name, (type_.name, np.asarray(one.given).item())) for one, type_ in scalars)
    functions = tuple((one.name, one.given) for one in bound if isinstance(one.parameter.type, syntax.FunctionType))
    return arrays, Contents(shapes, lengths, numbers, functions)
