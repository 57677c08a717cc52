"""Contractions of three and more tensors on GPUs, each step in blocks: ``out = ((A B) C) D``.

A product of two operands that sums nothing need not be stored: ``Σ_i,j W[o,i,j] x[b,i] y[b,j]`` is a contraction of W with
``x[b,i] y[b,j]``, which is multiplied as its tiles are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopy import TranslationUnit

from feinsum.contraction import pairwise_schedule, with_aligned_axes
from feinsum.cost import Work, in_turn
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites import contract_first, contract_in_steps, launch_in_turn, separate_rows
from feinsum.skeletons.block_tiles import BlockChain, write_entry_by_entry
from feinsum.space import Configuration, Problem, space

from .chain_plans import chain_choices, chain_plan, nearest_block_tile, steps_of_path
from .contractions import block_contraction
from .products import is_plain_real
from .work import entry_by_entry_work


def is_chain(e: BatchedEinsum) -> bool:
    """Whether there are three or more operands."""
    return is_plain_real(e) and e.n >= 3 and bool(e.indexing.output)


def chain_work(p: Problem, c: Configuration) -> Work:
    """The work of the steps one after the other, partial results written and read again."""
    plan = chain_plan(p, c)
    return in_turn([_block_step_work(own, plan) for own in steps_of_path(p, plan.path)] * p.einsum.b)


def _block_step_work(p: Problem, plan: BlockChain) -> Work:
    own = nearest_block_tile(p, plan)
    return entry_by_entry_work(p.einsum.indexing, p.sizes, p.itemsize) if own is None else block_contraction.work(p, own)


@space(
    pattern=is_chain,
    version=1,
    rank=1,
    parameters=chain_choices,
    plan=chain_plan,
    estimate=chain_work,
    implied={"wide": False},
    epilogues=True,
)
def block_contraction_chain(t_unit: TranslationUnit, match: Match, p: Problem, plan: BlockChain) -> TranslationUnit:
    """A launch in blocks for each pairwise contraction; or one, of products that are made as they are loaded."""
    t_unit, rows = separate_rows(t_unit, match)
    t_unit = launch_in_turn(t_unit, rows)
    schedule = with_aligned_axes(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing)
    for m in rows:
        matches: Sequence[Match]
        if plan.path.pair:
            t_unit, *matches = contract_first(t_unit, m, plan.path.pair)
        else:
            t_unit, matches = contract_in_steps(t_unit, m, schedule)
        for step in matches:
            own = Problem(step.einsum, {x: p.sizes[x] for x in step.einsum.indexing.indices}, p.device)
            t_unit = transform_step(t_unit, step, own, nearest_block_tile(own, plan))
    return t_unit


def transform_step(t_unit: TranslationUnit, step: Match, own: Problem, c: Configuration | None) -> TranslationUnit:
    """Contract a step in blocks, or where it is no product of matrices entry by entry.

    :param own: the step as a problem, in the letters of its match.
    :raises TransformError: if ``block_contraction`` refuses the configuration.
    """
    if c is None:
        return write_entry_by_entry(t_unit, step, own.sizes)
    reason = block_contraction.refusal(own, c)
    if reason is not None:
        raise TransformError(f"step '{step.einsum.indexing}': '{block_contraction.name}' refuses {dict(c)}: {reason}")
    return block_contraction.apply(t_unit, step, own, c)
