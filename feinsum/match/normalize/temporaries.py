"""Temporaries of one assignment: put in where they are read, or kept as arrays with an axis for each loop around them.

    for e:
        t = 2*h[e]                                      t[e] = abs(h[e] - 1)
        d = abs(h[e] - 1)                       ──▶     y[e, j] = y[e, j] + sum(q, 2*w[q]*t[e]*B[q, j])
        for q, j: y[e, j] = y[e, j] + t*d*B[q, j]

(forward substitution, scalar expansion: Allen and Kennedy, 2001, sections 4.3 and 5.3.)  A sum takes in what is a product
of factors with different indices, or a sum of such products; what else it reads is an array.  The value of such an array
takes in everything, up to a limit of its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loopy.symbolic import IdentityMapper
from pymbolic.primitives import Product, Quotient, Subscript, Sum, Variable

from feinsum.errors import MatchError
from feinsum.match.affine_indices import rename_expression
from feinsum.match.expression_uses import find_uses, flatten_product, flatten_sum, plain_names
from feinsum.match.normalize.statements import KernelStatement, StatementRegion

LIMIT = 300
"""Nodes of an expression at most, for each time that it is read, that are put in instead of an array."""


@dataclass(frozen=True)
class Temporary:
    """A temporary of which each element is assigned once in an iteration of the loops around.

    :ivar around: the loops that do not index it, in order of name.
    """

    name: str
    definitions: tuple[KernelStatement, ...]
    around: tuple[str, ...]

    @cached_property
    def is_sum(self) -> bool:
        """Whether it has the result of a reduction."""
        return any(definition.uses.reductions for definition in self.definitions)

    def find(self, index: tuple[Any, ...]) -> tuple[KernelStatement, dict[str, Any]] | None:
        """The definition of the element at an index, and its inames in terms of the index; None if that is not known."""
        for definition in self.definitions:
            pairs = list(zip(definition.at, index, strict=True))
            if all(isinstance(a, Variable) or a == b for a, b in pairs):
                return definition, {a.name: b for a, b in pairs if isinstance(a, Variable)}
        return None


def find_temporaries(region: StatementRegion) -> dict[str, Temporary]:
    """The temporaries that are read in a region.

    :raises MatchError: naming one that is assigned more than once, or read where the loops around it have ended.
    """
    found = {}
    for name in dict.fromkeys(statement.array for statement in region.statements):
        if region.is_temporary(name):
            found[name] = _read_temporary(region, name)
    return found


def _read_temporary(region: StatementRegion, name: str) -> Temporary:
    definitions = region.writers(name)
    keys = [tuple(entry if isinstance(entry, int) else None for entry in d.at) for d in definitions]
    if len(set(keys)) < len(keys) or len({tuple(x is None for x in key) for key in keys}) > 1:
        ids = " and ".join(f"'{d.insn_id}'" for d in definitions)
        raise MatchError(f"'{name}' is assigned by {ids}; a temporary that is put in or gets axes has one assignment")
    arounds = set()
    for definition in definitions:
        inames = plain_names(definition.at)
        plain = all(isinstance(x, (int, Variable)) for x in definition.at) and set(inames) <= definition.loops
        if not plain or len(set(inames)) < len(inames) or name in definition.reads:
            raise MatchError(f"'{definition.insn_id}' assigns to {definition.target} in a way that is not understood")
        arounds.add(tuple(sorted(definition.loops.difference(inames))))
    if len(arounds) > 1:
        raise MatchError(f"elements of '{name}' are assigned in different loops")
    (around,) = arounds
    for reader in region.readers(name):
        ended = sorted(set(around) - reader.loops - reader.summed)
        if ended:
            raise MatchError(f"'{reader.insn_id}' reads '{name}' after the loop '{ended[0]}' in which it is assigned")
    return Temporary(name, tuple(definitions), around)


class TemporarySubstitution:
    """The treatment of the temporaries of a region.

    :ivar kept: those that become arrays.
    """

    def __init__(self, region: StatementRegion, temporaries: dict[str, Temporary]) -> None:
        self._region = region
        self._temporaries = temporaries
        self._sizes: dict[str, int] = {}
        self._apart: set[str] = set()
        self.kept = {
            name for name, temporary in temporaries.items() if temporary.is_sum or self._reads_what_changes(temporary)
        }

    def _reads_what_changes(self, temporary: Temporary) -> bool:
        """Whether a definition reads an array that the region writes, and so has to be evaluated where it stands."""
        written = {statement.array for statement in self._region.statements} - self._temporaries.keys()
        return any(written & definition.reads for definition in temporary.definitions)

    def put_into_sum(self, value: Any) -> Any:
        """An expression with temporaries that are products of factors of different indices put in; others are kept."""
        return _Put(self, self._put_product)(value)

    def put(self, value: Any) -> Any:
        """An expression with all temporaries put in but those that are kept, which get their axes."""
        return _Put(self, self._put_any)(value)

    def axes(self, name: str) -> tuple[str, ...] | None:
        """The loops that a temporary gets an axis for, in front; None for what is no temporary here."""
        temporary = self._temporaries.get(name)
        return None if temporary is None else temporary.around

    def _put_any(self, name: str, index: tuple[Any, ...]) -> Any:
        found = self._temporaries[name].find(index) if name not in self.kept else None
        if found is None or self._size(name) * len(self._region.readers(name)) > LIMIT:
            self.kept.add(name)
            return self._element(name, index)
        definition, inames = found
        return rename_expression(self.put(definition.value), inames)

    def _put_product(self, name: str, index: tuple[Any, ...]) -> Any:
        known = name in self.kept or name in self._apart
        found = None if known else self._temporaries[name].find(index)
        if found is not None:
            definition, inames = found
            kept = set(self.kept)
            value = self.put_into_sum(definition.value)
            if is_separable(value, definition.loops):
                return rename_expression(value, inames)
            self.kept = kept
            self._apart.add(name)
        self.kept.add(name)
        return self._element(name, index)

    def _element(self, name: str, index: tuple[Any, ...]) -> Any:
        index = (*map(Variable, self._temporaries[name].around), *index)
        return Subscript(Variable(name), index) if index else Variable(name)

    def _size(self, name: str) -> int:
        """How large the definitions of a temporary are when everything is put in, at most."""
        if name not in self._sizes:
            self._sizes[name] = 0
            for definition in self._temporaries[name].definitions:
                uses = definition.uses
                inner = [n for n in (*uses.values, *(n for n, _ in uses.reads)) if n in self._temporaries]
                size = len(str(definition.value)) // 4 + sum(1 if n in self.kept else self._size(n) for n in inner)
                self._sizes[name] = max(self._sizes[name], size)
        return self._sizes[name]

    def has(self, name: str) -> bool:
        """Whether a name is a temporary of the region."""
        return name in self._temporaries


class _Put(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    """Puts values in the place of temporaries."""

    def __init__(self, substitution: TemporarySubstitution, put: Any) -> None:
        super().__init__()
        self._substitution, self._put = substitution, put

    def map_subscript(self, expr: Any) -> Any:
        index = tuple(map(self.rec, expr.index_tuple))
        if self._substitution.has(expr.aggregate.name):
            return self._put(expr.aggregate.name, index)
        return Subscript(expr.aggregate, index)

    def map_variable(self, expr: Any) -> Any:
        return self._put(expr.name, ()) if self._substitution.has(expr.name) else expr


def is_separable(value: Any, inames: frozenset[str]) -> bool:
    """Whether an expression is a copy, or a product of factors with different indices, or a sum of such products."""
    if isinstance(value, Sum):
        return all(_is_outer(term, inames) for term in flatten_sum(value))
    return _is_outer(value, inames) or isinstance(value, (Subscript, Variable, int, float, complex))


def _is_outer(value: Any, inames: frozenset[str]) -> bool:
    """Whether an expression is a product of factors, or of numbers and one factor, not all of one set of indices."""
    factors = list(_value_factors(value))
    sets = {find_uses(factor).variables & inames for factor in factors if find_uses(factor).variables & inames}
    numbers = sum(isinstance(factor, (int, float, complex)) for factor in factors)
    return len(sets) > 1 or (len(factors) - numbers <= 1 and isinstance(value, Product) and len(factors) > 1)


def _value_factors(value: Any) -> Any:
    for factor in flatten_product(value):
        if isinstance(factor, Quotient):
            yield from _value_factors(factor.numerator)
            yield factor.denominator
        else:
            yield factor
