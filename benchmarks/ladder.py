"""How well the ladder chooses where a problem was never tuned: ``python -m benchmarks ladder [RECORDS ...]``.

One problem after the other, an einsum at some lengths, is taken for unseen: its records are hidden from the ladder, and
from the cost model that it asks; of `one pattern`, those of the same types and number of rows are hidden as well.  What the
ladder would try first is looked up among the hidden: *first pick* is its time over the best, where somebody measured it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import parser_of
from benchmarks.cost_model import LEAST, left_out
from benchmarks.forest import rows_of
from benchmarks.landscapes import Evidence, read_landscapes, read_records, records_of
from benchmarks.rows import lost
from feinsum.candidates.ladder import Choice, candidates
from feinsum.canonicalization import canonicalize_einsum, parse_key
from feinsum.cli.output import print_table
from feinsum.cost.model import CostModel
from feinsum.database import TuningRecord
from feinsum.database.selection import Selection, order, winners
from feinsum.devices import DeviceProfile
from feinsum.registry import find_space, spaces
from feinsum.space import Instance

HIDDEN: Mapping[str, Callable[[TuningRecord], Hashable]] = {
    "one problem": lambda r: (r.einsum_key, r.sizes),
    "one pattern": lambda r: r.pattern_key,
}
"""What records have in common that are hidden together."""
HEADINGS = ("hidden", "device", "rung", "problems", "measured", "first pick", "9 of 10 below", "worst")


class Kept:
    """The records that are left, as stores have them."""

    def __init__(self, records: Sequence[TuningRecord]) -> None:
        self._records = records

    def winners(self, **where: Any) -> list[TuningRecord]:
        return winners(self.query(**where))

    def best(self, einsum_key: str, sizes: Mapping[str, int], device: str, **which: Any) -> TuningRecord | None:
        return next(iter(self.query(einsum_key=einsum_key, sizes=sizes, device=device, **which)), None)

    def query(self, **where: Any) -> list[TuningRecord]:
        return sorted(filter(Selection(status="ok", **where).accepts, self._records), key=order)


@dataclass(frozen=True)
class Pick:
    """What the ladder would try first for a problem.

    :ivar loss: its time over the best measured; None if nobody measured it.
    """

    device: str
    rung: str
    loss: float | None


def picks(records: Sequence[TuningRecord], profiles: Mapping[str, DeviceProfile], hidden: str) -> Iterator[Pick]:
    """What the ladder would try first for each problem of which enough was measured."""
    key = HIDDEN[hidden]
    problems: dict[tuple[str, Hashable], list[TuningRecord]] = {}
    for r in records:
        problems.setdefault((r.device, HIDDEN["one problem"](r)), []).append(r)
    models = _models(profiles)
    drivers = {r.device: r.driver for r in records}
    for (device, _), own in problems.items():
        if len(own) >= LEAST and device in profiles:
            profile = replace(profiles[device], driver=drivers[device])
            kept = [r for r in records if r.device == device and key(r) != key(own[0])]
            model = models.get(own[0].einsum_key, CostModel({}))
            with patch("feinsum.candidates.predicted.cost_model", return_value=model):
                choice = _first(own[0], profile, Kept(kept))
            yield Pick(device, choice.rung, _loss(choice, own))


def _models(profiles: Mapping[str, DeviceProfile]) -> dict[str, CostModel]:
    """For each einsum a cost model that learnt nothing of it."""
    kept = read_landscapes()
    rows = rows_of(Evidence(dict(profiles), kept.times_s))
    folds = left_out(rows, lambda row: row.problem.einsum)
    return {row.problem.einsum: model for model, unseen in folds for row in unseen}


def _first(record: TuningRecord, profile: DeviceProfile, stores: Any) -> Choice:
    canonical = canonicalize_einsum(parse_key(record.einsum_key))
    here = Instance.of_canonical(canonical, canonical.renaming.lengths(dict(record.sizes)), profile)
    return next(candidates(here, stores))


def _loss(choice: Choice, measured: Sequence[TuningRecord]) -> float | None:
    times: dict[Any, float] = {}
    for r in measured:
        at = r.space, frozenset(find_space(r.space).completed(r.configuration).items())
        times[at] = min(times.get(at, math.inf), r.median_s or math.inf)
    found = times.get((choice.space.name, frozenset(choice.space.completed(choice.configuration).items())))
    return None if found is None else found / min(times.values())


def lines(found: Sequence[Pick], hidden: str) -> Iterator[list[str]]:
    """Lines of a table under :data:`HEADINGS`."""
    for device, rung in sorted(Counter((p.device, p.rung) for p in found)):
        own = [p for p in found if (p.device, p.rung) == (device, rung)]
        if losses := [p.loss for p in own if p.loss is not None]:
            yield [hidden, device, rung, str(len(own)), str(len(losses)), *lost(losses)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("records", nargs="*", help="databases or files of JSON Lines (default: benchmarks/landscapes)")
    parser.add_argument("--profile", type=Path, action="append", default=[], help="a device profile as JSON")
    options = parser.parse_args(arguments)
    profiles = dict(read_landscapes().profiles)
    for path in options.profile:
        profile = DeviceProfile.from_json(path.read_text(encoding="utf-8"))
        profiles[profile.id] = profile
    versions = {s.name: s.version for s in spaces()}
    kept = () if options.records else records_of(read_landscapes())
    records = {r.id: r for r in (*kept, *(r for place in options.records for r in read_records(place)))}.values()
    current = [r for r in records if r.status == "ok" and versions.get(r.space) == r.space_version]
    found = [line for hidden in HIDDEN for line in lines(list(picks(current, profiles, hidden)), hidden)]
    print_table(HEADINGS, found, left=HEADINGS[:3])
