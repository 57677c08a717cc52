"""An evaluation: a contraction of arrays of certain shapes, types and layouts, with all that these decide worked out.

What is left for a call is to hand over buffers: of operands, taken where they are if that is possible, and of results in
between.  Values have slots, one for each operand and one for the result of each step::

    operands 0, 1, 2    step 0: (1, 2) -> 3    step 1: (0, 3) -> 4
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from feinsum.compile.buffers import Output, Room, fill_with_zeros, input_buffer, output, share_memory, upload
from feinsum.compile.hosted import new_array
from feinsum.compile.strided import copy_strided
from feinsum.devices import Device
from feinsum.einsum import BatchedEinsum
from feinsum.ending import calling
from feinsum.errors import ValidationError
from feinsum.generate.calls import Bound
from feinsum.generate.choice import StepChoice
from feinsum.generate.kernel import Kernel
from feinsum.generate.library import PreparedProduct
from feinsum.generate.plan import PlannedStep, Shape
from feinsum.generate.sharing import current_cache, step_key

_WORTH_WAITING_BYTES = 16 << 20
"""Of values that are needed no more, from which on a step is waited for so that they can go."""
_LANES_BYTES = 128
"""The largest vectors of OpenCL: what is in between begins at a multiple of them, so that every kernel takes it."""


class Value:
    """An operand or a result in between: an array, its buffer once a kernel needs it, and what has to happen first."""

    __slots__ = ("array", "buffer", "done", "key", "room", "shared_with_result")

    def __init__(self, array: Any, buffer: Any = None, done: Any = None, room: Output | None = None, key: Any = None):
        self.array, self.buffer, self.done, self.room, self.key = array, buffer, done, room, key
        self.shared_with_result = False

    def host(self, queue: Any) -> Any:
        """The numpy array, when it has its content."""
        if self.room is not None and self.done is not None:
            self.room.deliver(queue, self.done)
            self.done = None
        return self.array

    def events(self) -> list[Any]:
        """What a kernel that reads it waits for."""
        if isinstance(self.array, np.ndarray):
            return [] if self.done is None else [self.done]
        return list(self.array.events)

    def taken(self, queue: Any, alignment: int) -> Any:
        """Its buffer."""
        if self.buffer is None:
            self.buffer, copy = input_buffer(self.array, queue, alignment, overwritten=self.shared_with_result)
            if copy is not None and not isinstance(copy, np.ndarray):
                self.array = copy
        return self.buffer


@dataclass(frozen=True)
class PreparedStep:
    """A step that is ready to run.

    :ivar slots: of the values that it takes.
    :ivar e: the einsum that it is.
    :ivar choice: who does it.
    :ivar kernel: the kernel; None where the library does it.
    :ivar constant: whether it follows from constants alone.
    """

    step: PlannedStep
    slots: tuple[int, ...]
    e: BatchedEinsum
    choice: StepChoice
    kernel: Kernel | None
    bound: Bound | None
    product: PreparedProduct | None
    constant: bool
    room: Room | None = field(repr=False)

    @property
    def flops(self) -> int:
        """Its operations; complex numbers count as the operations on reals that they take."""
        return self.e.flops(self.e.sizes_from(self.step.lengths))


@dataclass(frozen=True)
class OperandLayout:
    """How an operand is taken.

    :ivar dtype: the type to compute in.
    :ivar axes: its axes in the order in which they lie in memory; None if they are in order.
    :ivar convert: whether it has to be copied, for its layout or type.
    :ivar as_bool: whether its numbers become true and false first: a half is true, though no integer is one.
    """

    dtype: np.dtype[Any]
    axes: tuple[int, ...] | None
    convert: bool
    as_bool: bool

    @cached_property
    def changes(self) -> bool:
        """Whether it is taken otherwise than as it is."""
        return self.convert or self.axes is not None

    def on_host(self, value: Any) -> Any:
        """A C-contiguous numpy array of the type to compute in."""
        if self.axes is not None:
            value = value.transpose(self.axes)
        if not self.convert:
            return value
        if self.as_bool:
            value = np.asarray(value, bool)
        return np.asarray(value, self.dtype, order="C")

    def on_device(self, value: Any, queue: Any) -> Any:
        """The same of a device array, or of a number beside such."""
        if isinstance(value, np.ndarray):
            return upload(np.asarray(value, self.dtype, order="C"), queue)
        if self.axes is not None:
            value = value.transpose(self.axes)
        return copy_strided(value, queue, self.dtype) if self.convert else value


@dataclass(frozen=True)
class Results:
    """What becomes of the last value.

    :ivar shape: in the order of axes in which it is computed.
    :ivar backwards: whether the caller sees the axes from the last to the first.
    :ivar dtype: the type that the caller gets; ``computed`` the one that the last step has.
    """

    shape: Shape
    backwards: bool
    dtype: np.dtype[Any]
    computed: np.dtype[Any]


class Evaluation:
    """A contraction of arrays that are like those it was prepared for; thread-safe.

    :param constants: the operands that are the same in every call.
    :param facts: what tells its results from those of the same steps elsewhere.
    """

    def __init__(
        self,
        tasks: Sequence[PreparedStep],
        layouts: Sequence[OperandLayout],
        results: Results,
        on_host: bool,
        device: Device,
        constants: frozenset[int],
        facts: Any,
    ) -> None:
        self.tasks = tuple(tasks)
        self.layouts = tuple(layouts)
        self._results = results
        self.device, self.on_host = device, on_host
        self._constants = constants
        self._facts = facts
        self._kept: dict[int, Value] = {}
        """By slot: constants as they are taken, and what follows from them alone."""
        self._lock = threading.Lock()
        bound, alone = self.tasks[0].bound, on_host and len(self.tasks) == 1 and not constants
        self._single = bound if alone and bound is not None and not bound.empty else None
        self._product = self.tasks[0].product if alone else None

    @property
    def seconds(self) -> float:
        """The time expected, infinite where that of a step is not known."""
        return math.fsum(task.choice.seconds for task in self.tasks)

    def run(self, arrays: Sequence[Any], out: Any = None, direct: bool = False) -> Any:
        """The result.

        :param arrays: the operands, like those that it was prepared for.
        :param out: the array that it is wanted in, checked.
        :param direct: whether the last step may write to `out`: it is contiguous in the order of axes of the result, and
            of the type computed in.
        """
        cache = current_cache()
        if self._product is not None and out is None and cache is None:
            return self._multiplied(self._product, arrays)
        queue = self.device.queue
        if not self.on_host:
            queue = next((q for a in arrays if (q := getattr(a, "queue", None)) is not None), None) or queue
        with calling:
            try:
                if self._single is not None and cache is None:
                    return self._at_once(self._single, arrays, out, direct, queue)
                return self._run(arrays, out, direct, queue, cache)
            except BaseException:
                if self.on_host:  # memory of the caller may be gone before a kernel that is under way has ended
                    queue.finish()
                raise

    def _multiplied(self, product: PreparedProduct, arrays: Sequence[Any]) -> Any:
        """The result of one product of numpy arrays, for which no driver is called, with as little around it as may be."""
        given = [layout.on_host(a) if layout.changes else a for layout, a in zip(self.layouts, arrays, strict=True)]
        first, second = _factors(self.tasks[0], given)
        return self._to_numpy(product(first, second), None, False, shared=False)

    def _at_once(self, bound: Bound, arrays: Sequence[Any], out: Any, direct: bool, queue: Any) -> Any:
        """The result of one kernel for numpy arrays, none of them constant, with as little around it as may be."""
        task, alignments, backwards = self.tasks[0], bound.alignments, self._results.backwards
        given = [layout.on_host(a) if layout.changes else a for layout, a in zip(self.layouts, arrays, strict=True)]
        if out is not None and direct:
            result = (out.T if backwards else out).reshape(task.step.shape)
            overwritten = [bool(np.may_share_memory(a, out)) for a in given]
            buffers = [
                input_buffer(a, queue, n, overwritten=over)[0]
                for a, n, over in zip(given, alignments, overwritten, strict=False)
            ]
        else:
            result = new_array(task.step.shape, task.e.dtype, _LANES_BYTES)
            buffers = [input_buffer(a, queue, n)[0] for a, n in zip(given, alignments, strict=False)]
        room = output(result, queue, alignments[-1])
        buffers.append(room.buffer)
        room.deliver(queue, bound.enqueue(queue, buffers, None))
        return self._to_numpy(result, out, direct, shared=False)

    def _run(self, arrays: Sequence[Any], out: Any, direct: bool, queue: Any, cache: dict[Any, Any] | None) -> Any:
        values: list[Value | None] = [self._operand(k, a, out, direct, queue, cache) for k, a in enumerate(arrays)]
        target = None if out is None or not direct else out.T if self._results.backwards else out
        last = len(self.tasks) - 1
        for number, task in enumerate(self.tasks):
            value = self._kept.get(len(values)) if task.constant else None
            if value is None:
                taken = [value for slot in task.slots if (value := values[slot]) is not None]
                value = self._step(task, taken, target if number == last else None, queue, cache)
                if task.constant:
                    value = self._keep(len(values), value)
            values.append(value)
            self._drop(values, task)
        result = values[-1]
        if result is None:
            raise AssertionError("a contraction has at least one step")
        if self.on_host:
            return self._to_numpy(result.host(queue), out, direct, shared=cache is not None)
        return self._to_device(result, out, direct)

    def _keep(self, slot: int, value: Value) -> Value:
        with self._lock:
            return self._kept.setdefault(slot, value)

    def _drop(self, values: list[Value | None], task: PreparedStep) -> None:
        """Let go of what no later step takes.  A driver knows how long a buffer of its own is needed."""
        result = values[-1]
        if self.on_host and result is not None and result.done is not None:
            if sum(value.array.nbytes for slot in task.slots if (value := values[slot]) is not None) < _WORTH_WAITING_BYTES:
                return
            result.done.wait()
        for slot in task.slots:
            values[slot] = None

    def _operand(self, k: int, value: Any, out: Any, direct: bool, queue: Any, cache: dict[Any, Any] | None) -> Value:
        layout = self.layouts[k]
        key = None
        if cache is not None:
            key = ("operand", id(value), layout, self._facts)
            cache.setdefault(("alive", id(value)), value)
        if k in self._constants:
            kept = self._kept.get(k)
            if kept is None:  # a copy, which the caller cannot change
                taken = np.array(layout.on_host(value)) if self.on_host else layout.on_device(value, queue)
                kept = self._keep(k, Value(taken))
            kept.key = key
            return kept
        if self.on_host:
            found = Value(layout.on_host(value), key=key)
            if direct and out is not None:
                found.shared_with_result = bool(np.may_share_memory(found.array, out))
            return found
        return Value(layout.on_device(value, queue), key=key)

    def _step(
        self, task: PreparedStep, taken: Sequence[Value], target: Any, queue: Any, cache: dict[Any, Any] | None
    ) -> Value:
        key = None
        if cache is not None:
            facts = (task.e.dtype.str, self._facts)
            key = step_key(task.step.subscripts, task.step.lengths, [value.key for value in taken], facts)
            known: Value | None = cache.get(key)
            if known is not None and target is None:
                return known
        if task.product is not None:
            found = self._by_library(task.product, task, taken, target, queue)
        elif task.bound is not None:
            found = self._by_kernel(task.bound, task, taken, target, queue)
        else:
            raise AssertionError("a step is done by a product or by a kernel")
        found.key = key
        if cache is not None and target is None:
            cache[key] = found
        return found

    def _by_library(
        self, product: PreparedProduct, task: PreparedStep, taken: Sequence[Value], target: Any, queue: Any
    ) -> Value:
        hosts = [value.host(queue).copy() if value.shared_with_result else value.host(queue) for value in taken]
        first, second = _factors(task, hosts)
        return Value(product(first, second, None if target is None else target.reshape(task.step.shape)))

    def _by_kernel(self, bound: Bound, task: PreparedStep, taken: Sequence[Value], target: Any, queue: Any) -> Value:
        shape = task.step.shape
        if target is not None:
            result = target.reshape(shape) if self.on_host else target
        elif task.room is not None:
            result = task.room.make(queue, next((v.array.allocator for v in taken if hasattr(v.array, "allocator")), None))
        else:
            result = new_array(shape, task.e.dtype, _LANES_BYTES)
        if bound.empty:
            events = [event for value in taken for event in value.events()]
            events += [] if self.on_host else result.events
            fill_with_zeros(result, queue, events)
            return Value(result)
        room = output(result, queue, bound.alignments[-1])
        buffers = [value.taken(queue, n) for value, n in zip(taken, bound.alignments, strict=False)]
        events = [event for value in taken for event in value.events()]  # those of copies that were just made, too
        if not self.on_host:
            events += result.events
        done = bound.enqueue(queue, [*buffers, room.buffer], events or None)
        if self.on_host:
            return Value(result, room.buffer, done, room)
        room.deliver(queue, done)
        return Value(result)

    def _to_numpy(self, host: Any, out: Any, direct: bool, *, shared: bool) -> Any:
        """The result as numpy has it: an array, a number where there are no axes, or in `out`."""
        if direct and out is not None:
            return out
        results = self._results
        found = host if host.shape == results.shape else host.reshape(results.shape)
        if results.backwards:
            found = found.T
        if results.dtype != results.computed:
            found = found != 0 if results.dtype.kind == "b" else found.astype(results.dtype)
        elif shared and out is None:
            found = found.copy(order="K")  # the shared one is not the caller's to change
        if out is None:
            return found if found.ndim else found[()]
        out[...] = found
        return out

    def _to_device(self, result: Value, out: Any, direct: bool) -> Any:
        found = result.array
        if out is not None and direct:
            out.events.extend(event for event in found.events if event not in out.events)
            return out
        if found.shape != self._results.shape:
            found = found.reshape(self._results.shape)
        return found.T if self._results.backwards else found

    def check(self, arrays: Sequence[Any], out: Any) -> None:
        """Check that device arrays are of this context, and that the one for the result has memory of its own.

        :raises ValidationError: naming the operand.
        """
        context = self.device.context
        for k, value in enumerate(arrays):
            if isinstance(value, np.ndarray):
                continue
            if value.context != context:
                raise ValidationError(
                    f"operand {k} belongs to another context than {self.device}; make all with queues of one context"
                )
            if out is not None and k in self.tasks[-1].slots and share_memory(value, out):
                raise ValidationError(f"out shares memory with operand {k}; pass an array of its own")
        if out is not None and out.context != context:
            raise ValidationError(
                f"out belongs to another context than {self.device}; make it with a queue of the operands"
            )


def _factors(task: PreparedStep, hosts: Sequence[Any]) -> list[Any]:
    """The operands of a product, in the shapes of the step and its type."""
    dtype = task.e.dtype
    shaped = [a if a.shape == shape else a.reshape(shape) for a, shape in zip(hosts, task.step.shapes, strict=True)]
    return [a if a.dtype == dtype else a.astype(dtype) for a in shaped]
