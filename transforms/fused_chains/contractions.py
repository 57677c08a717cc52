"""Chains of contractions with small operands on GPUs: ``out[e,a,b,c] = Σ_k C[c,k] Σ_j B[b,j] Σ_i A[a,i] u[e,i,j,k]``.

Sum factorisation of spectral elements, ADER-DG volumes and fluxes, derivatives along an axis, and other einsums that have
one long index and are contracted pair by pair: the partial results of a few elements fit in local memory.
"""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.match import Match
from feinsum.skeletons.fused_chains import FusedChain, write
from feinsum.space import Problem, space

from .choices import parameters
from .plans import chain_plan_of, is_stepwise
from .work import chain_cost


@space(
    pattern=is_stepwise, version=1, rank=1, parameters=parameters, plan=chain_plan_of, estimate=chain_cost, epilogues=True
)
def work_group_steps(t_unit: TranslationUnit, match: Match, p: Problem, plan: FusedChain) -> TranslationUnit:
    """A work-group contracts `elements` of the long index step by step in local memory, a barrier between steps.

    A work-item computes `across` entries along a small operand by `together` elements at a time in registers.
    """
    return write(t_unit, match, plan)
