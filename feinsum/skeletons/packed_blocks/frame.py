"""The frame of a kernel in packed blocks: loops over blocks and parts of a sum, and where they are in the fused indices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import get_dependencies
from pymbolic.primitives import Min, Variable

from feinsum.match import Match
from feinsum.rewrites.loops import axis_length
from feinsum.skeletons.common.draft import KernelDraft
from feinsum.skeletons.common.index_groups import GROUPS, IndexGroup, digit_extent
from feinsum.skeletons.packed_blocks.plan import PackedBlocks


@dataclass(frozen=True)
class Decoded:
    """The letters of some neighbours in a fused index.

    :ivar first: the number of the first of them; None where they stand in tables.
    :ivar tables: letter -> the array of its values.
    :ivar made: the instructions that fill the tables.
    """

    letters: str
    first: Any
    tables: Mapping[str, str]
    made: tuple[str, ...]

    def values(self, number: Any) -> dict[str, Any]:
        """The letters of the `number`-th neighbour."""
        if self.first is not None:
            return {self.letters: self.first + number}
        return {x: Variable(table)[number] for x, table in self.tables.items()}


@dataclass(frozen=True)
class PackedFrame:
    """The loops, lengths and draft that all parts of a kernel in packed blocks share.

    :ivar lengths: of every letter, an int or an expression of parameters.
    :ivar groups: the fused indices by name.
    :ivar totals: the length of each of rows, columns, and sums.
    :ivar blocks: the loops over blocks of rows and of columns.
    :ivar batch: letter -> its value, for the letters of both operands and the output.
    :ivar part: the number of the part of the sum; None if there is but one.
    :ivar inside: the loops around the instructions for each part.
    :ivar before: the instructions that come before all others.
    """

    draft: KernelDraft
    plan: PackedBlocks
    dtype: np.dtype[Any]
    lengths: Mapping[str, Any]
    groups: Mapping[str, IndexGroup]
    totals: tuple[Any, Any, Any]
    blocks: tuple[str, str]
    batch: Mapping[str, Any]
    part: Any
    inside: frozenset[str]
    before: frozenset[str]

    @property
    def order(self) -> list[str]:
        """The loop over the parts of the sum, if there is one, for the order of loops."""
        return [] if self.part is None else [str(self.part.name)]

    def array(self, base: str, shape: tuple[int, ...]) -> str:
        """A new private array of numbers."""
        return self.draft.array(base, shape, dtype=self.dtype, alignment=64)

    def vectors(self, base: str, shape: tuple[int, ...]) -> str:
        """A new private array of vectors."""
        name = self.draft.fresh(base)
        self.draft.temporaries[name] = lp.TemporaryVariable(
            name,
            dtype=self.dtype,
            shape=(*shape, self.plan.width),
            dim_tags=",".join([*(f"N{k}" for k in reversed(range(len(shape)))), "vec"]),
            address_space=lp.AddressSpace.PRIVATE,
        )
        return str(name)

    def lane(self) -> str:
        """A new loop over the lanes of a vector."""
        name = self.draft.fresh("lane")
        self.draft.domain("", [name], f"0 <= {name} < {self.plan.width}")
        self.draft.tags[name] = "vec"
        return str(name)

    def place(self, side: int, panel: Any) -> Any:
        """The fused index where a panel of rows or columns begins."""
        return Variable(self.blocks[side]) * self.plan.block[side] + panel * self.plan.tiles[side]

    def may_pass(self, side: int) -> bool:
        """Whether panels of rows or columns may stick out beyond the last one."""
        total = self.totals[side]
        return not (isinstance(total, int) and total % self.plan.tiles[side] == 0)

    def edges(self, side: int) -> tuple[bool, ...]:
        """The kinds of panels there are: False for whole ones, True for one beyond the last row or column."""
        total = self.totals[side]
        whole = (False,) if not (isinstance(total, int) and total < self.plan.tiles[side]) else ()
        return (*whole, True) if self.may_pass(side) else whole

    def panel_loop(self, base: str, side: int, extra: str = "0 <= 0") -> str:
        """A new loop over the existing panels of a block.

        :param extra: a condition on ``left``, how many rows or columns there are from the beginning of a panel on.
        """
        name, plan = self.draft.fresh(base), self.plan
        length, tile = plan.block[side], plan.tiles[side]
        left = f"({_isl_length(self.groups[GROUPS[side]])} - {length}*{self.blocks[side]} - {tile}*{name})"
        condition = f"0 <= {name} < {length // tile} and {left} > 0 and {extra.replace('left', left)}"
        self.draft.domain(_fused_parameters(self.groups[GROUPS[side]], self.blocks[side]), [name], condition)
        return str(name)

    def decoded(self, side: int, first: Any, around: frozenset[str], after: Collection[str], *, clamped: bool) -> Decoded:
        """The letters of a panel of rows or columns, or of the terms of a part of the sum.

        :param side: 0 for rows, 1 for columns, 2 for sums.
        :param first: the fused index of the first.
        :param clamped: whether those beyond the last are to be the last.
        """
        letters = (self.plan.rows, self.plan.columns, self.plan.sums)[side]
        if len(letters) == 1 and not clamped:
            return Decoded(letters, first, {}, ())
        length, group = (*self.plan.tiles, self.plan.depth)[side], self.groups[("rows", "columns", "sums")[side]]
        tables = {x: self.draft.array(f"{x}_at", (length,), dtype=self.draft.kernel.index_dtype) for x in letters}
        (loop,) = self.draft.unrolled(("place",), (length,)) if side < 2 else (self.counted("place", length),)
        number = first + Variable(loop)
        number = Min((number, self.totals[side] - 1)) if clamped else number
        made = tuple(
            self.draft.assign(Variable(tables[x])[Variable(loop)], value, around | {loop}, [*self.before, *after])
            for x, value in group.decode(number).items()
        )
        return Decoded(letters, None, tables, made)

    def counted(self, base: str, length: int) -> str:
        """A new loop of a fixed length."""
        name = self.draft.fresh(base)
        self.draft.domain("", [name], f"0 <= {name} < {length}")
        return str(name)


def packed_frame(draft: KernelDraft, match: Match, plan: PackedBlocks, before: frozenset[str]) -> PackedFrame:
    """Add the loops over blocks and over parts of the sum to a draft."""
    lengths = {x: axis_length(match, x) for x in match.einsum.indexing.indices}
    groups = plan.groups(lengths)
    totals = tuple(prod((digit.count for digit in groups[x].digits), start=1) for x in ("rows", "columns", "sums"))
    blocks = []
    for name, length in zip(GROUPS, plan.block, strict=False):
        block = draft.fresh(f"group_of_{name}")
        draft.domain(
            _fused_parameters(groups[name]), [block], f"0 <= {block} and {length}*{block} < {_isl_length(groups[name])}"
        )
        blocks.append(block)
    inside, batch = {*blocks}, {}
    if plan.batch:
        item = draft.fresh("group_of_batch")
        draft.domain(_fused_parameters(groups["batch"]), [item], f"0 <= {item} < {_isl_length(groups['batch'])}")
        batch = groups["batch"].decode(Variable(item))
        draft.tags[item] = "g.2"
        inside.add(item)
    draft.tags |= {blocks[0]: "g.0", blocks[1]: "g.1"}
    part = None
    if not isinstance(totals[2], int) or totals[2] > plan.depth:
        part = draft.fresh("part")
        draft.domain(
            _fused_parameters(groups["sums"]),
            [part],
            f"0 <= {part} and {plan.depth}*{part} < {_isl_length(groups['sums'])}",
        )
        inside.add(part)
    return PackedFrame(
        draft,
        plan,
        match.einsum.dtypes[0],
        lengths,
        groups,
        totals,
        (blocks[0], blocks[1]),
        batch,
        None if part is None else Variable(part),
        frozenset(inside),
        before,
    )


def _isl_length(group: IndexGroup) -> str:
    """The length of a fused index as isl reads it."""
    factor, text = digit_extent(group.digits)
    return f"{factor} * {text}"


def _fused_parameters(group: IndexGroup, *others: str) -> str:
    """The parameters of the lengths of a fused index, as an isl set lists them."""
    names = {str(name) for x in group.letters for name in get_dependencies(group.lengths[x])}
    return ", ".join([*sorted(names), *others])
