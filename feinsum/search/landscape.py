"""Recorded landscapes: the time of every configuration of a space, so that samplers are compared without a device.

The quality of a search after n trials is (time of the best configuration of all) / (time of the best one found).

A landscape is kept as JSON.  Configurations are numbered in mixed radix, the choices of the last parameter changing
fastest; those that are not listed are refused by their space, those with null failed::

    {"name": "...", "about": {...}, "parameters": {"elements": [32, 16], "unroll": [true, false]},
     "medians_us": [[0, 235.6], [1, null], [3, 311.2]]}
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feinsum.errors import SearchError
from feinsum.search.grid import Grid
from feinsum.search.sampler import make_sampler

if TYPE_CHECKING:
    from feinsum.search.grid import Result
    from feinsum.space import Configuration, Value


@dataclass(frozen=True)
class Landscape:
    """The time of every configuration of a space.

    :ivar parameters: the choices of each parameter.
    :ivar medians_s: rank of a configuration -> its time in seconds, None if it failed; the others are refused.
    :ivar about: the einsum, the device and the date, for the reader.
    :raises SearchError: if there is no time in it, or one that is none, or a rank outside the parameters.
    """

    name: str
    parameters: Mapping[str, Sequence[Value]]
    medians_s: Mapping[int, float | None]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rank, median_s in self.medians_s.items():
            if not 0 <= rank < self._grid.size:
                raise SearchError(f"landscape '{self.name}' has no configuration {rank}, only {self._grid.size}")
            if median_s is not None and not 0 < median_s < math.inf:
                raise SearchError(f"configuration {rank} of landscape '{self.name}' cannot take {median_s!r} seconds")
        if not any(self.medians_s.values()):
            raise SearchError(f"landscape '{self.name}' has no configuration that worked")

    @classmethod
    def of_results(cls, name: str, results: Iterable[Result], about: Mapping[str, Any] | None = None) -> Landscape:
        """The landscape of recorded configurations; of one recorded several times the fastest counts.

        :raises SearchError: if the configurations do not share their parameters, or none worked.
        """
        results = list(results)
        parameters: dict[str, list[Value]] = {}
        for configuration, _ in results:
            if parameters and set(configuration) != set(parameters):
                raise SearchError(
                    f"landscape '{name}' has parameters {sorted(parameters)} in one record, "
                    f"{sorted(configuration)} in another; give the records of one version of one space"
                )
            for parameter, value in configuration.items():
                parameters.setdefault(parameter, []).append(value)
        grid = Grid(parameters, lambda _: None)
        medians_s: dict[int, float | None] = {}
        for configuration, median_s in results:
            rank = grid.rank(grid.require(configuration))
            known = medians_s.get(rank)
            medians_s[rank] = min(filter(None, (known, median_s)), default=None)
        return cls(name, grid.parameters, medians_s, about or {})

    @classmethod
    def read(cls, path: Path) -> Landscape:
        """The landscape in a file of the format above.

        :raises SearchError: if the file is malformed.
        """
        try:
            items = json.loads(path.read_text())
            medians_s = {rank: None if time is None else time / 1e6 for rank, time in items["medians_us"]}
            return cls(items["name"], dict(items["parameters"]), medians_s, dict(items["about"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SearchError(f"'{path}' is no recorded landscape: {error}") from error

    def write(self, path: Path) -> None:
        """Write the format above, times with four digits, a few configurations to a line."""
        times = [
            f"[{rank}, {'null' if s is None else format(s * 1e6, '.4g')}]" for rank, s in sorted(self.medians_s.items())
        ]
        lines = ",\n".join(", ".join(times[k : k + 8]) for k in range(0, len(times), 8))
        head = ",\n".join(f'"{key}": {json.dumps(getattr(self, key))}' for key in ("name", "about", "parameters"))
        path.write_text(f'{{{head},\n"medians_us": [\n{lines}\n]}}\n')

    def results(self) -> Iterator[Result]:
        """Every recorded configuration and its time."""
        for rank, median_s in self.medians_s.items():
            yield self._grid.configuration(self._grid.point_of_rank(rank)), median_s

    @cached_property
    def best_s(self) -> float:
        """The time of the fastest configuration in seconds."""
        return min(filter(None, self.medians_s.values()))

    def refusal(self, configuration: Configuration) -> str | None:
        """The reason why a configuration cannot be replayed, which is that it was not recorded; None if it was."""
        return None if self._rank(configuration) in self.medians_s else "it was not recorded"

    def median_s(self, configuration: Configuration) -> float | None:
        """The recorded time of a configuration in seconds; None if it failed."""
        return self.medians_s[self._rank(configuration)]

    def unconstrained(self) -> Landscape:
        """The same space without its constraint: refused configurations fail when they are tried."""
        everything = {rank: self.medians_s.get(rank) for rank in range(self._grid.size)}
        return Landscape(f"{self.name}, unconstrained", self.parameters, everything, self.about)

    @cached_property
    def _grid(self) -> Grid:
        return Grid(self.parameters, lambda _: None)

    def _rank(self, configuration: Configuration) -> int:
        return self._grid.rank(self._grid.require(configuration))


def replay(landscape: Landscape, sampler: str | None, trials: int, seed: int, ahead: int = 1) -> list[float]:
    """The quality of a search after each of its trials, 0 before anything worked.

    :param sampler: as for :func:`~feinsum.search.sampler.make_sampler`.
    :param ahead: how many configurations are asked before the first of them is told, as compilation ahead of time does.
    """
    search = make_sampler(sampler, landscape.parameters, landscape.refusal, seed=seed, trials=trials)
    best_s, qualities = math.inf, list[float]()
    waiting: deque[dict[str, Value]] = deque()
    for _ in range(trials):
        while len(waiting) < ahead and (asked := search.ask()) is not None:
            waiting.append(asked)
        if not waiting:
            break
        configuration = waiting.popleft()
        median_s = landscape.median_s(configuration)
        search.tell(configuration, median_s)
        best_s = min(best_s, median_s or math.inf)
        qualities.append(landscape.best_s / best_s)
    return qualities
