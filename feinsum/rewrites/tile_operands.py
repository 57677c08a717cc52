"""Operands of tiles: B in local memory in the order in which lanes read it, A and what is held in registers of lanes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
from loopy.symbolic import IdentityMapper, get_dependencies
from pymbolic.primitives import Call, Comparison, FloorDiv, If, Min, Remainder, Sum, Variable

from feinsum.devices.ptx import SUB_GROUP
from feinsum.errors import TransformError
from feinsum.rewrites.async_copies import commit_copies, copy_asynchronously, wait_for_copies
from feinsum.rewrites.local_layouts import VECTOR_BYTES
from feinsum.rewrites.loops import fixed_length
from feinsum.rewrites.matrix_units import COLUMNS, DEPTH, ROWS, column_of, column_of_b, row_of
from feinsum.rewrites.products import MatrixProduct, substituted
from feinsum.rewrites.summing_units import first_bits
from feinsum.rewrites.tile_copies import TileCopies
from feinsum.rewrites.tile_loops import TileLoops, all_of, guarded

Loads = Callable[[int, tuple[str, ...]], tuple[str, ...]]
"""Adds the loads ahead of the product of a number, after some instructions; returns the ids of the loads."""


@dataclass(frozen=True)
class Fragments:
    """Numbers that a lane loads: ``name[index] = value(row, index)``, or zero unless ``valid(index)``.

    The row is the lane's first of a tile; the second is 8 further.
    """

    name: str
    shape: tuple[int, ...]
    value: Callable[[Any, tuple[Any, ...]], Any]
    valid: Callable[[tuple[Any, ...]], list[Any]] = lambda index: []


class TileOperands(TileLoops):
    """Loops of tiles, the arrays of operands in lanes and in local memory, and the instructions that fill them.

    :ivar held: substitution rule -> the array that holds its values, and which of its arguments is m.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.held: dict[str, tuple[str, int]] = {}
        self._a = ""
        self._rows: dict[Any, tuple[Any, str]] = {}

    def matrix(self, p: MatrixProduct) -> str:
        """Keep B in local memory, padded, in the order in which lanes read it: the whole group copies it.

        A sub-group loads a burst of fragments, a number for each lane, before it stores any.
        """
        count = self.blocks * math.prod(self.batch.values()) * self.steps
        shared, burst, parts = self.tiling.sub_groups, self.tiling.burst, 2 if self.tiling.sums == "split" else 1
        alignment = VECTOR_BYTES if self._is_interleaved else None
        name = self.draft.array("matrix", (parts * count * SUB_GROUP,), lp.AddressSpace.LOCAL, self.number, alignment)
        copy = self.draft.fresh("fragment")
        begun = f"0 <= {copy} and {max(1, burst) * shared} * {copy} + {self.sub_group} < {count}"
        self.draft.domain(str(self.sub_group), [copy], begun)
        around = self.around | {copy}
        place = Variable(copy) * shared + self.sub_group
        if burst == 0:
            self._copy_matrix(name, p, place, around)
            return name
        if burst == 1 and parts == 1:
            self.draft.assign(self._place_of_b(name, place, 0), self._entry_of_b(p, place), around, self.before)
            return name
        moved = Variable(self.draft.array("moved", (burst,), dtype=self.dtype))

        def each(entry: Callable[[Any, Any], tuple[Any, Any]], after: frozenset[str], **kwargs: Any) -> frozenset[str]:
            (ahead,) = self.draft.unrolled(("ahead",), (burst,))
            # What is beyond the last fragment is the last again.
            place = (burst * Variable(copy) + Variable(ahead)) * shared + self.sub_group
            place = If(Comparison(place, "<", count), place, count - 1)
            assignee, value = entry(moved[Variable(ahead)], place)
            return frozenset([self.draft.assign(assignee, value, around | {ahead}, after, **kwargs)])

        after = each(lambda number, place: (number, self._entry_of_b(p, place)), self.before)
        if parts == 1:
            each(lambda number, place: (self._place_of_b(name, place, 0), number), after, alone=True)
            return name
        after = each(lambda number, place: (self._place_of_b(name, place, 0), first_bits(number)), after, alone=True)
        each(lambda number, place: (self._place_of_b(name, place, 1), number - first_bits(number)), after, alone=True)
        return name

    def _copy_matrix(self, name: str, p: MatrixProduct, place: Any, around: frozenset[str]) -> None:
        """Copy fragments of B asynchronously, and wait for the last: numbers go to local memory as they are."""
        if self.number != self.dtype or self.tiling.sums == "split":
            raise TransformError(f"copies do not turn {self.dtype} into what '{self.unit.name}' multiplies")
        at, conditions = self._place_of_entry(p, place, inside=True)
        kwargs = {"within_inames_is_final": True, "depends_on_is_final": True}
        copied = copy_asynchronously(
            self._place_of_b(name, place, 0),
            substituted(p.b, at),
            If(all_of(conditions), 1, 0) if conditions else 1,
            self.dtype,
            id=self.draft.fresh_id("copy_matrix"),
            within_inames=around,
            depends_on=self.before,
            **kwargs,
        )
        own = {"within_inames": self.around, **kwargs}
        committed = commit_copies(id=self.draft.fresh_id("commit"), depends_on=frozenset([copied.id]), **own)
        waited = wait_for_copies(0, id=self.draft.fresh_id("wait"), depends_on=frozenset([committed.id]), **own)
        self.draft.instructions += [copied, committed, waited]

    @property
    def _is_interleaved(self) -> bool:
        """Whether a lane's numbers of an instruction are neighbours, to be read at once."""
        return self.tiling.sums != "apart"

    def _place_of_b(self, matrix: str, place: Any, part: int) -> Any:
        """Where a lane's number of a fragment lies, or its first bits and their rest, parts 0 and 1."""
        if not self._is_interleaved:
            return Variable(matrix)[place * SUB_GROUP + self.lane]
        width, parts = self.unit.k // DEPTH, 2 if self.tiling.sums == "split" else 1
        lane = FloorDiv(place, width) * SUB_GROUP + self.lane
        return Variable(matrix)[lane * (parts * width) + part * width + Remainder(place, width)]

    def _entry_of_b(self, p: MatrixProduct, place: Any) -> Any:
        """The number of B that a lane holds of a fragment, zero where there is none."""
        at, conditions = self._place_of_entry(p, place)
        return guarded(conditions, substituted(p.b, at))

    def _place_of_entry(self, p: MatrixProduct, place: Any, inside: bool = False) -> tuple[dict[str, Any], list[Any]]:
        """The indices of the number of B that a lane holds of a fragment, and when there is one; with `inside`, of any."""
        step, rest = Remainder(place, self.steps), FloorDiv(place, self.steps)
        at, conditions = self.sums_at(p, step, inside=inside)
        for letter, length in reversed(self.batch.items()):
            at[p.names[letter]], rest = Remainder(rest, length), FloorDiv(rest, length)
        at[p.names[self.n]] = column = COLUMNS * (rest + self.first_block) + self.column_of_b
        if self.columns % COLUMNS or self.tiling.parts > 1:
            conditions.append(Comparison(column, "<", self.columns))
            at[p.names[self.n]] = Min((column, self.columns - 1)) if inside else column
        return at, conditions

    @property
    def column_of_b(self) -> Any:
        """The column of the matrix that a lane holds of B."""
        return FloorDiv(self.lane, DEPTH) if self._pairs else column_of_b(self.lane)

    def column_of(self, number: Any) -> Any:
        """The column of the matrix that number 0 or 1 of D in a lane belongs to; those of wide stores are neighbours."""
        return 2 * Remainder(self.lane, DEPTH) + number if self._pairs else column_of(self.lane, number)

    @property
    def _pairs(self) -> bool:
        return self.tiling.wide and not self.tiling.staged

    def loads(self, products: Iterable[MatrixProduct], held: Mapping[str, str]) -> Loads:
        """The loads of A ahead of each product and, ahead of the first, of what is held."""
        values = self._held_fragments(held)
        products = list(products)
        if self.tiling.prefetch.startswith("copies"):
            return self._copied(products, values)
        sources = [self._fragments_of_a(p) for p in products]
        return self._loaded(sources, values) if self.tiling.prefetch == "none" else self._prefetched(sources, values)

    def _loaded(self, sources: list[Fragments], held: list[Fragments]) -> Loads:
        """Loads of a product right before it."""

        def loads(number: int, after: tuple[str, ...]) -> tuple[str, ...]:
            first = tuple(self._load(f.name, f, self.tile, self.inside, after) for f in held) if number == 0 else ()
            source = sources[number]
            return (*first, self._load(source.name, source, self.tile, self.inside, (*after, *first)))

        return loads

    def _prefetched(self, sources: list[Fragments], held: list[Fragments]) -> Loads:
        """Loads of the next product right before a product, whose own were loaded before; the first, ahead of the loop."""
        early_held, late_held = (held, []) if self.tiling.prefetch == "all" else ([], held)
        coming = {f.name: self.draft.array(f"next_{f.name}", f.shape, dtype=self.dtype) for f in (sources[0], *early_held)}
        first = substituted(self.tile, {self.round: 0})
        following = substituted(self.tile, {self.round: Variable(self.round) + 1})
        early = tuple(self._load(coming[f.name], f, first, self.around, ()) for f in (sources[0], *early_held))

        def loads(number: int, after: tuple[str, ...]) -> tuple[str, ...]:
            taken = (sources[number], *(early_held if number == 0 else ()))
            copies = tuple(self._take(f, coming[f.name], (*after, *early)) for f in taken)
            if number == 0:
                copies += tuple(self._load(f.name, f, self.tile, self.inside, copies) for f in late_held)
            last = number == len(sources) - 1
            then = [(sources[0], following) if last else (sources[number + 1], self.tile)]
            then += [(f, following) for f in early_held if number == 0]
            return copies + tuple(self._load(coming[f.name], f, tile, self.inside, copies) for f, tile in then)

        return loads

    def _copied(self, products: list[MatrixProduct], held: list[Fragments]) -> Loads:
        """Loads of a product from local memory, to which those of the next are copied during the product."""
        early_held, late_held = (held, []) if self.tiling.prefetch == "copies and held" else ([], held)
        copies = TileCopies(self, products)
        sources = [self._fragments_of_a(p, copies=copies) for p in products]
        coming = {f.name: self.draft.array(f"next_{f.name}", f.shape, dtype=self.dtype) for f in early_held}
        first, following = (substituted(self.tile, {self.round: x}) for x in (0, Variable(self.round) + 1))
        early = [self._load(coming[f.name], f, first, self.around, ()) for f in early_held]
        early.append(copies.begin(products[0], first, 0, self.around, [*self.before]))

        def loads(number: int, after: tuple[str, ...]) -> tuple[str, ...]:
            begun: tuple[str, ...] = ()
            if number == 0:
                begun = tuple(self._take(f, coming[f.name], (*after, *early)) for f in early_held)
                begun += tuple(self._load(f.name, f, self.tile, self.inside, after) for f in late_held)
            there = copies.wait(self.inside, (*after, *begun, *early))
            source, last = sources[number], number == len(products) - 1
            taken = self.synchronize((self._load(source.name, source, self.tile, self.inside, (there,), alone=True),))
            then, tile = (products[0], following) if last else (products[number + 1], self.tile)
            copied = copies.begin(then, tile, 0, self.inside, (taken,))
            ahead = early_held if number == 0 else ()
            return (copied, *(self._load(coming[f.name], f, following, self.inside, (copied,)) for f in ahead))

        return loads

    def loads_of_slices(self, products: Sequence[MatrixProduct]) -> Callable[[int, str, tuple[str, ...]], tuple[str, ...]]:
        """Adds the loads of a slice of the product of a number; nothing is held, as a slice needs little of it."""
        copies = TileCopies(self, products) if self.tiling.prefetch == "copies" else None
        first, following = (substituted(self.tile, {self.round: x}) for x in (0, Variable(self.round) + 1))
        early = [] if copies is None else [copies.begin(products[0], first, 0, self.around, [*self.before])]

        def loads(number: int, slice_: str, after: tuple[str, ...]) -> tuple[str, ...]:
            self._row(self.tile, self.inside)
            p, around = products[number], self.inside | {slice_}
            source = self._fragments_of_a(p, Variable(slice_), copies)
            if copies is None:
                return (self._load(source.name, source, self.tile, around, after),)
            there = copies.wait(around, (*after, *early))
            loaded = self._load(source.name, source, self.tile, around, (there,), alone=True)
            taken = (self.synchronize((loaded,), around),)
            then, tile = (products[0], following) if number == len(products) - 1 else (products[number + 1], self.tile)
            ended = Comparison(Variable(slice_), "==", self.tiling.slices - 1)
            more = Comparison(Variable(slice_), "<", self.tiling.slices - 1)
            begun = copies.begin(p, self.tile, Variable(slice_) + 1, around, taken, more)
            return (copies.begin(then, tile, 0, around, (begun,), ended),)

        return loads

    def _fragments_of_a(self, p: MatrixProduct, slice_: Any = None, copies: TileCopies | None = None) -> Fragments:
        letters = [letter for letter in self.batch if p.names[letter] in get_dependencies(p.a)]
        everywhere = self.tiling.everywhere or isinstance(p.a, Sum)

        def value(row: Any, index: tuple[Any, ...]) -> Any:
            *batch, step, half = index
            at, conditions = self.sums_at(p, step, inside=everywhere, slice_=slice_)
            at |= {p.names[letter]: place for letter, place in zip(letters, batch, strict=True)}
            a = p.a if copies is None else copies.values(p, step, half)
            # What is held belongs to the tile at hand, so loads ahead of it cannot use it.
            a = Held(self.held, half)(a) if self.tiling.prefetch not in ("values", "all") else a
            row = row + 8 * half
            there = Comparison(row, "<", self.rows_m)
            if everywhere:
                return substituted(a, {**at, p.names[self.m]: If(there, row, self.rows_m - 1)})
            return guarded([*conditions, there], substituted(a, {**at, p.names[self.m]: row}))

        def valid(index: tuple[Any, ...]) -> list[Any]:
            return self.sums_at(p, index[-2], slice_=slice_)[1] if everywhere else []

        shape = (*(self.batch[letter] for letter in letters), self.steps // self.tiling.slices, 2)
        self._a = self._a or self.draft.array("a", shape, dtype=self.number)
        return Fragments(self._a, shape, value, valid)

    def _held_fragments(self, held: Mapping[str, str]) -> list[Fragments]:
        fragments = []
        for rule, letters in held.items():
            if self.n in letters or self.m not in letters:
                raise TransformError(f"'{rule}' with '{letters}' is not held: it needs '{self.m}' and no '{self.n}'")
            shape = (*(fixed_length(self.kernel, self.match.inames[x]) for x in letters if x != self.m), 2)
            self.held[rule] = self.draft.array(f"{rule}_held", shape, dtype=self.dtype), letters.index(self.m)
            fragments.append(Fragments(self.held[rule][0], shape, self._value_of(rule, letters.index(self.m))))
        return fragments

    def _value_of(self, rule: str, axis: int) -> Callable[[Any, tuple[Any, ...]], Any]:
        def value(row: Any, index: tuple[Any, ...]) -> Any:
            row = row + 8 * index[-1]
            value = Call(Variable(rule), (*index[:axis], row, *index[axis:-1]))
            return guarded([Comparison(row, "<", self.rows_m)], value)

        return value

    def registers_of_a(self, p: MatrixProduct, step: str, batch: Sequence[str]) -> tuple[Any, ...]:
        names, width = get_dependencies(p.a), self.unit.k // DEPTH
        own = [Variable(i) for letter, i in zip(self.batch, batch, strict=True) if p.names[letter] in names]
        return tuple(Variable(self._a)[(*own, Variable(step) * width + i // 2, i % 2)] for i in range(2 * width))

    def registers_of_b(self, matrix: str, block: str, step: Any, batch: Sequence[str]) -> tuple[Any, ...]:
        place: Any = Variable(block)
        for iname, length in zip(batch, self.batch.values(), strict=True):
            place = place * length + Variable(iname)
        width = self.unit.k // DEPTH
        if self._is_interleaved:
            numbers = width * (2 if self.tiling.sums == "split" else 1)
            lane = (place * (self.steps // width) + step) * SUB_GROUP + self.lane
            return tuple(Variable(matrix)[lane * numbers + i] for i in range(numbers))
        place = place * self.steps + step * width
        return tuple(Variable(matrix)[(place + i) * SUB_GROUP + self.lane] for i in range(width))

    def _load(
        self, name: str, f: Fragments, tile: Any, around: frozenset[str], after: Sequence[str], alone: bool = False
    ) -> str:
        loops = self.draft.unrolled(("load",) * len(f.shape), f.shape)
        index = tuple(map(Variable, loops))
        row, known = self._row(tile, around)
        ready = {*after, *self.before, known}
        value = f.value(row, index)
        loaded = self.draft.assign(Variable(name)[index], value, around | set(loops), ready, alone=alone)
        if not f.valid(index):
            return loaded
        loops = self.draft.unrolled(("valid",) * len(f.shape), f.shape)
        index = tuple(map(Variable, loops))
        number = Variable(name)[index]
        return self.draft.assign(number, guarded(f.valid(index), number), around | set(loops), (loaded,))

    def _row(self, tile: Any, around: frozenset[str]) -> tuple[Any, str]:
        """A lane's first row of a tile, in a hidden temporary, and the id of what sets it.

        Were it known, some compilers would keep a running address for every load, each in a register for the whole loop.
        """
        if tile not in self._rows:
            name = self.draft.array("row", (), dtype=self.kernel.index_dtype.numpy_dtype)
            known = self.draft.assign(Variable(name), ROWS * tile + row_of(self.lane, 0), around, self.before)
            self._rows[tile] = Variable(name), self.draft.hide(name, around, (known,))
        return self._rows[tile]

    def _take(self, f: Fragments, source: str, after: Sequence[str]) -> str:
        loops = self.draft.unrolled(("take",) * len(f.shape), f.shape)
        index = tuple(map(Variable, loops))
        return self.draft.assign(Variable(f.name)[index], Variable(source)[index], self.inside | set(loops), after)


class Held(IdentityMapper):  # type: ignore[misc]
    """Reads what is held from its registers: rule -> its array and the axis of m."""

    def __init__(self, held: Mapping[str, tuple[str, int]], half: Any) -> None:
        super().__init__()
        self.held, self.half = held, half

    def map_call(self, expr: Any) -> Any:
        if expr.function.name not in self.held:
            return super().map_call(expr)
        name, axis = self.held[expr.function.name]
        rest = tuple(self.rec(value) for k, value in enumerate(expr.parameters) if k != axis)
        return Variable(name)[(*rest, self.half)]
