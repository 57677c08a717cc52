"""Contractions in vectors on CPUs: ``out[e,i] = Σ S[i,k] V[e,k] ...``, lanes along i, a tile of e in registers.

Gradient, divergence, mass, lift and face mass of discontinuous-Galerkin methods, ADER-DG, sum factorisation, batched and
plain matrix products, and pairwise tensor contractions are of this kind, in any layout of S.
"""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.match import Match
from feinsum.skeletons.vector_panels import VectorPanels, accumulator_counts, is_vectorizable, vector_widths, write
from feinsum.space import Choices, Problem, space

from .choices import Promising, promising_choices, vectors_of_a_row
from .plans import fused_problem, panel_plan, reads_rows_apart
from .work import panel_work


def parameters(p: Problem) -> Choices:
    p, _ = fused_problem(p)
    found = promising_choices(p)
    choices: Choices = {
        "path": found.paths,
        "lane": found.lanes,
        "long": found.longs,
        "panel": found.panels,
        "width": vector_widths(p.lanes, p.sizes[found.lanes[0]]),
        "vectors": vectors_of_a_row(p, found.lanes[0]),
        "together": found.together,
        "accumulators": accumulator_counts(p.device),
        "tile": found.tiles,
        "ahead": _ahead(p, found),
        "slab": (False, True),
        "rows": _output_rows(p),
        "part": found.parts,
        "streaming": (True, False) if p.device.has_clang_builtins else (False,),
    }
    return {name: values[:1] for name, values in choices.items()} if found.hopeless else choices


def _ahead(p: Problem, found: Promising) -> tuple[bool, ...]:
    """Whether to prefetch the operands of a later step: where the hardware does not foresee them."""
    if not p.device.has_clang_builtins:
        return (False,)
    apart = {long: reads_rows_apart(p, long) for long in found.longs}
    may = [apart[long] or _may_gather(p, long, lane) for long in found.longs for lane in found.lanes if long != lane]
    return (False,) if not any(may) else (True, False) if may[0] else (False, True)


def _may_gather(p: Problem, long: str, lane: str) -> bool:
    """Whether an operand has both indices, and other ones behind."""
    return any({long, lane} <= set(letters[:-1]) for letters in p.einsum.indexing.inputs)


def _output_rows(p: Problem) -> tuple[str, ...]:
    """Outputs that share a partial result are computed together, others one after the other: fewer streams of memory."""
    if p.einsum.b == 1:
        return ("together",)
    shared = p.einsum.flops(p.lengths) < p.einsum.flops(p.lengths, "pairwise")
    return ("together", "apart") if shared else ("apart", "together")


@space(
    pattern=is_vectorizable,
    version=3,
    parameters=parameters,
    plan=panel_plan,
    estimate=panel_work,
    rank=3,
    implied={"part": 0},
    epilogues=True,
    combines=lambda c: c["rows"] == "together",
)
def vector_panels(t_unit: TranslationUnit, m: Match, p: Problem, plan: VectorPanels) -> TranslationUnit:
    """S in private vectors, `together` iterations of the long index in registers, `tile` of them in a work-group.

    Partial results of a chain stay in private memory.
    """
    return write(t_unit, m, plan)
