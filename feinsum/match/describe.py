"""From rows of a kernel to a batched einsum with names of its own, and the meanings of its names in the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feinsum.einsum import Array, Axis, BatchedEinsum, array, is_identifier
from feinsum.match.domain import Length
from feinsum.match.einsum_grammar import Row
from feinsum.match.row_groups import Correspondence
from feinsum.match.row_operands import RowOperand
from feinsum.subscripts import INDEX_LETTERS, Subscripts


@dataclass(frozen=True)
class Description:
    """A batched einsum and its names in the kernel.

    :ivar letters: iname of the first row -> index letter.
    :ivar arrays: array -> array of the kernel or substitution rule.
    :ivar axes: long axis -> parameter, or affine expression of parameters.
    """

    einsum: BatchedEinsum
    letters: Mapping[str, str]
    arrays: Mapping[str, str]
    axes: Mapping[str, str]


def describe_rows(
    first: Row, operands: Sequence[Sequence[RowOperand]], correspondences: Sequence[Correspondence]
) -> Description:
    """The batched einsum of rows with these operands, each of which corresponds to the first."""
    names = _EinsumNames()
    axes = {length: names.axis(length) for length in dict.fromkeys(first.lengths.values())}
    matrix = []
    shapes = [tuple(axes[first.lengths[iname]] for iname in at) for _, at in first.calls]
    for found, correspondence in zip(operands, correspondences, strict=True):
        entries = zip((found[k] for k in correspondence.operands), shapes, strict=True)
        matrix.append(tuple(names.entry(operand, shape) for operand, shape in entries))
    letters = _choose_letters(first, names.taken)
    indexing = Subscripts(
        tuple("".join(letters[iname] for iname in at) for _, at in first.calls),
        "".join(letters[iname] for iname in first.free),
    )
    long_axes = {axis: str(length) for length, axis in axes.items() if isinstance(axis, str)}
    return Description(BatchedEinsum(indexing, tuple(matrix)), letters, names.sources, long_axes)


class _EinsumNames:
    """Names of arrays and long axes: those of the kernel where they are valid and free, others like them elsewhere.

    :ivar sources: array -> what it is in the kernel.
    """

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.sources: dict[str, str] = {}
        self._known: dict[object, Array] = {}

    def axis(self, length: Length) -> Axis:
        """A length, or a name for it: ``n``, ``n_plus_1``."""
        if isinstance(length, int):
            return length
        words = length.replace("+", "plus").replace("-", "minus ").replace("*", " times ")
        return self._fresh("_".join(words.split()), "length")

    def entry(self, operand: RowOperand, shape: tuple[Axis, ...]) -> tuple[Array, ...]:
        """The arrays of one operand, in order of name."""
        found = []
        for name, dtype in operand.arrays:
            key = (name, shape, dtype) if operand.opaque else name
            if key not in self._known:
                made = array(self._fresh(name, "array"), shape, dtype)
                self._known[key] = made
                self.sources[made.name] = name
            found.append(self._known[key])
        return tuple(sorted(found, key=lambda a: a.name))

    def _fresh(self, name: str, kind: str) -> str:
        name = name.lstrip("_") or kind
        if not is_identifier(name):
            name = f"{kind}_{name}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _choose_letters(row: Row, taken: set[str]) -> dict[str, str]:
    """A letter for each iname: the iname if it is one, else its first letter, else another; none that means something."""
    letters: dict[str, str] = {}
    # A letter that an array has too is the last resort of kernels with very many indices.
    spare = [letter for letter in INDEX_LETTERS if letter not in taken] + sorted(taken.intersection(INDEX_LETTERS))
    wishes = [(iname, iname) for iname in row.inames] + [(iname, iname.lstrip("_")[:1]) for iname in row.inames]
    for iname, wish in wishes:
        if iname not in letters and wish in spare and wish not in taken:
            letters[iname] = wish
            spare.remove(wish)
    for iname in row.inames:
        if iname not in letters:
            letters[iname] = spare.pop(0)
    return letters
