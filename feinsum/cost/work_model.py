"""The time that follows from the work of a kernel, before anything is measured::

    t = launches · t_launch + unevenness · max(operations / rate, loads / load rate, bytes / bandwidth)     on CPUs
    t = launches · t_launch + unevenness · max(max(operations / rate + loads / load rate, bytes / bandwidth) / occupancy,
                                               groups · t_group)                                             on GPUs
    rate  ~  compute units · clock · lanes

Latency has to be hidden: on CPUs by independent sums, or the rate is less; on GPUs by work-items that a compute unit holds
at a time, the occupancy.  There a sub-group waits for what it loads, so operations and loads take turns.

Where a space knows what comes from the cache that all compute units share, copies run beside products, and work-groups
come in rounds (:func:`rounds_s`), the last of which may be a small one.

Rate, bandwidth and load rate are nominal values for each compute unit, whatever its clock.  They are right within a factor
of two or three on CPUs and GPUs of today, so they rank configurations; records teach the rest (:mod:`feinsum.cost.model`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

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
_ITEMS_IN_FLIGHT = 256
"""Work-items that a compute unit of a GPU needs, for the same."""
_LOADED_BYTES = 128
"""Bytes that a compute unit of a GPU loads in a cycle from caches and local memory."""
_APART = 8
"""Loads of numbers that lie apart, for one of neighbours."""
_PASSES = 4
"""How often an operand comes from memory that is read across its rows: once for each number of a sector."""
_GROUP_S = 80e-9
"""How long a compute unit of a GPU takes to begin a work-group: what limits kernels of groups that have little to do."""
_MOST_GROUPS = 32
"""Work-groups that a compute unit of a GPU holds at most."""
_SHARED_BYTES = 24
"""Bytes that a compute unit of a GPU gets in a cycle from the cache that all of them share."""
_WAIT_S = 80e-9
"""How long the work-items of a group wait for each other."""
_FEW_ITEMS = 50
"""With so many work-items in a compute unit, products take twice as long as with very many."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work that one configuration makes a device do, as far as its space can tell without making a kernel.

    :ivar flops: operations, padding and repetition counted.
    :ivar bytes: bytes moved between memory and caches, partial results counted.
    :ivar loads: bytes that instructions load from caches, local memory or private arrays; 0 if that is not known.
    :ivar shared: those of them that come from the cache that all compute units of a GPU share; 0 if that is not known.
    :ivar stored: bytes of results, in whole sectors, which groups store when all else is done; told with `shared`.
    :ivar waits: how often the work-items of a group wait for each other; told with `shared`.
    :ivar launches: kernels launched one after the other.
    :ivar groups: work-groups of the largest launch; 0 if that is not known.
    :ivar items: work-items of a group.
    :ivar lanes: operations that one instruction does; 0 for what the compiler makes of the work-items.
    :ivar sums: independent sums of a work-item, which hide the latency of additions; 0 if that is not known.
    :ivar registers_bytes: private memory of a work-item that is to stay in registers.
    :ivar local_bytes: local memory of a group.
    :ivar bandwidth: what it has of the memory bandwidth of a kernel whose work-items each wait for one number of every
        operand; more where they have more loads in flight.
    :ivar matrix: whether matrix units do the products.
    :ivar parts: launches one after the other of which this is the sum, if there are several.
    """

    flops: float
    bytes: float
    loads: float = 0.0
    shared: float = 0.0
    stored: float = 0.0
    waits: float = 0.0
    launches: int = 1
    groups: float = 0.0
    items: float = 1.0
    lanes: float = 0.0
    sums: float = 0.0
    registers_bytes: float = 0.0
    local_bytes: float = 0.0
    bandwidth: float = 1.0
    matrix: bool = False
    parts: tuple[Work, ...] = ()

    def seconds(self, device: DeviceProfile, itemsize: int) -> float:
        """The time that follows, in seconds.

        :param itemsize: bytes of a number.
        """
        if self.parts:
            return sum(part.seconds(device, itemsize) for part in self.parts)
        clock, units = _CLOCK_HZ.get(device.kind, _OTHER_CLOCK_HZ), max(1, device.compute_units)
        widest = device.simd_bytes / itemsize if device.simd_bytes else _LANES_OF_GPU * 8 / itemsize
        lanes = min(self.lanes, widest) if self.lanes and device.simd_bytes else widest
        cycle_s = 1 / (units * clock)
        bytes_s = self.bytes / (units * _UNIT_BYTES_PER_S * self.bandwidth)
        if device.simd_bytes:
            flops_s = cycle_s * self.flops / (4 * lanes * min(1.0, (self.sums or _SUMS_IN_FLIGHT) / _SUMS_IN_FLIGHT))
            busiest = max(flops_s, cycle_s * self.loads / (2 * lanes * itemsize), bytes_s)
        elif self.shared:
            return self.launches * _OTHER_LAUNCH_S + math.hypot(
                float(rounds_s(device, itemsize, **self._counts(device))), bytes_s
            )
        else:
            computing_s = cycle_s * (self.flops / ((4 if self.matrix else 2) * lanes) + self.loads / _LOADED_BYTES)
            busiest = max(max(computing_s, bytes_s) / self._occupancy(device), self.groups / units * _GROUP_S)
        return self.launches * _LAUNCH_S.get(device.kind, _OTHER_LAUNCH_S) + busiest * self.unevenness(device)

    def _counts(self, device: DeviceProfile) -> dict[str, Any]:
        """The counts that :func:`rounds_s` takes."""
        return {
            "flops": self.flops,
            "shared": self.shared,
            "local": self.loads - self.shared,
            "stored": self.stored,
            "waits": self.waits,
            "groups": self.groups,
            "held": self.at_once(device) / max(1, device.compute_units),
            "items": self.items,
            "matrix": self.matrix,
        }

    def _occupancy(self, device: DeviceProfile) -> float:
        """The work-items that a compute unit of a GPU holds, over those that it needs: at most 1."""
        if not self.groups:
            return 1.0
        units = max(1, device.compute_units)
        held = min(self.at_once(device) / units, max(1.0, self.groups / units))
        return min(1.0, held * self.items / _ITEMS_IN_FLIGHT)

    def at_once(self, device: DeviceProfile) -> int:
        """The work-groups that the device runs at a time."""
        if device.kind == "cpu":
            return max(1, device.compute_units)
        registers = device.registers_per_compute_unit if self.registers_bytes else None
        limits = [_MOST_GROUPS, (1 if registers is None else 2) * device.max_work_group_size / self.items]
        if registers is not None:
            limits.append(4 * registers / (self.items * self.registers_bytes))
        if self.local_bytes:
            limits.append(max(device.local_memory_bytes, device.static_local_memory_bytes) / self.local_bytes)
        return max(1, device.compute_units) * max(1, int(min(limits)))

    def pressure(self, device: DeviceProfile) -> float:
        """The registers that all groups want which a compute unit could hold, over those it has; 0 if they are not known.

        Compilers need more than a space can count: from about 0.8 on they may keep numbers in memory instead.
        """
        registers = device.registers_per_compute_unit
        if not (registers and self.registers_bytes and self.groups):
            return 0.0
        held = min(self.groups / max(1, device.compute_units), _MOST_GROUPS, 2 * device.max_work_group_size / self.items)
        return self.registers_bytes / 4 * self.items * max(1.0, held) / registers

    def unevenness(self, device: DeviceProfile) -> float:
        """How much longer the last compute unit works than the average one: at least 1."""
        if not self.groups:
            return 1.0
        units = max(1, device.compute_units)
        return math.ceil(self.groups / units) * units / self.groups


def rounds_s(
    device: DeviceProfile,
    itemsize: int,
    *,
    flops: Any,
    shared: Any,
    local: Any,
    stored: Any,
    waits: Any,
    groups: Any,
    held: Any,
    items: Any,
    matrix: bool,
) -> Any:
    """The time of products by work-groups of a GPU that come in rounds, in seconds; numbers, or arrays of them.

    A compute unit holds h groups at a time.  Products, copies from the shared cache and loads from local memory run beside
    each other, at the rates of the unit; a group waits for its copies, tile by tile, and for its results::

        round(h)  =  h · sqrt(products² + shared² + local²) · (1 + few / work-items)  +  waits  +  results

    Of n groups on u units there are n / (u h) whole rounds, and one of those that are left.

    Fitted to 5274 times of products on an H200 until 2026-11-25.  Of what was measured of a product of more than a billion
    operations, the quickest by this estimate takes 1.13 of the best; with occupancy, and loads in turn, it was 1.22.

    :param flops: of all groups, like `shared`, `local` and `stored`, which are bytes.
    :param waits: of a group.
    :param held: groups that a compute unit holds at most, of so many `items`.
    """
    units = max(1, device.compute_units)
    lanes, cycle_s = _LANES_OF_GPU * 8 / itemsize, 1 / _OTHER_CLOCK_HZ
    each = [flops / ((4 if matrix else 2) * lanes), shared / _SHARED_BYTES, local / _LOADED_BYTES]
    there = np.minimum(held, np.ceil(groups / units))
    few = 1 + _FEW_ITEMS / (there * items)
    busy_s = cycle_s / groups * np.sqrt(sum(cycles**2 for cycles in each)) * few
    idle_s = waits * _WAIT_S + stored / groups / _UNIT_BYTES_PER_S
    rounds, left = np.divmod(groups, units * held)
    last = np.ceil(left / units)
    return rounds * (held * busy_s + idle_s) + last * busy_s + (last > 0) * idle_s


def nest_work(
    indexing: Subscripts,
    sizes: Mapping[str, int],
    itemsize: int,
    lane: str | None,
    items: int,
    *,
    times: int = 1,
    shared: str = "",
) -> Work:
    """The work of a loop nest in which work-items are entries of the output.

    :param sizes: the length of every index.
    :param itemsize: bytes of a number.
    :param lane: the index of the output that runs along the work-items of a group; None if a group sums one entry.
    :param items: work-items of a group.
    :param times: how many such nests there are.
    :param shared: the summed index that the work-items of a group share, if a group sums one entry.

    Where neighbours along the lane lie apart in an operand, each work-item costs a load, elsewhere all cost one.  If what
    lies beside it is for other groups, it has left the cache by then.  Work-items that share a sum of several indices go
    across rows.
    """

    def span(letters: str) -> int:
        return math.prod(sizes[x] for x in letters)

    def passes(letters: str) -> int:
        return _PASSES if lane is not None and lane in letters[:-1] and letters[-1] not in indexing.summed else 1

    def is_apart(letters: str) -> bool:
        if lane is not None:
            return lane in letters[:-1]
        return shared in letters and any(x in indexing.summed and x != shared for x in letters)

    points, operands = times * span(indexing.indices), indexing.inputs
    weights = (_APART if is_apart(letters) else 1 for letters in operands)
    groups = times * span(indexing.output.replace(lane, "") if lane else indexing.output)
    if lane:
        groups *= -(-sizes[lane] // items)
    return Work(
        flops=points * len(operands),
        bytes=times * itemsize * (sum(passes(x) * span(x) for x in operands) + span(indexing.output)),
        loads=points * itemsize * sum(weights),
        groups=groups,
        items=items,
        sums=1,
    )


def in_turn(works: Sequence[Work]) -> Work:
    """The work of launches one after the other; where something cannot be added up, it is that of the largest."""
    if len(works) == 1:
        return works[0]
    largest = max(works, key=lambda w: w.flops)
    return replace(
        largest,
        flops=sum(w.flops for w in works),
        bytes=sum(w.bytes for w in works),
        loads=sum(w.loads for w in works),
        launches=sum(w.launches for w in works),
        parts=tuple(part for w in works for part in w.parts or (w,)),
    )
