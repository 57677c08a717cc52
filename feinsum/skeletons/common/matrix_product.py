"""Sums of products seen as matrix products: ``P[.., m, n] = Σ_k A[.., m, k] B[.., k, n]``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import loopy as lp
from loopy.symbolic import Reduction, SubstitutionMapper, get_dependencies
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Call, Product, Sum

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.loops import fixed_length


@dataclass(frozen=True)
class MatrixProduct:
    """``sum(sums, a b)``, in formal names.

    :ivar rule: the substitution rule that stands for it; None for the sum of an instruction.
    :ivar a: the product of the factors with index m.
    :ivar b: the product of the others.
    :ivar formal: (index letter, its name in `a` and `b`) for every index that is not summed over, in order of the rule.
    :ivar sums: the inames summed over.
    """

    rule: str | None
    a: Any
    b: Any
    formal: tuple[tuple[str, str], ...]
    sums: tuple[str, ...]

    @property
    def names(self) -> dict[str, str]:
        """Index letter -> its name in `a` and `b`."""
        return dict(self.formal)


def matrix_product_of(
    kernel: lp.LoopKernel, match: Match, row: int, operand: int | None, m: str, n: str, last: str | None = None
) -> MatrixProduct:
    """The matrix product that an operand of a row stands for, or that its instruction is.

    Sums within its factors, over short loops, are written out.

    :param last: the index letter that is to be the last of several that an instruction sums over.
    :raises TransformError: if it is no sum of products, or a factor has both m and n.
    """
    insn = kernel.id_to_insn[match.insn_ids[row]]
    rule, body = None, insn.expression
    formal = {letter: match.loops[row][letter] for letter in (m, n)}
    if operand is not None:
        rule = match.rules[row][operand]
        letters = match.einsum.indexing.inputs[operand]
        formal = dict(zip(letters, kernel.substitutions[rule].arguments, strict=True))
        body = kernel.substitutions[rule].expression
    name = rule or insn.id
    if not isinstance(body, Reduction) or not {m, n} <= set(formal):
        raise TransformError(f"'{name}' is no sum of products with the indices '{m}' and '{n}'")
    factors = body.expr.children if isinstance(body.expr, Product) else (body.expr,)
    factors = tuple(_written_out(kernel, factor) for factor in factors)
    a = [factor for factor in factors if formal[m] in get_dependencies(factor)]
    b = [factor for factor in factors if formal[m] not in get_dependencies(factor)]
    if not a or not b or any(formal[n] in get_dependencies(factor) for factor in a):
        raise TransformError(f"'{name}' is no product of factors with '{m}' and not '{n}' and of factors without '{m}'")
    sums = sorted(body.inames, key=lambda iname: iname == match.loops[row].get(last or ""))
    return MatrixProduct(rule, _multiplied_factors(a), _multiplied_factors(b), tuple(formal.items()), tuple(sums))


def substituted(expression: Any, values: Mapping[str, Any]) -> Any:
    """`expression` with values in place of names."""
    return SubstitutionMapper(make_subst_func(dict(values)))(expression)


def _written_out(kernel: lp.LoopKernel, factor: Any) -> Any:
    """A factor whose rule is a sum over short loops, as the sum of its terms."""
    rule = kernel.substitutions.get(factor.function.name) if isinstance(factor, Call) else None
    if rule is None or not isinstance(rule.expression, Reduction):
        return factor
    sums = rule.expression.inames
    body = substituted(rule.expression.expr, dict(zip(rule.arguments, factor.parameters, strict=True)))
    points = product(*(range(fixed_length(kernel, iname)) for iname in sums))
    terms = tuple(substituted(body, dict(zip(sums, at, strict=True))) for at in points)
    return terms[0] if len(terms) == 1 else Sum(terms)


def _multiplied_factors(factors: Iterable[Any]) -> Any:
    first, *rest = factors
    return Product((first, *rest)) if rest else first
