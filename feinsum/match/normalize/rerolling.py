"""Rerolling: a sum of terms of one form, as form compilers unroll sums over directions, becomes a sum over a loop.

    sum(q, w[q]*(a[e]*X[q, i] + b[e]*Y[q, i])*X[q, j])
                                  ──▶   sum((q, r), w[q]*K[r, e]*T[r, q, i]*X[q, j])

with ``K[0, e]`` for what was ``a[e]`` and ``K[1, e]`` for ``b[e]``, and a table T of X and Y.  Terms within terms are loops
within loops: ``a*X + b*Y`` and ``c*X + d*Y`` as terms themselves make K and T arrays of ``(s, r)`` and ``(r)``.  Sums of
one form that became parts of one array become one statement in a loop of its own:

    v = sum(k, X[q, k]*u[e, k])           ──▶   V[r, e, q] = sum(k, T[r, q, k]*u[e, k])
    w = sum(k, Y[q, k]*u[e, k])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import IdentityMapper, Reduction
from pymbolic.primitives import Product, Subscript, Sum, Variable

from feinsum.match.affine_indices import rename_expression
from feinsum.match.expression_uses import flatten_product, flatten_sum
from feinsum.match.factors import is_sum
from feinsum.match.merging import MOST
from feinsum.match.normalize.statements import KernelStatement, StatementRegion


@dataclass(frozen=True)
class _Rolled:
    """A sum over some axes of a product of factors.

    :ivar lengths: of the axes.
    :ivar factors: the axes of each, in order, and the expressions at their indices.
    """

    lengths: tuple[int, ...]
    factors: tuple[tuple[tuple[int, ...], Any], ...]


def reroll(region: StatementRegion, statements: list[KernelStatement], temporaries: set[str]) -> list[KernelStatement]:
    """Statements with sums of terms under their sums made loops, where all terms read arrays of the same indices.

    Temporaries that become parts of one array are no longer among those of the region; arrays are added to
    :attr:`StatementRegion.made`.
    """
    for insn_id in [statement.insn_id for statement in statements]:
        # An earlier one may have put what this one reads into an array, or have merged it with others.
        k = next((k for k, statement in enumerate(statements) if statement.insn_id == insn_id), None)
        if k is None:
            continue
        statement, roller = statements[k], _Roller(region, temporaries)
        value = roller.roll(statement.value) if statement.summed else None
        if value is None:
            continue
        rolled = [*statements[:k], statement.then(value), *statements[k + 1 :]]
        statements = [_in_stacks(other, roller.places) for other in rolled]
        for array in dict.fromkeys(array for array, _ in roller.places.values()):
            statements = _as_one_sum(region, roller, statements, array)
        region.made.update(roller.made)
        region.lengths.update(roller.lengths)
    return statements


def _as_one_sum(
    region: StatementRegion, roller: _Roller, statements: list[KernelStatement], array: str
) -> list[KernelStatement]:
    """Statements with those that make the parts of an array as one, if they are sums of one form of unchanged arrays."""
    parts = sorted((s for s in statements if s.array == array), key=lambda s: s.at[0])
    last = [s for s in statements if s.array == array][-1]
    written = {statement.array for statement in statements}
    alike = len({(s.at[1:], s.loops, tuple(region.lengths[x] for x in _summed(s))) for s in parts}) == 1
    if not alike or any(not is_sum(s.value) or written & s.reads for s in parts):
        return statements
    inames = _summed(last)
    terms = [
        _as_sum_of_products(rename_expression(s.value.expr, dict(zip(_summed(s), map(Variable, inames), strict=True))))
        for s in parts
    ]
    rolled = None if any(term is None for term in terms) else _roll([term for term in terms if term is not None])
    iname = region.fresh("term")
    factors = None if rolled is None or len(rolled.lengths) > 1 else roller.write(rolled, [iname])
    if factors is None:
        return statements
    roller.lengths[iname] = len(parts)
    value = Reduction(last.value.operation, inames, Product(factors), last.value.allow_simultaneous)
    merged = tuple(name for s in parts if s is not last for name in (s.insn_id, *s.merged))
    one = replace(
        last, at=(Variable(iname), *last.at[1:]), value=value, loops=last.loops | {iname}, merged=(*last.merged, *merged)
    )
    return [one if s is last else s for s in statements if s is last or s.array != array]


def _summed(statement: KernelStatement) -> tuple[str, ...]:
    """The inames of the sum that a statement is; none of any other."""
    return tuple(statement.value.inames) if is_sum(statement.value) else ()


class _Roller:
    """Rolls up what one statement sums.

    :ivar places: temporary -> the array that it becomes part of, and where.
    :ivar made: new arrays.
    :ivar lengths: of new inames.
    """

    def __init__(self, region: StatementRegion, temporaries: set[str]) -> None:
        self._region, self._temporaries = region, temporaries
        self.places: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.made: dict[str, Any] = {}
        self.lengths: dict[str, int] = {}
        self._stacks: dict[str, Any] = {}

    def roll(self, value: Any) -> Any:
        """A value with the one sum in it rolled up; None if nothing can be."""
        found = _find_sum(value)
        if found is None or not any(isinstance(factor, Sum) for factor in flatten_product(found.expr)):
            return None
        rolled = _as_sum_of_products(found.expr)
        if rolled is None or not rolled.lengths or len(rolled.factors) > MOST:
            return None
        inames = [self._region.fresh("term") for _ in rolled.lengths]
        factors = self.write(rolled, inames)
        if factors is None:
            return None
        self.lengths = dict(zip(inames, rolled.lengths, strict=True))
        total = Reduction(found.operation, (*found.inames, *inames), Product(factors), found.allow_simultaneous)
        return _Replace(lambda one: total if one is found else None)(value)

    def write(self, rolled: _Rolled, inames: list[str]) -> tuple[Any, ...] | None:
        """The factors of what is rolled up, with inames for its axes; None if some are not of one kind."""
        factors = []
        for axes, entries in rolled.factors:
            factor = self._operand(entries, [Variable(inames[axis]) for axis in axes]) if axes else entries.item()
            if factor is None:
                return None
            factors.append(factor)
        return tuple(factors)

    def _operand(self, entries: Any, at: list[Any]) -> Any:
        """The read of an array with these entries along the first axes; None if they are not of one kind."""
        flat = list(entries.flat)
        if all(isinstance(entry, (int, float)) for entry in flat):
            return Subscript(Variable(self._table("signs", np.array(entries, np.float64))), tuple(at))
        if not all(isinstance(entry, Subscript) for entry in flat) or len({entry.index_tuple for entry in flat}) > 1:
            return None
        names = np.array([entry.aggregate.name for entry in flat], object).reshape(entries.shape)
        found = self._find_stack(names)
        if found is None:
            name = self._stack(tuple(names.flat), names.shape)
            if name is None:
                return None
            self._stacks[name] = names
            found = name, tuple(range(names.ndim))
        name, order = found
        return Subscript(Variable(name), (*(at[k] for k in order), *flat[0].index_tuple))

    def _find_stack(self, names: Any) -> tuple[str, tuple[int, ...]] | None:
        """The array that has these parts already, and which axis of `names` each of its axes is."""
        for name, known in self._stacks.items():
            for order in permutations(range(names.ndim)):
                if known.shape == names.transpose(order).shape and (known == names.transpose(order)).all():
                    return name, order
        return None

    def _table(self, name: str, values: Any) -> str:
        name = self._region.fresh(name)
        self.made[name] = lp.TemporaryVariable(
            name, values.dtype, shape=values.shape, initializer=values, read_only=True, address_space=lp.AddressSpace.GLOBAL
        )
        return name

    def _stack(self, names: tuple[str, ...], shape: tuple[int, ...]) -> str | None:
        """The array of which some arrays are parts; None if they are of several kinds, or parts of another already."""
        variables = [self._region.variable(name) for name in names]
        if all(one is not None and one.initializer is not None for one in variables):
            tables = [one.initializer for one in variables]
            if len({(table.shape, table.dtype) for table in tables}) > 1:
                return None
            return self._table(f"{names[0]}_terms", np.stack(tables).reshape(*shape, *tables[0].shape))
        if not set(names) <= self._temporaries or len(set(names)) < len(names) or self.places.keys() & set(names):
            return None
        kept = self._region.widened(names[0])
        if any(
            self._region.is_in_pieces(name) or not _same_type_and_shape(kept, self._region.widened(name)) for name in names
        ):
            return None
        made = self._region.fresh(f"{names[0]}_terms")
        for number, name in enumerate(names):
            self.places[name] = (made, tuple(int(x) for x in np.unravel_index(number, shape)))
        self.made[made] = lp.TemporaryVariable(
            made, kept.dtype, shape=(*shape, *kept.shape), address_space=lp.AddressSpace.GLOBAL
        )
        return made


def _same_type_and_shape(one: Any, other: Any) -> bool:
    """Whether two temporaries have one type and shape."""
    return bool(one.dtype == other.dtype and one.shape == other.shape)


def _find_sum(value: Any) -> Reduction | None:
    """The one sum in a value."""
    found: list[Any] = []
    _Replace(lambda one: found.append(one) if isinstance(one, Reduction) else None)(value)
    return found[0] if len(found) == 1 and is_sum(found[0]) else None


def _as_sum_of_products(value: Any) -> _Rolled | None:
    """An expression as a sum over axes of products; None if terms of a sum differ in form."""
    if isinstance(value, Product):
        lengths: tuple[int, ...] = ()
        factors: list[Any] = []
        for child in flatten_product(value):
            inner = _as_sum_of_products(child)
            if inner is None:
                return None
            shift = len(lengths)
            factors += [(tuple(axis + shift for axis in axes), entries) for axes, entries in inner.factors]
            lengths += inner.lengths
        return _Rolled(lengths, tuple(factors))
    if isinstance(value, Sum):
        terms = [_as_sum_of_products(child) for child in flatten_sum(value)]
        return None if any(term is None for term in terms) else _roll([term for term in terms if term is not None])
    entries = np.empty((), object)
    entries[()] = value
    return _Rolled((), (((), entries),))


def _roll(terms: list[_Rolled]) -> _Rolled | None:
    """Terms of one form as a sum over one axis more, the last."""
    first = terms[0]
    forms = {(term.lengths, tuple((axes, _entry_form(entries)) for axes, entries in term.factors)) for term in terms}
    if len(forms) > 1:
        return None
    axis = len(first.lengths)
    factors = []
    for k, (axes, entries) in enumerate(first.factors):
        columns = [term.factors[k][1] for term in terms]
        if all(_same_term(entries, column) for column in columns):
            factors.append((axes, entries))
        else:
            factors.append(((*axes, axis), np.stack(columns, axis=-1)))
    return _Rolled((*first.lengths, len(terms)), tuple(factors))


def _entry_form(entries: Any) -> object:
    """The property that entries of one array share: the index at which they are read."""
    forms = {
        entry.index_tuple if isinstance(entry, Subscript) else isinstance(entry, (int, float)) for entry in entries.flat
    }
    return frozenset(forms)


def _same_term(one: Any, other: Any) -> bool:
    return bool(one.shape == other.shape and all(a == b for a, b in zip(one.flat, other.flat, strict=True)))


def _in_stacks(statement: KernelStatement, places: dict[str, tuple[str, tuple[int, ...]]]) -> KernelStatement:
    """A statement with the arrays that are parts of others now."""
    if statement.array in places:
        array, at = places[statement.array]
        statement = statement.moved(array, (*at, *statement.at))

    def put(one: Any) -> Any:
        if isinstance(one, Subscript) and one.aggregate.name in places:
            array, at = places[one.aggregate.name]
            return Subscript(Variable(array), (*at, *one.index_tuple))
        return None

    value = _Replace(put)(statement.value)
    return statement if value is statement.value else statement.then(value)


class _Replace(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    """Puts others in the place of some subscripts and reductions."""

    def __init__(self, find: Callable[[Any], Any]) -> None:
        super().__init__()
        self._find = find

    def map_subscript(self, expr: Any) -> Any:
        found = self._find(expr)
        return super().map_subscript(expr) if found is None else found

    def map_reduction(self, expr: Any) -> Any:
        found = self._find(expr)
        return super().map_reduction(expr) if found is None else found
