"""Affine indices in one form: ``A[0 + j*1, 0 + k*1]`` is ``A[j, k]``, ``j2 + 3*j1 + j0*9`` is ``9*j0 + 3*j1 + j2``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from loopy.symbolic import IdentityMapper, SubstitutionMapper
from pymbolic.mapper.coefficient import CoefficientCollector
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Product, Subscript, Sum, Variable

from feinsum.match.expression_uses import find_uses


class _PythonNumbers(IdentityMapper[[]]):  # type: ignore[misc]
    """``numpy.int64(2)*j`` as ``2*j``: a number in an index has no type of its own.

    :ivar found: whether there was one; as they are equal, comparing says nothing.
    """

    found = False

    def map_constant(self, expr: Any) -> Any:
        if not isinstance(expr, np.integer):
            return expr
        self.found = True
        return int(expr)


class _AffineIndices(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    """Writes affine indices in one form: ``0 + j*1`` as ``j``."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self._names = names
        self._numbers = _PythonNumbers()

    @property
    def has_changed_numbers(self) -> bool:
        return self._numbers.found

    def map_subscript(self, expr: Any) -> Any:
        index = tuple(self._simplify(entry) for entry in expr.index_tuple)
        if all(new is old for new, old in zip(index, expr.index_tuple, strict=True)):
            return expr
        return Subscript(expr.aggregate, index)

    def _simplify(self, entry: Any) -> Any:
        plain = self._numbers(entry)
        entry = plain if self._numbers.found else entry
        if isinstance(entry, (int, Variable)):
            return entry
        terms = collect_affine(entry, self._names)
        return self.rec(entry) if terms is None else _write_sum(terms, entry)


def simplify_indices(value: Any, names: frozenset[str]) -> Any:
    """An expression with the indices that are affine in some names in one form; itself where they are so already."""
    indices = _AffineIndices(names)
    made = indices(value)
    return made if indices.has_changed_numbers or made != value else value


def collect_affine(entry: Any, names: frozenset[str]) -> Mapping[str, int] | None:
    """The coefficients of an index that is affine in some names, the constant as that of ``""``; None for any other."""
    uses = find_uses(entry)
    if uses.reads or uses.calls or uses.reductions or not uses.values <= names:
        return None
    try:
        found = CoefficientCollector(sorted(names))(entry)
    except (RuntimeError, NotImplementedError):
        return None
    if not all(isinstance(c, (int, np.integer)) for c in found.values()):
        return None
    return {"" if key == 1 else key.name: int(c) for key, c in found.items() if c}


def _write_sum(terms: Mapping[str, int], entry: Any) -> Any:
    """The larger strides first, as subscripts of several axes are flattened."""
    ordered = sorted(((c, name) for name, c in terms.items() if name), key=lambda term: (-term[0], term[1]))
    parts = [Variable(name) if c == 1 else Product((c, Variable(name))) for c, name in ordered]
    if terms.get("") or not parts:
        parts.append(terms.get("", 0))
    made = parts[0] if len(parts) == 1 else Sum(tuple(parts))
    return entry if made == entry else made


def rename_expression(value: Any, names: Mapping[str, Any]) -> Any:
    """An expression with variables replaced."""
    return SubstitutionMapper(make_subst_func(dict(names)))(value) if names else value
