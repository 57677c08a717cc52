"""What spaces on matrix units share: tiles of 16 elements e by columns i, dealt to sub-groups, within a device's limits.

Few elements are in flight where a sub-group needs many registers, so as many sub-groups stay on a compute unit as these
allow; all of one group, which then keep one copy of the matrices and are given what registers there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from feinsum.cost import Work as Cost
from feinsum.devices.ptx import SCHEDULERS
from feinsum.skeletons.nvidia.async_copies import WIDEST_BYTES
from feinsum.skeletons.nvidia.matrix_units import COLUMNS, DEPTH, ROWS, fragment_dtype, fragment_unit, split_error
from feinsum.skeletons.nvidia.summing_units import sum_error
from feinsum.skeletons.warp_tiles.tiling import Tiling, blocks, local_bytes, steps
from feinsum.space import Configuration, Problem, Value, space

SHORT, LONG, SPLIT = "fp64-mma-m16n8k4", "fp64-mma-m16n8k8", "tf32-mma-m16n8k8"
UNITS = {"float64": (SHORT, LONG), "float32": (SHORT, LONG, SPLIT)}
"""By the type of all operands and outputs.  Units for float64 multiply float32 exactly, but for the last rounding."""
IMPLIED: dict[str, Value] = {
    "sums": "apart",
    "burst": 1,
    "wide": False,
    "parts": 1,
    "slices": 1,
    "stagger": 0,
    "in_turn": False,
    "weighted": False,
}
"""What configurations mean that were recorded before these parameters existed."""
tile_space = partial(space, version=2, rank=3, implied=IMPLIED)
"""Declares a space of these plans."""
_FEW_TILES = 2
_UNEVEN = 1.05
"""By how much more time some sub-groups take than the average that products are better computed in turn."""
_LONG_SUM = 24
"""Products of a sum beyond which float32 is better split than multiplied as float64."""


@dataclass(frozen=True)
class Work:
    """What a sub-group does for 16 elements.

    :ivar sums: lengths of the indices summed over, the last padded to whole steps.
    :ivar batch: products that are accumulated at a time.
    :ivar matrices: distinct matrices for each of them.
    :ivar results: numbers for each e and i that are staged at a time.
    :ivar held: numbers for each e that stay in registers.
    :ivar planes: of rows that A is made of.
    :ivar products: that are distinct, of all outputs.
    """

    sums: tuple[int, ...]
    batch: int = 1
    matrices: int = 1
    results: int = 1
    held: int = 0
    planes: int = 1
    products: int = 1


def distinct(p: Problem, *operands: int) -> int:
    """How many different combinations of some operands all outputs have."""
    return len({tuple(row[k] for k in operands) for row in p.einsum.args})


def choices(p: Problem, work: Work, units: Sequence[str] = ()) -> dict[str, Sequence[Value]]:
    """The choices of every space.

    ``unit``: the matrix unit, of those given; of two for float64 the longer takes half the instructions.  That for tf32
    is offered where numbers of float32, split, keep the bound of float32: see :func:`inexact`.
    ``sub_groups``: of a group; ``together``: groups that stay on a compute unit.
    ``tiles``: tiles of a sub-group of groups that come and go; 0 for groups that stay.
    ``staged``: whether results leave in whole rows, through local memory, or a lane at a time.
    ``prefetch``: what of the next tile is loaded before the products of the one at hand: its values, or also what is held,
    into registers; or copies of its values into local memory, through which they come in wide pieces.
    ``sums``: whether the unit for tf32 adds the steps of a sum by itself, with the matrix whole or split in local memory,
    as far as that keeps the bound too; or they are added apart.
    ``burst``: what a sub-group loads of the matrices before it stores any of it in local memory; 0 to copy all at once.
    ``wide``: whether a lane writes 16 bytes of what is staged at once, or else two neighbours in rows of even length.
    ``parts``: groups that share the columns of a tile, each with its part of the matrices in local memory.
    ``slices``: of the sum, so that registers hold the values of one, and the sums of all columns; see the spaces.
    ``stagger``: nanoseconds by which every further four sub-groups of a group begin late.
    ``in_turn``: whether all tiles of a product come before those of the next, to be dealt more evenly.
    ``weighted``: whether parts of fewer columns have fewer groups.
    """
    rows, itemsize = p.sizes["i"], p.einsum.dtypes[0].itemsize
    units = units or ((SPLIT, SHORT, LONG) if math.prod(work.sums) > _LONG_SUM else (SHORT, SPLIT, LONG))
    own = tuple(unit for unit in units if unit in UNITS.get(p.einsum.dtypes[0].name, units))
    # About a third more than the least; more cannot be known without the compiler.
    least = registers(p, {**IMPLIED, "unit": own[0], "prefetch": "none"}, work)
    likely = (p.device.registers_per_compute_unit or 0) / (1.35 * 32 * least)
    # With too many, numbers go to memory; with too few, latency shows: half as bad.
    numbers: list[int] = sorted((4, 8, 12, 16, 20, 24), key=lambda n: n - likely if n > likely else (likely - n) / 2)
    copied = "cp-async-16" in p.device.instructions
    prefetch = ("none", "values", "copies", "all") if copied else ("none", "values", "all")
    # Long rows need the registers and the local memory for the matrix.
    prefetch = ("copies and held", *prefetch) if copied and rows <= 40 else prefetch
    # Memory is written in sectors of 32 bytes: a lane at a time only where rows are whole ones, or what fits is so.
    direct = rows > 24 and rows * itemsize % 32 == 0
    return {
        "staged": (False, True) if direct and itemsize == 8 else (True, False) if direct or rows > 64 else (True,),
        "tiles": (0, 2) if rows <= 10 else (0,),
        "sub_groups": numbers,
        "together": (1, 2) if rows <= 24 else (1,),
        "prefetch": prefetch,
        "unit": own,
        "sums": ("whole", "split", "apart") if SPLIT in own else ("apart",),
        "burst": (0, 8, 1) if copied else (8, 1),
        "wide": (True, False),
        "slices": (1,),
        "stagger": _staggers(p, numbers[0]) if copied else (0,),
        "parts": (1, 2, 3) if rows > 64 else (1,),
        "in_turn": _in_turn(p, work, numbers[0]),
        "weighted": (True, False) if rows > 64 else (False,),
    }


def _in_turn(p: Problem, work: Work, sub_groups: int) -> tuple[bool, ...]:
    """Whether products are computed in turn, first where sub-groups otherwise had very different numbers of tiles."""
    if work.products == 1:
        return (False,)
    tiles = _tiles(p, sub_groups)
    return (True, False) if math.ceil(tiles) >= _UNEVEN * tiles else (False, True)


def _tiles(p: Problem, sub_groups: int) -> float:
    """Tiles of a sub-group on average."""
    return p.sizes["e"] / (ROWS * p.device.compute_units * sub_groups)


def _staggers(p: Problem, sub_groups: int) -> tuple[int, ...]:
    """Nanoseconds to begin late, none first where a sub-group has so few tiles that it would not make up for them."""
    late = (4000, 2000, 1000) if p.sizes["i"] > 40 else (500, 1000, 2000)
    return (*late, 0) if _tiles(p, sub_groups) >= _FEW_TILES else (0, *late)


def refusal(p: Problem, c: Configuration, work: Work) -> str | None:
    """Why tiles of 16 elements e by columns i are refused, or None."""
    if c["unit"] not in p.device.matrix_units:
        return f"{p.device.name} has no {c['unit']}"
    types = {dtype.name for dtype in (*p.einsum.dtypes, *(a.dtype for a in p.einsum.arrays))}
    if len(types) > 1 or c["unit"] not in UNITS.get(types.pop(), ()):
        return "the units multiply float64, or float32"
    if any(p.is_long(letter) for letter in p.sizes if letter != "e"):
        return "only e may be long"
    if c["staged"] and c["parts"] > 1:
        return "staged results are whole rows"
    if c["tiles"] and (c["together"] > 1 or c["sub_groups"] > 8):
        return "groups that do not stay are small, and as many as they are"
    if not c["tiles"] and not 8 <= c["sub_groups"] * c["together"] <= 32:
        return f"{c['sub_groups'] * c['together']} sub-groups leave a compute unit idle, or in each other's way"
    if c["stagger"] and (c["tiles"] or c["sub_groups"] <= SCHEDULERS):
        return "groups that do not stay, or have but one sub-group for each scheduler, are not staggered"
    if c["in_turn"] and (c["tiles"] or work.products == 1):
        return "tiles are dealt product by product where there are several, and groups that stay"
    if c["weighted"] and blocks(p.sizes["i"], 1) % c["parts"] == 0:
        return "parts have as many columns"
    if c["wide"] and not c["staged"] and p.sizes["i"] % 2:
        return "pairs of numbers do not make rows of odd length"
    unit, itemsize = fragment_unit(c["unit"]), p.einsum.dtypes[0].itemsize
    apart = work.planes > 1 or c["slices"] > 1
    if c["prefetch"].startswith("copies") and apart and work.sums[-1] * itemsize % WIDEST_BYTES:
        return f"rows of {work.sums[-1]} numbers are not whole pieces of {WIDEST_BYTES} bytes"
    if c["burst"] == 0 and (c["sums"] == "split" or fragment_dtype(unit) != p.einsum.dtypes[0]):
        return "copies do not turn numbers into those that the unit multiplies"
    if c["sums"] != "apart" and c["unit"] != SPLIT:
        return "the units for float64 add the steps of a sum by themselves"
    return inexact(p, c, work) or beyond_limits(p, c, work)


def inexact(p: Problem, c: Configuration, work: Work) -> str | None:
    """Why the unit may miss the bound of float32, (summands + operands - 1) u Σ |products|, or None.

    Besides the sums of the unit there are a factor and a sum over the other indices, in plain float32.
    """
    unit, indexing = fragment_unit(c["unit"]), p.einsum.indexing
    terms = math.prod(work.sums)
    summands = p.count("".join(set(p.sizes) - set(indexing.output)))
    of_sums = split_error(unit, terms) if c["sums"] == "apart" else sum_error(unit, terms, c["sums"])
    error, allowed = of_sums + summands // terms, summands + len(indexing.inputs) - 1
    if unit.dtype == "float" and error > allowed:
        return f"{unit.name} may err by {error:g} roundoffs, where float32 errs by {allowed}"
    return None


def beyond_limits(p: Problem, c: Configuration, work: Work) -> str | None:
    """Why a compute unit has not the registers or the local memory, or None."""
    needed = registers(p, c, work)
    items, limit = 32 * c["sub_groups"] * c["together"], p.device.registers_per_compute_unit or 0
    if items * needed > limit:
        return f"{needed} registers of {items} work-items exceed the {limit} of a compute unit"
    local = p.device.local_bytes_of(c["together"], _local(p, c, work))
    return p.exceeds(work_items=(32, c["sub_groups"]), local_bytes=local)


def _local(p: Problem, c: Configuration, work: Work) -> int:
    itemsize, matrices = p.einsum.dtypes[0].itemsize, work.batch * work.matrices
    return local_bytes(tiling(p, c), p.sizes["i"], work.sums, matrices, work.results, itemsize, work.planes, work.held)


def registers(p: Problem, c: Configuration, work: Work) -> int:
    """What a work-item needs at least: numbers of the unit, two words or split; what waits, as in memory; addresses."""
    unit, sliced = fragment_unit(c["unit"]), c["slices"] > 1
    loaded = 2 * steps(work.sums, unit, c["slices"]) // c["slices"]
    sums = 4 * work.batch * (blocks(p.sizes["i"], c["parts"]) if sliced else 1)
    held = 0 if sliced else 2 * work.held * (2 if c["prefetch"] in ("all", "copies and held") else 1)
    waiting = held + (loaded if c["prefetch"] in ("values", "all") else 0)
    needed: int = 2 * (sums + loaded) + waiting * p.einsum.dtypes[0].itemsize // 4 + 16
    return min(needed, 255)


def estimate(p: Problem, c: Configuration, work: Work) -> Cost:
    """The work of a configuration, columns and steps padded; what some sub-groups load, others hide by their products."""
    plan, unit, rows = tiling(p, c), fragment_unit(c["unit"]), p.sizes["i"]
    itemsize, number = p.einsum.dtypes[0].itemsize, fragment_dtype(unit).itemsize
    padded = COLUMNS * -(-rows // COLUMNS) / rows * DEPTH * steps(work.sums, unit, c["slices"]) / math.prod(work.sums)
    tiles = -(-p.sizes["e"] // ROWS)
    return Cost(
        flops=padded * p.einsum.flops(p.lengths) * (2 if number > itemsize else 1),  # float64 takes twice as long
        bytes=p.einsum.min_bytes(p.lengths),
        groups=plan.groups * plan.parts or -(-tiles // (plan.sub_groups * plan.tiles)),
        items=32 * plan.sub_groups,
        registers_bytes=4 * registers(p, c, work),
        local_bytes=_local(p, c, work),
        matrix=True,
    )


def tiling(p: Problem, c: Configuration) -> Tiling:
    """The tiling that a configuration means on a device."""
    return Tiling(
        c["unit"],
        c["sub_groups"],
        groups=0 if c["tiles"] else max(1, p.device.compute_units * c["together"] // c["parts"]),
        tiles=c["tiles"],
        parts=c["parts"],
        staged=c["staged"],
        prefetch=c["prefetch"],
        everywhere=c.get("everywhere", False),
        sums=c["sums"],
        burst=c["burst"],
        wide=c["wide"],
        slices=c["slices"],
        stagger=c["stagger"],
        in_turn=c["in_turn"],
        weighted=c["weighted"],
    )
