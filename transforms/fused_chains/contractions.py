"""Chains of contractions with small operands on GPUs: ``out[e,a,b,c] = Σ_k C[c,k] Σ_j B[b,j] Σ_i A[a,i] u[e,i,j,k]``.

Sum factorisation of spectral elements, ADER-DG volumes and fluxes, derivatives along an axis, and whatever has one long
index and is contracted pair by pair: what lies between two contractions of a few elements fits in local memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from feinsum.skeletons.fused_chains.write import contract_in_groups
from feinsum.space import Choices, Problem, Value, space

from .limits import refusal, units
from .orders import orders
from .planning import NO_UNIT, block_letters, is_stepwise, plan_of
from .work import group_work

INTENSE = 50
"""Operations for each number of the operands and the output, above which matrix units are the first guess."""


def parameters(p: Problem) -> Choices:
    """The choices of this space.

    ``order``: of the contractions, see :func:`feinsum.transforms.fused_chains.orders.orders`.
    ``unit``: the matrix unit for steps with a small operand, or none.
    ``elements``: of the long index, in a work-group; ``together``: of them, in a work-item.
    ``across``: entries of a result along a small operand in a work-item; on a unit, in a sub-group.
    ``turns``: tiles that a work-item computes one after the other, which makes the number of work-items.
    ``copy``: whether operands are copied to local memory only where work-items share them, or all.
    ``staged``: whether results leave through local memory.
    ``stay``: groups of a compute unit that stay for the whole kernel; 0 for groups that come and go.
    ``prefetch``: whether these load what they need for the next block during a block.
    ``early``: whether operands that are not copied are loaded before the first step.
    ``chained``: whether a result stays in registers where the next step sums over what a work-item has of it.
    """
    heavy = bool(units(p)) and _operations_of_a_number(p) > INTENSE
    best: dict[str, Any] = {
        "order": orders(p.einsum, tuple(p.sizes.items()), block_letters(p)),
        "unit": (*units(p), NO_UNIT) if heavy else (NO_UNIT, *units(p)),
        "elements": (8, 7, 6, 4, 16, 14, 2, 1) if heavy else (3, 4, 2, 8, 6, 1, 16),
        "together": (2, 1, 4) if heavy else (3, 4, 2, 1),
        "across": (56, 24, 16) if heavy else (16, 24, 5),
        "turns": (2, 1, 4) if heavy else (1, 2, 3),
        "copy": ("needed", "all") if heavy else ("all", "needed"),
        "staged": (True, False) if heavy else (False, True),
        "stay": (1, 2, 0) if heavy else (0, 2),
        "prefetch": (True, False) if heavy else (False, True),
        "early": (False, True),
        "chained": (False, True),
    }
    first: Choices = {name: values[:1] for name, values in best.items()}
    if not _fits(p, best, NO_UNIT, 1):
        return first
    if not p.device.local_memory_is_dedicated:
        # Work-items do better alone there, so few configurations are worth a trial.
        return {**first, "unit": (NO_UNIT,), "elements": (3, 1), "together": (3, 1)}
    # Otherwise whoever looks for the first that is accepted would go through thousands that differ in everything else.
    fitting = [pair for pair in product(best["unit"], best["elements"]) if _fits(p, best, *pair)]
    found = {"unit": [unit for unit, _ in fitting], "elements": {elements for _, elements in fitting}}
    return {**best, **{name: [x for x in best[name] if x in own] for name, own in found.items()}}


def _fits(p: Problem, choices: Mapping[str, Any], unit: Value, elements: int) -> bool:
    """Whether a work-group can hold so many elements at all: with the least in local memory, in small and large tiles."""
    lean: dict[str, Value] = {"unit": unit, "elements": elements, "turns": choices["turns"][-1], "stay": 0}
    lean |= {"copy": "needed", **dict.fromkeys(("staged", "prefetch", "early", "chained"), False)}
    tiles = (1, min(choices["across"])), (max(n for n in choices["together"] if elements % n == 0), max(choices["across"]))
    ways = product(choices["order"], tiles if elements != 1 or unit != NO_UNIT else tiles[:1])
    return any(refusal(p, {**lean, "order": o, "together": n, "across": m}) is None for o, (n, m) in ways)


def _operations_of_a_number(p: Problem) -> float:
    return p.itemsize * p.einsum.flops(p.lengths) / p.einsum.min_bytes(p.lengths)


@space(pattern=is_stepwise, version=1, rank=1, parameters=parameters, constraint=refusal, estimate=group_work)
def work_group_steps(t_unit, match, p, **c):  # type: ignore[no-untyped-def]
    """A work-group contracts `elements` of the long index step by step in local memory, a barrier between steps.

    A work-item computes `across` entries along a small operand by `together` elements at a time in registers.
    """
    return contract_in_groups(t_unit, match, plan_of(p, c))
