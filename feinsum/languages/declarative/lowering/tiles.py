"""Grids as tiles of work-groups: what a tile reads is staged on chip, what a loop carries stays with who computes it.

    fill      a tile in the memory of the group: an element for each value of its indices
    rounds    a loop: fills, and then the next state of each element, which depends on no other element of the state
    value     the elements of the tile that is the result

Where a body asks for more, each element of the grid is computed for itself (:mod:`.unfolding_forms`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, TypeAlias

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.lowering.folding import INDEX, cast, constant_index, fold
from feinsum.languages.declarative.lowering.terms import (
    Apply,
    Iterate,
    Load,
    Reduce,
    Term,
    TermVariable,
    substitute,
    walk_terms,
)
from feinsum.languages.declarative.lowering.threads import UnfoldingThreads
from feinsum.languages.declarative.lowering.unfolding_base import CONCRETE, TensorExpression, casting
from feinsum.languages.declarative.syntax import FormCall, Let
from feinsum.languages.declarative.types import ANY_INT, promote

_MOST_ELEMENTS: Final = 1 << 16
"""The most elements of a tile."""


@dataclass(frozen=True)
class ScopeTile:
    """Memory of a work-group, or where `own`, of those who compute its elements."""

    array: str
    shape: tuple[int, ...]
    dtype: str
    own: bool = False


@dataclass(frozen=True)
class Fill:
    """The elements of a tile."""

    tile: ScopeTile
    variables: tuple[TermVariable, ...]
    body: Term


@dataclass(frozen=True)
class Rounds:
    """A loop that carries a tile: fills and the next state of each element, for every value of an index."""

    index: TermVariable
    state: ScopeTile
    variables: tuple[TermVariable, ...]
    first: Term
    following: Term
    fills: tuple[Fill, ...]


Stage: TypeAlias = Fill | Rounds


@dataclass(frozen=True)
class TileScope:
    """A grid; it stands among equations, and has what these have.

    :ivar grid: which tile, and `variables` where in it.
    :ivar places: the indices of the result there.
    """

    array: str
    shape: tuple[int, ...]
    grid: tuple[TermVariable, ...]
    variables: tuple[TermVariable, ...]
    places: tuple[Term, ...]
    stages: tuple[Stage, ...]
    value: Term
    scan: str = "tiles"

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self.value.dtype

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays that it makes."""
        return (self.array,)

    @property
    def reads(self) -> frozenset[str]:
        """The arrays that it reads and did not make."""
        own = {
            stage.state.array if isinstance(stage, Rounds) else stage.tile.array for stage in flattened_stages(self.stages)
        }
        loads = {t.array for term, _ in terms_of(self) for t in walk_terms(term) if isinstance(t, Load)}
        return frozenset(loads - own)


def flattened_stages(stages: Sequence[Stage]) -> Iterator[Stage]:
    """Stages, and those in them."""
    for stage in stages:
        if isinstance(stage, Rounds):
            yield from stage.fills
        yield stage


def terms_of(scope: TileScope) -> Iterator[tuple[Term, tuple[TermVariable, ...]]]:
    """All terms of a scope, each with the variables of its element."""
    for stage in flattened_stages(scope.stages):
        if isinstance(stage, Rounds):
            yield stage.first, stage.variables
            yield stage.following, stage.variables
        else:
            yield stage.body, stage.variables
    yield scope.value, scope.variables


class _TooMuchError(Exception):
    """A program that tiles cannot compute."""


