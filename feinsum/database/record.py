"""Records: one measured or failed configuration with its device, versions, and the time of every sample.

The median of the samples ranks a record; the median absolute deviation, ``median(|t - median(t)|)``, says how far to
trust it.  A record is identified by a hash of its content, so two equal records are one.
"""

from __future__ import annotations

import json
import logging
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from typing import Any

from feinsum.database import field_checks
from feinsum.database.frozen import FrozenMapping
from feinsum.errors import DatabaseError

_log = logging.getLogger(__name__)

STATUSES = ("ok", "wrong", "compile-failed", "launch-failed", "timeout", "refused")
"""The possible outcomes of a trial; only ``ok`` is ranked."""

Text = str | bytes | bytearray
Value = int | float | str | bool
"""The value of one parameter of a configuration."""

MESSAGE_LIMIT = 2000
"""Characters kept of a failure's message: its head and its tail, where compilers put what matters."""

_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


def utc_now() -> str:
    """The present as ``2026-11-20T09:19:00.123456Z``, which sorts as text."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True, kw_only=True)
class TuningRecord:
    """One configuration of a transform space, tried on one device.

    :ivar einsum_key: the canonical key of the einsum.
    :ivar pattern_key: the canonical key of the same einsum with every axis long.
    :ivar sizes: the length of each index of `einsum_key`, by letter.
    :ivar pattern_sizes: the length of each index of `pattern_key`, by letter.
    :ivar device: the id of the device profile.
    :ivar architecture: the name that the device shares with others for which the same kernels are fast.
    :ivar driver: the version of the OpenCL driver.
    :ivar space: the name of the transform space, of version `space_version`.
    :ivar configuration: the value of each parameter of the space.
    :ivar status: one of :data:`STATUSES`.
    :ivar flops: operations of one evaluation along the cheapest schedule.
    :ivar bytes: bytes that one evaluation must move at least.
    :ivar protocol: the version of the timing protocol.
    :ivar samples_s: every timing sample, in seconds.
    :ivar message: why it failed, or which configurations were as fast in its final; control characters are replaced and the
        middle of a long text is left out.
    :ivar versions: the version of each library that took part.
    :ivar seed: of the random inputs and of a length at which it was proved, if known.
    :ivar created: when, in the format of :func:`utc_now`.
    :raises DatabaseError: if a field is malformed; the message names field and value.
    """

    einsum_key: str
    pattern_key: str
    sizes: Mapping[str, int]
    pattern_sizes: Mapping[str, int]
    device: str
    architecture: str
    driver: str
    space: str
    space_version: int
    configuration: Mapping[str, Value]
    status: str
    flops: int
    bytes: int
    protocol: int
    samples_s: tuple[float, ...] = ()
    message: str = ""
    versions: Mapping[str, str] = field(default_factory=lambda: FrozenMapping({}))
    seed: int | None = None
    created: str = field(default_factory=utc_now)

    def _repr_html_(self) -> str:
        from feinsum.report.displays import record_html

        return record_html(self)

    def __post_init__(self) -> None:
        for name in ("einsum_key", "pattern_key"):
            field_checks.printable_text(name, getattr(self, name), field_checks.KEY_LIMIT)
        for name in ("device", "architecture", "driver", "space"):
            field_checks.printable_text(name, getattr(self, name), field_checks.NAME_LIMIT)
        for name in ("space_version", "flops", "bytes", "protocol"):
            self._set(name, field_checks.bounded_integer(name, getattr(self, name), at_least=0))
        if self.seed is not None:
            self._set("seed", field_checks.bounded_integer("seed", self.seed))
        for name in ("sizes", "pattern_sizes"):
            self._set(name, field_checks.mapping(name, getattr(self, name), field_checks.positive_length))
        self._set("configuration", field_checks.mapping("configuration", self.configuration, field_checks.parameter))
        self._set("versions", field_checks.mapping("versions", self.versions, field_checks.printable_text))
        self._set("samples_s", field_checks.samples("samples_s", self.samples_s))
        self._set("message", field_checks.message("message", self.message, MESSAGE_LIMIT))
        self._check_status()
        self._check_created()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_status(self) -> None:
        if self.status not in STATUSES:
            raise DatabaseError(
                f"status of a record is {field_checks.shown_value(self.status)}; it is one of {', '.join(STATUSES)}"
            )
        if self.status == "ok" and not self.samples_s:
            raise DatabaseError("samples_s of a record is empty though its status is 'ok'; give the timing samples")

    def _check_created(self) -> None:
        try:
            if not isinstance(self.created, str) or not _CREATED.fullmatch(self.created):
                raise ValueError
            datetime.fromisoformat(self.created)
        except ValueError:
            raise DatabaseError(
                f"created of a record is {field_checks.shown_value(self.created)};"
                " it is a time like 2026-11-20T09:19:00.123456Z"
            ) from None

    @cached_property
    def median_s(self) -> float | None:
        """The median of the samples in seconds; None unless the status is ``ok``."""
        return statistics.median(self.samples_s) if self.status == "ok" else None

    @cached_property
    def spread_s(self) -> float | None:
        """The median absolute deviation of the samples in seconds; None unless the status is ``ok``."""
        if self.median_s is None:
            return None
        return statistics.median(abs(sample - self.median_s) for sample in self.samples_s)

    @cached_property
    def id(self) -> str:
        """A hash of the content: 32 hexadecimal digits."""
        return identify(self.to_json())

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data; those at their default are left out, so that ids survive a new field."""
        found: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in _DEFAULTS and value == _DEFAULTS[f.name]:
                continue
            if isinstance(value, FrozenMapping):
                value = dict(value)
            elif isinstance(value, tuple):
                value = list(value)
            found[f.name] = value
        return found

    def to_json(self) -> str:
        """One line of JSON, keys in order; floats as their shortest exact text."""
        return json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_dict(cls, items: Mapping[str, Any]) -> TuningRecord:
        """The inverse of :meth:`to_dict`.

        :raises DatabaseError: if a field is missing, unknown or malformed.
        """
        if unknown := items.keys() - _FIELDS:
            raise DatabaseError(
                f"unknown field {field_checks.shown_value(min(unknown))};"
                " a newer feinsum may have written it, so update this one"
            )
        if missing := _REQUIRED - items.keys():
            raise DatabaseError(f"field {min(missing)!r} is missing")
        return cls(**items)

    @classmethod
    def from_json(cls, text: Text) -> TuningRecord:
        """The inverse of :meth:`to_json`; reads data only and executes nothing.

        :raises DatabaseError: if the text is no JSON object (NaN, infinities and repeated keys are refused), or a
            field is missing, unknown or malformed.
        """
        return cls.from_dict(field_checks.json_object(text))


def identify(text: str) -> str:
    """The id of the record whose line of JSON is `text`."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


def parse_stored(text: str, where: str) -> TuningRecord | None:
    """The record that a store holds as `text`, or None: a damaged row of a store is a miss, never an exception."""
    try:
        return TuningRecord.from_json(text)
    except DatabaseError as error:
        _log.warning("%s holds a row that is no record: %s", where, error)
        return None


_DEFAULTS: dict[str, Any] = {"message": "", "samples_s": (), "versions": {}, "seed": None}
"""Left out of the text of a record."""
_FIELDS = frozenset(f.name for f in fields(TuningRecord))
_REQUIRED = _FIELDS - _DEFAULTS.keys()
