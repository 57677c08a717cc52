"""The operands of an einsum in memory: the longest, and those read across the rows of the output."""

from __future__ import annotations

import numpy as np

from feinsum.einsum import BatchedEinsum
from feinsum.skeletons.common.digits import Digits, position
from feinsum.space import Problem

_RUN = 1024
"""Results that lie side by side, of which memory is asked about at the same time: what a work-group of a GPU stores."""


def is_distinct(e: BatchedEinsum) -> bool:
    """Whether no operand has an index twice."""
    return all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)


def longest_operand(e: BatchedEinsum) -> str | None:
    """The indices of an operand that has all of them, each once, in the order in which memory goes through them."""
    letters = next((x for x in e.indexing.inputs if set(x) == set(e.indexing.indices)), None)
    return None if letters is None else "".join(dict.fromkeys(reversed(letters)))[::-1]


def crossing(e: BatchedEinsum) -> str:
    """The index along the rows of an operand that has the last index of the output elsewhere; "" if there is none."""
    lane = e.indexing.output[-1]
    return next((x[-1] for x in e.indexing.inputs if lane in x and x[-1] != lane), "")


def is_across_rows(e: BatchedEinsum, lane: str) -> bool:
    """Whether an operand has an index elsewhere than along its rows."""
    return any(lane in letters[:-1] for letters in e.indexing.inputs)


def can_be_joined(e: BatchedEinsum) -> bool:
    """Whether tiles lack several indices, of which all but the outermost have known lengths."""
    others = [x for x in e.indexing.output if x not in (crossing(e), e.indexing.output[-1])]
    return len(others) > 1 and all(isinstance(e.index_sizes[x], int) for x in others[1:])


def joined_last_indices(e: BatchedEinsum) -> str:
    """The last indices of the output, as many as can be counted as one: all but the first of these have known lengths."""
    output = e.indexing.output
    known = next((k for k, x in enumerate(reversed(output)) if not isinstance(e.index_sizes[x], int)), len(output))
    return output[max(0, len(output) - known - 1) :]


def crossing_sum(e: BatchedEinsum) -> str:
    """The index along the rows of an operand that runs across the longest one and is as long; "" if there is none."""
    letters = longest_operand(e) or ""
    return next((x[-1:] for x in e.indexing.inputs if set(x) == set(letters) and x[-1:] != letters[-1:]), "")


def read_besides(p: Problem) -> float:
    """The bytes of the lines that a run of neighbouring results reads of an operand, over those of its numbers alone; that
    of the operand of which it is most."""
    output = p.einsum.indexing.output
    run = np.arange(min(_RUN, p.count(output)))
    at = Digits(output, tuple(p.sizes[x] for x in output)).of(run)
    most = 1.0
    for letters in p.einsum.indexing.inputs:
        places = position((at[x] for x in letters), (p.sizes[x] for x in letters), run * 0)
        numbers, lines = len(np.unique(places)), len(np.unique(places * p.itemsize // p.device.line_bytes))
        most = max(most, lines * p.device.line_bytes / (numbers * p.itemsize))
    return most
