"""Kernels of grids: a work-group for each tile, with what it reads often in local memory and what it sums in registers.

The elements of a tile are computed in blocks: on a device whose work-items compute in vectors, ``rows`` x ``columns``
vectors at a time; elsewhere each work-item has one block, whose rows and columns are dealt like cards::

    for k:  a[0..rows], b[0..columns] = tile_a[n + r, k], tile_b[k, m + c]
            sum[r, c] += a[r] * b[c]

Conditions that keep a tile within its array are looked at once for the tile: inside, elements are read without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from feinsum.languages.declarative.emitting.blocks import TileDivision, block_of, lanes_of, reductions_of
from feinsum.languages.declarative.emitting.guards import unguarded
from feinsum.languages.declarative.emitting.kernels import Emitter, KernelText, Spread, decode_indices, flat
from feinsum.languages.declarative.emitting.operators import FIRST, is_vectorial
from feinsum.languages.declarative.emitting.types import c_type
from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.lowering.folding import INDEX, constant_index, fold
from feinsum.languages.declarative.lowering.terms import (
    Apply,
    Constant,
    Load,
    Reduce,
    Term,
    TermVariable,
    substitute,
    walk_terms,
)
from feinsum.languages.declarative.lowering.tiles import Fill, Rounds, ScopeTile, TileScope

_QUAD: Final = 4
"""Neighbouring columns of a work-item: what it reads of local memory at once."""
_UNROLLED: Final = 2
"""Rounds of a sum that a compiler is told to write out: then it reads neighbours together.  With four, blocks of 64 numbers
take more than 128 registers of an NVIDIA device (197, by ptxas), and half as many groups fit."""
_MOST_AHEAD: Final = 16
"""Elements of a tile that a work-item holds in registers until the others are done with the last ones."""
_SIMPLE: Final = (Load, Apply, TermVariable, Constant)
_CONTINUED: Final = {"sum": "+", "prod": "*", "min": "min", "max": "max"}
"""Functions that bring what a loop carries together with a reduction."""
_BARRIER: Final = "barrier(CLK_LOCAL_MEM_FENCE);"


@dataclass(frozen=True)
class _Ahead:
    """The elements that a work-item has read of the next round.

    :ivar names: of the elements; `flag` says whether they were read, which they are if `conditions` hold.
    :ivar body: an element, without conditions.
    """

    names: Sequence[str]
    flag: str
    conditions: Sequence[Extent]
    body: Term


@dataclass(frozen=True)
class _Cell:
    """One element of a block, or a vector of them.

    :ivar offset: in an array of all elements.
    """

    indices: tuple[Term, ...]
    offset: str = ""
    row: int = 0
    column: int = 0


def tile_bytes(scope: TileScope) -> int:
    """Local memory of a group."""
    fills = [f for s in scope.stages for f in (s.fills if isinstance(s, Rounds) else (s,))]
    return sum(prod(f.tile.shape) * {"f64": 8, "i64": 8, "u64": 8}.get(f.tile.dtype, 4) for f in fills)


def tile_kernel(
    name: str, scope: TileScope, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread
) -> KernelText:
    """The kernel of a grid."""
    lanes = lanes_of(scope, spread)
    return _Tiles(name, scope, arrays, replace(spread, lanes=lanes), block_of(scope, spread)).write()


class _Tiles:
    """One kernel on its way."""

    def __init__(
        self,
        name: str,
        scope: TileScope,
        arrays: Mapping[str, tuple[tuple[int, ...], str]],
        spread: Spread,
        block: TileDivision | None,
    ) -> None:
        self.emitter = Emitter(name, arrays, spread)
        self.writer = self.emitter.writer
        self.scope, self.block, self.lanes = scope, block, spread.lanes
        self._carried: dict[str, ScopeTile] = {}

    def write(self) -> KernelText:
        writer, scope = self.writer, self.scope
        groups = prod(v.extent for v in scope.grid)
        for stage in scope.stages:
            for fill in stage.fills if isinstance(stage, Rounds) else (stage,):
                self.emitter.on_chip[fill.tile.array] = (0, fill.tile.shape)
                size = max(prod(fill.tile.shape), 1)
                aligned = " __attribute__((aligned(64)))"
                writer.line(f"__local {c_type(fill.tile.dtype)} row_{fill.tile.array}[{size}]{aligned};")
        with writer.braces(self.emitter.begin(groups)):
            decode_indices(self.emitter, scope.grid, "group")
            if self.block is not None and self.lanes > 1:
                writer.line(f"const int row_lane = lid / {self.block.column_lanes};")
                writer.line(f"const int column_lane = lid % {self.block.column_lanes};")
            for stage in scope.stages:
                if isinstance(stage, Fill):
                    self._fill(stage)
                    self._meet()
                else:
                    self._rounds(stage)
            self._finish()
            self._meet()
        return self.emitter.finish(groups)

    def _meet(self) -> None:
        if self.lanes > 1:
            self.writer.line(_BARRIER)

    # fills

    def _fill(self, fill: Fill) -> None:
        """The elements of a tile, without conditions where these hold for all of them."""
        free = unguarded(fill.body, fill.variables, self._around)
        if free is None:
            self._elements(fill, fill.body)
            return
        conditions, body = free
        texts = [self._inequality(c) for c in conditions]
        with self.writer.braces(f"if ({' && '.join(texts) or '1'})"):
            self._elements(fill, body)
        if texts:
            with self.writer.braces("else"):
                self._elements(fill, fill.body)

    def _inequality(self, extent: Extent) -> str:
        """The condition that a polynomial in indices of the grid and of loops is not negative."""
        known = {v.name: v for v in self._around}
        parts = []
        for monomial, coefficient in extent.terms:
            factors = [self.writer.value(known[atom]) for atom in monomial]
            parts.append(" * ".join([str(int(coefficient)), *factors]))
        return f"{' + '.join(parts) or '0'} >= 0"

    @property
    def _around(self) -> list[TermVariable]:
        return [*self.scope.grid, *(s.index for s in self.scope.stages if isinstance(s, Rounds))]

    def _elements(self, fill: Fill, body: Term) -> None:
        writer, emitter, (*outer, last) = self.writer, self.emitter, fill.variables
        width = emitter.spread.width(fill.tile.dtype)

        def put(indices: Sequence[str], value: str) -> None:
            emitter.put(f"row_{fill.tile.array}[{flat(indices, fill.tile.shape)}]", value)

        if self.lanes > 1:
            size, e = prod(fill.tile.shape), writer.fresh("e")
            with writer.braces(f"for (int {e} = lid; {e} < {size}; {e} += {self.lanes})"):
                put(decode_indices(emitter, fill.variables, e), writer.value(body))
            return
        while width > 1 and last.extent % width:
            width //= 2
        e = writer.fresh("e")
        with writer.braces(""), writer.over(outer, {}):
            indices = [writer.value(v) for v in outer]
            if width < 2 or not is_vectorial(body, last, fill.tile.dtype):
                with writer.braces(f"for (int {e} = 0; {e} < {last.extent}; {e}++)"):
                    writer.define(last, e)
                    put([*indices, e], writer.value(body))
                return
            head = f"for (int {e} = 0; {e} < {last.extent}; {e} += {width})"
            with writer.braces(head), writer.vectors(last, width, fill.tile.dtype):
                writer.define(last, e)
                emitter.width = width
                put([*indices, e], writer.widened(body))
                emitter.width = 0

    # loops

    def _rounds(self, stage: Rounds) -> None:
        writer, state = self.writer, stage.state
        self._declare(stage)
        self._compute(stage.variables, stage.first, lambda cell, value: self._put(state.array, cell, value))
        if self.lanes > 1 and stage.fills and stage.index.extent > 1:
            self._rounds_ahead(stage)
            return
        number = writer.fresh("i")
        with writer.braces(f"for (int {number} = 0; {number} < {stage.index.extent}; {number}++)"):
            writer.define(stage.index, number)
            for fill in stage.fills:
                self._fill(fill)
            self._meet()
            self._follow(stage)
            self._meet()

    def _rounds_ahead(self, stage: Rounds) -> None:
        """Rounds during which work-items read what they are going to put into tiles for the next one::

            fill(0)
            for i:  ahead = read(i + 1);  compute(i);  tile = ahead

        so that memory is waited for while something is computed.
        """
        writer, number, following = self.writer, self.writer.fresh("i"), self.writer.fresh("next")
        with writer.braces(""):
            writer.define(stage.index, "0")
            for fill in stage.fills:
                self._fill(fill)
        self._meet()
        held = [self._hold(fill) for fill in stage.fills]
        with writer.braces(f"for (int {number} = 0; {number} < {stage.index.extent}; {number}++)"):
            writer.line(f"const int {following} = {number} + 1;")
            for fill, ahead in zip(stage.fills, held, strict=True):
                if ahead is not None:
                    self._read_ahead(stage, fill, ahead, following)
            with writer.braces(""):
                writer.define(stage.index, number)
                self._follow(stage)
            self._meet()
            with writer.braces(f"if ({following} < {stage.index.extent})"):
                writer.define(stage.index, following)
                for fill, ahead in zip(stage.fills, held, strict=True):
                    if ahead is None:
                        self._fill(fill)
                        continue
                    with writer.braces(f"if ({ahead.flag})"):
                        for name, place in zip(ahead.names, self._dealt(fill), strict=True):
                            self.emitter.put(f"row_{fill.tile.array}[{flat(place, fill.tile.shape)}]", name)
                    if ahead.conditions:
                        with writer.braces("else"):
                            self._elements(fill, fill.body)
            self._meet()

    def _hold(self, fill: Fill) -> _Ahead | None:
        """Registers for the elements of a tile which a work-item reads ahead; None for too many, or conditional ones."""
        free = unguarded(fill.body, fill.variables, self._around)
        each, rest = divmod(prod(fill.tile.shape), self.lanes)
        if free is None or rest or each > _MOST_AHEAD or not all(isinstance(t, _SIMPLE) for t in walk_terms(free[1])):
            return None
        names = [self.writer.fresh("ahead") for _ in range(each)]
        self.writer.line(f"{c_type(fill.tile.dtype)} {', '.join(names)};")
        return _Ahead(names, self.writer.declare("int", word="quick"), tuple(free[0]), free[1])

    def _read_ahead(self, stage: Rounds, fill: Fill, ahead: _Ahead, following: str) -> None:
        """Read the elements of the next round, if all of them are within their array."""
        writer = self.writer
        with writer.braces(""):
            writer.define(stage.index, following)
            inside = [f"{following} < {stage.index.extent}", *map(self._inequality, ahead.conditions)]
            writer.line(f"{ahead.flag} = {' && '.join(inside)};")
            with writer.braces(f"if ({ahead.flag})"):
                for name, place in zip(ahead.names, self._dealt(fill), strict=True):
                    with writer.braces(""):
                        for variable, index in zip(fill.variables, place, strict=True):
                            writer.define(variable, index)
                        writer.line(f"{name} = {writer.value(ahead.body)};")

    def _dealt(self, fill: Fill) -> Iterator[list[str]]:
        """The indices of the elements of a tile that a work-item has: apart by numbers, wherever lengths allow that."""
        writer, (*outer, last) = self.writer, fill.variables
        each = prod(fill.tile.shape) // self.lanes
        if self.lanes % last.extent == 0 and len(outer) == 1:
            row = writer.declare("const int", f"lid / {last.extent}", "i")
            column = writer.declare("const int", f"lid % {last.extent}", "i")
            for k in range(each):
                yield [f"({row} + {k * (self.lanes // last.extent)})", column]
            return
        for k in range(each):
            e = writer.declare("const int", f"lid + {k * self.lanes}", "e")
            yield decode_indices(self.emitter, fill.variables, e)

    def _follow(self, stage: Rounds) -> None:
        """The next state; a sum that is added to it goes on from it, so that there is one number for both."""
        operator = _continued(stage)
        if self.block is None or operator is None:
            self._compute(stage.variables, stage.following, lambda cell, value: self._put(stage.state.array, cell, value))
            return
        width = self.block.width
        with self._blocks(stage.variables) as cells:
            terms = [
                reductions_of(substitute(stage.following, dict(zip(stage.variables, c.indices, strict=True))))[0]
                for c in cells
            ]
            names = [self._own(stage.state.array, cell) for cell in cells]
            if width:
                vector = f"{c_type(stage.state.dtype)}{width}"
                names = [self.writer.declare(vector, f"vload{width}(0, &{own})", "acc") for own in names]
            self._gather(names, terms, width)
            if width:
                for name, cell in zip(names, cells, strict=True):
                    self._put(stage.state.array, cell, name)

    def _declare(self, stage: Rounds) -> None:
        """Memory for what a loop carries: registers of a block, or an array."""
        state, c = stage.state, c_type(stage.state.dtype)
        self._carried[state.array] = state
        if self.block is not None and self.lanes > 1:
            names = [f"{state.array}_{r}_{k}" for r in range(self.block.rows) for k in range(self.block.columns)]
            self.writer.line(f"{c} {', '.join(names)};")
            return
        size = -(-prod(state.shape) // self.lanes)
        self.writer.line(f"{c} own_{state.array}[{size}]{' __attribute__((aligned(64)))' if self.lanes == 1 else ''};")

    # blocks

    def _compute(self, variables: Sequence[TermVariable], term: Term, store: Callable[[_Cell, str], None]) -> None:
        """The values of a term for all elements of a tile, block by block."""
        writer, width = self.writer, self.block.width if self.block is not None else 0
        with self._blocks(variables) as cells:
            terms = [substitute(term, dict(zip(variables, cell.indices, strict=True))) for cell in cells]
            for cell, own in zip(cells, terms, strict=True):
                self._recall(cell, own)
            if self.block is not None:
                for count in range(len(reductions_of(terms[0]))):
                    self._reduce([reductions_of(own)[count] for own in terms], width)
            values = [writer.widened(own) if width else writer.value(own) for own in terms]
            for cell, value in zip(cells, values, strict=True):
                store(cell, value)

    def _reduce(self, terms: Sequence[Reduce], width: int) -> None:
        """A reduction for all cells of a block at once."""
        writer, (first, *_) = self.writer, terms
        kind = f"{c_type(first.dtype)}{width or ''}"
        sums = [writer.declare(kind, FIRST[first.operator](first.dtype), "acc") for _ in terms]
        self._gather(sums, terms, width)
        for name, term in zip(sums, terms, strict=True):
            writer.define(term, name)

    def _gather(self, names: Sequence[str], terms: Sequence[Reduce], width: int) -> None:
        """Bring the bodies of reductions over the same variables into one number or vector each."""
        writer, (*outer, last) = self.writer, terms[0].variables
        with writer.over(outer, {}):
            if self.lanes > 1:
                writer.line(f"#pragma unroll {_UNROLLED}")
            with writer.over([last], {}):
                for name, term in zip(names, terms, strict=True):
                    writer.accumulate(name, term, width)

    def _recall(self, cell: _Cell, term: Term) -> None:
        """Read what a loop carries."""
        writer, width = self.writer, self.block.width if self.block is not None else 0
        for part in sorted({t for t in walk_terms(term) if isinstance(t, Load) and t.array in self._carried}, key=str):
            text = self._own(part.array, cell)
            if width:
                text = writer.declare(f"const {c_type(part.dtype)}{width}", f"vload{width}(0, &{text})")
            writer.define(part, text)

    def _own(self, array: str, cell: _Cell) -> str:
        """The place of an element that a loop carries."""
        if self.block is not None and self.lanes > 1:
            return f"{array}_{cell.row}_{cell.column}"
        return f"own_{array}[{cell.offset}]"

    def _put(self, array: str, cell: _Cell, value: str) -> None:
        width = self.block.width if self.block is not None else 0
        place = self._own(array, cell)
        self.writer.line(f"vstore{width}({value}, 0, &{place});" if width else f"{place} = {value};")

    @contextmanager
    def _blocks(self, variables: Sequence[TermVariable]) -> Iterator[list[_Cell]]:
        """The loops around a block, and its cells."""
        writer, block = self.writer, self.block
        shape = tuple(v.extent for v in variables)
        if block is None:
            size, k, e = prod(shape), writer.fresh("k"), writer.fresh("e")
            with writer.braces(f"for (int {k} = 0; {k} < {-(-size // self.lanes)}; {k}++)"):
                writer.line(f"const int {e} = {k} * {self.lanes} + lid;")
                with writer.braces(f"if ({e} < {size})"):
                    decode_indices(self.emitter, variables, e)
                    yield [_Cell(tuple(variables), k)]
            return
        *outer, n, m = variables if len(shape) > 1 else (TermVariable(INDEX, "row", 1), *variables)
        row, column = TermVariable(INDEX, f"{n.name}_block", n.extent), TermVariable(INDEX, f"{m.name}_block", m.extent)
        if self.lanes > 1:
            with writer.braces(""):
                quad = _QUAD if block.columns % _QUAD == 0 else 1
                writer.define(row, "row_lane")
                writer.line(f"const int column_first = column_lane * {quad};")
                writer.define(column, "column_first")
                yield self._cells(outer, row, column, block.row_lanes, quad, quad * block.column_lanes, len(shape))
            return
        step = block.width * block.columns
        with (
            writer.over(outer, {}),
            writer.over([column], {column: ("0", str(step))}),
            writer.over([row], {row: ("0", str(block.rows))}),
            writer.vectors(column, block.width, self.scope.dtype),
        ):
            yield self._cells(outer, row, column, 1, 1, block.width, len(shape))

    def _cells(
        self,
        outer: Sequence[TermVariable],
        row: TermVariable,
        column: TermVariable,
        rows_apart: int,
        quad: int,
        apart: int,
        rank: int,
    ) -> list[_Cell]:
        """The cells of a block: `quad` columns side by side, then `apart` on."""
        assert self.block is not None
        found = []
        for r in range(self.block.rows):
            for c in range(self.block.columns):
                n = fold(Apply(INDEX, "+", (row, constant_index(r * rows_apart))))
                m = fold(Apply(INDEX, "+", (column, constant_index(c // quad * apart + c % quad))))
                indices = (*outer, n, m)[-rank:]
                offset = ""
                if self.lanes == 1:
                    extents = [v.extent for v in (*outer, row, column)][-rank:]
                    offset = flat([self.writer.scalar(i) for i in indices], extents)
                found.append(_Cell(indices, offset, r, c))
        return found

    # the result

    def _finish(self) -> None:
        """Write the tile, as much of it as is within the result."""
        writer, scope = self.writer, self.scope
        width = self.block.width if self.block is not None else 0
        edges = []
        for axis, (variable, length) in enumerate(zip(scope.variables, scope.shape, strict=True)):
            if axis < len(scope.grid) and scope.grid[axis].extent * variable.extent != length:
                edges.append(axis)

        def store(cell: _Cell, value: str) -> None:
            own: dict[Term, Term] = dict(zip(scope.variables, cell.indices, strict=True))
            places = [writer.scalar(substitute(place, own)) for place in scope.places]
            inside = [f"{places[axis]} < {scope.shape[axis]}" for axis in edges]
            if not width:
                with writer.braces(f"if ({' && '.join(inside)})" if inside else ""):
                    self.emitter.store(scope.array, places, value)
                return
            last = len(places) - 1
            if last in edges:
                inside[-1] = f"{places[last]} + {width} <= {scope.shape[last]}"
            with writer.braces(f"if ({' && '.join(inside)})" if inside else ""):
                self.emitter.width = width
                self.emitter.store(scope.array, places, value)
                self.emitter.width = 0
            if last in edges:
                rows = [f"{places[axis]} < {scope.shape[axis]}" for axis in edges[:-1]]
                with writer.braces(f"else if ({' && '.join(rows) or '1'})"):
                    kind, lanes = c_type(scope.dtype), writer.fresh("lanes")
                    writer.line(f"{kind} {lanes}[{width}];")
                    writer.line(f"vstore{width}({value}, 0, {lanes});")
                    head = f"for (int t = 0; t < {width} && {places[last]} + t < {scope.shape[last]}; t++)"
                    with writer.braces(head):
                        self.emitter.store(scope.array, [*places[:-1], f"{places[last]} + t"], f"{lanes}[t]")

        self._compute(scope.variables, scope.value, store)


def _continued(stage: Rounds) -> str | None:
    """The operator of a reduction that a loop adds to what it carries, and to nothing else; None if it does otherwise."""
    match stage.following:
        case Apply(function=function, arguments=(Load() as state, Reduce() as reduce)):
            pass
        case Apply(function=function, arguments=(Reduce() as reduce, Load() as state)):
            pass
        case _:
            return None
    own = state.array == stage.state.array and _CONTINUED.get(reduce.operator) == function
    reads = {t.array for t in walk_terms(reduce) if isinstance(t, Load)}
    same = reduce.dtype == stage.following.dtype == stage.state.dtype
    return reduce.operator if own and same and stage.state.array not in reads else None
