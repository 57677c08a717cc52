"""References: the results of a kernel in higher precision, and a bound on the error of any correct kernel.

An evaluation of ``Σ_K a b c`` in arithmetic of unit roundoff u, in whatever order, errs by at most
``γ_K Σ |a| |b| |c|`` with ``γ_K = K u / (1 - K u)`` and K the number of terms plus the number of factors (Higham,
*Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from feinsum.einsum import BatchedEinsum
from feinsum.flops import contraction_path, count_flops
from feinsum.validate.finished import EpilogueInputs, finished_value

_OPERATIONS = 20_000_000
"""Operations of one reference: extended precision runs at about 1e8 of them a second."""
_WIDE_ELEMENTS = 20_000_000
"""Elements up to which operands are widened to extended precision; beyond, float64 has to do."""
_AT_ONCE = 1 << 15
"""Entries that are compared at once, so that what is made of them stays in a core's cache."""
_SPLIT_ELEMENTS = 1 << 22
"""Entries up to which the halves of a reference are kept: 24 bytes each."""
_VISIBLE = 0.05
"""The part of a typical term that a bound may be without hiding it."""


@dataclass(frozen=True)
class Reference:
    """The expected values of one output at some of its entries.

    :ivar at: index arrays, one an axis, for :func:`numpy.ix_`; each in order, no position twice.
    :ivar expected: the values there.
    :ivar bound: how far from them a correct kernel may be.
    """

    at: tuple[np.ndarray[Any, Any], ...]
    expected: np.ndarray[Any, Any]
    bound: np.ndarray[Any, Any]

    def worst(self, found: np.ndarray[Any, Any]) -> float | None:
        """The largest error as a share of its bound; None if one exceeds its bound, or where float64 does not tell.

        :param found: the entries at :attr:`at` of what a kernel computed.
        """
        if self._in_float64 is None:
            return None
        high, low, bound = self._in_float64
        found, worst = found.reshape(-1), 0.0
        for first in range(0, found.size, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                error = abs(found[part].astype(high.dtype, copy=False) - high[part] - (0 if low is None else low[part]))
                if not (error <= bound[part]).all():
                    return None
                worst = float(np.fmax.reduce(error / bound[part], initial=worst))  # 0 / 0 is NaN, which it passes over
        return worst

    @cached_property
    def _in_float64(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None, np.ndarray[Any, Any]] | None:
        """Two arrays of float64, or complex128, whose sum is expected, and the bound; None where some are not finite.

        To compare in extended precision takes ten times as long, and many kernels are compared with one reference.
        """
        if self.expected.dtype.kind not in "fc" or self.expected.size > _SPLIT_ELEMENTS:
            return None
        dtype = np.dtype(np.complex128 if self.expected.dtype.kind == "c" else np.float64)
        with np.errstate(all="ignore"):
            high, bound = self.expected.astype(dtype).reshape(-1), self.bound.astype(np.float64).reshape(-1)
            if not np.isfinite(high).all() or not np.isfinite(bound).all() or (bound == 0).sum() > (self.bound == 0).sum():
                return None
            low = None if self.expected.dtype == dtype else (self.expected.reshape(-1) - high).astype(dtype)
        return high, low, bound


def random_inputs(e: BatchedEinsum, lengths: Mapping[str, int], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Random arrays of mixed sign for every input, by name; integers are small enough for sums not to overflow.

    The present content of an output that is updated is an input, too.
    """
    rng = np.random.default_rng(seed)
    return {
        name: random_numbers(rng, tuple(lengths[letter] for letter in letters), dtype)
        for name, letters, dtype in drawn_arrays(e)
    }


def drawn_arrays(e: BatchedEinsum) -> Iterator[tuple[str, str, np.dtype[Any]]]:
    """Name, indices and type of each input."""
    yield from ((a.name, letters, a.dtype) for a, letters in e.array_indices.items())
    for name, dtype, update in zip(e.output_names, e.dtypes, e.updates, strict=True):
        if update:
            yield name, e.indexing.output, dtype


def random_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Numbers in [-1, 1), or small whole ones, of a type."""
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0 if dtype.kind == "u" else -3, 4, shape, dtype=dtype)
    if np.issubdtype(dtype, np.complexfloating):
        real = np.empty(0, dtype).real.dtype
        return np.asarray(random_numbers(rng, shape, real) + 1j * random_numbers(rng, shape, real), dtype)
    values = np.asarray(rng.random(shape, dtype=dtype.type))
    values *= 2
    values -= 1
    return values


def hides_terms(e: BatchedEinsum, lengths: Mapping[str, int]) -> bool:
    """Whether a sum may lack a term and yet be within the bound of roundoff, as those of float32 above a thousand terms.

    False as well where whole numbers would not be exact, since then they are of no use.
    """
    return _largest_digit(e, lengths) > 0 and any(
        dtype.kind in "fc" and _roundoff(e, lengths, dtype) * _summand_count(e, lengths) > _VISIBLE for dtype in e.dtypes
    )


def whole_inputs(e: BatchedEinsum, lengths: Mapping[str, int], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of whole numbers so small that every sum of their products is exact, in whatever order."""
    rng = np.random.default_rng(seed)
    most = _largest_digit(e, lengths)

    def draw(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        numbers = rng.integers(0 if dtype.kind == "u" else -most, most + 1, shape)
        return np.asarray(numbers + 1j * rng.integers(-most, most + 1, shape) if dtype.kind == "c" else numbers, dtype)

    return {name: draw(tuple(lengths[x] for x in letters), dtype) for name, letters, dtype in drawn_arrays(e)}


def _largest_digit(e: BatchedEinsum, lengths: Mapping[str, int]) -> int:
    """The largest whole number, up to 3, with which sums stay exact; 0 if there is none."""
    epsilons = [float(np.finfo(dtype).eps) for dtype in e.dtypes if dtype.kind in "fc"]
    growth = 2 if any(dtype.kind == "c" for dtype in e.dtypes) else 1
    limit = 2 / max(epsilons, default=2.0**-52)
    return next((m for m in (3, 2, 1) if _summand_count(e, lengths) * (growth * m) ** _longest_product(e) <= limit), 0)


def _summand_count(e: BatchedEinsum, lengths: Mapping[str, int]) -> int:
    """Products that are summed for one entry."""
    return math.prod(lengths[letter] for letter in e.indexing.summed)


def _longest_product(e: BatchedEinsum) -> int:
    """Factors of the longest product."""
    return max(sum(len(entry) for entry in row) for row in e.args)


def references(
    e: BatchedEinsum,
    lengths: Mapping[str, int],
    inputs: Mapping[str, np.ndarray[Any, Any]],
    seed: int,
    *,
    exact: bool = False,
    scalars: Mapping[str, Any] = MappingProxyType({}),
) -> list[Reference]:
    """A reference for every output: all entries where that is affordable, else a random block of them.

    The block is the product of random positions along each axis, the first and the last among them.

    :param inputs: by name, the present content of outputs that are updated among them.
    :param exact: whether sums have no roundoff with these inputs, so that no error of them is allowed.
    :param scalars: the numbers that epilogues take.
    """
    chosen = _choose_positions(e, lengths, np.random.default_rng(seed))
    few = {letter: len(chosen[letter]) if letter in chosen else length for letter, length in lengths.items()}
    path = contraction_path(e, few)
    with np.errstate(invalid="ignore"):  # an infinity among the inputs may make what is no number
        sums = _references(e, lengths, inputs, chosen, path, exact=exact)
    if e.combines:
        return [_finished_reference(e, 0, sums, inputs, scalars)]
    return [_finished_reference(e, row, [of], inputs, scalars) for row, of in enumerate(sums)] if e.epilogues else sums


def _finished_reference(
    e: BatchedEinsum,
    output: int,
    of: list[Reference],
    inputs: Mapping[str, np.ndarray[Any, Any]],
    scalars: Mapping[str, Any],
) -> Reference:
    """The reference of the epilogue of an output, from those of the sums that it is `of`."""
    own = e.epilogues[output]
    if own is None:
        return of[0]
    known, at = EpilogueInputs(inputs.get(e.output_names[output]), inputs, scalars), of[0].at
    sums, bounds = [sum_.expected for sum_ in of], [sum_.bound for sum_ in of]
    return Reference(at, *finished_value(own, e.dtypes[output], sums, bounds, at, known))


def _references(
    e: BatchedEinsum,
    lengths: Mapping[str, int],
    inputs: Mapping[str, np.ndarray[Any, Any]],
    chosen: Mapping[str, np.ndarray[Any, Any]],
    path: tuple[tuple[int, ...], ...],
    *,
    exact: bool,
) -> list[Reference]:
    """A reference for the sum of every row, at chosen positions along each axis of the output."""
    at = tuple(chosen[letter] for letter in e.indexing.output)
    results = []
    for row, dtype in zip(e.args, e.row_dtypes, strict=True):
        operands = []
        for entry, letters in zip(row, e.indexing.inputs, strict=True):
            parts = [_take_positions(inputs[a.name], letters, chosen) for a in entry]
            operands.append(_exact_product([part.astype(_reference_type(dtype, part.size)) for part in parts]))
        expected = _contract_exactly(e.subscripts, operands, path)
        if exact or np.issubdtype(dtype, np.integer):
            bound = np.zeros(expected.shape)
        else:
            magnitude = _contract_exactly(e.subscripts, [abs(operand) for operand in operands], path)
            bound = _roundoff(e, lengths, dtype) * magnitude
        results.append(Reference(at, expected, bound))
    return results


def _choose_positions(
    e: BatchedEinsum, lengths: Mapping[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray[Any, Any]]:
    """Positions along each output axis, halved in number along the longest until the reference is affordable."""
    counts = {letter: lengths[letter] for letter in e.indexing.output}
    one_row = BatchedEinsum(e.indexing, e.args[:1])
    while counts and max(counts.values()) > 3:
        if count_flops(one_row, {**lengths, **counts}, "shared") * e.b <= _OPERATIONS:
            break
        longest = max(counts, key=lambda letter: counts[letter])
        counts[longest] = max(3, counts[longest] // 2)
    chosen: dict[str, np.ndarray[Any, Any]] = {}
    for letter, count in counts.items():
        length = lengths[letter]
        if count == length:
            chosen[letter] = np.arange(length)
        else:
            inner = rng.choice(length - 2, count - 2, replace=False) + 1
            chosen[letter] = np.sort(np.concatenate([[0, length - 1], inner]))
    return chosen


def _take_positions(
    values: np.ndarray[Any, Any], letters: str, chosen: Mapping[str, np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    for axis, letter in enumerate(letters):
        if letter in chosen and len(chosen[letter]) < values.shape[axis]:
            values = values.take(chosen[letter], axis=axis)
    return values


def _reference_type(dtype: np.dtype[Any], elements: int) -> np.dtype[Any]:
    """The type of the reference for results of `dtype`."""
    if np.issubdtype(dtype, np.integer):
        return dtype
    is_complex = np.issubdtype(dtype, np.complexfloating)
    if np.empty(0, dtype).real.dtype == np.float32 or elements > _WIDE_ELEMENTS:
        return np.dtype(np.complex128 if is_complex else np.float64)
    return np.dtype(np.clongdouble if is_complex else np.longdouble)


def _roundoff(e: BatchedEinsum, lengths: Mapping[str, int], dtype: np.dtype[Any]) -> float:
    """γ_K of the module's docstring; a complex product errs by up to 2√2 times as much (Higham, lemma 3.5)."""
    terms = _summand_count(e, lengths) + 2 * _longest_product(e)
    u = float(np.finfo(dtype).eps) / 2
    gamma = terms * u / (1 - terms * u) if terms * u < 0.5 else 1.0
    # A float64 reference for float64 results errs by as much again.
    gamma *= 2
    return gamma * 2 * math.sqrt(2) if np.issubdtype(dtype, np.complexfloating) else gamma


def _exact_product(parts: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    result = parts[0]
    for part in parts[1:]:
        result = result * part
    return result


def _contract_exactly(
    subscripts: str, operands: list[np.ndarray[Any, Any]], path: tuple[tuple[int, ...], ...]
) -> np.ndarray[Any, Any]:
    if not all(operand.size for operand in operands):
        # numpy 2.4 writes out of bounds for empty operands of clongdouble, so only the shape is asked for.
        empty = np.einsum(subscripts, *(operand.astype(bool) for operand in operands))
        return np.zeros(empty.shape, operands[0].dtype)
    return np.asarray(np.einsum(subscripts, *operands, optimize=["einsum_path", *path]))
