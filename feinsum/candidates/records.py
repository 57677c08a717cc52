"""Records that speak for a configuration of an einsum on a device, the best evidence first.

exact        a record of this einsum at these lengths on this device and driver
lengths      a record of this einsum at other lengths
pattern      a record of an einsum of the same subscripts, of other fixed lengths, types, number of rows or epilogue
             (nearest first)
driver       any of these on another driver version of this device
architecture any of these on another device of the same architecture

A record of another number of rows or of other types counts where it is near; a remote one is worse evidence than the cost
model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from feinsum.candidates.predicted import expected_s, finishing_work
from feinsum.candidates.searches import PastSearch
from feinsum.canonicalization import parse_key
from feinsum.cost import Work
from feinsum.database import TuningRecord, Where, best_known
from feinsum.database.stores import Stores
from feinsum.devices import DeviceProfile
from feinsum.errors import FeinsumError
from feinsum.space import Configuration, Instance, Missed, TransformSpace

KINDS = ("exact", "lengths", "pattern", "driver", "architecture")

_PER_ROWS = 0.5
"""The distance of einsums one of which has e times as many rows; lengths that differ by a factor of e have distance 1."""
_OTHER_TYPES = 0.7
"""The distance of einsums of different types."""
_OTHER_EPILOGUE = 0.1
"""The distance of einsums with different epilogues."""
_NEAR = 2.5
"""The largest distance at which records of other types or another number of rows count."""


@dataclass(frozen=True)
class Question:
    """A question about an einsum that stores are asked; plain data.

    :ivar lengths: the length wanted of each index of the canonical einsum, by letter.
    :ivar pattern_lengths: the same for its pattern.
    :ivar spaces: the names and versions of the spaces that matter.
    :ivar wide: whether records of other einsums count, those of the same subscripts, and not those of this one here.
    :ivar trials_on: the device and driver of which all trials of the einsum at these lengths are wanted, whatever their
        outcome; None if its best are.
    """

    einsum_key: str
    pattern_key: str
    lengths: tuple[tuple[str, int], ...]
    pattern_lengths: tuple[tuple[str, int], ...]
    spaces: tuple[tuple[str, int], ...]
    wide: bool = False
    trials_on: tuple[str, str] | None = None

    @staticmethod
    def of(here: Instance, spaces: Iterable[TransformSpace]) -> Question:
        """The question about an einsum of certain lengths; not about the device, which an :class:`Inquiry` has."""
        return Question(
            here.canonical.key,
            here.canonical.pattern.key,
            tuple(sorted(here.canonical_lengths.items())),
            tuple(sorted(here.pattern_lengths.items())),
            tuple((s.name, s.version) for s in spaces),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`json.dumps`."""
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> Question:
        """The inverse of :meth:`to_json`.

        :raises KeyError, TypeError, ValueError: if `data` is not of that form.
        """
        pairs = {
            name: tuple((str(key), int(number)) for key, number in data[name])
            for name in ("lengths", "pattern_lengths", "spaces")
        }
        on = None if data["trials_on"] is None else (str(data["trials_on"][0]), str(data["trials_on"][1]))
        return Question(str(data["einsum_key"]), str(data["pattern_key"]), **pairs, wide=bool(data["wide"]), trials_on=on)


