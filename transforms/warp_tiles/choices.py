"""Choices of the parameters of warp tiles, best guess first; the plan's fields state their meanings.

Few elements are in flight where a warp needs many registers, so as many warps stay on a compute unit as these allow; all
of one group, which then keep one copy of the matrices and are given what registers there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from feinsum.devices.vendors.known_vendors import copies_of, matrix_units
from feinsum.errors import TransformError
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP
from feinsum.skeletons.warp_tiles import Prefetch, TallProduct, WarpTiles
from feinsum.space import Choices, Problem, Value

from .tall_operators import ELEMENTS, NODES

SHORT, LONG, SPLIT = "fp64-mma-m16n8k4", "fp64-mma-m16n8k8", "tf32-mma-m16n8k8"
UNITS = {np.dtype(np.float64): (SHORT, LONG), np.dtype(np.float32): (SHORT, LONG, SPLIT)}
"""The units by the type of operands and outputs.  Units for float64 multiply float32 exactly but for the last rounding."""
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
"""The values of these parameters in configurations recorded before they existed."""
# The numbers here, and the lengths of rows from which a choice is offered, or comes first, were chosen by hand while DG
# operators of order 1 to 7 were tuned on an NVIDIA H200, from 20 to 22 November 2026.
_FEW_TILES = 2
"""Tiles of a warp below which a late begin does not pay."""
_UNEVEN = 1.05
"""The excess time of some warps over the average from which products are better computed in turn.

