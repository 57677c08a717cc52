"""Results that lanes store themselves, from registers to the outputs: one number at a time, or two neighbours at once."""

from __future__ import annotations

from collections.abc import Sequence

from pymbolic.primitives import Comparison, Variable

from feinsum.errors import TransformError
from feinsum.skeletons.common.matrix_product import substituted
from feinsum.skeletons.warp_tiles.tile_epilogue import PAIR, FinishedValue, FinishedValues
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops, TurnLoop
from feinsum.skeletons.warp_tiles.wide_stores import wide_store


class LaneStores:
    """Every lane stores its own numbers: one at a time, or the two that are neighbours in a row as a vector."""

    def __init__(self, loops: TileLoops, values: FinishedValues) -> None:
        self.loops, self.values = loops, values
        dtype = loops.plan.product.dtype
        self._pair = loops.draft.array("pair", (PAIR,), dtype=dtype) if loops.plan.stores_pairs else ""
        self._written: tuple[str, ...] = ()

    def store(self, turn: TurnLoop, outputs: Sequence[int], block: str, after: str) -> tuple[str, ...]:
        """See :meth:`TileStores.store`."""
        write = self._write_pair if self._pair else self._write
        stored = tuple(write(turn, output, self.values.of(turn, output, block), after) for output in outputs)
        if len(self.loops.plan.shares) > 1:
            self.loops.draft.alone.update(stored)  # every share has columns of its own
        return stored

    def _write(self, turn: TurnLoop, output: int, finished: FinishedValue, after: str) -> str:
        matched = self.loops.matched
        own = matched.match.loops[output]
        at = {own[matched.m]: finished.m, own[matched.n]: finished.column, **finished.others}
        return self.loops.draft.assign(
            substituted(matched.instructions[output].assignee, at),
            finished.value,
            finished.inside,
            (after,),
            predicates=[*finished.beyond, Comparison(finished.m, "<", matched.rows)],
            insn_id=self.loops.result_id(output, turn),
        )

    def _write_pair(self, turn: TurnLoop, output: int, finished: FinishedValue, after: str) -> str:
        """Write two neighbours in a row, which has an even length."""
        matched, draft, number = self.loops.matched, self.loops.draft, finished.number
        insn, own, rows = matched.instructions[output], matched.match.loops[output], matched.rows_of(output)
        if matched.columns % PAIR or not rows.are_aligned(PAIR):
            raise TransformError(f"rows of {matched.columns} numbers do not begin where pairs can be written")
        at = {own[matched.m]: finished.m, own[matched.n]: finished.column, **finished.others}
        first = {name: substituted(x, {number: 0}) for name, x in at.items()}
        m, n = first[own[matched.m]], first[own[matched.n]]
        # The same on both instructions, so that one branch goes around them.
        predicates = [Comparison(m, "<", matched.rows)]
        predicates += [Comparison(n, "<", matched.columns)] if finished.beyond else []
        # All outputs keep their pairs in one place, so each begins after the one before.
        ready = (after, *self._written)
        pair = Variable(self._pair)[Variable(number)]
        kept = draft.assign(pair, finished.value, finished.inside, ready, predicates=predicates)
        store = wide_store(
            rows,
            substituted(insn.assignee, first),
            substituted(rows.begin, first) + matched.columns * m + n,
            PAIR,
            f"({rows.scalar}{PAIR}) ({self._pair}[0], {self._pair}[1])",
            id=self.loops.result_id(output, turn),
            read_variables=frozenset([self._pair]),
            within_inames=finished.inside - {number},
            within_inames_is_final=True,
            predicates=frozenset(predicates),
            depends_on=frozenset([kept]),
            depends_on_is_final=True,
        )
        draft.instructions.append(store)
        self._written = (str(store.id),)
        return str(store.id)
