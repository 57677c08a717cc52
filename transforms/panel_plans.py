"""Plans of vector panels: which index runs along lanes, what stays in registers, what a work-group copies and covers.

    out[e, i] = Σ_k S(i, k) V(e, k)        i: lanes, e: the long index, S: the panel

A plan follows from an einsum, the lengths of its indices and a configuration; it says nothing about loopy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

from feinsum.contraction import pairwise_schedule
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import Panel, Stage, fused, neighbours
from feinsum.space import Configuration, Problem

REGISTERS = 32
"""Vector registers of AVX-512; accumulators that spill cost a factor of two."""
MOST_VECTORS_IN_ROW = 8
"""A longer row is divided into panels."""
MOST_INSIDE_BYTES = 65536
"""Of the results that a work-group keeps for one tile."""
PANEL_BYTES = (262144, 32768, 0)
"""How much of the operands without the long index a work-group may copy."""
TOGETHER = (1, 2, 4, 3, 6, 5, 8)
ACCUMULATORS = (24, 20, 16, 12)
ENOUGH_ACCUMULATORS = 10
"""So many independent sums keep the units busy despite their latency."""
WELL_FILLED_BY_HALVES = 0.8
"""The same for vectors of half the width."""
FEW_ROWS = 16
"""That the hardware foresees, though they are read in turns."""
MOST_ROWS = 8
"""Of numbers that are broadcast beside one row of vectors; more spill."""
ENOUGH_ROWS = 24
"""That make it worth while to copy a panel for them alone."""
MOST_LOADS = 0.8
"""For each addition; a core loads and adds two vectors in a cycle, but results are stored too."""
WELL_FILLED = 0.6
"""Vectors less full than that are worse than results that have to be turned round."""
CACHE_SHARES = 32
"""A copy of rows may take such a part of the last cache."""
LINE_BYTES = 64
"""Of a cache, where a driver does not say."""
MOST_TERMS = 8
"""Of a sum that the last instruction writes out."""
GROUPS_PER_CORE = 4


def is_vectorizable(e: BatchedEinsum) -> bool:
    """Whether lanes can run along one axis of the output, and a tile along another one."""
    plain = all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)
    real = all(a.dtype in ("float32", "float64") for row in e.args for entry in row for a in entry)
    return plain and real and e.n >= 2 and len(e.indexing.output) >= 2


def fused_problem(p: Problem) -> tuple[Problem, str]:
    """The problem with the last indices of the output as one where they are a row of every array; and these indices."""
    letters = neighbours(p.einsum)
    if len(letters) < 2:
        return p, ""
    sizes = {x: n for x, n in p.sizes.items() if x not in letters}
    return Problem(fused(p.einsum, letters), {**sizes, letters[-1]: p.count(letters)}, p.device), letters


def paths(p: Problem) -> list[str]:
    """What to contract one after the other, fewest operations first: ``"12 01"`` is operands 1 and 2, then the rest."""
    n = p.einsum.n
    if n == 2:
        return ["01"]
    if n > 3:
        return [_cheapest_path(p)]
    pairs = [f"{a}{b}" for a, b in combinations(range(3), 2)]
    return sorted(["012", *pairs, *(f"{pair} 01" for pair in pairs)], key=lambda path: _points(p, path))


def _cheapest_path(p: Problem) -> str:
    """The cheapest pairwise steps, operands by their position among what is left."""
    pool = list(range(p.einsum.n))
    steps = []
    for s, step in enumerate(pairwise_schedule(p.einsum, p.lengths).steps):
        steps.append("".join(str(pool.index(k)) for k in step.operands))
        pool = [k for k in pool if k not in step.operands] + [p.einsum.n + s]
    return " ".join(steps)


def _points(p: Problem, path: str) -> int:
    """Products that a path adds up, a partial result that rows share counted once."""
    e = p.einsum
    letters = list(e.indexing.inputs)
    rows: list[tuple[object, ...]] = [tuple(enumerate(row)) for row in e.args]
    total = 0
    for operands in (*(tuple(map(int, step)) for step in path.split()), tuple(range(e.n))):
        operands = operands[: len(letters)]
        factors = [tuple(row[k] for k in operands) for row in rows]
        inside = set("".join(letters[k] for k in operands))
        if len(operands) > 1:
            total += (e.b if len(operands) == len(letters) else len(set(factors))) * p.count("".join(inside))
        rest = [x for k, x in enumerate(letters) if k not in operands]
        letters = [*rest, "".join(inside & set(e.indexing.output).union(*rest))]
        rows = [
            (*(x for k, x in enumerate(row) if k not in operands), factor)
            for row, factor in zip(rows, factors, strict=True)
        ]
    return total


def rows_apart(p: Problem, long: str, lane: str) -> bool:
    """Whether numbers along the long index are read from many rows: a sum goes across them."""
    operands = [x for x in p.einsum.indexing.inputs if x.endswith(long) and lane not in x]
    return any(p.count("".join(set(x) & set(p.einsum.indexing.summed))) > FEW_ROWS for x in operands)


def lane_width(p: Problem) -> int:
    """The lanes of the widest vectors of the device."""
    return max(2, min(16, (p.device.simd_bytes or 16) // p.itemsize))


def widths(p: Problem, row: int) -> tuple[int, ...]:
    """Lanes of a vector, the best guess first: the shortest vectors that hold a row in as few as the widest do."""
    widest = lane_width(p)
    narrower = [n for n in (widest, widest // 2, widest // 4) if n >= 2]
    fewest = -(-row // widest)
    return tuple(sorted(narrower, key=lambda n: (-(-row // n) != fewest, n if -(-row // n) == fewest else -n)))


def fill(length: int, width: int) -> float:
    """Which part of the vectors of a row is used."""
    return length / (-(-length // width) * width)


class RefusedError(Exception):
    """Why a configuration has no plan."""


@dataclass(frozen=True)
class Contraction:
    """One step of a path: operands by position, their indices (empty for partial results), and the indices it keeps."""

    operands: tuple[int, ...]
    inputs: tuple[str, ...]
    own: tuple[int | None, ...]
    kept: str


def contractions(e: BatchedEinsum, path: str) -> list[Contraction]:
    """The steps of a path."""
    letters = list(e.indexing.inputs)
    pool: list[int | None] = list(range(e.n))
    steps = []
    for step in path.split():
        operands = tuple(map(int, step))
        taken = tuple(letters[k] for k in operands)
        rest = [x for k, x in enumerate(letters) if k not in operands]
        needed = set(e.indexing.output).union(*rest)
        kept = "".join(x for x in dict.fromkeys("".join(taken)) if x in needed)
        steps.append(Contraction(operands, taken, tuple(pool[k] for k in operands), kept))
        letters = [*rest, kept]
        pool = [*(x for k, x in enumerate(pool) if k not in operands), None]
    return steps


def panel_plan(p: Problem, c: Configuration) -> Panel:
    """The plan of a configuration of :mod:`feinsum.transforms.vector_panels`.

    :raises RefusedError: if there is none, with the reason.
    """
    if not p.device.simd_bytes:
        raise RefusedError("the device has no vector registers")
    if c["lane"] == c["long"]:
        raise RefusedError("lanes and tile run along one axis")
    return _Planner(p, c).plan()


@dataclass(frozen=True)
class Promising:
    """Paths, lanes, long indices and bytes of panels, the best guess first; the first of each make a plan together.

    If there is no plan at all, there is one of each and `hopeless` is true.
    """

    paths: tuple[str, ...]
    lanes: tuple[str, ...]
    longs: tuple[str, ...]
    panels: tuple[int, ...]
    together: tuple[int, ...] = TOGETHER
    hopeless: bool = False


def promising(p: Problem) -> Promising:
    """What may be worth trying for a problem."""
    return _promising(p.einsum, tuple(p.sizes.items()), p.device)


@lru_cache(maxsize=256)
def _promising(e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile) -> Promising:
    p = Problem(e, dict(sizes), device)
    output, width = e.indexing.output, lane_width(p)
    # What all operands have in common is no tile: nothing is read once for several of it.
    common = {x for x in output if all(x in letters for letters in e.indexing.inputs)}
    few = max((p.sizes[x] for x in output[:-1] if x not in common), default=0) < ENOUGH_ROWS
    longest = sorted(output, key=lambda x: (x in common and not few, not p.is_long(x), -p.sizes[x]))[:2]

    def rank(x: str) -> tuple[bool, bool, bool, int]:
        partly = fill(p.sizes[x], width) < WELL_FILLED and fill(p.sizes[x], width // 2) < WELL_FILLED_BY_HALVES
        return (partly or x != output[-1], x == longest[0], partly, -output.index(x))

    lanes = sorted(output, key=rank)
    small: dict[str, int | str | bool] = {
        "width": width,
        "vectors": 1,
        "together": 1,
        "accumulators": 12,
        "tile": 100,
        "slab": False,
    }
    small |= {"rows": "together", "streaming": False, "ahead": False}
    found = []
    for choice in product(paths(p), lanes, longest, PANEL_BYTES):
        with suppress(RefusedError):
            panel_plan(p, {**small, **dict(zip(("path", "lane", "long", "panel"), choice, strict=True))})
            found.append(choice)
    if not found:
        return Promising((paths(p)[0],), (lanes[0],), (longest[0],), PANEL_BYTES[:1], hopeless=True)
    columns = [tuple(dict.fromkeys(column)) for column in zip(*found, strict=True)]
    first = {
        **small,
        "accumulators": ACCUMULATORS[0],
        "vectors": 4,
        **dict(zip(("path", "lane", "long", "panel"), found[0], strict=True)),
    }
    return Promising(columns[0], columns[1], columns[2], columns[3], _togethers(p, first))


def _togethers(p: Problem, c: Configuration) -> tuple[int, ...]:
    """How many of the long index to treat at once: the fewest that keep the units busy, or as much as a cache line."""
    if rows_apart(p, c["long"], c["lane"]):
        return tuple(sorted(TOGETHER, reverse=True))
    return tuple(sorted(TOGETHER, key=lambda n: not _is_busy(p, {**c, "together": n})))


def _is_busy(p: Problem, c: Configuration) -> bool:
    """Whether the last stage of a plan has independent sums enough, and more additions than loads."""
    try:
        stage = panel_plan(p, c).stages[-1]
    except RefusedError:
        return False
    step = contractions(p.einsum, c["path"])[-1]
    row = p.sizes[stage.lane] if not p.is_long(stage.lane) else MOST_VECTORS_IN_ROW * c["width"] + 1
    vectors = c["vectors"] if row > MOST_VECTORS_IN_ROW * c["width"] else -(-row // c["width"])
    count = int(vectors * math.prod(stage.registers.values()))
    loads = 0
    for letters in step.inputs:
        numbers = int(math.prod(stage.registers.get(x, 1) for x in letters))
        loads += numbers * vectors if stage.lane in letters else numbers
    return count >= ENOUGH_ACCUMULATORS and loads <= MOST_LOADS * count


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
            self._cover(lane, self.c["vectors"] * self.width)
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
            line_bytes=self.p.device.cacheline_bytes or LINE_BYTES,
        )

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
        """The lane of each step: that of the next one if it is kept, else the one that fills vectors best."""
        lanes: list[str] = []
        for step in reversed(self.steps):
            if lane not in step.kept:
                # Lanes of an operand that is not copied have to be in a row of memory.
                able = [x for x in step.kept if x != self.long and self._can_be_lane(step, x)]
                if not able:
                    raise RefusedError(f"no index of '{step.kept}' can run along lanes")
                lane = max(able, key=lambda x: (fill(int(self.inside[x]), self.width), self.inside[x]))
            lanes.insert(0, lane)
        return lanes

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
        for k, lane in panels.items():
            letters = self.e.indexing.inputs[k]
            free = [x for x in letters if x in self.e.indexing.output and x != lane and len(self.steps) == 1]
            for x in sorted(free, key=lambda x: (x == free[-1], -self.inside[x])):
                if self._bytes(letters) > self.c["panel"] or all(x in other for other in self.e.indexing.inputs):
                    self._cover(x, self._tile(x, lane) if x == free[-1] else 1)
            if self._bytes(letters) > self.c["panel"]:
                raise RefusedError(f"a panel of {self._bytes(letters)} bytes exceeds {self.c['panel']}")
        return panels

    def _slabs(self, lane: str) -> dict[int, str]:
        """The operands with the long index along a row that a work-group copies too, so that it reads whole rows."""
        if not self.c["slab"]:
            return {}
        rows = {k: x for k, x in enumerate(self.e.indexing.inputs) if x.endswith(self.long)}
        slabs = {k: self.long for k, letters in rows.items() if lane not in letters}
        if not slabs or len(self.steps) > 1 or self.c["rows"] == "apart":
            raise RefusedError(f"no operand has rows along '{self.long}'")
        size = (
            math.prod(self.groups[self.long]) * self._bytes(self.e.indexing.inputs[next(iter(slabs))]) / self.c["together"]
        )
        if size > self.p.device.cache_bytes // CACHE_SHARES:
            raise RefusedError(f"a slab of {size:.0f} bytes does not stay in the caches")
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
        if self._bytes(self.steps[-1].kept) > MOST_INSIDE_BYTES:
            raise RefusedError(f"{self._bytes(self.steps[-1].kept)} bytes of results are kept at once")

    def _group_count(self) -> int:
        return math.prod(-(-self.p.sizes[x] // (blocks * together)) for x, (blocks, together) in self.groups.items())

    def _registers(self, step: Contraction, lane: str) -> Mapping[str, int]:
        """How many of each index have accumulators at once: a tile of vectors times numbers that are broadcast."""
        vectors = self._vectors(lane)
        registers = dict.fromkeys(step.kept.replace(lane, ""), 1)
        if self.long in registers:
            registers[self.long] = self.c["together"]
        free = [x for x in registers if x != self.long]
        beside = [x for x in free if any(x in letters and lane in letters for letters in step.inputs)]
        apart = [x for x in free if x not in beside]
        wanted, budget = self.c["vectors"], self.c["accumulators"]
        for letters, most in ((beside, wanted), (apart, budget), (beside, budget)):
            for x in sorted(letters, key=lambda x: (-self.inside[x], x)):
                counted = beside if most == wanted else registers
                others = vectors * math.prod(registers[y] for y in counted if y != x)
                fitting = [n for n in range(1, int(self.inside[x]) + 1) if self.inside[x] % n == 0 and n * others <= most]
                registers[x] = max([registers[x], *fitting])
        count = vectors * math.prod(registers.values())
        if count + vectors > REGISTERS:
            raise RefusedError(f"{count} accumulators do not stay in {REGISTERS} registers")
        return registers
