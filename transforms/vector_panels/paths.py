"""The orders in which vector panels contract the operands of an einsum: ``"12 01"`` is operands 1 and 2, then the rest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from feinsum.contraction import pairwise_schedule
from feinsum.einsum import BatchedEinsum
from feinsum.space import Problem


def paths(p: Problem) -> list[str]:
    """What to contract one after the other, fewest operations first: ``"12 01"`` is operands 1 and 2, then the rest."""
    n = p.einsum.n
    if n == 2:
        return ["01"]
    if n > 3:
        return [_cheapest_path(p)]
    pairs = [f"{a}{b}" for a, b in combinations(range(3), 2)]
    return sorted(["012", *pairs, *(f"{pair} 01" for pair in pairs)], key=lambda path: points(p, path))


def _cheapest_path(p: Problem) -> str:
    """The cheapest pairwise steps, operands by their position among what is left."""
    pool = list(range(p.einsum.n))
    steps = []
    for s, step in enumerate(pairwise_schedule(p.einsum, p.lengths).steps):
        steps.append("".join(str(pool.index(k)) for k in step.operands))
        pool = [k for k in pool if k not in step.operands] + [p.einsum.n + s]
    return " ".join(steps)


def points(p: Problem, path: str) -> int:
    """Multiplications of a path, a partial result that rows share counted once."""
    e = p.einsum
    letters = list(e.indexing.inputs)
    rows: list[tuple[object, ...]] = [tuple(enumerate(row)) for row in e.args]
    total = 0
    for operands in (*(tuple(map(int, step)) for step in path.split()), tuple(range(e.n))):
        operands = operands[: len(letters)]
        factors = [tuple(row[k] for k in operands) for row in rows]
        inside = set("".join(letters[k] for k in operands))
        if len(operands) > 1:
            times = e.b if len(operands) == len(letters) else len(set(factors))
            total += times * (len(operands) - 1) * p.count("".join(inside))
        rest = [x for k, x in enumerate(letters) if k not in operands]
        letters = [*rest, "".join(inside & set(e.indexing.output).union(*rest))]
        rows = [
            (*(x for k, x in enumerate(row) if k not in operands), factor)
            for row, factor in zip(rows, factors, strict=True)
        ]
    return total


@dataclass(frozen=True)
class Contraction:
    """One step of a path: operands by position, their indices (empty for partial results), and the indices it keeps."""

    operands: tuple[int, ...]
    inputs: tuple[str, ...]
    own: tuple[int | None, ...]
    kept: str


@lru_cache(maxsize=1024)
def contractions(e: BatchedEinsum, path: str) -> tuple[Contraction, ...]:
    """The steps of a path; asked for with every plan, of which a problem has hundreds."""
    letters = list(e.indexing.inputs)
    pool: list[int | None] = list(range(e.n))
    steps = []
    for step in path.split():
        operands = tuple(map(int, step))
        taken = tuple(letters[k] for k in operands)
        rest = [x for k, x in enumerate(letters) if k not in operands]
        needed = set(e.indexing.output).union(*rest)
        kept = "".join(x for x in dict.fromkeys("".join(taken)) if x in needed)
        steps.append(Contraction(operands, taken, tuple(pool[k] for k in operands), kept))
        letters = [*rest, kept]
        pool = [*(x for k, x in enumerate(pool) if k not in operands), None]
    return tuple(steps)
