"""The choices of fused chains that are worth trying for a problem, the best guess first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice, product
from typing import Any

from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.space import Choices, Configuration, Problem, Value

from .orders import contraction_orders
from .plans import NO_UNIT, block_letters, chain_plan_of, chain_units

INTENSE = 50
"""Operations for each number of the operands and the output, above which matrix units are the first guess (by hand)."""


MOST_REFUSED = 400
"""Configurations of best guesses that are looked at before leaner ones come first: a fifth of a millisecond each."""


def parameters(p: Problem) -> Choices:
    """The choices of every parameter, the best guess first that a work-group can hold."""
    return _cached_parameters(p.einsum, tuple(p.sizes.items()), p.device)


@lru_cache(maxsize=256)
def _cached_parameters(e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile) -> Choices:
    """Asked for with every configuration."""
    p = Problem(e, dict(sizes), device)
    heavy = bool(chain_units(p)) and _operations_of_a_number(p) > INTENSE
    best: dict[str, Any] = {
        "order": contraction_orders(p.einsum, tuple(p.sizes.items()), block_letters(p)),
        "unit": (*chain_units(p), NO_UNIT) if heavy else (NO_UNIT, *chain_units(p)),
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
    if not heavy and _lie_side_by_side(p):
        best |= {"elements": (16, 8, 6, 4, 3, 2, 1), "copy": ("needed", "all")}
    first: Choices = {name: values[:1] for name, values in best.items()}
    if _leanest(p, best, NO_UNIT, 1) is None:
        return first
    if not p.device.local_memory_is_dedicated:
        # Work-items do better alone there, so few configurations are worth a trial.
        return {**first, "unit": (NO_UNIT,), "elements": (3, 1), "together": (3, 1)}
    # Otherwise a search for the first accepted one would go through thousands that differ in everything else.
    fitting = {pair: lean for pair in product(best["unit"], best["elements"]) if (lean := _leanest(p, best, *pair))}
    found = {"unit": {unit for unit, _ in fitting}, "elements": {elements for _, elements in fitting}}
    best |= {name: [x for x in best[name] if x in own] for name, own in found.items()}
    if not _is_found_soon(p, best):
        first = next(iter(fitting.values()))
        best = {name: (first[name], *(x for x in values if x != first[name])) for name, values in best.items()}
    return best


def _is_found_soon(p: Problem, choices: Choices) -> bool:
    """Whether one of the first configurations is accepted."""
    points = islice(product(*choices.values()), MOST_REFUSED)
    return any(_has_plan(p, dict(zip(choices, values, strict=True))) for values in points)


def _leanest(p: Problem, choices: Mapping[str, Any], unit: Value, elements: int) -> Configuration | None:
    """A configuration by which a work-group can hold so many elements: the least in local memory, small or large tiles."""
    lean: dict[str, Value] = {"unit": unit, "elements": elements, "turns": choices["turns"][-1], "stay": 0}
    lean |= {"copy": "needed", **dict.fromkeys(("staged", "prefetch", "early", "chained"), False)}
    tiles = (1, min(choices["across"])), (max(n for n in choices["together"] if elements % n == 0), max(choices["across"]))
    ways = product(choices["order"], tiles if elements != 1 or unit != NO_UNIT else tiles[:1])
    every = ({**lean, "order": o, "together": n, "across": m} for o, (n, m) in ways)
    return next((c for c in every if _has_plan(p, c)), None)


def _lie_side_by_side(p: Problem) -> bool:
    """Whether some operand has its elements side by side, of which a group reads a run for each other index.

    With 16 an einsum took 0.52 to 0.6 of the time that 2, 3 or 4 took on an H200, and copies of such operands took up to
    2.8 times as long as reading them where they are needed (benchmarks/jobs/cost-model-gpu-steps.toml, 2026-11-24).
    """
    longest = block_letters(p)[0]
    return any(len(term) > 1 and term[-1] == longest for term in p.einsum.indexing.inputs)


def _operations_of_a_number(p: Problem) -> float:
    return p.itemsize * p.einsum.flops(p.lengths) / p.least_bytes


def _has_plan(p: Problem, c: Configuration) -> bool:
    try:
        chain_plan_of(p, c)
    except TransformError:
        return False
    return True
