"""The kernel that a user holds: callable on arrays, and able to explain itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feinsum.apart import remembered, run_in_thread
from feinsum.build.kernel_builder import KernelJob
from feinsum.candidates.origin import Origin
from feinsum.compile.executable import Executable, Geometry
from feinsum.compile.index_width import is_outgrown
from feinsum.compile.kernel_program import KernelProgram
from feinsum.database import TuningRecord
from feinsum.devices import Device
from feinsum.einsum import BatchedEinsum
from feinsum.ending import calling
from feinsum.errors import ArgumentError, ValidationError
from feinsum.interrupts import load_module
from feinsum.kernel.kernel_calls import BoundKernel, KernelCalls, RepeatedCall

if TYPE_CHECKING:
    import loopy as lp

_MEANING = {
    "exact": "measured for this einsum at these lengths, on this device and driver",
    "lengths": "measured for this einsum at other lengths on this device",
    "pattern": "measured on this device for the same subscripts, of other lengths, types, number of rows or epilogues",
    "driver": "measured on this device with another driver",
    "architecture": "measured on another device of the same architecture",
    "steps": "nothing measured fits the whole; records of its steps do",
    "cost model": "nothing measured fits; the quickest that the cost model expects among all transform spaces",
    "default": "nothing measured fits; the default of the most specific transform space",
    "generic": "nothing measured fits; the space that accepts every einsum",
}


_MEASURED = ("exact", "lengths", "driver", "architecture")
"""Rungs of configurations that were measured for the einsum itself."""


class Kernel:
    """A batched einsum on a device.  Made by :func:`feinsum.generate`; thread-safe.

    A pickled kernel holds what :meth:`save` writes, and is restored on the device of its id; a copy is the kernel itself.

    :ivar einsum: what it computes.
    :ivar device: the device on which it runs.
    :ivar rung: which rung of the ladder its configuration comes from, see :mod:`feinsum.candidates.ladder`.
    :ivar record: the record it comes from, if any.
    :ivar configuration: the configuration of :attr:`space`.
    :ivar array_names: the names in :attr:`source` of inputs and outputs, by their names in :attr:`einsum`.
    :ivar scalar_names: the same for the scalars of epilogues.
    :ivar launchers: the launchers other than OpenCL's, by name, kept here by the modules that made them.
    :ivar quick: tried first in each call: gives the results, or `out` with them, of arrays like earlier ones, and None of
        others.
    :ivar length_indices: for each length argument of :attr:`source` the index of :attr:`einsum` whose length it is.
    """

    def __init__(self, e: BatchedEinsum, job: KernelJob, origin: Origin, executable: Executable) -> None:
        self.einsum: BatchedEinsum = e
        self.device: Device = job.device
        self.rung: str = origin.rung
        self.record: TuningRecord | None = origin.record
        self.space: str = origin.space
        self.configuration: dict[str, Any] = dict(origin.configuration)
        self._job = job
        self._origin = origin
        self._executable = executable
        self._wide: Executable | None = None
        self._lock = threading.Lock()
        renaming, own = job.canonical.renaming, job.canonical.einsum
        place = {given: k for k, given in enumerate(renaming.rows)}
        outputs = {name: own.output_names[0 if e.combines else place[row]] for row, name in enumerate(e.output_names)}
        self.array_names: Mapping[str, str] = {**renaming.arrays, **outputs}
        self.scalar_names: Mapping[str, str] = renaming.scalars
        back = renaming.inverse.indices
        self.length_indices: Mapping[str, str] = {name: back[letter] for letter, name in own.length_names.items()}
        self._calls = KernelCalls(self)
        self.launchers: dict[str, Any] = {}
        self.quick: Callable[[Mapping[str, Any], Any], Any] | None = None

    @property
    def program(self) -> KernelProgram:
        """Source, arguments and launches, as data.  For the names of its arrays see :attr:`array_names`."""
        return self._executable.program

    @property
    def was_measured(self) -> bool:
        """Whether the configuration was measured for this einsum, at any lengths and with any driver."""
        return self.rung in _MEASURED

    @property
    def source(self) -> str:
        """The OpenCL C source."""
        return self.program.source

    def geometry(self, sizes: Mapping[str, int] | None = None) -> tuple[Geometry, ...]:
        """The launches, in order, with their work-items.

        :param sizes: the lengths of long axes; by default those expected.
        :raises ShapeError: if one is missing or unknown.
        """
        lengths = self.expected if sizes is None else self.einsum.resolve(sizes)
        return self.executable_for(lengths).geometry({name: lengths[x] for name, x in self.length_indices.items()})

    @property
    def expected(self) -> dict[str, int]:
        """The expected length of each index; the kernel is right for all other lengths, too."""
        return self._job.canonical.renaming.inverse.lengths(self._job.lengths)

    @remembered
    def t_unit(self) -> lp.TranslationUnit:
        """The transformed loopy kernel.

        :raises TransformError: if the space that made it has another version by now.
        """
        load_module("loopy")
        from feinsum.compile.realize import transformed

        e, space = self._job.canonical.einsum, self._job.find_space(self._origin)
        return run_in_thread(
            transformed, e, e.sizes_from(self._job.lengths), space, self.configuration, self.device.profile
        )

    def divides(self, letter: str) -> str | None:
        """How the kernel takes several values of an index at a time, in words; None if it loops over it, one by one.

        :raises ValidationError: if the einsum has no such index.
        """
        from feinsum.build.looping import why_not

        if letter not in self.einsum.indexing.indices:
            raise ValidationError(f"'{self.einsum.subscripts}' has no index '{letter}'")
        return run_in_thread(why_not, self._job, self._origin, letter)

    def __call__(
        self,
        arrays: Mapping[str, Any] | None = None,
        /,
        *others: Any,
        out: Any = None,
        queue: Any = None,
        wait_for: Sequence[Any] | None = None,
        like: Any = None,
        stream: Any = None,
        **named: Any,
    ) -> Any:
        """Evaluate the einsum.

        :param named: one array for each name, all of one library: numpy, :class:`pyopencl.array.Array`, torch, JAX, CuPy,
            or another that speaks DLPack; and the numbers that epilogues take.
        :param arrays: the same as a mapping, for names that are also those of the parameters below; there is nothing else
            by position.
        :param out: an array for the result (a tuple of them for several outputs), of the kind of the inputs.  It must be
            given where an epilogue reads its content, and is then updated in place.
        :param queue: the :class:`pyopencl.CommandQueue` to use; by default that of the first device array, or the device's.
        :param wait_for: events to wait for.
        :param like: an array, or the name of a library, that the results are to be of; by default that of the inputs.
        :param stream: for CUDA arrays, the stream to launch on: anything with ``__cuda_stream__``, or its address; by
            default the current one of the arrays' library.
        :returns: arrays of the library of the inputs.  Those of pyopencl have `events` that tell when they are ready, and
            their memory is from the first input's allocator; CUDA arrays are ready when the stream has come so far.  A
            tuple where there are several outputs.
        :raises ValidationError, ShapeError, DTypeError: naming the argument that does not fit, or is missing, before any
            launch.

        Arrays are used where they are if they are C-contiguous and the device computes there; others are copied, and
        :meth:`explain` says which and why.
        """
        quick = self.quick if arrays is None or (isinstance(arrays, Mapping) and not others) else None
        if quick is not None and queue is wait_for is like is stream is None and (arrays is None or not named):
            found = quick(arrays or named, out)
            if found is not None:
                self._calls.copied = ()
                return found
        if arrays is not None:
            if others or not isinstance(arrays, Mapping):
                given = "by position" if others or hasattr(arrays, "shape") else f"as a {type(arrays).__name__}"
                raise ArgumentError(f"arrays are passed by name, as in {self._usage}, not {given}")
            named = {**arrays, **named}
        with calling:
            return self._calls.call(named, out, queue, wait_for, like, stream)

    def repeat(self, arrays: Mapping[str, Any]) -> RepeatedCall:
        """A function that calls the kernel on arrays like these, for callers who have compared them themselves.

        :param arrays: of numpy or pyopencl, by name; the einsum takes no scalars.
        :raises ValidationError, ShapeError, DTypeError: naming the argument that does not fit, or is missing.
        """
        return self._calls.repeat(arrays)

    @property
    def _usage(self) -> str:
        names = [
            *(a.name for a in self.einsum.arrays),
            *self.einsum.scalars,
            *(["out"] if any(self.einsum.updates) else []),
        ]
        return f"kernel({', '.join(f'{name}=...' for name in names)})"

    def bind(self, lengths: Mapping[str, int]) -> BoundKernel:
        """The kernel for arrays of certain lengths, which takes buffers and checks nothing.

        :param lengths: the length of each index of :attr:`einsum`.
        """
        return self._calls.bind(lengths)

    def executable_for(self, lengths: Mapping[str, int]) -> Executable:
        """The executable, or one with 64-bit indices where an array needs them and the first has not.

        :param lengths: the length of each index of :attr:`einsum`.
        """
        if not is_outgrown(self.program, {name: lengths[x] for name, x in self.length_indices.items()}):
            return self._executable
        with self._lock:
            if self._wide is None:
                self._wide, _ = run_in_thread(self._job.make, self._origin, wide=True)
            return self._wide

    def prove(self) -> None:
        """Compare the results with the reference once more.

        :raises ValidationError: if they are wrong, saying where.
        """
        self._job.check(self._executable)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the kernel to a file of its own, which :func:`feinsum.load` reads: data, and machine code for the device.

        :raises OSError: if it cannot be written.
        """
        Path(path).write_bytes(self._content())

    def _content(self) -> bytes:
        from feinsum.kernel.saving import saved_bytes

        return saved_bytes(self.einsum, self._job, self._origin, self._executable)

    def __reduce__(self) -> tuple[Any, ...]:
        from feinsum.kernel.saving import restored

        return restored, (self._content(), self.device)

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: object) -> Kernel:
        return self

    def explain(self) -> str:
        """Which rung, record and configuration, at which lengths, what time to expect, and what the last call copied."""
        from feinsum.kernel.explanation import explain_kernel

        return explain_kernel(self, _MEANING[self.rung], self._job, self._origin, self._calls.copied)

    def _repr_html_(self) -> str:
        from feinsum.report.displays import kernel_html

        return kernel_html(self, _MEANING[self.rung])

    def __repr__(self) -> str:
        return f"<Kernel {self.einsum.subscripts} on {self.device.id}, {self.space}, rung {self.rung}>"
