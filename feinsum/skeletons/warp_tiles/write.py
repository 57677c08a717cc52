"""Contractions on matrix units, tile by tile: ``P[m, n] = Σ_k A[m, k] B[k, n]`` with a long m and small n and k.

A warp takes 16 rows m at a time and all columns n.  B lies in local memory for the whole kernel, in the order in which
lanes read it; fragments of A stay in registers; no work-group ever waits inside the loop over tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp

from feinsum.match import Match
from feinsum.rewrites.finishing import mark_finished, others_than
from feinsum.rewrites.loops import without_race_warnings
from feinsum.skeletons.common.matrix_product import MatrixProduct
from feinsum.skeletons.instructions.async_copies import register_async_copies
from feinsum.skeletons.instructions.matrix_units import COLUMNS, register_matrix_unit
from feinsum.skeletons.warp_tiles.accumulators import Accumulators
from feinsum.skeletons.warp_tiles.copies import CopiedRows
from feinsum.skeletons.warp_tiles.held import HeldCopies, HeldRegisters
from feinsum.skeletons.warp_tiles.lane_stores import LaneStores
from feinsum.skeletons.warp_tiles.long_operand import Loads, LongOperand, loads_of
from feinsum.skeletons.warp_tiles.matched import matched_products
from feinsum.skeletons.warp_tiles.plan import WarpTiles
from feinsum.skeletons.warp_tiles.resident_factor import ResidentFactor
from feinsum.skeletons.warp_tiles.staged_stores import StagedStores
from feinsum.skeletons.warp_tiles.tile_epilogue import FinishedValues, TileStores
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops, TurnLoop


def write(
    t_unit: lp.TranslationUnit,
    match: Match,
    plan: WarpTiles,
    operand: int | None,
    m: str,
    n: str,
    *,
    held: Mapping[str, str] | None = None,
    last: str | None = None,
) -> lp.TranslationUnit:
    """Compute a sum of products on matrix units, and the results that are made of it where it lies.

    Before, with ``P(r, n, m) := sum(k, B(r, n, k) * A(m, k))``, for every output of the match::

        for x, m, n: out[x, m, n] = J(x, 0, m) * P(0, n, m) + J(x, 1, m) * P(1, n, m)

    After, for g, t = lane / 4, lane mod 4 and S warps s of a group, everything over r, x, h, c unrolled::

        for block, r, step: b[block, r, step, lane] = B(r, 8 block + column of B, 4 step + t)
        ... lbarrier
        for tile in range(group * S + s, ceil(M / 16), groups * S):
            for step, h: a[step, h] = A(16 tile + 8 h + g, 4 step + t)
            for x, r, h: j[x, r, h] = J(x, r, 16 tile + 8 h + g)
            for block:
                for r, h, c: acc[r, h, c] = 0
                for step, r: acc[r, ...] = mma(acc[r, ...], a[step, ...], b[block, r, step, lane])
                for x, h, c: out[x, 16 tile + 8 h + g, 8 block + 4 c + t] = j[x, 0, h] * acc[0, h, c] + ...

    Numbers beyond an operand are zeros, and results beyond the output are not stored, so any m, n and k will do; of
    several indices k the last is padded to whole steps.  Outputs with the same product share it; of several products, the
    loop over tiles has all, or each has one of its own; so have parts of the columns with a share of the groups.
    Registers of a lane: two for each step of A, four for each r, two for each entry of what is held.  With several slices
    of the sum: two for each step of one, and four for each r and block; the loop over blocks is in that over slices.

    :param plan: how tiles are dealt, for products of the shape and the type that the match has.
    :param operand: the operand whose rule is the sum of products (see :func:`feinsum.rewrites.contract_first`); None
        if the instructions of the match are such sums themselves.
    :param m: the index letter of the long axis; factors of the products that have it are A, the others are B.
    :param n: the index letter that becomes columns.
    :param held: substitution rules whose values are loaded once for all columns and outputs -> the index letters of their
        arguments, m among them and n not.
    :param last: the index letter that is the last of several summed over, where the match has another order.
    :raises TransformError: if the instructions have no such form, or another than the plan is for.

    ``blockize`` and ``tensorize`` in TVM; warp-level tiling in CUTLASS, with the smaller operand persistent.
    """
    loops = TileLoops(matched_products(t_unit[match.kernel_name], match, operand, m, n, plan, last), plan)
    others = others_than(t_unit, match)
    t_unit = mark_finished(t_unit.with_kernel(_write_tile_loops(loops, held or {})), match, others)
    if plan.copies_asynchronously:
        t_unit = register_async_copies(t_unit, plan.copies, plan.product.dtype)
    if plan.accumulation == "apart":
        return register_matrix_unit(t_unit, plan.unit)
    return register_matrix_unit(t_unit, plan.unit, "bits", plan.accumulation)


def _write_tile_loops(loops: TileLoops, held: Mapping[str, str]) -> lp.LoopKernel:
    """The kernel of some loops over tiles, with the instructions of the match replaced."""
    products = loops.matched.distinct_products()
    parts = _kernel_parts(loops, list(products), held)
    previous: tuple[str, ...] = (loops.begin(),)
    dealt_from_places = False
    for number, turn in enumerate(loops.turns(list(products))):
        ended = previous if number else ()
        tiles = loops.deal(turn, ended)
        previous += tiles.placed
        dealt_from_places = dealt_from_places or bool(tiles.placed)
        loads = loads_of(parts.long, tiles, ended)
        multiply = parts.multiply_by_slices if loops.plan.k_slices > 1 else parts.multiply_by_blocks
        for k, p in enumerate(turn.products):
            previous = multiply(tiles, k, products[p], loads, previous)
    kernel = loops.draft.finished(loops.matched.match.insn_ids, {p.rule for p in products if p.rule is not None})
    # A tile's place may be in a temporary, which does not show loopy that it is this warp's alone.
    own = (insn.id for insn in loops.draft.instructions)
    return without_race_warnings(kernel, own) if dealt_from_places else kernel


def _kernel_parts(loops: TileLoops, products: Sequence[MatrixProduct], held: Mapping[str, str]) -> TileParts:
    """The parts of a kernel, each given what it is made with; B is on its way to local memory."""
    plan, resident = loops.plan, dict[Any, ResidentFactor]()
    for p in products:
        if p.b not in resident:
            resident[p.b] = ResidentFactor(loops, p)
    registers = HeldRegisters(loops, {} if plan.k_slices > 1 else held)
    held_copies = HeldCopies(loops, held) if plan.copies_held else None
    copies = CopiedRows(loops, products) if plan.prefetch.copies else None
    accumulators = Accumulators(loops)
    values = FinishedValues(loops, accumulators, registers)
    epilogue = StagedStores(loops, values) if plan.staged else LaneStores(loops, values)
    return TileParts(loops, LongOperand(loops, products, registers, held_copies, copies), resident, accumulators, epilogue)


@dataclass(frozen=True)
class TileParts:
    """A kernel of warp tiles, part by part.

    :ivar long: A in registers; :ivar resident: every B in local memory.
    :ivar accumulators: P in registers; :ivar epilogue: the way from there to the outputs.
    """

    loops: TileLoops
    long: LongOperand
    resident: Mapping[Any, ResidentFactor]
    accumulators: Accumulators
    epilogue: TileStores

    def multiply_by_blocks(
        self, turn: TurnLoop, number: int, outputs: Sequence[int], loads: Loads, after: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Compute all columns of a tile: products by blocks of columns, and results of them; returns the last ids."""
        loaded = loads.load(number, after)
        draft, part, p = self.loops.draft, self.loops.part, turn.products[number]
        block = draft.fresh("block")
        inside = f"0 <= {block} < {turn.blocks.count}"
        if part:
            most = -(-self.loops.matched.columns // COLUMNS)
            draft.domain(part, [block], f"{inside} and {part} * {turn.blocks.count} + {block} < {most}")
        else:
            draft.domain("", [block], inside)
        around = turn.inside | {block}
        cleared = self.accumulators.clear(around, loaded)
        multiplied = self.accumulators.multiply(self.long, self.resident[p.b], p, turn, block, cleared)
        return self.epilogue.store(turn, outputs, block, self.accumulators.finish(multiplied, around))

    def multiply_by_slices(
        self, turn: TurnLoop, number: int, outputs: Sequence[int], loads: Loads, after: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Compute all columns of a tile: products slice by slice of the sum, and results of them; returns the last ids."""
        draft, p = self.loops.draft, turn.products[number]
        slice_ = draft.fresh("slice")
        draft.domain("", [slice_], f"0 <= {slice_} < {self.loops.plan.k_slices}")
        cleared = self.accumulators.clear(turn.inside, after)
        loaded = loads.load(number, after, slice_)
        block, last = draft.unrolled(("block", "block"), (turn.blocks.count, turn.blocks.count))
        ready = (*cleared, *loaded)
        multiplied = self.accumulators.multiply(self.long, self.resident[p.b], p, turn, block, ready, slice_)
        return self.epilogue.store(turn, outputs, last, self.accumulators.finish(multiplied, turn.inside))
