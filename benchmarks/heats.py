"""What heats gain where the cost model has not seen a pattern: ``python -m benchmarks heats``; some minutes.

For each device of ``benchmarks/landscapes``, the quickest of the first k entrants over the best that was measured, as a
geometric mean over problems whose pattern was left out of the training, and the worst.  *alike* are the k that are expected
to be quickest, *unlike* those of :func:`feinsum.candidates.spread.spread`, and *with default* those of heats: they have the
default of the first one's space with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

from benchmarks import parser_of
from benchmarks.cost_model import LEAST, left_out, predict
from benchmarks.forest import Row, rows_of
from benchmarks.landscapes import Evidence, read_landscapes
from benchmarks.rows import lost
from feinsum.candidates.entrants import ENTRANTS, HOPELESS, with_default
from feinsum.candidates.spread import spread
from feinsum.canonicalization import parse_key
from feinsum.cli.output import print_table
from feinsum.devices import DeviceProfile
from feinsum.errors import FeinsumError
from feinsum.registry import find_space
from feinsum.space import Instance

Expected = tuple[Row, float]
Chooser = Callable[[Sequence[Expected], int], Sequence[Expected]]


def alike(ordered: Sequence[Expected], most: int) -> Sequence[Expected]:
    """Those that are expected to be quickest."""
    return ordered[:most]


def unlike(ordered: Sequence[Expected], most: int) -> Sequence[Expected]:
    """Those that are expected to be quick and differ."""
    return spread(ordered, most, lambda each: each[1], lambda each: (each[0].space, each[0].configuration))


def with_its_default(ordered: Sequence[Expected], most: int) -> Sequence[Expected]:
    """Those that a heat has."""
    (first, quickest), space = ordered[0], find_space(ordered[0][0].space)
    found = unlike(ordered, ENTRANTS)
    with suppress(FeinsumError):
        here = Instance(parse_key(first.problem.einsum), dict(first.problem.sizes), profiles()[first.problem.device])
        wanted = dict(space.default(here.problem(space)))
        for row, t in ordered:
            if row.space == space.name and dict(row.configuration) == wanted and t < HOPELESS * quickest:
                found = with_default(found, (row, t))
    return found[:most]


@cache
def profiles() -> dict[str, DeviceProfile]:
    """The devices of ``benchmarks/landscapes``."""
    return read_landscapes().profiles


def losses(problems: Sequence[Sequence[Expected]], choose: Chooser, most: int) -> list[float]:
    """The time of the quickest entrant over the best time, of each problem."""
    return [
        min(row.time_s for row, _ in choose(ordered, most)) / min(row.time_s for row, _ in ordered) for ordered in problems
    ]


def expectations(rows: Sequence[Row]) -> dict[str, list[list[Expected]]]:
    """By device, the configurations of each problem with the times expected, best first, by models that know no such
    pattern."""
    by_problem: dict[object, list[Expected]] = {}
    for model, unseen in left_out(rows, lambda row: row.problem.einsum.split("|")[1]):
        for row, t in zip(unseen, predict(model, unseen), strict=True):
            by_problem.setdefault(row.problem, []).append((row, t))
    found: dict[str, list[list[Expected]]] = {}
    for own in by_problem.values():
        if len(own) >= LEAST:
            found.setdefault(own[0][0].problem.device, []).append(sorted(own, key=lambda each: each[1]))
    return found


def main() -> None:
    """Train, choose, compare."""
    parser = parser_of(__doc__)
    parser.parse_args()
    evidence, lines = read_landscapes(), []
    for kind in ("gpu", "cpu"):
        own = {at: t for at, t in evidence.times_s.items() if evidence.profiles[at.device].kind == kind}
        for device, problems in sorted(expectations(rows_of(Evidence(evidence.profiles, own))).items()):
            for choose in (alike, unlike, with_its_default):
                told = [lost(losses(problems, choose, most)) for most in range(1, ENTRANTS + 1)]
                figures = [*(mean for mean, *_ in told), told[0][-1], told[-1][-1]]
                lines.append([device, str(len(problems)), choose.__name__.replace("_its_", " "), *figures])
    counts = [str(most) for most in range(1, ENTRANTS + 1)]
    print_table(
        ["device", "problems", "entrants", *counts, "worst of 1", f"of {ENTRANTS}"], lines, left=["device", "entrants"]
    )
