"""Floating-point operations of a batched einsum along its cheapest order of pairwise contractions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations

import numpy as np

from feinsum.einsum import BatchedEinsum

Path = tuple[tuple[int, ...], ...]
"""Positions of the operands taken by each step, whose result is appended to those that remain (as in opt_einsum)."""

_ENUMERATED_UP_TO = 4
"""Operands up to which every order is tried: 18 orders of four operands, 180 of five."""
_OPTIMAL_UP_TO = 8
"""Operands up to which opt_einsum's exhaustive search is asked; it grows as a factorial."""


def count_flops(e: BatchedEinsum, lengths: Mapping[str, int], method: str) -> int:
    """See :meth:`feinsum.BatchedEinsum.flops`; `lengths` maps every index to its length."""
    if e.epilogues:
        finishing = sum(w * own.operations for w, own in zip(_weights(e), e.epilogues, strict=False) if own)
        return count_flops(e.bare, lengths, method) + finishing * math.prod(lengths[x] for x in e.indexing.output)
    if method == "naive":
        return _subset_products(e, lengths) + sum(_weights(e)) * e.n * math.prod(lengths.values())
    if method == "pairwise":
        rows = (BatchedEinsum(e.indexing, (row,)) for row in e.args)
        return sum(count_flops(row, lengths, "shared") for row in rows)
    if method != "shared":
        raise ValueError(f"method is {method!r}; it is 'shared', 'pairwise' or 'naive'")
    return _cheapest_path(e, tuple(lengths.items()))[0]


def contraction_path(e: BatchedEinsum, lengths: Mapping[str, int]) -> Path:
    """The order of pairwise contractions with the fewest operations, a partial result that rows share counted once."""
    return _cheapest_path(e.bare, tuple(lengths.items()))[1]


@lru_cache(maxsize=4096)
def _cheapest_path(e: BatchedEinsum, items: tuple[tuple[str, int], ...]) -> tuple[int, Path]:
    lengths = dict(items)
    return min((_cost(e, lengths, path), path) for path in _candidate_orders(e, lengths))


def _candidate_orders(e: BatchedEinsum, lengths: Mapping[str, int]) -> Iterator[Path]:
    """Every order for few operands; for more, those of two searches, since either can miss the best."""
    if e.n <= _ENUMERATED_UP_TO:
        yield from _pairwise_orders(e.n)
        return
    import opt_einsum

    shapes = [tuple(lengths[letter] for letter in letters) for letters in e.indexing.inputs]
    for optimize in ("optimal", "dp") if e.n <= _OPTIMAL_UP_TO else ("dp",):
        path, _ = opt_einsum.contract_path(e.subscripts, *shapes, shapes=True, optimize=optimize)
        yield tuple(tuple(step) for step in path)


def _pairwise_orders(n: int) -> Iterator[Path]:
    if n <= 2:
        yield (tuple(range(n)),)
        return
    for pair in combinations(range(n), 2):
        for rest in _pairwise_orders(n - 1):
            yield (pair, *rest)


def _cost(e: BatchedEinsum, lengths: Mapping[str, int], path: Path) -> int:
    steps = _path_steps(e, lengths, path)
    seen = set()
    total = _subset_products(e, lengths)
    for i, (row, weight) in enumerate(zip(e.args, _weights(e), strict=True)):
        for members, kept, cost in steps:
            result = (frozenset((k, row[k]) for k in members), kept, i if len(members) == e.n else None)
            if result not in seen:
                seen.add(result)
                total += weight * cost
    return total


def _weights(e: BatchedEinsum) -> list[int]:
    """Real operations for one operation of each row; a complex product and sum take four times those of reals."""
    return [4 if np.issubdtype(dtype, np.complexfloating) else 1 for dtype in e.row_dtypes]


def _subset_products(e: BatchedEinsum, lengths: Mapping[str, int]) -> int:
    """Operations that multiply the arrays of each set once."""
    return sum(
        weight * (len(entry) - 1) * math.prod(lengths[letter] for letter in letters)
        for row, weight in zip(e.args, _weights(e), strict=True)
        for entry, letters in zip(row, e.indexing.inputs, strict=True)
    )


def _path_steps(
    e: BatchedEinsum, lengths: Mapping[str, int], path: Path
) -> list[tuple[frozenset[int], frozenset[str], int]]:
    """The operands gathered by each step of `path`, the indices its result keeps, and its cost for reals."""
    pool = [(frozenset([k]), frozenset(letters)) for k, letters in enumerate(e.indexing.inputs)]
    steps = []
    for positions in path:
        taken = [pool[k] for k in positions]
        pool = [term for k, term in enumerate(pool) if k not in positions]
        members = frozenset[int]().union(*(m for m, _ in taken))
        involved = frozenset[str]().union(*(letters for _, letters in taken))
        kept = involved & frozenset(e.indexing.output).union(*(letters for _, letters in pool))
        points = math.prod(lengths[letter] for letter in involved)
        steps.append((members, kept, points * (max(1, len(positions) - 1) + (kept != involved))))
        pool.append((members, kept))
    return steps
