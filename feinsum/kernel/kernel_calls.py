"""Prepared calls of a kernel: the facts that follow from shapes, strides and types are found once for each combination.

A call only has to look the combination up, to check that all arrays are of one context, and to hand over buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from feinsum.compile.alignment import common_alignment
from feinsum.compile.buffers import (
    Room,
    check_queue,
    checked_events,
    fill_with_zeros,
    input_buffer,
    is_part,
    output_buffer,
    share_memory,
    why_copied,
)
from feinsum.compile.call_cache import CallCache, likeness
from feinsum.compile.executable import Executable
from feinsum.compile.host_buffers import LEAST_RESULT_BYTES, SHARED_BYTES, computes_in_host_memory, is_aligned, new_array
from feinsum.ending import calling
from feinsum.errors import ValidationError
from feinsum.kernel.array_adapter import Copied, adapt_arrays, array_label, has_foreign_arrays, return_like
from feinsum.kernel.epilogue_scalars import finish_nothing, take_scalars
from feinsum.kernel.kernel_arguments import check_arguments, check_context, check_outputs, common_library

if TYPE_CHECKING:
    from feinsum.kernel.kernel import Kernel


@dataclass(frozen=True)
class BoundKernel:
    """A kernel for arrays of certain lengths.

    :ivar inputs, outputs: names in the program.
    :ivar alignments: of each array, in bytes, inputs first.
    :ivar values: the length arguments of the program.
    :ivar empty: whether there is nothing to sum over, or no result.
    """

    executable: Executable
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    alignments: tuple[int, ...]
    values: Mapping[str, int]
    empty: bool

    def fitting(self, arrays: Sequence[Any]) -> BoundKernel:
        """The kernel for numpy arrays where they begin: one that asks for a smaller alignment if any of them needs it.

        :param arrays: inputs, then outputs.  Small arrays and those of another layout count as aligned: they are copied.
        """
        apart = [
            array
            for array, alignment in zip(arrays, self.alignments, strict=True)
            if array.nbytes >= LEAST_RESULT_BYTES
            and array.flags.c_contiguous
            and array.flags.aligned
            and not is_aligned(array, alignment)
        ]
        if not apart or not computes_in_host_memory(self.executable.context):
            return self
        executable = self.executable.loosened(common_alignment(apart))
        alignments = tuple(executable.alignments[name] for name in (*self.inputs, *self.outputs))
        return replace(self, executable=executable, alignments=alignments)

    def enqueue(
        self,
        queue: Any,
        buffers: Sequence[Any],
        wait_for: Sequence[Any] | None,
        scalars: Mapping[str, Any] | None = None,
    ) -> Any:
        """Launch it; returns the event of its end.

        :param buffers: of inputs and outputs.
        :param scalars: the numbers that epilogues take, by their names in the program.
        """
        named = dict(zip((*self.inputs, *self.outputs), buffers, strict=True))
        if self.executable.has_scratch:
            named |= self.executable.kept_scratch(queue, self.values)
        values = {**self.values, **scalars} if scalars else self.values
        return self.executable.enqueue(queue, named, values, wait_for)[-1]


@dataclass(frozen=True)
class Prepared:
    """A call for arrays of certain shapes, strides and types, which fit the kernel.

    :ivar library: ``"numpy"`` or ``"pyopencl"``.
    :ivar shape: that of the results.
    :ivar rooms: what makes new device arrays for the results.
    :ivar whole: whether the inputs are device arrays without gaps, so that one which is not part of a buffer is a buffer.
    """

    library: str
    shape: tuple[int, ...]
    rooms: tuple[Room, ...]
    bound: BoundKernel
    whole: bool


class KernelCalls:
    """The calls of one kernel; thread-safe."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._einsum = kernel.einsum
        self._names = tuple(a.name for a in kernel.einsum.arrays)
        self._program_names = tuple(kernel.array_names[name] for name in self._names)
        self._output_names = tuple(kernel.array_names[name] for name in kernel.einsum.output_names)
        self._scalar_names = kernel.scalar_names
        self._context, self._device_queue = kernel.device.context, kernel.device.queue
        self._known = CallCache[Prepared]()
        self.copied: tuple[Copied, ...] = ()

    def repeat(self, inputs: Mapping[str, Any]) -> RepeatedCall:
        """A function that calls the kernel on arrays like these.

        :raises ValidationError, ShapeError, DTypeError: if these do not fit it.
        """
        return RepeatedCall(self, self.prepare(inputs))

    def call(
        self,
        inputs: Mapping[str, Any],
        out: Any,
        queue: Any,
        wait_for: Sequence[Any] | None,
        like: Any = None,
        stream: Any = None,
    ) -> Any:
        """See :meth:`Kernel.__call__`."""
        scalars: Mapping[str, Any] = {}
        if self._einsum.epilogues:
            inputs, scalars = take_scalars(self._einsum, inputs)
            self._require_present(out)
        if like is None and not has_foreign_arrays(inputs.values()):
            if stream is not None:
                raise ValidationError("stream is for CUDA arrays; say queue= for those of pyopencl")
            return self._call(inputs, scalars, out, queue, wait_for)
        return self._call_foreign(inputs, scalars, out, queue, wait_for, like, stream)

    def _call_foreign(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        out: Any,
        queue: Any,
        wait_for: Sequence[Any] | None,
        like: Any,
        stream: Any,
    ) -> Any:
        """A call with arrays of other libraries, or results of one."""
        received = adapt_arrays(inputs, out, like, self._kernel.device)
        if received is not None and not received.on_host:
            if queue is not None or wait_for is not None:
                raise ValidationError("CUDA arrays are computed with on a stream; say stream=, not queue= or wait_for=")
            results, copied = received.launch(self._kernel, scalars, stream)
            self.copied = tuple(copied)
            return results
        if stream is not None:
            raise ValidationError("stream is for CUDA arrays; those on the host need none")
        if received is None:
            results = self._call(inputs, scalars, out, queue, wait_for)
            if like is None or out is not None:
                return results
            given, more = return_like(results, like, queue or self._device_queue)
            self.copied = (*self.copied, *more)
            return given
        results = self._call(received.inputs, scalars, received.out, queue, wait_for)
        given, more = received.give(results)
        self.copied = (*received.copied, *self.copied, *more)
        return given

    def _call(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        out: Any,
        queue: Any,
        wait_for: Sequence[Any] | None,
    ) -> Any:
        prepared = self.prepare(inputs)
        values = [inputs[name] for name in self._names]
        if queue is not None:
            check_queue(queue, self._context)
        events = checked_events(wait_for, self._context) if wait_for is not None else []
        return self.run(prepared, values, scalars, out, queue, events)

    def run(
        self,
        prepared: Prepared,
        values: Sequence[Any],
        scalars: Mapping[str, Any],
        out: Any,
        queue: Any,
        events: list[Any],
    ) -> Any:
        """A call that is prepared.

        :param values: the inputs, in the order of the einsum's arrays.
        :param queue: one of the kernel's context, or None for that of the first device array.
        :param events: those to wait for; others are added.
        """
        if prepared.library == "numpy":
            queue = queue or self._device_queue
            results = self._new(prepared) if out is None else self._given(out, prepared, values)
        else:
            for value in values:
                if value.context != self._context:
                    check_context(dict(zip(self._names, values, strict=True)), self._device_queue)
                queue = queue or value.queue
                events += value.events
            queue = queue or self._device_queue
            if out is None:
                allocator = values[0].allocator
                results = [room.make(queue, allocator) for room in prepared.rooms]
            else:
                results = self._given(out, prepared, values)
                for result in results:
                    events += result.events
        self._launch(prepared, values, results, queue, events, scalars, given=out is not None)
        return tuple(results) if len(results) > 1 else results[0]

    def _require_present(self, out: Any) -> None:
        """:raises ValidationError: if there are no outputs though their present content is read."""
        if out is None and any(self._einsum.updates):
            own = next(own for own in self._einsum.epilogues if own is not None and own.reads_output)
            text = own.text(self._einsum.indexing.output)
            raise ValidationError(f"the epilogue '{text}' reads what the output holds; pass it as out=, to be updated")

    def prepare(self, inputs: Mapping[str, Any]) -> Prepared:
        """The prepared call for arrays of these shapes, strides and types.

        :raises ValidationError, ShapeError, DTypeError: naming the argument that does not fit.
        """
        try:
            key = likeness(map(inputs.__getitem__, self._names))
            known = self._known.get(key) if len(inputs) == len(self._names) else None
        except (KeyError, TypeError):  # what is missing is named below
            known = None
        if known is None:
            known = self._known[key] = self._examine(inputs)
        return known

    def _examine(self, inputs: Mapping[str, Any]) -> Prepared:
        library = common_library(self._einsum, inputs)
        lengths = check_arguments(self._einsum, inputs)
        shape = tuple(lengths[letter] for letter in self._einsum.indexing.output)
        dtypes = self._einsum.dtypes if library == "pyopencl" else ()
        rooms = [Room(self._device_queue, shape, dtype) for dtype in dtypes]
        whole = library == "pyopencl" and all(v.flags.c_contiguous for v in inputs.values())
        return Prepared(library, shape, tuple(rooms), self.bind(lengths), whole)

    def bind(self, lengths: Mapping[str, int]) -> BoundKernel:
        """The kernel for arrays of certain lengths.

        :param lengths: the length of each index of the einsum.
        """
        executable = self._kernel.executable_for(lengths)
        alignments = tuple(executable.alignments[name] for name in (*self._program_names, *self._output_names))
        values = {name: lengths[letter] for name, letter in self._kernel.length_indices.items()}
        empty = 0 in lengths.values()
        return BoundKernel(executable, self._program_names, self._output_names, alignments, values, empty)

    def _given(self, out: Any, prepared: Prepared, values: Sequence[Any]) -> list[Any]:
        """The arrays for the results, checked; at once where it is one device array like those that we make."""
        if len(prepared.rooms) == 1 and prepared.rooms[0].fits(out):
            buffer, others = out.base_data, [value.base_data for value in values]
            if out.context == self._context and buffer not in others and not any(map(is_part, (buffer, *others))):
                return [out]
        inputs = dict(zip(self._names, values, strict=True))
        results = check_outputs(self._einsum, out, prepared.shape, prepared.library, inputs)
        if prepared.library == "pyopencl":
            check_context(results, self._device_queue)
        return list(results.values())

    def _new(self, prepared: Prepared) -> list[Any]:
        """New numpy arrays for the results."""
        needed = (max(n, SHARED_BYTES) for n in prepared.bound.alignments[len(self._names) :])
        return [new_array(prepared.shape, dtype, n) for dtype, n in zip(self._einsum.dtypes, needed, strict=True)]

    def _launch(
        self,
        prepared: Prepared,
        values: Sequence[Any],
        results: Sequence[Any],
        queue: Any,
        events: list[Any],
        scalars: Mapping[str, Any],
        *,
        given: bool,
    ) -> None:
        """Launch, and for numpy arrays wait.

        :param scalars: the numbers that epilogues take.
        :param given: whether the results are arrays of the caller, who may want them in memory of the operands.
        """
        bound = prepared.bound
        if bound.empty:
            if self._einsum.epilogues:
                finish_nothing(self._einsum, dict(zip(self._names, values, strict=True)), scalars, results, queue, events)
                return
            for result in results:
                fill_with_zeros(result, queue, events)
            return
        named = {self._scalar_names[name]: value for name, value in scalars.items()}
        arrays = (*values, *results)
        if prepared.whole and not any(array.offset for array in arrays):
            done = bound.enqueue(queue, [array.base_data for array in arrays], events or None, named)
            for result in results:
                result.events[:] = [done]  # the launch has waited for all there were
            self.copied = ()
            return
        on_host, inputs = prepared.library == "numpy", len(values)
        if on_host:
            bound = bound.fitting(arrays)
        buffers, copied = [], []
        for k, value in enumerate(values):
            overwritten = on_host and given and any(share_memory(value, result) for result in results)
            buffer, copy = input_buffer(value, queue, bound.alignments[k], overwritten=overwritten)
            buffers.append(buffer)
            if copy is not None:
                copied.append((k, copy))
                if not on_host:
                    events += copy.events
        outputs = [output_buffer(result, queue, n) for result, n in zip(results, bound.alignments[inputs:], strict=True)]
        for one, update in zip(outputs, self._einsum.updates, strict=True):
            if update:
                events += one.fetch(queue, events)
        try:
            done = bound.enqueue(queue, [*buffers, *(one.buffer for one in outputs)], events or None, named)
            for one in outputs:
                one.deliver(queue, done)
        except BaseException:
            if on_host:  # memory of the caller may be gone before a kernel that is under way has ended
                queue.finish()
            raise
        if copied or self.copied:
            self._note(copied, values, bound)

    def _note(self, copied: Sequence[tuple[int, Any]], values: Sequence[Any], bound: BoundKernel) -> None:
        """Remember what this call copied, for :meth:`Kernel.explain`."""
        self.copied = tuple(
            Copied(
                array_label(self._names[k]),
                why_copied(values[k], self._context, bound.alignments[k]),
                int(values[k].nbytes),
            )
            for k, _ in copied
        )


@dataclass(frozen=True)
class RepeatedCall:
    """A kernel without scalars, for arrays that its caller knows to be like those it was made for: their shapes, strides,
    types and classes are not looked at again."""

    calls: KernelCalls
    prepared: Prepared

    def takes(self, result: Any) -> bool:
        """Whether a device array can be the only result."""
        return len(self.prepared.rooms) == 1 and self.prepared.rooms[0].fits(result)

    def __call__(self, values: Sequence[Any], out: Any, queue: Any, events: list[Any]) -> Any:
        """The result.

        :param values: the inputs, in the order of the einsum's arrays.
        :param out: the array for it, or None.
        :param queue: one of the kernel's context.
        :param events: those to wait for; others are added.
        """
        with calling:
            return self.calls.run(self.prepared, values, {}, out, queue, events)
