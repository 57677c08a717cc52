"""An evaluation: a contraction of arrays of certain shapes, types and layouts, with everything that follows from these.

A call only hands over buffers: of operands, used where they are if that is possible, and of intermediate results.  Values
have slots, one for each operand and one for the result of each step::

    operands 0, 1, 2    step 0: (1, 2) -> 3    step 1: (0, 3) -> 4
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
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
from feinsum.generate.scalars import Scaling, finish_nothing
from feinsum.generate.sharing import current_cache, step_key

_NO_NUMBERS: Mapping[str, Any] = MappingProxyType({})
_WORTH_WAITING_BYTES = 16 << 20
"""Bytes of values no longer needed, from which on a call waits for a step so that they can be freed."""
_LANES_BYTES = 128
"""The largest vectors of OpenCL: intermediate results begin at a multiple of them, so that every kernel accepts them."""


class Value:
    """An operand or an intermediate result: an array, its buffer once a kernel needs it, and what has to happen first."""

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
        """The events that a kernel which reads it waits for."""
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
    :ivar choice: whether a kernel or the library computes it.
    :ivar kernel: the kernel; None where the library computes it.
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
    """The conversion and order of axes with which an operand is used.

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
        """Whether the operand is not used as it is."""
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
    """The conversion of the last value to the caller's result.

    :ivar shape: in the order of axes in which it is computed.
    :ivar backwards: whether the caller sees the axes from the last to the first.
    :ivar dtype: the type that the caller gets; ``computed`` the one that the last step has.
    """

    shape: Shape
    backwards: bool
    dtype: np.dtype[Any]
    computed: np.dtype[Any]

    @property
    def is_plain(self) -> bool:
        """Whether the caller gets the last value as it is; one without axes would be a number."""
        return self.dtype == self.computed and not self.backwards and bool(self.shape)


@dataclass(frozen=True)
class QuickProduct:
    """Products of arrays like two that were multiplied, which are :func:`numpy.matmul` and no more: what tiny ones wait for
    is Python.

    :ivar shapes, strides, dtypes: of both operands.
    """

    shapes: tuple[Shape, Shape]
    strides: tuple[Shape, Shape]
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]
    swapped: bool

    @staticmethod
    def like(a: Any, b: Any, swapped: bool) -> QuickProduct:
        return QuickProduct((a.shape, b.shape), (a.strides, b.strides), (a.dtype, b.dtype), swapped)

    def __call__(self, values: Sequence[Any], out: Any = None) -> Any:
        """The result; None of arrays that are others, where `out` is given, and where results in between are shared."""
        if out is not None or len(values) != 2:
            return None
        a, b = values
        if (
            a.__class__ is b.__class__ is np.ndarray
            and (a.shape, b.shape) == self.shapes
            and (a.strides, b.strides) == self.strides
            and (a.dtype, b.dtype) == self.dtypes
            and current_cache() is None
        ):
            return np.matmul(b, a) if self.swapped else np.matmul(a, b)
        return None


