"""The kernel that a user holds: callable on arrays, and able to explain itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.canonicalization import CanonicalEinsum
from feinsum.compile.buffers import deliver, empty_arrays, input_buffer, output_buffer
from feinsum.compile.executable import Executable, build
from feinsum.compile.program import Program
from feinsum.database import TuningRecord
from feinsum.devices import Device
from feinsum.einsum import BatchedEinsum
from feinsum.errors import ValidationError
from feinsum.generate.arguments import check_arguments, check_output
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
        self, canonical: CanonicalEinsum, lengths: Mapping[str, int], device: Device, choice: Choice, executable: Executable
    ) -> None:
        self.einsum: BatchedEinsum = canonical.given
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

    def __call__(self, *, out: Any = None, queue: Any = None, wait_for: Sequence[Any] | None = None, **arrays: Any) -> Any:
        """Evaluate the einsum.

        :param arrays: one array for each name: all numpy arrays, or all :class:`pyopencl.array.Array`.
        :param out: an array for the result (a tuple of them for several outputs), of the kind of the inputs.
        :param queue: the :class:`pyopencl.CommandQueue` to use; by default that of the device, or of the first array.
        :param wait_for: events to wait for.
        :returns: for numpy arrays, the result as numpy arrays; for device arrays, device arrays whose `events` tell when
            they are ready; a tuple where there are several outputs.
        :raises ValidationError, ShapeError, DTypeError: naming the argument that does not fit, before any launch.
        """
        on_host = all(isinstance(value, np.ndarray | np.generic) for value in arrays.values())
        lengths = check_arguments(self.einsum, arrays)
        queue = queue or self._queue_of(arrays, on_host)
        shape = tuple(lengths[letter] for letter in self.einsum.indexing.output)
        results = self._results(out, shape, queue, on_host)
        if 0 in lengths.values():
            for result in results:
                result.fill(0)
        else:
            self._run(arrays, results, lengths, queue, wait_for, on_host)
        return results[0] if self.einsum.b == 1 else tuple(results)

    def _queue_of(self, arrays: Mapping[str, Any], on_host: bool) -> Any:
        if not on_host:
            for value in arrays.values():
                if getattr(value, "queue", None) is not None and value.context == self.device.context:
                    return value.queue
        return self.device.queue

    def _results(self, out: Any, shape: tuple[int, ...], queue: Any, on_host: bool) -> list[Any]:
        names, dtypes = self.einsum.output_names, self.einsum.dtypes
        if out is not None:
            given = [out] if self.einsum.b == 1 and not isinstance(out, (tuple, list)) else list(out)
            if len(given) != self.einsum.b:
                raise ValidationError(f"out has {len(given)} arrays but the kernel has {self.einsum.b} outputs")
            for value, name, dtype in zip(given, names, dtypes, strict=True):
                if isinstance(value, np.ndarray) != on_host:
                    raise ValidationError(
                        f"out '{name}' is {type(value).__module__}; pass arrays of the kind of the inputs"
                    )
                check_output(value, name, shape, dtype)
            return given
        if on_host:
            return [np.empty(shape, dtype) for dtype in dtypes]
        return empty_arrays(queue, shape, dtypes)

    def _run(
        self,
        arrays: Mapping[str, Any],
        results: list[Any],
        lengths: Mapping[str, int],
        queue: Any,
        wait_for: Sequence[Any] | None,
        on_host: bool,
    ) -> None:
        owned: list[Any] = []
        names = self._canonical.renaming.arrays
        inputs = {names[name]: input_buffer(value, queue, owned) for name, value in arrays.items()}
        outputs = {name: output_buffer(result, queue) for name, result in zip(self._outputs, results, strict=True)}
        e = self._canonical.einsum
        own_lengths = self._canonical.renaming.lengths(lengths)
        values = {name: own_lengths[letter] for letter, name in e.length_names.items()}
        executable = self._executable_for(own_lengths)
        scratch = executable.scratch(queue.context, values)
        events = [] if on_host else [event for value in (*arrays.values(), *owned) for event in value.events]
        done = executable.enqueue(queue, inputs | outputs | scratch, values, [*events, *(wait_for or ())] or None)
        for name, result in zip(self._outputs, results, strict=True):
            deliver(result, outputs[name], queue, done[-1])
        if on_host:
            queue.finish()

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
        settings = " ".join(f"{name}={value}" for name, value in self.configuration.items())
        given = self._canonical.renaming.inverse.lengths(self._lengths)
        lines = [
            f"{self.einsum.subscripts} on {self.device}",
            f"  lengths   {' '.join(f'{letter}={length}' for letter, length in given.items())}",
            f"  rung      {self.rung}: {_MEANING[self.rung]}",
            f"  space     {self.space} (version {self._choice.space.version}): {settings}",
        ]
        if self.record is not None and self.record.median_s is not None:
            r, t = self.record, self.record.median_s
            lines.append(f"  record    {r.id} of {r.created}, at {' '.join(f'{x}={n}' for x, n in r.sizes.items())}")
            lines.append(f"  time      {t * 1e3:.4g} ms, {r.flops / t / 1e9:.4g} GFLOP/s, {r.bytes / t / 1e9:.4g} GB/s")
            peaks = self.device.known_peaks
            if peaks is not None:
                from feinsum.cost import roofline_s

                fraction = roofline_s(r.flops, r.bytes, self.einsum.dtype, peaks) / t
                lines.append(f"  roofline  {fraction:.0%} of what the device can do")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Kernel {self.einsum.subscripts} on {self.device.id}, {self.space}, rung {self.rung}>"
