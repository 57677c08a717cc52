"""The census of a transform space: the number of combinations of choices that its constraint accepts, and why not the
others.

Few combinations are all counted; of many, a uniform sample is, whose shares are then estimates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from feinsum.report.html import Markup, chip, details, element, markup, table
from feinsum.search.grid import Grid

if TYPE_CHECKING:
    from feinsum.space import Problem, TransformSpace, Value

LIMIT = 5000
"""Combinations that are looked at."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Census:
    """The combinations that a constraint accepts.

    :ivar size: combinations of choices in all.
    :ivar seen: combinations looked at: all of them, or a sample.
    :ivar accepted: how many of `seen` are accepted.
    :ivar choices: parameter -> choice -> (how many of `seen` have it, how many of these are accepted), best guess first.
    :ivar reasons: why combinations are refused -> how many of `seen`; reasons that differ in numbers alone are one, and are
        worded like the first of them.
    """

    size: int
    seen: int
    accepted: int
    choices: Mapping[str, tuple[tuple[Value, int, int], ...]]
    reasons: Mapping[str, int]

    @property
    def complete(self) -> bool:
        """Whether every combination was looked at."""
        return self.seen == self.size

    @property
    def configurations(self) -> int:
        """How many configurations the space has; an estimate unless the census is complete."""
        return round(self.size * self.accepted / max(self.seen, 1))

    def __str__(self) -> str:
        if self.complete:
            return f"{self.configurations:,} of {self.size:,} combinations are configurations"
        return f"about {float(f'{self.configurations:.2g}'):,.0f} of {self.size:,} combinations are configurations"

    def to_html(self) -> Markup:
        """The count, every choice with the share of it that survives, and the reasons of refusals."""
        rows = (
            [name, Markup("".join(_value_chip(value, passed / max(seen, 1)) for value, seen, passed in values))]
            for name, values in self.choices.items()
        )
        refused = table(["share", "reason"], self._refusals(), text=["reason"])
        return Markup(
            element("p", str(self))
            + table(["parameter", "choices, best guess first"], rows, text=["parameter", "choices, best guess first"])
            + (details("why combinations are refused", refused, shown=not self.accepted) if self.reasons else "")
        )

    def _refusals(self) -> list[list[str]]:
        return [[f"{number / self.seen:.0%}", reason] for reason, number in list(self.reasons.items())[:10]]


def _value_chip(value: Value, share: float) -> Markup:
    return chip(share, value if share == 1 else Markup(f"{markup(value)} {element('small', f'{share:.0%}')}"))


def take_census(space: TransformSpace, problem: Problem, limit: int = LIMIT, seed: int = 0) -> Census:
    """Ask the constraint of a space about its combinations, or about `limit` of them drawn at random."""
    grid = Grid(space.parameters(problem), lambda _: None)
    seen: Counter[tuple[str, int]] = Counter()
    passed: Counter[tuple[str, int]] = Counter()
    reasons: Counter[str] = Counter()
    wording: dict[str, str] = {}
    total = accepted = 0
    for point in islice(grid.shuffled(seed), limit):
        total += 1
        places = list(zip(grid.parameters, point, strict=True))
        seen.update(places)
        reason = space.constraint(problem, grid.configuration(point))
        if reason is None:
            accepted += 1
            passed.update(places)
        else:
            reasons[wording.setdefault(_NUMBER.sub("#", reason), reason)] += 1
    choices = {
        name: tuple((value, seen[name, k], passed[name, k]) for k, value in enumerate(values))
        for name, values in grid.parameters.items()
    }
    return Census(grid.size, total, accepted, choices, dict(reasons.most_common()))