class UnfoldingTiles(UnfoldingThreads):
    """Unfolds grids."""

    _stages: list[Stage] | None = None
    _around: tuple[TermVariable, ...] = ()

    def tile_scope(self, name: str, node: FormCall, shape: tuple[int, ...]) -> TileScope | None:
        """A grid as tiles; None where it asks for what these cannot do."""
        known = len(self.equations)
        try:
            scope = self._tile_scope(name, node, shape)
        except _TooMuchError:
            del self.equations[known:]
            return None
        finally:
            self._stages, self._around = None, ()
        return scope

    def _tile_scope(self, name: str, node: FormCall, shape: tuple[int, ...]) -> TileScope:
        dim = node.argument("dim")
        assert isinstance(dim, syntax.ListOf)
        grid = self.variables([p.name for p in node.binder], [self.length(item) for item in dim.items])
        stages: list[Stage] = []
        known = len(self.equations)
        with self.inside():
            for parameter, variable in zip(node.binder, grid, strict=True):
                self.names[parameter.name] = TensorExpression((), INDEX, lambda variable=variable: variable)
            self._stages, self._around = stages, grid
            tile = self.block(node.body)
        self.require_cover(node, grid, tile.shape, shape)
        if len(self.equations) > known or not 0 < prod(tile.shape) <= _MOST_ELEMENTS or not stages:
            raise _TooMuchError
        variables = self.variables([f"{name}_i"] * len(tile.shape), tile.shape)
        value = tile.at(*variables)
        value = cast(value, CONCRETE.get(value.dtype, value.dtype))
        places: list[Term] = []
        for axis, variable in enumerate(variables):
            start = (
                fold(Apply(INDEX, "*", (grid[axis], constant_index(tile.shape[axis]))))
                if axis < len(grid)
                else constant_index(0)
            )
            places.append(fold(Apply(INDEX, "+", (start, variable))))
        scope = TileScope(self.fresh(name), shape, grid, variables, tuple(places), tuple(stages), value)
        return _checked_scope(_fused_scope(scope))

    def staged(self, node: Let, value: TensorExpression) -> TensorExpression:
        """A tensor that is computed in the body of a grid, in memory of its own if it depends on nothing but the tile."""
        stages = self._stages
        if stages is None or self.held or not value.shape or not isinstance(node.value, FormCall):
            return value
        if node.value.kind not in ("compute", "read") or prod(value.shape) > _MOST_ELEMENTS:
            return value
        variables = self.variables([f"{node.name}_i"] * len(value.shape), value.shape)
        body = value.at(*variables)
        own = {s.state.array for s in stages if isinstance(s, Rounds)} | self._states
        if body.free - set(variables) - set(self._around) or any(
            isinstance(t, Load) and t.array in own for t in walk_terms(body)
        ):
            return value
        dtype = CONCRETE.get(body.dtype, body.dtype)
        tile = ScopeTile(self.fresh(node.name), value.shape, dtype)
        stages.append(Fill(tile, variables, cast(body, dtype)))
        return TensorExpression(value.shape, dtype, lambda *indices: Load(dtype, tile.array, indices))

    _states: frozenset[str] = frozenset()

    def rounds(self, node: FormCall, start: TensorExpression, first: int, last: int) -> TensorExpression | None:
        """A loop of the body of a grid that carries a tile; None where there is no grid, or the loop carries a number."""
        stages, around, states = self._stages, self._around, self._states
        if stages is None or self.held or not start.shape or states:
            return None
        own = self.variables(["e"] * len(start.shape), start.shape)
        index = TermVariable(INDEX, self.fresh(node.binder[0].name), max(last - first, 0))
        dtype = start.dtype
        state = self.fresh(node.binder[1].name)
        try:
            for _ in range(3):
                fills: list[Stage] = []
                self._stages, self._around, self._states = fills, (*around, index), frozenset([state])

                def carried(*indices: Term, dtype: str = dtype) -> Term:
                    return Load(dtype, state, indices)

                with self.inside():
                    number = fold(Apply(INDEX, "+", (index, constant_index(first))))
                    self.names[node.binder[0].name] = TensorExpression((), INDEX, lambda number=number: number)
                    self.names[node.binder[1].name] = TensorExpression(start.shape, dtype, carried)
                    value = self.block(node.body)
                if value.shape != start.shape:
                    raise _TooMuchError
                following = value.at(*own)
                wider = promote(dtype, following.dtype)
                if wider == dtype != ANY_INT:
                    break
                dtype = "i64" if wider == dtype else wider
        finally:
            self._stages, self._around, self._states = stages, around, states
        concrete = CONCRETE.get(dtype, dtype)
        if any(not isinstance(fill, Fill) for fill in fills) or concrete != dtype:
            raise _TooMuchError
        tile = ScopeTile(state, start.shape, dtype, own=True)
        begin = casting(start, dtype)(*own)
        only = tuple(fill for fill in fills if isinstance(fill, Fill))
        stages.append(Rounds(index, tile, own, begin, cast(following, dtype), only))
        return TensorExpression(start.shape, dtype, lambda *indices: Load(dtype, state, indices))


def _checked_scope(scope: TileScope) -> TileScope:
    """The scope, if elements of what a loop carries are read by who has them, and loops are of elements and no more."""
    own = {stage.state.array for stage in scope.stages if isinstance(stage, Rounds)}
    fills = [(s.body, s.variables) for s in flattened_stages(scope.stages) if isinstance(s, Fill)]
    for term, variables in terms_of(scope):
        for part in walk_terms(term):
            if (
                isinstance(part, Load)
                and part.array in own
                and (part.indices != variables or (term, variables) in fills or variables_differ(scope, variables))
            ):
                raise _TooMuchError
            if isinstance(part, Iterate):
                raise _TooMuchError
    return scope


def variables_differ(scope: TileScope, variables: tuple[TermVariable, ...]) -> bool:
    """Whether elements are dealt otherwise than those of the result: the shape is another one."""
    return tuple(v.extent for v in variables) != tuple(v.extent for v in scope.variables)


def _fused_scope(scope: TileScope) -> TileScope:
    """The scope without tiles whose elements are read where they are computed, once."""
    for stage in flattened_stages(scope.stages):
        if not isinstance(stage, Fill):
            continue
        readers = [
            (term, variables, load)
            for term, variables in terms_of(scope)
            for load in {t for t in walk_terms(term) if isinstance(t, Load) and t.array == stage.tile.array}
        ]
        inside = next((s for s in scope.stages if isinstance(s, Rounds) and stage in s.fills), None)
        if len(readers) != 1:
            continue
        ((term, variables, load),) = readers
        bound = any(isinstance(t, Reduce) and load in set(walk_terms(t.body)) for t in walk_terms(term))
        if load.indices != variables or bound or (inside is not None and term != inside.following):
            continue
        if inside is None and any(
            isinstance(s, Rounds) and term in (s.following, *(f.body for f in s.fills)) for s in scope.stages
        ):
            continue
        body = substitute(stage.body, dict(zip(stage.variables, load.indices, strict=True)))
        new = substitute(term, {load: body})
        return _fused_scope(_replaced_tile(scope, stage, term, new))
    return scope


def _replaced_tile(scope: TileScope, gone: Fill, old: Term, new: Term) -> TileScope:
    """The scope without a tile, and with another term in place of one."""

    def change(stage: Stage) -> Stage:
        if isinstance(stage, Fill):
            return replace(stage, body=new) if stage.body == old else stage
        return replace(
            stage,
            first=new if stage.first == old else stage.first,
            following=new if stage.following == old else stage.following,
            fills=tuple(f for fill in stage.fills if fill != gone and isinstance(f := change(fill), Fill)),
        )

    stages = tuple(change(stage) for stage in scope.stages if stage != gone)
    return replace(scope, stages=stages, value=new if scope.value == old else scope.value)
