"""Combining: arrays, each times a number, added to an array or to blocks of it, on the host or on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from feinsum.compile.block_sums import Bounds, Summand, add_blocks
from feinsum.errors import ShapeError
from feinsum.languages.tensor.ir import TensorValue
from feinsum.languages.tensor.recognising import Combination
from feinsum.languages.tensor.recognising.terms import Block, ProductTerm


def combine(
    step: Combination,
    out: Any,
    arrays: Sequence[Any],
    numbers: Mapping[TensorValue, Any],
    queue: Any,
    wait_for: Sequence[Any],
) -> None:
    """Update an array by a combination.

    :param out: the transposed array of what is written, C-contiguous.
    :param arrays: those of its operands.
    :raises ShapeError: if one has another shape than the block to which it is added.
    """
    scale = 0 if step.scale is None else _term_factor(step.scale, numbers)
    summands = [
        Summand(array, _term_factor(term, numbers), _block_bounds(term.block, out.ndim))
        for term, array in zip(step.terms, arrays, strict=True)
    ]
    for one, operand in zip(summands, step.operands.values(), strict=True):
        _check_shape(one, out, f"{operand}", f"%{step.output.name}")
    if isinstance(out, np.ndarray):
        _add_on_host(out, scale, summands)
    else:
        add_blocks(out, scale, summands, queue, wait_for)


def _term_factor(term: ProductTerm, numbers: Mapping[TensorValue, Any]) -> Any:
    return term.number * prod(numbers[value] for value in term.scalars)


def _block_bounds(block: Block, axes: int) -> Bounds:
    """Where a block begins and ends along the axes of the transposed array."""
    if not block:
        return (None,) * axes
    return tuple(None if part is None else (part[0], sum(part)) for part in reversed(block))


def _check_shape(one: Summand, out: Any, name: str, output: str) -> None:
    places = [(0, n) if bounds is None else bounds for bounds, n in zip(one.bounds, out.shape, strict=True)]
    fits = all(end <= n for (_, end), n in zip(places, out.shape, strict=True))
    if not fits or one.array.shape != tuple(end - begin for begin, end in places):
        raise ShapeError(
            f"{name} has the shape {one.array.shape[::-1]}, and is added to a part of {output}, of shape {out.shape[::-1]}"
        )


def _add_on_host(out: Any, scale: Any, summands: Sequence[Summand]) -> None:
    if scale == 0:
        out[...] = 0
    elif scale != 1:
        out *= scale
    for one in summands:
        places = tuple(slice(None) if bounds is None else slice(*bounds) for bounds in one.bounds)
        out[places] += one.factor * one.array
