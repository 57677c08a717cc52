"""Validation: every variant is proved before it is timed.

Outputs are poisoned and lie between guard bands, inputs are random and of mixed sign, the result is compared with a
reference in higher precision on the same inputs, at the lengths to be timed and at lengths that divide nothing.  Where
sums are so long that a missing term could hide in the bound of roundoff, whole numbers are tried, too: with them any
order of evaluation is exact, and nothing is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.compile.filling import enqueue_fill
from feinsum.einsum import BatchedEinsum
from feinsum.timing import buffer_sets_needed
from feinsum.validate.reference import Reference, hides_terms, random_inputs, references, whole_inputs

if TYPE_CHECKING:
    from feinsum.compile.executable import Executable
    from feinsum.devices import DeviceProfile

_GUARD_BYTES = 64 << 10
"""In front of each output and behind it: several rows or tiles, so that a miss by one of them stays within."""
_GUARD = np.uint8(0xA5)
_POISON = {"f": np.uint8(0xFF), "c": np.uint8(0xFF), "i": np.uint8(0x5A), "u": np.uint8(0x5A)}
"""By kind of type.  All bits set are a NaN; as integers they would be -1, which sums of small numbers often are."""
_OTHER_LENGTHS = ((1,), (24, 12, 6, 2, 1), (67, 31, 13, 7, 3, 1))
"""Lengths of long axes besides the one in use: one, a multiple of most strips, and a prime; the first up to that in use."""

_MOST_BYTES_TO_ROTATE = 4 << 30


@dataclass(frozen=True)
class Verdict:
    """Whether a kernel is right.

    :ivar message: what is wrong, where and by how much; empty if nothing is.
    :ivar worst: the largest error as a fraction of its bound.
    :ivar escaped: whether it wrote where it must not, so that the memory of this process cannot be relied on any more.
    """

    message: str
    worst: float
    escaped: bool = False

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
        self._whole = whole_inputs(e, lengths, seed) if hides_terms(e, lengths) else None
        self._whole_references = references(e, lengths, self._whole, seed, exact=True) if self._whole else []
        self.shape = tuple(lengths[letter] for letter in e.indexing.output)
        self.inputs = self.upload()
        self._guarded: dict[str, Any] = {}

    @property
    def parameters(self) -> dict[str, int]:
        """The values of the length arguments."""
        return length_values(self.einsum, self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes of one set of inputs and outputs."""
        return self.einsum.array_bytes(self.einsum.sizes_from(self.lengths))

    def sets_to_rotate(self, profile: DeviceProfile) -> int:
        """How many sets of inputs and outputs keep timing from being served by the cache, in a quarter of the memory."""
        used = self.einsum.min_bytes(self.einsum.sizes_from(self.lengths))
        most = min(profile.global_memory_bytes // 4, _MOST_BYTES_TO_ROTATE)
        return buffer_sets_needed(used, self.nbytes, profile.cache_bytes, most)

    def upload(self) -> dict[str, Any]:
        """A fresh copy of the inputs on the device, as buffers by name."""
        return self._upload(self._inputs)

    def _upload(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        import pyopencl as cl

        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        return {
            name: cl.Buffer(self.queue.context, flags, hostbuf=values)
            if values.size
            else cl.Buffer(self.queue.context, cl.mem_flags.READ_ONLY, 1)
            for name, values in inputs.items()
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
        """Run an executable once, or twice where terms could hide, and compare its outputs with the references."""
        verdict = self._check(executable, self.inputs, self.references)
        if verdict.ok and self._whole is not None:
            exact = self._check(executable, self._upload(self._whole), self._whole_references)
            verdict = verdict if exact.ok else exact
        if not verdict.ok:
            # Who writes wrong values may have written to the inputs, too, which the next variant shares.
            self.inputs = self.upload()
        return verdict

    def _check(self, executable: Executable, inputs: Mapping[str, Any], expected: list[Reference]) -> Verdict:
        guarded = self._guarded_outputs()
        self._run(executable, inputs, guarded)
        worst = 0.0
        for (name, whole), dtype, reference in zip(guarded.items(), self.einsum.dtypes, expected, strict=True):
            verdict = self._judge(name, whole, dtype, reference)
            worst = max(worst, verdict.worst)
            if not verdict.ok:
                return verdict
        return Verdict("", worst)

    def _guarded_outputs(self) -> dict[str, Any]:
        """The buffer of each output, made at the first check: poison between guard bands."""
        import pyopencl as cl

        for name, dtype in zip(self.einsum.output_names, self.einsum.dtypes, strict=True):
            size = self._output_bytes(dtype)
            if name not in self._guarded:
                whole = size + 2 * _GUARD_BYTES
                self._guarded[name] = cl.Buffer(self.queue.context, cl.mem_flags.READ_WRITE, whole)
            self._fill(self._guarded[name], _GUARD, 0, _GUARD_BYTES)
            self._fill(self._guarded[name], _POISON[dtype.kind], _GUARD_BYTES, size)
            self._fill(self._guarded[name], _GUARD, _GUARD_BYTES + size, _GUARD_BYTES)
        return self._guarded

    def _fill(self, buffer: Any, value: np.uint8, start: int, size: int) -> None:
        """Set `size` bytes from `start` on; where the host shares the memory, it is eight times as quick as the driver."""
        import pyopencl as cl

        if not size:
            return
        if not self.queue.device.host_unified_memory:
            enqueue_fill(self.queue, buffer, int(value), start, size)
            return
        flags = cl.map_flags.WRITE_INVALIDATE_REGION
        mapped, _ = cl.enqueue_map_buffer(self.queue, buffer, flags, start, (size,), np.uint8, is_blocking=True)
        with mapped.base:
            mapped[:] = value

    def _run(self, executable: Executable, inputs: Mapping[str, Any], guarded: Mapping[str, Any]) -> None:
        """Run with outputs between guard bands, and with poison where launches share memory."""
        views = {
            name: whole.get_sub_region(_GUARD_BYTES, max(1, whole.size - 2 * _GUARD_BYTES))
            for name, whole in guarded.items()
        }
        scratch = executable.scratch(self.queue.context, self.parameters)
        for buffer in scratch.values():
            enqueue_fill(self.queue, buffer, int(_POISON["f"]), 0, buffer.size)
        executable.enqueue(self.queue, {**inputs, **views, **scratch}, self.parameters)
        self.queue.finish()

    def _judge(self, name: str, whole: Any, dtype: np.dtype[Any], reference: Reference) -> Verdict:
        import pyopencl as cl

        raw = np.empty(whole.size, np.uint8)
        cl.enqueue_copy(self.queue, raw, whole)
        if (raw[:_GUARD_BYTES] != _GUARD).any() or (raw[-_GUARD_BYTES:] != _GUARD).any():
            return Verdict(f"'{name}' is written out of bounds {self._where()}", np.inf, escaped=True)
        return self._compare(name, raw[_GUARD_BYTES:-_GUARD_BYTES].view(dtype).reshape(self.shape), reference)

    def _compare(self, name: str, values: np.ndarray[Any, Any], reference: Reference) -> Verdict:
        if not _surely_finite(values) and len(bad := np.argwhere(_is_poison(values))):
            where = f"the first at {list(map(int, bad[0]))}, {self._where()}"
            return Verdict(f"'{name}' has {len(bad)} entries not written or not finite, {where}", np.inf)
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
            share = error.astype(np.float64) / reference.bound.astype(np.float64)
        return Verdict("", float(np.nan_to_num(share).max(initial=0.0)))

    def _where(self) -> str:
        return "at lengths " + " ".join(f"{letter}={length}" for letter, length in self.lengths.items())


def _surely_finite(values: np.ndarray[Any, Any]) -> bool:
    """Whether a sum says that no value is infinite or NaN, at a quarter of what looking at each of them takes.

    A sum may overflow, so that False says nothing.
    """
    with np.errstate(all="ignore"):
        return values.dtype.kind in "fc" and bool(np.isfinite(values.sum()))


def _is_poison(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where nothing was written or, for floating-point types, no number; integers below 32 bits may be anything."""
    if values.dtype.kind in "fc":
        return np.asarray(~np.isfinite(values))
    if values.dtype.itemsize < 4:
        return np.zeros(values.shape, bool)
    poison = np.full(values.dtype.itemsize, _POISON[values.dtype.kind]).view(values.dtype)[0]
    return np.asarray(values == poison)


def length_values(e: BatchedEinsum, lengths: Mapping[str, int]) -> dict[str, int]:
    """The value of each length argument of a kernel for `e`, from the length of every index."""
    return {name: lengths[letter] for letter, name in e.length_names.items()}


def odd_lengths(e: BatchedEinsum, lengths: Mapping[str, int]) -> list[dict[str, int]]:
    """Lengths other than those in use at which a kernel with long axes has to be right too, the most telling last."""
    if not e.long_axes:
        return []
    return [
        {
            letter: length if isinstance(e.index_sizes[letter], int) else next(n for n in others if n <= max(1, length))
            for letter, length in lengths.items()
        }
        for others in _OTHER_LENGTHS
    ]
