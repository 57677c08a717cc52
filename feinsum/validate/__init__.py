"""Validation: every variant is proved before it is timed.

Outputs are poisoned and lie between guard bands, inputs are random and of mixed sign, the result is compared with a
reference in higher precision on the same inputs, at the lengths to be timed and at lengths that divide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.einsum import BatchedEinsum
from feinsum.validate.reference import Reference, random_inputs, references

if TYPE_CHECKING:
    from feinsum.compile.executable import Executable

_GUARD_BYTES = 4096
_GUARD = np.uint8(0xA5)
_POISON = np.uint8(0xFF)
"""All bits set: a NaN in every floating-point type."""
_ODD_LENGTHS = (1, 67)
"""Lengths of long axes besides the one in use: one, and a prime."""


@dataclass(frozen=True)
class Verdict:
    """Whether a kernel is right.

    :ivar message: what is wrong, where and by how much; empty if nothing is.
    :ivar worst: the largest error as a fraction of its bound.
    """

    message: str
    worst: float

    @property
    def ok(self) -> bool:
        return not self.message


class Workload:
    """The inputs of one einsum at one set of lengths on a device, with references for its outputs.

    Made once for all variants.
    """

    def __init__(self, e: BatchedEinsum, lengths: Mapping[str, int], queue: Any, seed: int = 0) -> None:
        """Draw inputs, compute the references and copy the inputs to the device.

        :param lengths: the length of every index.
        """
        self.einsum = e
        self.lengths = dict(lengths)
        self.queue = queue
        self._inputs = random_inputs(e, lengths, seed)
        self.references = references(e, lengths, self._inputs, seed)
        self.shape = tuple(lengths[letter] for letter in e.indexing.output)
        self.inputs = self.upload()

    @property
    def parameters(self) -> dict[str, int]:
        """The values of the length arguments."""
        return length_values(self.einsum, self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes of one set of inputs and outputs."""
        return self.einsum.min_bytes(self.einsum.sizes_from(self.lengths))

    def upload(self) -> dict[str, Any]:
        """A fresh copy of the inputs on the device, as buffers by name."""
        import pyopencl as cl

        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        return {
            name: cl.Buffer(self.queue.context, flags, hostbuf=values)
            if values.size
            else cl.Buffer(self.queue.context, cl.mem_flags.READ_ONLY, 1)
            for name, values in self._inputs.items()
        }

    def outputs(self) -> dict[str, Any]:
        """Buffers for the outputs, by name."""
        import pyopencl as cl

        return {
            name: cl.Buffer(self.queue.context, cl.mem_flags.READ_WRITE, max(1, self._output_bytes(dtype)))
            for name, dtype in zip(self.einsum.output_names, self.einsum.dtypes, strict=True)
        }

    def _output_bytes(self, dtype: np.dtype[Any]) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * dtype.itemsize

    def check(self, executable: Executable) -> Verdict:
        """Run an executable once and compare its outputs with the references."""
        import pyopencl as cl

        queue = self.queue
        guarded = {}
        for name, dtype in zip(self.einsum.output_names, self.einsum.dtypes, strict=True):
            size = self._output_bytes(dtype)
            whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size + 2 * _GUARD_BYTES)
            cl.enqueue_fill_buffer(queue, whole, _GUARD, 0, size + 2 * _GUARD_BYTES)
            if size:
                cl.enqueue_fill_buffer(queue, whole, _POISON, _GUARD_BYTES, size)
            guarded[name] = (whole, size)
        views = {name: whole.get_sub_region(_GUARD_BYTES, max(1, size)) for name, (whole, size) in guarded.items()}
        scratch = executable.scratch(queue.context, self.parameters)
        executable.enqueue(queue, {**self.inputs, **views, **scratch}, self.parameters)
        queue.finish()
        worst = 0.0
        pairs = zip(guarded.items(), self.einsum.dtypes, self.references, strict=True)
        for (name, (whole, size)), dtype, reference in pairs:
            raw = np.empty(size + 2 * _GUARD_BYTES, np.uint8)
            cl.enqueue_copy(queue, raw, whole)
            if (raw[:_GUARD_BYTES] != _GUARD).any() or (raw[_GUARD_BYTES + size :] != _GUARD).any():
                self.inputs = self.upload()
                return Verdict(f"'{name}' is written out of bounds at {self._where()}", np.inf)
            values = raw[_GUARD_BYTES : _GUARD_BYTES + size].view(dtype).reshape(self.shape)
            verdict = self._compare(name, values, reference)
            worst = max(worst, verdict.worst)
            if not verdict.ok:
                return verdict
        return Verdict("", worst)

    def _compare(self, name: str, values: np.ndarray[Any, Any], reference: Reference) -> Verdict:
        if not np.issubdtype(values.dtype, np.integer) and not np.isfinite(values).all():
            bad = np.argwhere(~np.isfinite(values))
            at = tuple(map(int, bad[0]))
            return Verdict(
                f"'{name}' has {len(bad)} entries not written or not finite, the first at {at}, {self._where()}", np.inf
            )
        found = values[np.ix_(*reference.at)] if reference.at else values
        error = abs(found.astype(reference.expected.dtype) - reference.expected)
        wrong = ~(error <= reference.bound)
        if wrong.any():
            first = tuple(int(axis[k]) for axis, k in zip(reference.at, np.argwhere(wrong)[0], strict=True))
            at = tuple(np.argwhere(wrong)[0])
            return Verdict(
                f"'{name}'{list(first)} is {found[at]} instead of {reference.expected[at]}"
                f" (allowed error {float(reference.bound[at]):.2e});"
                f" {int(wrong.sum())} of {wrong.size} entries compared are wrong, {self._where()}",
                np.inf,
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            return Verdict("", float(np.nan_to_num(error / reference.bound).max(initial=0.0)))

    def _where(self) -> str:
        return "at lengths " + " ".join(f"{letter}={length}" for letter, length in self.lengths.items())


def length_values(e: BatchedEinsum, lengths: Mapping[str, int]) -> dict[str, int]:
    """The value of each length argument of a kernel for `e`, from the length of every index."""
    return {name: lengths[letter] for letter, name in e.length_names.items()}


def odd_lengths(e: BatchedEinsum, lengths: Mapping[str, int]) -> list[dict[str, int]]:
    """Lengths other than those in use at which a kernel with long axes has to be right too."""
    if not e.long_axes:
        return []
    return [
        {
            letter: length if isinstance(e.index_sizes[letter], int) else min(odd, length)
            for letter, length in lengths.items()
        }
        for odd in _ODD_LENGTHS
    ]
