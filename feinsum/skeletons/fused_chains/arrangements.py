"""The work of a work-group on a block, event by event, and the places of its arrays in local memory.

Arrays that are never needed at the same time share memory; a barrier separates the event that writes an array from those
that read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

from feinsum.contraction import ContractionSchedule
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.skeletons.common.digits import Digits
from feinsum.skeletons.fused_chains.chain_steps import BlockSteps, MatrixSharing, TileSharing, lengths_within, sharing_of
from feinsum.skeletons.fused_chains.events import (
    NUMBERS_OF_A_PLACE,
    ContractStep,
    CopyMatrix,
    CopyOperand,
    GroupEvent,
    InRegisters,
    LocalArray,
    Source,
    StoreResult,
)
from feinsum.skeletons.fused_chains.padded_layouts import LocalAccess, LocalLayout, padded_layout
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP


@dataclass
class GroupSchedule:
    """The events of a work-group in order, the layouts of its arrays, and the memory that each lies in.

    :ivar first: copies that serve all blocks.
    :ivar slots: the memory of each array; arrays that are not needed at a time share one.
    :ivar sizes: entries of each memory.
    :ivar barriers: the events before which work-items wait for one another.
    """

    first: list[CopyOperand | CopyMatrix] = field(default_factory=list)
    events: list[GroupEvent] = field(default_factory=list)
    layouts: list[LocalLayout] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    barriers: set[int] = field(default_factory=set)

    @property
    def entries(self) -> int:
        """Numbers in local memory."""
        return sum(self.sizes)


@lru_cache(maxsize=1024)
def arrange(e: BatchedEinsum, block: BlockSteps, itemsize: int) -> GroupSchedule:
    """The schedule of the steps for an einsum, which plans have in common that differ in the way from block to block.

    :param itemsize: bytes of a number.
    :raises TransformError: if the steps do not evaluate it, an index outside `blocks` has no fixed length, or a tile
        does not divide its index.
    """
    ContractionSchedule(tuple(step.contraction for step in block.steps)).check(e.indexing)
    return _Arranger(e, block, itemsize).result()


class _Arranger:
    """The arrangement while it is made."""

    def __init__(self, e: BatchedEinsum, block: BlockSteps, itemsize: int) -> None:
        self.e, self.block, self.itemsize = e, block, itemsize
        self.lengths = lengths_within(e, block.block_tile)
        self.sharings = [sharing_of(e, step, block.block_tile) for step in block.steps]
        if block.items % SUB_GROUP and any(step.matrix_unit for step in block.steps):
            raise TransformError(f"{block.items} work-items are no whole sub-groups, as a matrix unit needs")
        self.found = GroupSchedule()
        self.arrays: dict[object, int] = {}

    def result(self) -> GroupSchedule:
        for row in range(self.e.b):
            self._add_row(row)
        self._wait()
        self._give_memory()
        return self.found

    def _whole(self, letters: str) -> TileSharing:
        """How work-items share copies: several along an index in blocks each, so that they seldom divide."""
        sharings = []
        blocked = next((x for x in letters if self.block.block_tile.get(x, 1) > 1), "")
        for together in range(1, self.block.block_tile.get(blocked, 1) + 1):
            if not blocked or self.lengths[blocked] % together == 0:
                counts = tuple(self.lengths[x] // (together if x == blocked else 1) for x in letters)
                sharings.append(TileSharing(Digits(letters, counts), {blocked: together} if blocked else {}))
        turns = [
            -(-s.digits.total // self.block.items) * (math.prod(s.tile.values()) + NUMBERS_OF_A_PLACE) for s in sharings
        ]
        return min(zip(turns, sharings, strict=True), key=lambda found: (found[0], found[1].digits.total))[1]

    def _add_row(self, row: int) -> None:
        e, last = self.e, len(self.block.steps) - 1
        meaning: dict[int, object] = {k: (k, entry) for k, entry in enumerate(e.args[row])}
        held: dict[int, Source] = {k: self._copied(k, row) if k in self.block.staged_operands else None for k in range(e.n)}
        for s, step in enumerate(self.block.steps):
            operands, output = step.contraction.operands, step.contraction.indexing.output
            meaning[e.n + s] = key = (s, *(meaning[k] for k in operands))
            if s < last and key in self.arrays:
                held[e.n + s] = LocalArray(self.arrays[key], self._order(e.n + s))
                continue
            sources = self._sources(s, row, tuple(held[k] for k in operands))
            target: Source = None
            if s < last and self._stays_in_registers(s):
                target = InRegisters()
            elif s < last or self.block.staged_epilogue:
                target = self._array(key if s < last else (row, *key), e.n + s)
            self.found.events.append(ContractStep(s, row, self.sharings[s], sources, target))
            held[e.n + s] = target
            if s == last and isinstance(target, LocalArray):
                self.found.events.append(StoreResult(row, self._whole(output), target))

    def _stays_in_registers(self, s: int) -> bool:
        """Whether the next step sums over a work-item's own part of the result of a step, and needs no other part."""
        a, b = self.sharings[s], self.sharings[s + 1]
        this, then = self.block.steps[s].contraction, self.block.steps[s + 1].contraction
        if not self.block.register_forwarding or isinstance(a, MatrixSharing) or isinstance(b, MatrixSharing):
            return False
        if self.e.n + s not in then.operands or not this.indexing.summed or not then.indexing.summed:
            return False

        def spread(sharing: TileSharing) -> list[tuple[str, int]]:
            return [(x, n) for x, n in zip(sharing.digits.letters, sharing.digits.counts, strict=True) if n > 1]

        kept = [x for x in this.indexing.output if x not in then.indexing.summed]
        alike = spread(a) == spread(b) and all(a.tile.get(x, 1) == b.tile.get(x, 1) for x in kept)
        return alike and a.digits.total <= self.block.items

    def _sources(self, s: int, row: int, held: tuple[Source, ...]) -> tuple[Source, ...]:
        """The sources of a step; the matrix of one on a matrix unit has a copy of its own."""
        sharing = self.sharings[s]
        if isinstance(sharing, TileSharing):
            return held
        contraction = self.block.steps[s].contraction
        entry = self.e.args[row][contraction.operands[sharing.matrix]]
        letters = (*sharing.batch.letters, "", *sharing.columns.letters, "", *sharing.sums.letters)
        key = (entry, tuple(letters.index(x) for x in contraction.indexing.inputs[sharing.matrix]), letters.index(""))
        if key not in self.arrays:
            self.arrays[key] = len(self.found.layouts)
            self.found.layouts.append(LocalLayout((1,), sharing.copy.total))
            self.found.first.append(CopyMatrix(s, row, sharing, LocalArray(self.arrays[key], "")))
        own = LocalArray(self.arrays[key], "")
        return tuple(own if k == sharing.matrix else source for k, source in enumerate(held))

    def _copied(self, operand: int, row: int) -> LocalArray:
        """The copy of an operand of a row; operands that are the same share it."""
        letters = self.e.indexing.inputs[operand]
        blocked = any(letter in self.block.block_tile for letter in letters)
        key = (self.e.args[row][operand], letters if blocked else "")
        known = key in self.arrays
        if not known:
            held = self._array(key, operand)
            copy = CopyOperand(operand, row, self._whole(letters), held)
            (self.found.events if blocked else self.found.first).append(copy)
            return held
        copies = [c for c in (*self.found.first, *self.found.events) if isinstance(c, CopyOperand)]
        known_copy = next(c for c in copies if c.target.array == self.arrays[key])
        # An operand may stand at several places of an einsum, in other letters.
        own = dict(zip(self.e.indexing.inputs[known_copy.operand], letters, strict=True))
        return LocalArray(self.arrays[key], "".join(own[x] for x in known_copy.target.letters))

    def _array(self, key: object, number: int) -> LocalArray:
        """A new array for operand or result `number`."""
        letters = self._order(number)
        self.arrays[key] = len(self.found.layouts)
        lengths = tuple(self.lengths[x] for x in letters)
        accesses = tuple(self._accesses(number, letters))
        layout = padded_layout(
            letters, lengths, accesses, self.itemsize, self._by_rows(number, letters), self._padded_axes(number, letters)
        )
        self.found.layouts.append(self._with_margin(number, letters, layout))
        return LocalArray(self.arrays[key], letters)

    def _reader(self, number: int) -> int | None:
        """The step that takes operand or result `number`."""
        return next((s for s, step in enumerate(self.block.steps) if number in step.contraction.operands), None)

    def _letters(self, number: int) -> str:
        n = self.e.n
        return self.e.indexing.inputs[number] if number < n else self.block.steps[number - n].contraction.indexing.output

    def _order(self, number: int) -> str:
        """The axes of an array: as work-items read it, what they sum over before the rest."""
        reader, letters = self._reader(number), self._letters(number)
        if reader is None:
            return letters
        sharing = self.sharings[reader]
        if isinstance(sharing, MatrixSharing):
            order = (*sharing.batch.letters, *sharing.sums.letters, *sharing.rows.letters)
            return "".join(sorted(letters, key=order.index))
        return "".join(sorted(letters, key=self.block.steps[reader].contraction.indexing.output.find))

    def _padded_axes(self, number: int, letters: str) -> tuple[int, ...] | None:
        """The axes that may be padded, if not all: for a matrix unit, rows and sums are to go on evenly."""
        reader = self._reader(number)
        sharing = None if reader is None else self.sharings[reader]
        if not isinstance(sharing, MatrixSharing):
            return None
        batch, sums = len(sharing.batch.letters), len(sharing.sums.letters)
        return (*range(batch), batch + sums - 1) if len(letters) > batch + sums else tuple(range(batch))

    def _with_margin(self, number: int, letters: str, layout: LocalLayout) -> LocalLayout:
        """Room for the rows beyond the last that a matrix unit reads, whatever they hold."""
        reader = self._reader(number)
        sharing = None if reader is None else self.sharings[reader]
        if not isinstance(sharing, MatrixSharing):
            return layout
        first = next((x for x in sharing.rows.letters if x in letters), "")
        rest = math.prod(n for x, n in zip(sharing.rows.letters, sharing.rows.counts, strict=True) if x != first)
        beyond = -(-(sharing.padded_rows - sharing.rows.total) // rest)
        stride = layout.strides[letters.index(first)] if first else 0
        return LocalLayout(layout.strides, layout.size + (beyond + 1) * stride)

    def _by_rows(self, number: int, letters: str) -> bool:
        """Whether a work-item reads along the last axis of an array, all of it."""
        reader = self._reader(number)
        last = letters[-1:]
        return reader is not None and self.block.steps[reader].register_tile.get(last, 1) == self.lengths.get(last) != 1

    def _accesses(self, number: int, letters: str) -> list[LocalAccess]:
        """The step or copy that writes an array, and the step or copy that reads it."""
        reader, writer = self._reader(number), number - self.e.n
        written = self._whole(self._letters(number)) if writer < 0 else self.sharings[writer]
        read = self._whole(self.e.indexing.output) if reader is None else self.sharings[reader]
        return [self._access(written, letters, written=True), self._access(read, letters, written=False)]

    def _access(self, sharing: TileSharing | MatrixSharing, letters: str, *, written: bool) -> LocalAccess:
        points = math.prod(self.lengths[x] for x in letters)
        if isinstance(sharing, MatrixSharing):
            return LocalAccess(sharing.rows, points, sharing.columns if written else sharing.sums)
        digits = sharing.digits
        alike = math.prod(n for x, n in zip(digits.letters, digits.counts, strict=True) if x in letters)
        return LocalAccess(digits, max(1, points // alike))

    def _wait(self) -> None:
        """Barriers between the event that writes an array and those that read it."""
        written = {copy.target.array for copy in self.found.first}
        for number, event in enumerate(self.found.events):
            if written & _reads(event):
                self.found.barriers.add(number)
                written.clear()
            written |= _writes(event)

    def _give_memory(self) -> None:
        """Let arrays that are never needed at the same time share memory, with a barrier between the uses."""
        found = self.found
        uses: dict[int, list[int]] = {}
        for number, event in enumerate(found.events):
            for array in _reads(event) | _writes(event):
                uses.setdefault(array, []).append(number)
        lasting = {copy.target.array for copy in found.first}
        free_from: list[float] = []
        for array, layout in enumerate(found.layouts):
            begin = uses[array][0]
            # The last use lies before a barrier, so all have read what is overwritten.
            able = [k for k, end in enumerate(free_from) if any(end < b <= begin for b in found.barriers)]
            slot = min(able, key=lambda k: abs(found.sizes[k] - layout.size)) if able and array not in lasting else None
            if slot is None:
                slot = len(found.sizes)
                found.sizes.append(0)
                free_from.append(0)
            found.slots.append(slot)
            found.sizes[slot] = max(found.sizes[slot], layout.size)
            free_from[slot] = math.inf if array in lasting else uses[array][-1]


def _reads(event: GroupEvent) -> set[int]:
    if isinstance(event, ContractStep):
        return {source.array for source in event.sources if isinstance(source, LocalArray)}
    return {event.source.array} if isinstance(event, StoreResult) else set()


def _writes(event: GroupEvent) -> set[int]:
    target = None if isinstance(event, StoreResult) else event.target
    return {target.array} if isinstance(target, LocalArray) else set()
