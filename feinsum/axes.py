"""Which long axes have equal lengths: those of one name, and those that are one axis of an array under several indices.

In ``ij,ji->ij`` with the array ``A`` twice, i and j both run over the first axis of ``A``; whether its shape is written
``("N", "N")`` or ``(math.inf, math.inf)``, they are equally long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from feinsum.arrays import Array, Axis
from feinsum.subscripts import Subscripts

Matrix = Sequence[Sequence[Sequence[Array]]]


def group_long_axes(
    indexing: Subscripts, args: Matrix, sizes: Mapping[str, Axis], others: Sequence[tuple[Array, str]] = ()
) -> list[str]:
    """The long indices in groups of equal length, each group and the list in order of index.

    :param others: other reads of arrays: each array with its indices.
    """
    groups: list[set[str]] = []
    for bundle in _bundles(indexing, args, sizes, others):
        touching = [group for group in groups if group & bundle]
        groups = [group for group in groups if not group & bundle]
        groups.append(bundle.union(*touching))
    place = indexing.indices.index
    return sorted(("".join(sorted(group, key=place)) for group in groups), key=lambda group: place(group[0]))


def _bundles(
    indexing: Subscripts, args: Matrix, sizes: Mapping[str, Axis], others: Sequence[tuple[Array, str]]
) -> Iterable[set[str]]:
    """Sets of long indices that are equally long for one reason."""
    long = [letter for letter, axis in sizes.items() if not isinstance(axis, int)]
    yield from ({letter} for letter in long)
    named: dict[Axis, set[str]] = {}
    for letter in long:
        if isinstance(sizes[letter], str):
            named.setdefault(sizes[letter], set()).add(letter)
    yield from named.values()
    if len(long) < 2 or len({*indexing.inputs, *(letters for _, letters in others)}) < 2:
        return
    stands: dict[str, set[str]] = {}
    for row in args:
        for entry, letters in zip(row, indexing.inputs, strict=True):
            for a in entry:
                stands.setdefault(a.name, set()).add(letters)
    for a, letters in others:
        stands.setdefault(a.name, set()).add(letters)
    for terms in {frozenset(terms) for terms in stands.values() if len(terms) > 1}:
        yield from (set(column) for column in zip(*terms, strict=True) if column[0] in long)
