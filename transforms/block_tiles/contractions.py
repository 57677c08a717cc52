"""Contractions of two tensors of any rank and layout on GPUs: ``C[b, m, n] = Σ_k A[b, m, k] B[b, k, n]`` in fused indices.

Tiles of A and B are loaded as the tensors lie in memory, or after they were packed, which pays where they are used often.
Where C is too small for all work-groups, parts of the sum are launched like further results, and then summed.
"""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.match import Match
from feinsum.rewrites import launch_in_turn, separate_rows
from feinsum.skeletons.block_tiles import BlockTiles, write
from feinsum.space import Problem, Value, space

from .choices import block_choices
from .plans import block_plan
from .products import is_product
from .work import block_work

IMPLIED: dict[str, Value] = {"joined": False, "ahead": False, "wide": False, "tilewise": False}
"""The values of these parameters in configurations recorded before they existed."""


@space(
    pattern=is_product,
    version=1,
    rank=2,
    parameters=block_choices,
    plan=block_plan,
    estimate=block_work,
    implied=IMPLIED,
    epilogues=True,
    open=("shape",),
)
def block_contraction(t_unit: TranslationUnit, match: Match, p: Problem, plan: BlockTiles) -> TranslationUnit:
    """A work-group multiplies tiles of A and B in local memory while the next are on their way; long sums in parts."""
    t_unit, rows = separate_rows(t_unit, match)
    t_unit = launch_in_turn(t_unit, rows)
    for m in rows:
        t_unit = write(t_unit, m, plan, p.sizes)
    return t_unit
