"""Contractions of two tensors of any rank and layout on GPUs: ``C[b, m, n] = Σ_k A[b, m, k] B[b, k, n]`` in fused indices.

Tiles of A and B are loaded as the tensors lie in memory, or after they were packed, which is worth it where they are used
often.  Where C is too small for all work-groups, parts of the sum are launched like further results, and then summed.
"""

from __future__ import annotations

from collections.abc import Sequence

from feinsum.rewrites import contract_in_steps, separate_rows, split_index, spread
from feinsum.rewrites.block_tiles import multiply_in_blocks
from feinsum.rewrites.launches import launch_in_turn
from feinsum.space import Choices, Configuration, Problem, Value, space

from .block_choices import packings, pipelines, shapes, splits, units
from .block_limits import refusal
from .block_products import Product, is_product, product
from .block_steps import lanes, prepared
from .block_work import block_work


def contraction(p: Problem, c: Configuration) -> Product:
    """The contraction itself, without what comes before and after it."""
    return product(prepared(p, c["split"], c["packed"]).problem, c["rows"])


def parameters(p: Problem) -> Choices:
    whole = product(p, "quick")
    first: dict[str, Sequence[Value]] = {"split": splits(whole), "packed": packings(whole), "rows": ["quick", "slow"]}
    own = contraction(p, {name: values[0] for name, values in first.items()})
    second: dict[str, Sequence[Value]] = {
        "unit": units(p, own.count("sums")),
        "pipeline": pipelines(p, own.count("sums") > own.depths[0]),
        "depth": own.depths[:4],
        "run": own.runs,
    }
    shape = {"shape": shapes(own, **{name: values[0] for name, values in second.items()})}
    return {**first, **second, **shape}


def constraint(p: Problem, c: Configuration) -> str | None:
    own = contraction(p, c)
    return refusal(own, own.plan(c))


@space(pattern=is_product, version=1, rank=2, parameters=parameters, constraint=constraint, estimate=block_work)
def block_contraction(t_unit, match, p, **c):  # type: ignore[no-untyped-def]
    """A work-group multiplies tiles of A and B in local memory while the next are on their way; long sums in parts."""
    work = prepared(p, c["split"], c["packed"])
    t_unit, rows = separate_rows(t_unit, match)
    t_unit = launch_in_turn(t_unit, rows)
    for m in rows:
        if c["split"] != "none":
            letter, length = c["split"].split()
            t_unit, m, _ = split_index(t_unit, m, letter, int(length))
        t_unit, steps = contract_in_steps(t_unit, m, work.schedule)
        for number, step in enumerate(steps):
            if number == work.step:
                t_unit = multiply_in_blocks(t_unit, step, contraction(p, c).plan(c))
            else:
                last = step.einsum.indexing.output[-1]
                t_unit = spread(t_unit, step, last, lanes(work.problem.sizes[last]), work.problem.sizes)
    return t_unit
