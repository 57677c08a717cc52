"""Checks of the fields of a record: printable text, 64-bit integers, finite numbers, plain JSON.

Every check takes the name of a field and its value and returns the value in the one type that records hold, or raises a
:class:`feinsum.errors.DatabaseError` that names both.
"""

from __future__ import annotations

import json
import math
import numbers
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from feinsum.database.frozen import FrozenMapping
from feinsum.errors import DatabaseError

KEY_LIMIT = 1 << 16
"""Characters of a canonical key."""
NAME_LIMIT = 500
"""Characters of any other text but the value of a parameter."""
PARAMETER_LIMIT = 1 << 14
"""Characters of the value of a parameter, which may be a chain of configurations."""
ITEM_LIMIT = 256
"""The most items of a mapping."""
SAMPLE_LIMIT = 1 << 14
"""Timing samples of one record."""

T = TypeVar("T")


def shown_value(value: object) -> str:
    """`value` as an error message shows it: short, and in ASCII."""
    return reprlib.repr(value).encode("ascii", "backslashreplace").decode()


def printable_text(name: str, value: Any, limit: int = NAME_LIMIT) -> str:
    """Printable, not empty, of at most `limit` characters."""
    if not isinstance(value, str) or not value:
        raise DatabaseError(f"{name} of a record is {shown_value(value)}; it is a text that is not empty")
    if len(value) > limit:
        raise DatabaseError(f"{name} of a record has {len(value)} characters; it has at most {limit}")
    if not value.isprintable():
        raise DatabaseError(f"{name} of a record is {shown_value(value)}; control characters and surrogates are refused")
    return value


def bounded_integer(name: str, value: Any, at_least: int = -(2**63)) -> int:
    """From `at_least` to the largest integer of 64 bits, which is what the stores hold."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, numbers.Integral)):
        raise DatabaseError(f"{name} of a record is {shown_value(value)}; it is an integer")
    number = int(value)
    if not at_least <= number < 2**63:
        raise DatabaseError(f"{name} of a record is {shown_value(number)}; it is from {at_least} to 2**63 - 1")
    return number


def positive_length(name: str, value: Any) -> int:
    """A positive integer."""
    return bounded_integer(name, value, at_least=1)


def parameter(name: str, value: Any) -> int | float | str | bool:
    """The value of a parameter: a truth value, an integer, a finite number or a text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return printable_text(name, value, PARAMETER_LIMIT) if value else value
    if isinstance(value, numbers.Integral):
        return bounded_integer(name, value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    raise DatabaseError(f"{name} of a record is {shown_value(value)}; it is a bool, an int, a finite float or a text")


def mapping(name: str, items: Any, check: Callable[[str, Any], T]) -> FrozenMapping[T]:
    """A mapping from printable names to values that `check` accepts."""
    if not isinstance(items, Mapping):
        raise DatabaseError(f"{name} of a record is {shown_value(items)}; it is a mapping")
    if len(items) > ITEM_LIMIT:
        raise DatabaseError(f"{name} of a record has {len(items)} items; it has at most {ITEM_LIMIT}")
    return FrozenMapping(
        {printable_text(f"a key in {name}", key): check(f"{name}[{key!r}]", item) for key, item in items.items()}
    )


def samples(name: str, items: Any) -> tuple[float, ...]:
    """Finite and positive times in seconds."""
    if isinstance(items, (str, Mapping)) or not isinstance(items, Iterable):
        raise DatabaseError(f"{name} of a record is {shown_value(items)}; it is a sequence of seconds")
    found = tuple(items)
    if len(found) > SAMPLE_LIMIT:
        raise DatabaseError(f"{name} of a record has {len(found)} entries; it has at most {SAMPLE_LIMIT}")
    if all(type(sample) is float and 0 < sample < math.inf for sample in found):
        return found
    return tuple(_timing_sample(f"{name}[{k}]", sample) for k, sample in enumerate(found))


def _timing_sample(name: str, value: Any) -> float:
    try:
        if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < math.inf:
            return float(value)
    except OverflowError:
        pass
    raise DatabaseError(f"{name} of a record is {shown_value(value)}; it is a finite, positive number of seconds")


def message(name: str, value: Any, limit: int) -> str:
    """`value` with control characters replaced and, where it is longer than `limit`, without its middle."""
    if not isinstance(value, str):
        raise DatabaseError(f"{name} of a record is {shown_value(value)}; it is a text")
    kept = str(value).replace("\r\n", "\n")
    if len(kept) > limit:
        half = (limit - len(_GAP)) // 2
        kept = kept[:half] + _GAP + kept[-half:]
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in kept)


_GAP = "\n[...]\n"


def json_object(line: str | bytes | bytearray) -> dict[str, Any]:
    """The one JSON object in `line`."""
    try:
        found = json.loads(
            line if isinstance(line, str) else line.decode(), parse_constant=_reject_constant, object_pairs_hook=_object
        )
    except UnicodeDecodeError as error:
        raise DatabaseError(f"no UTF-8: byte {error.start + 1} is 0x{error.object[error.start]:02x}") from None
    except RecursionError:
        raise DatabaseError("no record: lists or objects are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise DatabaseError(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError as error:
        raise DatabaseError(f"no JSON that a record may hold: {str(error).split(';')[0]}") from None
    if not isinstance(found, dict):
        raise DatabaseError(f"no record: {shown_value(found)} is no object")
    return found


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(repeated, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {shown_value(repeated)} occurs twice")
    return found
