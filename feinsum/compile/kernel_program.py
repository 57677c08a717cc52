"""A compiled kernel as data: its OpenCL C source, its arguments and the launches that run it.

A :class:`KernelProgram` is all that is needed to run a kernel without loopy, so the disk cache stores programs and worker
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


def evaluate_extent(extent: Extent, values: Mapping[str, int]) -> int:
    """The value of a length when the value arguments are `values`."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return values[extent]
    return int(_OPERATORS[extent[0]](*(evaluate_extent(part, values) for part in extent[1:])))


@dataclass(frozen=True)
class KernelArgument:
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
class KernelLaunch:
    """One launch of an OpenCL kernel: its name, its arguments in order, its groups and the work-items of a group."""

    kernel: str
    arguments: tuple[str, ...]
    groups: tuple[Extent, ...]
    group_size: tuple[int, ...]


@dataclass(frozen=True)
class KernelProgram:
    """The source, arguments and launches of one kernel, in order."""

    source: str
    arguments: tuple[KernelArgument, ...]
    launches: tuple[KernelLaunch, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`json.dumps`."""
        return {
            "source": self.source,
            "arguments": [[a.name, a.kind, a.dtype, list(a.shape)] for a in self.arguments],
            "launches": [[x.kernel, list(x.arguments), list(x.groups), list(x.group_size)] for x in self.launches],
        }

    @staticmethod
    def from_json(data: Any) -> KernelProgram:
        """The program that :meth:`to_json` wrote.

        :raises ValidationError: if `data` is not of that form.
        """
        try:
            arguments = tuple(_decode_argument(*item) for item in data["arguments"])
            lengths = {a.name for a in arguments if a.kind == "length"}
            names = {a.name for a in arguments}
            _require_valid(len(names) == len(arguments), "two arguments have one name")
            for a in arguments:
                _require_valid(
                    all(_names_of_extent(x) <= lengths for x in a.shape), f"the shape of {a.name!r} needs an unknown length"
                )
            launches = tuple(_encode_launch(names, lengths, *item) for item in data["launches"])
            _require_valid(bool(launches), "nothing is launched")
            return KernelProgram(_decode_text(data["source"]), arguments, launches)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValidationError(f"not a stored program: {str(error) or type(error).__name__}") from None


def _require_valid(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _decode_text(data: Any) -> str:
    _require_valid(isinstance(data, str), f"{data!r} is no text")
    return str(data)


def _decode_argument(name: Any, kind: Any, dtype: Any, shape: Any) -> KernelArgument:
    _require_valid(kind in ("input", "output", "scratch", "length", "scalar"), f"{kind!r} is no kind of argument")
    _require_valid(dtype in [known.name for known in DTYPES], f"{dtype!r} is no type of an argument")
    return KernelArgument(_decode_text(name), kind, dtype, tuple(map(_decode_extent, shape)))


def _encode_launch(names: set[str], lengths: set[str], kernel: Any, arguments: Any, groups: Any, size: Any) -> KernelLaunch:
    launch = KernelLaunch(
        _decode_text(kernel),
        tuple(map(_decode_text, arguments)),
        tuple(map(_decode_extent, groups)),
        tuple(map(_decode_size, size)),
    )
    _require_valid(names.issuperset(launch.arguments), f"{kernel!r} takes an unknown argument")
    _require_valid(
        all(_names_of_extent(x) <= lengths for x in launch.groups), f"the groups of {kernel!r} need an unknown length"
    )
    _require_valid(0 < len(launch.groups) <= 3, f"{kernel!r} has {len(launch.groups)} axes of groups")
    _require_valid(0 < len(launch.group_size) <= 3, f"{kernel!r} has {len(launch.group_size)} axes of work-items")
    return launch


def _decode_size(data: Any) -> int:
    _require_valid(isinstance(data, int) and 0 < data < 2**31, f"{data!r} is no size of a group")
    return int(data)


def _decode_extent(data: Any) -> Extent:
    if isinstance(data, int) and not isinstance(data, bool) and abs(data) < 2**63:
        return data
    if isinstance(data, str):
        return data
    if isinstance(data, (list, tuple)) and len(data) > 1 and data[0] in _OPERATORS:
        operands = tuple(map(_decode_extent, data[1:]))
        _require_valid(data[0] not in _BINARY or len(operands) == 2, f"'{data[0]}' takes two lengths")
        _require_valid(data[0] not in ("//", "%") or operands[1] != 0, "a length is divided by zero")
        return (data[0], *operands)
    raise ValueError(f"{data!r} is no length")


def _names_of_extent(extent: Extent) -> set[str]:
    """The names that a length depends on."""
    if isinstance(extent, tuple):
        return set[str]().union(*map(_names_of_extent, extent[1:]))
    return {extent} if isinstance(extent, str) else set()
