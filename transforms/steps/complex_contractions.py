"""Contractions of complex numbers on CPUs, as steps of reals in vectors: ``out[i,k,p] = Σ_jq A[i,j,q] B[j,q,k,p]``.

See :mod:`feinsum.skeletons.complex_parts.write`; the real einsums are planned like those that stand alone.
"""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.einsum import BatchedEinsum
from feinsum.match import Match
from feinsum.skeletons.complex_parts import PARTS, ComplexParts, of_complex, write
from feinsum.space import Choices, Problem, space

from .choices import splits_of_complex
from .contractions import transform_step
from .plans import OWN, ComplexSteps, complex_plan
from .step_schedules import split_sums
from .work import complex_work


def has_complex_sums(e: BatchedEinsum) -> bool:
    """Whether complex numbers are multiplied and summed, no operand having all the indices of a step of two."""
    plain = all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)
    streams = e.n == 2 and any(set(letters) == set(e.indexing.indices) for letters in e.indexing.inputs)
    return plain and of_complex(e) and e.n > 1 and bool(e.indexing.summed) and bool(e.indexing.output) and not streams


def parameters(p: Problem) -> Choices:
    return {
        "split": splits_of_complex(p),
        "vectors": (OWN, 4, 2, 3, 6),
        "together": (OWN, 4, 1, 2, 6, 8, 5),
    }


@space(
    pattern=has_complex_sums,
    version=1,
    rank=2,
    parameters=parameters,
    plan=complex_plan,
    estimate=complex_work,
    epilogues=True,
)
def complex_steps(t_unit: TranslationUnit, match: Match, p: Problem, plan: ComplexSteps) -> TranslationUnit:
    """A launch that copies an operand as matrices of reals, and one of vector panels, for each pairwise contraction."""
    t_unit, match, schedule, sizes = split_sums(t_unit, match, plan.order, plan.split.parts, p.sizes)
    t_unit, steps = write(t_unit, match, ComplexParts(schedule, plan.width), sizes)
    for step in steps:
        own = {x: sizes.get(x, PARTS) for x in step.einsum.indexing.indices}
        t_unit = transform_step(t_unit, step, own, p, plan.wanted)
    return t_unit
