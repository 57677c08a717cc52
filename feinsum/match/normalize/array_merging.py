"""Arrays that one sum alone reads become part of that sum.

t[e, q] = sum(r, B[q, r]*u[e, r])                ──▶   y[e, i] = sum((q, r), B[q, i]*B[q, r]*u[e, r])
y[e, i] = sum(q, B[q, i]*t[e, q])
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from loopy.symbolic import IdentityMapper
from pymbolic.primitives import Subscript, Variable

from feinsum.match.expression_uses import find_uses, flatten_product
from feinsum.match.factors import is_sum
from feinsum.match.merging import merge_sums
from feinsum.match.normalize.statements import KernelStatement, is_plain_index


def merge_statements(statements: list[KernelStatement], temporaries: set[str]) -> list[KernelStatement]:
    """Statements without those temporaries that are sums and that one sum alone reads, once, as a factor."""
    while True:
        found = _find_pair(statements, temporaries)
        if found is None:
            return statements
        inner, reader, value = found
        merged = reader.then(value, merged=(inner.insn_id, *inner.merged))
        statements = [merged if s is reader else s for s in statements if s is not inner]


def _find_pair(
    statements: list[KernelStatement], temporaries: set[str]
) -> tuple[KernelStatement, KernelStatement, Any] | None:
    reads = Counter(name for s in statements for name, _ in s.uses.reads)
    reads.update(name for s in statements for name in s.uses.values)
    writers = Counter(s.array for s in statements)
    for inner in statements:
        once = inner.array in temporaries and reads[inner.array] == 1 and writers[inner.array] == 1
        if not once or not is_sum(inner.value) or not is_plain_index(inner.at, inner.loops):
            continue
        (reader,) = (s for s in statements if inner.array in s.reads)
        value = None if inner.summed & (reader.loops | reader.summed) else _put_inner_sum(inner, reader)
        if value is not None:
            return inner, reader, value
    return None


def _put_inner_sum(inner: KernelStatement, reader: KernelStatement) -> Any:
    """The value of a statement with the sum of another in the place of what has its result; None if it is no factor."""
    for reduction in reader.uses.reductions:
        for factor in flatten_product(reduction.expr):
            name = factor.aggregate.name if isinstance(factor, Subscript) else getattr(factor, "name", None)
            if name == inner.array and is_sum(reduction):
                index = factor.index_tuple if isinstance(factor, Subscript) else ()
                names = {a.name: b for a, b in zip(inner.at, index, strict=True)}
                value = merge_sums(_Replacer(factor, _InameRenamer(names)(inner.value))(reader.value))
                return value if len(find_uses(value).reductions) == len(reader.uses.reductions) else None
    return None


class _Replacer(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    def __init__(self, old: Any, new: Any) -> None:
        super().__init__()
        self._old, self._new = old, new

    def map_subscript(self, expr: Any) -> Any:
        return self._new if expr == self._old else super().map_subscript(expr)

    def map_variable(self, expr: Any) -> Any:
        return self._new if expr == self._old else expr


class _InameRenamer(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    """Renames inames, and leaves those of reductions alone."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__()
        self._names = names

    def map_variable(self, expr: Variable) -> Any:
        return self._names.get(expr.name, expr)
