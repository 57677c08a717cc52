"""Plans of vector panels for configurations: the division of indices among work-groups, steps and registers.

    out[e, i] = Σ_k S(i, k) V(e, k)        i: lanes, e: the long index, S: resident

A plan follows from an einsum, the lengths of its indices, a configuration and the device.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.rewrites import fused, neighbours, split
from feinsum.skeletons.vector_panels import (
    GroupTile,
    PanelContraction,
    PanelOrder,
    RegisterTile,
    VectorPanels,
    broadcast_registers,
    lane_fill,
    most_vectors_in_row,
    panel_bytes,
)
from feinsum.space import Configuration, Problem

FEW_ROWS = 16
"""The rows that the hardware prefetches although they are read alternately; chosen by hand."""
_MOST_ROWS = 8
"""The most rows of broadcast numbers beside one row of vectors; more spill.  Chosen by hand."""
_MOST_TERMS = 8
"""The most terms of a sum that the last instruction writes out; chosen by hand."""
GROUPS_PER_CORE = 4
"""Groups that a core should have, so that all cores end at about the same time; chosen by hand."""
_INSIDE_SHARE = 16
"""The results that a step of a work-group computes take such a part of a core's cache at most; chosen by hand."""


def fused_problem(p: Problem) -> tuple[Problem, str]:
    """The problem with the last indices of the output as one where they are a row of every array; and these indices.

    A row of one number stays as it is.
    """
    return _fused_problem(p.einsum, tuple(p.sizes.items()), p.device)


@lru_cache(maxsize=256)
def _fused_problem(e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile) -> tuple[Problem, str]:
    """Asked for with every configuration."""
    p, letters = Problem(e, dict(sizes), device), neighbours(e)
    if len(letters) < 2 or p.count(letters) == 1:
        return p, ""
    others = {x: n for x, n in p.sizes.items() if x not in letters}
    return Problem(fused(e, letters), {**others, letters[-1]: p.count(letters)}, device), letters


def divided_row(p: Problem, long: str) -> str:
    """The longest index of fixed length of the output but its last one and the long one; "" if there is no other one."""
    others = [x for x in p.einsum.indexing.output[:-1] if x != long and not p.is_long(x)]
    return max(others, key=lambda x: p.sizes[x], default="")


def planned_problem(p: Problem, c: Configuration) -> tuple[Problem, str, tuple[str, int] | None]:
    """The problem in the indices of a plan; which of these were several, and which one was split into parts of what length.

    :raises TransformError: if there is nothing to split.
    """
    p, fused_axes = fused_problem(p)
    if not c["part"]:
        return p, fused_axes, None
    letter, length = divided_row(p, c["long"]), c["part"]
    if not letter or letter in fused_axes or length >= p.sizes[letter]:
        raise TransformError(f"no index of '{p.einsum.subscripts}' has parts of {length}")
    return _split_problem(p.einsum, tuple(p.sizes.items()), p.device, letter, length), fused_axes, (letter, length)


