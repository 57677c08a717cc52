"""A compiled kernel as data: its OpenCL C source, its arguments and the launches that run it.

A :class:`Program` is all that is needed to run a kernel without loopy, so the disk cache stores programs and worker
processes exchange them; it is read from JSON and nothing in it is executed but the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from feinsum.arrays import DTYPES
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
_BINARY = ("*", "//", "%")


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

    :ivar kind: "input", "output", "scratch" (memory that the launches share, provided by the caller), "length" or "scalar"
        (a number that an epilogue takes).
    :ivar dtype: the name of the element type.
    :ivar shape: lengths of the axes; empty for a length or scalar.
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
            arguments = tuple(_argument(*item) for item in data["arguments"])
            lengths = {a.name for a in arguments if a.kind == "length"}
            names = {a.name for a in arguments}
            _require(len(names) == len(arguments), "two arguments have one name")
            for a in arguments:
                _require(all(_names(x) <= lengths for x in a.shape), f"the shape of {a.name!r} needs an unknown length")
            launches = tuple(_launch(names, lengths, *item) for item in data["launches"])
            _require(bool(launches), "nothing is launched")
            return Program(_text(data["source"]), arguments, launches)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValidationError(f"not a stored program: {str(error) or type(error).__name__}") from None


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _text(data: Any) -> str:
    _require(isinstance(data, str), f"{data!r} is no text")
    return str(data)


def _argument(name: Any, kind: Any, dtype: Any, shape: Any) -> Argument:
    _require(kind in ("input", "output", "scratch", "length", "scalar"), f"{kind!r} is no kind of argument")
    _require(dtype in [known.name for known in DTYPES], f"{dtype!r} is no type of an argument")
    return Argument(_text(name), kind, dtype, tuple(map(_extent, shape)))


def _launch(names: set[str], lengths: set[str], kernel: Any, arguments: Any, groups: Any, size: Any) -> Launch:
    launch = Launch(_text(kernel), tuple(map(_text, arguments)), tuple(map(_extent, groups)), tuple(map(_size, size)))
    _require(names.issuperset(launch.arguments), f"{kernel!r} takes an unknown argument")
    _require(all(_names(x) <= lengths for x in launch.groups), f"the groups of {kernel!r} need an unknown length")
    _require(0 < len(launch.groups) <= 3, f"{kernel!r} has {len(launch.groups)} axes of groups")
    _require(0 < len(launch.group_size) <= 3, f"{kernel!r} has {len(launch.group_size)} axes of work-items")
    return launch


def _size(data: Any) -> int:
    _require(isinstance(data, int) and 0 < data < 2**31, f"{data!r} is no size of a group")
    return int(data)


def _extent(data: Any) -> Extent:
    if isinstance(data, int) and not isinstance(data, bool) and abs(data) < 2**63:
        return data
    if isinstance(data, str):
        return data
    if isinstance(data, (list, tuple)) and len(data) > 1 and data[0] in _OPERATORS:
        operands = tuple(map(_extent, data[1:]))
        _require(data[0] not in _BINARY or len(operands) == 2, f"'{data[0]}' takes two lengths")
        _require(data[0] not in ("//", "%") or operands[1] != 0, "a length is divided by zero")
        return (data[0], *operands)
    raise ValueError(f"{data!r} is no length")


def _names(extent: Extent) -> set[str]:
    """The names that a length depends on."""
    if isinstance(extent, tuple):
        return set[str]().union(*map(_names, extent[1:]))
    return {extent} if isinstance(extent, str) else set()
