"""A compiled kernel as data: its OpenCL C source, its arguments and the launches that run it.

A :class:`Program` is all that is needed to run a kernel without loopy, so it is what the disk cache and the worker
processes exchange; it is read from JSON and nothing in it is executed but the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from feinsum.errors import ValidationError

Extent = int | str | tuple[Any, ...]
"""A length: a number, the name of a value argument, or ``(operator, operand, ...)`` over lengths."""

_OPERATORS: dict[str, Callable[..., int]] = {
    "+": lambda *terms: sum(terms),
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": lambda *terms: min(terms),
    "max": lambda *terms: max(terms),
}


def evaluate(extent: Extent, values: Mapping[str, int]) -> int:
    """The value of a length when the value arguments are `values`."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return values[extent]
    return int(_OPERATORS[extent[0]](*(evaluate(part, values) for part in extent[1:])))


@dataclass(frozen=True)
class Argument:
    """An argument of a program.

    :ivar kind: "input", "output", "scratch" (memory that the launches share, provided by the caller) or "length".
    :ivar dtype: the name of the element type.
    :ivar shape: lengths of the axes; empty for a length.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[Extent, ...]


@dataclass(frozen=True)
class Launch:
    """One launch of an OpenCL kernel: its name, its arguments in order, its groups and the work-items of a group."""

    kernel: str
    arguments: tuple[str, ...]
    groups: tuple[Extent, ...]
    group_size: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """The source, arguments and launches of one kernel, in order."""

    source: str
    arguments: tuple[Argument, ...]
    launches: tuple[Launch, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`json.dumps`."""
        return {
            "source": self.source,
            "arguments": [[a.name, a.kind, a.dtype, list(a.shape)] for a in self.arguments],
            "launches": [[x.kernel, list(x.arguments), list(x.groups), list(x.group_size)] for x in self.launches],
        }

    @staticmethod
    def from_json(data: Any) -> Program:
        """The program that :meth:`to_json` wrote.

        :raises ValidationError: if `data` is not of that form.
        """
        try:
            arguments = tuple(
                Argument(str(name), _kind(kind), str(dtype), tuple(map(_extent, shape)))
                for name, kind, dtype, shape in data["arguments"]
            )
            launches = tuple(
                Launch(str(kernel), tuple(map(str, names)), tuple(map(_extent, groups)), tuple(map(int, size)))
                for kernel, names, groups, size in data["launches"]
            )
            program = Program(str(data["source"]), arguments, launches)
        except (KeyError, TypeError, ValueError) as error:
            raise ValidationError(f"not a stored program: {error!r}") from None
        return program


def _kind(kind: Any) -> str:
    if kind not in ("input", "output", "scratch", "length"):
        raise ValueError(f"{kind!r} is no kind of argument")
    return str(kind)


def _extent(data: Any) -> Extent:
    if isinstance(data, (int, str)) and not isinstance(data, bool):
        return data
    if isinstance(data, (list, tuple)) and len(data) > 1 and data[0] in _OPERATORS:
        return (data[0], *map(_extent, data[1:]))
    raise ValueError(f"{data!r} is no length")
