"""Gradient of discontinuous-Galerkin fields: ``out[x,e,i] = Σ_r J[x,r,e] Σ_j D[r,i,j] u[e,j]`` for each element e.

J is the metric of the element, D the differentiation matrices of the reference element, u the nodal values.
"""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.cost import Work
from feinsum.match import Match
from feinsum.rewrites import contract_first, divide, materialize, place
from feinsum.space import Choices, Configuration, Problem, space


def parameters(p: Problem) -> Choices:
    return {"elements": (16, 8, 32, 64, 128), "unroll": (False, True)}


def constraint(p: Problem, c: Configuration) -> str | None:
    if p.is_long("x") or p.is_long("r"):
        return "a long axis cannot be unrolled, nor kept in registers"
    return p.exceeds(work_items=c["elements"], private_bytes=p.count("r") * p.einsum.b * p.itemsize)


def estimate(p: Problem, c: Configuration) -> Work:
    """Derivatives along r are summed once for every x; work-items of a group load the same entry of D."""
    points, items = p.count("erij") * p.einsum.b, c["elements"]
    return Work(
        flops=2 * (points + p.count("exri") * p.einsum.b),
        bytes=p.least_bytes,
        loads=2 * points * p.itemsize,
        groups=-(-p.sizes["e"] // items),
        items=items,
        registers_bytes=p.count("r") * p.itemsize,
    )


@space(
    pattern="xre,rij,ej->xei",
    version=1,
    parameters=parameters,
    constraint=constraint,
    estimate=estimate,
    epilogues=True,
    combines=True,
)
def dg_gradient(t_unit: TranslationUnit, m: Match, p: Problem, *, elements: int, unroll: bool) -> TranslationUnit:
    """A work-item for each element; for each node i the derivatives along r are summed once and serve every x."""
    t_unit, m = contract_first(t_unit, m, (1, 2))
    t_unit, (groups, lanes) = divide(t_unit, m, "e", (elements,))
    t_unit = place(t_unit, m, {groups: "g.0", lanes: "l.0", "x": "unr"})
    t_unit, _ = materialize(t_unit, m, 1, {"r": "r"}, "private", outer=(groups, lanes, "i"))
    return place(t_unit, m, {"r": "unr"}) if unroll else t_unit
