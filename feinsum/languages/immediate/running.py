"""Running: the einsums of a plan go to :func:`feinsum.generate`, and loops that are left are run by the host.

An einsum is stated in the order in which its operands lie in memory, so that neither arrays as numpy makes them nor such as
the document's column-major items are copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.compile.buffers import fill_with_zeros
from feinsum.compile.strided import update_strided
from feinsum.einsum import BatchedEinsum, array, einsum
from feinsum.languages.calling.protocols import INSTANCES, BuildRequest
from feinsum.languages.calling.stage import EinsumStage
from feinsum.languages.immediate.function_plan import IndexMark, PlannedContraction, PlannedLoop, TensorTerm, Unit
from feinsum.languages.immediate.layouts import ContractionLayout, find_groups, is_contiguous, make_layout, order_of
from feinsum.languages.immediate.memory import CallMemory, new_like, ones_like
from feinsum.languages.immediate.raising import LETTERS
from feinsum.languages.immediate.views import IntegerVariable
from feinsum.query import query

if TYPE_CHECKING:
    from feinsum.kernel.kernel import Kernel
    from feinsum.kernel.kernel_calls import BoundKernel

ITEM = "Z"
"""The letter of work-items; no other index has it."""
assert ITEM not in LETTERS


@dataclass(frozen=True)
class ContractionLaunch:
    """A contraction for arrays of certain strides.

    :ivar layouts: of its terms, and last of the result.
    :ivar is_direct: whether the kernel writes the result where it belongs.
    :ivar bound: the kernel for these lengths, if it can take the buffers of device arrays as they are.
    :ivar wishes: marks of the text, each with the reason why it was not obeyed; an empty one if it was.
    """

    kernel: Kernel
    layouts: tuple[ContractionLayout, ...]
    is_direct: bool
    needs_ones: bool
    wishes: tuple[tuple[IndexMark, str], ...]
    bound: BoundKernel | None = None


class UnitRunner:
    """Executes units; what is known of contractions is kept from call to call."""

    def __init__(self, request: BuildRequest, is_batched: bool) -> None:
        self.request, self.is_batched = request, is_batched
        self.launches: dict[PlannedContraction, dict[Any, ContractionLaunch]] = {}

    def run(
        self, units: Sequence[Unit], memory: CallMemory, values: Mapping[IntegerVariable, int], count: int, queue: Any
    ) -> None:
        """Execute units in order; every loop afresh."""
        for unit in units:
            if isinstance(unit, PlannedContraction):
                self._contract(unit, memory, values, count, queue)
            elif isinstance(unit, PlannedLoop):
                for value in unit.variable.values:
                    self.run(unit.body, memory, {**values, unit.variable: value}, count, queue)

    def bound(self, unit: PlannedContraction, parts: Sequence[Any], count: int) -> BoundKernel | None:
        """The kernel that buffers of device arrays were handed to as they are, if they were; of the result last."""
        launch = self._launch(unit, parts[:-1], parts[-1], count)
        return launch.bound if _begin_buffers(parts, self.request.device.context) else None

    def _has_items(self, term: TensorTerm) -> bool:
        return self.is_batched and term.root.kind != "argument"

    def _letters(self, term: TensorTerm) -> str:
        return (ITEM if self._has_items(term) else "") + term.letters

    def _contract(
        self, unit: PlannedContraction, memory: CallMemory, values: Mapping[IntegerVariable, int], count: int, queue: Any
    ) -> None:
        result = unit.result
        is_new = result.root not in memory.arrays
        if unit.alpha == 0:
            self._scale(unit, memory, values, count)
            return
        parts = [memory.part(term, values, self._has_items(term)) for term in unit.terms]
        if is_new and not (result.is_whole and unit.beta == 0):
            memory.arrays[result.root] = self._new(result, parts[0], count)
            is_new = False
        target = None if is_new else memory.part(result, values, self._has_items(result))
        launch = self._launch(unit, parts, target, count)
        if launch.bound is not None and _begin_buffers([*parts, target], self.request.device.context):
            _enqueue(launch.bound, parts, target, queue)
            return
        given = {f"a{k}": layout.apply(part) for k, (layout, part) in enumerate(zip(launch.layouts, parts, strict=False))}
        if launch.needs_ones:
            given["ones"] = ones_like(parts[0], count)
        shape = (count,) * self._has_items(result) + tuple(e.length for e in result.ranges)
        direct = launch.is_direct and target is not None
        value = launch.kernel(given, out=launch.layouts[-1].apply(target) if direct else None, queue=queue)
        if direct:
            _inherit_events(target, value)
            return
        value = launch.layouts[-1].undo(value, shape)
        if target is None:
            memory.arrays[result.root] = value
        else:
            _store_result(target, value, unit.alpha, unit.beta, queue, launch.layouts[-1])

    def _new(self, term: TensorTerm, sample: Any, count: int) -> Any:
        """An array for an alloca, with the first index of the document fastest."""
        shape = (count,) * self._has_items(term) + term.root.type.shape[::-1]
        made = new_like(sample, shape, sample.dtype)
        first = int(self._has_items(term))
        return made.transpose((*range(first), *reversed(range(first, len(shape)))))

    def _scale(
        self, unit: PlannedContraction, memory: CallMemory, values: Mapping[IntegerVariable, int], count: int
    ) -> None:
        """``result := beta result``, for nothing is read that has a factor of 0."""
        result = unit.result
        if result.root not in memory.arrays:
            memory.arrays[result.root] = self._new(result, memory.sample, count)
        target = memory.part(result, values, self._has_items(result))
        if isinstance(target, np.ndarray):
            target[...] = target * target.dtype.type(unit.beta) if unit.beta != 0 else 0
        else:
            order = order_of(target)
            zeros = new_like(target, tuple(target.shape[axis] for axis in order), target.dtype)
            fill_with_zeros(zeros, target.queue, [])
            update_strided(target.transpose(order), zeros, target.queue, 1.0, unit.beta)

    # --- what is prepared

    def _launch(self, unit: PlannedContraction, parts: Sequence[Any], target: Any, count: int) -> ContractionLaunch:
        arrays = parts if target is None else [*parts, target]
        key = tuple([(array.shape, array.strides, array.__class__) for array in arrays])
        known = self.launches.setdefault(unit, {})
        if key not in known:
            known[key] = self._prepare(unit, parts, target, count)
        return known[key]

    def _prepare(self, unit: PlannedContraction, parts: Sequence[Any], target: Any, count: int) -> ContractionLaunch:
        letters = [self._letters(term) for term in (*unit.terms, unit.result)]
        orders = [order_of(part) for part in parts]
        orders.append(self._default_order(unit.result) if target is None else order_of(target))
        ordered = ["".join(own[axis] for axis in order) for own, order in zip(letters, orders, strict=True)]
        fine = [is_contiguous(part, order) for part, order in zip(parts, orders, strict=False)]
        direct = target is None or is_contiguous(target, orders[-1])
        groups = find_groups([wish.letters for wish in unit.groups], ordered, [*fine, direct])
        alone, finish = len(unit.sources) == 1, epilogue_of_unit(unit) if direct else ""

        def stated(groups: Mapping[str, str]) -> tuple[tuple[ContractionLayout, ...], BatchedEinsum]:
            layouts = tuple(make_layout(order, own, groups) for order, own in zip(orders, ordered, strict=True))
            e = _einsum_of_unit(unit, layouts, groups)
            return layouts, e.then(finish) if finish else e

        layouts, e = stated(groups)
        kernel = self._kernel(unit, e, count)
        reason = "these indices do not lie in memory as one in every array"
        if groups and not kernel.was_measured and self._is_measured((apart := stated({}))[1]):
            (layouts, e), groups = apart, {}
            kernel = self._kernel(unit, e, count)
            reason = "the einsum was measured with these indices apart, and not as one"
        needs_ones, bound = e.n > len(parts), None
        if direct and target is not None and not isinstance(target, np.ndarray) and all(fine) and not needs_ones:
            bound = kernel.bind({x: n if isinstance(n, int) else count for x, n in e.index_sizes.items()})
        wishes = [(wish, _why_apart(wish, groups, reason)) for wish in unit.groups]
        wishes += [(wish, _why_divided(wish, kernel, alone=alone)) for wish in unit.loops]
        return ContractionLaunch(kernel, layouts, direct, needs_ones, tuple(wishes), bound)

    def _is_measured(self, e: BatchedEinsum) -> bool:
        """Whether there are records of an einsum on the device."""
        return bool(query(e, self.request.device, self.request.database))

    def _kernel(self, unit: PlannedContraction, e: BatchedEinsum, count: int) -> Kernel:
        """The kernel of a statement."""
        looped = "".join(wish.letters for wish in unit.loops) if len(unit.sources) == 1 else ""
        stage = EinsumStage(e, {f"a{k}": term for k, term in enumerate(unit.terms)})
        return stage.kernel(self.request, {INSTANCES: count, **self.request.sizes}, looped)

    def _default_order(self, term: TensorTerm) -> tuple[int, ...]:
        """The order of axes that an alloca has by its type: items first, and the document's first index last."""
        first = int(self._has_items(term))
        return (*range(first), *reversed(range(first, first + len(term.letters))))


