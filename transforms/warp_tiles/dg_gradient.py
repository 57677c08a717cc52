"""Gradient of discontinuous-Galerkin fields on matrix units: ``out[x,e,i] = Σ_r J[x,r,e] Σ_j D[r,i,j] u[e,j]``.

On an NVIDIA H200 the sums over j take 16 of 18 operations at order 4, and the units do them at twice the vector rate of
float64, so that memory is the limit up to order 5.  For float32 they do them at the vector rate, and those for tf32, with
split numbers, at 1.7 times; there local memory, from which the matrix is read for each tile, becomes the limit.
"""

from __future__ import annotations

from feinsum.cost import Work as Cost
from feinsum.rewrites import contract_first, expand_sum
from feinsum.skeletons.warp_tiles.write import multiply_in_tiles
from feinsum.space import Choices, Configuration, Problem

from .plans import Work, choices, distinct, estimate, refusal, tile_space, tiling


def work(p: Problem) -> Work:
    held, products = p.count("xr"), distinct(p, 1, 2)
    return Work((p.sizes["j"],), p.count("r"), distinct(p, 1), results=p.count("x"), held=held, products=products)


def parameters(p: Problem) -> Choices:
    return choices(p, work(p))


def constraint(p: Problem, c: Configuration) -> str | None:
    return refusal(p, c, work(p))


def cost(p: Problem, c: Configuration) -> Cost:
    return estimate(p, c, work(p))


@tile_space(pattern="xre,rij,ej->xei", parameters=parameters, constraint=constraint, estimate=cost)
def dg_gradient_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """A sub-group takes 16 elements at a time: D in local memory, derivatives along r in registers until J joins them.

    ``unit`` multiplies: one for float64, or for float32 that for tf32, offered where numbers split in two keep the bound of
    plain float32.  Groups of ``sub_groups`` stay, ``together`` on a compute unit, unless each takes ``tiles`` and goes.
    ``parts`` of the columns may be other groups' work, each with its part of D.  Results are ``staged``, to leave in whole
    rows, or leave a lane at a time.  ``prefetch`` says what of the next tile is loaded before the products of the one at
    hand: nothing, its values, or all.  Sub-groups of a scheduler may begin ``stagger`` nanoseconds one after the other, and
    fields be taken ``in_turn``, each for all elements; ``weighted`` parts have groups by their columns.
    """
    metric = {row[0]: "xre" for row in m.rules}
    t_unit, m = contract_first(t_unit, m, (1, 2))
    t_unit = expand_sum(t_unit, m, ("r",))
    return multiply_in_tiles(t_unit, m, 1, "e", "i", tiling(p, c), held=metric)
