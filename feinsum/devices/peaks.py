"""Peaks: the highest rates that a device reaches, measured once on this machine and remembered; the roofs of the
roofline."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from feinsum.devices.json_store import data_directory, read_json, write_json
from feinsum.devices.naming import slug
from feinsum.devices.profile import DeviceProfile

BUSY = 0.8
"""The share of a CPU below which its figures are too low."""

EXCESS = 1.1
"""The share of the peaks above which a kernel shows that these are too low: figures and kernels differ by some per cent."""

_ATTEMPTS = 3
"""To find a CPU idle."""
_BUSY_REMEMBERED_S = 3600.0
_DOUBTED_AFTER_S = 600.0
"""Age from which peaks are measured again for a kernel that is faster; a kernel faster than fresh peaks was measured
elsewhere."""
_TIMES = ("launch_s", "round_trip_s")
_FORMAT = 1
"""Raised when the benchmarks change so that old and new figures should not be compared."""


@dataclass(frozen=True)
class Peaks:
    """Medians over several samples, each of the fastest of a few ways to do the same.

    :param fp32_flops_per_s: fused multiply-adds of vectors, each counted as two operations.
    :param fp64_flops_per_s: the same in float64; None without it.
    :param fp64_matrix_flops_per_s: float64 products on matrix units; None without them.
    :param copy_bytes_per_s: bytes read plus bytes written while copying arrays that no cache holds.
    :param read_bytes_per_s: bytes read while summing such an array.
    :param launch_s: from one empty kernel to the next in a full queue.
    :param round_trip_s: to launch one empty kernel and wait for it.
    :param processor_share: the share of a CPU that this process had while measuring: figures of a busy machine are too low.
    :param spread: of each figure, the median absolute deviation over the median.
    """

    fp32_flops_per_s: float
    fp64_flops_per_s: float | None
    fp64_matrix_flops_per_s: float | None
    copy_bytes_per_s: float
    read_bytes_per_s: float
    launch_s: float
    round_trip_s: float
    processor_share: float
    spread: Mapping[str, float] = field(hash=False)

    def flops_per_s(self, dtype: Any) -> float:
        """The most operations per second on real numbers of `dtype`, or of its parts if it is complex.

        Integers are given the rate of the floating-point type of their size, as no benchmark of ours measures them.

        :raises ValueError: for eight-byte numbers on a device without float64.
        """
        dtype = np.dtype(dtype)
        size = dtype.itemsize // (2 if dtype.kind == "c" else 1)
        if size < 8:
            return self.fp32_flops_per_s
        if self.fp64_flops_per_s is None:
            raise ValueError(f"this device has no float64, so no rate for {dtype}; use a type of four bytes")
        return max(self.fp64_flops_per_s, self.fp64_matrix_flops_per_s or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """These peaks in the types of JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Peaks:
        """The peaks that :meth:`to_dict` wrote.

        :raises KeyError: if a figure is missing.
        :raises TypeError: if one is not a number.
        :raises ValueError: if one is not positive.
        """
        values = {name: data[name] for name in cls.__dataclass_fields__ if name != "spread"}
        for name, value in values.items():
            if value is None and name.startswith("fp64"):
                continue
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise TypeError(f"{name} is {value!r}, not a number")
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value!r}, not a positive number")
        return cls(**values, spread={str(name): float(value) for name, value in data["spread"].items()})


def settled_figures(measure: Callable[[], Peaks]) -> Peaks:
    """The figures measured on an idle CPU, or else the best of a few attempts.

    >>> busy = Peaks(1e9, None, None, 1e9, 1e9, 1e-6, 2e-6, 0.4, {})
    >>> idle = Peaks(4e9, None, None, 2e9, 2e9, 1e-6, 1e-6, 0.99, {})
    >>> settled_figures(iter([busy, idle]).__next__) == idle
    True
    """
    found: list[Peaks] = []
    while len(found) < _ATTEMPTS and (not found or found[-1].processor_share < BUSY):
        found.append(measure())
    if found[-1].processor_share >= BUSY:
        return found[-1]
    return reduce(_better_figures, found)


def _better_figures(one: Peaks, other: Peaks) -> Peaks:
    """The better of two values of each figure."""
    values = {name: getattr(one, name) for name in Peaks.__dataclass_fields__ if name != "spread"}
    spread = dict(one.spread)
    for name, value in values.items():
        theirs = getattr(other, name)
        if value is not None and theirs is not None and (theirs < value) == (name in _TIMES):
            values[name] = theirs
            spread |= {name: other.spread[name]} if name in other.spread else {}
    return Peaks(**values, spread=spread)


def remembered_peaks(profile: DeviceProfile) -> Peaks | None:
    """The peaks measured before on a device of this id and driver; None if there are none.

    Those of a busy machine count for an hour, so that one bad moment does not lower the roof for ever.
    """
    data: Any = read_json(_peaks_file(profile))
    try:
        peaks = Peaks.from_dict(data["peaks"])
        meant = (data["id"], data["driver"], data["format"]) == (profile.id, profile.driver, _FORMAT)
        lasting = peaks.processor_share >= BUSY or time.time() < data["measured_at_s"] + _BUSY_REMEMBERED_S
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None
    return peaks if meant and lasting else None


def are_old(profile: DeviceProfile) -> bool:
    """Whether the remembered peaks were measured some time ago, if there are any."""
    data: Any = read_json(_peaks_file(profile))
    try:
        return bool(time.time() > data["measured_at_s"] + _DOUBTED_AFTER_S)
    except (KeyError, TypeError, IndexError):
        return False


def remember_peaks(profile: DeviceProfile, peaks: Peaks) -> None:
    """Keep `peaks` in the user's data directory for every later process."""
    key = {"format": _FORMAT, "id": profile.id, "driver": profile.driver}
    write_json(_peaks_file(profile), {**key, "measured_at_s": time.time(), "peaks": peaks.to_dict()})


def _peaks_file(profile: DeviceProfile) -> Path:
    digest = hashlib.sha256(f"{profile.id}\n{profile.driver}".encode()).hexdigest()[:12]
    return data_directory() / "peaks" / f"{slug(profile.id)}-{digest}.json"