@lru_cache(maxsize=256)
def _split_problem(
    e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile, letter: str, length: int
) -> Problem:
    """Asked for with every configuration, as well."""
    made, chunk = split(e, letter, length)
    known = dict(sizes)
    return Problem(made, {**known, letter: length, chunk: known[letter] // length}, device)


def rows_apart(p: Problem, long: str, lane: str) -> bool:
    """Whether numbers along the long index are read from many rows: a sum goes across them."""
    operands = [x for x in p.einsum.indexing.inputs if x.endswith(long) and lane not in x]
    return any(p.count("".join(set(x) & set(p.einsum.indexing.summed))) > FEW_ROWS for x in operands)


def reads_rows_apart(p: Problem, long: str) -> bool:
    """Whether numbers along the long index are read from many rows, whatever goes across them: sums, or what is short."""
    summed = p.einsum.indexing.summed
    across = [
        "".join(y for y in x[:-1] if y in summed or not p.is_long(y)) for x in p.einsum.indexing.inputs if x.endswith(long)
    ]
    return any(p.count(x) > FEW_ROWS for x in across)


def panel_plan(p: Problem, c: Configuration) -> VectorPanels:
    """The plan of a configuration of :mod:`feinsum.transforms.vector_panels.contractions`.

    :raises TransformError: if there is none, or the device has too few registers for it; with the reason.
    """
    p, fused_axes, split_axis = planned_problem(p, c)
    if not p.device.simd_bytes:
        raise TransformError("the device has no vector registers")
    if c["lane"] == c["long"]:
        raise TransformError("lanes and tile run along one axis")
    plan = replace(_PanelPlanner(p, c).plan(), fused_axes=fused_axes, split_axis=split_axis)
    if plan.registers() + broadcast_registers(p.device) > p.device.vectors:
        most = max(tile.accumulators for tile in plan.register_tiles)
        raise TransformError(f"{most} accumulators do not stay in {p.device.vectors} registers")
    return plan


class _PanelPlanner:
    """The decisions of one plan, which follow from each other.

    :ivar at_once: the number of values of each index that a step of a work-group computes; infinity if unknown.
    :ivar block_tile: see :class:`feinsum.skeletons.vector_panels.VectorPanels`.
    """

    def __init__(self, p: Problem, c: Configuration) -> None:
        self.p, self.c, self.e = p, c, p.einsum
        self.long: str = c["long"]
        self.width: int = c["width"]
        self.order = PanelOrder.parse(c["path"])
        self.steps = self.order.contractions(self.e)
        self.at_once: dict[str, float] = {x: math.inf if p.is_long(x) else p.sizes[x] for x in self.e.indexing.indices}
        tile = min(c["tile"], p.sizes[self.long])
        self.block_tile = {self.long: GroupTile(max(1, -(-tile // c["together"])), c["together"])}
        self.at_once[self.long] = c["together"]

    def plan(self) -> VectorPanels:
        lane: str = self.c["lane"]
        if self.c["rows"] == "apart" and any(self._is_shared(step) for step in self.steps):
            raise TransformError("outputs that share a partial result are computed together")
        if lane not in self.steps[-1].kept:
            raise TransformError(f"the last contraction does not keep '{lane}'")
        if self.at_once[lane] > most_vectors_in_row(self.p.device) * self.width:
            self._share_out(lane, self._evenly(lane) * self.width)
        lanes = self._lanes(lane)
        resident = self._resident(lanes)
        self._place_rest(lane)
        left = set(self.e.indexing.indices) - set(self.e.indexing.output) - self._summed()
        if math.prod(self.at_once[x] for x in left) > _MOST_TERMS:
            raise TransformError("the sum that is left is too long to be written out")
        plan = VectorPanels(
            order=self.order,
            lane_axes=tuple(lanes),
            width=self.width,
            register_tiles=tuple(self._register_tile(step, lane) for step, lane in zip(self.steps, lanes, strict=True)),
            block_tile=self.block_tile,
            resident_factors=resident,
            staged_operands=self._staged(lane),
            product_major=self.c["rows"] == "apart",
            streaming_stores=self.c["streaming"],
            line_bytes=self.p.device.line_bytes,
        )
        return replace(plan, prefetch=self.long) if self._asks_ahead(plan) else plan

    def _evenly(self, lane: str) -> int:
        """Vectors of a tile of a long row: as many as wanted, or fewer that divide it into as many tiles more evenly."""
        wanted: int = self.c["vectors"]
        if math.isinf(self.at_once[lane]):
            return wanted
        row = -(-int(self.at_once[lane]) // self.width)
        return -(-row // -(-row // wanted))

    def _share_out(self, letter: str, at_once: int, *, inside_group: bool = False) -> None:
        """Divide an index among work-groups, or among the steps of one."""
        steps = -(-int(self.at_once[letter]) // at_once) if inside_group else 1
        self.block_tile[letter] = GroupTile(steps, at_once)
        self.at_once[letter] = at_once

    def _is_shared(self, step: PanelContraction) -> bool:
        """Whether several outputs have the result of a step in common."""
        factors = [tuple(row[k] for k in step.own if k is not None) for row in self.e.args]
        return None not in step.own and len(set(factors)) < len(factors)

    def _vectors(self, lane: str) -> int:
        if self.at_once[lane] > most_vectors_in_row(self.p.device) * self.width:
            raise TransformError(f"'{lane}' is too long for a row of vectors")
        return -(-int(self.at_once[lane]) // self.width)

    def _summed(self) -> set[str]:
        """The indices that the contractions sum over."""
        return {x for step in self.steps for letters in step.inputs for x in letters if x not in step.kept}

    def _lanes(self, lane: str) -> list[str]:
        """The lane of each step: that of the step that reads its result if it is kept, else the index that fills vectors
        best."""
        readers = self.order.readers(self.e.n)
        lanes: dict[int | None, str] = {None: lane}
        for number, step in reversed(list(enumerate(self.steps))):
            lane = lanes[readers[number]]
            if lane not in step.kept:
                # Lanes of an operand that is not copied are gathered number by number unless they are a row of memory.
                able = [x for x in step.kept if x != self.long and self._fits(x)]
                able = [x for x in able if self._is_in_rows(step, x)] or able
                if not able:
                    raise TransformError(f"no index of '{step.kept}' can run along lanes")
                lane = max(able, key=lambda x: (lane_fill(int(self.at_once[x]), self.width), self.at_once[x]))
            lanes[number] = lane
        return [lanes[number] for number in range(len(self.steps))]

    def _fits(self, lane: str) -> bool:
        """Whether an index is short enough for lanes."""
        return self.at_once[lane] <= most_vectors_in_row(self.p.device) * self.width

    def _is_in_rows(self, step: PanelContraction, lane: str) -> bool:
        """Whether every operand of the einsum that has an index is copied, or has it along its rows."""
        own = [letters for k, letters in zip(step.own, step.inputs, strict=True) if k is not None and lane in letters]
        return all(self.long not in x or x[-1] == lane for x in own)

    def _resident(self, lanes: list[str]) -> dict[int, str]:
        """The operands that a work-group copies, and the index that their vectors run along."""
        if not self.c["panel"]:
            return {}
        resident: dict[int, str] = {}
        for step, lane in zip(self.steps, lanes, strict=True):
            for k, letters in zip(step.own, step.inputs, strict=True):
                if k is not None and lane in letters and self.long not in letters:
                    resident[k] = lane
        if not resident:
            raise TransformError("no operand is shared by the iterations of a work-group")
        most = panel_bytes(self.p.device, self.c["panel"])
        for k, lane in resident.items():
            letters = self.e.indexing.inputs[k]
            free = [x for x in letters if x in self.e.indexing.output and x != lane and len(self.steps) == 1]
            for x in sorted(free, key=lambda x: (x == free[-1], -self.at_once[x])):
                if self._bytes(letters) > most or all(x in other for other in self.e.indexing.inputs):
                    self._share_out(x, self._beside_row(x, lane) if x == free[-1] else 1)
            if self._bytes(letters) > most:
                raise TransformError(f"a panel of {self._bytes(letters)} bytes exceeds {most}")
        return resident

    def _staged(self, lane: str) -> dict[int, str]:
        """The operands with the long index along a row that a work-group copies too, so that it reads whole rows."""
        if not self.c["slab"]:
            return {}
        rows = {k: x for k, x in enumerate(self.e.indexing.inputs) if x.endswith(self.long)}
        slabs = {k: self.long for k, letters in rows.items() if lane not in letters}
        if not slabs:
            raise TransformError(f"no operand has rows along '{self.long}'")
        size = self.block_tile[self.long].steps * sum(self._bytes(self.e.indexing.inputs[k]) for k in slabs)
        if size > self.p.device.own_cache_bytes:
            raise TransformError(f"slabs of {size:.0f} bytes do not stay in the caches")
        return slabs

    def _asks_ahead(self, plan: VectorPanels) -> bool:
        """Whether to prefetch, if rows along the long index lie apart, or vectors are gathered beside it."""
        if not self.c["ahead"]:
            return False
        if not reads_rows_apart(self.p, self.long) and not plan.gathered(self.e):
            raise TransformError(f"no operand has many rows along '{self.long}', and none is gathered beside it")
        return True

    def _beside_row(self, letter: str, lane: str) -> int:
        """The number of values of an index that make the wanted vectors, together with those of a row."""
        most = max(1, self.c["vectors"] // self._vectors(lane))
        return max(n for n in range(1, most + 1) if math.isinf(self.at_once[letter]) or self.at_once[letter] % n == 0)

    def _broadcast(self, letter: str, lane: str) -> int:
        """The number of values of a broadcast index that have accumulators beside a row of vectors."""
        most = min(_MOST_ROWS, self.c["accumulators"] // (self._vectors(lane) * self.c["together"]))
        known = not math.isinf(self.at_once[letter])
        return max(n for n in range(1, max(1, most) + 1) if n == 1 or (known and self.at_once[letter] % n == 0))

    def _bytes(self, letters: str) -> float:
        return math.prod(self.at_once[x] for x in letters) * self.p.itemsize

    def _place_rest(self, lane: str) -> None:
        """Remaining loops of the output: over groups if there are few, else inside them."""
        rest = [x for x in self.e.indexing.output if x not in self.block_tile and x != lane and x in self.steps[-1].kept]
        beside = [x for x in rest if any(x in letters and lane in letters for letters in self.e.indexing.inputs)]
        for x in sorted(rest, key=lambda x: -self.at_once[x]) if len(self.steps) == 1 else ():
            shared = all(x in letters for letters in self.e.indexing.inputs)
            few = self._group_count() < GROUPS_PER_CORE * self.p.device.compute_units
            tile = 1
            if x not in beside:
                tile = self._broadcast(x, lane)
            elif x == beside[-1] and not shared:
                tile = self._beside_row(x, lane)
            self._share_out(x, tile, inside_group=not (math.isinf(self.at_once[x]) or shared or few))
        if any(math.isinf(self.at_once[x]) for step in self.steps for x in step.kept):
            raise TransformError("a partial result has no fixed length")
        partial = sum(self._bytes(step.kept) for step in self.steps[:-1]) * (1 if self.c["rows"] == "apart" else self.e.b)
        if partial > self.p.device.own_cache_bytes:
            raise TransformError(f"{partial} bytes of partial results fit in no cache of a core")
        if self._bytes(self.steps[-1].kept) > self.p.device.own_cache_bytes // _INSIDE_SHARE:
            raise TransformError(f"{self._bytes(self.steps[-1].kept)} bytes of results are kept at once")

    def _group_count(self) -> int:
        return math.prod(-(-self.p.sizes[x] // tile.covered) for x, tile in self.block_tile.items())

    def _register_tile(self, step: PanelContraction, lane: str) -> RegisterTile:
        """The number of values of each index that have accumulators at once: a tile of vectors times broadcast numbers."""
        vectors = self._vectors(lane)
        held = dict.fromkeys(step.kept.replace(lane, ""), 1)
        rows = [letters for letters in step.inputs if lane in letters]
        # Where a row is divided there are other numbers to multiply the same vectors by.
        if self.long in held and not (self.c["part"] and all(self.long in letters for letters in rows)):
            held[self.long] = self.c["together"]
        free = [x for x in held if x != self.long]
        beside = [x for x in free if any(x in letters and lane in letters for letters in step.inputs)]
        apart = [x for x in free if x not in beside]
        room = self.p.device.vectors - broadcast_registers(self.p.device) - vectors
        wanted, budget = self.c["vectors"], min(self.c["accumulators"], room)
        for letters, most in ((beside, wanted), (apart, budget), (beside, budget)):
            for x in sorted(letters, key=lambda x: (-self.at_once[x], x)):
                counted = beside if most == wanted else held
                others = vectors * math.prod(held[y] for y in counted if y != x)
                fitting = [n for n in range(1, int(self.at_once[x]) + 1) if self.at_once[x] % n == 0 and n * others <= most]
                held[x] = max([held[x], *fitting])
        return RegisterTile(vectors, held)
