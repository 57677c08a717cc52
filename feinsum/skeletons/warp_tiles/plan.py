"""The plan of warp tiles: ``P[m, n] = Σ_k A[m, k] B[k, n]`` by warps that take 16 rows m at a time.

A *warp* is a sub-group of 32; its 32 *lanes* are what OpenCL calls work-items.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from feinsum.devices.vendors.known_vendors import vendor_with
from feinsum.devices.vendors.units import MatrixUnit
from feinsum.devices.vendors.vendor import AsyncCopies, Vendor
from feinsum.errors import TransformError
from feinsum.parameters import described
from feinsum.skeletons.instructions.async_copies import WIDEST_BYTES, copies_for
from feinsum.skeletons.instructions.matrix_units import COLUMNS, DEPTH, ROWS, SUB_GROUP, fragment_dtype, fragment_unit
from feinsum.skeletons.instructions.summing_units import SUMS
from feinsum.skeletons.warp_tiles.tiling import Share, TallProduct, weighted_shares

_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
_ADDRESSES = 16
"""Registers of a lane for addresses and counters: chosen by hand."""


class Prefetch(StrEnum):
    """Loads for the next product before the present one is computed; see :attr:`WarpTiles.prefetch`."""

    NONE = "none"
    VALUES = "values"
    ALL = "all"
    COPIES = "copies"
    COPIES_AND_HELD = "copies and held"

    @property
    def copies(self) -> bool:
        """Whether A comes through local memory, to which it is copied asynchronously."""
        return self in (Prefetch.COPIES, Prefetch.COPIES_AND_HELD)

    @property
    def loads(self) -> bool:
        """Whether A of the next product is loaded into registers of its own."""
        return self in (Prefetch.VALUES, Prefetch.ALL)

    @property
    def held(self) -> bool:
        """Whether held values of the next tile are loaded ahead, too."""
        return self in (Prefetch.ALL, Prefetch.COPIES_AND_HELD)


@dataclass(frozen=True)
class WarpTiles:
    """The dealing of tiles of 16 rows to warps, and the places of operands and sums.

    :raises TransformError: if the kernel cannot be written so.
    """

    product: TallProduct = described("The shape and the type of the products that are computed.", word="warp tile")
    matrix_unit: str = described(
        """The matrix unit that multiplies fragments, such as ``fp64-mma-m16n8k4``.  float32 may be multiplied by a unit for
        float64, exactly but for the last rounding, or by that for tf32, with every number split in two.""",
        word="matrix unit",
        parameter="unit",
    )
    warps: int = described("Warps of a work-group.", word="warps", parameter="sub_groups")
    persistent_groups: int = described(
        """Work-groups that stay for the whole kernel and stride over the tiles of a part of the columns: `together` of them
        on each compute unit, shared among the parts; 0 for groups that come and go, as many as the tiles need.""",
        word="persistent groups",
        parameter="together",
        default=0,
    )
    tiles: int = described(
        "Tiles that a warp takes before its group goes; 0 for groups that stay.",
        word="persistent groups",
        parameter="tiles",
        default=1,
    )
    n_split: int = described(
        """Parts of the columns.  Each is the work of other groups, which keep their part of B in local memory, where all
        of B has no room.""",
        word="N-split",
        parameter="parts",
        default=1,
    )
    weighted: bool = described(
        """Whether parts of fewer columns have fewer groups, and loops of their own; otherwise all parts have as many
        groups, and the last part multiplies zeros, or ends early.""",
        word="N-split",
        parameter="weighted",
        default=False,
    )
    staged: bool = described(
        "Whether results pass through local memory, to leave in whole rows; otherwise each lane stores its own.",
        word="staged epilogue",
        parameter="staged",
        default=False,
    )
    vector_stores: bool = described(
        "Whether a lane writes several numbers at once: 16 bytes of what is staged, or else two neighbours in a row.",
        word="vector stores",
        parameter="wide",
        default=False,
    )
    prefetch: Prefetch = described(
        """What is loaded for the next product before the one at hand is computed: ``"none"``; into registers of their own
        ``"values"``, which are A, or ``"all"``, which is also what is held, although results need that late; or into
        local memory, by copies that no lane waits for, ``"copies"`` of A, if that is rows of an array, or
        ``"copies and held"``, where what is held comes ahead, too: into registers or, with k-slices, by copies.""",
        word="prefetch",
        parameter="prefetch",
        default=Prefetch.NONE,
    )
    clamped_loads: bool = described(
        """Whether A is computed beyond the last row and k, too, from the last there are, rather than on a condition.
        Compilers predicate a single load; around more they branch, and then each waits for the one before.  A product of
        two loads is as a rule faster so, a single load slower; sums are computed so in any case.""",
        word="clamped loads",
        parameter="everywhere",
        default=False,
    )
    accumulation: str = described(
        """How the steps of a sum are added: ``"apart"``, by the ordinary adder; or by the unit for tf32 itself, as far as
        that keeps the bound of float32, with B ``"whole"`` or ``"split"`` in local memory.""",
        word="accumulation",
        parameter="sums",
        default="apart",
    )
    loads_in_flight: int = described(
        """Fragments of B that a warp loads before it stores any of them in local memory; 0 to copy all of B asynchronously,
        where it has the type that the unit multiplies.""",
        word="loads in flight",
        parameter="burst",
        default=1,
    )
    k_slices: int = described(
        """Slices of the sum, along the last index summed over.  With one, registers hold all values of A and the
        accumulators of a block of columns; with several, the values of one slice and the accumulators of all blocks.""",
        word="k-slices",
        parameter="slices",
        default=1,
    )
    stagger: int = described(
        """Nanoseconds by which every further four warps of a group, one for each scheduler of a multiprocessor, begin
        late, so that some warps multiply while others load and store; 0 for all at once.""",
        word="stagger",
        parameter="stagger",
        default=0,
    )
    product_major: bool = described(
        """Whether all tiles of a product come before those of the next, which are dealt from where they ended, rather than
        all products of a tile one after the other.  Few tiles are so dealt more evenly; what is held is loaded for each
        product.""",
        word="product-major order",
        parameter="in_turn",
        default=False,
    )

    def __post_init__(self) -> None:
        reason = self._unfit_deal() or self._unfit_stores() or self._unfit_loads()
        if reason is not None:
            raise TransformError(reason)
        _ = self.shares  # whether every part has groups and columns shows as they are shared

    def _unfit_deal(self) -> str | None:
        """The reason why tiles cannot be dealt so, or None."""
        if min(self.warps, self.n_split, self.k_slices, self.tiles or self.persistent_groups) < 1:
            return "a kernel of warp tiles has warps, parts, slices, and groups that stay or tiles for those that go"
        if self.stagger and (not self.persistent_groups or self.warps <= self.vendor.schedulers):
            return "groups that do not stay, or have but one sub-group for each scheduler, are not staggered"
        if self.product_major and not self.persistent_groups:
            return "groups that come and go do not compute products in turn"
        if self.product_major and self.product.products == 1:
            return "products are computed in turn where there are several"
        if self.weighted and self.product.blocks(1) % self.n_split == 0:
            return "parts have as many columns"
        return None

    def _unfit_stores(self) -> str | None:
        """The reason why results cannot be stored so, or None."""
        if self.staged and self.n_split > 1:
            return "staged results are whole rows"
        if self.stores_pairs and self.product.columns % 2:
            return "pairs of numbers do not make rows of odd length"
        return None

    def _unfit_loads(self) -> str | None:
        """The reason why operands cannot be loaded and multiplied so, or None."""
        product, unit = self.product, self.unit
        if product.dtype not in _DTYPES:
            return f"the units multiply float64, or float32, and not {product.dtype}"
        if product.dtype.itemsize > self.number.itemsize:
            return f"matrix unit '{unit.name}' multiplies {self.number}, which is too short for {product.dtype}"
        if self.accumulation not in SUMS:
            return f"'{self.accumulation}' is no way to add the steps of a sum, as {', '.join(SUMS)} are"
        if self.accumulation != "apart" and not unit.splits:
            return "the units for float64 add the steps of a sum by themselves"
        if self.loads_in_flight == 0 and (self.accumulation == "split" or self.number != product.dtype):
            return "copies do not turn numbers into those that the unit multiplies"
        if self.prefetch.loads and self.k_slices > 1:
            return "values of the next slice come by copies, or not ahead"
        if self.prefetch.copies or self.copies_asynchronously:
            _ = self.copies  # whether the vendor has such shows as they are looked up
        if self.prefetch.copies and product.fields > 1:
            return "values of several products are not copied"
        apart = product.planes > 1 or self.k_slices > 1
        if self.prefetch.copies and apart and product.sums[-1] * product.dtype.itemsize % WIDEST_BYTES:
            return f"rows of {product.sums[-1]} numbers are not whole pieces of {WIDEST_BYTES} bytes"
        return None

    @cached_property
    def unit(self) -> MatrixUnit:
        """The matrix unit itself."""
        return fragment_unit(self.matrix_unit)

    @cached_property
    def vendor(self) -> Vendor:
        """The vendor that has the unit, whose other instructions are used, too."""
        return vendor_with(self.unit)

    @cached_property
    def copies(self) -> AsyncCopies:
        """The instructions that copy asynchronously."""
        return copies_for(self.vendor)

    @cached_property
    def number(self) -> np.dtype[Any]:
        """The type of the unit's registers."""
        return fragment_dtype(self.unit)

    @cached_property
    def blocks(self) -> int:
        """Blocks of columns that a group has at most."""
        return self.product.blocks(self.n_split)

    @cached_property
    def steps(self) -> int:
        """Steps of all slices of a sum."""
        return self.product.steps(self.unit, self.k_slices)

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The shares of columns: with weighted parts one for each; otherwise one share of all columns."""
        if not self.weighted:
            return (Share(0, self.persistent_groups, 0, self.blocks),)
        return weighted_shares(self.product.blocks(1), self.persistent_groups * self.n_split, self.n_split)

    @property
    def stores_pairs(self) -> bool:
        """Whether a lane writes two neighbours in a row of an output at once."""
        return self.vector_stores and not self.staged

    @property
    def interleaved(self) -> bool:
        """Whether a lane's numbers of B for an instruction are neighbours in local memory, to be read at once."""
        return self.accumulation != "apart"

    @property
    def copies_held(self) -> bool:
        """Whether held values lie in local memory."""
        return self.prefetch is Prefetch.COPIES_AND_HELD and self.k_slices > 1

    @property
    def copies_asynchronously(self) -> bool:
        """Whether single numbers are copied to local memory that no lane waits for."""
        return self.loads_in_flight == 0 or self.copies_held

    @property
    def copied_depth(self) -> int:
        """Numbers of a row of A that are copied at a time: all, or those of a slice."""
        product, slices = self.product, self.k_slices
        return product.sums[-1] if slices == 1 else DEPTH * product.slice_length(self.unit, slices)

    @property
    def copied_numbers(self) -> int:
        """Numbers of local memory for a warp's rows of A, and for those that the last step reads beyond the last row."""
        beyond = 2 * DEPTH if self.copied_depth % (2 * DEPTH) else 0
        return ROWS * self.copied_depth * self.product.planes + beyond

    @property
    def padding(self) -> float:
        """Numbers that the unit multiplies, with those that fill the last blocks and steps, for one that is needed."""
        return COLUMNS * self.product.blocks(1) / self.product.columns * DEPTH * self.steps / self.product.terms

    def sum_error(self) -> float:
        """The error of a number of P in units of the roundoff of float32 times ``Σ |A| |B|``; 1 of units for float64."""
        terms = self.product.terms
        if not self.interleaved:
            return self.unit.error(terms)
        return self.unit.sum_error(terms, self.accumulation)

    def local_bytes(self) -> int:
        """Local memory of a work-group: B, rows of results on their way out, and copies of A and of held values."""
        product = self.product
        fragments = product.distinct_matrices * self.blocks * self.steps
        resident = fragments * SUB_GROUP * (2 if self.accumulation == "split" else 1)
        staged = ROWS * product.results * product.columns if self.staged else 0
        copied = self.copied_numbers if self.prefetch.copies else 0
        copied += ROWS * product.held if self.copies_held else 0
        return resident * self.number.itemsize + self.warps * (staged + copied) * product.dtype.itemsize

    def registers(self) -> int:
        """Registers of 32 bits that a lane needs at least.

        A lane needs two for each element of A and of P that it has, be it float64 or float32 and split in two; those of
        elements loaded ahead, as they are in memory; and some for addresses.  With several slices held values are not
        counted, as they are in local memory or loaded again.
        """
        product, sliced = self.product, self.k_slices > 1
        loaded = 2 * product.fields * self.steps // self.k_slices
        sums = 4 * product.batch * (self.blocks if sliced else 1)
        held = 0 if sliced else 2 * product.held * (2 if self.prefetch.held else 1)
        waiting = held + (loaded if self.prefetch.loads else 0)
        return 2 * (sums + loaded) + waiting * product.dtype.itemsize // 4 + _ADDRESSES
