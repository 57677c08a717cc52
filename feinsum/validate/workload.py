"""A workload: inputs of one einsum, with references for its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.einsum import BatchedEinsum
from feinsum.validate.case import Case
from feinsum.validate.draws import DRAWS, ZERO, is_determined, scalars_of
from feinsum.validate.growth import growth
from feinsum.validate.proof_lengths import length_values
from feinsum.validate.reference import Reference, references

if TYPE_CHECKING:
    from feinsum.epilogue import Epilogue


class Workload(Case):
    """The inputs of one einsum at one set of lengths on a device, with references for its outputs.

    :param lengths: the length of every index.
    :param draw: how inputs are drawn; one of :data:`feinsum.validate.draws.DRAWS`.
    """

    def __init__(self, e: BatchedEinsum, lengths: Mapping[str, int], queue: Any, seed: int = 0, draw: str = "even") -> None:
        self.einsum = e
        self.lengths = dict(lengths)
        self.shape = tuple(lengths[letter] for letter in e.indexing.output)
        self._seed = seed
        self._scalars = scalars_of(e, seed, draw)
        drawn = DRAWS[draw](e, lengths, seed)
        inputs = {a.name: drawn[a.name] for a in e.arrays}
        present = {name: _before(drawn[name], draw) for name in drawn if name not in inputs}
        results = {name: (self.shape, dtype) for name, dtype in zip(e.output_names, e.dtypes, strict=True)}
        super().__init__(queue, inputs, results, present, draw)

    def another(self) -> Workload:
        """The same workload with other numbers."""
        return Workload(self.einsum, self.lengths, self.queue, self._seed + 1, self.draw)

    @cached_property
    def references(self) -> list[Reference]:
        """The reference of each output."""
        inputs = {**self._inputs, **self._present}
        exact = self.draw == "whole"
        return references(self.einsum, self.lengths, inputs, self._seed, exact=exact, scalars=self._scalars)

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of the length arguments, and of the numbers that epilogues take."""
        return {**length_values(self.einsum, self.lengths), **self._scalars}

    @property
    def nbytes(self) -> int:
        """Bytes of one set of inputs and outputs."""
        return self.einsum.array_bytes(self.einsum.sizes_from(self.lengths))

    @property
    def used_bytes(self) -> int:
        """Bytes that a run must move at least."""
        return self.einsum.min_bytes(self.einsum.sizes_from(self.lengths))

    @property
    def runs_until_large(self) -> int | None:
        """After how many runs, each of which updates what the last one left, an output is to be restored; None if never."""
        kinds = [
            dtype.kind in "fc" and update for dtype, update in zip(self.einsum.dtypes, self.einsum.updates, strict=True)
        ]
        return growth(self.einsum, self.references, self._inputs, self._present, self._scalars) if any(kinds) else None

    @property
    def place(self) -> str:
        """The lengths in words."""
        return " ".join(f"{letter}={length}" for letter, length in self.lengths.items())

    def is_finite(self, name: str) -> bool:
        """Whether an output is to be finite wherever its sum is."""
        own = self._epilogue(name)
        return own is None or own.is_total

    @property
    def is_determined(self) -> bool:
        """Whether infinities and NaN give the same outputs in whatever order sums are evaluated."""
        return is_determined(self.einsum)

    def is_open(self, name: str) -> bool:
        """Whether nothing may be known of some entries of an output: an epilogue may leave them so."""
        return self._epilogue(name) is not None

    def _epilogue(self, name: str) -> Epilogue | None:
        """The epilogue of an output."""
        return self.einsum.epilogues[self.einsum.output_names.index(name)] if self.einsum.epilogues else None


def _before(values: np.ndarray[Any, Any], draw: str) -> np.ndarray[Any, Any]:
    """The content of an updated output before a run: NaN where zero multiplies it."""
    return np.full_like(values, np.nan) if draw == ZERO and values.dtype.kind in "fc" else values
