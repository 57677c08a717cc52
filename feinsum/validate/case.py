"""Cases, by which kernels are proved: inputs on a device, with references for the outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.compile.filling import enqueue_fill
from feinsum.timing import buffer_sets_needed
from feinsum.validate.guarded import GuardedBuffer, digests, finite_byte
from feinsum.validate.reference import Reference
from feinsum.validate.verdict import Verdict

if TYPE_CHECKING:
    from feinsum.compile.executable import Executable
    from feinsum.devices import DeviceProfile

_OUTPUT_BAND = 0xA5
_POISON = {"f": 0xFF, "c": 0xFF, "i": 0x5A, "u": 0x5A, "b": 0x5A}
"""The byte that outputs are filled with, by kind of type.  All bits set are a NaN; as integers they would be -1, which is
often a sum of small numbers."""
_MOST_BYTES_TO_ROTATE = 4 << 30


class Case(ABC):
    """Inputs at one set of lengths on a device, with references for the outputs.

    Made once for all variants.

    :param inputs: arrays by name.
    :param results: the shape and type of each output, by name.
    :param present: the content, before a run, of outputs that are updated, by name.
    :param draw: how inputs are drawn; one of :data:`feinsum.validate.draws.DRAWS`.
    """

    def __init__(
        self,
        queue: Any,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        results: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
        present: Mapping[str, np.ndarray[Any, Any]],
        draw: str,
    ) -> None:
        self.queue, self.draw = queue, draw
        self._inputs, self._results, self._present = inputs, results, present
        self._guarded: dict[str, GuardedBuffer] = {}

    @abstractmethod
    def another(self) -> Case:
        """The same case with other numbers."""

    @property
    @abstractmethod
    def references(self) -> Sequence[Reference]:
        """The reference of each output."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The values of the length arguments, and of numbers that are given at the call."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of one set of inputs and outputs."""

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """Bytes that a run must move at least."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The lengths in words, for messages."""

    @property
    def runs_until_large(self) -> int | None:
        """After how many runs, each of which updates what the last one left, an output is to be restored; None if never."""
        return None

    @property
    def present(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """The content, before a run, of outputs that are updated, by name."""
        return self._present

    def is_finite(self, name: str) -> bool:
        """Whether an output is to be finite wherever its inputs are."""
        return True

    @property
    def is_determined(self) -> bool:
        """Whether infinities and NaN give the same outputs in whatever order they are evaluated."""
        return False

    def is_open(self, name: str) -> bool:
        """Whether nothing may be known of some entries of an output, whose bound is then infinite."""
        return False

    def sets_to_rotate(self, profile: DeviceProfile) -> int:
        """The number of sets of inputs and outputs that keeps timing out of the cache, within a quarter of the memory."""
        return buffer_sets_needed(self.used_bytes, self.nbytes, profile.cache_bytes, _most_case_bytes(profile))

    def room(self, profile: DeviceProfile) -> int:
        """The number of sets of inputs and outputs that fit into a quarter of the memory."""
        return _most_case_bytes(profile) // max(self.nbytes, 1)

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

    def upload_present(self) -> dict[str, Any]:
        """Buffers with what outputs that are updated hold before a run, by name."""
        import pyopencl as cl

        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        return {
            name: cl.Buffer(self.queue.context, flags, hostbuf=np.ascontiguousarray(values))
            for name, values in self._present.items()
            if values.size
        }

    def outputs(self) -> dict[str, Any]:
        """Buffers for the outputs, by name."""
        import pyopencl as cl

        return {
            name: cl.Buffer(self.queue.context, cl.mem_flags.READ_WRITE, max(1, self._output_bytes(name)))
            for name in self._results
        }

    def _output_bytes(self, name: str) -> int:
        shape, dtype = self._results[name]
        return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize

    @cached_property
    def _guarded_inputs(self) -> dict[str, GuardedBuffer]:
        """The inputs, between bands of values that spoil a result which reads them."""
        found = {}
        for name, values in self._inputs.items():
            found[name] = GuardedBuffer(self.queue, values.nbytes, _POISON[values.dtype.kind])
            found[name].put(values)
        return found

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The inputs that kernels are proved with, as buffers by name."""
        return {name: guarded.view for name, guarded in self._guarded_inputs.items()}

    @cached_property
    def _digests(self) -> dict[str, bytes]:
        return self._digests_now()

    def _digests_now(self) -> dict[str, bytes]:
        """The digests that show whether guarded inputs were written to, by name."""
        wholes = [guarded.whole for guarded in self._guarded_inputs.values()]
        return dict(zip(self._guarded_inputs, digests(self.queue, wholes), strict=True))

    def check(self, executable: Executable) -> Verdict:
        """Run an executable once, and compare its outputs with the references and its inputs with what they were.

        Inputs that it wrote to are renewed, since the next variant shares them.
        """
        inputs, known = self.inputs, self._digests
        outputs = self._poisoned_outputs()
        self._run(executable, inputs, {name: guarded.view for name, guarded in outputs.items()})
        changed = [name for name, found in self._digests_now().items() if found != known[name]]
        verdict = self._judge_guarded(outputs)
        return self._renew(changed, verdict) if changed else verdict

    def _renew(self, names: list[str], verdict: Verdict) -> Verdict:
        """Restore inputs; a verdict on their change, unless that of the outputs is worse."""
        escaped = verdict.escaped
        for name in names:
            guarded = self._guarded_inputs[name]
            _, intact = guarded.read()
            escaped = escaped or not intact
            guarded.put(self._inputs[name])
            guarded.renew_bands()
        where = "out of bounds" if escaped else "though it is an input"
        return verdict if not verdict.ok else Verdict(f"'{names[0]}' is written {where} {self._where()}", np.inf, escaped)

    def _poisoned_outputs(self) -> dict[str, GuardedBuffer]:
        """A buffer for each output, made at the first check.

        Even numbers meet NaN where nothing was written, the others a finite number, so that what a kernel finds in its
        output never says whether to write there.  One that is updated holds what the workload says.
        """
        for name, (_, dtype) in self._results.items():
            if name not in self._guarded:
                self._guarded[name] = GuardedBuffer(self.queue, self._output_bytes(name), _OUTPUT_BAND)
            else:
                self._guarded[name].renew_bands()
            if name in self._present:
                self._guarded[name].put(self._present[name])
            else:
                self._guarded[name].fill(_POISON[dtype.kind] if self.draw == "even" else finite_byte())
        return self._guarded

    def _run(self, executable: Executable, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Run with poison where launches share memory."""
        scratch = executable.scratch(self.queue.context, self.parameters)
        for buffer in scratch.values():
            enqueue_fill(self.queue, buffer, _POISON["f"] if self.draw == "even" else finite_byte(), 0, buffer.size)
        executable.enqueue(self.queue, {**inputs, **outputs, **scratch}, self.parameters)
        self.queue.finish()

    def _judge_guarded(self, outputs: Mapping[str, GuardedBuffer]) -> Verdict:
        """Compare outputs between bands with the references."""
        worst = 0.0
        for (name, guarded), reference in zip(outputs.items(), self.references, strict=True):
            shape, dtype = self._results[name]
            raw, intact = guarded.read()
            if not intact:
                return Verdict(f"'{name}' is written out of bounds {self._where()}", np.inf, escaped=True)
            verdict = self._compare(name, raw.view(dtype).reshape(shape), reference)
            if not verdict.ok:
                return verdict
            worst = max(worst, verdict.worst)
        return Verdict("", worst)

    def judge(self, outputs: Mapping[str, Any]) -> Verdict:
        """Compare buffers that an executable has filled, by the names of the outputs, with the references."""
        worst = 0.0
        for (name, buffer), reference in zip(outputs.items(), self.references, strict=True):
            verdict = self._compare(name, self.fetch(name, buffer), reference)
            if not verdict.ok:
                return verdict
            worst = max(worst, verdict.worst)
        return Verdict("", worst)

    def fetch(self, name: str, buffer: Any) -> np.ndarray[Any, Any]:
        """An output of which a buffer has the content."""
        import pyopencl as cl

        values = np.empty(*self._results[name])
        if values.size:
            cl.enqueue_copy(self.queue, values, buffer)
        return values

    def _compare(self, name: str, values: np.ndarray[Any, Any], reference: Reference) -> Verdict:
        whole = values.shape == reference.expected.shape
        if whole and (worst := reference.worst(values)) is not None:  # as nearly always
            return Verdict("", worst)
        suspicious = self.draw == "even" and self.is_finite(name) and not _surely_finite(values)
        if suspicious and len(bad := np.argwhere(_poison_mask(values))):
            where = f"the first at {list(map(int, bad[0]))}, {self._where()}"
            return Verdict(f"'{name}' has {len(bad)} entries not written or not finite, {where}", np.inf)
        found = values if whole else values[np.ix_(*reference.at)]
        if not whole and (worst := reference.worst(found)) is not None:
            return Verdict("", worst)
        definite = np.isfinite(reference.expected)
        with np.errstate(invalid="ignore"):
            error = np.where(definite, abs(found.astype(reference.expected.dtype) - reference.expected), 0)
            wrong = np.where(definite, ~(error <= reference.bound), np.isfinite(found))
            if self.is_determined:
                wrong |= ~definite & (found != reference.expected) & ~(np.isnan(found) & np.isnan(reference.expected))
        if self.is_open(name):
            wrong &= reference.bound < np.inf
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
        return Verdict("", float(np.nan_to_num(share, posinf=0.0).max(initial=0.0)))

    def _where(self) -> str:
        return f"at lengths {self.place}" + ("" if self.draw == "even" else f", of {self.draw} inputs")


def _most_case_bytes(profile: DeviceProfile) -> int:
    return min(profile.global_memory_bytes // 4, _MOST_BYTES_TO_ROTATE)


def _surely_finite(values: np.ndarray[Any, Any]) -> bool:
    """Whether a sum says that no value is infinite or NaN, at a quarter of what looking at each of them takes.

    A sum may overflow, so that False says nothing.
    """
    with np.errstate(all="ignore"):
        return values.dtype.kind in "fc" and bool(np.isfinite(values.sum()))


def _poison_mask(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where nothing was written or, for floating-point types, no number; integers below 32 bits may be anything."""
    if values.dtype.kind in "fc":
        return np.asarray(~np.isfinite(values))
    if values.dtype.itemsize < 4:
        return np.zeros(values.shape, bool)
    poison = np.full(values.dtype.itemsize, _POISON[values.dtype.kind], np.uint8).view(values.dtype)[0]
    return np.asarray(values == poison)
