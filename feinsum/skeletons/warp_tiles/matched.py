"""The products of a kernel of warp tiles: the instructions of a match, read as tall products of the plan's shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import loopy as lp
from loopy.symbolic import pw_aff_to_expr

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.loops import fixed_length
from feinsum.skeletons.common.matrix_product import MatrixProduct, matrix_product_of
from feinsum.skeletons.warp_tiles.plan import WarpTiles
from feinsum.skeletons.warp_tiles.wide_stores import RowPlaces, rows_in_memory


@dataclass(frozen=True)
class MatchedProducts:
    """The outputs of a match, numbered as its instructions are, and the product that each is made of.

    :ivar m: the index letter of the rows of a product, and `n`, of its columns.
    :ivar instructions: that compute the outputs.
    :ivar products: of every output, equal where outputs share one.
    :ivar sums: lengths of the indices summed over.
    :ivar batch: index letters with a product of their own -> their lengths.
    """

    kernel: lp.LoopKernel
    match: Match
    m: str
    n: str
    instructions: tuple[Any, ...]
    products: tuple[MatrixProduct, ...]

    @cached_property
    def sums(self) -> tuple[int, ...]:
        return tuple(fixed_length(self.kernel, iname) for iname in self.products[0].sums)

    @cached_property
    def batch(self) -> dict[str, int]:
        letters = (letter for letter, _ in self.products[0].formal if letter not in (self.m, self.n))
        return {letter: fixed_length(self.kernel, self.match.inames[letter]) for letter in letters}

    @cached_property
    def rows(self) -> Any:
        """How many rows m there are, as an expression."""
        return pw_aff_to_expr(self.kernel.get_iname_bounds(self.match.inames[self.m]).size)

    @cached_property
    def columns(self) -> int:
        return fixed_length(self.kernel, self.match.inames[self.n])

    @cached_property
    def before(self) -> frozenset[str]:
        """The ids of the instructions that all of the match wait for."""
        awaited = frozenset[str]().union(*(insn.depends_on for insn in self.instructions))
        return awaited - set(self.match.insn_ids)

    @property
    def index_dtype(self) -> Any:
        return self.kernel.index_dtype.numpy_dtype

    def distinct_products(self) -> dict[MatrixProduct, list[int]]:
        """Every product -> the outputs that are made of it."""
        found: dict[MatrixProduct, list[int]] = {}
        for output, p in enumerate(self.products):
            found.setdefault(p, []).append(output)
        return found

    def other_loops(self, output: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Loops of an instruction besides those of m and n, and their lengths."""
        loops = self.match.loops[output]
        others = tuple(sorted(self.instructions[output].within_inames - {loops[self.m], loops[self.n]}))
        return others, tuple(fixed_length(self.kernel, iname) for iname in others)

    def inner_loops(self, output: int) -> dict[str, int]:
        """The loops whose indices come behind n in the output, and their lengths: parts of its rows if n is behind m."""
        before, _, behind = self.match.einsum.indexing.output.partition(self.m + self.n)
        if len(before) + len(behind) + 2 > len(self.match.einsum.indexing.output):
            return {}
        loops = self.match.loops[output]
        return {loops[x]: fixed_length(self.kernel, loops[x]) for x in behind}

    def rows_of(self, output: int) -> RowPlaces:
        """The place of the rows of an output in memory.

        :raises TransformError: if they do not lie one after the other.
        """
        loops, inner = self.match.loops[output], self.inner_loops(output)
        others = [name for name in self.other_loops(output)[0] if name not in inner]
        element = self.instructions[output].assignee
        return rows_in_memory(self.kernel, element, loops[self.m], loops[self.n], self.columns, others, inner)


def matched_products(
    kernel: lp.LoopKernel, match: Match, operand: int | None, m: str, n: str, plan: WarpTiles, last: str | None = None
) -> MatchedProducts:
    """The products of a match; see :func:`feinsum.skeletons.warp_tiles.write.write` for the parameters.

    :raises TransformError: if an instruction has no such form, or another than the plan is made for.
    """
    instructions = tuple(kernel.id_to_insn[insn_id] for insn_id in match.insn_ids)
    if any(insn.predicates for insn in instructions):
        raise TransformError(f"instruction '{match.insn_ids[0]}' has a predicate, which lanes of a product cannot have")
    products = tuple(matrix_product_of(kernel, match, output, operand, m, n, last) for output in range(len(instructions)))
    matched, planned = MatchedProducts(kernel, match, m, n, instructions, products), plan.product
    found = match.einsum.dtypes[0], matched.columns, matched.sums, math.prod(matched.batch.values())
    if found != (planned.dtype, planned.columns, planned.sums, planned.batch):
        raise TransformError(f"the plan is for {planned}, and the match has (dtype, columns, sums, batch) = {found}")
    return matched
