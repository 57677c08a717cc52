"""Choices for contractions in blocks: parts of long sums, operands to pack, units, pipelines, and sizes of blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product as iter_product
from math import prod

from feinsum.devices import DeviceProfile
from feinsum.devices.ptx import matrix_unit
from feinsum.einsum import BatchedEinsum
from feinsum.rewrites.fusion import side_by_side
from feinsum.skeletons.block_tiles.blocks import Blocks
from feinsum.skeletons.block_tiles.fragments import MULTIPLY_ADD
from feinsum.skeletons.nvidia.matrix_units import split_error
from feinsum.space import Choices, Problem, Value

from .limits import residents
from .products import Product
from .steps import joined, prepared
from .work import product_work

MOST_SHAPES, MOST_ALIKE = 20, 3
MOST_DEPTHS = 4
LOOKED_AT, MOST_QUICK = 40, 8
SMALLEST_SHAPE = "1 2 2 of 1 1"
REUSED = 1024
"""How often an operand has to be used so that a copy of it in another order is worth it."""
MOST_RESIDENT = 4
"""Groups of a multiprocessor beyond which more make no difference."""
GROUPS_WANTED = 6
"""Work-groups for each multiprocessor, among which a sum is split."""
ENOUGH_SUB_GROUPS = 8
"""Of a multiprocessor, so that some multiply while others wait."""


def splits(product: Product) -> list[str]:
    """Ways to share a sum among work-groups, where the output is too small for all of them: ``"k 64"`` is parts of 64."""
    p = product.problem
    points = prod(product.count(name) for name in ("rows", "columns", "batch"))
    wanted = GROUPS_WANTED * p.device.compute_units * 64 * 64 / points
    if wanted < GROUPS_WANTED:
        return ["none"]
    found = {}
    for x in product.letters["sums"]:
        for length in p.divisors(x)[:-1]:
            if product.count("sums") * length >= 64 * p.sizes[x]:
                found[f"{x} {length}"] = 0.5 * (length % 4 != 0) + abs(math.log2(p.sizes[x] / length / wanted))
    return [*sorted(found, key=lambda text: found[text])[:4], "none"]


def packings(product: Product) -> list[str]:
    """Operands worth copying first: of large products, where what is summed is quickest in neither or not in both."""
    least = min(product.count("rows"), product.count("columns"))
    quick = {product.quickest(side) for side in (0, 1)}
    same = len(quick) == 1 and quick <= set(product.letters["sums"])
    if same or least < REUSED or product.count("sums") < REUSED // 4:
        return ["none"]
    return ["0", "none", "1", "01"]


def joinings(p: Problem, choices: Choices) -> list[bool]:
    """Whether indices that are side by side become one, where there are such after some way to split and pack."""
    return [False, True] if any(side_by_side(own.einsum) for own in _prepared(p, choices)) else [False]


def depths(p: Problem, product: Product, choices: Choices) -> list[int]:
    """Depths of a tile that waste least, then those that do with other indices."""
    others = (Product(joined(own), (0, 1)) for own in _prepared(p, choices)) if True in choices["joined"] else ()
    return list(dict.fromkeys(depth for each in (product, *others) for depth in each.depths[:MOST_DEPTHS]))


def _prepared(p: Problem, choices: Choices) -> list[Problem]:
    """The contraction as it is after every way to pack operands, its sum in one."""
    return [prepared(p, "none", str(packed)).problem for packed in choices["packed"]]


def units(p: Problem, terms: int) -> list[str]:
    """What can multiply numbers of the type of a result: matrix units of the device, and multiply-adds.

    A unit for float32 by splitting is offered where it keeps the bound of ordinary arithmetic.
    """
    dtypes = {str(a.dtype) for row in p.einsum.args for entry in row for a in entry}
    found = []
    for name in p.device.matrix_units:
        unit = matrix_unit(name)
        fits = unit.m == 16 and dtypes == {"float64" if unit.dtype == "double" else "float32"}
        if fits and split_error(unit, terms) <= terms:
            found.append(name)
    found.sort(key=lambda name: matrix_unit(name).k)
    return [*found, MULTIPLY_ADD]


def pipelines(p: Problem, several: bool) -> list[str]:
    """How tiles come to local memory, and in how many buffers; `several` is whether a sum has more than one tile."""
    arrays = [array for row in p.einsum.args for entry in row for array in entry]
    alike = len({array.dtype for array in arrays}) == 1 and all(len(entry) == 1 for row in p.einsum.args for entry in row)
    known = ["async 3", "async 2", "async 4"] if alike and "cp-async-16" in p.device.instructions else []
    return [*known, "registers 1", "registers 2"] if several else ["registers 1", *known[1::-1], "registers 2"]


def shapes(product: Product, **choices: Value) -> list[str]:
    """Blocks by what they cost, cheapest first: ``"items down across of down across"``, sub-groups of fragments.

    Few with fragments of the same number, so that among them are large and small ones; after these come the quickest of
    the cheapest by what :mod:`feinsum.transforms.block_tiles.work` knows besides.
    """
    p = product.problem
    return list(_shapes(p.einsum, tuple(p.sizes.items()), p.device, product.operands, tuple(choices.items())))


@lru_cache(maxsize=512)
def _shapes(
    e: BatchedEinsum,
    sizes: tuple[tuple[str, int], ...],
    device: DeviceProfile,
    operands: tuple[int, int],
    choices: tuple[tuple[str, Value], ...],
) -> tuple[str, ...]:
    product = Product(Problem(e, dict(sizes), device), operands)
    usual = product.plan({**dict(choices), "shape": SMALLEST_SHAPE})
    plans: dict[str, Blocks] = {}
    costs: dict[str, float] = {}
    alike: dict[int, list[str]] = {}
    for sub_groups, tiles in iter_product(_arrangements(), _tilings(usual.unit != MULTIPLY_ADD)):
        plan = replace(usual, sub_groups=sub_groups, tiles=tiles)
        cost = _cost(product, plan)
        if cost is not None:
            text = " ".join(map(str, (*sub_groups, "of", *tiles)))
            plans[text], costs[text] = plan, cost
            alike.setdefault(prod(tiles), []).append(text)
    few = (text for each in alike.values() for text in sorted(each, key=costs.__getitem__)[:MOST_ALIKE])
    found = sorted(few, key=costs.__getitem__)[:MOST_SHAPES] or [SMALLEST_SHAPE]

    def seconds(text: str) -> float:
        return product_work(product, plans[text]).seconds(device, product.problem.itemsize)

    cheap = sorted(costs, key=costs.__getitem__)[:LOOKED_AT]
    quick = sorted((text for text in cheap if text not in found), key=seconds)
    return (*found, *quick[:MOST_QUICK])


def _arrangements() -> Iterator[tuple[int, int, int]]:
    for items in (1, 2, 4, 8):
        for down in range(1, 9):
            for across in range(1, 9):
                if items * down * across in (4, 6, 8, 10, 12, 16):
                    yield items, down, across


def _tilings(unit: bool) -> Iterator[tuple[int, int]]:
    for down in (1, 2, 4) if unit else (1, 2, 4, 8):
        for across in (1, 2, 3, 4, 5, 6, 8, 9, 10, 12) if unit else (1, 2, 4, 8, 16):
            yield down, across


def _cost(product: Product, plan: Blocks) -> float | None:
    """Multiplications of the busiest multiprocessor, and loads in terms of them; None if registers do not suffice.

    What is loaded for a block from global memory, and for the fragments of a sub-group from local memory, is less for each
    multiplication the larger these are.
    """
    p, (rows, columns), items = product.problem, plan.shape, plan.sub_groups[0]
    resident = min(residents(product, plan), MOST_RESIDENT)
    lengths = {name: product.count(name) for name in ("rows", "columns", "batch")}
    if resident == 0 or (items > 1 and (lengths["rows"] > rows or lengths["columns"] > columns)):
        return None
    groups = -(-lengths["rows"] // rows) * -(-lengths["columns"] // columns) * -(-lengths["batch"] // items)
    # Groups come and go; at the end half of those that a multiprocessor holds are left, as a rule.
    rounds = max(groups / p.device.compute_units, 1.0) + resident / 2
    fragment = plan.tiles[0] * plan.fragments.rows, plan.tiles[1] * plan.fragments.columns
    loads = 16 / rows + 16 / columns + 8 / fragment[0] + 8 / fragment[1]
    hidden = min(1.0, resident * prod(plan.sub_groups) / ENOUGH_SUB_GROUPS)
    together = 1 + prod(plan.sub_groups) / 48  # the more wait for each other, the longer
    return rounds * items * rows * columns * (1 + loads) * together / hidden
