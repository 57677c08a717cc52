"""Flat indices: several loops that run through one axis, ``A[9*i + 3*j + k]``, as one loop.

for i, j, k: A[9*i + 3*j + k] = A[9*i + 3*j + k] + t[i, j, k]
                              ──▶   for m: A[m] = A[m] + t[m // 9, (m // 3) % 3, m % 3]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymbolic.primitives import FloorDiv, Remainder, Variable
from pytools.tag import Tag

from feinsum.match.affine_indices import collect_affine
from feinsum.match.domain import Length


class FlatStore(Tag):  # type: ignore[misc]  # pytools is not typed
    """Marks the instruction that adds a sum to a flat array: part of the storage of that sum, no einsum of its own."""


@dataclass
class FlatIndex:
    """An index in terms of loops of which each runs through one axis.

    :ivar entries: the new index.
    :ivar values: old iname -> its value in terms of the new ones.
    :ivar lengths: of the inames that are new.
    """

    entries: list[Any] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)


def unflatten(at: Sequence[Any], lengths: Mapping[str, Length], fresh: Callable[[str], str]) -> FlatIndex | None:
    """The index in which each axis has one iname, or None.

    An axis is flat if the domain proves that the strides are products of lengths: ``n2*n3*i + n3*j + k`` for j below n2 and
    k below n3.

    :param lengths: of all inames in the index.
    """
    found = FlatIndex()
    for entry in at:
        terms = collect_affine(entry, frozenset(lengths))
        if terms is None or "" in terms or found.values.keys() & terms.keys():
            return None
        ordered = sorted(terms.items(), key=lambda term: -term[1])
        if len(ordered) == 1 and ordered[0][1] == 1:
            found.entries.append(entry)
            found.values[ordered[0][0]] = entry
        elif not _add_flat_axis(found, ordered, lengths, fresh):
            return None
    return found


def _add_flat_axis(
    found: FlatIndex, ordered: list[tuple[str, int]], lengths: Mapping[str, Length], fresh: Callable[[str], str]
) -> bool:
    """Add one flat axis; False if its strides are not products of lengths."""
    stride, digits = 1, {}
    whole = Variable(fresh("flat"))
    for position, (iname, coefficient) in enumerate(reversed(ordered)):
        length = lengths[iname]
        if coefficient != stride or not isinstance(length, int):
            return False
        digit = whole if stride == 1 else FloorDiv(whole, stride)
        digits[iname] = digit if position == len(ordered) - 1 else Remainder(digit, length)
        stride *= length
    found.entries.append(whole)
    found.values.update(digits)
    found.lengths[whole.name] = stride
    return bool(digits)
