"""Orders of contraction for work-groups, each contraction a step that goes on with the last result: ``((u A) B) C``.

They follow from an einsum and the lengths of its indices alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice, takewhile

from feinsum.contraction import pairwise_schedule
from feinsum.einsum import BatchedEinsum
from feinsum.skeletons.fused_chains import ContractionOrder

WORTHWHILE = 1.2
"""The most operations of an order, as a multiple of those of the cheapest."""
MOST_ORDERS = 6
MOST_TRIED = 20000
"""Partial orders looked at, of einsums with many operands."""


@lru_cache(maxsize=512)
def contraction_orders(e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], blocks: tuple[str, ...]) -> tuple[str, ...]:
    """Orders of contraction of about the fewest operations, the best guess first.

    ``"0+3 1+4"`` takes operands 0 and 3, then 1 and the result of that, which is number 4 of four operands.

    Every step but the first continues with the last result, and the first has a small operand if one can.  Orders whose
    last contraction writes long rows take turns with those whose first one reads along rows.
    """
    lengths = dict(sizes)
    steps = pairwise_schedule(e, e.sizes_from(lengths)).steps
    best = sum(math.prod(lengths[x] for x in step.indexing.indices) for step in steps)
    found = list(_chains(e, lengths, WORTHWHILE * best))
    if not found:
        return (str(ContractionOrder(tuple(step.operands for step in steps))),)

    def writes_rows(item: tuple[float, Chain]) -> tuple[float, ...]:
        return (
            _with_large(e, item[1], blocks),
            -_row_neighbours(e, lengths, item[1], blocks),
            -_sums_along_rows(e, item[1]),
            item[0],
        )

    def reads_rows(item: tuple[float, Chain]) -> tuple[float, ...]:
        return (
            _with_large(e, item[1], blocks),
            _sums_along_rows(e, item[1]),
            _row_neighbours(e, lengths, item[1], blocks) == 1,
            item[0],
        )

    ranked = zip(sorted(found, key=writes_rows), sorted(found, key=reads_rows), strict=True)
    chains = dict.fromkeys(chain for pair in ranked for _, chain in pair)
    return tuple(str(ContractionOrder(chain)) for chain in islice(chains, MOST_ORDERS))


Chain = tuple[tuple[int, ...], ...]


def _chains(e: BatchedEinsum, lengths: Mapping[str, int], most: float) -> Iterator[tuple[float, Chain]]:
    """Orders in which each step continues with the result of the last, and their operations."""
    inputs, tried = e.indexing.inputs, 0

    def go_on(left: tuple[int, ...], letters: str, chain: Chain, cost: float) -> Iterator[tuple[float, Chain]]:
        nonlocal tried
        if not left:
            yield cost, chain
            return
        for k in left:
            tried += 1
            if tried > MOST_TRIED or not set(letters) & set(inputs[k]):
                continue
            more = cost + math.prod(lengths[x] for x in {*letters, *inputs[k]})
            rest = tuple(j for j in left if j != k)
            needed = set(e.indexing.output).union(*(inputs[j] for j in rest))
            kept = "".join(x for x in dict.fromkeys(letters + inputs[k]) if x in needed)
            if more <= most:
                yield from go_on(rest, kept, (*chain, (k, e.n + len(chain) - 1)), more)

    numbers = range(e.n)
    for first in numbers:
        for second in numbers[first + 1 :]:
            rest = tuple(k for k in numbers if k not in (first, second))
            needed = set(e.indexing.output).union(*(inputs[j] for j in rest))
            both = dict.fromkeys(inputs[first] + inputs[second])
            cost = math.prod(lengths[x] for x in both)
            if cost <= most and set(inputs[first]) & set(inputs[second]):
                yield from go_on(rest, "".join(x for x in both if x in needed), ((first, second),), cost)


def _with_large(e: BatchedEinsum, chain: Chain, blocks: tuple[str, ...]) -> bool:
    """Whether both operands of the first contraction have an index in blocks."""
    return all(any(x in blocks for x in e.indexing.inputs[k]) for k in chain[0])


def _row_neighbours(e: BatchedEinsum, lengths: Mapping[str, int], chain: Chain, blocks: tuple[str, ...]) -> int:
    """The number of neighbours in memory that the last contraction writes together: those after its own index of the
    output."""
    new = {x for x in e.indexing.inputs[chain[-1][0]] if x in e.indexing.output and x not in blocks}
    row = takewhile(lambda x: x not in new, reversed(e.indexing.output))
    return math.prod(lengths[x] for x in row if x not in blocks)


def _sums_along_rows(e: BatchedEinsum, chain: Chain) -> bool:
    """Whether the first contraction sums along the rows of its largest operand, so that a work-item reads neighbours."""
    rest = set(e.indexing.output).union(*(e.indexing.inputs[k] for pair in chain[1:] for k in pair if k < e.n))
    return max((e.indexing.inputs[k] for k in chain[0]), key=len)[-1] not in rest
