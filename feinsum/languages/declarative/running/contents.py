"""What a program is made for: lengths and types of the arrays that it is called with, numbers and functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import type_name
from feinsum.languages.declarative.interpreting import bind
from feinsum.languages.declarative.interpreting.threads import Threads
from feinsum.languages.declarative.interpreting.values import Value
from feinsum.languages.declarative.syntax import Function
from feinsum.languages.source import Source


@dataclass(frozen=True)
class Contents:
    """What a program is made for: lengths and types of arrays, values of numbers, functions."""

    shapes: tuple[tuple[str, tuple[int, ...], str], ...]
    lengths: tuple[tuple[str, int], ...]
    numbers: tuple[tuple[str, Any], ...]
    functions: tuple[tuple[str, Any], ...]


class _Names(Threads):
    """Names and lengths, without statements."""

    def __init__(self, source: Source, tunes: Mapping[str, int]) -> None:
        super().__init__(source, tunes)
        self.empty: set[str] = set()


def examine(function: Function, source: Source, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Contents]:
    """The arrays among the arguments, and what the program is to be made for."""
    machine = _Names(source, {})
    types = {p.name: p.type for p in function.parameters}
    plain = {n: _like(v) if isinstance(types.get(n), syntax.TensorType) else v for n, v in arguments.items()}
    bind(machine, function, plain)
    arrays = {n: v for n, v in arguments.items() if isinstance(types.get(n), syntax.TensorType)}
    shapes, numbers, functions = [], [], []
    for name, type_ in types.items():
        if isinstance(type_, syntax.TensorType):
            shapes.append((name, tuple(plain[name].shape), type_name(plain[name].dtype)))
        elif isinstance(type_, syntax.FunctionType):
            functions.append((name, arguments[name]))
        else:
            numbers.append((name, (type_.name, np.asarray(arguments[name]).item())))
    known = {n: int(v.data) for n, v in machine.names.items() if isinstance(v, Value) and v.weak == "int"}
    lengths = tuple(sorted((n, v) for n, v in known.items() if n not in types))
    return arrays, Contents(tuple(shapes), lengths, tuple(numbers), tuple(functions))


def _like(value: Any) -> Any:
    """A stand-in for an array where only its shape and type matter."""
    if isinstance(value, (list, int, float)):
        return np.asarray(value)
    return np.broadcast_to(np.zeros((), value.dtype), value.shape) if hasattr(value, "dtype") else value
