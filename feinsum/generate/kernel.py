"""The kernel that a user holds: callable on arrays, and able to explain itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.canonicalization import CanonicalEinsum
from feinsum.compile.buffers import deliver, empty_arrays, fill_with_zeros, input_buffer, output_buffer
from feinsum.compile.executable import Executable, build
from feinsum.compile.program import Program
from feinsum.database import TuningRecord
from feinsum.devices import Device
from feinsum.einsum import BatchedEinsum
from feinsum.errors import ValidationError
from feinsum.generate.arguments import check_arguments, check_context, check_outputs, find_library
from feinsum.generate.ladder import Choice

if TYPE_CHECKING:
    import loopy as lp

_MEANING = {
    "exact": "measured for this einsum at these lengths, on this device and driver",
    "lengths": "measured for this einsum at other lengths on this device",
    "pattern": "measured for the same pattern at other lengths on this device",
    "driver": "measured on this device with another driver",
    "architecture": "measured on another device of the same architecture",
    "default": "nothing measured fits; the default of the most specific transform space",
    "generic": "nothing measured fits; the space that accepts every einsum",
}


class Kernel:
    """A batched einsum on a device.  Made by :func:`feinsum.generate`; thread-safe.

    :ivar einsum: what it computes.
    :ivar device: where.
    :ivar rung: which rung of the ladder its configuration comes from, see :mod:`feinsum.generate.ladder`.
    :ivar record: the record it comes from, if any.
    :ivar configuration: the configuration of :attr:`space`.
    """

    def __init__(
        self,
        e: BatchedEinsum,
        canonical: CanonicalEinsum,
        lengths: Mapping[str, int],
        device: Device,
        choice: Choice,
        executable: Executable,
    ) -> None:
        self.einsum: BatchedEinsum = e
        self.device = device
        self.rung: str = choice.rung
        self.record: TuningRecord | None = choice.record
        self.space: str = choice.space.name
        self.configuration: dict[str, Any] = dict(choice.configuration)
        self._canonical = canonical
        self._lengths = dict(lengths)
        self._choice = choice
        self._executable = executable
        self._wide: Executable | None = None
        self._lock = threading.Lock()
        order = {given: own for own, given in enumerate(canonical.renaming.rows)}
        self._outputs = [canonical.einsum.output_names[order[row]] for row in range(self.einsum.b)]

    @property
    def program(self) -> Program:
        """Source, arguments and launch geometry, as data.  Its arrays have the names of the canonical einsum."""
        return self._executable.program

    @property
    def source(self) -> str:
        """The OpenCL C source."""
        return self.program.source

    @cached_property
    def t_unit(self) -> lp.TranslationUnit:
        """The transformed loopy kernel."""
        from feinsum.compile.realize import transformed

        e = self._canonical.einsum
        return transformed(e, e.sizes_from(self._lengths), self._choice.space, self.configuration, self.device.profile)

    def __call__(
        self,
        arrays: Mapping[str, Any] | None = None,
        /,
        *,
        out: Any = None,
        queue: Any = None,
        wait_for: Sequence[Any] | None = None,
        **named: Any,
    ) -> Any:
        """Evaluate the einsum.

        :param named: one array for each name: all numpy arrays, or all :class:`pyopencl.array.Array`.
        :param arrays: the same as a mapping, for names that are also those of the parameters below.
        :param out: an array for the result (a tuple of them for several outputs), of the kind of the inputs.
        :param queue: the :class:`pyopencl.CommandQueue` to use; by default that of the first device array, or the device's.
        :param wait_for: events to wait for.
        :returns: for numpy arrays, the result as numpy arrays; for device arrays, device arrays whose `events` tell when
            they are ready; a tuple where there are several outputs.
        :raises ValidationError, ShapeError, DTypeError: naming the argument that does not fit, before any launch.
        """
        inputs = {**(arrays or {}), **named}
        library = find_library(inputs)
        lengths = check_arguments(self.einsum, inputs)
        shape = tuple(lengths[letter] for letter in self.einsum.indexing.output)
        results = {} if out is None else check_outputs(self.einsum, out, shape, library, inputs)
        on_device = {} if library == "numpy" else {**inputs, **results}
        queue = queue or self._queue_of(on_device)
        if queue.context != self.device.context:
            raise ValidationError("queue belongs to another context than the kernel; pass one of the kernel's device")
        check_context(on_device, queue)
        events = [*(wait_for or ()), *(event for value in on_device.values() for event in value.events)]
        if not results:
            results = self._new_results(shape, None if library == "numpy" else queue)
        if 0 in lengths.values():
            for result in results.values():
                fill_with_zeros(result, queue, events)
        else:
            self._run(inputs, results, lengths, queue, events)
        return tuple(results.values()) if self.einsum.b > 1 else results[self.einsum.output_names[0]]

    def _queue_of(self, on_device: Mapping[str, Any]) -> Any:
        queues = (value.queue for value in on_device.values() if value.context == self.device.context)
        return next((queue for queue in queues if queue is not None), None) or self.device.queue

    def _new_results(self, shape: tuple[int, ...], queue: Any) -> dict[str, Any]:
        """New arrays by name of output: of numpy without a queue, else of the device."""
        dtypes = self.einsum.dtypes
        new = [np.empty(shape, dtype) for dtype in dtypes] if queue is None else empty_arrays(queue, shape, dtypes)
        return dict(zip(self.einsum.output_names, new, strict=True))

    def _run(
        self,
        arrays: Mapping[str, Any],
        results: Mapping[str, Any],
        lengths: Mapping[str, int],
        queue: Any,
        wait_for: list[Any],
    ) -> None:
        copies: list[Any] = []
        names = self._canonical.renaming.arrays
        inputs = {names[name]: input_buffer(value, queue, copies) for name, value in arrays.items()}
        own_names = zip(self._outputs, results.values(), strict=True)
        outputs = {name: output_buffer(result, queue) for name, result in own_names}
        e = self._canonical.einsum
        own_lengths = self._canonical.renaming.lengths(lengths)
        values = {name: own_lengths[letter] for letter, name in e.length_names.items()}
        executable = self._executable_for(own_lengths)
        scratch = executable.scratch(queue.context, values)
        events = [*wait_for, *(event for value in copies for event in value.events)]
        done = executable.enqueue(queue, inputs | outputs | scratch, values, events or None)
        for buffer, result in zip(outputs.values(), results.values(), strict=True):
            deliver(result, buffer, queue, done[-1])

    def _executable_for(self, lengths: Mapping[str, int]) -> Executable:
        """The executable, or one with 64-bit indices where an array needs them and the first has not."""
        from feinsum.compile.realize import index_dtype, realize

        e = self._canonical.einsum
        if index_dtype(e, lengths) == index_dtype(e, self._lengths) or index_dtype(e, lengths) == "int32":
            return self._executable
        with self._lock:
            if self._wide is None:
                sizes = e.sizes_from(self._lengths)
                program = realize(e, sizes, self._choice.space, self.configuration, self.device.profile, wide=True)
                self._wide = build(self.device.context, program)
            return self._wide

    def explain(self) -> str:
        """Which rung, record and configuration, at which lengths, and what time to expect."""
        given = self._canonical.renaming.inverse.lengths(self._lengths)
        given |= {letter: 0 for letter, axis in self.einsum.index_sizes.items() if axis == 0}
        lines = [
            f"{self.einsum.subscripts} on {self.device}",
            f"  lengths   {_listed(given)}",
            f"  rung      {self.rung}: {_MEANING[self.rung]}",
            f"  space     {self.space} (version {self._choice.space.version}): {_listed(self.configuration)}",
        ]
        if self.record is not None and self.record.median_s is not None:
            r, t, own = self.record, self.record.median_s, self._canonical.pattern.renaming.inverse
            lines.append(f"  record    {r.id} of {r.created}, at {_listed(own.lengths(r.pattern_sizes))}")
            lines.append(f"  time      {t * 1e3:.4g} ms, {r.flops / t / 1e9:.4g} GFLOP/s, {r.bytes / t / 1e9:.4g} GB/s")
            peaks = self.device.known_peaks
            if peaks is not None:
                from feinsum.cost import roofline_s

                fraction = roofline_s(r.flops, r.bytes, self.einsum.dtype, peaks) / t
                lines.append(f"  roofline  {fraction:.0%} of what the device can do")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Kernel {self.einsum.subscripts} on {self.device.id}, {self.space}, rung {self.rung}>"


def _listed(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())
