"""Matching a kernel to a batched einsum that is given: the same computation in other names, or the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import loopy as lp
import numpy as np

from feinsum.canonicalization import is_isomorphic, isomorphism
from feinsum.einsum import Array, Axis, BatchedEinsum, require_einsum
from feinsum.errors import MatchError
from feinsum.match.match import match_bare


def match_t_unit_to_einsum(
    t_unit: lp.TranslationUnit, e: BatchedEinsum, kernel_name: str | None = None, insn_match: Any = None
) -> Mapping[str, str]:
    """The names in a kernel of the names of `e`, if the chosen instructions compute `e`.

    Long axes of `e` fit any length of the kernel, fixed or not, and two of them may fit the same; a fixed length of `e`
    must be that length in the kernel.

    :param kernel_name, insn_match: as for :func:`match_einsum`.
    :returns: index letter -> iname (of the first row), long axis -> parameter, expression or number, array -> array or
        substitution rule, name of an output -> array.  Where an index letter of `e` is also the name of an array or
        a long axis, it is that name which counts.
    :raises MatchError: saying why the instructions are no einsum, or how theirs differs from `e`.
    :raises SubscriptError: if `e` is no batched einsum.
    """
    require_einsum(e)
    match = match_bare(t_unit, kernel_name, insn_match)
    seen = match.einsum
    stand_ins = _stand_ins(e, seen)
    plain = seen.with_sizes({letter: stand_ins.get(axis, axis) for letter, axis in seen.index_sizes.items()})
    for lengths in _fit(e, plain):
        renaming = isomorphism(e.with_sizes(lengths), plain)
        if renaming is None:
            continue
        texts: dict[Axis, str] = {stand_ins[axis]: text for axis, text in match.axes.items()}
        return {
            **{letter: match.inames[other] for letter, other in renaming.indices.items()},
            **{
                axis: texts.get(lengths[letter], str(lengths[letter]))
                for letter, axis in e.index_sizes.items()
                if isinstance(axis, str)
            },
            **{name: match.arrays[other] for name, other in renaming.arrays.items()},
            **{e.output_names[own]: match.outputs[row] for row, own in enumerate(renaming.rows)},
        }
    raise MatchError(f"kernel '{match.kernel_name}' computes {seen}, not {e}: {_difference(e, plain)}")


def _stand_ins(e: BatchedEinsum, seen: BatchedEinsum) -> dict[Axis, str]:
    """Names for the long axes seen that are those of no array in either einsum."""
    stem = "length"
    while any(a.name.startswith(stem) for a in (*e.arrays, *seen.arrays)):
        stem += "_"
    return {axis: f"{stem}{k}" for k, axis in enumerate(seen.long_axes)}


def _fit(e: BatchedEinsum, seen: BatchedEinsum) -> Iterator[dict[str, Axis]]:
    """Lengths for every index of `e` such that it could be `seen`.

    Outputs are not transposed, so the length of an output index is that of the index at the same place; those of summed
    indices are tried, among summed indices of the same role.
    """
    if len(e.indexing.output) != len(seen.indexing.output):
        return
    groups = {letter: group for group in e.equal_long_axes for letter in group}
    wanted: dict[str, Axis] = {}
    for letter, other in zip(e.indexing.output, seen.indexing.output, strict=True):
        if not _fits_axis(e.index_sizes[letter], seen.index_sizes[other], wanted, groups.get(letter, letter)):
            return
    supply = Counter((_role(seen, letter), seen.index_sizes[letter]) for letter in seen.indexing.summed)
    for lengths in _assign_lengths(e, e.indexing.summed, supply, wanted, groups):
        yield {letter: lengths[groups.get(letter, letter)] for letter in e.indexing.indices}


def _assign_lengths(
    e: BatchedEinsum, letters: str, supply: Counter[Any], wanted: dict[str, Axis], groups: Mapping[str, str]
) -> Iterator[dict[str, Axis]]:
    """Lengths for the summed indices in `letters` from those that are left, in every way that differs."""
    if not letters:
        yield wanted
        return
    letter, role = letters[0], _role(e, letters[0])
    for key in [key for key, left in supply.items() if left and key[0] == role]:
        extended = dict(wanted)
        if _fits_axis(e.index_sizes[letter], key[1], extended, groups.get(letter, letter)):
            yield from _assign_lengths(e, letters[1:], supply - Counter([key]), extended, groups)


def _fits_axis(axis: Axis, length: Axis, wanted: dict[str, Axis], group: str) -> bool:
    """Whether an index with this axis may have that length, which is then noted for all indices equal to it."""
    if isinstance(axis, int) and axis != length:
        return False
    return wanted.setdefault(group, length) == length


def _role(e: BatchedEinsum, letter: str) -> tuple[object, ...]:
    """Where an index stands in the operands, up to renaming of summed indices and the order of operands."""
    output = e.indexing.output
    places = []
    for letters in e.indexing.inputs:
        if letter in letters:
            at = tuple(-2 if other == letter else output.find(other) for other in letters)
            places.append(at)
    return tuple(sorted(places))


def _difference(e: BatchedEinsum, seen: BatchedEinsum) -> str:
    """The first thing in which two einsums differ."""
    for what, wanted, found in (("rows", e.b, seen.b), ("operands", e.n, seen.n)):
        if wanted != found:
            return f"it has {found} {what}, not {wanted}"
    if not is_isomorphic(
        _single_row(e, dict.fromkeys(e.indexing.indices, 1)), _single_row(seen, dict.fromkeys(seen.indexing.indices, 1))
    ):
        return "the subscripts differ"
    target = _single_row(seen, seen.index_sizes)
    if not any(is_isomorphic(_single_row(e, lengths), target) for lengths in _fit(e, seen)):
        return "the lengths of axes differ"
    return "the arrays, their element types or their places in the rows differ"


def _single_row(e: BatchedEinsum, lengths: Mapping[str, Axis]) -> BatchedEinsum:
    """One row of the einsum with an array of its own for each operand, all of one type."""
    row = tuple(
        (Array(f"operand_{k}", tuple(lengths[letter] for letter in letters), np.dtype(np.float64)),)
        for k, letters in enumerate(e.indexing.inputs)
    )
    return BatchedEinsum(e.indexing, (row,))
