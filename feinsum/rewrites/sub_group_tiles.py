"""Contractions on matrix units, tile by tile: ``D[m, n] = Σ_k A[m, k] B[k, n]`` with a long m and small n and k.

A sub-group takes 16 rows m at a time and all columns n.  B lies in local memory for the whole kernel, in the order in
which lanes read it; what is loaded of A stays in registers; no work-group ever waits inside the loop over tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
from loopy.symbolic import IdentityMapper, get_dependencies, pw_aff_to_expr
from pymbolic.primitives import Call, Comparison, FloorDiv, If, LogicalAnd, Remainder, Sum, Variable

from feinsum.devices.ptx import SUB_GROUP, MatrixUnit
from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.draft import Draft
from feinsum.rewrites.loops import fixed_length
from feinsum.rewrites.matrix_units import (
    COLUMNS,
    DEPTH,
    ROWS,
    column_of,
    column_of_b,
    fp64_matrix_unit,
    multiply_accumulate,
    register_matrix_unit,
    row_of,
    synchronize_sub_group,
)
from feinsum.rewrites.products import MatrixProduct, matrix_product, substituted
from feinsum.rewrites.tiling import Tiling, blocks, steps


def multiply_in_tiles(
    t_unit: lp.TranslationUnit,
    match: Match,
    operand: int | None,
    m: str,
    n: str,
    tiling: Tiling,
    *,
    held: Mapping[str, str] | None = None,
) -> lp.TranslationUnit:
    """Compute a sum of products on matrix units, and what is made of it where its results lie.

    Before, with ``P(r, n, m) := sum(k, B(r, n, k) * A(m, k))``, for every row of the match::

        for x, m, n: out[x, m, n] = J(x, 0, m) * P(0, n, m) + J(x, 1, m) * P(1, n, m)

    After, for g, t = lane / 4, lane mod 4 and S sub-groups s of a group, everything over r, x, h, c unrolled::

        for block, r, step: b[block, r, step, lane] = B(r, 8 block + column of B, 4 step + t)
        ... lbarrier
        for tile in range(group * S + s, ceil(M / 16), groups * S):
            for step, h: a[step, h] = A(16 tile + 8 h + g, 4 step + t)
            for x, r, h: j[x, r, h] = J(x, r, 16 tile + 8 h + g)
            for block:
                for r, h, c: acc[r, h, c] = 0
                for step, r: acc[r, ...] = mma(acc[r, ...], a[step, ...], b[block, r, step, lane])
                for x, h, c: out[x, 16 tile + 8 h + g, 8 block + 4 c + t] = j[x, 0, h] * acc[0, h, c] + ...

    Numbers beyond an operand are zeros, and results beyond the output are not stored, so any m, n and k will do; of
    several indices k the last is padded to whole steps.  Rows with the same product share it.
    Registers of a lane: two for each step of A, four for each r, two for each entry of what is held.

    :param operand: the operand whose rule is the sum of products (see :func:`feinsum.rewrites.contract_first`); None
        if the instructions of the match are such sums themselves.
    :param m: the index letter of the long axis; factors of the products that have it are A, the others are B.
    :param n: the index letter that becomes columns.
    :param held: substitution rules whose values are loaded once for all columns and rows -> the index letters of their
        arguments, m among them and n not.
    :raises TransformError: if the instructions have no such form, or n or an index summed over has no fixed length.

    ``blockize`` and ``tensorize`` in TVM; what CUTLASS calls warp-level tiling, with the smaller operand persistent.
    """
    unit = fp64_matrix_unit(tiling.unit)
    work = _Tiles(t_unit[match.kernel_name], match, m, n, tiling, unit, operand)
    return register_matrix_unit(t_unit.with_kernel(work.result(held or {})), unit)


@dataclass(frozen=True)
class _Fragments:
    """Numbers that a lane loads: ``name[index] = value(tile, index)``, or zero unless ``valid(index)``."""

    name: str
    shape: tuple[int, ...]
    value: Callable[[Any, tuple[Any, ...]], Any]
    valid: Callable[[tuple[Any, ...]], list[Any]] = lambda index: []


@dataclass(frozen=True)
class _Staging:
    """The array through which results of some rows pass, and where in it those of one row are."""

    name: str
    row: int


@dataclass
class _Tiles:
    """The kernel while its sums become products of tiles."""

    kernel: lp.LoopKernel
    match: Match
    m: str
    n: str
    tiling: Tiling
    unit: MatrixUnit
    operand: int | None
    held: dict[str, tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kernel, match = self.kernel, self.match
        self.draft = Draft(kernel)
        self.rows = [kernel.id_to_insn[insn_id] for insn_id in match.insn_ids]
        if any(insn.predicates for insn in self.rows):
            raise TransformError(f"instruction '{self.rows[0].id}' has a predicate, which lanes of a product cannot have")
        self.products = [matrix_product(kernel, match, row, self.operand, self.m, self.n) for row in range(len(self.rows))]
        self.sums = [fixed_length(kernel, iname) for iname in self.products[0].sums]
        self.steps = steps(self.sums, self.unit)
        self.rows_m = pw_aff_to_expr(kernel.get_iname_bounds(match.inames[self.m]).size)
        self.columns = fixed_length(kernel, match.inames[self.n])
        self.blocks = blocks(self.columns, self.tiling.parts)
        self.batch = {
            letter: fixed_length(kernel, match.inames[letter])
            for letter, _ in self.products[0].formal
            if letter not in (self.m, self.n)
        }
        self.before = frozenset[str]().union(*(insn.depends_on for insn in self.rows)) - set(match.insn_ids)

    def result(self, held: Mapping[str, str]) -> lp.LoopKernel:
        self._deal_tiles()
        matrices: dict[Any, str] = {}
        for p in self.products:
            if p.b not in matrices:
                matrices[p.b] = self._matrix(p)
        barrier = lp.BarrierInstruction(
            self.draft.fresh_id("matrices_are_there"),
            depends_on=frozenset(insn.id for insn in self.draft.instructions),
            synchronization_kind="local",
            mem_kind="local",
            within_inames=self.around,
            within_inames_is_final=True,
        )
        self.draft.instructions.append(barrier)
        self.accumulators = self.draft.array("acc", (*self.batch.values(), 2, 2))
        self._compute(matrices, self._held_fragments(held), barrier.id)
        return self.draft.finished(self.match.insn_ids, {p.rule for p in self.products if p.rule is not None})

    def _deal_tiles(self) -> None:
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

    def _matrix(self, p: MatrixProduct) -> str:
        """Keep B in local memory, padded, in the order in which lanes read it: the whole group copies it."""
        count = self.blocks * math.prod(self.batch.values()) * self.steps
        name = self.draft.array("matrix", (count * SUB_GROUP,), lp.AddressSpace.LOCAL)
        copy = self.draft.fresh("fragment")
        shared = self.tiling.sub_groups
        self.draft.domain(str(self.sub_group), [copy], f"0 <= {copy} and {shared} * {copy} + {self.sub_group} < {count}")
        place = Variable(copy) * shared + self.sub_group
        step, rest = Remainder(place, self.steps), FloorDiv(place, self.steps)
        at, conditions = self._sums_at(p, step)
        for letter, length in reversed(self.batch.items()):
            at[p.names[letter]], rest = Remainder(rest, length), FloorDiv(rest, length)
        at[p.names[self.n]] = column = COLUMNS * (rest + self.first_block) + column_of_b(self.lane)
        if self.columns % COLUMNS or self.tiling.parts > 1:
            conditions.append(Comparison(column, "<", self.columns))
        value = _guarded(conditions, substituted(p.b, at))
        self.draft.assign(Variable(name)[place * SUB_GROUP + self.lane], value, self.around | {copy}, self.before)
        return name

    def _compute(self, matrices: Mapping[Any, str], held: list[_Fragments], after: str) -> None:
        """Load, multiply and store, product after product, in the loop over tiles."""
        rows: dict[MatrixProduct, list[int]] = {}
        for row, p in enumerate(self.products):
            rows.setdefault(p, []).append(row)
        sources = [self._fragments_of_a(p) for p in rows]
        loads = self._prefetched(sources, held) if self.tiling.prefetch else self._loaded(sources, held)
        previous: tuple[str, ...] = (after,)
        for number, (p, own) in enumerate(rows.items()):
            previous = self._product(own, p, sources[number].name, matrices[p.b], loads(number, previous))

    def _loaded(
        self, sources: list[_Fragments], held: list[_Fragments]
    ) -> Callable[[int, tuple[str, ...]], tuple[str, ...]]:
        """Loads of a product right before it."""

        def loads(number: int, after: tuple[str, ...]) -> tuple[str, ...]:
            first = tuple(self._load(f.name, f, self.tile, self.inside, after) for f in held) if number == 0 else ()
            source = sources[number]
            return (*first, self._load(source.name, source, self.tile, self.inside, (*after, *first)))

        return loads

    def _prefetched(
        self, sources: list[_Fragments], held: list[_Fragments]
    ) -> Callable[[int, tuple[str, ...]], tuple[str, ...]]:
        """Loads of the next product right before a product, whose own were loaded before; the first, ahead of the loop."""
        coming = {f.name: self.draft.array(f"next_{f.name}", f.shape) for f in (sources[0], *held)}
        first = substituted(self.tile, {self.round: 0})
        following = substituted(self.tile, {self.round: Variable(self.round) + 1})
        early = tuple(self._load(coming[f.name], f, first, self.around, ()) for f in (sources[0], *held))

        def loads(number: int, after: tuple[str, ...]) -> tuple[str, ...]:
            taken = (sources[number], *(held if number == 0 else ()))
            copies = tuple(self._take(f, coming[f.name], (*after, *early)) for f in taken)
            last = number == len(sources) - 1
            then = [(sources[0], following) if last else (sources[number + 1], self.tile)]
            then += [(f, following) for f in held if number == 0]
            return copies + tuple(self._load(coming[f.name], f, tile, self.inside, copies) for f, tile in then)

        return loads

    def _fragments_of_a(self, p: MatrixProduct) -> _Fragments:
        letters = [letter for letter in self.batch if p.names[letter] in get_dependencies(p.a)]
        everywhere = self.tiling.everywhere or isinstance(p.a, Sum)

        def value(tile: Any, index: tuple[Any, ...]) -> Any:
            *batch, step, half = index
            at, conditions = self._sums_at(p, step, inside=everywhere)
            at |= {p.names[letter]: place for letter, place in zip(letters, batch, strict=True)}
            # What is held belongs to the tile at hand, so loads ahead of it cannot use it.
            a = p.a if self.tiling.prefetch else _Held(self.held, half)(p.a)
            row = ROWS * tile + row_of(self.lane, half)
            there = Comparison(row, "<", self.rows_m)
            if everywhere:
                return substituted(a, {**at, p.names[self.m]: If(there, row, self.rows_m - 1)})
            return _guarded([*conditions, there], substituted(a, {**at, p.names[self.m]: row}))

        def valid(index: tuple[Any, ...]) -> list[Any]:
            return self._sums_at(p, index[-2])[1] if everywhere else []

        shape = (*(self.batch[letter] for letter in letters), self.steps, 2)
        if not hasattr(self, "_a"):
            self._a = self.draft.array("a", shape)
        return _Fragments(self._a, shape, value, valid)

    def _held_fragments(self, held: Mapping[str, str]) -> list[_Fragments]:
        fragments = []
        for rule, letters in held.items():
            if self.n in letters or self.m not in letters:
                raise TransformError(f"'{rule}' with '{letters}' is not held: it needs '{self.m}' and no '{self.n}'")
            shape = (*(fixed_length(self.kernel, self.match.inames[x]) for x in letters if x != self.m), 2)
            self.held[rule] = self.draft.array(f"{rule}_held", shape), letters.index(self.m)
            fragments.append(_Fragments(self.held[rule][0], shape, self._value_of(rule, letters.index(self.m))))
        return fragments

    def _value_of(self, rule: str, axis: int) -> Callable[[Any, tuple[Any, ...]], Any]:
        def value(tile: Any, index: tuple[Any, ...]) -> Any:
            row = ROWS * tile + row_of(self.lane, index[-1])
            value = Call(Variable(rule), (*index[:axis], row, *index[axis:-1]))
            return _guarded([Comparison(row, "<", self.rows_m)], value)

        return value

    def _product(self, rows: list[int], p: MatrixProduct, a: str, matrix: str, after: tuple[str, ...]) -> tuple[str, ...]:
        """All columns of a tile: products by blocks of columns, and what instructions make of them."""
        acc, block = Variable(self.accumulators), self.draft.fresh("block")
        if self.part:
            most = -(-self.columns // COLUMNS)
            begun = f"{self.part} * {self.blocks} + {block} < {most}"
            self.draft.domain(self.part, [block], f"0 <= {block} < {self.blocks} and {begun}")
        else:
            self.draft.domain("", [block], f"0 <= {block} < {self.blocks}")
        around = self.inside | {block}
        zero = self.draft.unrolled(("zero",) * (len(self.batch) + 2), (*self.batch.values(), 2, 2))
        cleared = self.draft.assign(acc[tuple(map(Variable, zero))], 0.0, around | set(zero), after)
        batch = self.draft.unrolled(tuple(self.batch), tuple(self.batch.values()))
        (step,) = self.draft.unrolled(("step",), (self.steps * DEPTH // self.unit.k,))
        self.draft.priorities.append(",".join((self.round, block, step, *batch)))
        multiplied = multiply_accumulate(
            self.unit,
            tuple(acc[(*map(Variable, batch), half, number)] for half in range(2) for number in range(2)),
            self._registers_of_a(p, a, step, batch),
            self._registers_of_b(matrix, block, step, batch),
            id=self.draft.fresh_id("multiply"),
            within_inames=around | {step, *batch},
            within_inames_is_final=True,
            depends_on=frozenset([cleared]),
            depends_on_is_final=True,
        )
        self.draft.instructions.append(multiplied)
        if not self.tiling.staged:
            return tuple(self._store(row, block, multiplied.id, None) for row in rows)
        staged = self._staged_array(rows)
        gathered = tuple(
            self._store(row, block, multiplied.id, _Staging(staged, number)) for number, row in enumerate(rows)
        )
        ready = self._synchronize(gathered)
        written = tuple(self._write(row, _Staging(staged, number), ready) for number, row in enumerate(rows))
        return (self._synchronize(written),)

    def _registers_of_a(self, p: MatrixProduct, a: str, step: str, batch: Sequence[str]) -> tuple[Any, ...]:
        names, width = get_dependencies(p.a), self.unit.k // DEPTH
        own = [Variable(i) for letter, i in zip(self.batch, batch, strict=True) if p.names[letter] in names]
        return tuple(Variable(a)[(*own, Variable(step) * width + i // 2, i % 2)] for i in range(2 * width))

    def _registers_of_b(self, matrix: str, block: str, step: str, batch: Sequence[str]) -> tuple[Any, ...]:
        place: Any = Variable(block)
        for iname, length in zip(batch, self.batch.values(), strict=True):
            place = place * length + Variable(iname)
        width = self.unit.k // DEPTH
        place = place * self.steps + Variable(step) * width
        return tuple(Variable(matrix)[(place + i) * SUB_GROUP + self.lane] for i in range(width))

    def _store(self, row: int, block: str, after: str, staging: _Staging | None) -> str:
        """What an instruction makes of the accumulators, to its output or to where results are staged."""
        insn, loops = self.rows[row], self.match.loops[row]
        half, number = self.draft.unrolled(("half", "number"), (2, 2))
        others, lengths = self._other_loops(row)
        copies = self.draft.unrolled(others, lengths)
        column = COLUMNS * (Variable(block) + self.first_block) + column_of(self.lane, Variable(number))
        there = row_of(self.lane, Variable(half))
        place = ROWS * self.tile + there
        at = {loops[self.m]: place, loops[self.n]: column, **dict(zip(others, map(Variable, copies), strict=True))}
        value = substituted(_Results(self, row, (Variable(half), Variable(number)))(insn.expression), at)
        inside = self.inside | {block, half, number, *copies}
        predicates = [Comparison(column, "<", self.columns)] if self.columns % COLUMNS else []
        if staging is not None:
            index = (self.sub_group, staging.row, *map(Variable, copies), there, column)
            return self.draft.assign(
                Variable(staging.name)[index], value, inside, (after,), predicates=predicates, alone=True
            )
        predicates.append(Comparison(place, "<", self.rows_m))
        return self.draft.assign(
            substituted(insn.assignee, at), value, inside, (after,), predicates=predicates, insn_id=insn.id
        )

    def _write(self, row: int, staging: _Staging, after: str) -> str:
        """Write what is staged of a row, the last axis quickest."""
        insn, loops = self.rows[row], self.match.loops[row]
        numbers = ROWS * self.columns
        others, lengths = self._other_loops(row)
        copies = self.draft.unrolled(others, lengths)
        (piece,) = self.draft.unrolled(("piece",), (-(-numbers // SUB_GROUP),))
        number = Variable(piece) * SUB_GROUP + self.lane
        there, column = FloorDiv(number, self.columns), Remainder(number, self.columns)
        # In whole numbers rather than rows, which would take a division.
        predicates = [Comparison(number, "<", (self.rows_m - ROWS * self.tile) * self.columns)]
        predicates += [Comparison(number, "<", numbers)] if numbers % SUB_GROUP else []
        at = {loops[self.m]: ROWS * self.tile + there, loops[self.n]: column}
        at |= dict(zip(others, map(Variable, copies), strict=True))
        value = Variable(staging.name)[(self.sub_group, staging.row, *map(Variable, copies), there, column)]
        inside = self.inside | {piece, *copies}
        assignee = substituted(insn.assignee, at)
        return self.draft.assign(assignee, value, inside, (after,), predicates=predicates, alone=True, insn_id=insn.id)

    def _other_loops(self, row: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Loops of an instruction besides those of m and n, and their lengths."""
        loops = self.match.loops[row]
        others = tuple(sorted(self.rows[row].within_inames - {loops[self.m], loops[self.n]}))
        return others, tuple(fixed_length(self.kernel, iname) for iname in others)

    def _staged_array(self, rows: list[int]) -> str:
        _, lengths = self._other_loops(rows[0])
        if not hasattr(self, "_staged"):
            most = max(sum(p == q for q in self.products) for p in self.products)
            shape = (self.tiling.sub_groups, most, *lengths, ROWS, self.columns)
            self._staged = self.draft.array("staged", shape, lp.AddressSpace.LOCAL)
        return self._staged

    def _synchronize(self, after: Sequence[str]) -> str:
        insn = synchronize_sub_group(
            id=self.draft.fresh_id("synchronize"),
            within_inames=self.inside,
            within_inames_is_final=True,
            depends_on=frozenset(after),
            depends_on_is_final=True,
        )
        self.draft.instructions.append(insn)
        return str(insn.id)

    def _load(self, name: str, f: _Fragments, tile: Any, around: frozenset[str], after: Sequence[str]) -> str:
        loops = self.draft.unrolled(("load",) * len(f.shape), f.shape)
        index = tuple(map(Variable, loops))
        loaded = self.draft.assign(Variable(name)[index], f.value(tile, index), around | set(loops), {*after, *self.before})
        if not f.valid(index):
            return loaded
        loops = self.draft.unrolled(("valid",) * len(f.shape), f.shape)
        index = tuple(map(Variable, loops))
        number = Variable(name)[index]
        return self.draft.assign(number, _guarded(f.valid(index), number), around | set(loops), (loaded,))

    def _take(self, f: _Fragments, source: str, after: Sequence[str]) -> str:
        loops = self.draft.unrolled(("take",) * len(f.shape), f.shape)
        index = tuple(map(Variable, loops))
        return self.draft.assign(Variable(f.name)[index], Variable(source)[index], self.inside | set(loops), after)

    def _sums_at(self, p: MatrixProduct, step: Any, *, inside: bool = False) -> tuple[dict[str, Any], list[Any]]:
        """The indices summed over that a lane holds in a step, and when there are such; with `inside`, always some."""
        inner, several = -(-self.sums[-1] // DEPTH), len(self.sums) > 1
        within, rest = (Remainder(step, inner), FloorDiv(step, inner)) if several else (step, 0)
        last = DEPTH * within + Remainder(self.lane, DEPTH)
        conditions = []
        if self.sums[-1] % DEPTH or (self.steps > inner and not several):
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


class _Held(IdentityMapper):  # type: ignore[misc]
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


class _Results(_Held):
    """Reads products from accumulators too."""

    def __init__(self, tiles: _Tiles, row: int, register: tuple[Any, Any]) -> None:
        super().__init__(tiles.held, register[0])
        self.tiles, self.product, self.register = tiles, tiles.products[row], register

    def map_reduction(self, expr: Any) -> Any:
        if self.product.rule is None:
            return Variable(self.tiles.accumulators)[self.register]
        return super().map_reduction(expr)

    def map_call(self, expr: Any) -> Any:
        if expr.function.name != self.product.rule:
            return super().map_call(expr)
        at = dict(zip(self.product.names, expr.parameters, strict=True))
        return Variable(self.tiles.accumulators)[(*(at[letter] for letter in self.tiles.batch), *self.register)]


def _guarded(conditions: list[Any], value: Any) -> Any:
    """`value` where the conditions hold, else zero."""
    if not conditions:
        return value
    return If(conditions[0] if len(conditions) == 1 else LogicalAnd(tuple(conditions)), value, 0.0)