class Evaluation:
    """A contraction of arrays that are like those it was prepared for; thread-safe.

    :param constants: the operands that are the same in every call.
    :param facts: the facts that distinguish its results from those of the same steps elsewhere.
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
        self.quick: QuickProduct | None = None
        unchanged = len(self.tasks) == 1 and not constants and not any(layout.changes for layout in self.layouts)
        there = unchanged and not on_host and bound is not None and not bound.empty and not self.tasks[0].e.updates[0]
        self._single_there = bound if there else None

    @property
    def seconds(self) -> float:
        """The time expected, infinite where that of a step is not known."""
        return math.fsum(task.choice.seconds for task in self.tasks)

    def scaled(self, arrays: Sequence[Any], out: Any, direct: bool, scaling: Scaling) -> Any:
        """``alpha*result + beta*out``: by the last kernel, or else of its result.

        :raises ArgumentError, DTypeError: if a number does not fit the result.
        """
        last = self.tasks[-1]
        numbers = scaling.typed(last.e.dtype)
        if last.e.epilogues and last.kernel is not None:
            return self.run(arrays, out, direct, {last.kernel.scalar_names[x]: n for x, n in numbers.items()})
        found = scaling.of(self.run(arrays), out, numbers)
        if out is None:
            return found
        out[...] = found
        return out

    def run(
        self, arrays: Sequence[Any], out: Any = None, direct: bool = False, numbers: Mapping[str, Any] = _NO_NUMBERS
    ) -> Any:
        """The result.

        :param arrays: the operands, like those that it was prepared for.
        :param out: the array that it is wanted in, checked.
        :param direct: whether the last step may write to `out`: it is contiguous in the order of axes of the result, and
            of the type computed in.
        :param numbers: those that the epilogue of the last step takes, by their names in its program.
        """
        cache = None if numbers else current_cache()
        if self._product is not None and out is None and cache is None:
            return self._multiplied(self._product, arrays)
        queue = self.device.queue
        if not self.on_host:
            queue = next((q for a in arrays if (q := getattr(a, "queue", None)) is not None), None) or queue
        with calling:
            try:
                if cache is None:
                    if self._single is not None:
                        return self._at_once(self._single, arrays, out, direct, queue, numbers)
                    if self._single_there is not None and out is None and not any(map(_is_of_host, arrays)):
                        return self._at_once_there(self._single_there, arrays, queue, numbers)
                return self._run(arrays, out, direct, queue, cache, numbers)
            except BaseException:
                if self.on_host:  # memory of the caller may be gone before a kernel that is under way has ended
                    queue.finish()
                raise

    def _multiplied(self, product: PreparedProduct, arrays: Sequence[Any]) -> Any:
        """The result of one product of numpy arrays, for which no driver is called, with as little around it as may be."""
        given = [layout.on_host(a) if layout.changes else a for layout, a in zip(self.layouts, arrays, strict=True)]
        first, second = _factors(self.tasks[0], given)
        results = self._results
        as_they_are = self.quick is None and first is arrays[0] and second is arrays[1]
        if as_they_are and product.is_plain and results.is_plain and product.shape == results.shape:
            self.quick = QuickProduct.like(first, second, product.swapped)
        return self._to_numpy(product(first, second), None, False, shared=False)

    def _at_once(
        self, bound: Bound, arrays: Sequence[Any], out: Any, direct: bool, queue: Any, numbers: Mapping[str, Any]
    ) -> Any:
        """The result of one kernel for numpy arrays, none of them constant, with as little around it as may be."""
        task, backwards = self.tasks[0], self._results.backwards
        given = [layout.on_host(a) if layout.changes else a for layout, a in zip(self.layouts, arrays, strict=True)]
        if out is not None and direct:
            result = (out.T if backwards else out).reshape(task.step.shape)
            bound = bound.fitting([*given, result])
            overwritten = [bool(np.may_share_memory(a, out)) for a in given]
            buffers = [
                input_buffer(a, queue, n, overwritten=over)[0]
                for a, n, over in zip(given, bound.alignments, overwritten, strict=False)
            ]
        else:
            result = new_array(task.step.shape, task.e.dtype, _LANES_BYTES)
            bound = bound.fitting([*given, result])
            buffers = [input_buffer(a, queue, n)[0] for a, n in zip(given, bound.alignments, strict=False)]
        room = output(result, queue, bound.alignments[-1])
        buffers.append(room.buffer)
        if task.e.updates[0]:
            room.fetch(queue, [])
        room.deliver(queue, bound.enqueue(queue, buffers, None, numbers))
        return self._to_numpy(result, out, direct, shared=False)

    def _at_once_there(self, bound: Bound, arrays: Sequence[Any], queue: Any, numbers: Mapping[str, Any]) -> Any:
        """The same for device arrays."""
        room = self.tasks[0].room
        if room is None:
            raise AssertionError("results on a device have room")
        result = room.make(queue, arrays[0].allocator)
        buffers, events = [], []
        for value, alignment in zip(arrays, bound.alignments, strict=False):
            buffer, copy = input_buffer(value, queue, alignment)
            buffers.append(buffer)
            events += (value if copy is None else copy).events
        buffers.append(result.base_data)
        result.events.append(bound.enqueue(queue, buffers, events or None, numbers))
        return self._as_seen(result)

    def _run(
        self,
        arrays: Sequence[Any],
        out: Any,
        direct: bool,
        queue: Any,
        cache: dict[Any, Any] | None,
        numbers: Mapping[str, Any],
    ) -> Any:
        values: list[Value | None] = [self._operand(k, a, out, direct, queue, cache) for k, a in enumerate(arrays)]
        target = None if out is None or not direct else out.T if self._results.backwards else out
        last = len(self.tasks) - 1
        for number, task in enumerate(self.tasks):
            value = self._kept.get(len(values)) if task.constant else None
            if value is None:
                taken = [value for slot in task.slots if (value := values[slot]) is not None]
                is_last = number == last
                value = self._step(
                    task, taken, target if is_last else None, queue, cache, numbers if is_last else _NO_NUMBERS
                )
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
        self,
        task: PreparedStep,
        taken: Sequence[Value],
        target: Any,
        queue: Any,
        cache: dict[Any, Any] | None,
        numbers: Mapping[str, Any],
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
            found = self._by_kernel(task.bound, task, taken, target, queue, numbers)
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

    def _by_kernel(
        self,
        bound: Bound,
        task: PreparedStep,
        taken: Sequence[Value],
        target: Any,
        queue: Any,
        numbers: Mapping[str, Any],
    ) -> Value:
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
            if task.e.updates[0] and task.kernel is not None:
                given = {name: numbers[own] for name, own in task.kernel.scalar_names.items()}
                finish_nothing(task.e, {}, given, [result], queue, events)
            else:
                fill_with_zeros(result, queue, events)
            return Value(result)
        if self.on_host:
            bound = bound.fitting([*(value.array for value in taken), result])
        room = output(result, queue, bound.alignments[-1])
        buffers = [value.taken(queue, n) for value, n in zip(taken, bound.alignments, strict=False)]
        events = [event for value in taken for event in value.events()]  # those of copies that were just made, too
        if not self.on_host:
            events += result.events
        if task.e.updates[0]:
            events += room.fetch(queue, events)
        done = bound.enqueue(queue, [*buffers, room.buffer], events or None, numbers)
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
        return self._as_seen(found)

    def _as_seen(self, found: Any) -> Any:
        """A device array in the shape and order of axes of the caller."""
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


def _is_of_host(value: Any) -> bool:
    """Whether an operand beside device arrays is a number, which is no array of theirs yet."""
    return isinstance(value, (np.ndarray, np.generic))


def _factors(task: PreparedStep, hosts: Sequence[Any]) -> list[Any]:
    """The operands of a product, in the shapes of the step and its type."""
    dtype = task.e.dtype
    shaped = [a if a.shape == shape else a.reshape(shape) for a, shape in zip(hosts, task.step.shapes, strict=True)]
    return [a if a.dtype == dtype else a.astype(dtype) for a in shaped]
