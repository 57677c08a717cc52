"""Matrix products ``C[i,j] = Σ_k A[i,k] B[k,j]``, in every layout."""

from __future__ import annotations

from dataclasses import replace

from loopy import TranslationUnit

from feinsum.cost import Work, nest_work
from feinsum.match import Match
from feinsum.rewrites import divide, materialize, place, register_tile
from feinsum.space import Choices, Configuration, Problem, space

MOST_ACCUMULATORS = 64


def product_parameters(p: Problem) -> Choices:
    return {
        "lanes": (16, 32, 64, 8),
        "rows": (8, 4, 12, 16, 2, 1),
        "columns": (1, 2, 4),
        "depth": (4, 1, 8, 16),
        "local": ("none", "A", "B", "AB"),
    }


def product_constraint(p: Problem, c: Configuration) -> str | None:
    tile = c["rows"] * c["columns"] * p.einsum.b
    if tile > MOST_ACCUMULATORS:
        return f"{tile} accumulators are more than {MOST_ACCUMULATORS}"
    if c["local"] != "none" and p.device.broken_barriers:
        return p.device.broken_barriers
    if c["local"] != "none" and c["depth"] == 1:
        return "a tile of depth 1 is not worth the barriers"
    column = c["depth"] * p.itemsize * p.einsum.b
    kept = column * (c["rows"] * ("A" in c["local"]) + c["lanes"] * c["columns"] * ("B" in c["local"]))
    return p.exceeds(work_items=c["lanes"], local_bytes=kept, private_bytes=tile * p.itemsize)


def product_work(p: Problem, c: Configuration) -> Work:
    """A tile of rows x columns in registers divides the loads of both operands."""
    plain = p.work_of_numbers(nest_work(p.einsum.indexing, p.sizes, p.itemsize, "j", c["lanes"], times=p.einsum.b))
    tile = c["rows"] * c["columns"]
    return replace(
        plain,
        loads=plain.loads * (c["rows"] + c["columns"]) / (2 * tile),
        groups=plain.groups / tile,
        sums=tile,
        registers_bytes=tile * p.itemsize * p.einsum.b,
    )


@space(
    pattern=("ik,kj->ij", "ik,jk->ij", "ki,kj->ij", "ki,jk->ij"),
    version=1,
    parameters=product_parameters,
    constraint=product_constraint,
    estimate=product_work,
    epilogues=True,
    combines=True,
)
def matrix_product(
    t_unit: TranslationUnit, m: Match, p: Problem, *, lanes: int, rows: int, columns: int, depth: int, local: str
) -> TranslationUnit:
    """A work-item accumulates rows x columns entries of C, its columns `lanes` apart; a work-group is `lanes` wide.

    Tiles of A and B, `depth` deep, may come through local memory.
    """
    t_unit, (jt, jc, jl) = divide(t_unit, m, "j", (columns, lanes))
    t_unit, (it, ir) = divide(t_unit, m, "i", (rows,))
    t_unit, (kt, kd) = divide(t_unit, m, "k", (depth,))
    t_unit = place(t_unit, m, {it: "g.1", jt: "g.0", jl: "l.0"})
    t_unit = register_tile(t_unit, m, (ir, jc))
    if "A" in local:
        t_unit, _ = materialize(t_unit, m, 0, {"i": [ir], "k": [kd]}, "local", outer=(it, jt, kt), lanes=lanes)
    if "B" in local:
        t_unit, _ = materialize(t_unit, m, 1, {"k": [kd], "j": [jc, jl]}, "local", outer=(it, jt, kt), lanes=lanes)
    return t_unit
