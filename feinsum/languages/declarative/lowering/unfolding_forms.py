"""Unfolding forms: indices become variables, loops a few states, scans arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from feinsum.errors import LanguageError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import REDUCTIONS
from feinsum.languages.declarative.lowering.folding import INDEX, cast, constant_index, fold, is_integer_dtype, simplified
from feinsum.languages.declarative.lowering.tensor_loops import LoopScope, State, free, replaced_terms
from feinsum.languages.declarative.lowering.terms import (
    Apply,
    ArrayEquation,
    Constant,
    Iterate,
    Load,
    LoopState,
    Reduce,
    Term,
    TermVariable,
    substitute,
    walk_terms,
)
from feinsum.languages.declarative.lowering.unfolding_base import CONCRETE, TensorExpression, casting, number_tensor
from feinsum.languages.declarative.lowering.unfolding_expressions import UnfoldingExpressions
from feinsum.languages.declarative.syntax import FormCall
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT, promote

_FEW_STATES, _MOST_STATES = 8, 64
"""Numbers that a loop carries as variables of their own: always, and where there are no arrays for them."""
Body: TypeAlias = Callable[[TensorExpression], tuple[TensorExpression, Term | None]]
"""Makes the next state of a loop of the one before, and what holds as long as it goes on."""


class UnfoldingForms(UnfoldingExpressions):
    """Unfolds forms."""

    def _over(self, node: FormCall, argument: str = "shape") -> tuple[tuple[TermVariable, ...], TensorExpression]:
        """The indices of a form, and its body for them."""
        shape = node.argument(argument)
        items = shape.items if isinstance(shape, syntax.ListOf) else (shape,)
        lengths = [self.length(item) for item in items if item is not None]
        variables = self.variables([p.name for p in node.binder], lengths)
        with self.inside(), self.where(Constant("bool", 0 not in lengths), True):
            for parameter, variable in zip(node.binder, variables, strict=True):
                self.names[parameter.name] = number_tensor(variable)
            return variables, self.block(node.body)

    def form(self, node: FormCall, shape: tuple[int, ...] | None = None) -> TensorExpression:
        """The value of a form; `shape` is what it is said to have."""
        match node.kind:
            case "compute" | "read":
                variables, value = self._over(node)
                count = len(variables)

                def at(*indices: Term) -> Term:
                    body = value.at(*indices[count:])
                    return substitute(body, dict(zip(variables, indices[:count], strict=True)))

                return TensorExpression((*(v.extent for v in variables), *value.shape), value.dtype, at)
            case "reduce":
                return self._reduce(node)
            case "scan":
                return self._scan(node)
            case "affine_for":
                return self._affine_for(node)
            case "while":
                return self._while(node)
            case "grid":
                return self._grid(node, shape)
        raise self.refuse(node, f"{node.kind} has no value")

    def _reduce(self, node: FormCall) -> TensorExpression:
        operator = node.argument("op")
        assert isinstance(operator, syntax.NameUse)
        variables, value = self._over(node)
        op = operator.name
        empty = any(v.extent == 0 for v in variables)
        if empty and (REDUCTIONS[op].neutral is None or (is_integer_dtype(value.dtype) and op in ("min", "max"))):
            raise self.fail("run-empty", node, f"{op} of nothing")
        dtype = "i64" if op in ("argmin", "argmax") else "bool" if op in ("any", "all") else value.dtype
        if dtype == ANY_INT:
            dtype = "i64"

        def at(*indices: Term) -> Term:
            if empty:
                return cast(Constant(ANY_FLOAT, REDUCTIONS[op].neutral), dtype)
            body = value.at(*indices)
            return Reduce(dtype, op, variables, body if op.startswith("arg") or dtype == "bool" else cast(body, dtype))

        return TensorExpression(value.shape, dtype, at)

    def _scan(self, node: FormCall) -> TensorExpression:
        """An array of its own, for all indices that the scan depends on."""
        operator = node.argument("op")
        assert isinstance(operator, syntax.NameUse)
        variables, value = self._over(node)
        if self.guarded:
            raise self.refuse(node, "a scan under a condition is not lowered")
        rest = self.variables(["s"] * len(value.shape), value.shape)
        body = value.at(*rest)
        lead = self._lead(body.free - {*variables, *rest}, node)
        name = self.array("scan", (*lead, *rest, *variables), body, operator.name)
        dtype = CONCRETE.get(body.dtype, body.dtype)
        shape = (variables[0].extent, *value.shape)
        return TensorExpression(shape, dtype, lambda first, *others: Load(dtype, name, (*lead, *others, first)))

    def _lead(self, around: frozenset[TermVariable], node: FormCall) -> list[TermVariable]:
        """The indices that a new array has besides its own: all that its elements depend on.

        :raises LanguageError: if they depend on the state of a loop around, which lies in no array.
        """
        lead = sorted(around - self.turns, key=lambda v: v.name)
        if not all(map(self._is_open, lead)):
            raise self.refuse(node, f"{node.kind} of what a loop around it carries, or a thread computed, is not lowered")
        return lead

    def _state(
        self, node: FormCall, init: TensorExpression, dtype: str
    ) -> tuple[tuple[TermVariable, ...], TensorExpression]:
        """Variables for what a loop carries, and the tensor that they are."""
        count = int(np.prod(init.shape, dtype=np.int64))
        if count > _MOST_STATES:
            raise self.refuse(node, f"a loop that carries {count} numbers, more than {_MOST_STATES}, is not lowered here")
        states = tuple(TermVariable(dtype, self.fresh("state")) for _ in range(count))
        return states, self._parts(init.shape, dtype, states)

    def _parts(self, shape: tuple[int, ...], dtype: str, terms: Sequence[Term]) -> TensorExpression:
        """A tensor of a few numbers."""
        if not shape:
            return number_tensor(terms[0])
        flat = self.list_of(list(terms))

        def at(*indices: Term) -> Term:
            place: Term = constant_index(0)
            for index, length in zip(indices, shape, strict=True):
                place = fold(Apply(INDEX, "+", (fold(Apply(INDEX, "*", (place, constant_index(length)))), index)))
            return flat.at(place)

        return TensorExpression(shape, dtype, at)

    def _elements(self, value: TensorExpression, dtype: str) -> tuple[Term, ...]:
        places = np.ndindex(*value.shape)
        return tuple(cast(simplified(value.at(*map(constant_index, place))), dtype) for place in places)

    def _affine_for(self, node: FormCall) -> TensorExpression:
        begin, end, init = (node.argument(name) for name in ("begin", "end", "init"))
        assert end is not None
        assert init is not None
        first = 0 if begin is None else self.length(begin)
        last = self.length(end)
        start = self.evaluate(init)
        index = TermVariable(INDEX, self.fresh(node.binder[0].name), max(last - first, 0))

        def body(carried: TensorExpression) -> tuple[TensorExpression, Term | None]:
            self.names[node.binder[0].name] = number_tensor(fold(Apply(INDEX, "+", (index, constant_index(first)))))
            self.names[node.binder[1].name] = carried
            return self.block(node.body), None

        if last <= first or 0 in start.shape:
            with self.inside(), self.where(Constant("bool", False), True):
                self._require_shape(start, body(start)[0], node)
            return start
        tiled = self.rounds(node, start, first, last)
        if tiled is not None:
            return tiled
        if np.prod(start.shape, dtype=np.int64) <= _FEW_STATES:
            return self._loop(start, body, node, index=index, count=constant_index(last - first))
        if not self.guarded:
            return self._loop_of_arrays(start, body, node, index)
        held, known, self.held = self.held, len(self.equations), []
        try:  # a loop over arrays runs for all indices, which has to be right for those that the condition excludes
            if not any(isinstance(one, FormCall) and one.kind == "while" for one in syntax.walk_nodes(node)):
                return self._loop_of_arrays(self.evaluate(init), body, node, index)
        except LanguageError:
            del self.equations[known:]
        finally:
            self.held = held
        return self._loop(start, body, node, index=index, count=constant_index(last - first))

    def _while(self, node: FormCall) -> TensorExpression:
        init, until = node.argument("init"), node.argument("until")
        assert init is not None
        assert isinstance(until, syntax.Condition)

        def body(carried: TensorExpression) -> tuple[TensorExpression, Term | None]:
            self.names[until.binder[0].name] = carried
            going = fold(Apply("bool", "not", (self.evaluate(until.body).at(),)))
            self.names[node.binder[0].name] = carried
            return self.block(node.body), going

        return self._loop(self.evaluate(init), body, node)

    def _loop(self, start: TensorExpression, body: Body, node: FormCall, **how: Any) -> TensorExpression:
        """A loop, whose state has the type that its first value and the next ones have together."""
        dtype = start.dtype
        for _ in range(3):
            states, carried = self._state(node, start, dtype)
            with self.inside():
                value, going = body(carried)
            self._require_shape(start, value, node)
            wider = dtype if "bool" in (dtype, value.dtype) else promote(dtype, value.dtype)
            if wider == dtype != ANY_INT:
                break
            dtype = "i64" if wider == dtype else wider
        following = self._elements(value, dtype)
        loop = Iterate(dtype, states, self._elements(start, dtype), following, going, **how)
        return self._parts(start.shape, dtype, [LoopState(dtype, loop, k) for k in range(len(states))])

    def _require_shape(self, start: TensorExpression, value: TensorExpression, node: FormCall) -> None:
        if start.shape != value.shape:
            message = f"what the loop carries has the shape {list(start.shape)}, and then {list(value.shape)}"
            raise self.fail("run-shape", node, message)

    def _loop_of_arrays(self, start: TensorExpression, body: Body, node: FormCall, index: TermVariable) -> TensorExpression:
        """A loop that carries a tensor: one of each element where it depends on no other one, or rounds over arrays."""
        own, known = self.variables(["e"] * len(start.shape), start.shape), len(self.equations)
        carried, dtype, first = self.fresh("carried"), start.dtype, start.at(*own)
        lead: tuple[TermVariable, ...] = ()
        for _ in range(4):
            del self.equations[known:]
            stored = CONCRETE.get(dtype, dtype)
            loaded = self.loaded(carried, TensorExpression(start.shape, stored, start.at), lead)
            outside, self.turns = self.turns, self.turns | {index}
            with self.inside():
                value, _ = body(TensorExpression(start.shape, dtype, casting(loaded, dtype)))
            self.turns = outside
            self._require_shape(start, value, node)
            following, made = value.at(*own), self.equations[known:]
            wider = dtype if "bool" in (dtype, value.dtype) else promote(dtype, value.dtype)
            around = first.free.union(following.free, *map(free, made)) - {*own, index} - self.turns
            if wider == dtype != ANY_INT and around == set(lead):
                break
            dtype, lead = "i64" if wider == ANY_INT else wider, tuple(sorted(around, key=lambda v: v.name))
        del self.equations[known:]
        if self.dead:
            return TensorExpression(start.shape, dtype, lambda *_: Constant(dtype, 0))
        place, count = loaded.at(*own), index.extent
        if not made and all(t == place for t in walk_terms(following) if isinstance(t, Load) and t.array == carried):
            state = TermVariable(stored, self.fresh("state"))
            term = cast(cast(substitute(following, {place: state}), dtype), stored)
            loop = Iterate(stored, (state,), (cast(first, stored),), (term,), index=index, count=constant_index(count))
            part = cast(LoopState(stored, loop, 0), dtype)
            return TensorExpression(start.shape, dtype, lambda *i: substitute(part, dict(zip(own, i, strict=True))))
        if not all(map(self._is_open, lead)):
            return self._loop(start, body, node, index=index, count=constant_index(count))
        made.append(ArrayEquation(self.fresh(node.binder[1].name), (*lead, *own), cast(cast(following, dtype), stored)))
        result = self._rounds_over(made, carried, cast(cast(first, dtype), stored), index)
        return TensorExpression(
            start.shape, dtype, casting(self.loaded(result, TensorExpression(start.shape, stored, start.at), lead), dtype)
        )

    def _rounds_over(self, made: list[Any], carried: str, first: Term, index: TermVariable) -> str:
        """A loop over arrays, whose round lies in an array of its own if it matters; the array with the last state."""
        last = made[-1]
        begin = self.array(f"{last.array}_first", last.variables, first)
        states = [State(begin, carried, last.array, last.shape, last.dtype)]
        if any(index in free(one) for one in made):
            zero = self.array("round", (), Constant("i32", 0))
            counter = State(zero, self.fresh("round"), self.fresh("round"), (), "i32")
            number = Load("i32", counter.carried, ())
            made = [replaced_terms(one, {index: cast(number, INDEX)}) for one in made]
            made.append(ArrayEquation(counter.result, (), Apply("i32", "+", (number, Constant("i32", 1)))))
            states.append(counter)
        self.equations.append(LoopScope(index.extent, tuple(states), tuple(made)))
        return str(last.array)

    def _is_open(self, variable: TermVariable) -> bool:
        """Whether a variable is an index, so that an array can have an axis for it."""
        return variable.dtype == INDEX and (variable.extent > 0 or self.dead)

    def rounds(self, node: FormCall, start: TensorExpression, first: int, last: int) -> TensorExpression | None:
        """A loop that carries a tile, in the body of a grid; None where it is not treated as one."""
        return None

    def require_cover(
        self, node: FormCall, grid: Sequence[TermVariable], tile: tuple[int, ...], shape: tuple[int, ...]
    ) -> None:
        """Refuse tiles that do not cover all of the result."""
        covered = [v.extent * t for v, t in zip(grid, tile, strict=False)] + list(tile[len(grid) :])
        if any(c < n for c, n in zip(covered, shape, strict=True)):
            raise self.fail("run-shape", node, f"tiles cover {covered}, not all of {list(shape)}")

    def _grid(self, node: FormCall, shape: tuple[int, ...] | None) -> TensorExpression:
        """Tiles side by side: an element is one of the tile in which it lies."""
        variables, tile = self._over(node, "dim")
        assert shape is not None
        count = len(variables)
        self.require_cover(node, variables, tile.shape, shape)
        lengths = [constant_index(length) for length in tile.shape]

        def at(*indices: Term) -> Term:
            which = [fold(Apply(INDEX, "quotient", (i, n))) for i, n in zip(indices[:count], lengths, strict=False)]
            where = [fold(Apply(INDEX, "rest", (i, n))) for i, n in zip(indices[:count], lengths, strict=False)]
            return substitute(tile.at(*where, *indices[count:]), dict(zip(variables, which, strict=True)))

        return TensorExpression(shape, tile.dtype, at)