class Inquiry:
    """The questions asked of the stores about one device, each once, and what the answers were.

    :ivar profile: of the device.
    """

    def __init__(self, stores: Stores, profile: DeviceProfile) -> None:
        self.profile = profile
        self._stores = stores
        self._answers: dict[Question, list[tuple[str, TuningRecord]]] = {}

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions asked so far."""
        return tuple(self._answers)

    @property
    def digest(self) -> str:
        """A hash of the records that were found: equal as long as no store has others that matter."""
        ids = ";".join(",".join(r.id for _, r in found) for found in self._answers.values())
        return blake2b(ids.encode(), digest_size=16).hexdigest()

    def precedents(self, question: Question) -> Iterator[tuple[str, TuningRecord]]:
        """The records of these types, best evidence first, each with its kind.

        The records of other einsums are looked up after those of this one, and only if they are asked for.
        """
        yield from self.ask(question)
        yield from (found for found in self.ask(replace(question, wide=True)) if _of_types(found[1], question))

    def of_other_types(self, question: Question) -> Iterator[tuple[str, TuningRecord]]:
        """The records of other types, best evidence first, each with its kind."""
        yield from (found for found in self.ask(replace(question, wide=True)) if not _of_types(found[1], question))

    def search(self, record: TuningRecord, question: Question) -> PastSearch:
        """The search in which a record was found, as far as spaces of the question took part."""
        lengths = tuple(sorted(record.sizes.items()))
        own = Question(record.einsum_key, "", lengths, (), question.spaces, trials_on=(record.device, record.driver))
        return PastSearch(tuple(trial for _, trial in self.ask(own)), self._stores.is_curated(record))

    def ask(self, question: Question) -> list[tuple[str, TuningRecord]]:
        """The answer to one question, best evidence first."""
        if question not in self._answers:
            self._answers[question] = self._look_up(question)
        return self._answers[question]

    def _look_up(self, q: Question) -> list[tuple[str, TuningRecord]]:
        profile = self.profile
        if q.trials_on is not None:
            device, driver = q.trials_on
            where: Where = {"einsum_key": q.einsum_key, "sizes": dict(q.lengths), "device": device, "driver": driver}
            where["spaces"] = q.spaces
            found = self._stores.query(status=None, **where)
            return [("trial", record) for record in found]
        if not q.wide:
            best = best_known(self._stores, q.einsum_key, dict(q.lengths), profile.id, profile.driver, q.spaces)
            here = self._stores.winners(einsum_key=q.einsum_key, device=profile.id, driver=profile.driver, spaces=q.spaces)
            return [*([] if best is None else [("exact", best)]), *(("lengths", r) for r in _nearest_first(q, here))]
        kinds: dict[str, list[TuningRecord]] = {kind: [] for kind in KINDS}
        for record in self._stores.winners(subscripts=q.pattern_key.split("|")[1], spaces=q.spaces):
            kind = self._kind(record, q)
            if kind is not None and (record.pattern_key == q.pattern_key or remoteness(q, record) <= _NEAR):
                kinds[kind].append(record)
        return [(kind, record) for kind, records in kinds.items() for record in _nearest_first(q, records)]

    def _kind(self, record: TuningRecord, q: Question) -> str | None:
        if record.device != self.profile.id:
            return "architecture" if record.architecture == self.profile.architecture else None
        if record.driver != self.profile.driver:
            return "driver"
        return None if record.einsum_key == q.einsum_key else "pattern"


def _nearest_first(q: Question, records: Iterable[TuningRecord]) -> list[TuningRecord]:
    return sorted(records, key=lambda r: remoteness(q, r))


def remoteness(q: Question, record: TuningRecord) -> float:
    """The distance of a record of the same subscripts from the einsum that was asked about: in lengths, number of rows and
    types."""
    found = distance(dict(q.pattern_lengths), record.pattern_sizes)
    if record.pattern_key != q.pattern_key:
        (ours, our_types), (theirs, their_types) = _rows_and_types(q.pattern_key), _rows_and_types(record.pattern_key)
        found += _PER_ROWS * abs(math.log(ours / theirs)) + (_OTHER_TYPES if our_types != their_types else 0.0)
        found += _OTHER_EPILOGUE if _epilogues(q.pattern_key) != _epilogues(record.pattern_key) else 0.0
    return found


def _of_types(record: TuningRecord, q: Question) -> bool:
    return _rows_and_types(record.pattern_key)[1] == _rows_and_types(q.pattern_key)[1]


@lru_cache(maxsize=1024)
def _rows_and_types(pattern_key: str) -> tuple[int, frozenset[str]]:
    e = parse_key(pattern_key).bare
    return e.b, frozenset(a.dtype.name for a in e.arrays)


def _epilogues(key: str) -> str:
    """The part of a key that describes epilogues."""
    return "|".join(key.split("|")[5:])


def distance(ours: Mapping[str, int], theirs: Mapping[str, int]) -> float:
    """The distance of two sets of lengths: the sum of the logarithms of their ratios."""
    return sum(abs(math.log(max(1, length) / max(1, theirs.get(letter, 1)))) for letter, length in ours.items())


def instance_of(record: TuningRecord, profile: DeviceProfile) -> Instance:
    """The instance that a record was measured of, on a device that need not be the one it was measured on."""
    e = parse_key(record.einsum_key)
    return Instance.at(e, e.sizes_from(record.sizes), profile)


def time_at(record: TuningRecord, configuration: Configuration, here: Instance, space: TransformSpace) -> float:
    """The time of a record, in seconds, scaled by the ratio that the cost model expects for another einsum.

    A record that was accepted at other lengths, or on another device, only keeps the time it has.

    :param configuration: that of the record, adapted to `here`.
    :param space: that of the record.
    """
    scaled = scaled_s(record, configuration, here, space)
    return (record.median_s or math.inf) if scaled is None else scaled


def scaled_s(record: TuningRecord, configuration: Configuration, here: Instance, space: TransformSpace) -> float | None:
    """The time of :func:`time_at`, or None if the space refuses one of the two configurations."""
    there = instance_of(record, here.profile)
    with Missed(space, "for its work", expected=FeinsumError):
        ours, theirs = (expected_s(x.bare, space, c) for x, c in ((here, configuration), (there, record.configuration)))
        scaled = (record.median_s or math.inf) * ours / theirs
        return scaled + added_s(here, space, configuration) - added_s(there, space, record.configuration)
    return None


def added_s(here: Instance, space: TransformSpace, configuration: Configuration) -> float:
    """The seconds that epilogues are expected to add: those of the bytes that they move, and of a launch of their own."""
    e = here.einsum
    if not e.epilogues:
        return 0.0
    # One output instead of several is less to store, which does not make a kernel faster than its sums.
    added = max(0, e.min_bytes(here.sizes) - e.bare.min_bytes(here.sizes))
    if space.finishes(e, configuration):
        nothing = Work(flops=0, bytes=0).seconds(here.profile, 1)
        return Work(flops=0, bytes=added).seconds(here.profile, 1) - nothing
    return finishing_work(here).seconds(here.profile, e.dtype.itemsize)
