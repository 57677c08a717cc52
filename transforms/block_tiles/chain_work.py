"""What a chain of contractions in blocks does: its steps one after the other, partial results written and read again."""

from __future__ import annotations

from feinsum.cost import Work, in_turn
from feinsum.space import Configuration, Problem

from .chain_plans import nearest, steps
from .steps import plain_work
from .work import block_work


def chain_work(p: Problem, c: Configuration) -> Work:
    """The work of a configuration of :mod:`feinsum.transforms.block_tiles.chains`."""
    return in_turn([_step_work(own, c) for own in steps(p, c["path"])] * p.einsum.b)


def _step_work(p: Problem, c: Configuration) -> Work:
    own = nearest(p, c["shape"], c["pipeline"])
    return plain_work(p.einsum.indexing, p.sizes, p.itemsize) if own is None else block_work(p, own)
