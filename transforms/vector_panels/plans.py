"""Plans of vector panels: which index runs along lanes, what stays in registers, what a work-group copies and covers.

    out[e, i] = Σ_k S(i, k) V(e, k)        i: lanes, e: the long index, S: the panel

A plan follows from an einsum, the lengths of its indices and a configuration; it says nothing about loopy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import fused, neighbours
from feinsum.skeletons.vector_panels.write import Panel, Stage, readers_of
from feinsum.space import Configuration, Problem

from .limits import fill, inside_bytes, panel_bytes
from .paths import Contraction, contractions

MOST_VECTORS_IN_ROW = 8
"""A longer row is divided into panels."""
FEW_ROWS = 16
"""That the hardware foresees, though they are read in turns."""
MOST_ROWS = 8
"""Of numbers that are broadcast beside one row of vectors; more spill."""
MOST_TERMS = 8
"""Of a sum that the last instruction writes out."""
GROUPS_PER_CORE = 4


class RefusedError(Exception):
    """Why a configuration has no plan."""


def is_vectorizable(e: BatchedEinsum) -> bool:
    """Whether lanes can run along one axis of the output, and a tile along another one."""
    plain = all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)
    real = all(a.dtype in ("float32", "float64") for row in e.args for entry in row for a in entry)
    return plain and real and e.n >= 2 and len(e.indexing.output) >= 2


def fused_problem(p: Problem) -> tuple[Problem, str]:
    """The problem with the last indices of the output as one where they are a row of every array; and these indices.

    A row of one number stays as it is.
    """
    letters = neighbours(p.einsum)
    if len(letters) < 2 or p.count(letters) == 1:
        return p, ""
    sizes = {x: n for x, n in p.sizes.items() if x not in letters}
    return Problem(fused(p.einsum, letters), {**sizes, letters[-1]: p.count(letters)}, p.device), letters


def rows_apart(p: Problem, long: str, lane: str) -> bool:
    """Whether numbers along the long index are read from many rows: a sum goes across them."""
    operands = [x for x in p.einsum.indexing.inputs if x.endswith(long) and lane not in x]
    return any(p.count("".join(set(x) & set(p.einsum.indexing.summed))) > FEW_ROWS for x in operands)


def panel_plan(p: Problem, c: Configuration) -> Panel:
    """The plan of a configuration of :mod:`feinsum.transforms.vector_panels.contractions`.

    :raises RefusedError: if there is none, with the reason.
    """
    if not p.device.simd_bytes:
        raise RefusedError("the device has no vector registers")
    if c["lane"] == c["long"]:
        raise RefusedError("lanes and tile run along one axis")
    return _Planner(p, c).plan()


class _Planner:
    """The decisions of one plan.

    :ivar inside: how many of each index a work-group treats at once; infinity if that is not known.
    :ivar groups: see :class:`feinsum.rewrites.Panel`.
    """

    def __init__(self, p: Problem, c: Configuration) -> None:
        self.p, self.c, self.e = p, c, p.einsum
        self.long: str = c["long"]
        self.width: int = c["width"]
        self.steps = contractions(self.e, c["path"])
        self.inside: dict[str, float] = {x: math.inf if p.is_long(x) else p.sizes[x] for x in self.e.indexing.indices}
        tile = min(c["tile"], p.sizes[self.long])
        self.groups = {self.long: (max(1, -(-tile // c["together"])), c["together"])}
        self.inside[self.long] = c["together"]

    def plan(self) -> Panel:
        lane: str = self.c["lane"]
        if self.c["rows"] == "apart" and any(self._is_shared(step) for step in self.steps):
            raise RefusedError("outputs that share a partial result are computed together")
        if lane not in self.steps[-1].kept:
            raise RefusedError(f"the last contraction does not keep '{lane}'")
        if self.inside[lane] > MOST_VECTORS_IN_ROW * self.width:
            self._cover(lane, self._evenly(lane) * self.width)
        lanes = self._lanes(lane)
        panels = self._panels(lanes)
        self._place_rest(lane)
        left = set(self.e.indexing.indices) - set(self.e.indexing.output) - self._summed()
        if math.prod(self.inside[x] for x in left) > MOST_TERMS:
            raise RefusedError("the sum that is left is too long to be written out")
        stages = tuple(
            Stage(step.operands, lane, self._registers(step, lane)) for step, lane in zip(self.steps, lanes, strict=True)
        )
        panels |= self._slabs(lane)
        return Panel(
            stages,
            panels,
            self.groups,
            self.width,
            apart=self.c["rows"] == "apart",
            streaming=self.c["streaming"],
            ahead=self._ahead(lane),
            line_bytes=self.p.device.line_bytes,
        )

    def _evenly(self, lane: str) -> int:
        """Vectors of a tile of a long row: as many as wanted, or fewer that divide it into as many tiles more evenly."""
        wanted: int = self.c["vectors"]
        if math.isinf(self.inside[lane]):
            return wanted
        row = -(-int(self.inside[lane]) // self.width)
        return -(-row // -(-row // wanted))

    def _cover(self, letter: str, together: int, *, inside_group: bool = False) -> None:
        """Divide an index among work-groups, or among the steps of one."""
        blocks = -(-int(self.inside[letter]) // together) if inside_group else 1
        self.groups[letter] = (blocks, together)
        self.inside[letter] = together

    def _is_shared(self, step: Contraction) -> bool:
        """Whether several outputs have the result of a step in common."""
        factors = [tuple(row[k] for k in step.own if k is not None) for row in self.e.args]
        return None not in step.own and len(set(factors)) < len(factors)

    def _vectors(self, lane: str) -> int:
        if self.inside[lane] > MOST_VECTORS_IN_ROW * self.width:
            raise RefusedError(f"'{lane}' is too long for a row of vectors")
        return -(-int(self.inside[lane]) // self.width)

    def _summed(self) -> set[str]:
        """The indices that the contractions sum over."""
        return {x for step in self.steps for letters in step.inputs for x in letters if x not in step.kept}

    def _lanes(self, lane: str) -> list[str]:
        """The lane of each step: that of the step that reads its result if it is kept, else what fills vectors best."""
        readers = readers_of(self.e.n, [step.operands for step in self.steps])
        lanes: dict[int | None, str] = {None: lane}
        for number, step in reversed(list(enumerate(self.steps))):
            lane = lanes[readers[number]]
            if lane not in step.kept:
                # Lanes of an operand that is not copied have to be in a row of memory.
                able = [x for x in step.kept if x != self.long and self._can_be_lane(step, x)]
                if not able:
                    raise RefusedError(f"no index of '{step.kept}' can run along lanes")
                lane = max(able, key=lambda x: (fill(int(self.inside[x]), self.width), self.inside[x]))
            lanes[number] = lane
        return [lanes[number] for number in range(len(self.steps))]

    def _can_be_lane(self, step: Contraction, lane: str) -> bool:
        """Whether every operand of the einsum that has the index is copied, or has it along its rows."""
        own = [letters for k, letters in zip(step.own, step.inputs, strict=True) if k is not None and lane in letters]
        return not math.isinf(self.inside[lane]) and all(self.long not in x or x[-1] == lane for x in own)

    def _panels(self, lanes: list[str]) -> dict[int, str]:
        """The operands that a work-group copies, and the index that their vectors run along."""
        panels: dict[int, str] = {}
        for step, lane in zip(self.steps, lanes, strict=True):
            for k, letters in zip(step.own, step.inputs, strict=True):
                if k is not None and lane in letters and self.long not in letters:
                    panels[k] = lane
        if not self.c["panel"]:
            return {}
        if not panels:
            raise RefusedError("no operand is shared by the iterations of a work-group")
        most = panel_bytes(self.p, self.c["panel"])
        for k, lane in panels.items():
            letters = self.e.indexing.inputs[k]
            free = [x for x in letters if x in self.e.indexing.output and x != lane and len(self.steps) == 1]
            for x in sorted(free, key=lambda x: (x == free[-1], -self.inside[x])):
                if self._bytes(letters) > most or all(x in other for other in self.e.indexing.inputs):
                    self._cover(x, self._tile(x, lane) if x == free[-1] else 1)
            if self._bytes(letters) > most:
                raise RefusedError(f"a panel of {self._bytes(letters)} bytes exceeds {most}")
        return panels

    def _slabs(self, lane: str) -> dict[int, str]:
        """The operands with the long index along a row that a work-group copies too, so that it reads whole rows."""
        if not self.c["slab"]:
            return {}
        rows = {k: x for k, x in enumerate(self.e.indexing.inputs) if x.endswith(self.long)}
        slabs = {k: self.long for k, letters in rows.items() if lane not in letters}
        if not slabs or len(self.steps) > 1 or self.c["rows"] == "apart":
            raise RefusedError(f"no operand has rows along '{self.long}'")
        steps = math.prod(self.groups[self.long]) / self.c["together"]
        size = steps * sum(self._bytes(self.e.indexing.inputs[k]) for k in slabs)
        if size > self.p.device.own_cache_bytes:
            raise RefusedError(f"slabs of {size:.0f} bytes do not stay in the caches")
        return slabs

    def _ahead(self, lane: str) -> str | None:
        """The long index, if rows along it lie apart, are not copied and a work-group goes on along them."""
        if not self.c["ahead"]:
            return None
        if not rows_apart(self.p, self.long, lane):
            raise RefusedError(f"no operand has rows along '{self.long}' that a sum goes across")
        if self.c["slab"] or self.groups[self.long][0] == 1:
            raise RefusedError("a work-group reads all its rows at once")
        return self.long

    def _tile(self, letter: str, lane: str) -> int:
        """How many of an index make the vectors wanted, together with those of a row."""
        most = max(1, self.c["vectors"] // self._vectors(lane))
        return max(n for n in range(1, most + 1) if math.isinf(self.inside[letter]) or self.inside[letter] % n == 0)

    def _rows(self, letter: str, lane: str) -> int:
        """How many of an index that is broadcast have accumulators beside a row of vectors."""
        most = min(MOST_ROWS, self.c["accumulators"] // (self._vectors(lane) * self.c["together"]))
        known = not math.isinf(self.inside[letter])
        return max(n for n in range(1, max(1, most) + 1) if n == 1 or (known and self.inside[letter] % n == 0))

    def _bytes(self, letters: str) -> float:
        return math.prod(self.inside[x] for x in letters) * self.p.itemsize

    def _place_rest(self, lane: str) -> None:
        """Loops of the output that are left: over groups if there are few, else inside them."""
        rest = [x for x in self.e.indexing.output if x not in self.groups and x != lane and x in self.steps[-1].kept]
        beside = [x for x in rest if any(x in letters and lane in letters for letters in self.e.indexing.inputs)]
        for x in sorted(rest, key=lambda x: -self.inside[x]) if len(self.steps) == 1 else ():
            shared = all(x in letters for letters in self.e.indexing.inputs)
            few = self._group_count() < GROUPS_PER_CORE * self.p.device.compute_units
            tile = 1
            if x not in beside:
                tile = self._rows(x, lane)
            elif x == beside[-1] and not shared:
                tile = self._tile(x, lane)
            self._cover(x, tile, inside_group=not (math.isinf(self.inside[x]) or shared or few))
        if any(math.isinf(self.inside[x]) for step in self.steps for x in step.kept):
            raise RefusedError("a partial result has no fixed length")
        partial = sum(self._bytes(step.kept) for step in self.steps[:-1]) * (1 if self.c["rows"] == "apart" else self.e.b)
        if partial > self.p.device.own_cache_bytes:
            raise RefusedError(f"{partial} bytes of partial results fit in no cache of a core")
        if self._bytes(self.steps[-1].kept) > inside_bytes(self.p):
            raise RefusedError(f"{self._bytes(self.steps[-1].kept)} bytes of results are kept at once")

    def _group_count(self) -> int:
        return math.prod(-(-self.p.sizes[x] // (blocks * together)) for x, (blocks, together) in self.groups.items())

    def _registers(self, step: Contraction, lane: str) -> Mapping[str, int]:
        """How many of each index have accumulators at once: a tile of vectors times numbers that are broadcast."""
        vectors = self._vectors(lane)
        held = dict.fromkeys(step.kept.replace(lane, ""), 1)
        if self.long in held:
            held[self.long] = self.c["together"]
        free = [x for x in held if x != self.long]
        beside = [x for x in free if any(x in letters and lane in letters for letters in step.inputs)]
        apart = [x for x in free if x not in beside]
        wanted, budget = self.c["vectors"], self.c["accumulators"]
        for letters, most in ((beside, wanted), (apart, budget), (beside, budget)):
            for x in sorted(letters, key=lambda x: (-self.inside[x], x)):
                counted = beside if most == wanted else held
                others = vectors * math.prod(held[y] for y in counted if y != x)
                fitting = [n for n in range(1, int(self.inside[x]) + 1) if self.inside[x] % n == 0 and n * others <= most]
                held[x] = max([held[x], *fitting])
        count = vectors * math.prod(held.values())
        if count + vectors > self.p.device.vectors:
            raise RefusedError(f"{count} accumulators do not stay in {self.p.device.vectors} registers")
        return held