def _why_apart(wish: IndexMark, groups: Mapping[str, str], reason: str) -> str:
    """The reason why letters are not one index of the einsum; nothing if they are."""
    if any(set(sequence) == set(wish.letters) for sequence in groups.values()):
        return ""
    return reason


def _why_divided(wish: IndexMark, kernel: Kernel, *, alone: bool) -> str:
    """Why the kernel takes several values of a letter at a time; nothing if it does not."""
    how = kernel.divides(wish.letters)
    if how is None:
        return ""
    if not alone:
        return f"{how}, in a kernel of several instructions; with route='general' each has one of its own"
    return f"{how}; no kernel that loops over it is expected to be nearly as quick"


def _einsum_of_unit(
    unit: PlannedContraction, layouts: Sequence[ContractionLayout], groups: Mapping[str, str]
) -> BatchedEinsum:
    """The einsum of a contraction for arrays of these layouts."""
    lengths: dict[str, Any] = {**unit.lengths, ITEM: INSTANCES}
    for group, sequence in groups.items():
        lengths[group] = int(np.prod([lengths[x] for x in sequence]))
    dtype = unit.result.root.type.element.dtype
    inputs = [layout.letters for layout in layouts[:-1]]
    operands = [array(f"a{k}", tuple(lengths[x] for x in letters), dtype) for k, letters in enumerate(inputs)]
    if ITEM in layouts[-1].letters and not any(ITEM in letters for letters in inputs):
        inputs.append(ITEM)
        operands.append(array("ones", (INSTANCES,), dtype))
    return einsum(f"{','.join(inputs)}->{layouts[-1].letters}", *operands)


