"""Products: gemm becomes products of cooperative matrices that fit the registers, tile by tile.

    gemm.n.n %alpha, %A, %B, %beta, %C
 →  parallel {
        for %m = %0, %M, %rows {            or tile after tile by sub-group after sub-group
            for %n = %0, %N, %columns {
                %ab = for %k = %0, %K, %depth init(%acc = %zero) -> (coopmatrix<...,matrix_acc>) {
                    %a = cooperative_matrix_load.n %A[%m, %k] : coopmatrix<...,matrix_a>
                    %b = cooperative_matrix_load.n %B[%k, %n] : coopmatrix<...,matrix_b>
                    %c = cooperative_matrix_mul_add %a, %b, %acc : coopmatrix<...,matrix_acc>
                    yield (%c)
                }
                C[%m, %n] := %alpha %ab + %beta C[%m, %n]
            }
        }
    }

What is left over at the end of a mode of known size is a smaller tile; of an unknown one, smaller and smaller ones, or for
several work-items a tile whose loads and stores are checked.  Sums are accumulated in f32 for f16 and bf16, in i32 for i8
and i16, else in the type of C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from feinsum.devices.vendors.units import MatrixUnit
from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorValue
from feinsum.languages.tensor.lowering.common import Lowering, accumulator
from feinsum.languages.tensor.lowering.coopmatrix_units import fills, units_for
from feinsum.languages.tensor.lowering.target import Target, computed_type
from feinsum.languages.tensor.rewriting import OperationBuilder, number_like
from feinsum.languages.tensor.types import I32, INDEX, Coopmatrix, Extent, TensorMemref, TensorScalar

_UNROLLED = 256
"""Multiplications of vectors that a loop over k may have in its body."""
_UNROLLED_ALONE = 64
"""The limit where one work-item computes all tiles, whose code should fit into the instruction cache together."""
_UNROLLED_IN_FEW = 16
"""The limit with 16 vector registers: compilers that see more steps at once load more than these hold."""
_FEW_VECTORS = 16
_SHAPE = 4
"""Cycles for each shape of tiles: code of its own."""
_DEEPEST = 8
_LATENCY = 8
"""Multiplications of vectors that are under way at a time."""
_LOAD = 0.25
"""The cost of a load beside multiplications, as a share of one multiplication."""
_LOADS_ALONE = 1.4
"""The cost of a load where a tile has so few multiplications that loads decide: on a Zen 3, one row of vectors and 9
columns took 1.3 times as long as 3 and 3."""
_UNIT_DEPTH = 16
"""Columns of A that are loaded for matrix units at a time."""
_FRAGMENTS = 8
"""The fragments of sums that a sub-group holds at a time, besides those of operands."""


def lower_products(function: TensorFunction, target: Target) -> TensorFunction:
    """The function without gemm."""
    return _Products(function, target).run()


@dataclass(frozen=True)
class _GemmTile:
    """The part of a result that is computed in registers; `checked` says which modes may end inside it, `ragged` whether
    what is summed may end inside a step."""

    rows: int
    columns: int
    checked: tuple[bool, bool] = (False, False)
    ragged: bool = False


class _Products(Lowering):
    def rewrite(self, operation: TensorOperation, builder: OperationBuilder) -> Sequence[TensorValue] | None:
        if operation.name != "gemm":
            return None
        product = _Gemm(self, operation)
        if 0 not in _memref_type(operation.operands[-1]).shape:
            builder.parallel(product.alone if self.target.is_alone else product.shared)
        return ()


def _memref_type(value: TensorValue) -> TensorMemref:
    assert isinstance(value.type, TensorMemref)
    return value.type


class _Gemm:
    """One gemm."""

    def __init__(self, lowering: _Products, operation: TensorOperation) -> None:
        self.lowering, self.target = lowering, lowering.target
        self.alpha, self.A, self.B, self.beta, self.C = operation.operands
        self.turned = operation.attributes["transposes"]
        self.atomic = str(operation.attributes["atomic"])
        self.type = accumulator(self.C)
        self.rows, self.columns = _memref_type(self.C).shape
        shape = _memref_type(self.A).shape
        self.depth: Extent = shape[0] if self.turned[0] == "t" else shape[1]
        elements = _memref_type(self.A).element, _memref_type(self.B).element
        if units_for(self.target, *elements, self.type, self.depth):
            self.operands = elements
        else:
            self.operands = _operand_type(elements[0], self.type), _operand_type(elements[1], self.type)
        self.unit = self._unit()

    def _unit(self) -> MatrixUnit | None:
        """The matrix unit that computes tiles, if one does."""
        units = units_for(self.target, *self.operands, self.type, self.depth)
        if not units:
            return None
        most = units[-1].m, units[-1].n, max(_UNIT_DEPTH, units[-1].k)
        sizes = (self.rows, self.columns, self.depth)
        rows, columns, depth = (min(size or whole, whole) for size, whole in zip(sizes, most, strict=True))
        return units[-1] if fills(units[-1], rows, columns, depth) else None

    # one work-item

    def alone(self, b: OperationBuilder) -> None:
        """Compute all tiles by one work-item, with vectors along the rows."""
        rows, columns = self._tile_sizes()
        self._along(b, 0, self.rows, rows, lambda c, m, height: self._along(
            c, 1, self.columns, columns, lambda d, n, width: self._compute(d, _GemmTile(height, width), m, n)))  # fmt: skip

    def _tile_sizes(self) -> tuple[int, int]:
        """Rows and columns of a tile, as even as can be, whose sums fit the vector registers beside an operand's."""
        target = self.target
        tall, wide = self.rows or 64, self.columns or 64
        width = target.vector_width(tall, self.type)
        pieces = -(-tall // width)
        # unknown sizes are multiples of powers of two rather than of three
        likely = [None if size is not None else (1, 2, 4, 8) for size in (self.rows, self.columns)]
        tiles = product(likely[0] or range(1, 7), likely[1] or range(1, 13))
        fitting = ((p, c) for p, c in tiles if p * c + p < target.vectors)
        rows, columns = min(fitting, key=lambda tile: (_cycles(tile, pieces, wide), tile[0] * tile[1]))
        return min(rows, pieces) * width, columns

    def _along(
        self,
        b: OperationBuilder,
        mode: int,
        size: Extent,
        step: int,
        body: Callable[[OperationBuilder, TensorValue, int], None],
    ) -> None:
        """`body` for every tile along a mode."""
        if size is None:
            self._along_unknown(b, mode, step, body)
            return
        count, rest_size = divmod(size, step)
        if count > 1:
            bounds = [b.index(0), b.index(count * step), b.index(step)]
            b.loop(bounds, lambda c, i: body(c, i, step), hint="mn"[mode])
        elif count:
            body(b, b.index(0), step)
        if rest_size:
            body(b, b.index(count * step), rest_size)

    def _along_unknown(
        self, b: OperationBuilder, mode: int, step: int, body: Callable[[OperationBuilder, TensorValue, int], None]
    ) -> None:
        """Loop along a size that the call brings: smaller tiles for the remainder, of a vector and at last of one row."""
        whole, begin = b.size(self.C, mode), b.index(0)
        smaller = (self.target.vector_width(step, self.type), 1) if mode == 0 else (1,)
        for size in dict.fromkeys((step, *smaller)):
            left = b.arith("rem", b.arith("sub", whole, begin), b.index(size))
            end = b.arith("sub", whole, left)
            b.loop([begin, end, b.index(size)], lambda c, i, size=size: body(c, i, size), hint="mn"[mode])
            begin = end

    # several work-items

    def shared(self, b: OperationBuilder) -> None:
        """Tiles in turn by sub-groups, whose work-items have rows of them."""
        items = self.target.subgroup_size
        tall = self.rows if self.rows is not None else 4 * items
        wide = self.columns if self.columns is not None else 8
        if self.unit is not None:
            rows, columns = self._unit_tile(self.unit, tall, wide)
        else:
            rows = items * min(-(-tall // items), 2)
            rows = min(rows, tall) if self.rows is not None else rows
            columns = self._shared_columns(wide, -(-tall // rows))
        checked = (self.rows is None or tall % rows != 0, self.columns is None or wide % columns != 0)
        tile = _GemmTile(rows, columns, checked)
        down, across = self._tiles(b, 0, rows), self._tiles(b, 1, columns)
        first = b.cast(b.builtin("subgroup_id", I32), INDEX)
        step = b.index(self.target.subgroups)

        def body(c: OperationBuilder, number: TensorValue) -> None:
            m = c.arith("mul", c.arith("rem", number, down), c.index(rows))
            n = c.arith("mul", c.arith("div", number, down), c.index(columns))
            self._compute(c, tile, m, n)

        b.loop([first, b.arith("mul", down, across), step], body, hint="tile")

    def _unit_tile(self, unit: MatrixUnit, tall: int, wide: int) -> tuple[int, int]:
        """Rows and columns of a tile in whole fragments, or all there are: those that keep sub-groups busy the shortest."""
        fragments = -(-tall // unit.m), -(-wide // unit.n)
        tiles = ((r, c) for r in range(1, 5) for c in range(1, 5) if r * c <= _FRAGMENTS)

        def cost(tile: tuple[int, int]) -> tuple[float, int]:
            (r, c), (down, across) = tile, fragments
            rounds = -(-(-(-down // r) * -(-across // c)) // self.target.subgroups)
            return rounds * (r * c + _LOAD * (2 * r + c)), r * c

        rows, columns = min(tiles, key=cost)
        whole = (self.rows, self.columns)
        return tuple(  # type: ignore[return-value]
            size if known is None else min(size, known)
            for size, known in zip((rows * unit.m, columns * unit.n), whole, strict=True)
        )

    def _shared_columns(self, wide: int, down: int) -> int:
        """As many columns as leave a tile for every sub-group."""
        columns = 8
        while columns > 1 and down * -(-wide // columns) < self.target.subgroups:
            columns //= 2
        count = -(-wide // columns)
        return min(-(-wide // count), columns)

    def _tiles(self, b: OperationBuilder, mode: int, step: int) -> TensorValue:
        known = _memref_type(self.C).shape[mode]
        if known is not None:
            return b.index(-(-known // step))
        size = b.size(self.C, mode)
        return b.arith("div", b.arith("add", size, b.index(step - 1)), b.index(step))

    # one tile

    def _compute(self, b: OperationBuilder, tile: _GemmTile, m: TensorValue, n: TensorValue) -> None:
        type_ = Coopmatrix(self.type, tile.rows, tile.columns, "matrix_acc")
        width = self.target.vector_width(tile.rows, self.type)
        pieces = -(-tile.rows // (width if self.target.is_alone else self.target.subgroup_size))
        alone = _UNROLLED_IN_FEW if self.target.vectors <= _FEW_VECTORS else _UNROLLED_ALONE
        most = alone if self.target.is_alone else _UNROLLED
        deepest = max(min(most // max(pieces * tile.columns * (4 if self.type.is_complex else 1), 1), _DEEPEST), 1)
        if self.unit is not None:
            deepest = max(_UNIT_DEPTH, self.unit.k)
        elif any(tile.checked):
            # what checks tiles is long
            deepest = min(deepest, 4)
        total = b.zero(type_)
        if self.depth is None and self.unit is not None:
            # what is beyond the end is loaded as 0, for units have no shorter steps
            end = b.size(self.A, 0 if self.turned[0] == "t" else 1)
            tile = replace(tile, ragged=True)
            total = self._sum(b, tile, m, n, [b.index(0), end, b.index(deepest)], deepest, total)
        elif self.depth is None:
            end = b.size(self.A, 0 if self.turned[0] == "t" else 1)
            rest = b.arith("rem", end, b.index(deepest))
            full = b.arith("sub", end, rest)
            total = self._sum(b, tile, m, n, [b.index(0), full, b.index(deepest)], deepest, total)
            total = self._sum(b, tile, m, n, [full, end], 1, total)
        elif self.depth <= 2 * deepest:
            if self.depth:
                total = self._step(b, tile, m, n, b.index(0), self.depth, total)
        else:
            whole = self.depth // deepest * deepest
            total = self._sum(b, tile, m, n, [b.index(0), b.index(whole), b.index(deepest)], deepest, total)
            if rest_depth := self.depth - whole:
                total = self._step(b, tile, m, n, b.index(whole), rest_depth, total)
        self._finish(b, tile, m, n, total)

    def _sum(
        self,
        b: OperationBuilder,
        tile: _GemmTile,
        m: TensorValue,
        n: TensorValue,
        bounds: Sequence[TensorValue],
        deep: int,
        total: TensorValue,
    ) -> TensorValue:
        (result,) = b.loop(bounds, lambda c, k, before: [self._step(c, tile, m, n, k, deep, before)], [total], "k")
        return result

    def _step(
        self,
        b: OperationBuilder,
        tile: _GemmTile,
        m: TensorValue,
        n: TensorValue,
        k: TensorValue,
        deep: int,
        total: TensorValue,
    ) -> TensorValue:
        """`total` plus the product of `deep` columns of op(A) and rows of op(B)."""
        if self.target.is_alone and deep > 1:
            # what is loaded early would push sums out of the registers
            for number in range(deep):
                total = self._step(b, tile, m, n, b.arith("add", k, b.index(number)) if number else k, 1, total)
            return total
        down, across = tile.checked
        check_a, check_b = _check_suffix(down, tile.ragged), _check_suffix(tile.ragged, across)
        a = self._loaded(b, self.A, self.turned[0], (m, k), (tile.rows, deep), "matrix_a", check_a)
        c = self._loaded(b, self.B, self.turned[1], (k, n), (deep, tile.columns), "matrix_b", check_b)
        return b.compute("cooperative_matrix_mul_add", (a, c, total), total.type, "sum")

    def _loaded(
        self,
        b: OperationBuilder,
        memref: TensorValue,
        turned: str,
        place: tuple[TensorValue, TensorValue],
        shape: tuple[int, int],
        use: str,
        check: str,
    ) -> TensorValue:
        element = _memref_type(memref).element
        attributes = {"transposes": (turned,), "checked": check}
        places = place[::-1] if turned == "t" else place
        type_ = Coopmatrix(element, *shape, use)
        loaded = b.compute("cooperative_matrix_load", (memref, *places), type_, use[-1], **attributes)
        wide = self.operands[0 if use == "matrix_a" else 1]
        return b.cast(loaded, replace(type_, component=wide))

    def _finish(self, b: OperationBuilder, tile: _GemmTile, m: TensorValue, n: TensorValue, total: TensorValue) -> None:
        """C := α total + β C."""
        lowering, beta = self.lowering, self.beta
        if not lowering.is_constant(self.alpha, 1):
            total = self._scaled(b, self.alpha, total)
        if not lowering.is_constant(beta, 0) and not self.atomic:
            if beta in lowering.constants:
                total = self._with_old(b, tile, m, n, total)
            else:
                zero = b.constant(number_like(0, beta.type), beta.type)
                test = b.compare("ne", beta, zero)
                (total,) = b.branch(test, lambda c: [self._with_old(c, tile, m, n, total)], lambda c: [total], [total.type])
        assert isinstance(total.type, Coopmatrix)
        result = b.cast(total, replace(total.type, component=_memref_type(self.C).element))
        adds = self.atomic and not lowering.is_constant(beta, 0)
        attributes = {"checked": _checked_tile(tile), "atomic": "atomic_add" if adds else self.atomic}
        b.emit("cooperative_matrix_store", (result, self.C, m, n), attributes=attributes)

    def _scaled(self, b: OperationBuilder, factor: TensorValue, matrix: TensorValue) -> TensorValue:
        return b.compute("cooperative_matrix_scale", (b.cast(factor, self.type), matrix), matrix.type, "scaled")

    def _with_old(
        self, b: OperationBuilder, tile: _GemmTile, m: TensorValue, n: TensorValue, total: TensorValue
    ) -> TensorValue:
        element = _memref_type(self.C).element
        type_ = Coopmatrix(element, tile.rows, tile.columns, "matrix_acc")
        attributes = {"transposes": ("n",), "checked": _checked_tile(tile)}
        old = b.compute("cooperative_matrix_load", (self.C, m, n), type_, "old", **attributes)
        old = b.cast(old, replace(type_, component=self.type))
        if not self.lowering.is_constant(self.beta, 1):
            old = self._scaled(b, self.beta, old)
        return b.arith("add", total, old)


def _cycles(tile: tuple[int, int], pieces: int, columns: int) -> float:
    """The cost of a column of A tile by tile: its multiplications, or their latency or loads, and some of the loads."""
    down, across = _whole_and_rest(pieces, tile[0]), _whole_and_rest(columns, tile[1])
    shapes = len(set(down)) * len(set(across))
    tiles = (max(p * c, _LATENCY, _LOADS_ALONE * (p + c)) + _LOAD * (p + c) for p in down for c in across)
    return sum(tiles) + _SHAPE * shapes


def _whole_and_rest(whole: int, step: int) -> list[int]:
    """Steps, and what is left.

    >>> _whole_and_rest(9, 4)
    [4, 4, 1]
    """
    full, rest = divmod(whole, step)
    return [step] * full + [rest] * (rest > 0)


def _operand_type(element: TensorScalar, total: TensorScalar) -> TensorScalar:
    """The type in which a factor is multiplied: its own if that does not change the product."""
    return computed_type(element) if computed_type(element) == computed_type(total) else total


def _checked_tile(tile: _GemmTile) -> str:
    return _check_suffix(*tile.checked)


def _check_suffix(down: bool, across: bool) -> str:
    """The suffix of a load or store that is checked along modes."""
    return "both_checked" if down and across else "rows_checked" if down else "cols_checked" if across else ""
