"""The division of a tile: blocks of vectors where work-items compute in vectors, elsewhere a block for each work-item."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Final

from feinsum.languages.declarative.emitting.kernels import Spread
from feinsum.languages.declarative.emitting.operators import VECTOR_OPERATORS, is_vectorial
from feinsum.languages.declarative.lowering.terms import Reduce, Select, Term, walk_terms
from feinsum.languages.declarative.lowering.tiles import Rounds, TileScope

_ROWS: Final = 8
"""Rows of a block of vectors, as many as leave registers for what is multiplied."""
_COLUMNS: Final = 2
_LANES: Final = 16
"""Work-items of a group along each of two axes."""
_FEWEST_LANES: Final = 8
"""Work-items that blocks are worth: where fewer divide a tile, its elements are dealt one by one."""
_MOST_CELLS: Final = 128
"""Elements of a block of one work-item."""


@dataclass(frozen=True)
class TileDivision:
    """The division of the elements of a tile.

    :ivar rows, columns: of a block: elements, or vectors of `width`.
    :ivar row_lanes, column_lanes: work-items along each axis.
    """

    rows: int
    columns: int
    width: int = 0
    row_lanes: int = 1
    column_lanes: int = 1


def lanes_of(scope: TileScope, spread: Spread) -> int:
    """Work-items of a group."""
    block = block_of(scope, spread)
    return spread.lanes if block is None else block.row_lanes * block.column_lanes


def block_of(scope: TileScope, spread: Spread) -> TileDivision | None:
    """The division of tiles of the result's shape; None where each element is computed for itself."""
    shape = tuple(v.extent for v in scope.variables)
    *_, n, m = (1, *shape)
    terms = [(s.following, s.variables) for s in scope.stages if isinstance(s, Rounds)] + [(scope.value, scope.variables)]
    if any(tuple(v.extent for v in variables) != shape for _, variables in terms):
        return None
    if any(not _is_blocked(term) for term, _ in terms):
        return None
    if spread.lanes > 1:
        if len(shape) > 2:
            return None
        row_lanes, column_lanes = gcd(n, _LANES), gcd(m, _LANES)
        found = TileDivision(n // row_lanes, m // column_lanes, 0, row_lanes, column_lanes)
        enough = row_lanes * column_lanes >= _FEWEST_LANES
        return found if enough and found.rows * found.columns <= _MOST_CELLS else None
    width = spread.width(scope.dtype)
    while width > 1 and m % width:
        width //= 2
    if width < 2 or any(not is_vectorial(term, variables[-1], scope.dtype) for term, variables in terms):
        return None
    rows = max(r for r in range(1, _ROWS + 1) if n % r == 0)
    return TileDivision(rows, max(c for c in range(1, _COLUMNS + 1) if m // width % c == 0), width)


def _is_blocked(term: Term) -> bool:
    """Whether reductions in a term can go on for many elements at once: none stands in another, or under a condition."""
    for part in walk_terms(term):
        if isinstance(part, Reduce) and (part.operator not in VECTOR_OPERATORS or reductions_of(part.body)):
            return False
        if isinstance(part, Select) and (reductions_of(part.then) or reductions_of(part.otherwise)):
            return False
    return True


def reductions_of(term: Term) -> list[Reduce]:
    return [part for part in walk_terms(term) if isinstance(part, Reduce)]
