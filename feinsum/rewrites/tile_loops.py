"""The loops of a product on matrix units: work-groups and sub-groups deal tiles of 16 rows among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
from loopy.symbolic import get_dependencies, pw_aff_to_expr
from pymbolic.primitives import Comparison, FloorDiv, If, Remainder, Variable

from feinsum.devices.ptx import SUB_GROUP
from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.draft import Draft, all_of
from feinsum.rewrites.loops import fixed_length
from feinsum.rewrites.matrix_units import DEPTH, ROWS, fragment_dtype, fragment_unit, synchronize_sub_group
from feinsum.rewrites.products import MatrixProduct, matrix_product
from feinsum.rewrites.tiling import Tiling, blocks, slice_length, steps


@dataclass
class TileLoops:
    """A kernel while its sums become products of tiles: what is multiplied, and the loops around it.

    See :func:`feinsum.rewrites.sub_group_tiles.multiply_in_tiles` for the parameters.

    :ivar rows: the instructions of the match; ``products[row]`` is what each multiplies.
    :ivar sums: lengths of the indices summed over.
    :ivar steps: of all slices of the sum; in a slice the last index is the quickest.
    :ivar batch: index letters with a product of their own -> their lengths.
    :ivar dtype: the type of operands and results in memory.
    :ivar number: the type of the unit's registers.
    :ivar tile: the number of the tile at hand, in terms of the loops `around` it and `round`.
    """

    kernel: lp.LoopKernel
    match: Match
    operand: int | None
    m: str
    n: str
    tiling: Tiling

    def __post_init__(self) -> None:
        kernel, match = self.kernel, self.match
        self.unit = fragment_unit(self.tiling.unit)
        self.number, self.dtype = fragment_dtype(self.unit), match.einsum.dtypes[0]
        if self.dtype.itemsize > self.number.itemsize:
            raise TransformError(
                f"matrix unit '{self.unit.name}' multiplies {self.number}, which is too short for {self.dtype}"
            )
        self.draft = Draft(kernel)
        self.rows = [kernel.id_to_insn[insn_id] for insn_id in match.insn_ids]
        if any(insn.predicates for insn in self.rows):
            raise TransformError(f"instruction '{self.rows[0].id}' has a predicate, which lanes of a product cannot have")
        self.products = [matrix_product(kernel, match, row, self.operand, self.m, self.n) for row in range(len(self.rows))]
        self.sums = [fixed_length(kernel, iname) for iname in self.products[0].sums]
        self.steps = steps(self.sums, self.unit, self.tiling.slices)
        self.rows_m = pw_aff_to_expr(kernel.get_iname_bounds(match.inames[self.m]).size)
        self.columns = fixed_length(kernel, match.inames[self.n])
        self.blocks = blocks(self.columns, self.tiling.parts)
        self.batch = {
            letter: fixed_length(kernel, match.inames[letter])
            for letter, _ in self.products[0].formal
            if letter not in (self.m, self.n)
        }
        self.before = frozenset[str]().union(*(insn.depends_on for insn in self.rows)) - set(match.insn_ids)
        self._deal()

    def _deal(self) -> None:
        """Loops over groups, sub-groups, lanes and the tiles of a sub-group, and the number of the tile at hand."""
        tiling, stride = self.tiling, self.tiling.sub_groups * ROWS
        group, sub_group, lane, around = (self.draft.fresh(name) for name in ("group", "sub_group", "lane", "round"))
        self.sub_group, self.lane, self.round = Variable(sub_group), Variable(lane), around
        parts = [self.draft.fresh("part")] if tiling.parts > 1 else []
        self.part = parts[0] if parts else ""
        self.first_block: Any = Variable(self.part) * self.blocks if parts else 0
        lengths = ", ".join(sorted(get_dependencies(self.rows_m)))
        if tiling.groups:
            groups, last = f"{group} < {tiling.groups}", ""
            number, start = Variable(around) * tiling.groups + Variable(group), f"{around} * {tiling.groups} + {group}"
        else:
            groups, last = f"{group} * {tiling.tiles * stride} < {self.rows_m}", f" and {around} < {tiling.tiles}"
            number, start = Variable(group) * tiling.tiles + Variable(around), f"{group} * {tiling.tiles} + {around}"
        places = f"0 <= {group} and {groups} and 0 <= {sub_group} < {tiling.sub_groups} and 0 <= {lane} < {SUB_GROUP}"
        places += "".join(f" and 0 <= {part} < {tiling.parts}" for part in parts)
        self.draft.domain(lengths, [group, *parts, sub_group, lane], places)
        begun = f"({start}) * {stride} + {sub_group} * {ROWS} < {self.rows_m}"
        self.draft.domain(
            ", ".join(filter(None, (lengths, group, sub_group))), [around], f"0 <= {around} and {begun}{last}"
        )
        self.tile = number * tiling.sub_groups + self.sub_group
        self.draft.tags |= {group: "g.0", sub_group: "l.1", lane: "l.0"} | dict.fromkeys(parts, "g.1")
        self.around = frozenset([group, *parts, sub_group, lane])
        self.inside = self.around | {around}

    def other_loops(self, row: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Loops of an instruction besides those of m and n, and their lengths."""
        loops = self.match.loops[row]
        others = tuple(sorted(self.rows[row].within_inames - {loops[self.m], loops[self.n]}))
        return others, tuple(fixed_length(self.kernel, iname) for iname in others)

    def sums_at(
        self, p: MatrixProduct, step: Any, *, inside: bool = False, slice_: Any = None
    ) -> tuple[dict[str, Any], list[Any]]:
        """The indices summed over that a lane holds in a step, and when there are such; with `inside`, always some.

        :param slice_: the number of the slice that the step belongs to; by default steps are counted through all slices.
        """
        several, slices = len(self.sums) > 1, self.tiling.slices
        inner = -(-self.sums[-1] // DEPTH) if slices == 1 else slice_length(self.sums, self.unit, slices)
        if slices > 1 and slice_ is None:
            slice_, step = FloorDiv(step, self.steps // slices), Remainder(step, self.steps // slices)
        within, rest = (Remainder(step, inner), FloorDiv(step, inner)) if several else (step, 0)
        within, inner = (slice_ * inner + within, slices * inner) if slices > 1 else (within, inner)
        last = DEPTH * within + Remainder(self.lane, DEPTH)
        conditions = []
        if DEPTH * inner > self.sums[-1] or (self.steps > inner and not several):
            conditions.append(Comparison(last, "<", self.sums[-1]))
            last = If(conditions[0], last, self.sums[-1] - 1) if inside else last
        at = {p.sums[-1]: last}
        for iname, length in zip(reversed(p.sums[1:-1]), reversed(self.sums[1:-1]), strict=True):
            at[iname], rest = Remainder(rest, length), FloorDiv(rest, length)
        if several:
            if self.steps > math.prod(self.sums[:-1]) * inner:
                conditions.append(Comparison(rest, "<", self.sums[0]))
                rest = If(conditions[-1], rest, self.sums[0] - 1) if inside else rest
            at[p.sums[0]] = rest
        return at, conditions

    def synchronize(self, after: Sequence[str], around: frozenset[str] | None = None) -> str:
        """Let the lanes of a sub-group wait for each other, by default for each tile; the id of what does."""
        return self.draft.add(synchronize_sub_group, "synchronize", around or self.inside, after)


def guarded(conditions: list[Any], value: Any) -> Any:
    """`value` where the conditions hold, else zero."""
    if not conditions:
        return value
    return If(all_of(conditions), value, 0.0)