Of 75 000 elements of order 6 a warp has 4.4 tiles; dealt product by product, divergences of four and five outputs went from
361 to 326 us on that device.
"""
_LONG_SUM = 24
"""Products of a sum beyond which float32 is better split than multiplied as float64."""
_BESIDES = 1.35
"""Registers that compilers use, for one that a plan counts."""
_SLICE_STEPS = 3
"""Steps along the last index in a slice, the most that registers have room for beside the sums of all columns."""


def shared_choices(p: Problem, product: TallProduct, units: Sequence[str] = ()) -> dict[str, Sequence[Value]]:
    """The choices that all operators have.

    :param units: matrix units in order of preference, of which those for the type are offered.  Of two for float64 the
        longer takes half the instructions; that for tf32 is offered where split numbers keep the bound of float32.
    """
    rows, itemsize = product.columns, product.dtype.itemsize
    units = units or ((SPLIT, SHORT, LONG) if product.terms > _LONG_SUM else (SHORT, SPLIT, LONG))
    own = tuple(unit for unit in units if unit in UNITS.get(product.dtype, units))
    warps = _warps(p, product, own[0])
    copied = copies_of(p.device) is not None
    prefetch = ("none", "values", "copies", "all") if copied else ("none", "values", "all")
    # Long rows need the registers and the local memory for the matrix.
    prefetch = ("copies and held", *prefetch) if copied and rows <= 40 else prefetch
    # Memory is written in sectors of 32 bytes: a lane at a time only where rows are whole ones, or what fits is so.
    direct = rows > 24 and rows * itemsize % 32 == 0
    return {
        "staged": (False, True) if direct and itemsize == 8 else (True, False) if direct or rows > 64 else (True,),
        "tiles": (0, 2) if rows <= 10 else (0,),
        "sub_groups": warps,
        "together": (1, 2) if rows <= 24 else (1,),
        "prefetch": prefetch,
        "unit": own,
        "sums": ("whole", "split", "apart") if SPLIT in own else ("apart",),
        "burst": (0, 8, 1) if copied else (8, 1),
        "wide": (True, False),
        "slices": (1,),
        "stagger": _staggers(p, warps[0]) if copied else (0,),
        "parts": (1, 2, 3) if rows > 64 else (1,),
        "in_turn": _sequential_products(p, product, warps[0]),
        "weighted": (True, False) if rows > 64 else (False,),
    }


def face_mass_choices(p: Problem, product: TallProduct) -> Choices:
    """The choices for values of several faces that are scaled as they are loaded."""
    few, many = product.columns <= 4, product.terms > 40
    own = shared_choices(p, product, (SPLIT, LONG, SHORT) if many else (SHORT, LONG, SPLIT))
    tiles = (2, 4, 0) if few else own["tiles"]
    everywhere = (False, True) if few else (True, False)
    return {**own, "tiles": tiles, "prefetch": _of_computed_values(own), "everywhere": everywhere}


def divergence_choices(p: Problem, product: TallProduct) -> Choices:
    """The choices for values that are sums: with slices of the sum over j, each multiplied for all r, u is loaded once."""
    steps, many = -(-product.sums[-1] // matrix_units()[SHORT].k), product.terms > 200
    lengths = {-(-steps // length) for length in range(2, 8)}
    slices = sorted(lengths, key=lambda n: abs(-(-steps // n) - _SLICE_STEPS))
    own = shared_choices(p, product)
    known = (*_of_computed_values(own), *(("copies and held",) if "copies" in own["prefetch"] else ()))
    offered = (*slices, 1) if many else (1, *slices) if steps > 8 else (1,)
    return {**own, "slices": offered, "prefetch": known if steps < 20 else known[::-1]}


def matrix_choices(p: Problem, product: TallProduct) -> Choices:
    """The choices for values without a metric: several of them at a time are loaded, not copied."""
    own = shared_choices(p, product)
    ahead = tuple(x for x in own["prefetch"] if not Prefetch(str(x)).held)
    loaded = tuple(x for x in ahead if not Prefetch(str(x)).copies) if product.fields > 1 else ahead
    return {**own, "prefetch": (*(x for x in loaded if x != "none"), "none")}


def in_layout(own: Choices, *, reads_rows: bool, stores_rows: bool) -> Choices:
    """The choices possible for an order of axes: only rows can be copied as pieces, or gathered to be stored as such."""
    found = dict(own)
    if not reads_rows:
        found["prefetch"] = tuple(x for x in own["prefetch"] if not Prefetch(str(x)).copies)
    if not stores_rows:
        found |= {"staged": (False,), "wide": (False,)}
    return found


def may_fit(p: Problem, product: TallProduct, own: Choices) -> bool:
    """Whether the device has a unit, and its local memory may hold the matrices, in the most parts there are.

    Other einsums look like operators, too, and all of their configurations would be tried.
    """
    if not {*own["unit"]} & {*p.device.matrix_units}:
        return False
    numbers, parts = product.distinct_matrices * product.columns * product.terms, max(map(int, own["parts"]))
    return p.exceeds(local_bytes=numbers * product.dtype.itemsize // parts) is None


def _of_computed_values(own: Choices) -> tuple[Value, ...]:
    """The choices of ``prefetch`` for values that are computed from loaded elements."""
    return tuple(choice for choice in ("none", "copies") if choice in own["prefetch"])


def _warps(p: Problem, product: TallProduct, unit: str) -> list[int]:
    """Warps of a group, those first that registers have room for."""
    try:
        needed = WarpTiles(product, unit, warps=1).registers()
    except TransformError:  # no unit multiplies such numbers, and every configuration is refused
        needed = 0
    # No work-item has more; how many it has besides cannot be known without the compiler.
    needed = min(needed, p.device.max_registers_per_work_item or needed)
    likely = (p.device.registers_per_compute_unit or 0) / (_BESIDES * SUB_GROUP * needed) if needed else 0
    # With too many, numbers go to memory; with too few, latency shows: half as bad.
    return sorted((4, 8, 12, 16, 20, 24), key=lambda n: n - likely if n > likely else (likely - n) / 2)


def _sequential_products(p: Problem, product: TallProduct, warps: int) -> tuple[bool, ...]:
    """Whether products are computed in turn, first where warps otherwise had very different numbers of tiles."""
    if product.products == 1:
        return (False,)
    tiles = _tiles_per_warp(p, warps)
    return (True, False) if math.ceil(tiles) >= _UNEVEN * tiles else (False, True)


def _tiles_per_warp(p: Problem, warps: int) -> float:
    """Tiles of a warp on average."""
    return p.sizes[ELEMENTS] / (matrix_units()[SHORT].m * p.device.compute_units * warps)


def _staggers(p: Problem, warps: int) -> tuple[int, ...]:
    """Nanoseconds to begin late, none first where a warp has so few tiles that it would not make up for them."""
    late = (4000, 2000, 1000) if p.sizes[NODES] > 40 else (500, 1000, 2000)
    return (*late, 0) if _tiles_per_warp(p, warps) >= _FEW_TILES else (0, *late)
