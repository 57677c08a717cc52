"""Operators of discontinuous-Galerkin methods on matrix units: gradient, mass, face mass, divergence, one derivative, and
matrices without a metric.

On an NVIDIA H200 the sums over j of a gradient take 16 of 18 operations at order 4, and the units do them at twice the
vector rate of float64, so that memory is the limit up to order 5.  For float32 they do them at the vector rate, and those
for tf32, with split numbers, at 1.7 times; there local memory, from which the matrix is read for each tile, becomes the
limit.

The axes of operands and outputs may stand in any order.  An operator is declared in three lines: the parts of its
operands, the moves that lead to a product and its results, and the call of the writer.  A warp takes 16 elements at a
time: matrices in local memory, values and sums in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopy import TranslationUnit

from feinsum.cost import Work
from feinsum.match import Match
from feinsum.rewrites import contract_first, expand_sum
from feinsum.skeletons.warp_tiles import TallProduct, WarpTiles, write
from feinsum.space import Choices, Configuration, Problem, TransformSpace, space

from .choices import IMPLIED, divergence_choices, face_mass_choices, in_layout, matrix_choices, may_fit, shared_choices
from .plans import has_registers, planned, warp_plan_of
from .tall_operators import ELEMENTS, NODES, VALUES, Operator
from .work import work_of


def dg_space(
    pattern: str | Sequence[str],
    operator: Operator,
    choices: Callable[[Problem, TallProduct], Choices] = shared_choices,
    longest: str = VALUES,
) -> Callable[[Callable[..., object]], TransformSpace]:
    """Declares the space of an operator, the transformation of which takes the plan of a configuration."""

    def plan(p: Problem, c: Configuration) -> WarpTiles:
        return warp_plan_of(p, c, operator.product(p))

    def estimate(p: Problem, c: Configuration) -> Work:
        return work_of(p, planned(p, c, operator.product(p)))

    def offered(p: Problem) -> Choices:
        product = operator.product(p)
        own = in_layout(choices(p, product), reads_rows=operator.reads_rows(p), stores_rows=operator.stores_rows(p))
        able = may_fit(p, product, own) and has_registers(p, product, own)
        return own if able else {name: tuple(values)[:1] for name, values in own.items()}

    return space(
        pattern=pattern,
        version=2,
        rank=3,
        longest=longest,
        implied=IMPLIED,
        parameters=offered,
        plan=plan,
        estimate=estimate,
        epilogues=True,
    )


def rules_of(m: Match, operand: int) -> dict[str, str]:
    """The rules that stand for an operand -> its index letters."""
    return {row[operand]: m.einsum.indexing.inputs[operand] for row in m.rules}


@dg_space("xre,rij,ej->xei", Operator(metric=0, matrix=1, field=2))
def dg_gradient_mma(t_unit: TranslationUnit, m: Match, p: Problem, plan: WarpTiles) -> TranslationUnit:
    """``out[x,e,i] = Σ_r J[x,r,e] Σ_j D[r,i,j] u[e,j]``: derivatives along r in registers until J joins them."""
    metric = rules_of(m, 0)
    t_unit, m = contract_first(t_unit, m, (1, 2))
    t_unit = expand_sum(t_unit, m, ("r",))
    return write(t_unit, m, plan, 1, ELEMENTS, NODES, held=metric)


@dg_space("re,rij,ej->ei", Operator(metric=0, matrix=1, field=2))
def dg_derivative_mma(t_unit: TranslationUnit, m: Match, p: Problem, plan: WarpTiles) -> TranslationUnit:
    """``out[e,i] = Σ_r J[r,e] Σ_j D[r,i,j] u[e,j]``: derivatives along r once for all outputs of the same u."""
    metric = rules_of(m, 0)
    t_unit, m = contract_first(t_unit, m, (1, 2))
    t_unit = expand_sum(t_unit, m, ("r",))
    return write(t_unit, m, plan, 1, ELEMENTS, NODES, held=metric)


@dg_space("e,ij,ej->ei", Operator(metric=0, matrix=1, field=2))
def dg_mass_mma(t_unit: TranslationUnit, m: Match, p: Problem, plan: WarpTiles) -> TranslationUnit:
    """``out[e,i] = J[e] Σ_j M[i,j] u[e,j]``: the product first, scaled where its results lie."""
    metric = rules_of(m, 0)
    t_unit, m = contract_first(t_unit, m, (1, 2))
    return write(t_unit, m, plan, 1, ELEMENTS, NODES, held=metric)


@dg_space("ifj,fe,fej->ei", Operator(metric=1, matrix=0, field=2, metric_first=True), face_mass_choices)
def dg_face_mass_mma(t_unit: TranslationUnit, m: Match, p: Problem, plan: WarpTiles) -> TranslationUnit:
    """``out[e,i] = Σ_f,j R[i,f,j] (J[f,e] v[f,e,j])``: values on faces are scaled as they are loaded."""
    return write(t_unit, m, plan, None, ELEMENTS, NODES, held=rules_of(m, 1), last=VALUES)


@dg_space("xre,rij,xej->ei", Operator(metric=0, matrix=1, field=2, metric_first=True), divergence_choices)
def dg_divergence_mma(t_unit: TranslationUnit, m: Match, p: Problem, plan: WarpTiles) -> TranslationUnit:
    """``out[e,i] = Σ_r,j D[r,i,j] (Σ_x J[x,r,e] u[x,e,j])``: u is turned to the reference element as it is loaded.

    Slices of the sum over j go one after the other where registers have no room for all values of an element.
    """
    metric = rules_of(m, 0)
    t_unit, m = contract_first(t_unit, m, (0, 2))
    return write(t_unit, m, plan, None, ELEMENTS, NODES, held=metric, last=VALUES)


@dg_space(
    ("ij,ej->ei", "rij,ej->rei", "rij,rej->rei", "ij,rej->rei", "rij,rej->ei"),
    Operator(metric=None, matrix=0, field=1),
    matrix_choices,
    longest=ELEMENTS,
)
def dg_matrix_mma(t_unit: TranslationUnit, m: Match, p: Problem, plan: WarpTiles) -> TranslationUnit:
    """``out[r,e,i] = Σ_j D[r,i,j] u[r,e,j]`` with r in D, u or both, or summed: lifting, interpolation, modes to nodes."""
    t_unit, m = contract_first(t_unit, m, (0, 1))
    return write(t_unit, m, plan, 0, ELEMENTS, NODES, last=VALUES)
