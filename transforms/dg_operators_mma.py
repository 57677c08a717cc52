"""Other operators of discontinuous-Galerkin methods on matrix units: mass, face mass, divergence, one derivative.

All multiply a small matrix by what is made of the nodal values of an element e; they differ in where the metric joins.
"""

from __future__ import annotations

from feinsum.rewrites import contract_first, expand_sum
from feinsum.rewrites.sub_group_tiles import multiply_in_tiles
from feinsum.space import Choices, Configuration, Problem, space

from .dg_gradient_mma import refusal, tiling, units


def parameters(p: Problem) -> Choices:
    """The choices that these spaces share; :func:`.dg_gradient_mma.parameters` explains them."""
    small = p.sizes["i"] <= 24
    return {
        "staged": (True, False),
        "tiles": (0, 2, 4) if p.sizes["i"] > 4 else (2, 0, 4),
        "sub_groups": (4, 8, 6, 12, 5, 16) if small else (12, 8, 4, 10, 6),
        "together": (4, 3, 2, 5, 1) if small else (1, 2, 3),
        "prefetch": (False, True),
        "unit": units(p),
    }


def lift_parameters(p: Problem) -> Choices:
    """``everywhere``: whether scaled values are computed beyond the last element too, rather than on a condition."""
    large = p.count("fj") > 40
    first = {"sub_groups": (4, 8, 12, 6), "together": (3, 2, 1, 4), "unit": units(p, "k8")} if large else {}
    return {**parameters(p), **first, "everywhere": (True, False) if p.sizes["i"] > 4 else (False, True)}


def _distinct(p: Problem, operand: int) -> int:
    return len({row[operand] for row in p.einsum.args})


def mass_constraint(p: Problem, c: Configuration) -> str | None:
    return refusal(p, c, ["j"], matrices=_distinct(p, 1), held=_distinct(p, 0))


@space(pattern="e,ij,ej->ei", version=2, parameters=parameters, constraint=mass_constraint, rank=3)
def dg_mass_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """``out[e,i] = J[e] Σ_j M[i,j] u[e,j]``: the product first, scaled where its results lie."""
    held = {row[0]: "e" for row in m.rules}
    t_unit, m = contract_first(t_unit, m, (1, 2))
    return multiply_in_tiles(t_unit, m, 1, "e", "i", tiling(p, c), held=held)


def lift_constraint(p: Problem, c: Configuration) -> str | None:
    return refusal(p, c, ["f", "j"], matrices=_distinct(p, 0), held=_distinct(p, 1) * p.count("f"))


@space(pattern="ifj,fe,fej->ei", version=2, parameters=lift_parameters, constraint=lift_constraint, rank=3)
def dg_face_mass_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """``out[e,i] = Σ_f,j R[i,f,j] (J[f,e] v[f,e,j])``: values on faces are scaled as they are loaded."""
    held = {row[1]: "fe" for row in m.rules}
    return multiply_in_tiles(t_unit, m, None, "e", "i", tiling(p, c), held=held)


def divergence_constraint(p: Problem, c: Configuration) -> str | None:
    return refusal(p, c, ["r", "j"], matrices=_distinct(p, 1), held=_distinct(p, 0) * p.count("xr"))


@space(pattern="xre,rij,xej->ei", version=2, parameters=parameters, constraint=divergence_constraint, rank=3)
def dg_divergence_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """``out[e,i] = Σ_r,j D[r,i,j] (Σ_x J[x,r,e] u[x,e,j])``: u is turned to the reference element as it is loaded."""
    held = {row[0]: "xre" for row in m.rules}
    t_unit, m = contract_first(t_unit, m, (0, 2))
    return multiply_in_tiles(t_unit, m, None, "e", "i", tiling(p, c), held=held)


def derivative_constraint(p: Problem, c: Configuration) -> str | None:
    held = _distinct(p, 0) * p.count("r")
    products = len({row[1:] for row in p.einsum.args})
    most = -(-p.einsum.b // products)
    return refusal(p, c, ["j"], batch=p.count("r"), matrices=_distinct(p, 1), results=most, held=held)


@space(pattern="re,rij,ej->ei", version=2, parameters=parameters, constraint=derivative_constraint, rank=3)
def dg_derivative_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """``out[e,i] = Σ_r J[r,e] Σ_j D[r,i,j] u[e,j]``: derivatives along r once for all outputs of the same u."""
    held = {row[0]: "re" for row in m.rules}
    t_unit, m = contract_first(t_unit, m, (1, 2))
    t_unit = expand_sum(t_unit, m, ("r",))
    return multiply_in_tiles(t_unit, m, 1, "e", "i", tiling(p, c), held=held)
