"""Sums of sums: a factor that is a sum itself becomes part of the sum.

    sum(q, w[q]*B[q, i]*sum(r, B[q, r]*u[r]))        ──▶   sum((q, r), w[q]*B[q, i]*B[q, r]*u[r])

In which order to contract is the choice of a transform space, which may keep the inner sum, in faster memory or for many
elements at once, or contract tables with each other.
"""

from __future__ import annotations

from typing import Any

from loopy.symbolic import IdentityMapper, Reduction
from pymbolic.primitives import Product

from feinsum.match.expression_uses import find_uses, flatten_product
from feinsum.match.factors import is_sum

MOST = 12
"""The most factors of a merged sum: orders of contraction are searched among all subsets."""


class _Merger(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    def map_reduction(self, expr: Any) -> Any:
        inner = self.rec(expr.expr)
        merged = _merge_sums(expr, inner) if is_sum(expr) else None
        return merged or Reduction(expr.operation, expr.inames, inner, expr.allow_simultaneous)


def merge_sums(value: Any) -> Any:
    """An expression with sums that are factors of sums made part of them; itself where there are none."""
    reductions = find_uses(value).reductions
    return _Merger()(value) if len(reductions) > 1 else value


def _merge_sums(outer: Reduction, body: Any) -> Reduction | None:
    """A sum with the sums among its factors in it; None where there are none, or they share inames."""
    factors: list[Any] = []
    inames = list(outer.inames)
    for factor in flatten_product(body):
        if is_sum(factor):
            inames.extend(factor.inames)
            factors.extend(flatten_product(factor.expr))
        else:
            factors.append(factor)
    inner = find_uses(*factors).reductions
    if len(inames) == len(outer.inames) or len(set(inames)) < len(inames) or inner or len(factors) > MOST:
        return None
    return Reduction(outer.operation, tuple(inames), Product(tuple(factors)), outer.allow_simultaneous)
