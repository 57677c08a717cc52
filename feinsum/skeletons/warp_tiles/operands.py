"""Operands of tiles that are in registers of lanes: A, loaded or copied, ahead or not, and what is held."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopy.symbolic import IdentityMapper, get_dependencies
from pymbolic.primitives import Call, Comparison, If, Sum, Variable

from feinsum.errors import TransformError
from feinsum.rewrites.loops import fixed_length
from feinsum.skeletons.common.products import MatrixProduct, substituted
from feinsum.skeletons.nvidia.matrix_units import DEPTH, ROWS, row_of
from feinsum.skeletons.warp_tiles.copies import TileCopies
from feinsum.skeletons.warp_tiles.held import HeldCopies
from feinsum.skeletons.warp_tiles.loops import guarded
from feinsum.skeletons.warp_tiles.matrices import TileMatrices
from feinsum.skeletons.warp_tiles.tiling import copies_held

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


class TileOperands(TileMatrices):
    """Tiles with registers for operands, and the instructions that fill them.

    :ivar held: substitution rule -> the array that holds its values, and which of its arguments is m.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.held: dict[str, tuple[str, int]] = {}
        self._a = ""
        self._rows: dict[Any, tuple[Any, str]] = {}

    def prepare(self, products: Sequence[MatrixProduct], held: Mapping[str, str]) -> None:
        """Keep room for what is held and copied, the same for all turns."""
        sliced = self.tiling.slices > 1
        self._held_copied = HeldCopies(self, held) if copies_held(self.tiling) else None
        self._fragments = [] if sliced else self._held_fragments(held)
        copied = self.tiling.prefetch.startswith("copies")
        self._values_copied = TileCopies(self, products, self._held_copied) if copied else None

    def loads(self, products: Sequence[MatrixProduct], after: tuple[str, ...]) -> Loads:
        """The loads of A ahead of each product of a turn and, ahead of the first, of what is held.

        :param after: what the turn begins after, if it is not the first.
        """
        if self._values_copied is not None:
            return self._copied(products, self._values_copied, after)
        sources = [self._fragments_of_a(p) for p in products]
        return self._loaded(sources) if self.tiling.prefetch == "none" else self._prefetched(sources, after)

    def _loaded(self, sources: list[Fragments]) -> Loads:
        """Loads of a product right before it."""

        def loads(number: int, after: tuple[str, ...]) -> tuple[str, ...]:
            held = () if number else self._fragments
            first = tuple(self._load(f.name, f, self.tile, self.inside, after) for f in held)
            source = sources[number]
            return (*first, self._load(source.name, source, self.tile, self.inside, (*after, *first)))

        return loads

    def _prefetched(self, sources: list[Fragments], after: tuple[str, ...]) -> Loads:
        """Loads of the next product right before a product, whose own were loaded before; the first, ahead of the loop."""
        early_held, late_held = (self._fragments, []) if self.tiling.prefetch == "all" else ([], self._fragments)
        coming = {f.name: self.draft.array(f"next_{f.name}", f.shape, dtype=self.dtype) for f in (sources[0], *early_held)}
        first, following = self._first_and_following
        early = tuple(self._load(coming[f.name], f, first, self.around, after) for f in (sources[0], *early_held))

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

    @property
    def _ready(self) -> frozenset[str]:
        """The ids of what comes before anything that a turn loads."""
        return self.before.union(self.placed)

    @property
    def _first_and_following(self) -> tuple[Any, Any]:
        """The numbers of the first tile of a sub-group, and of the one after that at hand."""
        return tuple(substituted(self.tile, {self.round: x}) for x in (0, Variable(self.round) + 1))

    def _copied(self, products: Sequence[MatrixProduct], copies: TileCopies, after: tuple[str, ...]) -> Loads:
        """Loads of a product from local memory, to which those of the next are copied during the product."""
        ahead = self.tiling.prefetch == "copies and held"
        early_held, late_held = (self._fragments, []) if ahead else ([], self._fragments)
        sources = [self._fragments_of_a(p, copies=copies) for p in products]
        coming = {f.name: self.draft.array(f"next_{f.name}", f.shape, dtype=self.dtype) for f in early_held}
        first, following = self._first_and_following
        early = [self._load(coming[f.name], f, first, self.around, after) for f in early_held]
        early.append(self._first_copied(products[0], copies, after))

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

    def _first_copied(self, p: MatrixProduct, copies: TileCopies, after: tuple[str, ...]) -> str:
        """Begin the copies for the first tile of a turn, where those of the turn before are done; the id of the last."""
        first, _ = self._first_and_following
        free = self._ready.union((copies.wait(self.around, after),) if after else ())
        begun = self._held_copied.begin(first, self.around, free) if self._held_copied else ()
        return copies.begin(p, first, 0, self.around, [*free, *begun])

    def loads_of_slices(
        self, products: Sequence[MatrixProduct], after: tuple[str, ...]
    ) -> Callable[[int, str, tuple[str, ...]], tuple[str, ...]]:
        """Adds the loads of a slice of the product of a number; what is held is at most in local memory.

        :param after: what the turn begins after, if it is not the first.
        """
        copies, factors = self._values_copied, self._held_copied
        _, following = self._first_and_following
        early = () if copies is None else (self._first_copied(products[0], copies, after),)

        def loads(number: int, slice_: str, after: tuple[str, ...]) -> tuple[str, ...]:
            self._row(self.tile, self.inside)
            p, around = products[number], self.inside | {slice_}
            source = self._fragments_of_a(p, Variable(slice_), copies)
            if copies is None:
                return (self._load(source.name, source, self.tile, around, after),)
            there = copies.wait(around, (*after, *early))
            loaded = self._load(source.name, source, self.tile, around, (there,), alone=True)
            taken = (self.synchronize((loaded,), around),)
            last = number == len(products) - 1
            then, tile = (products[0], following) if last else (products[number + 1], self.tile)
            ended = Comparison(Variable(slice_), "==", self.tiling.slices - 1)
            more = Comparison(Variable(slice_), "<", self.tiling.slices - 1)
            begun = [copies.begin(p, self.tile, Variable(slice_) + 1, around, taken, more)]
            if factors is not None and last:
                begun += factors.begin(following, around, frozenset(taken), ended)
            return (copies.begin(then, tile, 0, around, begun, ended),)

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
            known = self.draft.assign(Variable(name), ROWS * tile + row_of(self.lane, 0), around, self._ready)
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
