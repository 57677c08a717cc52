"""Unfolding forms: indices become variables, loops a few states, scans arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import REDUCTIONS
from feinsum.languages.declarative.lowering.folding import INDEX, cast, fold, integer, is_integer
from feinsum.languages.declarative.lowering.terms import Apply, Iterate, Load, Part, Reduce, Term, Variable, substitute
from feinsum.languages.declarative.lowering.unfolding_base import CONCRETE, Tensor, number
from feinsum.languages.declarative.lowering.unfolding_expressions import UnfoldingExpressions
from feinsum.languages.declarative.syntax import Form
from feinsum.languages.declarative.types import ANY_INT, promote

_MOST_STATES: Final = 64
"""Numbers that a loop carries at most; each of them is a variable of its own."""


class UnfoldingForms(UnfoldingExpressions):
    """Unfolds forms."""

    def _over(self, node: Form, argument: str = "shape") -> tuple[tuple[Variable, ...], Tensor]:
        """The indices of a form, and its body for them."""
        shape = node.argument(argument)
        items = shape.items if isinstance(shape, syntax.ListOf) else (shape,)
        lengths = [self.length(item) for item in items if item is not None]
        variables = self.variables([p.name for p in node.binder], lengths)
        with self.inside():
            for parameter, variable in zip(node.binder, variables, strict=True):
                self.names[parameter.name] = number(variable)
            return variables, self.block(node.body)

    def form(self, node: Form, shape: tuple[int, ...] | None = None) -> Tensor:
        """The value of a form; `shape` is what it is said to have."""
        match node.kind:
            case "compute" | "read":
                variables, value = self._over(node)
                count = len(variables)

                def at(*indices: Term) -> Term:
                    body = value.at(*indices[count:])
                    return substitute(body, dict(zip(variables, indices[:count], strict=True)))

                return Tensor((*(v.extent for v in variables), *value.shape), value.dtype, at)
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

    def _reduce(self, node: Form) -> Tensor:
        operator = node.argument("op")
        assert isinstance(operator, syntax.Name)
        variables, value = self._over(node)
        op = operator.name
        empty = any(v.extent == 0 for v in variables)
        if empty and (REDUCTIONS[op].neutral is None or (is_integer(value.dtype) and op in ("min", "max"))):
            raise self.fail("run-empty", node, f"{op} of nothing")
        dtype = "i64" if op in ("argmin", "argmax") else "bool" if op in ("any", "all") else value.dtype
        if dtype == ANY_INT:
            dtype = "i64"

        def at(*indices: Term) -> Term:
            body = value.at(*indices)
            return Reduce(dtype, op, variables, body if op.startswith("arg") or dtype == "bool" else cast(body, dtype))

        return Tensor(value.shape, dtype, at)

    def _scan(self, node: Form) -> Tensor:
        """An array of its own, for all indices that the scan depends on."""
        operator = node.argument("op")
        assert isinstance(operator, syntax.Name)
        variables, value = self._over(node)
        if self.held:
            raise self.refuse(node, "a scan under a condition is not lowered")
        rest = self.variables(["s"] * len(value.shape), value.shape)
        body = value.at(*rest)
        lead = sorted(body.free - set(variables) - set(rest), key=lambda v: v.name)
        name = self.array("scan", (*lead, *rest, *variables), body, operator.name)
        dtype = CONCRETE.get(body.dtype, body.dtype)
        shape = (variables[0].extent, *value.shape)
        return Tensor(shape, dtype, lambda first, *others: Load(dtype, name, (*lead, *others, first)))

    def _state(self, node: Form, init: Tensor, dtype: str) -> tuple[tuple[Variable, ...], Tensor]:
        """Variables for what a loop carries, and the tensor that they are."""
        count = int(np.prod(init.shape, dtype=np.int64))
        if count > _MOST_STATES:
            raise self.refuse(node, f"a loop that carries {count} numbers, more than {_MOST_STATES}, is not lowered here")
        states = tuple(Variable(dtype, self.fresh("state")) for _ in range(count))
        return states, self._parts(init.shape, dtype, states)

    def _parts(self, shape: tuple[int, ...], dtype: str, terms: Sequence[Term]) -> Tensor:
        """A tensor of a few numbers."""
        if not shape:
            return number(terms[0])
        flat = self.list_of(list(terms))

        def at(*indices: Term) -> Term:
            place: Term = integer(0)
            for index, length in zip(indices, shape, strict=True):
                place = fold(Apply(INDEX, "+", (fold(Apply(INDEX, "*", (place, integer(length)))), index)))
            return flat.at(place)

        return Tensor(shape, dtype, at)

    def _elements(self, value: Tensor, dtype: str) -> tuple[Term, ...]:
        return tuple(cast(value.at(*map(integer, place)), dtype) for place in np.ndindex(*value.shape))

    def _affine_for(self, node: Form) -> Tensor:
        begin, end, init = (node.argument(name) for name in ("begin", "end", "init"))
        assert end is not None
        assert init is not None
        first = 0 if begin is None else self.length(begin)
        last = self.length(end)
        start = self.evaluate(init)
        index = Variable(INDEX, self.fresh(node.binder[0].name), max(last - first, 0))

        def body(carried: Tensor) -> tuple[Tensor, Term | None]:
            self.names[node.binder[0].name] = number(fold(Apply(INDEX, "+", (index, integer(first)))))
            self.names[node.binder[1].name] = carried
            return self.block(node.body), None

        tiled = self.rounds(node, start, first, last)
        if tiled is not None:
            return tiled
        loop = self._loop if np.prod(start.shape, dtype=np.int64) <= _MOST_STATES else self._loop_of_elements
        return loop(start, body, node, index=index, count=integer(max(last - first, 0)))

    def _while(self, node: Form) -> Tensor:
        init, until = node.argument("init"), node.argument("until")
        assert init is not None
        assert isinstance(until, syntax.Condition)

        def body(carried: Tensor) -> tuple[Tensor, Term | None]:
            self.names[until.binder[0].name] = carried
            going = fold(Apply("bool", "not", (self.evaluate(until.body).at(),)))
            self.names[node.binder[0].name] = carried
            return self.block(node.body), going

        return self._loop(self.evaluate(init), body, node)

    def _loop(self, start: Tensor, body: Callable[[Tensor], tuple[Tensor, Term | None]], node: Form, **how: Any) -> Tensor:
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
        return self._parts(start.shape, dtype, [Part(dtype, loop, k) for k in range(len(states))])

    def _require_shape(self, start: Tensor, value: Tensor, node: Form) -> None:
        if start.shape != value.shape:
            message = f"what the loop carries has the shape {list(start.shape)}, and then {list(value.shape)}"
            raise self.fail("run-shape", node, message)

    def _loop_of_elements(
        self, start: Tensor, body: Callable[[Tensor], tuple[Tensor, Term | None]], node: Form, **how: Any
    ) -> Tensor:
        """A loop that carries a tensor, each of whose elements depends on no other one: a loop for each of them."""
        own = self.variables(["e"] * len(start.shape), start.shape)
        dtype = start.dtype
        for _ in range(3):
            state = Variable(dtype, self.fresh("state"))

            def carried(*indices: Term, state: Variable = state) -> Term:
                if indices != own and not self.asked_type:
                    raise self.refuse(
                        node, "a loop that carries many numbers, and takes one from the place of another, is not lowered"
                    )
                return state

            with self.inside():
                value, _ = body(Tensor(start.shape, dtype, carried))
            self._require_shape(start, value, node)
            following = value.at(*own)
            wider = promote(dtype, following.dtype)
            if wider == dtype != ANY_INT:
                break
            dtype = "i64" if wider == dtype else wider
        loop = Iterate(dtype, (state,), (cast(start.at(*own), dtype),), (cast(following, dtype),), **how)

        def at(*indices: Term) -> Term:
            return substitute(Part(dtype, loop, 0), dict(zip(own, indices, strict=True)))

        return Tensor(start.shape, dtype, at)

    def rounds(self, node: Form, start: Tensor, first: int, last: int) -> Tensor | None:
        """A loop that carries a tile, in the body of a grid; None where it is not treated as one."""
        return None

    def require_cover(self, node: Form, grid: Sequence[Variable], tile: tuple[int, ...], shape: tuple[int, ...]) -> None:
        """Refuse tiles that do not cover all of the result."""
        covered = [v.extent * t for v, t in zip(grid, tile, strict=False)] + list(tile[len(grid) :])
        if any(c < n for c, n in zip(covered, shape, strict=True)):
            raise self.fail("run-shape", node, f"tiles cover {covered}, not all of {list(shape)}")

    def _grid(self, node: Form, shape: tuple[int, ...] | None) -> Tensor:
        """Tiles side by side: an element is one of the tile in which it lies."""
        variables, tile = self._over(node, "dim")
        assert shape is not None
        count = len(variables)
        self.require_cover(node, variables, tile.shape, shape)
        lengths = [integer(length) for length in tile.shape]

        def at(*indices: Term) -> Term:
            which = [fold(Apply(INDEX, "quotient", (i, n))) for i, n in zip(indices[:count], lengths, strict=False)]
            where = [fold(Apply(INDEX, "rest", (i, n))) for i, n in zip(indices[:count], lengths, strict=False)]
            return substitute(tile.at(*where, *indices[count:]), dict(zip(variables, which, strict=True)))

        return Tensor(shape, tile.dtype, at)
