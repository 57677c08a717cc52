"""Contractions of three and more tensors on GPUs, each step in blocks: ``out = ((A B) C) D``.

A product of two operands that sums nothing need not be stored: ``Σ_i,j W[o,i,j] x[b,i] y[b,j]`` is a contraction of W with
``x[b,i] y[b,j]``, which is multiplied as its tiles are loaded.
"""

from __future__ import annotations

from itertools import combinations, islice

from feinsum.contraction import pairwise_schedule
from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import contract_first, contract_in_steps, separate_rows, spread
from feinsum.rewrites.launches import launch_in_turn
from feinsum.space import Choices, Configuration, Problem, space

from .block_contraction import block_contraction
from .block_limits import refusal_of_device
from .block_products import is_plain, is_product
from .block_steps import alone, lanes
from .contraction_steps import aligned


def is_chain(e: BatchedEinsum) -> bool:
    """Whether there are three or more operands."""
    return is_plain(e) and e.n >= 3 and bool(e.indexing.output)


def joined(p: Problem, pair: tuple[int, ...]) -> Problem | None:
    """The contraction of the third operand with the product of two, if nothing is summed in that product."""
    inputs, output = p.einsum.indexing.inputs, p.einsum.indexing.output
    (rest,) = (inputs[k] for k in range(3) if k not in pair)
    both = "".join(dict.fromkeys(inputs[pair[0]] + inputs[pair[1]]))
    if not set(both) <= set(output + rest):
        return None
    own = alone(p, (rest, both), output, p.sizes)
    return own if is_product(own.einsum) else None


def paths(p: Problem) -> list[str]:
    """``"steps"`` of two operands at a time, or two operands of three multiplied as they are loaded: ``"0 2"``."""
    pairs = combinations(range(3), 2) if p.einsum.n == 3 else ()
    return [*(f"{a} {b}" for a, b in pairs if joined(p, (a, b)) is not None), "steps"]


def parameters(p: Problem) -> Choices:
    return {"path": paths(p), "shape": tuple(range(5)), "pipeline": ("async 3", "registers 2")}


def constraint(p: Problem, c: Configuration) -> str | None:
    computed = c["path"] != "steps" or any(len(entry) > 1 for row in p.einsum.args for entry in row)
    if computed and c["pipeline"].startswith("async"):
        return "what is computed while it is loaded passes through registers"
    return refusal_of_device(p)


def nearest(p: Problem, shape: int, pipeline: str) -> Configuration | None:
    """An accepted configuration of a step: its `shape`-th best guess of blocks, with the pipeline if it has such."""
    if not is_product(p.einsum):
        return None
    wanted = (c for c in block_contraction.configurations(p) if c["pipeline"] == pipeline)
    first = next(wanted, None)
    if first is None:
        return next(block_contraction.configurations(p), None)
    alike = (c for c in wanted if all(c[x] == first[x] for x in first if x != "shape"))
    return next(islice(alike, max(0, shape - 1), None), first) if shape else first


@space(pattern=is_chain, version=1, parameters=parameters, constraint=constraint, rank=1)
def block_contraction_chain(t_unit, match, p, *, path, shape, pipeline):  # type: ignore[no-untyped-def]
    """A launch in blocks for each pairwise contraction; or one, of products that are made as they are loaded."""
    t_unit, rows = separate_rows(t_unit, match)
    t_unit = launch_in_turn(t_unit, rows)
    schedule = aligned(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing)
    for m in rows:
        if path == "steps":
            t_unit, steps = contract_in_steps(t_unit, m, schedule)
        else:
            t_unit, joint = contract_first(t_unit, m, tuple(map(int, path.split())))
            steps = (joint,)
        for step in steps:
            own = Problem(step.einsum, {x: p.sizes[x] for x in step.einsum.indexing.indices}, p.device)
            c = nearest(own, shape, pipeline)
            if c is None:
                last = step.einsum.indexing.output[-1]
                t_unit = spread(t_unit, step, last, lanes(own.sizes[last]), own.sizes)
            else:
                t_unit = block_contraction.function(t_unit, step, own, **c)
    return t_unit
