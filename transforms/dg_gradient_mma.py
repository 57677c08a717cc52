"""Gradient of discontinuous-Galerkin fields on matrix units: ``out[x,e,i] = Σ_r J[x,r,e] Σ_j D[r,i,j] u[e,j]``.

On an NVIDIA H200 the sums over j take 16 of 18 operations at order 4, and the units do them at twice the vector rate of
float64, so that memory is the limit up to order 5.  Numbers of float32 are multiplied by the units for float64, exactly
but for the last rounding, or split for those of tf32, at a third of their rate, where sums are long enough for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from feinsum.rewrites import contract_first, expand_sum
from feinsum.rewrites.matrix_units import fragment_unit, split_error
from feinsum.rewrites.sub_group_tiles import multiply_in_tiles
from feinsum.rewrites.tiling import Tiling, local_bytes, steps
from feinsum.space import Choices, Configuration, Problem, space

UNITS = {
    "float64": ("fp64-mma-m16n8k4", "fp64-mma-m16n8k8"),
    "float32": ("tf32-mma-m16n8k8", "fp64-mma-m16n8k4", "fp64-mma-m16n8k8"),
}
"""By the type of all operands and outputs."""


def units(p: Problem, first: str = "") -> tuple[str, ...]:
    """The units for the type of a problem; the one with such an ending of its name ahead of the others."""
    found = UNITS.get(p.einsum.dtypes[0].name, UNITS["float64"])
    return tuple(sorted(found, key=lambda name: not (first and name.endswith(first))))


def parameters(p: Problem) -> Choices:
    """The choices of this space.

    ``unit``: the matrix unit; of the two for float64 the deeper takes half the instructions, and reads A twice as wide.
    ``staged``: whether results leave in whole rows, through local memory, or a lane at a time.
    ``tiles``: tiles of a sub-group of groups that come and go; 0 for groups that stay, `together` on a compute unit.
    ``parts``: groups that share the columns of a tile, each with its part of D in local memory.
    ``sub_groups``: of a group.
    ``prefetch``: whether the next tile is loaded before the products of the one at hand.
    """
    rows, small = p.sizes["i"], p.sizes["i"] <= 24
    # A sector of memory is 32 bytes: rows of whole sectors can leave a lane at a time, where columns are many.
    direct = rows <= 4 or (rows % (32 // p.einsum.dtypes[0].itemsize) == 0 and not small)
    return {
        "staged": (False, True) if direct else (True, False),
        "tiles": (2, 0, 4) if rows <= 4 else (0, 2, 4),
        "parts": (1, 3, 2),
        "sub_groups": (4, 8, 6, 12, 5, 10, 16) if small else (12, 8, 4, 10, 5, 6) if not direct else (8, 12, 4, 6, 10),
        "together": (1, 2, 3) if not small else (4, 3, 2, 1) if rows <= 10 else (3, 4, 2, 1),
        "prefetch": (False, True),
        "unit": units(p),
    }


def constraint(p: Problem, c: Configuration) -> str | None:
    matrices = len({row[1] for row in p.einsum.args})
    return refusal(p, c, ["j"], batch=p.count("r"), matrices=matrices, results=p.count("x"), held=p.count("xr"))


def refusal(
    p: Problem, c: Configuration, sums: Sequence[str], *, batch: int = 1, matrices: int = 1, results: int = 1, held: int = 0
) -> str | None:
    """Why tiles of 16 elements e by columns i are refused, or None.

    :param sums: the indices summed over, the last padded to whole steps.
    :param batch: products that are accumulated at a time.
    :param matrices: distinct matrices for each of them.
    :param results: numbers for each e and i that are staged at a time.
    :param held: numbers for each e that stay in registers.
    """
    if c["unit"] not in p.device.matrix_units:
        return f"{p.device.name} has no {c['unit']}"
    types = {dtype.name for dtype in (*p.einsum.dtypes, *(a.dtype for a in p.einsum.arrays))}
    if len(types) > 1 or c["unit"] not in UNITS.get(types.pop(), ()):
        return "the units multiply float64, or float32"
    if any(p.is_long(letter) for letter in p.sizes if letter != "e"):
        return "only e may be long"
    if c["staged"] and c.get("parts", 1) > 1:
        return "staged results are whole rows"
    if c["tiles"] and c["together"] > 1:
        return "groups that do not stay are as many as they are"
    return inexact(p, c, sums) or beyond_limits(p, c, [p.sizes[letter] for letter in sums], batch, matrices, results, held)


def inexact(p: Problem, c: Configuration, sums: Sequence[str]) -> str | None:
    """Why the unit may miss the bound of float32, (summands + operands - 1) u Σ |products|, or None.

    Besides the sums of the unit there are a factor and a sum over the other indices, in plain float32.
    """
    unit, indexing = fragment_unit(c["unit"]), p.einsum.indexing
    terms = p.count("".join(sums))
    summands = p.count("".join(set(p.sizes) - set(indexing.output)))
    error, allowed = split_error(unit, terms) + summands // terms, summands + len(indexing.inputs) - 1
    if unit.dtype == "float" and error > allowed:
        return f"{unit.name} may err by {error:g} roundoffs, where float32 errs by {allowed}"
    return None


def beyond_limits(
    p: Problem, c: Configuration, lengths: Sequence[int], batch: int, matrices: int, results: int, held: int
) -> str | None:
    """Why a compute unit has not the registers or the local memory, or None; see :func:`refusal`."""
    unit, itemsize = fragment_unit(c["unit"]), p.einsum.dtypes[0].itemsize
    # What a work-item needs at least, in numbers of the unit; what is held, in those of memory; and addresses.
    copies = 2 if c["prefetch"] else 1
    words = (2 if unit.dtype == "double" else 1) * (4 * batch + 2 * copies * steps(lengths, unit))
    registers = min(words + 2 * held * copies * itemsize // 4 + 32, 255)
    items, limit = 32 * c["sub_groups"] * c["together"], p.device.registers_per_compute_unit or 0
    if items * registers > limit:
        return f"{registers} registers of {items} work-items exceed the {limit} of a compute unit"
    used = local_bytes(tiling(p, c), p.sizes["i"], lengths, batch * matrices, results, itemsize)
    return p.exceeds(work_items=(32, c["sub_groups"]), local_bytes=c["together"] * (used + 1024) - 1024)


def tiling(p: Problem, c: Configuration) -> Tiling:
    """The tiling that a configuration means on a device."""
    parts = c.get("parts", 1)
    return Tiling(
        c["unit"],
        c["sub_groups"],
        groups=0 if c["tiles"] else p.device.compute_units * c["together"] // parts,
        tiles=c["tiles"],
        parts=parts,
        staged=c["staged"],
        prefetch=c["prefetch"],
        everywhere=c.get("everywhere", False),
    )


@space(pattern="xre,rij,ej->xei", version=2, parameters=parameters, constraint=constraint, rank=3)
def dg_gradient_mma(t_unit, m, p, **c):  # type: ignore[no-untyped-def]
    """A sub-group takes 16 elements at a time: D in local memory, derivatives along r in registers until J joins them."""
    metric = {row[0]: "xre" for row in m.rules}
    t_unit, m = contract_first(t_unit, m, (1, 2))
    t_unit = expand_sum(t_unit, m, ("r",))
    return multiply_in_tiles(t_unit, m, 1, "e", "i", tiling(p, c), held=metric)
