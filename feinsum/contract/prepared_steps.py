"""The parts of an evaluation: steps that are ready to run, the conversion of operands and results, and values."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from feinsum.compile.buffers import Output, Room, input_buffer, upload
from feinsum.compile.strided import copy_strided
from feinsum.contract.contraction_plan import PlannedStep, Shape
from feinsum.contract.library_products import PreparedProduct
from feinsum.contract.step_choice import StepChoice
from feinsum.einsum import BatchedEinsum
from feinsum.kernel.kernel import Kernel
from feinsum.kernel.kernel_calls import BoundKernel


@dataclass(frozen=True)
class PreparedStep:
    """A step that is ready to run.

    :ivar slots: the slots of the values that it takes.
    :ivar e: the einsum that it computes.
    :ivar choice: whether a kernel or the library computes it.
    :ivar kernel: the kernel; None where the library computes it.
    :ivar constant: whether it follows from constants alone.
    """

    step: PlannedStep
    slots: tuple[int, ...]
    e: BatchedEinsum
    choice: StepChoice
    kernel: Kernel | None
    bound: BoundKernel | None
    product: PreparedProduct | None
    constant: bool
    room: Room | None = field(repr=False)

    @property
    def flops(self) -> int:
        """The operations of the step; those on complex numbers count as the operations on reals that they take."""
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
        """A device array, or a number beside device arrays, as :meth:`on_host` converts it."""
        if isinstance(value, np.ndarray):
            return upload(np.asarray(value, self.dtype, order="C"), queue)
        if self.axes is not None:
            value = value.transpose(self.axes)
        return copy_strided(value, queue, self.dtype) if self.convert else value


@dataclass(frozen=True)
class Results:
    """The conversion of the last value to the caller's result.

    :ivar shape: its shape in the order of axes in which it is computed.
    :ivar backwards: whether the caller sees the axes from the last to the first.
    :ivar dtype: the type that the caller gets; ``computed`` is that of the last step.
    """

    shape: Shape
    backwards: bool
    dtype: np.dtype[Any]
    computed: np.dtype[Any]

    def on_host(self, host: Any, out: Any, direct: bool, *, shared: bool) -> Any:
        """The result as numpy has it: an array, a number where there are no axes, or in `out`.

        :param direct: whether `out` has it already, if that is given.
        :param shared: whether other calls may use `host` as well.
        """
        if direct and out is not None:
            return out
        found = host if host.shape == self.shape else host.reshape(self.shape)
        if self.backwards:
            found = found.T
        if self.dtype != self.computed:
            found = found != 0 if self.dtype.kind == "b" else found.astype(self.dtype)
        elif shared and out is None:
            found = found.copy(order="K")  # the shared one is not the caller's to change
        if out is None:
            return found if found.ndim else found[()]
        out[...] = found
        return out

    def on_device(self, found: Any) -> Any:
        """A device array in the shape and order of axes of the caller."""
        if found.shape != self.shape:
            found = found.reshape(self.shape)
        return found.T if self.backwards else found


class StepValue:
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
        """The buffer, made if necessary."""
        if self.buffer is None:
            self.buffer, copy = input_buffer(self.array, queue, alignment, overwritten=self.shared_with_result)
            if copy is not None and not isinstance(copy, np.ndarray):
                self.array = copy
        return self.buffer
