"""What a work-group does with a block of some output indices: copies, contractions and stores, and where arrays lie.

    u(e, i, j, k) --copy--> local --B(a, i)--> local --B(b, j)--> local --B(c, k)--> out[e, a, b, c]

An arrangement follows from an einsum and a plan; it says nothing about loopy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from feinsum.contraction import ContractionSchedule, Step
from feinsum.devices.ptx import SUB_GROUP
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.rewrites.local_layouts import Access, Digits, Layout, padded
from feinsum.rewrites.matrix_units import COLUMNS, DEPTH, ROWS, fragment_unit


@dataclass(frozen=True)
class GroupStep:
    """One contraction by a work-group, whose work-items share the entries of the result.

    :ivar contraction: its operands, numbered as in a schedule, and its indices.
    :ivar tile: index of the result -> how many of it a work-item computes together; 1 if it is not there.
    :ivar unit: the matrix unit with which sub-groups compute it, instead of a tile in each work-item.
    :ivar fragments: tiles of 16 rows by blocks of 8 columns that a sub-group computes together on the unit.
    """

    contraction: Step
    tile: Mapping[str, int] = field(default_factory=dict)
    unit: str = ""
    fragments: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class GroupPlan:
    """The steps of a work-group, and what it treats.

    :ivar blocks: output index -> how many of it a work-group treats at a time; other indices it treats whole.
    :ivar items: work-items of a group.
    :ivar copied: operands that are copied to local memory; of those without an index of `blocks`, once for all blocks.
    :ivar staged: whether results go through local memory, so that they leave in the order of the output.
    :ivar stay: work-groups, which stride over the blocks of the only index of `blocks`; 0 for one to each block.
    :ivar prefetch: whether groups that stay load what they copy for the next block, into registers, during a block.
    :ivar early: whether operands that a step reads where they are, are loaded ahead of all steps, if they are few; with
        `prefetch`, during the block before.
    """

    steps: tuple[GroupStep, ...]
    blocks: Mapping[str, int]
    items: int
    copied: frozenset[int] = frozenset()
    staged: bool = False
    stay: int = 0
    prefetch: bool = False
    early: bool = False


@dataclass(frozen=True)
class Held:
    """An array in local memory, and the letters of its axes as somebody reads it."""

    array: int
    letters: str


@dataclass(frozen=True)
class Sharing:
    """How work-items share the entries of an array: each has a tile of them, and so many tiles along each index."""

    digits: Digits
    tile: Mapping[str, int]


@dataclass(frozen=True)
class MatrixSharing:
    """How sub-groups share a result on a matrix unit: ``D[rows, columns] = Σ_sums A[rows, sums] B[columns, sums]``.

    :ivar batch: indices that A, B and D have; there is a product for each of their points.
    :ivar matrix: which factor of the step is B.
    :ivar digits: of the number of a work-item: the batch, the tiles of rows, the parts of the columns, the lane.
    """

    batch: Digits
    rows: Digits
    columns: Digits
    sums: Digits
    matrix: int
    unit: str
    fragments: tuple[int, int]

    @property
    def steps(self) -> int:
        """Instructions along the sum."""
        return -(-self.sums.total // fragment_unit(self.unit).k)

    @property
    def blocks(self) -> int:
        """Blocks of columns, in whole parts."""
        return -(-self.columns.total // (COLUMNS * self.fragments[1])) * self.fragments[1]

    @property
    def digits(self) -> Digits:
        tiles, parts = -(-self.rows.total // (ROWS * self.fragments[0])), self.blocks // self.fragments[1]
        return Digits((*self.batch.letters, "tile", "part", "lane"), (*self.batch.counts, tiles, parts, SUB_GROUP))

    @property
    def padded_rows(self) -> int:
        """Rows, in whole tiles."""
        return -(-self.rows.total // (ROWS * self.fragments[0])) * ROWS * self.fragments[0]

    @property
    def copy(self) -> Digits:
        """Of the places of B in local memory, in the order in which lanes read it."""
        width = fragment_unit(self.unit).k // DEPTH
        counts = (*self.batch.counts, self.blocks, self.steps * width, SUB_GROUP)
        return Digits((*self.batch.letters, "block", "step", "lane"), counts)


@dataclass(frozen=True)
class CopyMatrix:
    """The matrix of a step on a matrix unit to an array."""

    step: int
    row: int
    sharing: MatrixSharing
    target: Held


@dataclass(frozen=True)
class Copy:
    """Operand `operand` of a row to an array."""

    operand: int
    row: int
    sharing: Sharing
    target: Held


@dataclass(frozen=True)
class Compute:
    """A step of a row; sources that are None are operands read where they are; without a target, it goes to the output."""

    step: int
    row: int
    sharing: Sharing | MatrixSharing
    sources: tuple[Held | None, ...]
    target: Held | None


@dataclass(frozen=True)
class Store:
    """The staged results of a row to the output."""

    row: int
    sharing: Sharing
    source: Held


MOVED_TOGETHER = 40
"""Numbers of a work-item that are loaded together, however long each takes to come."""
_NUMBERS_OF_A_PLACE = 6
"""How many numbers a work-item moves in the time in which it finds out the place of one."""

Event = Copy | CopyMatrix | Compute | Store


@dataclass
class Arrangement:
    """The events of a work-group in order, the layouts of its arrays, and the memory that each lies in.

    :ivar first: copies that serve all blocks.
    :ivar slots: the memory of each array; arrays that are not needed at a time share one.
    :ivar sizes: entries of each memory.
    :ivar barriers: the events before which work-items wait for one another.
    """

    first: list[Copy | CopyMatrix] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    barriers: set[int] = field(default_factory=set)

    @property
    def entries(self) -> int:
        """Numbers in local memory."""
        return sum(self.sizes)


def arrange(e: BatchedEinsum, plan: GroupPlan, itemsize: int) -> Arrangement:
    """What the plan means for an einsum.

    :param itemsize: bytes of a number.
    :raises TransformError: if the steps do not evaluate it, an index outside `blocks` has no fixed length, or a tile
        does not divide its index.
    """
    ContractionSchedule(tuple(step.contraction for step in plan.steps)).check(e.indexing)
    return _Arranger(e, plan, itemsize).result()


def sharing_of(e: BatchedEinsum, step: GroupStep, blocks: Mapping[str, int]) -> Sharing | MatrixSharing:
    """How work-items share a step: numbered by the entries of its result, tile by tile; or as a matrix unit wants it.

    :raises TransformError: if a tile does not divide its index, or a step on a matrix unit is no product with one matrix.
    """
    lengths, contraction = lengths_within(e, blocks), step.contraction
    inputs, output = contraction.indexing.inputs, contraction.indexing.output
    if not step.unit:
        for letter, together in step.tile.items():
            if letter not in output or lengths[letter] % together:
                raise TransformError(f"a tile has {together} of '{letter}', which do not divide it")
        return Sharing(_digits(output, lengths, step.tile), step.tile)
    able = matrices_of(e, contraction, blocks)
    if len(able) != 1 or not contraction.indexing.summed:
        raise TransformError(f"'{contraction.indexing}' is no product with one matrix")
    matrix, rest = inputs[able[0]], "".join(x for k, x in enumerate(inputs) if k != able[0])
    return MatrixSharing(
        _digits((x for x in output if x in matrix and x in rest), lengths),
        _digits((x for x in output if x not in matrix), lengths),
        _digits((x for x in output if x not in rest), lengths),
        _digits(contraction.indexing.summed, lengths),
        able[0],
        step.unit,
        step.fragments,
    )


def matrices_of(e: BatchedEinsum, contraction: Step, blocks: Mapping[str, int]) -> list[int]:
    """Which factors of a step are operands that all blocks share."""
    factors = enumerate(zip(contraction.operands, contraction.indexing.inputs, strict=True))
    return [k for k, (number, letters) in factors if number < e.n and not any(x in blocks for x in letters)]


def _digits(letters: Iterable[str], lengths: Mapping[str, int], tile: Mapping[str, int] | None = None) -> Digits:
    chosen = tuple(letters)
    return Digits(chosen, tuple(lengths[x] // (tile or {}).get(x, 1) for x in chosen))


def lengths_within(e: BatchedEinsum, blocks: Mapping[str, int]) -> dict[str, int]:
    """How many of each index a work-group treats.

    :raises TransformError: if that is not known, or a block is of a summed index.
    """
    lengths = {}
    for letter, axis in e.index_sizes.items():
        length = blocks.get(letter, axis)
        if not isinstance(length, int) or (letter in blocks and letter not in e.indexing.output):
            raise TransformError(f"a work-group cannot treat index '{letter}' of '{e.subscripts}', of length {axis}, whole")
        lengths[letter] = length
    return lengths


class _Arranger:
    """The arrangement while it is made."""

    def __init__(self, e: BatchedEinsum, plan: GroupPlan, itemsize: int) -> None:
        self.e, self.plan, self.itemsize = e, plan, itemsize
        self.lengths = lengths_within(e, plan.blocks)
        self.sharings = [sharing_of(e, step, plan.blocks) for step in plan.steps]
        if plan.items % SUB_GROUP and any(step.unit for step in plan.steps):
            raise TransformError(f"{plan.items} work-items are no whole sub-groups, as a matrix unit needs")
        self.found = Arrangement()
        self.arrays: dict[object, int] = {}

    def result(self) -> Arrangement:
        for row in range(self.e.b):
            self._add_row(row)
        self._wait()
        self._give_memory()
        return self.found

    def _whole(self, letters: str) -> Sharing:
        """How work-items share what is copied: several along an index in blocks each, so that they divide seldom."""
        sharings = []
        blocked = next((x for x in letters if self.plan.blocks.get(x, 1) > 1), "")
        for together in range(1, self.plan.blocks.get(blocked, 1) + 1):
            if not blocked or self.lengths[blocked] % together == 0:
                counts = tuple(self.lengths[x] // (together if x == blocked else 1) for x in letters)
                sharings.append(Sharing(Digits(letters, counts), {blocked: together} if blocked else {}))
        turns = [
            -(-s.digits.total // self.plan.items) * (math.prod(s.tile.values()) + _NUMBERS_OF_A_PLACE) for s in sharings
        ]
        return min(zip(turns, sharings, strict=True), key=lambda found: (found[0], found[1].digits.total))[1]

    def _add_row(self, row: int) -> None:
        e, last = self.e, len(self.plan.steps) - 1
        meaning: dict[int, object] = {k: (k, entry) for k, entry in enumerate(e.args[row])}
        held = {k: self._copied(k, row) if k in self.plan.copied else None for k in range(e.n)}
        for s, step in enumerate(self.plan.steps):
            operands, output = step.contraction.operands, step.contraction.indexing.output
            meaning[e.n + s] = key = (s, *(meaning[k] for k in operands))
            if s < last and key in self.arrays:
                held[e.n + s] = Held(self.arrays[key], self._order(e.n + s))
                continue
            sources = self._sources(s, row, tuple(held[k] for k in operands))
            direct = s == last and not self.plan.staged
            target = None if direct else self._array(key if s < last else (row, *key), e.n + s)
            self.found.events.append(Compute(s, row, self.sharings[s], sources, target))
            held[e.n + s] = target
            if s == last and target is not None:
                self.found.events.append(Store(row, self._whole(output), target))

    def _sources(self, s: int, row: int, held: tuple[Held | None, ...]) -> tuple[Held | None, ...]:
        """The sources of a step; the matrix of one on a matrix unit has a copy of its own."""
        sharing = self.sharings[s]
        if isinstance(sharing, Sharing):
            return held
        contraction = self.plan.steps[s].contraction
        entry = self.e.args[row][contraction.operands[sharing.matrix]]
        letters = (*sharing.batch.letters, "", *sharing.columns.letters, "", *sharing.sums.letters)
        key = (entry, tuple(letters.index(x) for x in contraction.indexing.inputs[sharing.matrix]), letters.index(""))
        if key not in self.arrays:
            self.arrays[key] = len(self.found.layouts)
            self.found.layouts.append(Layout((1,), sharing.copy.total))
            self.found.first.append(CopyMatrix(s, row, sharing, Held(self.arrays[key], "")))
        own = Held(self.arrays[key], "")
        return tuple(own if k == sharing.matrix else source for k, source in enumerate(held))

    def _copied(self, operand: int, row: int) -> Held:
        """The copy of an operand of a row; operands that are the same share it."""
        letters = self.e.indexing.inputs[operand]
        blocked = any(letter in self.plan.blocks for letter in letters)
        key = (self.e.args[row][operand], letters if blocked else "")
        known = key in self.arrays
        if not known:
            held = self._array(key, operand)
            (self.found.events if blocked else self.found.first).append(Copy(operand, row, self._whole(letters), held))
            return held
        copies = [c for c in (*self.found.first, *self.found.events) if isinstance(c, Copy)]
        copy = next(c for c in copies if c.target.array == self.arrays[key])
        # An operand may stand at several places of an einsum, in other letters.
        own = dict(zip(self.e.indexing.inputs[copy.operand], letters, strict=True))
        return Held(self.arrays[key], "".join(own[x] for x in copy.target.letters))

    def _array(self, key: object, number: int) -> Held:
        """A new array for operand or result `number`."""
        letters = self._order(number)
        self.arrays[key] = len(self.found.layouts)
        lengths = tuple(self.lengths[x] for x in letters)
        accesses = tuple(self._accesses(number, letters))
        layout = padded(
            letters, lengths, accesses, self.itemsize, self._by_rows(number, letters), self._padded_axes(number, letters)
        )
        self.found.layouts.append(self._with_margin(number, letters, layout))
        return Held(self.arrays[key], letters)

    def _reader(self, number: int) -> int | None:
        """The step that takes operand or result `number`."""
        return next((s for s, step in enumerate(self.plan.steps) if number in step.contraction.operands), None)

    def _letters(self, number: int) -> str:
        n = self.e.n
        return self.e.indexing.inputs[number] if number < n else self.plan.steps[number - n].contraction.indexing.output

    def _order(self, number: int) -> str:
        """The axes of an array: as work-items read it, what they sum over before the rest."""
        reader, letters = self._reader(number), self._letters(number)
        if reader is None:
            return letters
        sharing = self.sharings[reader]
        if isinstance(sharing, MatrixSharing):
            order = (*sharing.batch.letters, *sharing.sums.letters, *sharing.rows.letters)
            return "".join(sorted(letters, key=order.index))
        return "".join(sorted(letters, key=self.plan.steps[reader].contraction.indexing.output.find))

    def _padded_axes(self, number: int, letters: str) -> tuple[int, ...] | None:
        """The axes that may be padded, if not all: for a matrix unit, rows and sums are to go on evenly."""
        reader = self._reader(number)
        sharing = None if reader is None else self.sharings[reader]
        if not isinstance(sharing, MatrixSharing):
            return None
        batch, sums = len(sharing.batch.letters), len(sharing.sums.letters)
        return (*range(batch), batch + sums - 1) if len(letters) > batch + sums else tuple(range(batch))

    def _with_margin(self, number: int, letters: str, layout: Layout) -> Layout:
        """Room for the rows beyond the last that a matrix unit reads, whatever they hold."""
        reader = self._reader(number)
        sharing = None if reader is None else self.sharings[reader]
        if not isinstance(sharing, MatrixSharing):
            return layout
        first = next((x for x in sharing.rows.letters if x in letters), "")
        rest = math.prod(n for x, n in zip(sharing.rows.letters, sharing.rows.counts, strict=True) if x != first)
        beyond = -(-(sharing.padded_rows - sharing.rows.total) // rest)
        stride = layout.strides[letters.index(first)] if first else 0
        return Layout(layout.strides, layout.size + (beyond + 1) * stride)

    def _by_rows(self, number: int, letters: str) -> bool:
        """Whether a work-item reads along the last axis of an array, all of it."""
        reader = self._reader(number)
        last = letters[-1:]
        return reader is not None and self.plan.steps[reader].tile.get(last, 1) == self.lengths.get(last) != 1

    def _accesses(self, number: int, letters: str) -> list[Access]:
        """The step or copy that writes an array, and the step or copy that reads it."""
        reader, writer = self._reader(number), number - self.e.n
        written = self._whole(self._letters(number)) if writer < 0 else self.sharings[writer]
        read = self._whole(self.e.indexing.output) if reader is None else self.sharings[reader]
        return [self._access(written, letters, written=True), self._access(read, letters, written=False)]

    def _access(self, sharing: Sharing | MatrixSharing, letters: str, *, written: bool) -> Access:
        points = math.prod(self.lengths[x] for x in letters)
        if isinstance(sharing, MatrixSharing):
            return Access(sharing.rows, points, sharing.columns if written else sharing.sums)
        digits = sharing.digits
        alike = math.prod(n for x, n in zip(digits.letters, digits.counts, strict=True) if x in letters)
        return Access(digits, max(1, points // alike))

    def _wait(self) -> None:
        """Barriers between what writes an array and what reads it."""
        written = {copy.target.array for copy in self.found.first}
        for number, event in enumerate(self.found.events):
            if written & _reads(event):
                self.found.barriers.add(number)
                written.clear()
            written |= _writes(event)

    def _give_memory(self) -> None:
        """Let arrays share memory that are not needed at a time, with a barrier between the uses."""
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


def _reads(event: Event) -> set[int]:
    if isinstance(event, Compute):
        return {source.array for source in event.sources if source is not None}
    return {event.source.array} if isinstance(event, Store) else set()


def _writes(event: Event) -> set[int]:
    target = None if isinstance(event, Store) else event.target
    return set() if target is None else {target.array}
