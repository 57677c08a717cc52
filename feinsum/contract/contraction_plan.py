"""The plan of a contraction of arrays: the operands of each step, and the step as an einsum of the small grammar.

``"ab...,bc->a...c"`` of arrays (5, 4, 1, 3), (4, 6) becomes one step ``abc,bd->acd`` of arrays (5, 4, 3), (4, 6).  Axes of
length one are dropped, so that broadcasting needs no rule of its own, and neighbours that stay neighbours in every term
become one axis, so that many equations are the same kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from feinsum.errors import ShapeError, SubscriptError
from feinsum.subscripts import INDEX_LETTERS, parse_symbols

Shape = tuple[int, ...]

_AT_ONCE_UP_TO = 3
"""Up to this many operands, one kernel contracts all, so that records of the whole einsum apply."""


@dataclass(frozen=True)
class PlannedStep:
    """One contraction.

    :ivar positions: the values that it takes out of the pool; its result is appended to the pool.
    :ivar subscripts: its subscripts, in letters ``a``, ``b``, ... by order of appearance.
    :ivar shapes: the shapes that the values must be given; only axes of length one, and neighbours, differ.
    :ivar lengths: the length of each letter.
    """

    positions: tuple[int, ...]
    subscripts: str
    shapes: tuple[Shape, ...]
    lengths: Mapping[str, int]

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return tuple(self.lengths[letter] for letter in self.subscripts.partition("->")[2])


@dataclass(frozen=True)
class ContractionPlan:
    """The steps that evaluate an einsum of arrays, and the shape of the result."""

    steps: tuple[PlannedStep, ...]
    shape: Shape


def make_plan(
    text: str,
    shapes: Sequence[Shape],
    optimize: Any = True,
    orders: Sequence[tuple[int, ...]] | None = None,
    backwards: bool = False,
) -> ContractionPlan:
    """Plan an einsum.

    :param optimize: as in numpy and opt_einsum: a strategy by name, a path, an optimizer of opt_einsum; False for one
        step; True for one step up to three operands, and for more the order that opt_einsum finds.
    :param orders: the order in which the axes of each operand are taken, by default the one they have.
    :param backwards: whether the axes of the result are taken from the last to the first.
    :raises SubscriptError: if the subscripts or the path do not fit.
    :raises ShapeError: naming the index and the two operands that disagree.
    """
    inputs, result_axes = parse_symbols(text, tuple(map(len, shapes)))
    lengths = _broadcast_lengths(text, inputs, shapes)
    kept = [x for x in lengths if lengths[x] != 1]
    terms = [
        "".join(term[axis] for axis in order if term[axis] in kept and shape[axis] == lengths[term[axis]])
        for term, shape, order in zip(inputs, shapes, orders or [tuple(range(len(s))) for s in shapes], strict=True)
    ]
    result_axes = result_axes[::-1] if backwards else result_axes
    output = "".join(x for x in result_axes if x in kept)
    steps = []
    pool = list(terms)
    for positions in find_path(terms, output, lengths, optimize):
        taken = [pool[k] for k in positions]
        pool = [term for k, term in enumerate(pool) if k not in positions]
        result = output if not pool else _shared_letters("".join(taken), [output, *pool])
        steps.append(_merged_step(positions, taken, result, lengths))
        pool.append(result)
    return ContractionPlan(tuple(steps), tuple(lengths[x] for x in result_axes))


def _broadcast_lengths(text: str, terms: Iterable[str], shapes: Iterable[Shape]) -> dict[str, int]:
    """The length of each index: that of the operands in which it is not 1."""
    lengths: dict[str, int] = {}
    owner: dict[str, int] = {}
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        inside: dict[str, int] = {}
        for letter, length in zip(term, shape, strict=True):
            if inside.setdefault(letter, length) != length:
                raise ShapeError(
                    f"index '{letter}' is {inside[letter]} and {length} in operand {k} of '{text}'; make them equal"
                )
        for letter, length in inside.items():
            known = lengths.get(letter, 1)
            if known == 1 or letter not in lengths:
                lengths[letter], owner[letter] = length, k
            elif length not in (1, known):
                raise ShapeError(
                    f"index '{letter}' is {known} in operand {owner[letter]} but {length} in operand {k} of '{text}';"
                    " make the lengths equal, or one of them 1"
                )
    return lengths


def find_path(terms: Sequence[str], output: str, lengths: Mapping[str, int], optimize: Any) -> list[tuple[int, ...]]:
    """The positions that each step takes, in the convention of opt_einsum.

    :raises SubscriptError: if a given path takes a missing operand or leaves one over.
    """
    n = len(terms)
    strategy, limit = split_strategy(optimize)
    if isinstance(strategy, tuple):
        return _checked_path(strategy, n)
    if strategy is False or n <= 1 or (strategy is True and n <= _AT_ONCE_UP_TO):
        return [tuple(range(n))]
    import opt_einsum

    shapes = [tuple(lengths[x] for x in term) for term in terms]
    try:
        path, _ = opt_einsum.contract_path(
            f"{','.join(terms)}->{output}",
            *shapes,
            shapes=True,
            optimize="auto" if strategy is True else strategy,
            memory_limit=limit,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SubscriptError(f"optimize is {optimize!r}, which opt_einsum does not know: {error}") from None
    return _checked_path(path, n)


def split_strategy(optimize: Any) -> tuple[Any, Any]:
    """A strategy, or a path as a tuple of steps, and how many elements an intermediate result may have.

    >>> split_strategy(("greedy", 100)), split_strategy(["einsum_path", (0, 1)])
    (('greedy', 100), (((0, 1),), None))
    """
    if not isinstance(optimize, (tuple, list)):
        return optimize, None
    parts = tuple(optimize)
    if parts[:1] == ("einsum_path",):
        return parts[1:], None
    if len(parts) == 2 and not isinstance(parts[1], (tuple, list)):
        return split_strategy(parts[0])[0], parts[1]
    return parts, None


def _checked_path(path: Iterable[Any], n: int) -> list[tuple[int, ...]]:
    checked = []
    for step in path:
        positions = tuple(step) if isinstance(step, (tuple, list)) else ()
        inside = all(isinstance(k, int | np.integer) and 0 <= k < n for k in positions)
        if not inside or not 0 < len(set(positions)) == len(positions):
            raise SubscriptError(f"a step of the path takes {step} where there are {n} operands, from 0 to {n - 1}")
        checked.append(positions)
        n += 1 - len(positions)
    if n != 1:
        raise SubscriptError(f"the path leaves {n} operands; its last step has to take all that are left")
    return checked


def _shared_letters(letters: str, others: Iterable[str]) -> str:
    needed = set("".join(others))
    return "".join(x for x in dict.fromkeys(letters) if x in needed)


def _merged_step(positions: tuple[int, ...], terms: Sequence[str], output: str, lengths: Mapping[str, int]) -> PlannedStep:
    """A step whose neighbouring indices are merged and named by order of appearance."""
    runs = _merge_runs([*terms, output])
    if len(runs) > len(INDEX_LETTERS):
        raise SubscriptError(
            f"a step of {len(terms)} operands has {len(runs)} indices; a kernel has {len(INDEX_LETTERS)}: take smaller ones"
        )
    names = dict(zip(runs, INDEX_LETTERS, strict=False))

    def short(term: str) -> str:
        return "".join(names[x] for x in term if x in names)

    merged = {names[first]: math.prod(lengths[x] for x in run) for first, run in runs.items()}
    inputs = [short(term) for term in terms]
    shapes = tuple(tuple(merged[x] for x in term) for term in inputs)
    return PlannedStep(positions, f"{','.join(inputs)}->{short(output)}", shapes, merged)


def _merge_runs(terms: Sequence[str]) -> dict[str, str]:
    """Runs of indices that stand together, in this order, in every term: by the first of each run.

    >>> _merge_runs(["abcd", "cdef", "abef"])
    {'a': 'ab', 'c': 'cd', 'e': 'ef'}
    """
    follower = {
        first: second
        for first, second in {pair for term in terms for pair in pairwise(term)}
        if first != second
        and all(term.count(first) == term.count(second) == term.count(first + second) < 2 for term in terms)
    }
    runs = {}
    for letter in dict.fromkeys("".join(terms)):
        if letter not in follower.values():
            run = letter
            while run[-1] in follower:
                run += follower[run[-1]]
            runs[letter] = run
    return runs
