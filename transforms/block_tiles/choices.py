"""Choices for contractions in blocks: parts of long sums, operands to pack, units, pipelines, and shapes of blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product as iter_product
from math import prod
from typing import Any

import numpy as np

from feinsum.devices import DeviceProfile
from feinsum.devices.vendors.known_vendors import copies_of, matrix_units
from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import side_by_side
from feinsum.skeletons.block_tiles import MULTIPLY_ADD, BlockShape, BlockShapes, BlockTiles, Packing, SumSplit, TilePipeline
from feinsum.skeletons.instructions.matrix_units import FRAGMENTS
from feinsum.space import Choices, Problem, Value
from feinsum.space.joined_problems import joined_problem

from .plans import OTHER_REGISTERS, bare_contraction, refusal_of_device, residents, tile_plan
from .products import DEPTHS, FusedProduct, fused_product
from .work import block_seconds

MOST_SHAPES, MOST_ALIKE, MOST_QUICK = 20, 3, 8
"""Quick shapes that are offered, the most of them with equally many fragments for a warp, and how many of the quickest
besides, whatever these hold; chosen by hand."""
MOST_LONGER = 16
"""Shapes that are offered for such a unit; chosen by hand."""
MOST_DEPTHS = 4
SMALLEST = BlockShape((1, 2, 2), (1, 1))
Costs = Callable[[FusedProduct, BlockTiles], Any]
"""The costs of many block tiles, as an array; the plan has :class:`BlockShapes`."""
REUSED = 1024
"""Uses of an operand from which a copy of it in another order pays; chosen by hand."""
SCATTERED_REUSED = 128
"""The uses of an operand whose neighbours in memory are of other items of the batch; chosen by hand."""
GROUPS_WANTED = 6
"""Work-groups for each multiprocessor, among which a sum is split; chosen by hand."""
LEAST_BLOCK = 32 * 32
"""Results of a group, by which its part of a sum is chosen, where there are fewer: parts that are as short as these are few
would leave more partial sums than terms.  Chosen by hand."""
MOST_RESIDENT, ENOUGH_SUB_GROUPS = 4, 8
"""Groups of a multiprocessor beyond which more make no difference, and its sub-groups, so that some multiply while others
wait, where chains count their guesses; chosen by hand."""
LONGEST_STEP = 8
"""Terms of a step of the units for float64 that multiply float32."""


def block_choices(p: Problem) -> Choices:
    """The choices of ``block_contraction``; where the device gains nothing, shapes are not ranked, which takes 20 ms."""
    return _block_tile_choices(p, _block_tile_seconds)


def counted_choices(p: Problem) -> Choices:
    """The choices with block tiles in the order in which chains, and their records, number them."""
    return _block_tile_choices(p, _counted_work, tilewise=False)


def _block_tile_choices(p: Problem, costs: Costs, *, tilewise: bool = True) -> Choices:
    ranked = refusal_of_device(p) is None
    whole = fused_product(p, "quick")
    first: dict[str, Sequence[Value]] = {"split": splits(whole), "packed": packings(whole), "rows": ["quick", "slow"]}
    first["joined"] = joinings(p, first) if ranked else [False]
    alone = bare_contraction(p, str(first["split"][0]), str(first["packed"][0]))
    first["wide"] = copy_widths(p, first)
    own = fused_product(
        joined_problem(alone) if first["joined"][0] else alone, str(first["rows"][0]), wide=bool(first["wide"][0])
    )
    several = own.count("sums") > own.depths[0]
    if own.whole_depths or not several:  # an only tile passes through registers, by the first guess
        own, first["wide"] = replace(own, wide=False), sorted(first["wide"])
    pipeline = pipelines(p, several)
    second: dict[str, Sequence[Value]] = {
        "unit": usable_units(p, own.count("sums")),
        "pipeline": pipeline,
        "depth": depths(p, own, first),
        "run": own.runs,
        "ahead": [False, True] if any(TilePipeline.parse(text).asynchronous for text in pipeline) else [False],
    }
    pairs = iter_product(second["unit"], second["depth"]) if tilewise else ()
    able = any(_adds_tiles(whole, {"unit": unit, "depth": depth}) for unit, depth in pairs)
    second["tilewise"] = [True, False] if able else [False]
    second["shape"] = _ranked(own, second, costs) if ranked else [str(SMALLEST)]
    return {**first, **_with_only_tiles(own, second, costs if ranked else None)}


def _with_only_tiles(own: FusedProduct, several: Choices, costs: Costs | None) -> Choices:
    """The choices of a product, before them those with which a short sum is one tile of whatever depth."""
    depth = own.whole_depths
    if not depth:
        return several
    one = {**several, "depth": depth, "pipeline": pipelines(own.problem, False)}
    one["shape"] = _ranked(own, one, costs) if costs else several["shape"]
    return {name: list(dict.fromkeys((*one[name], *several[name]))) for name in several}


def _ranked(own: FusedProduct, choices: Choices, costs: Costs) -> list[str]:
    """Shapes for the first of all other choices, then some for a unit that takes longer numbers than are in memory."""
    first = {name: values[0] for name, values in choices.items() if name != "shape"}
    number = own.problem.einsum.dtypes[0].name
    longer = [u for u in choices["unit"] if u != MULTIPLY_ADD and matrix_units()[str(u)].number != number]
    first["tilewise"] = first["tilewise"] and _adds_tiles(own, first)
    others = _shapes_of(own, {**first, "unit": longer[0], "tilewise": False}, costs)[:MOST_LONGER] if longer else []
    return list(dict.fromkeys((*_shapes_of(own, first, costs), *others)))


def _adds_tiles(own: FusedProduct, c: Mapping[str, Any]) -> bool:
    """Whether the unit of a configuration splits numbers and can add up several steps of several tiles."""
    unit, depth = str(c["unit"]), int(c["depth"])
    if unit == MULTIPLY_ADD or not matrix_units()[unit].splits:
        return False
    return depth // matrix_units()[unit].k > 1 and depth < own.count("sums")


def splits(own: FusedProduct) -> list[str]:
    """Ways to share a sum among work-groups, where the output is too small for all of them."""
    p = own.problem
    points = max(LEAST_BLOCK, prod(own.count(name) for name in ("rows", "columns", "batch")))
    wanted = GROUPS_WANTED * p.device.compute_units * 64 * 64 / points
    found = {}
    for x in own.letters["sums"] if wanted >= GROUPS_WANTED else "":
        for length in p.divisors(x)[:-1]:
            if own.count("sums") * length >= 64 * p.sizes[x]:
                split = SumSplit(x, length)
                found[split] = 0.5 * (length % 4 != 0) + abs(math.log2(p.sizes[x] / length / wanted))
    return [str(split) for split in (*sorted(found, key=found.__getitem__)[:4], SumSplit())]


def packings(own: FusedProduct) -> list[str]:
    """Operands worth copying first: of large products, where a summed index is the fastest in neither operand, or not in
    both; and those in which neighbours are of other items of the batch, so that no lanes load neighbours."""
    uses = {operand: own.count(("columns", "rows")[side]) for side, operand in enumerate(own.operands)}
    scattered = tuple(sorted(k for side, k in enumerate(own.operands) if own.quick[side] in own.letters["batch"]))
    if scattered and min(uses[k] for k in scattered) >= SCATTERED_REUSED:
        return [str(Packing(scattered)), str(Packing())]
    least = min(own.count("rows"), own.count("columns"))
    quick = set(own.quick)
    same = len(quick) == 1 and quick <= set(own.letters["sums"])
    worth = not same and least >= REUSED and own.count("sums") >= REUSED // 4
    return [str(Packing(operands)) for operands in (((0,), (), (1,), (0, 1)) if worth else ((),))]


def joinings(p: Problem, choices: Choices) -> list[bool]:
    """Whether indices that are side by side become one, where there are such after some way to pack operands."""
    return [False, True] if any(side_by_side(own.einsum) for own in _packed(p, choices)) else [False]


def copy_widths(p: Problem, choices: Choices) -> list[bool]:
    """Whether several numbers are copied at a time along rows and columns, too, if they can be after some way to pack."""
    if not any(TilePipeline.parse(text).asynchronous for text in pipelines(p, True)):
        return [False]
    each = [FusedProduct(own, (0, 1)) for own in _packed(p, choices)]
    able = any(
        replace(own, wide=True).width(side, DEPTHS[0]) > own.width(side, DEPTHS[0]) for own in each for side in (0, 1)
    )
    return [True, False] if able else [False]


def depths(p: Problem, own: FusedProduct, choices: Choices) -> list[int]:
    """Depths of a tile that waste least, then those that waste least with other indices."""
    others = (
        (FusedProduct(joined_problem(each), (0, 1)) for each in _packed(p, choices)) if True in choices["joined"] else ()
    )
    return list(dict.fromkeys(depth for each in (own, *others) for depth in each.depths[:MOST_DEPTHS]))


def _packed(p: Problem, choices: Choices) -> list[Problem]:
    """The contraction as it is after every way to pack operands, its sum in one."""
    return [bare_contraction(p, str(SumSplit()), str(packed)) for packed in choices["packed"]]


def usable_units(p: Problem, terms: int) -> list[str]:
    """The units that can multiply numbers of the result's type: matrix units of the device, and multiply-adds.

    A unit for float32 by splitting is offered where it keeps the bound of ordinary arithmetic.  Shorter units for float64
    multiply float32 too, exactly and in far fewer instructions than multiply-adds; on an H200 at the same rate.
    """
    dtypes = {str(a.dtype) for row in p.einsum.args for entry in row for a in entry}
    known = sorted((matrix_units()[name] for name in p.device.matrix_units), key=lambda unit: unit.k)
    fitting = [unit for unit in known if unit.tile == FRAGMENTS and unit.operand == unit.number]
    own = [u.name for u in fitting if dtypes == {u.number} and u.error(terms) <= terms]
    longer = [u.name for u in fitting if dtypes == {"float32"} != {u.number} and u.k <= LONGEST_STEP]
    return [*own, MULTIPLY_ADD, *longer]


def pipelines(p: Problem, several: bool) -> list[str]:
    """Ways of tiles to local memory, with numbers of stages; `several` says whether a sum has more than one tile."""
    arrays = [array for row in p.einsum.args for entry in row for array in entry]
    alike = len({array.dtype for array in arrays}) == 1 and all(len(entry) == 1 for row in p.einsum.args for entry in row)
    known = [TilePipeline(True, stages) for stages in (3, 2, 4)] if alike and copies_of(p.device) else []
    one, two = (TilePipeline(False, stages) for stages in (1, 2))
    return [str(x) for x in ((*known, one, two) if several else (one, *known[1::-1], two))]


def _shapes_of(own: FusedProduct, choices: Mapping[str, Value], costs: Costs) -> tuple[str, ...]:
    """Block tiles by their costs, the least first.

    Only few have the same number of fragments for a warp, so that large and small ones are among them; after these come
    the best of the others.
    """
    p = own.problem
    return _tile_shapes(p.einsum, tuple(p.sizes.items()), p.device, own.operands, own.wide, tuple(choices.items()), costs)


@lru_cache(maxsize=512)
def _tile_shapes(
    e: BatchedEinsum,
    sizes: tuple[tuple[str, int], ...],
    device: DeviceProfile,
    operands: tuple[int, int],
    wide: bool,
    choices: tuple[tuple[str, Value], ...],
    costs_of: Costs,
) -> tuple[str, ...]:
    own = FusedProduct(Problem(e, dict(sizes), device), operands, wide)
    usual = tile_plan(own, {**dict(choices), "shape": str(SMALLEST)})
    every, together = _every_shape(usual.unit != MULTIPLY_ADD)
    costs = costs_of(own, replace(usual, block_tile=together))
    able = np.flatnonzero(costs < math.inf)
    ranked = able[np.argsort(costs[able], kind="stable")].tolist()
    unlike = _unlike(every, able.tolist(), ranked, costs.tolist())
    rest = [k for k in ranked if k not in unlike][:MOST_QUICK]
    found = [every[k] for k in (*unlike, *rest)] or [SMALLEST]
    plans = {shape: replace(usual, block_tile=shape) for shape in found}
    return tuple(map(str, sorted(found, key=lambda shape: bool(ranked) and _spills_places(own, plans[shape]))))


def _unlike(every: Sequence[BlockShape], able: Sequence[int], ranked: Sequence[int], costs: Sequence[float]) -> list[int]:
    """The cheapest of some shapes, few of them with equally many fragments; of equally cheap ones, those first whose number
    of fragments comes first.

    :param able: the numbers of these shapes, and `ranked` the same by their costs.
    """
    places = {n: place for place, n in enumerate(dict.fromkeys(every[k].fragments for k in able))}
    alike = dict.fromkeys(places, 0)
    few = []
    for k in ranked:
        n = every[k].fragments
        alike[n] += 1
        if alike[n] <= MOST_ALIKE:
            few.append(k)
    return sorted(few, key=lambda k: (costs[k], places[every[k].fragments]))[:MOST_SHAPES]


def _spills_places(own: FusedProduct, plan: BlockTiles) -> bool:
    """Whether a work-item has no registers for the places of its results, where multiply-adds make an only tile.

    Of 46 times of 8 by 16 results for a work-item on an H200 (2026-11-24) none was the best of its einsum, and 22 were
    half as long again or more; of one the compiler kept 96 registers in memory.
    """
    if plan.several or plan.unit != MULTIPLY_ADD:
        return False
    down, across = plan.block_tile.warp_tile
    places = down * len(plan.rows) + across * len(plan.columns)
    needed = plan.registers() + OTHER_REGISTERS + places
    return needed > (own.problem.device.max_registers_per_work_item or needed)


def _arrangements() -> Iterator[tuple[int, int, int]]:
    for items in (1, 2, 4, 8):
        for down in range(1, 9):
            for across in range(1, 9):
                if items * down * across in (4, 6, 8, 10, 12, 16):
                    yield items, down, across


def _warp_tiles(unit: bool) -> Iterator[tuple[int, int]]:
    for down in (1, 2, 4) if unit else (1, 2, 4, 8):
        for across in (1, 2, 3, 4, 5, 6, 8, 9, 10, 12) if unit else (1, 2, 4, 8, 16):
            yield down, across


@lru_cache(maxsize=2)
def _every_shape(unit: bool) -> tuple[tuple[BlockShape, ...], BlockShapes]:
    """All shapes that are considered, one by one and together."""
    every = tuple(BlockShape(warps, warp_tile) for warps, warp_tile in iter_product(_arrangements(), _warp_tiles(unit)))
    return every, BlockShapes.of(every)


def _block_tile_seconds(own: FusedProduct, plan: BlockTiles) -> Any:
    """The times of block tiles by :func:`.work.block_seconds`; infinite where they are none.

    :param plan: of :class:`BlockShapes`.
    """
    able, held = _able(own, plan)
    return np.where(able, block_seconds(own, plan, held), math.inf)


def _counted_work(own: FusedProduct, plan: BlockTiles) -> Any:
    """Multiplications of the busiest multiprocessor, and loads in terms of them; infinite where block tiles are none.

    Chains count their guesses by it since their first version.  The weights were chosen by hand.

    :param plan: of :class:`BlockShapes`.
    """
    p, (rows, columns), (down, across) = own.problem, plan.extents, plan.block_tile.warp_tile
    able, held = _able(own, plan)
    held = np.minimum(held, MOST_RESIDENT)
    lengths = {name: own.count(name) for name in ("rows", "columns", "batch")}
    groups = -(-lengths["rows"] // rows) * -(-lengths["columns"] // columns) * -(-lengths["batch"] // plan.items)
    # Groups come and go; at the end half of those that a multiprocessor holds are left, as a rule.
    rounds = np.maximum(groups / p.device.compute_units, 1.0) + held / 2
    loads = 16 / rows + 16 / columns + 8 / (down * plan.fragments.rows) + 8 / (across * plan.fragments.columns)
    warps = prod(plan.block_tile.warps)
    hidden = np.minimum(1.0, held * warps / ENOUGH_SUB_GROUPS)
    waits = 1 + warps / 48  # the more wait for each other, the longer
    return np.where(able, rounds * plan.items * rows * columns * (1 + loads) * waits / hidden, math.inf)


def _able(own: FusedProduct, plan: BlockTiles) -> tuple[Any, Any]:
    """Whether registers and local memory suffice and a block of several items of the batch holds the whole of each; and how
    many groups a multiprocessor holds, at least one."""
    rows, columns = plan.extents
    held = residents(own.problem, plan)
    sticks_out = (plan.items > 1) & ((own.count("rows") > rows) | (own.count("columns") > columns))
    return (held > 0) & ~sticks_out, np.maximum(held, 1)
