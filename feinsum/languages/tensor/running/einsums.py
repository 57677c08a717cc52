"""The einsum route: a function that is einsums, computed by the kernels of :func:`feinsum.generate`.

A column-major array is transposed, which moves nothing, and the memrefs of a group are one array where they are equally far
from each other.  Factors that are stacked are copied to temporaries, and local memory that several instructions read is one
for all instances.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from feinsum.compile.buffers import check_queue, checked_events
from feinsum.compile.call_cache import CallCache
from feinsum.einsum import BatchedEinsum
from feinsum.errors import ValidationError
from feinsum.kernel.kernel import Kernel
from feinsum.kernel.kernel_arguments import check_context
from feinsum.languages.calling.protocols import INSTANCES, BuildRequest, ProgramCall
from feinsum.languages.calling.signature import BoundArgument
from feinsum.languages.source import SourceText
from feinsum.languages.tensor.arguments import signature
from feinsum.languages.tensor.ir import TensorFunction, TensorValue
from feinsum.languages.tensor.numbers import dtype_of
from feinsum.languages.tensor.printing import show_function
from feinsum.languages.tensor.recognising import EinsumUpdate, Step
from feinsum.languages.tensor.recognising.operands import EinsumOperand, name_of
from feinsum.languages.tensor.recognising.terms import Block, Factor, transposed
from feinsum.languages.tensor.running.arguments import layouts
from feinsum.languages.tensor.running.call_temporaries import Temporaries, stack
from feinsum.languages.tensor.running.combining import combine
from feinsum.languages.tensor.types import PointerGroup, TensorMemref

_SHARE: Final = 4
"""Part of the memory of a device that temporaries take at most."""
_MOST_LENGTHS: Final = 16
"""Sets of lengths of unknown modes for which there are kernels of their own; later ones have those for any lengths."""


class UnsuitedError(ValidationError):
    """Arguments that the general route takes and this one does not."""


class EinsumKernel:
    """A function on a device, einsum by einsum.

    Sizes of modes that the program leaves open are compiled in when a call first brings them: a kernel that does not know
    them can neither keep tiles in registers nor tell what fits.

    :ivar steps: contractions and combinations, in order.
    :ivar kernels: one for each contraction, in order, for any lengths.
    """

    route = "einsum"
    sizes: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, function: TensorFunction, source: SourceText, request: BuildRequest, found: Sequence[Step]) -> None:
        self.function, self.text, self.device, self.steps = function, source, request.device, tuple(found)
        self._request, self._signature, self._take = request, signature(function), layouts(function)
        self.contractions = [one for one in found if isinstance(one, EinsumUpdate)]
        outputs = dict.fromkeys(one.output for one in found)
        self.written = [one for one in outputs if one in function.parameters]
        self._local = {one: name_of(one) for one in outputs if one not in function.parameters}
        self.kernels = []
        self._made: dict[tuple[Any, ...], list[Kernel]] = {}
        self._transposed = _Transposed()
        self._examined: tuple[int | None, int, list[Kernel]] | None = None
        self._stacked = {x.name: x for one in found for x in one.operands.values() if x.counter is not None}
        self._temporaries = Temporaries()
        self._known_shapes = CallCache[dict[str, tuple[int, ...]]]()
        for one in self.contractions:
            expected = {one.axes[name]: size for name, size in request.sizes.items() if name in one.axes}
            self.kernels.append(one.kernel(request, expected))

    @property
    def is_recorded(self) -> bool:
        """Whether every kernel was measured for its einsum."""
        return all(kernel.was_measured for kernel in self.kernels)

    @property
    def copies(self) -> bool:
        """Whether a call does more than to launch the kernels, which alone were measured."""
        return len(self.steps) > len(self.contractions) or bool(self._local) or any(one.gaps for one in self.steps)

    @property
    def source(self) -> str:
        """The OpenCL C source of all kernels."""
        made = (kernel for kernels in self._made.values() for kernel in kernels)
        return "\n".join(dict.fromkeys(kernel.source for kernel in (*self.kernels, *made)))

    def ir(self, name: str | None = None) -> str:
        """The function as it was read.

        :raises ValidationError: if a pass is named: einsums have none.
        """
        if name is not None:
            raise ValidationError(f"there is no pass {name!r} on the einsum route; leave the name out")
        return show_function(self.function)

    def explain(self) -> str:
        """Which einsums, by lines of the program, and what their kernels come from."""
        lines = [f"@{self.function.name} on {self.device.id}, by the einsum route"]
        kernels = iter(self.kernels)
        for one in self.steps:
            numbers = ", ".join(dict.fromkeys(str(self.text.place(span).line) for span in one.spans))
            lines.append(f"%{one.output.name} by line {numbers}: {one.formula}")
            if isinstance(one, EinsumUpdate):
                kernel = next(kernels)
                lines.append(f"  {kernel.space} by {kernel.rung}")
        for made in self._made.values():
            lines += [f"  {kernel.space} by {kernel.rung} for {kernel.einsum}" for kernel in made]
        lines += [f"%{one.name} is an array of all instances" for one in self._local]
        lines += dict.fromkeys(f"copied at every call: {what}" for one in self.steps for what in one.gaps)
        return "\n".join(lines)

    def call(self, call: ProgramCall) -> Any:
        """Run it; the arrays that were written.

        :raises UnsuitedError: if not all instances are wanted, or results lie as no einsum writes them.
        """
        arguments, count = call.arguments, call.instances
        examined = self._examined
        known = examined is not None and examined[:2] == (count, len(arguments))
        batches, numbers = self._same(arguments) if known else None, dict[TensorValue, Any]()
        if batches is None:
            examined = None
            batches, numbers = self._examine(arguments, count)
        results = {one: _EinsumResult(batches[one]) for one in self.written}
        work = self._work(batches, call.queue, call.wait_for)
        inputs = [{name: work.array(operand) for name, operand in one.operands.items()} for one in self.contractions]
        kernels = self._kernels_at(inputs) if examined is None else examined[2]
        self._examined = count, len(arguments), kernels
        ready = zip(inputs, kernels, strict=True)
        for one in self.steps:
            operands = one.operands.values()
            work.stack(operands)
            out = results[one.output].array if one.output in results else work.batches[one.output]
            if isinstance(one, EinsumUpdate):
                own, kernel = next(ready)
                given = own | {name_of(value): numbers[value] for value in one.scalars}
                kernel(given, out=out, queue=work.queue, wait_for=work.wait_for)
            else:
                combine(one, out, [work.array(operand) for operand in operands], numbers, work.queue, work.wait_for)
            work.note(operands, out)
        for result in results.values():
            result.deliver()
        return self._signature.written_among(arguments)

    def _work(self, batches: Mapping[TensorValue, Any], queue: Any, wait_for: Any) -> _CallState:
        """The arrays of a call: the transposed arguments, and temporaries of the sizes that it needs.

        :raises UnsuitedError: if these take too much of the memory of the device.
        """
        if not self._stacked and not self._local and len(self.steps) == len(self.contractions):
            return _CallState(batches, self._transposed, queue, wait_for)
        on_device = not isinstance(next(iter(batches.values())), np.ndarray)
        queue = self._queue(batches, queue) if on_device else queue
        events = checked_events(wait_for, self.device.context) if wait_for is not None else []
        shapes = self._shapes(batches)
        kept = self._temporaries.take(shapes, self._dtype, queue if on_device else None)
        local = {one: kept[name] for one, name in self._local.items()}
        return _CallState({**batches, **local}, self._transposed, queue, events, kept)

    def _queue(self, batches: Mapping[TensorValue, Any], queue: Any) -> Any:
        """The queue of a call with arrays of the device: that of the first array, if none is given."""
        check_context({value.name: array for value, array in batches.items()}, self.device.queue)
        queue = queue or next((x.queue for x in batches.values() if x.queue is not None), self.device.queue)
        check_queue(queue, self.device.context)
        return queue

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        """The type of all arrays."""
        first = self.steps[0].output.type
        assert isinstance(first, (TensorMemref, PointerGroup))
        return np.dtype(dtype_of((first.memref if isinstance(first, PointerGroup) else first).element))

    def _shapes(self, batches: Mapping[TensorValue, Any]) -> dict[str, tuple[int, ...]]:
        """The shapes of temporaries, by name: of local memory, and of operands that are stacked.

        :raises UnsuitedError: if they take too much of the memory of the device.
        """
        given = tuple(array.shape for array in batches.values())
        shapes = self._known_shapes.get(given)
        if shapes is None:
            shapes = self._shapes_anew(batches)
            needed = sum(map(math.prod, shapes.values())) * self._dtype.itemsize
            if needed * _SHARE > self.device.profile.global_memory_bytes:
                part = f"1/{_SHARE} of the memory of {self.device.id}"
                raise UnsuitedError(f"temporaries of {needed} bytes take more than {part}")
            self._known_shapes[given] = shapes
        return shapes

    def _shapes_anew(self, batches: Mapping[TensorValue, Any]) -> dict[str, tuple[int, ...]]:
        given = {value.name: array.shape[::-1] for value, array in batches.items()}
        count, local = next((size for _, size in self._counted(given)), 0), dict[TensorValue, tuple[int, ...]]()
        for one in self._local:
            assert isinstance(one.type, TensorMemref)
            local[one] = tuple(count if n is None else n for n in reversed(one.type.shape))
        shapes = {self._local[one]: shape for one, shape in local.items()}
        for operand in self._stacked.values():
            first = operand.factors[0]
            inner = local[first.root] if first.root in local else batches[first.root][_places_of(first)].shape
            shapes[operand.name] = (*inner[: operand.axis], len(operand.factors), *inner[operand.axis :])
        return shapes

    def _counted(self, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, int]]:
        """The parameters that have an element for each instance, and how many there are.

        :param shapes: of arguments; the last axis of a group counts its memrefs.
        """
        for name in (name for one in self.steps for name, axis in one.axes.items() if axis == INSTANCES):
            parameter, _, mode = name.partition(".")
            if parameter in shapes:
                yield parameter, shapes[parameter][int(mode) if mode else -1]

    def _same(self, arguments: Mapping[str, Any]) -> dict[TensorValue, Any] | None:
        """The transposed arrays of a call that brings the arrays of the device which the last one brought; else None.

        To examine them took longer than to launch a kernel.
        """
        views = {one: self._transposed.known(one, arguments.get(one.name)) for one in self.function.parameters}
        return None if any(view is None for view in views.values()) else views

    def _examine(
        self, arguments: Mapping[str, Any], count: int | None
    ) -> tuple[dict[TensorValue, Any], dict[TensorValue, Any]]:
        """The transposed arrays, and the numbers, of arguments that fit."""
        self._examined = None
        given = {one.parameter: one for one in self._signature.bind(arguments, self._take)}
        self._check_count(given.values(), count)
        numbers = {
            one: found.value[()] for one, found in given.items() if not isinstance(one.type, (TensorMemref, PointerGroup))
        }
        batches = {one: self._transposed.of(found) for one, found in given.items() if one not in numbers}
        return batches, numbers

    def _kernels_at(self, inputs: Sequence[Mapping[str, Any]]) -> list[Kernel]:
        """The kernels for the lengths of a call."""
        if not any(one.open for one in self.contractions):
            return self.kernels
        found = [_lengths_in_call(one.einsum, arrays) for one, arrays in zip(self.contractions, inputs, strict=True)]
        lengths = [own for own in found if own is not None]
        if len(lengths) < len(found):
            return self.kernels
        key = tuple(own[x] for one, own in zip(self.contractions, lengths, strict=True) for x in one.open)
        if key not in self._made:
            if len(self._made) >= _MOST_LENGTHS:
                return self.kernels
            self._made[key] = [
                one.kernel_at(self._request, own) for one, own in zip(self.contractions, lengths, strict=True)
            ]
        return self._made[key]

    def _check_count(self, given: Collection[BoundArgument[TensorValue]], count: int | None) -> None:
        """Check that a call takes all instances, no more and no less."""
        memrefs = {one.parameter.name: one.arrays[0].shape for one in given if isinstance(one.parameter.type, TensorMemref)}
        groups = {one.parameter.name: (len(one.arrays),) for one in given if isinstance(one.parameter.type, PointerGroup)}
        found = None
        for parameter, size in self._counted(memrefs | groups):
            if count not in (None, size):
                raise UnsuitedError(f"count is {count}, and %{parameter} has {size} instances, which an einsum takes all")
            count = found = size
        if found is None and count not in (None, 1):
            raise UnsuitedError(f"count is {count}, and an einsum without instances is computed once")


def _lengths_in_call(e: BatchedEinsum, arrays: Mapping[str, Any]) -> dict[str, int] | None:
    """How long each index is in a call; None if arrays contradict each other, or one is empty."""
    found: dict[str, int] = {}
    for (array,), letters in zip(e.args[0], e.indexing.inputs, strict=True):
        for x, n in zip(letters, arrays[array.name].shape, strict=True):
            if n == 0 or found.setdefault(x, n) != n:
                return None
    return found


@dataclass
class _CallState:
    """The state of a call.

    :ivar batches: transposed arrays, among them the local memory of all instances.
    :ivar temporaries: that memory, and the memory of stacked operands, by name.
    :ivar stacked: the names of the operands stacked so far.
    """

    batches: Mapping[TensorValue, Any]
    transposed: _Transposed
    queue: Any
    wait_for: Any
    temporaries: Mapping[str, Any] = field(default_factory=dict)
    stacked: set[str] = field(default_factory=set)

    def array(self, operand: EinsumOperand) -> Any:
        """The array of an operand; one that is stacked has no content yet."""
        found = self.temporaries.get(operand.name)
        return self.block(operand.factors[0]) if found is None else found

    def block(self, factor: Factor) -> Any:
        """The array of a factor."""
        return self.transposed.block(self.batches[factor.root], factor)

    def stack(self, operands: Collection[EinsumOperand]) -> None:
        """Write what is stacked and has not been in this call."""
        for one in operands:
            if one.counter is not None and one.name not in self.stacked:
                parts = [self.block(factor) for factor in one.factors]
                stack(self.temporaries[one.name], one.axis, parts, self.queue, self.wait_for)
                self.stacked.add(one.name)

    def note(self, operands: Collection[EinsumOperand], result: Any) -> None:
        """Make the next that writes to the temporaries among operands wait for the result that was made of them."""
        for one in operands:
            if one.name in self.temporaries and not isinstance(result, np.ndarray):
                self.temporaries[one.name].events.extend(result.events)


class _EinsumResult:
    """Where an einsum writes: a C-contiguous array, which is a copy if the one of the caller is not."""

    def __init__(self, transposed: Any) -> None:
        self._target = transposed
        contiguous = transposed.flags.c_contiguous
        if not contiguous and not isinstance(transposed, np.ndarray):
            raise UnsuitedError("results on the device have to be in order F")
        self.array = transposed if contiguous else np.ascontiguousarray(transposed)

    def deliver(self) -> None:
        if self.array is not self._target:
            self._target[...] = self.array


class _Transposed:
    """Arrays with their axes reversed.  pyopencl takes longer to make such a view than to launch a kernel, so a view of an
    array of the device, and of blocks of it, is kept for the calls that bring it again, as long as the caller holds the
    array."""

    def __init__(self) -> None:
        self._known: dict[TensorValue, tuple[weakref.ref[Any], Any, dict[Block, Any]]] = {}

    def of(self, given: BoundArgument[TensorValue]) -> Any:
        """The array of a parameter; a group is an array whose first axis counts its memrefs."""
        if isinstance(given.parameter.type, PointerGroup):
            return _stack_arrays([array.T for array in given.arrays], given.name)
        (array,) = given.arrays
        return array.T if isinstance(array, np.ndarray) else self._view(given.parameter, array)

    def known(self, parameter: TensorValue, array: Any) -> Any:
        """The view of an array of the device that the last call brought, if it is as it was; else None."""
        known = self._known.get(parameter)
        held = known[0]() if known is not None else None
        if known is None or held is None or held is not array:
            return None
        view = known[1]
        if _replaceable_places(view) != (*_replaceable_places(held)[:3], held.shape[::-1]):
            return None
        view.events = held.events
        return view

    def _view(self, parameter: TensorValue, array: Any) -> Any:
        view = self.known(parameter, array)
        if view is None:
            view = array.T
            self._known[parameter] = weakref.ref(array, lambda _: self._known.pop(parameter, None)), view, {}
        return view

    def block(self, view: Any, factor: Factor) -> Any:
        """The block that a factor is of an array whose axes are reversed."""
        if not any(factor.block):
            return view
        known = self._known.get(factor.root)
        if known is None or known[1] is not view:
            return view[_places_of(factor)]
        if factor.block not in known[2]:
            known[2][factor.block] = view[_places_of(factor)]
        found = known[2][factor.block]
        found.events = view.events
        return found


def _places_of(factor: Factor) -> tuple[slice | int, ...]:
    """A block as the index of an array whose axes are reversed."""
    parts = [slice(None) if part is None else slice(part[0], sum(part)) if part[1] else part[0] for part in factor.block]
    return tuple(transposed(factor.root, parts))


def _replaceable_places(array: Any) -> tuple[Any, ...]:
    """The key of the attributes of a device array that its owner may replace."""
    return id(array.base_data), array.offset, id(array.queue), array.shape


def are_equally_far(arrays: Sequence[Any]) -> bool:
    """Whether arrays of numpy are alike, and each as far behind the one before it."""
    steps = np.unique(np.diff([_address(array) for array in arrays]))
    alike = all(array.strides == arrays[0].strides and array.shape == arrays[0].shape for array in arrays)
    return alike and len(steps) < 2 and not (steps < 0).any()


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _stack_arrays(arrays: Sequence[Any], name: str) -> Any:
    """Arrays as one.

    :raises UnsuitedError: if they are not equally far from each other.
    """
    if not arrays or not isinstance(arrays[0], np.ndarray):
        raise UnsuitedError(f"{name} is a group of arrays on the device")
    if not are_equally_far(arrays):
        raise UnsuitedError(f"the arrays of {name} are not equally far from each other")
    step = _address(arrays[1]) - _address(arrays[0]) if len(arrays) > 1 else arrays[0].nbytes
    shape, strides = (len(arrays), *arrays[0].shape), (step, *arrays[0].strides)
    return np.lib.stride_tricks.as_strided(arrays[0], shape, strides, writeable=bool(arrays[0].flags.writeable))
