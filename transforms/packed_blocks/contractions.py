"""Contractions of two tensors of any rank and layout on CPUs: ``C[b, m, n] = Σ_k A[b, m, k] B[b, k, n]`` in fused indices.

Both operands are packed into panels that stay in a core's caches, so that it does not matter how tensors lie in memory.
"""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.match.expression_uses import find_uses
from feinsum.rewrites import launch_in_turn, separate_rows
from feinsum.skeletons.packed_blocks import PackedBlocks, write
from feinsum.space import Problem, space

from .choices import packed_choices
from .plans import packed_plan
from .products import is_packable
from .work import packed_work


@space(
    pattern=is_packable,
    version=2,
    rank=2,
    parameters=packed_choices,
    plan=packed_plan,
    estimate=packed_work,
    epilogues=True,
)
def packed_product(t_unit: TranslationUnit, match: Match, p: Problem, plan: PackedBlocks) -> TranslationUnit:
    """Panels of both operands in private memory, a tile of registers at a time; a block of the result to each group.

    Results are stored number by number, wherever they belong.  An epilogue that calls functions has a launch of its own,
    which calls them for all lanes at once, and so has one of a sum in several parts.
    """
    _refuse_functions(match)
    t_unit, rows = separate_rows(t_unit, match)
    t_unit = launch_in_turn(t_unit, rows)
    for m in rows:
        t_unit = write(t_unit, m, plan)
    return t_unit


def _refuse_functions(match: Match) -> None:
    """:raises TransformError: if what is to be made of the sums calls functions."""
    for output, finishing in match.finishing.items():
        if calls := find_uses(finishing.expression).calls:
            raise TransformError(f"'{output}' is stored number by number, and '{calls[0][0]}' would be called for each")
