"""Plans of chains of contractions in blocks: what the steps are, and which blocks each of them gets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, islice, product

from feinsum.contraction import aligned, pairwise_schedule
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.space import Configuration, Problem

from .contractions import block_contraction
from .products import is_product
from .steps import alone

TOGETHER = "steps"
"""The path of two operands at a time."""


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
    return [*(f"{a} {b}" for a, b in pairs if joined(p, (a, b)) is not None), TOGETHER]


def steps(p: Problem, path: str) -> Iterator[Problem]:
    """The contractions of a path, one after the other."""
    if path != TOGETHER:
        own = joined(p, tuple(map(int, path.split())))
        if own is not None:
            yield own
        return
    for step in aligned(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing).steps:
        sizes = {x: p.sizes[x] for x in step.indexing.indices}
        yield alone(p, step.indexing.inputs, step.indexing.output, sizes)


def nearest(p: Problem, shape: int, pipeline: str) -> Configuration | None:
    """An accepted configuration of a step: its `shape`-th best guess of blocks, with the pipeline if it has such."""
    return _nearest(p.einsum, tuple(p.sizes.items()), p.device, shape, pipeline) if is_product(p.einsum) else None


@lru_cache(maxsize=512)
def _nearest(
    e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile, shape: int, pipeline: str
) -> Configuration | None:
    p = Problem(e, dict(sizes), device)
    choices = block_contraction.parameters(p)
    if pipeline not in choices["pipeline"]:
        return next(block_contraction.configurations(p), None)
    every = (dict(zip(choices, values, strict=True)) for values in product(*{**choices, "pipeline": (pipeline,)}.values()))
    wanted = (c for c in every if block_contraction.constraint(p, c) is None)
    first = next(wanted, None)
    if first is None:
        return next(block_contraction.configurations(p), None)
    alike = (c for c in wanted if all(c[x] == first[x] for x in first if x != "shape"))
    return next(islice(alike, max(0, shape - 1), None), first) if shape else first
