"""Numbers that stand for several indices: ``n = (.. d[0] counts[1] + d[1]) counts[2] + d[2] ..``, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

VECTOR_BYTES = 16
"""Bytes that a work-item can read from local memory at once, if they begin at a multiple of that."""


@dataclass(frozen=True)
class Digits:
    """A number taken apart: ``n = (... d[0] counts[1] + d[1]) counts[2] + d[2] ...``, the last index the fastest."""

    letters: Sequence[str]
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        return math.prod(self.counts)

    def of(self, number: Any) -> dict[str, Any]:
        """The digit of every letter; `number` is an int, an array of them, or an expression."""
        digits: dict[str, Any] = {}
        first = next((k for k, count in enumerate(self.counts) if count > 1), None)
        for k, (letter, count) in reversed(list(enumerate(zip(self.letters, self.counts, strict=True)))):
            if count == 1:
                digits[letter] = number * 0 if isinstance(number, np.ndarray) else 0
                continue
            digits[letter] = number if k == first else number % count
            number = number // count if k != first else number
        return digits


def position(at: Iterable[Any], lengths: Iterable[int], first: Any = 0) -> Any:
    """The number of an entry, ``(first lengths[0] + at[0]) lengths[1] + at[1] ...``, which :class:`Digits` takes apart."""
    for index, length in zip(at, lengths, strict=True):
        first = first * length + index
    return first
