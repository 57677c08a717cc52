"""Contractions of two tensors of any rank and layout on GPUs: ``C[b, m, n] = Σ_k A[b, m, k] B[b, k, n]`` in fused indices.

Tiles of A and B are loaded as the tensors lie in memory, or after they were packed, which is worth it where they are used
often.  Where C is too small for all work-groups, parts of the sum are launched like further results, and then summed.
"""

from __future__ import annotations

from collections.abc import Sequence

from feinsum.rewrites import contract_in_steps, separate_rows, split_index, spread
from feinsum.rewrites.fusion import join, side_by_side
from feinsum.rewrites.launches import launch_in_turn
from feinsum.skeletons.block_tiles.write import multiply_in_blocks
from feinsum.space import Choices, Configuration, Problem, Value, space

from .choices import SMALLEST_SHAPE, depths, joinings, packings, pipelines, shapes, splits, units
from .limits import refusal, refusal_of_device
from .products import is_product, product
from .steps import lanes, prepared
from .work import block_work, contraction

IMPLIED: dict[str, Value] = {"joined": False, "ahead": False}
"""What configurations mean that were recorded before these parameters existed."""


def parameters(p: Problem) -> Choices:
    ranked = refusal_of_device(p) is None  # else no shape is accepted, and ranking them takes 20 ms
    whole = product(p, "quick")
    first: dict[str, Sequence[Value]] = {"split": splits(whole), "packed": packings(whole), "rows": ["quick", "slow"]}
    first["joined"] = joinings(p, first) if ranked else [False]
    own = contraction(p, {name: values[0] for name, values in first.items()})
    pipeline = pipelines(p, own.count("sums") > own.depths[0])
    second: dict[str, Sequence[Value]] = {
        "unit": units(p, own.count("sums")),
        "pipeline": pipeline,
        "depth": depths(p, own, first),
        "run": own.runs,
        "ahead": [False, True] if any(name.startswith("async") for name in pipeline) else [False],
    }
    shape = shapes(own, **{name: values[0] for name, values in second.items()}) if ranked else [SMALLEST_SHAPE]
    return {**first, **second, "shape": shape}


def constraint(p: Problem, c: Configuration) -> str | None:
    reason = refusal_of_device(p)
    if reason is None and c["joined"] and not side_by_side(prepared(p, c["split"], c["packed"]).problem.einsum):
        reason = "no indices are side by side in every array"
    if reason is None:
        own = contraction(p, c)
        reason = refusal(own, own.plan(c))
    return reason


@space(
    pattern=is_product,
    version=1,
    rank=2,
    parameters=parameters,
    constraint=constraint,
    estimate=block_work,
    implied=IMPLIED,
)
def block_contraction(t_unit, match, p, **c):  # type: ignore[no-untyped-def]
    """A work-group multiplies tiles of A and B in local memory while the next are on their way; long sums in parts.

    ``joined``: whether indices that lie side by side in every array, when they are packed, become one.
    ``ahead``: whether fragments are loaded from local memory a step before they are multiplied.
    """
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
                for letters in side_by_side(step.einsum) if c["joined"] else ():
                    t_unit, step = join(t_unit, step, letters)
                t_unit = multiply_in_blocks(t_unit, step, contraction(p, c).plan(c))
            else:
                last = step.einsum.indexing.output[-1]
                t_unit = spread(t_unit, step, last, lanes(work.problem.sizes[last]), work.problem.sizes)
    return t_unit
