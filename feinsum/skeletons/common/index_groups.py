"""Indices fused into one: ``m = a + 312 b``, so that a contraction of tensors is a product of matrices.

Every value of a fused index is written in *digits*, the fastest first, each of which counts along one letter.  A letter may
have two digits: with ``parts={"a": 4}``, ``m = a mod 4 + 4 (e + 16 (a div 4))``, so that neighbours in m are neighbours in
a and in e.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pymbolic.primitives import FloorDiv, Remainder, flattened_product, flattened_sum

from feinsum.parameters import described

GROUPS = ("rows", "columns", "batch", "sums")
"""The fused indices of a contraction of two operands."""
_LETTERS = {
    "rows": "The letters of the first operand and the output that are fused into the rows, the fastest first.",
    "columns": "The letters of the second operand and the output that are fused into the columns, the fastest first.",
    "batch": "The letters that both operands and the output have, the fastest first.",
    "sums": "The letters of both operands alone, over which the product is summed, the fastest first.",
}


def fused_letters(group: str) -> Any:
    """The field of a plan for the letters of one of :data:`GROUPS`."""
    return described(_LETTERS[group], word="fused axes")


@dataclass(frozen=True)
class IndexDigit:
    """A digit of a fused index: it counts to `count` and moves `letter` by `weight`."""

    letter: str
    count: Any
    weight: int


@dataclass(frozen=True)
class IndexGroup:
    """Letters fused into one index.

    :ivar letters: the fastest first; one of unknown length is the last.
    :ivar lengths: of each letter, an int or an expression of parameters.
    :ivar parts: letter -> how many neighbours along it are neighbours in the fused index; the rest of it comes later.
    """

    letters: str
    lengths: Mapping[str, Any]
    parts: Mapping[str, int]

    @cached_property
    def inner(self) -> tuple[IndexDigit, ...]:
        """The digits within the parts of letters."""
        return tuple(IndexDigit(x, self.parts[x], 1) for x in self.letters if self.parts.get(x, 1) > 1)

    @cached_property
    def outer(self) -> tuple[IndexDigit, ...]:
        """The digits that count parts; of letters without parts, their only ones."""
        return tuple(IndexDigit(x, self._count(x), self.parts.get(x, 1)) for x in self.letters)

    def _count(self, letter: str) -> Any:
        length, part = self.lengths[letter], self.parts.get(letter, 1)
        if isinstance(length, int):
            return -(-length // part)
        return length if part == 1 else FloorDiv(length + (part - 1), part)

    @property
    def digits(self) -> tuple[IndexDigit, ...]:
        """All digits, the inner ones first."""
        return self.inner + self.outer

    def decode(self, number: Any, digits: tuple[IndexDigit, ...] | None = None) -> dict[str, Any]:
        """The value of every letter that `number` stands for, in these digits or in all.

        The last digit takes whatever is left, so a number beyond the last gives a letter that is too large.
        """
        terms: dict[str, list[Any]] = {x: [] for x in self.letters}
        digits = self.digits if digits is None else digits
        for k, digit in enumerate(digits):
            if digit.count == 1 and k < len(digits) - 1:
                continue
            value = number if k == len(digits) - 1 else Remainder(number, digit.count)
            number = FloorDiv(number, digit.count)
            terms[digit.letter].append(flattened_product((digit.weight, value)))
        return {x: flattened_sum(tuple(values)) for x, values in terms.items()}

    def pads(self, letter: str) -> bool:
        """Whether parts of a letter may stick out beyond its length."""
        length, part = self.lengths[letter], self.parts.get(letter, 1)
        return part > 1 and not (isinstance(length, int) and length % part == 0)


def digit_extent(digits: tuple[IndexDigit, ...]) -> tuple[int, str]:
    """The number of values that digits can write: a factor, and an expression to multiply by it, as isl reads it."""
    factor, text = 1, "1"
    for digit in digits:
        if isinstance(digit.count, int):
            factor *= digit.count
        elif isinstance(digit.count, FloorDiv):
            text = f"floor(({digit.count.numerator})/{digit.count.denominator})"
        else:
            text = f"({digit.count})"
    return factor, text
