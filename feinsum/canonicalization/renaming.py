"""A renaming turns one batched einsum into another that differs in names and order alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from feinsum.arrays import Array, Axis
from feinsum.canonicalization.axis_notation import spelling
from feinsum.einsum import BatchedEinsum
from feinsum.epilogue import Epilogue
from feinsum.errors import ShapeError, SubscriptError
from feinsum.subscripts import Subscripts


@dataclass(frozen=True)
class Renaming:
    """New names for the arrays, indices and long axes of a batched einsum, and a new order of its operands and rows.

    :ivar arrays: the name of each array in the target, by its name in the source.
    :ivar indices: the letter of each index in the target, by its letter in the source.
    :ivar spellings: how the axis of an index is written in source and target (a name or ``math.inf``), by the letter of
        the index in the source; long axes only, since lengths do not change.
    :ivar operands: operand k of the target is operand ``operands[k]`` of the source.
    :ivar rows: row, and so output, i of the target is row ``rows[i]`` of the source.
    :ivar scalars: the name of each number that an epilogue takes, by its name in the source.
    """

    arrays: Mapping[str, str] = field(hash=False)
    indices: Mapping[str, str] = field(hash=False)
    spellings: Mapping[str, tuple[Axis, Axis]] = field(hash=False)
    operands: tuple[int, ...]
    rows: tuple[int, ...]
    scalars: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def axes(self) -> dict[str, str]:
        """The name of each long axis in the target, by its name in the source.

        As in :attr:`BatchedEinsum.long_axes`, an axis of ``math.inf`` goes by the letter of its index.
        """
        return {
            letter if here == math.inf else str(here): self.indices[letter] if there == math.inf else str(there)
            for letter, (here, there) in self.spellings.items()
        }

    @property
    def inverse(self) -> Renaming:
        """The renaming from the target back to the source."""
        return Renaming(
            arrays={there: here for here, there in self.arrays.items()},
            indices={there: here for here, there in self.indices.items()},
            spellings={self.indices[letter]: (there, here) for letter, (here, there) in self.spellings.items()},
            operands=_invert(self.operands),
            rows=_invert(self.rows),
            scalars={there: here for here, there in self.scalars.items()},
        )

    def then(self, other: Renaming) -> Renaming:
        """This renaming followed by `other`, whose source is the target of this one.

        :raises SubscriptError: if `other` starts from other names or numbers of operands or rows.
        """
        for what, here, there in (
            ("arrays", set(self.arrays.values()), set(other.arrays)),
            ("indices", set(self.indices.values()), set(other.indices)),
            ("operands", set(self.operands), set(other.operands)),
            ("rows", set(self.rows), set(other.rows)),
            ("scalars", set(self.scalars.values()), set(other.scalars)),
        ):
            if here != there:
                raise SubscriptError(
                    f"the first renaming ends with {what} {_listed_names(here)} but the second starts from"
                    f" {_listed_names(there)}; compose renamings that meet in one einsum"
                )
        return Renaming(
            arrays={here: other.arrays[there] for here, there in self.arrays.items()},
            indices={here: other.indices[there] for here, there in self.indices.items()},
            spellings={
                letter: (here, other.spellings[self.indices[letter]][1]) for letter, (here, _) in self.spellings.items()
            },
            operands=tuple(self.operands[k] for k in other.operands),
            rows=tuple(self.rows[i] for i in other.rows),
            scalars={here: other.scalars[there] for here, there in self.scalars.items()},
        )

    def lengths(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Lengths by index of the target, from `lengths` by index of the source."""
        unknown = sorted(set(lengths) - set(self.indices))
        if unknown:
            raise ShapeError(
                f"{unknown[0]!r} is no index of the source of this renaming; those are {_listed_names(self.indices)}"
            )
        return {self.indices[letter]: length for letter, length in lengths.items()}

    def apply(self, e: BatchedEinsum) -> BatchedEinsum:
        """Rename and reorder `e`, the source or the source with other lengths.

        Lengths are kept and long axes are written as in the target.  Where the shapes of the target write one long axis
        in two ways (a name in one array, ``math.inf`` in another), the result has the name in both.

        :raises SubscriptError: if `e` has other arrays, indices, or numbers of operands or rows than the source.
        """
        self._check(e)
        axes = {
            self.indices[letter]: axis if isinstance(axis, int) else self.spellings.get(letter, (axis, axis))[1]
            for letter, axis in spelling(e, e.equal_long_axes).items()
        }
        table = str.maketrans(dict(self.indices))
        inputs = [letters.translate(table) for letters in e.indexing.inputs]
        made: dict[str, Array] = {}
        for row in e.args:
            for entry, letters in zip(row, inputs, strict=True):
                for a in entry:
                    if a.name not in made:
                        made[a.name] = Array(self.arrays[a.name], tuple(axes[letter] for letter in letters), a.dtype)
        for read in (read for own in e.epilogues if own for read in own.reads):
            if read.array.name not in made:
                shape = tuple(axes[self.indices[e.indexing.output[k]]] for k in read.axes)
                made[read.array.name] = Array(self.arrays[read.array.name], shape, read.array.dtype)
        return BatchedEinsum(
            Subscripts(tuple(inputs[k] for k in self.operands), e.indexing.output.translate(table)),
            tuple(
                tuple(tuple(sorted((made[a.name] for a in e.args[i][k]), key=lambda a: a.name)) for k in self.operands)
                for i in self.rows
            ),
            self._epilogues(e, made),
        )

    def _epilogues(self, e: BatchedEinsum, arrays: Mapping[str, Array]) -> tuple[Epilogue | None, ...]:
        """The epilogues of the target, of which one of several rows has these in their new order."""
        if e.combines:
            return tuple(own and own.renamed(arrays, self.scalars, _row_places(self.rows)) for own in e.epilogues)
        return tuple(
            own and own.renamed(arrays, self.scalars) for own in (e.epilogues[i] for i in self.rows if e.epilogues)
        )

    def _check(self, e: BatchedEinsum) -> None:
        for what, here, there in (
            ("arrays", {a.name for a in e.arrays}, set(self.arrays)),
            ("scalars", set(e.scalars), set(self.scalars)),
            ("indices", set(e.indexing.indices), set(self.indices)),
        ):
            if here != there:
                raise SubscriptError(
                    f"'{e}' has {what} {_listed_names(here)} but the renaming is of {_listed_names(there)}"
                )
        for what, count, expected in (("operands", e.n, len(self.operands)), ("rows", e.b, len(self.rows))):
            if count != expected:
                raise SubscriptError(f"'{e}' has {count} {what} but the renaming is of {expected}")


def _row_places(rows: tuple[int, ...]) -> dict[int, int]:
    """Where each row of the source is in the target."""
    return {row: place for place, row in enumerate(rows)}


def _invert(permutation: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _listed_names(names: object) -> str:
    return ", ".join(map(str, sorted(names))) or "none"  # type: ignore[call-overload]
