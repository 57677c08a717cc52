"""The time that follows from what a kernel does, before anything was measured::

    t = launches · t_launch + max(operations / rate, bytes / bandwidth, loads / load rate) · unevenness

    rate  ~  compute units · clock · lanes · min(1, independent sums / what the latency of an addition takes)

Rate, bandwidth and load rate are nominal: so much for each compute unit, whatever its clock.  They are right within a
factor of two or three on CPUs and GPUs of today, so they rank configurations; what they miss is what records teach
(:mod:`feinsum.cost.model`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feinsum.devices import DeviceProfile
    from feinsum.subscripts import Subscripts

_CLOCK_HZ = {"cpu": 3e9}
_OTHER_CLOCK_HZ = 1.5e9
_LANES_OF_GPU = 64
"""Multiply-adds of float64 that a compute unit of a GPU begins in a cycle; twice as many in float32."""
_UNIT_BYTES_PER_S = 25e9
"""Memory bandwidth for each compute unit."""
_LAUNCH_S = {"cpu": 3e-6}
_OTHER_LAUNCH_S = 10e-6
_SUMS_IN_FLIGHT = 8
"""Independent sums that a core needs: two units whose additions take four cycles."""
_APART = 8
"""Loads of numbers that lie apart, for one of neighbours."""
_GROUPS_AT_ONCE = 4
"""Work-groups of a compute unit of a GPU that hide each other's latency, where nothing is said about their memory."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one configuration makes a device do, as far as its space can tell without making a kernel.

    :ivar flops: operations, padding and repetition counted.
    :ivar bytes: bytes moved between memory and caches, partial results counted.
    :ivar loads: bytes that instructions load from caches, local memory or private arrays; 0 if that is not known.
    :ivar launches: kernels launched one after the other.
    :ivar groups: work-groups of the largest launch; 0 if that is not known.
    :ivar items: work-items of a group.
    :ivar lanes: operations that one instruction does; 0 for what the compiler makes of the work-items.
    :ivar sums: independent sums of a work-item, which hide the latency of additions; 0 if that is not known.
    :ivar registers_bytes: private memory of a work-item that is to stay in registers.
    :ivar local_bytes: local memory of a group.
    :ivar matrix: whether matrix units do the products.
    """

    flops: float
    bytes: float
    loads: float = 0.0
    launches: int = 1
    groups: float = 0.0
    items: float = 1.0
    lanes: float = 0.0
    sums: float = 0.0
    registers_bytes: float = 0.0
    local_bytes: float = 0.0
    matrix: bool = False

    def seconds(self, device: DeviceProfile, itemsize: int) -> float:
        """The time that follows, in seconds.

        :param itemsize: bytes of a number.
        """
        clock, units = _CLOCK_HZ.get(device.kind, _OTHER_CLOCK_HZ), max(1, device.compute_units)
        widest = device.simd_bytes / itemsize if device.simd_bytes else _LANES_OF_GPU * 8 / itemsize
        lanes = min(self.lanes, widest) if self.lanes and device.simd_bytes else widest
        rate = units * clock * lanes * (4 if device.simd_bytes or self.matrix else 2)
        if self.sums and device.simd_bytes:
            rate *= min(1.0, self.sums / _SUMS_IN_FLIGHT)
        load_rate = units * clock * (2 * lanes if device.simd_bytes else _LANES_OF_GPU / 2) * itemsize
        busiest = max(self.flops / rate, self.bytes / (units * _UNIT_BYTES_PER_S), self.loads / load_rate)
        launch_s = self.launches * _LAUNCH_S.get(device.kind, _OTHER_LAUNCH_S)
        return launch_s + busiest * self.unevenness(device)

    def at_once(self, device: DeviceProfile) -> int:
        """The work-groups that the device runs at a time."""
        if device.kind == "cpu":
            return max(1, device.compute_units)
        limits = [float(_GROUPS_AT_ONCE)]
        if self.local_bytes:
            most = max(device.local_memory_bytes, device.static_local_memory_bytes)
            limits.append(most / self.local_bytes)
        if self.registers_bytes and device.registers_per_compute_unit:
            limits.append(4 * device.registers_per_compute_unit / (self.items * self.registers_bytes))
        return max(1, device.compute_units) * max(1, int(min(limits)))

    def unevenness(self, device: DeviceProfile) -> float:
        """How much longer the last compute unit works than the average one: at least 1."""
        if not self.groups:
            return 1.0
        slots = self.at_once(device)
        return math.ceil(self.groups / slots) * slots / self.groups


def nest_work(
    indexing: Subscripts, sizes: Mapping[str, int], itemsize: int, lane: str | None, items: int, *, times: int = 1
) -> Work:
    """The work of a loop nest in which work-items are entries of the output.

    :param sizes: the length of every index.
    :param itemsize: bytes of a number.
    :param lane: the index of the output that runs along the work-items of a group; None if a group sums one entry.
    :param items: work-items of a group.
    :param times: how many such nests there are.

    Where neighbours along the lane lie apart in an operand, each work-item costs a load, elsewhere all cost one.
    """

    def span(letters: str) -> int:
        return math.prod(sizes[x] for x in letters)

    points, operands = times * span(indexing.indices), indexing.inputs
    weights = (_APART if lane is not None and lane in letters[:-1] else 1 for letters in operands)
    groups = times * span(indexing.output.replace(lane, "") if lane else indexing.output)
    if lane:
        groups *= -(-sizes[lane] // items)
    return Work(
        flops=points * len(operands),
        bytes=times * itemsize * (sum(map(span, operands)) + span(indexing.output)),
        loads=points * itemsize * sum(weights),
        groups=groups,
        items=items,
        sums=1,
    )


def in_turn(works: Sequence[Work]) -> Work:
    """The work of launches one after the other."""
    largest = max(works, key=lambda w: w.flops)
    return replace(
        largest,
        flops=sum(w.flops for w in works),
        bytes=sum(w.bytes for w in works),
        loads=sum(w.loads for w in works),
        launches=sum(w.launches for w in works),
    )
