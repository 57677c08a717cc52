"""The points of a search: every combination of the choices of every parameter, refused ones among them.

A *point* holds the position of each parameter's choice.  Counted in mixed radix, a point is a *rank*: a space of a
million points is walked without being stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from feinsum.errors import SearchError

if TYPE_CHECKING:
    from feinsum.space import Configuration, Value

Point = tuple[int, ...]
"""The position of the choice of each parameter, in the order of the parameters."""
Refusal = Callable[["Configuration"], str | None]
"""Why a configuration is no point of its space; None if it is one."""
Result = tuple["Configuration", float | None]
"""A configuration and its time in seconds, None if it failed."""


class Grid:
    """The product of the choices of some parameters, and which of its points are accepted.

    :param parameters: the choices of each parameter, best guess first; repeated choices count once.
    :param refusal: why a configuration made of these choices is no point of the space; None if it is one.
    :ivar accepts: whether the configuration of a point is one of the space; remembered for the latest points.
    """

    def __init__(self, parameters: Mapping[str, Sequence[Value]], refusal: Refusal) -> None:
        # 1, 1.0 and True are equal in Python, but the kernels made with them are not.
        self.parameters = {name: tuple({(type(v), v): v for v in values}.values()) for name, values in parameters.items()}
        self.lengths = tuple(map(len, self.parameters.values()))
        self.size = math.prod(self.lengths)
        self._refusal = refusal
        self.accepts = lru_cache(maxsize=1 << 16)(self._accepts)

    def configuration(self, point: Point) -> dict[str, Value]:
        """The configuration at a point."""
        return {name: values[k] for (name, values), k in zip(self.parameters.items(), point, strict=True)}

    def point(self, configuration: Configuration) -> Point | None:
        """The point of a configuration; None if it lies outside: other parameters, or a value that is no choice."""
        if set(configuration) != set(self.parameters):
            return None
        point = []
        for name, values in self.parameters.items():
            value = configuration[name]
            position = next((k for k, v in enumerate(values) if type(v) is type(value) and v == value), None)
            if position is None:
                return None
            point.append(position)
        return tuple(point)

    def require(self, configuration: Configuration) -> Point:
        """The point of a configuration.

        :raises SearchError: if it lies outside.
        """
        point = self.point(configuration)
        if point is None:
            choices = {name: list(values) for name, values in self.parameters.items()}
            raise SearchError(f"{dict(configuration)} is not made of the choices {choices}")
        return point

    def point_of_rank(self, rank: int) -> Point:
        """The point of a rank: its digits in mixed radix, those of the last parameter changing fastest."""
        digits = []
        for length in reversed(self.lengths):
            rank, digit = divmod(rank, length)
            digits.append(digit)
        return tuple(reversed(digits))

    def rank(self, point: Point) -> int:
        """The inverse of :meth:`point_of_rank`."""
        rank = 0
        for digit, length in zip(point, self.lengths, strict=True):
            rank = rank * length + digit
        return rank

    def changed(self, point: Point, changes: int, random: Random) -> Point:
        """A point that differs from `point` in at most so many parameters, drawn at random."""
        digits = list(point)
        for k in random.sample(range(len(digits)), min(changes, len(digits))):
            digits[k] = random.randrange(self.lengths[k])
        return tuple(digits)

    def graded(self) -> Iterator[Point]:
        """Every point, ordered by how far its choices are from the best guesses in total."""
        if not self.size:
            return
        for total in range(sum(self.lengths) - len(self.lengths) + 1):
            yield from _with_sum(self.lengths, total)

    def shuffled(self, seed: int) -> Iterator[Point]:
        """Every point once, in uniformly random order, so that the accepted among them come uniformly as well.

        A Fisher-Yates shuffle of the ranks which stores only those that have moved.
        """
        random, moved = Random(seed), dict[int, int]()
        for left in range(self.size, 0, -1):
            k = random.randrange(left)
            rank = moved.get(k, k)
            last = moved.pop(left - 1, left - 1)
            if k < left - 1:
                moved[k] = last
            yield self.point_of_rank(rank)

    def _accepts(self, point: Point) -> bool:
        return self._refusal(self.configuration(point)) is None


def _with_sum(lengths: tuple[int, ...], total: int) -> Iterator[Point]:
    """The points whose positions add up to `total`, in lexicographic order."""
    if not lengths:
        if total == 0:
            yield ()
        return
    rest = sum(lengths[1:]) - len(lengths[1:])
    for first in range(max(0, total - rest), min(lengths[0] - 1, total) + 1):
        for others in _with_sum(lengths[1:], total - first):
            yield (first, *others)
