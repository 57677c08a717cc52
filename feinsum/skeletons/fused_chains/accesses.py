"""The places of an array in global memory that a sub-group reads or writes at a time, by which its sectors are counted.

A load that another follows at once counts with it, as what it leaves of a sector is in the cache then; a store does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from feinsum.skeletons.common.digits import Digits
from feinsum.skeletons.fused_chains.chain_steps import MatrixSharing, TileSharing, lengths_within
from feinsum.skeletons.fused_chains.events import ContractStep, CopyOperand, StoreResult
from feinsum.skeletons.fused_chains.plan import FusedChain
from feinsum.skeletons.instructions.matrix_units import DEPTH, ROWS, SUB_GROUP

_SAMPLED = 4
"""Sub-groups looked at: their pattern repeats."""
_FOLLOWING = 8
"""Numbers along a sum that a work-item reads one after the other, and that are looked at together."""

Places = Mapping[str, Any]
"""Letter -> its values: shape ``(work-items, numbers of each)``."""


@dataclass(frozen=True)
class GlobalAccess:
    """An access of all work-items to an operand or to the output.

    :ivar letters: the axes of the array.
    :ivar entries: how many of it a block moves.
    :ivar sharing: how work-items share them: by the fragments of a matrix unit, or by their number.
    :ivar tile: how many entries along some indices each then has at a time.
    :ivar summed: the indices that are summed over where an operand is read.
    :ivar stores: whether it is the output.
    """

    letters: str
    entries: int
    sharing: Digits | MatrixSharing
    tile: tuple[tuple[str, int], ...] = ()
    summed: tuple[tuple[str, int], ...] = ()
    stores: bool = False

    def places(self) -> Places:
        """The places of the elements that the work-items of some sub-groups move at a time."""
        digits = self.sharing.digits if isinstance(self.sharing, MatrixSharing) else self.sharing
        items = np.arange(SUB_GROUP * min(_SAMPLED, -(-digits.total // SUB_GROUP)))
        if isinstance(self.sharing, MatrixSharing):
            return self._of_fragments(self.sharing, items)
        at = _of(digits, items)
        if self.stores:
            return at
        tile = {x: n for x, n in self.tile if x in self.letters}
        follows = {x: min(n, _FOLLOWING) for x, n in self.summed if x == self.letters[-1]}
        together = list(product(*(range(n) for n in (*tile.values(), *follows.values()))))
        counts = dict(zip(digits.letters, digits.counts, strict=True))
        steps = {x: np.array([each[k] for each in together]) for k, x in enumerate((*tile, *follows))}
        return at | {x: at.get(x, 0) + counts.get(x, 1) * step[None, :] for x, step in steps.items()}

    def _of_fragments(self, sharing: MatrixSharing, items: Any) -> Places:
        lane = items % SUB_GROUP
        at = _of(sharing.digits, items)
        first = ROWS * sharing.fragments[0] * at["tile"]
        if self.stores:
            rows, columns = first + (lane // 4)[:, None], (lane % 4)[:, None]
            return {**at, **_of(sharing.rows, rows), **_of(sharing.columns, columns)}
        depth = (lane % 4)[:, None] + DEPTH * np.arange(_FOLLOWING // DEPTH)[None, :]
        return {**at, **_of(sharing.rows, first + (lane // 4)[:, None]), **_of(sharing.sums, depth)}


def global_accesses(plan: FusedChain) -> Iterator[GlobalAccess]:
    """The accesses of a block, those to what serves all blocks aside."""
    e, within = plan.einsum, lengths_within(plan.einsum, plan.block.block_tile)
    output = e.indexing.output

    def access(letters: str, by: TileSharing | MatrixSharing, summed: str = "", *, stores: bool = False) -> GlobalAccess:
        sharing, tile = (by.digits, tuple(by.tile.items())) if isinstance(by, TileSharing) else (by, ())
        sums = tuple((x, within[x]) for x in summed)
        return GlobalAccess(letters, prod(within[x] for x in letters), sharing, tile, sums, stores)

    for event in plan.schedule.events:
        if isinstance(event, CopyOperand):
            yield access(e.indexing.inputs[event.operand], event.sharing)
        elif isinstance(event, StoreResult):
            yield access(output, event.sharing, stores=True)
        elif isinstance(event, ContractStep):
            contraction = plan.block.steps[event.step].contraction
            for operand, source in zip(contraction.operands, event.sources, strict=True):
                if source is None:
                    yield access(e.indexing.inputs[operand], event.sharing, contraction.indexing.summed)
            if event.target is None:
                yield access(output, event.sharing, stores=True)


def _of(digits: Digits, number: Any) -> dict[str, Any]:
    """The digits of numbers, of the last one where these are beyond."""
    found = digits.of(np.minimum(number, digits.total - 1))
    return {x: value.reshape(len(number), -1) for x, value in found.items()}
