"""An evaluation: a contraction of arrays of certain shapes, types and layouts, with everything that follows from these.

A call only hands over buffers: of operands, used where they are if that is possible, and of intermediate results.  Values
have slots, one for each operand and one for the result of each step::

    operands 0, 1, 2    step 0: (1, 2) -> 3    step 1: (0, 3) -> 4

Small contractions take microseconds, most of which Python spends around them.  So there are strategies that do less per
call and take fewer contractions; :class:`Evaluation` chooses once, when it is made.  From the one that does least:

- :class:`QuickProduct`: numpy multiplies two arrays as they are;
- :func:`single_product`: numpy multiplies two arrays;
- :func:`single_host_kernel`: one kernel takes numpy arrays;
- :func:`single_device_kernel`: one kernel takes device arrays as they are;
- :class:`StepByStep` takes all others, and every call that shares intermediate results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from feinsum.compile.buffers import Room, fill_with_zeros, input_buffer, output_buffer, share_memory
from feinsum.compile.host_buffers import new_array
from feinsum.contract.library_products import PreparedProduct
from feinsum.contract.prepared_steps import OperandLayout, PreparedStep, Results, StepValue
from feinsum.contract.sharing import current_cache, step_key
from feinsum.devices import Device
from feinsum.ending import calling
from feinsum.errors import ValidationError
from feinsum.kernel.epilogue_scalars import Scaling, finish_nothing
from feinsum.kernel.kernel_calls import BoundKernel

_NO_NUMBERS: Mapping[str, Any] = MappingProxyType({})
_WORTH_WAITING_BYTES = 16 << 20
"""Bytes of values no longer needed, from which on a call waits for a step so that they can be freed."""
_LANES_BYTES = 128
"""The largest vectors of OpenCL: intermediate results begin at a multiple of them, so that every kernel accepts them."""


class Evaluation:
    """A contraction of arrays that are like those it was prepared for; thread-safe.

    :param constants: the operands that are the same in every call.
    :param facts: the facts that distinguish its results from those of the same steps elsewhere.
    :param arrays: operands like those of its calls.
    :param writes: whether calls have an array for the result, which the last step may write to.
    :ivar quick: the function that computes results of arrays like these without a look-up of the evaluation, or None.
    """

    def __init__(
        self,
        tasks: Sequence[PreparedStep],
        layouts: Sequence[OperandLayout],
        results: Results,
        on_host: bool,
        device: Device,
        constants: frozenset[int] = frozenset(),
        facts: Any = None,
        arrays: Sequence[Any] = (),
        writes: bool = False,
    ) -> None:
        self.tasks, self.layouts, self.on_host, self.device = tuple(tasks), tuple(layouts), on_host, device
        self._steps = StepByStep(self.tasks, self.layouts, results, on_host, constants, facts)
        self._shortest: EvaluationStrategy = self._steps
        self._product: EvaluationStrategy | None = None
        self.quick: QuickProduct | None = None
        task, bound = self.tasks[0], self.tasks[0].bound
        if len(tasks) > 1 or constants:
            return
        # A number among device arrays is an array of the host, which has to be copied.
        mixed = not on_host and any(isinstance(a, np.ndarray) for a in arrays)
        as_they_are = not mixed and not any(layout.changes for layout in layouts)
        if task.product is not None and not writes:
            self._shortest = self._product = single_product(task, self.layouts, results, task.product)
            self.quick = _quick_product(task, task.product, results, arrays) if as_they_are else None
        elif bound is not None and not bound.empty and on_host:
            self._shortest = single_host_kernel(task, self.layouts, results, bound)
        elif bound is not None and not bound.empty and task.room is not None and as_they_are and not writes:
            self._shortest = single_device_kernel(results, bound, task.room)

    def scaled(self, arrays: Sequence[Any], out: Any, direct: bool, scaling: Scaling) -> Any:
        """``alpha*result + beta*out``, computed by the last kernel, or after it from its result.

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
        :param out: the array for the result, checked.
        :param direct: whether the last step may write to `out`: whether it is contiguous in the order of axes of the
            result, and of the type computed in.
        :param numbers: those that the epilogue of the last step takes, by their names in its program.
        """
        cache = None if numbers else current_cache()
        strategy = self._shortest if cache is None else self._steps
        if strategy is self._product:
            return strategy(arrays, out, direct, None, cache, numbers)
        queue = self.device.queue
        if not self.on_host:
            queue = next((q for a in arrays if (q := getattr(a, "queue", None)) is not None), None) or queue
        with calling:
            try:
                return strategy(arrays, out, direct, queue, cache, numbers)
            except BaseException:
                if self.on_host:  # memory of the caller may be gone before a kernel that is under way has ended
                    queue.finish()
                raise

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


class EvaluationStrategy(Protocol):
    """A way to compute the result of an evaluation."""

    def __call__(
        self,
        arrays: Sequence[Any],
        out: Any,
        direct: bool,
        queue: Any,
        cache: dict[Any, Any] | None,
        numbers: Mapping[str, Any],
    ) -> Any:
        """The result; see :meth:`Evaluation.run`.

        :param queue: None for a strategy that calls no driver.
        :param cache: the intermediate results that calls share; None if they share none.
        """


@dataclass(frozen=True)
class QuickProduct:
    """A function that multiplies arrays like two earlier ones by :func:`numpy.matmul` alone: small products take less time
    than the Python around them.

    :ivar kinds: shape, strides and type of both operands.
    """

    kinds: tuple[Any, ...]
    swapped: bool

    def __call__(self, values: Sequence[Any], out: Any = None) -> Any:
        """The result; None for arrays of another kind, where `out` is given, and where intermediate results are shared."""
        if out is not None or len(values) != 2:
            return None
        a, b = values
        if (
            a.__class__ is b.__class__ is np.ndarray
            and (a.shape, b.shape, a.strides, b.strides, a.dtype, b.dtype) == self.kinds
            and current_cache() is None
        ):
            return np.matmul(b, a) if self.swapped else np.matmul(a, b)
        return None


def _quick_product(
    task: PreparedStep, product: PreparedProduct, results: Results, arrays: Sequence[Any]
) -> QuickProduct | None:
    """The product of two arrays that need no conversion; None where the step or the result needs one."""
    a, b = arrays
    fits = a.dtype == b.dtype == task.e.dtype == results.dtype and (a.shape, b.shape) == tuple(task.step.shapes)
    plain = product.is_plain and product.shape == results.shape and not results.backwards and bool(results.shape)
    return (
        QuickProduct((a.shape, b.shape, a.strides, b.strides, a.dtype, b.dtype), product.swapped)
        if fits and plain
        else None
    )


def single_product(
    task: PreparedStep, layouts: Sequence[OperandLayout], results: Results, product: PreparedProduct
) -> EvaluationStrategy:
    """The strategy for one product of numpy arrays, none constant: numpy multiplies, and no driver is called."""

    def evaluate(
        arrays: Sequence[Any],
        out: Any,
        direct: bool,
        queue: Any,
        cache: dict[Any, Any] | None,
        numbers: Mapping[str, Any],
    ) -> Any:
        given = [layout.on_host(a) if layout.changes else a for layout, a in zip(layouts, arrays, strict=True)]
        first, second = _step_factors(task, given)
        return results.on_host(product(first, second), None, False, shared=False)

    return evaluate


def single_host_kernel(
    task: PreparedStep, layouts: Sequence[OperandLayout], results: Results, bound: BoundKernel
) -> EvaluationStrategy:
    """The strategy for one kernel on numpy arrays, none constant: it keeps no values between calls."""

    def evaluate(
        arrays: Sequence[Any],
        out: Any,
        direct: bool,
        queue: Any,
        cache: dict[Any, Any] | None,
        numbers: Mapping[str, Any],
    ) -> Any:
        given = [layout.on_host(a) if layout.changes else a for layout, a in zip(layouts, arrays, strict=True)]
        if out is not None and direct:
            result = (out.T if results.backwards else out).reshape(task.step.shape)
            fitting = bound.fitting([*given, result])
            overwritten = [bool(np.may_share_memory(a, out)) for a in given]
            buffers = [
                input_buffer(a, queue, n, overwritten=over)[0]
                for a, n, over in zip(given, fitting.alignments, overwritten, strict=False)
            ]
        else:
            result = new_array(task.step.shape, task.e.dtype, _LANES_BYTES)
            fitting = bound.fitting([*given, result])
            buffers = [input_buffer(a, queue, n)[0] for a, n in zip(given, fitting.alignments, strict=False)]
        room = output_buffer(result, queue, fitting.alignments[-1])
        buffers.append(room.buffer)
        if task.e.updates[0]:
            room.fetch(queue, [])
        room.deliver(queue, bound.enqueue(queue, buffers, None, numbers))
        return results.on_host(result, out, direct, shared=False)

    return evaluate


def single_device_kernel(results: Results, bound: BoundKernel, room: Room) -> EvaluationStrategy:
    """The strategy for one kernel on device arrays as they are: it waits for their events, and the host does not block."""

    def evaluate(
        arrays: Sequence[Any],
        out: Any,
        direct: bool,
        queue: Any,
        cache: dict[Any, Any] | None,
        numbers: Mapping[str, Any],
    ) -> Any:
        result = room.make(queue, arrays[0].allocator)
        buffers, events = [], []
        for value, alignment in zip(arrays, bound.alignments, strict=False):
            buffer, copy = input_buffer(value, queue, alignment)
            buffers.append(buffer)
            events += (value if copy is None else copy).events
        buffers.append(result.base_data)
        result.events.append(bound.enqueue(queue, buffers, events or None, numbers))
        return results.on_device(result)

    return evaluate


@dataclass(frozen=True, eq=False)
class StepByStep:
    """The strategy that runs step after step, each by a kernel or by numpy; it keeps values that follow from constants, and
    shares intermediate results.

    :ivar kept: by slot, the converted constants, and the values that follow from constants alone.  If several threads
        compute a value at the same time, that of the first is kept.
    """

    tasks: tuple[PreparedStep, ...]
    layouts: tuple[OperandLayout, ...]
    results: Results
    on_host: bool
    constants: frozenset[int]
    facts: Any
    kept: dict[int, StepValue] = field(default_factory=dict, init=False, repr=False)

    def __call__(
        self,
        arrays: Sequence[Any],
        out: Any,
        direct: bool,
        queue: Any,
        cache: dict[Any, Any] | None,
        numbers: Mapping[str, Any],
    ) -> Any:
        values: list[StepValue | None] = [self._operand(k, a, out, direct, queue, cache) for k, a in enumerate(arrays)]
        target = None if out is None or not direct else out.T if self.results.backwards else out
        value = None
        for number, task in enumerate(self.tasks):
            value = self.kept.get(len(values)) if task.constant else None
            if value is None:
                taken = [value for slot in task.slots if (value := values[slot]) is not None]
                is_last = number == len(self.tasks) - 1
                value = self._step(
                    task, taken, target if is_last else None, queue, cache, numbers if is_last else _NO_NUMBERS
                )
                if task.constant:
                    value = self.kept.setdefault(len(values), value)
            values.append(value)
            self._drop(values, task)
        if value is None:
            raise AssertionError("a contraction has at least one step")
        if self.on_host:
            return self.results.on_host(value.host(queue), out, direct, shared=cache is not None)
        if out is None or not direct:
            return self.results.on_device(value.array)
        out.events.extend(event for event in value.array.events if event not in out.events)
        return out

    def _drop(self, values: list[StepValue | None], task: PreparedStep) -> None:
        """Drop the values that no later step takes.  A driver keeps a buffer as long as its commands need it."""
        result = values[-1]
        if self.on_host and result is not None and result.done is not None:
            if sum(value.array.nbytes for slot in task.slots if (value := values[slot]) is not None) < _WORTH_WAITING_BYTES:
                return
            result.done.wait()
        for slot in task.slots:
            values[slot] = None

    def _operand(self, k: int, value: Any, out: Any, direct: bool, queue: Any, cache: dict[Any, Any] | None) -> StepValue:
        layout = self.layouts[k]
        key = None
        if cache is not None:
            key = ("operand", id(value), layout, self.facts)
            cache.setdefault(("alive", id(value)), value)
        if k in self.constants:
            kept = self.kept.get(k)
            if kept is None:  # a copy, which the caller cannot change
                kept = self.kept.setdefault(
                    k, StepValue(np.array(layout.on_host(value)) if self.on_host else layout.on_device(value, queue))
                )
            kept.key = key
            return kept
        if self.on_host:
            found = StepValue(layout.on_host(value), key=key)
            if direct and out is not None:
                found.shared_with_result = bool(np.may_share_memory(found.array, out))
            return found
        return StepValue(layout.on_device(value, queue), key=key)

    def _step(
        self,
        task: PreparedStep,
        taken: Sequence[StepValue],
        target: Any,
        queue: Any,
        cache: dict[Any, Any] | None,
        numbers: Mapping[str, Any],
    ) -> StepValue:
        key = None
        if cache is not None:
            key = step_key(
                task.step.subscripts, task.step.lengths, [value.key for value in taken], (task.e.dtype.str, self.facts)
            )
            known: StepValue | None = cache.get(key)
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
        self, product: PreparedProduct, task: PreparedStep, taken: Sequence[StepValue], target: Any, queue: Any
    ) -> StepValue:
        hosts = [value.host(queue).copy() if value.shared_with_result else value.host(queue) for value in taken]
        first, second = _step_factors(task, hosts)
        return StepValue(product(first, second, None if target is None else target.reshape(task.step.shape)))

    def _by_kernel(
        self,
        bound: BoundKernel,
        task: PreparedStep,
        taken: Sequence[StepValue],
        target: Any,
        queue: Any,
        numbers: Mapping[str, Any],
    ) -> StepValue:
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
            return StepValue(result)
        if self.on_host:
            bound = bound.fitting([*(value.array for value in taken), result])
        room = output_buffer(result, queue, bound.alignments[-1])
        buffers = [value.taken(queue, n) for value, n in zip(taken, bound.alignments, strict=False)]
        events = [event for value in taken for event in value.events()]  # those of copies that were just made, too
        if not self.on_host:
            events += result.events
        if task.e.updates[0]:
            events += room.fetch(queue, events)
        done = bound.enqueue(queue, [*buffers, room.buffer], events or None, numbers)
        if self.on_host:
            return StepValue(result, room.buffer, done, room)
        room.deliver(queue, done)
        return StepValue(result)


def _step_factors(task: PreparedStep, hosts: Sequence[Any]) -> list[Any]:
    """The operands of a product, in the shapes of the step and its type."""
    dtype = task.e.dtype
    shaped = [a if a.shape == shape else a.reshape(shape) for a, shape in zip(hosts, task.step.shapes, strict=True)]
    return [a if a.dtype == dtype else a.astype(dtype) for a in shaped]
