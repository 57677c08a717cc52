"""The canonical form of an einsum, the renaming that leads to it, and isomorphism by equal keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from feinsum.arrays import Axis
from feinsum.canonicalization.axis_notation import spelling
from feinsum.canonicalization.canonical_epilogues import renaming_with_epilogues, representative, suffix
from feinsum.canonicalization.classes import RowClass, classify_rows
from feinsum.canonicalization.form import KeyForm, Row
from feinsum.canonicalization.labelling import Order, canonical_order
from feinsum.canonicalization.renaming import Renaming
from feinsum.einsum import BatchedEinsum, require_einsum
from feinsum.errors import FeinsumError
from feinsum.subscripts import INDEX_LETTERS


@dataclass(frozen=True)
class CanonicalEinsum:
    """The canonical form of a batched einsum.  Two are equal if they have one key.

    :ivar key: the form as text, the same for isomorphic einsums only, and in every process.
    :ivar einsum: the representative of all einsums with this key; its arrays are ``A0``, ``x0``, ..., its indices ``a``,
        ``b``, ..., its long axes ``math.inf``, or ``N0``, ... where several indices have one in common.
    :ivar given: the einsum that was brought to canonical form.
    :ivar renaming: from `given` to `einsum`.
    """

    key: str
    einsum: BatchedEinsum = field(compare=False, repr=False)
    given: BatchedEinsum = field(compare=False, repr=False)
    renaming: Renaming = field(compare=False, repr=False)

    @cached_property
    def pattern(self) -> CanonicalEinsum:
        """The canonical form of `given` with every axis ``math.inf``: structure and types without lengths.

        ``c.renaming.lengths(sizes)`` takes lengths by index of `given` to lengths by index of ``c.einsum``, and
        ``c.pattern.renaming.lengths(sizes)`` to lengths by index of ``c.pattern.einsum``.
        """
        return canonicalize_einsum(self.given.with_sizes(dict.fromkeys(self.given.indexing.indices, math.inf)))

    @cached_property
    def bare(self) -> CanonicalEinsum:
        """The canonical form of ``einsum.bare``, whose indices have the same letters; itself if there is no epilogue."""
        return canonicalize_einsum(self.einsum.bare) if self.einsum.epilogues else self

    def _repr_html_(self) -> str:
        from feinsum.report.displays import canonical_html

        return canonical_html(self)

    def _repr_latex_(self) -> str:
        return self.einsum._repr_latex_()

    def __str__(self) -> str:
        return self.key


def canonicalize_einsum(e: BatchedEinsum) -> CanonicalEinsum:
    """Bring `e` to canonical form: the same key for exactly the einsums that differ from it in names and order alone.

    Names are those of arrays, indices and long axes, order is that of operands and of rows; the order of the axes of
    arrays and outputs matters.  A long axis that a single index has needs no name.  The form is remembered by `e` and,
    for a while, for einsums equal to it.

    :raises SubscriptError: if `e` is no batched einsum.

    >>> from feinsum.einsum import array, einsum
    >>> canonicalize_einsum(einsum("ij,ej->ei", array("D", (35, 35)), array("u", ("E", 35), "float32"))).key
    '1|ac,bc->ab|a=inf b=35 c=35||[float32,float64]'
    """
    require_einsum(e)
    remembered: CanonicalEinsum | None = vars(e).get("_canonical")
    if remembered is None:
        remembered = vars(e)["_canonical"] = _canonicalize(e)
    return remembered


@lru_cache(maxsize=256)
def _canonicalize(e: BatchedEinsum) -> CanonicalEinsum:
    if e.epilogues:
        return _canonical_with_epilogues(e)
    classes, dtypes = classify_rows(e)
    groups = e.equal_long_axes
    order = canonical_order(e, classes, dtypes, groups)
    indices = dict.fromkeys(e.indexing.output + "".join(e.indexing.inputs[k] for k in order.operands))
    shared = {name: f"A{k}" for k, name in enumerate(_shared_arrays(order))}
    rows = [_rows_of_key(c, order.operands, shared) for c in order.classes]
    renaming = Renaming(
        arrays=shared | _own_arrays(order.classes, [slots for _, slots in rows]),
        indices=dict(zip(indices, INDEX_LETTERS, strict=False)),
        spellings=_spellings(e, groups, list(indices)),
        operands=order.operands,
        rows=tuple(i for c in order.classes for i in c.rows),
    )
    einsum = renaming.apply(e)
    form = KeyForm(
        indexing=einsum.indexing,
        axes=tuple(einsum.index_sizes.items()),
        shared=tuple(dtypes[name] for name in shared),
        rows=tuple((len(c.rows), row) for c, (row, _) in zip(order.classes, rows, strict=True)),
    )
    return CanonicalEinsum(form.key, einsum, e, renaming)


def _canonical_with_epilogues(e: BatchedEinsum) -> CanonicalEinsum:
    """The canonical form of an einsum with epilogues: that of the bare einsum, whose ties the epilogues break."""
    first = representative(e)
    known = first.apply(e)
    bare = canonicalize_einsum(known.bare)
    renaming = first.then(renaming_with_epilogues(bare.renaming, known))
    einsum = renaming.apply(e)
    return CanonicalEinsum(bare.key + suffix(einsum), einsum, e, renaming)


def _spellings(e: BatchedEinsum, groups: Sequence[str], indices: list[str]) -> dict[str, tuple[Axis, Axis]]:
    """The long axes as `e` and the canonical einsum write them; `indices` are those of `e` in canonical order."""
    here = spelling(e, groups)
    several = sorted((group for group in groups if len(group) > 1), key=lambda group: min(map(indices.index, group)))
    names: dict[str, Axis] = {group: f"N{k}" for k, group in enumerate(several)}
    return {letter: (here[letter], names.get(group, math.inf)) for group in groups for letter in group}


def _shared_arrays(order: Order) -> dict[str, None]:
    """The arrays that several rows share, in order of appearance."""
    return dict.fromkeys(
        role[0]
        for c in order.classes
        for k in order.operands
        for role in sorted((role for role in c.shared if k in role[1]), key=order.roles.__getitem__)
    )


def _rows_of_key(c: RowClass, operands: tuple[int, ...], shared: dict[str, str]) -> tuple[Row, tuple[int, ...]]:
    """The rows of `c` as a key writes them, and the positions in ``c.own`` of their own arrays in order of appearance."""
    place = {k: j for j, k in enumerate(operands)}
    own = [(dtype, sorted(place[k] for k in columns), slot) for slot, (dtype, columns) in enumerate(c.own)]
    common = sorted((int(shared[name][1:]), columns) for name, columns in c.shared)
    row: list[list[str]] = [[] for _ in operands]
    slots: list[list[int]] = [[] for _ in operands]
    for number, columns in common:
        for k in columns:
            row[place[k]].append(f"A{number}")
    several = 0
    for dtype, places, slot in sorted(own):
        member = dtype if len(places) == 1 else f"{dtype}#{several}"
        several += len(places) > 1
        for j in places:
            row[j].append(member)
            slots[j].append(slot)
    return tuple(map(tuple, row)), tuple(dict.fromkeys(slot for entry in slots for slot in entry))


def _own_arrays(classes: tuple[RowClass, ...], slots: list[tuple[int, ...]]) -> dict[str, str]:
    """The names of the arrays that stand in one row, numbered in order of appearance."""
    names = [c_names[slot] for c, order in zip(classes, slots, strict=True) for c_names in c.names for slot in order]
    return {name: f"x{k}" for k, name in enumerate(names)}


def is_isomorphic(e1: BatchedEinsum, e2: BatchedEinsum) -> bool:
    """Whether renaming arrays, indices and long axes and reordering operands and rows makes `e2` of `e1`."""
    return canonicalize_einsum(e1).key == canonicalize_einsum(e2).key


def isomorphism(e1: BatchedEinsum, e2: BatchedEinsum) -> Renaming | None:
    """The renaming from `e1` to `e2`, or None if there is none; ``.inverse`` leads back.

    Applied to `e1` it gives `e2` exactly, save that a long axis which `e2` writes in two ways is written in one.

    :raises FeinsumError: if applying the renaming to `e1` does not give `e2`, which would be a fault of feinsum.
    """
    first, second = canonicalize_einsum(e1), canonicalize_einsum(e2)
    if first.key != second.key:
        return None
    renaming = first.renaming.then(second.renaming.inverse)
    if renaming.apply(e1) != e2.with_sizes(spelling(e2, e2.equal_long_axes)):
        raise FeinsumError(f"'{e1}' and '{e2}' have the same key but {renaming} does not lead there; please report this")
    return renaming
