"""Other operators of discontinuous-Galerkin methods on matrix units: mass, face mass, divergence, one derivative.

All multiply a small matrix by what is made of the nodal values of an element e; they differ in where the metric joins.
Their parameters are those of ``dg_gradient_mma``; ``everywhere`` of the face mass says whether values beyond the last
element and node are computed, from the last there are, rather than on a condition.
"""

from __future__ import annotations

from collections.abc import Callable

from feinsum.cost import Work as Cost
from feinsum.rewrites import contract_first, expand_sum
from feinsum.skeletons.nvidia.matrix_units import DEPTH
from feinsum.skeletons.warp_tiles.write import multiply_in_tiles
from feinsum.space import Choices, Configuration, Problem, Value

from .plans import LONG, SHORT, SPLIT, Work, choices, distinct, estimate, refusal, tile_space, tiling


def _copies_last(own: Choices) -> tuple[Value, ...]:
    """Of the choices of ``prefetch`` those that values have which are computed from what is loaded."""
    return tuple(choice for choice in ("none", "copies") if choice in own["prefetch"])


def _constraint(work: Callable[[Problem], Work]) -> Callable[[Problem, Configuration], str | None]:
    return lambda p, c: refusal(p, c, work(p))


def _estimate(work: Callable[[Problem], Work]) -> Callable[[Problem, Configuration], Cost]:
    return lambda p, c: estimate(p, c, work(p))


def _parameters(work: Callable[[Problem], Work]) -> Callable[[Problem], Choices]:
    return lambda p: choices(p, work(p))


def mass_work(p: Problem) -> Work:
    return Work((p.sizes["j"],), matrices=distinct(p, 1), held=distinct(p, 0), products=distinct(p, 1, 2))


@tile_space(
    pattern="e,ij,ej->ei",
    parameters=_parameters(mass_work),
    constraint=_constraint(mass_work),
    estimate=_estimate(mass_work),
)
def dg_mass_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """``out[e,i] = J[e] Σ_j M[i,j] u[e,j]``: the product first, scaled where its results lie."""
    held = {row[0]: "e" for row in m.rules}
    t_unit, m = contract_first(t_unit, m, (1, 2))
    return multiply_in_tiles(t_unit, m, 1, "e", "i", tiling(p, c), held=held)


def lift_work(p: Problem) -> Work:
    faces = p.count("f")
    sums, held = (p.sizes["f"], p.sizes["j"]), distinct(p, 1) * faces
    return Work(sums, matrices=distinct(p, 0), held=held, planes=faces, products=distinct(p, 0, 1, 2))


def lift_parameters(p: Problem) -> Choices:
    """``everywhere``: whether scaled values are computed beyond the last element too, rather than on a condition."""
    few, many = p.sizes["i"] <= 4, p.count("fj") > 40
    own = choices(p, lift_work(p), (SPLIT, LONG, SHORT) if many else (SHORT, LONG, SPLIT))
    tiles = (2, 4, 0) if few else own["tiles"]
    everywhere = (False, True) if few else (True, False)
    return {**own, "tiles": tiles, "prefetch": _copies_last(own), "everywhere": everywhere}


@tile_space(
    pattern="ifj,fe,fej->ei",
    parameters=lift_parameters,
    constraint=_constraint(lift_work),
    estimate=_estimate(lift_work),
)
def dg_face_mass_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """``out[e,i] = Σ_f,j R[i,f,j] (J[f,e] v[f,e,j])``: values on faces are scaled as they are loaded."""
    held = {row[1]: "fe" for row in m.rules}
    return multiply_in_tiles(t_unit, m, None, "e", "i", tiling(p, c), held=held)


def divergence_work(p: Problem) -> Work:
    held = distinct(p, 0) * p.count("xr")
    sums, products = (p.sizes["r"], p.sizes["j"]), distinct(p, 0, 1, 2)
    return Work(sums, matrices=distinct(p, 1), held=held, planes=p.count("x"), products=products)


def divergence_parameters(p: Problem) -> Choices:
    """``slices``: of the sum over j, of which each is multiplied for all r, so that u is loaded once."""
    steps, many = -(-p.sizes["j"] // DEPTH), p.count("rj") > 200
    # Three steps of each are the most that registers have room for, beside the sums of all columns.
    slices = sorted({-(-steps // length) for length in range(2, 8)}, key=lambda n: abs(-(-steps // n) - 3))
    own = {**choices(p, divergence_work(p)), "slices": (*slices, 1) if many else (1, *slices) if steps > 8 else (1,)}
    known = (*_copies_last(own), *(("copies and held",) if "copies" in own["prefetch"] else ()))
    return {**own, "prefetch": known if steps < 20 else known[::-1]}


@tile_space(
    pattern="xre,rij,xej->ei",
    parameters=divergence_parameters,
    constraint=_constraint(divergence_work),
    estimate=_estimate(divergence_work),
)
def dg_divergence_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """``out[e,i] = Σ_r,j D[r,i,j] (Σ_x J[x,r,e] u[x,e,j])``: u is turned to the reference element as it is loaded.

    ``slices`` of the sum over j go one after the other where registers have no room for all values of an element.
    """
    held = {row[0]: "xre" for row in m.rules}
    t_unit, m = contract_first(t_unit, m, (0, 2))
    return multiply_in_tiles(t_unit, m, None, "e", "i", tiling(p, c), held=held)


def derivative_work(p: Problem) -> Work:
    held = distinct(p, 0) * p.count("r")
    products = distinct(p, 1, 2)
    most = -(-p.einsum.b // products)
    return Work((p.sizes["j"],), p.count("r"), distinct(p, 1), results=most, held=held, products=products)


@tile_space(
    pattern="re,rij,ej->ei",
    parameters=_parameters(derivative_work),
    constraint=_constraint(derivative_work),
    estimate=_estimate(derivative_work),
)
def dg_derivative_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """``out[e,i] = Σ_r J[r,e] Σ_j D[r,i,j] u[e,j]``: derivatives along r once for all outputs of the same u."""
    held = {row[0]: "re" for row in m.rules}
    t_unit, m = contract_first(t_unit, m, (1, 2))
    t_unit = expand_sum(t_unit, m, ("r",))
    return multiply_in_tiles(t_unit, m, 1, "e", "i", tiling(p, c), held=held)
