"""Plans of chains of contractions by block tiles: the steps, and the block tile of each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, islice, product

from feinsum.contraction import pairwise_schedule, with_aligned_axes
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.skeletons.block_tiles import BlockChain, ChainPath, TilePipeline
from feinsum.space import Choices, Configuration, Problem

from .choices import counted_choices
from .contractions import block_contraction
from .plans import refusal_of_device
from .products import is_product, plain_contraction

GUESSES = range(5)
"""The guesses of a block tile that are offered; chosen by hand."""


def chain_choices(p: Problem) -> Choices:
    """The choices of ``block_contraction_chain``."""
    pipelines = (TilePipeline(True, 3), TilePipeline(False, 2))
    return {
        "path": [str(path) for path in paths(p)],
        "shape": tuple(GUESSES),
        "pipeline": [str(x) for x in pipelines],
        "wide": [True, False],
    }


def chain_plan(p: Problem, c: Configuration) -> BlockChain:
    """The plan of a configuration of ``block_contraction_chain``.

    :raises TransformError: if the device gains nothing from blocks, or operands are computed and should be copied past the
        registers.
    """
    plan = BlockChain(ChainPath.parse(c["path"]), c["shape"], TilePipeline.parse(c["pipeline"]), c["wide"])
    if plan.pipeline.asynchronous and any(len(entry) > 1 for row in p.einsum.args for entry in row):
        raise TransformError("an operand that is computed while it is loaded passes through registers")
    if plan.wide and not plan.pipeline.asynchronous:
        raise TransformError("what passes through registers is loaded number by number")
    reason = refusal_of_device(p)
    if reason is not None:
        raise TransformError(reason)
    return plan


def paths(p: Problem) -> list[ChainPath]:
    """Two operands of three that may be multiplied as they are loaded, and steps of two operands at a time."""
    pairs = combinations(range(3), 2) if p.einsum.n == 3 else ()
    return [*(ChainPath(pair) for pair in pairs if multiplied_early(p, pair) is not None), ChainPath()]


def multiplied_early(p: Problem, pair: tuple[int, ...]) -> Problem | None:
    """The contraction of the third operand with the product of two, if nothing is summed in that product."""
    inputs, output = p.einsum.indexing.inputs, p.einsum.indexing.output
    (rest,) = (inputs[k] for k in range(3) if k not in pair)
    both = "".join(dict.fromkeys(inputs[pair[0]] + inputs[pair[1]]))
    if not set(both) <= set(output + rest):
        return None
    own = plain_contraction(p, (rest, both), output, p.sizes)
    return own if is_product(own.einsum) else None


def steps_of_path(p: Problem, path: ChainPath) -> Iterator[Problem]:
    """The contractions of a path, one after the other."""
    if path.pair:
        own = multiplied_early(p, path.pair)
        if own is not None:
            yield own
        return
    for step in with_aligned_axes(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing).steps:
        sizes = {x: p.sizes[x] for x in step.indexing.indices}
        yield plain_contraction(p, step.indexing.inputs, step.indexing.output, sizes)


def nearest_block_tile(p: Problem, plan: BlockChain) -> Configuration | None:
    """An accepted configuration of a step: a guess of its block tile, with the pipeline of the plan if it has such."""
    if not is_product(p.einsum):
        return None
    return _cached_nearest(p.einsum, tuple(p.sizes.items()), p.device, plan.guess, str(plan.pipeline), plan.wide)


@lru_cache(maxsize=512)
def _cached_nearest(
    e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile, guess: int, pipeline: str, wide: bool
) -> Configuration | None:
    p = Problem(e, dict(sizes), device)
    choices = counted_choices(p)
    choices = {**choices, "wide": (wide and choices["wide"][0],)}
    if pipeline not in choices["pipeline"]:
        return _first_accepted(p, choices)
    first = _first_accepted(p, {**choices, "pipeline": (pipeline,)})
    if first is None:
        return _first_accepted(p, choices)
    if not guess:
        return first
    # Of those after the first, the ones that differ from it in the block tile alone.
    later = choices["shape"][choices["shape"].index(first["shape"]) + 1 :]
    alike = (c for shape in later if block_contraction.constraint(p, c := {**first, "shape": shape}) is None)
    return next(islice(alike, max(0, guess - 1), None), first)


def _first_accepted(p: Problem, choices: Choices) -> Configuration | None:
    """The first configuration that is accepted."""
    every = (dict(zip(choices, values, strict=True)) for values in product(*choices.values()))
    return next((c for c in every if block_contraction.constraint(p, c) is None), None)
