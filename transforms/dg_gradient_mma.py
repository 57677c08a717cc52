"""Gradient of discontinuous-Galerkin fields on fp64 matrix units: ``out[x,e,i] = Σ_r J[x,r,e] Σ_j D[r,i,j] u[e,j]``.

On an NVIDIA H200 the sums over j take 16 of 18 operations at order 4, and the units do them at twice the vector rate,
so that memory is the limit up to order 5.
"""

from __future__ import annotations

from feinsum.rewrites import contract_first, expand_sum
from feinsum.rewrites.sub_group_tiles import multiply_in_tiles
from feinsum.rewrites.tiling import Tiling, local_bytes
from feinsum.space import Choices, Configuration, Problem, space

UNITS = {4: "fp64-mma-m16n8k4", 8: "fp64-mma-m16n8k8"}
"""By the depth of one instruction."""


def parameters(p: Problem) -> Choices:
    rows, small = p.sizes["i"], p.sizes["i"] <= 24
    # A sector of memory is 32 bytes: rows of whole sectors can leave a lane at a time, where columns are many.
    direct = rows % 4 == 0 and not (4 < rows <= 24)
    return {
        "staged": (False, True) if direct else (True, False),
        "tiles": (2, 0, 4) if rows <= 4 else (0, 2, 4),
        "parts": (1, 3, 2),
        "sub_groups": (4, 8, 6, 12, 5, 10, 16) if small else (12, 8, 4, 10, 5, 6) if not direct else (8, 12, 4, 6, 10),
        "together": (1, 2, 3) if not small else (4, 3, 2, 1) if rows <= 10 else (3, 4, 2, 1),
        "prefetch": (False, True),
        "depth": (4, 8),
    }


def constraint(p: Problem, c: Configuration) -> str | None:
    if UNITS[c["depth"]] not in p.device.matrix_units:
        return f"{p.device.name} has no {UNITS[c['depth']]}"
    if any(dtype.name != "float64" for dtype in (*p.einsum.dtypes, *(a.dtype for a in p.einsum.arrays))):
        return "the units multiply float64"
    if any(p.is_long(letter) for letter in "xrij"):
        return "only e may be long"
    if c["staged"] and c["parts"] > 1:
        return "staged results are whole rows"
    if c["tiles"] and c["together"] > 1:
        return "groups that do not stay are as many as they are"
    return _exceeds(p, c)


def _exceeds(p: Problem, c: Configuration) -> str | None:
    """Why a compute unit does not hold the groups that are to be there together."""
    items, registers = 32 * c["sub_groups"] * c["together"], min(_registers(p, c), 255)
    limit = p.device.registers_per_compute_unit or 0
    if items * registers > limit:
        return f"{registers} registers of {items} work-items exceed the {limit} of a compute unit"
    matrices = p.count("r") * len({row[1] for row in p.einsum.args})
    used = local_bytes(_tiling(p, c), p.sizes["i"], [p.sizes["j"]], matrices, p.count("x"))
    return p.exceeds(work_items=(32, c["sub_groups"]), local_bytes=c["together"] * (used + 1024) - 1024)


def _registers(p: Problem, c: Configuration) -> int:
    """What a work-item needs at least, two for each float64: accumulators, operands, metric; and addresses."""
    loaded = 2 * -(-p.sizes["j"] // 4) + 2 * p.count("xr")
    return 2 * (4 * p.count("r") + loaded * (2 if c["prefetch"] else 1)) + 32


def _tiling(p: Problem, c: Configuration) -> Tiling:
    return Tiling(
        UNITS[c["depth"]],
        c["sub_groups"],
        groups=0 if c["tiles"] else p.device.compute_units * c["together"] // c["parts"],
        tiles=c["tiles"],
        parts=c["parts"],
        staged=c["staged"],
        prefetch=c["prefetch"],
    )


@space(pattern="xre,rij,ej->xei", version=1, parameters=parameters, constraint=constraint, rank=3)
def dg_gradient_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """A sub-group takes 16 elements at a time: D in local memory, derivatives along r in registers until J joins them."""
    metric = {row[0]: "xre" for row in m.rules}
    t_unit, m = contract_first(t_unit, m, (1, 2))
    t_unit = expand_sum(t_unit, m, ("r",))
    return multiply_in_tiles(t_unit, m, 1, "e", "i", _tiling(p, c), held=metric)