def epilogue_of_unit(unit: PlannedContraction) -> str:
    """The epilogue of the sum ``v`` with alpha and beta; empty where that is the sum.

    >>> from types import SimpleNamespace as Some
    >>> from feinsum.languages.immediate.types import SCALARS
    >>> def of(alpha, beta, name):
    ...     result = Some(root=Some(type=Some(element=SCALARS[name])))
    ...     return epilogue_of_unit(Some(alpha=alpha, beta=beta, result=result))
    >>> of(1.0, 0.0, "f32"), of(5.0, 1.0, "f32"), of(-1.0, 0.5, "f64"), of(2.0, -3.0, "i32")
    ('', '5.0*v + out', '(-1.0)*v + 0.5*out', '2*v + (-3)*out')
    """
    is_integer = unit.result.root.type.element.is_integer

    def term(factor: float, name: str) -> str:
        number: float = int(factor) if is_integer else factor
        return name if number == 1 else f"{number!r}*{name}" if number >= 0 else f"({number!r})*{name}"

    terms = [term(unit.alpha, "v")] + ([] if unit.beta == 0 else [term(unit.beta, "out")])
    return "" if terms == ["v"] else " + ".join(terms)


def _begin_buffers(arrays: Sequence[Any], context: Any) -> bool:
    """Whether device arrays begin where their buffers do, and can be reached."""
    return all(array.offset == 0 and array.context == context for array in arrays)


def _enqueue(bound: BoundKernel, parts: Sequence[Any], target: Any, queue: Any) -> None:
    """Launch a kernel on buffers: no view is made, and nothing is checked twice."""
    events = [event for array in (*parts, target) for event in array.events]
    buffers = [array.base_data for array in (*parts, target)]
    target.add_event(bound.enqueue(queue or target.queue, buffers, events or None))


def _store_result(target: Any, value: Any, alpha: float, beta: float, queue: Any, layout: ContractionLayout) -> None:
    """``target := alpha value + beta target``."""
    if not isinstance(target, np.ndarray):
        order = layout.order or tuple(range(len(target.shape)))
        update_strided(target.transpose(order), value.transpose(order), queue or target.queue, alpha, beta)
        return
    with np.errstate(all="ignore"):
        number = target.dtype.type
        if alpha != 1:
            value = np.multiply(value, number(alpha))
        target[...] = value if beta == 0 else value + (target if beta == 1 else number(beta) * target)


def _inherit_events(target: Any, value: Any) -> None:
    """Let an array have the events of the kernel that writes a part of it; views of pyopencl share their events."""
    if not isinstance(target, np.ndarray) and target.events is not value.events:
        target.add_event(value.events[-1])
