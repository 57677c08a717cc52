"""Forms: their indices become axes, and axes their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import MAKERS, REDUCTIONS, SCALARS
from feinsum.languages.declarative.interpreting.machine import ExpressionInterpreter
from feinsum.languages.declarative.interpreting.values import IndexedValue
from feinsum.languages.declarative.open_choices import default_number
from feinsum.languages.declarative.syntax import DeclarativeCall, FormCall, SyntaxNode

_MOST_ROUNDS: Final = 1_000_000
"""The most rounds of a `while`; one that takes more is assumed not to end."""
_RELATIVE: Final = {4: 1e-3, 8: 1e-9}
"""The largest relative difference of an alternative's ways, by bytes of their type: their sums may run in other orders."""


class FormInterpreter(ExpressionInterpreter):
    """Evaluates forms."""

    def form(self, node: SyntaxNode, shape: tuple[int, ...] | None) -> IndexedValue:
        """The value of a form, a call of an argument, an allocation."""
        if isinstance(node, DeclarativeCall):
            return self._call(node)
        if isinstance(node, syntax.Alternative):
            return self._alternative(node, shape)
        assert isinstance(node, FormCall)
        match node.kind:
            case "compute" | "read":
                return self._compute(node)
            case "reduce":
                return self._reduce(node)
            case "scan":
                return self._scan(node)
            case "grid":
                return self._grid(node, shape or ())
            case "affine_for":
                return self._affine_for(node)
        return self._while(node)

    @contextmanager
    def over(self, binder: Sequence[syntax.DeclarativeParameter], lengths: Sequence[int]) -> Iterator[None]:
        """Open indices."""
        first = self.depth
        with self.inside():
            self.lengths += lengths
            for number, (parameter, length) in enumerate(zip(binder, lengths, strict=True)):
                places = [1] * self.depth
                places[first + number] = length
                self.names[parameter.name] = IndexedValue(np.arange(length).reshape(places), self.depth, "int")
            try:
                yield
            finally:
                del self.lengths[first:]

    def extents(self, node: Any) -> list[int]:
        """The lengths that a shape gives."""
        items = node.items if isinstance(node, syntax.ListOf) else (node,)
        lengths = [self.integer(item) for item in items]
        for length, item in zip(lengths, items, strict=True):
            if length < 0:
                raise self.fail("run-shape", item.span, f"a length is {length}")
        return lengths

    def body(self, node: FormCall, lengths: Sequence[int]) -> tuple[Any, IndexedValue]:
        """The body of a form for all of its indices, with an axis of full length for each of them."""
        with self.over(node.binder, lengths):
            value = self.block(node.body)
            data = value.at_depth(self.depth)
        outer = self.depth
        full = (*data.shape[:outer], *lengths, *data.shape[outer + len(lengths) :])
        return np.broadcast_to(data, full), value

    def _compute(self, node: FormCall) -> IndexedValue:
        data, value = self.body(node, self.extents(node.argument("shape")))
        return IndexedValue(data, self.depth, value.weak)

    def _reduce(self, node: FormCall) -> IndexedValue:
        lengths = self.extents(node.argument("shape"))
        data, value = self.body(node, lengths)
        operator = node.argument("op")
        assert isinstance(operator, syntax.NameUse)
        reduction = REDUCTIONS[operator.name]
        axes = tuple(range(self.depth, self.depth + len(lengths)))
        if 0 in lengths and (reduction.neutral is None or (data.dtype.kind in "iu" and operator.name in ("min", "max"))):
            raise self.fail("run-empty", node.span, f"{operator.name} of nothing")
        if reduction.combine is None:
            flat = data.reshape((*data.shape[: self.depth], math.prod(lengths)))
            return IndexedValue(reduction.along(flat, axis=-1), self.depth)
        with np.errstate(all="ignore"):
            if operator.name in ("min", "max") and 0 in lengths:
                found = reduction.along(data, axis=axes, initial=reduction.neutral)
            elif operator.name in ("sum", "prod"):
                found = reduction.along(data, axis=axes, dtype=data.dtype)
            else:
                found = reduction.along(data, axis=axes)
        return IndexedValue(np.asarray(found), self.depth, "" if value.weak == "int" else value.weak)

    def _scan(self, node: FormCall) -> IndexedValue:
        lengths = self.extents(node.argument("shape"))
        data, value = self.body(node, lengths)
        operator = node.argument("op")
        assert isinstance(operator, syntax.NameUse)
        combine = REDUCTIONS[operator.name].combine
        assert combine is not None
        with np.errstate(all="ignore"):
            found = combine.accumulate(data, axis=self.depth, dtype=data.dtype)
        return IndexedValue(found, self.depth, "" if value.weak == "int" else value.weak)

    def _grid(self, node: FormCall, shape: tuple[int, ...]) -> IndexedValue:
        """Tiles side by side, cut to a shape."""
        lengths = self.extents(node.argument("dim"))
        data, value = self.body(node, lengths)
        outer, count = self.depth, len(lengths)
        tile = data.shape[outer + count :]
        covered = [n * t for n, t in zip(lengths, tile, strict=False)] + list(tile[count:])
        if any(c < n for c, n in zip(covered, shape, strict=True)):
            raise self.fail("run-shape", node.span, f"tiles cover {covered}, not all of {list(shape)}")
        order = list(range(outer))
        for axis in range(count):
            order += [outer + axis, outer + count + axis]
        order += range(outer + 2 * count, data.ndim)
        joined = data.transpose(order).reshape((*data.shape[:outer], *covered))
        return IndexedValue(joined[(slice(None),) * outer + tuple(slice(n) for n in shape)], outer, value.weak)

    def _affine_for(self, node: FormCall) -> IndexedValue:
        begin, end, init = (node.argument(name) for name in ("begin", "end", "init"))
        assert end is not None
        assert init is not None
        first = 0 if begin is None else self.integer(begin)
        state = self.evaluate(init)
        for number in range(first, self.integer(end)):
            with self.inside():
                self.names[node.binder[0].name] = IndexedValue(np.asarray(number), 0, "int")
                self.names[node.binder[1].name] = state
                state = self._next(state, self.block(node.body), node)
        return state

    def _next(self, state: IndexedValue, value: IndexedValue, node: FormCall) -> IndexedValue:
        if state.shape != value.shape:
            message = f"what the loop carries has the shape {list(state.shape)}, and then {list(value.shape)}"
            raise self.fail("run-shape", node.span, message)
        return value

    def _while(self, node: FormCall) -> IndexedValue:
        init, until = node.argument("init"), node.argument("until")
        assert init is not None
        assert isinstance(until, syntax.Condition)
        state = self.evaluate(init)
        for _ in range(_MOST_ROUNDS):
            with self.inside():
                self.names[until.binder[0].name] = state
                going = np.logical_not(self.evaluate(until.body).at_depth(self.depth))
            if not self.wanted(going).any():
                return state
            with self.inside(), self.where(going):
                self.names[node.binder[0].name] = state
                value = self._next(state, self.block(node.body), node)
            state = self.select(going, value, state)
        raise self.fail("run-endless", node.span, f"this does not end within {_MOST_ROUNDS} rounds")

    def _call(self, node: DeclarativeCall) -> IndexedValue:
        if node.function == "tune":
            raise self.fail("tune-value", node.span, "a tuned number is given a name, as in n = tune(N)")
        if node.function in MAKERS or node.function == "full":
            return self._made(node)
        return self._argument_call(node, self.names[node.function])

    def tuned(self, name: str, node: DeclarativeCall) -> IndexedValue:
        """The value of a tuned number: the one given to the interpreter, or a power of two that is not large."""
        length = self.integer(node.arguments[0].value)
        choices = [self.integer(c) for c in getattr(node.arguments[-1].value, "items", ())]
        value = self.tunes.get(name, choices[0] if choices else default_number(length))
        return IndexedValue(np.asarray(value), 0, "int")

    def _made(self, node: DeclarativeCall) -> IndexedValue:
        named = node.named
        lengths = self.extents(named.get("shape", named.get("0")))
        dtype = named.get("dtype")
        name = dtype.name if isinstance(dtype, syntax.NameUse) else ""
        found = SCALARS.get(name) or self.names.get(f"dtype {name}") or np.dtype(np.float64)
        if node.function == "full":
            value = self.evaluate(named.get("value", named.get("1")) or node)
            data = value.at_depth(self.depth).reshape((*(1,) * self.depth, *(1,) * len(lengths)))
            return IndexedValue(np.broadcast_to(data, (*(1,) * self.depth, *lengths)), self.depth, value.weak)
        number = MAKERS[node.function] if found.kind == "f" else np.nan_to_num(MAKERS[node.function])
        return IndexedValue(np.full((*(1,) * self.depth, *lengths), number, found), self.depth, "" if name else "float")

    def _argument_call(self, node: DeclarativeCall, function: Callable[..., Any]) -> IndexedValue:
        """A function that is an argument, called once for all indices that its arguments depend on."""
        values = [self.evaluate(a.value) for a in node.arguments]
        leads = np.broadcast_shapes(*(v.at_depth(self.depth).shape[: self.depth] for v in values))
        found = np.empty(leads, object)
        for place in np.ndindex(*leads):
            parts = [np.broadcast_to(d := v.at_depth(self.depth), (*leads, *v.shape))[place] for v in values]
            found[place] = np.asarray(function(*parts))
            del d
            self._require_result(node, found[place].shape)
        if not found.size:
            raise self.fail(
                "run-empty", node.span, f"{node.function} is called for no index, so that its result has no type"
            )
        return IndexedValue(np.stack(list(found.flat)).reshape((*leads, *found.flat[0].shape)), self.depth)

    def _require_result(self, node: DeclarativeCall, shape: tuple[int, ...]) -> None:
        """The result of a function has the declared shape."""
        extents = getattr(self.signatures[node.function].result, "extents", ())
        wanted = self.extents(syntax.ListOf(extents))
        if tuple(wanted) != shape:
            message = f"the result of {node.function} has the shape {list(shape)}, and is declared with {list(wanted)}"
            raise self.fail("run-shape", node.span, message)

    def _alternative(self, node: syntax.Alternative, shape: tuple[int, ...] | None) -> IndexedValue:
        """The first way, if all others give the same."""
        first, *others = [(way, self.evaluate(way.value, shape)) for way in node.ways]
        for way, value in others:
            a, b = np.broadcast_arrays(first[1].at_depth(self.depth), value.at_depth(self.depth))
            bound = _RELATIVE.get(a.dtype.itemsize, 0.0) * float(np.max(np.abs(a), initial=0)) if a.dtype.kind == "f" else 0
            differ = ~(np.isclose(a, b, rtol=0, atol=bound, equal_nan=True) if a.dtype.kind == "f" else a == b)
            if differ.any():
                place = tuple(int(k) for k in np.argwhere(differ)[0])
                values = f"{a[place]} in {first[0].name}, {b[place]} in {way.name}"
                raise self.fail("run-alternative", way.span, f"element {list(place[self.depth :])} is {values}")
        return first[1]
