"""The kernel of a function on a device, by the general route: lowered, emitted, built, and called with arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from feinsum.compile.placed import Placed, place_arrays
from feinsum.compile.sequence import queue_and_events
from feinsum.compile.text_kernel import Launcher, new_bytes, new_table, new_words, read_words
from feinsum.devices import Device
from feinsum.errors import DeviceError, ValidationError
from feinsum.languages.calling.protocols import ProgramCall
from feinsum.languages.calling.signature import BoundArgument
from feinsum.languages.diagnostics import broken_rule
from feinsum.languages.source import SourceText
from feinsum.languages.tensor.arguments import indexed_by_group, instance_count, signature
from feinsum.languages.tensor.emitting import Emitted, Slot, emit
from feinsum.languages.tensor.ir import TensorFunction, TensorValue
from feinsum.languages.tensor.lowering import lower_function, stages
from feinsum.languages.tensor.lowering.target import Target, choose_target, result_shape
from feinsum.languages.tensor.numbers import dtype_of
from feinsum.languages.tensor.printing import show_function
from feinsum.languages.tensor.running.arguments import layouts
from feinsum.languages.tensor.types import Boolean, PointerGroup, TensorMemref, TensorScalar

_GROUPS_PER_UNIT = 16
"""Work-groups of one work-item that a core gets, so that none waits long for another."""
_SMALL_ENTRIES, _SMALL_TOGETHER, _MANY_GROUPS_PER_UNIT = 128, 4, 64
"""Entries of results up to which a work-group of several work-items takes so many instances one after the other, and groups
of a compute unit that have to be left.  Products of 4x4 took half of the time so on an H200 on 2026-11-24, of 8x8 0.8 to
0.95; larger ones were slower."""


@dataclass
class _PreparedCall:
    """The facts found by an earlier call."""

    bound: list[BoundArgument[TensorValue]]
    count: int
    placed: dict[TensorValue, tuple[Placed, list[int]]] = field(default_factory=dict)


class GeneralKernel:
    """A function on a device.

    :ivar function: what it computes.
    :ivar target: how it is spread over work-items.
    :ivar emitted: the OpenCL C kernel.
    :ivar why: why it does not go the einsum route; empty if that was not asked for.
    :ivar copied: what the last call copied, and why.
    """

    route = "general"

    def __init__(
        self,
        function: TensorFunction,
        source: SourceText,
        device: Device,
        check: bool = False,
        target: Target | None = None,
        why: str = "",
    ) -> None:
        self.function, self.text, self.device, self.why = function, source, device, why
        self.target = choose_target(function, device.profile) if target is None else target
        # some local memory is left to what work-items tell each other
        most = max(device.profile.static_local_memory_bytes, device.profile.local_memory_bytes) - (4 << 10)
        self.emitted: Emitted = emit(lower_function(function, self.target), self.target, check, most)
        _check_device(function, self.emitted, device)
        self._signature, self._take = signature(function), layouts(function)
        self.copied: tuple[str, ...] = ()
        self._counted = indexed_by_group(function)
        entries = [rows * columns for rows, columns in result_shape(function)]
        self._is_small = bool(entries) and max(entries) <= _SMALL_ENTRIES
        dtypes = [_slot_dtype(slot) for slot in self.emitted.slots]
        trusted = not (device.profile.broken_barriers and self.emitted.meets_in_branch)
        self._launcher = Launcher(device, self.emitted.source, self.emitted.name, dtypes, optimised=trusted)

    @property
    def source(self) -> str:
        """The OpenCL C source."""
        return self.emitted.source

    def ir(self, name: str | None = None) -> str:
        """The function behind a pass, by default the last, as text."""
        found = dict(stages(self.function, self.target))
        if name is not None and name not in found:
            raise ValidationError(f"there is no pass {name!r}; there are {', '.join(found)}")
        return show_function(found[name] if name is not None else list(found.values())[-1])

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of sub-groups and work-groups, as :meth:`feinsum.Program.interpret` takes them."""
        return {"subgroup_size": self.target.subgroup_size, "work_group_size": self.target.work_group_size}

    def explain(self) -> str:
        """How it is spread over work-items, and what the last call copied."""
        target = self.target
        spread = (
            "one work-item"
            if target.is_alone
            else (f"{target.work_items} work-items in {target.subgroups} sub-groups of {target.subgroup_size}")
        )
        lines = [f"@{self.function.name} on {self.device.id}, by the general route", f"an instance is computed by {spread}"]
        lines += [f"products on matrix units: {', '.join(self.emitted.units)}"] if self.emitted.units else []
        lines += [f"route: general, as {self.why}"] if self.why else []
        lines += [f"copied: {what}" for what in self.copied]
        return "\n".join(lines)

    def call(self, call: ProgramCall) -> Any:
        """Run it; the arrays that were written."""
        bound = self._signature.bind(call.arguments, self._take)
        this = _PreparedCall(bound, instance_count(self.function, bound, self._counted, call.instances))
        queue, events = queue_and_events(self.device, call.queue, call.wait_for)
        for one in bound:
            if isinstance(one.parameter.type, (TensorMemref, PointerGroup)):
                strides, fits = [layout.strides for layout in one.value], all(layout.fits for layout in one.value)
                this.placed[one.parameter] = place_arrays(one.arrays, strides, fits, queue, one.is_written, one.name)
        placed = {parameter: found for parameter, (found, _) in this.placed.items()}
        self.copied = tuple(f"%{p.name} {found.copied}" for p, found in placed.items() if found.copied)
        if this.count:
            self._run(this, queue, [*events, *(event for found in placed.values() for event in found.events)])
        return self._signature.written_among(call.arguments)

    def _run(self, call: _PreparedCall, queue: Any, events: Sequence[Any]) -> None:
        chunk = self.chunk(call.count)
        keep: list[Any] = []
        arguments = [self._argument(slot, call, queue, chunk, keep) for slot in self.emitted.slots]
        groups = -(-call.count // chunk)
        done = self._launcher.enqueue(queue, arguments, groups, self.target.work_items, events)
        for one in call.bound:
            if one.is_written:
                call.placed[one.parameter][0].deliver(queue, done)
        if self.emitted.spans:
            self._check_fault(queue, arguments[-1])
        if any(found.memory is not None for found, _ in call.placed.values()):
            done.wait()

    def chunk(self, count: int) -> int:
        """How many instances a work-group takes: of small ones several, if that leaves enough groups."""
        units = self.device.profile.compute_units
        if self.target.is_alone or any(slot.kind == "spill" for slot in self.emitted.slots):
            return max(-(-count // (_GROUPS_PER_UNIT * units)), 1)
        return min(_SMALL_TOGETHER, max(count // (_MANY_GROUPS_PER_UNIT * units), 1)) if self._is_small else 1

    def _argument(self, slot: Slot, call: _PreparedCall, queue: Any, chunk: int, keep: list[Any]) -> Any:
        """The argument of the kernel for a slot."""
        match slot.kind:
            case "count":
                return np.int64(call.count)
            case "chunk":
                return np.int64(chunk)
            case "spill":
                keep.append(new_bytes(queue, slot.mode * -(-call.count // chunk)))
                return keep[-1]
            case "fault":
                return new_words(queue, 1)
        parameter = slot.parameter
        assert parameter is not None
        (one,) = (one for one in call.bound if one.parameter is parameter)
        if slot.kind == "number":
            assert isinstance(parameter.type, (TensorScalar, Boolean))
            return _as_number(one.value, parameter.type, slot.mode)
        found, begins = call.placed[parameter]
        match slot.kind:
            case "buffer":
                if isinstance(parameter.type, TensorMemref) and begins != [0]:
                    raise ValidationError(f"{one.name} begins where no kernel can: pass a copy of it")
                return found.buffer
            case "size":
                return np.int64(one.arrays[0].shape[slot.mode])
            case "stride":
                return np.int64(one.value[0].strides[slot.mode])
            case "group size":
                return np.int64(len(one.arrays))
            case "offsets":
                table = begins
            case "sizes":
                table = [array.shape[slot.mode] for array in one.arrays]
            case _:
                table = [layout.strides[slot.mode] for layout in one.value]
        keep.append(new_table(queue, table))
        return keep[-1]

    def _check_fault(self, queue: Any, fault: Any) -> None:
        """Raise what the first work-item reported that left its bounds.

        :raises LanguageError: at the line.
        """
        (number,) = read_words(queue, fault, 1)
        if number:
            raise broken_rule(self.text, "run-bounds", self.emitted.spans[number - 1], "an index is out of bounds here")


def _slot_dtype(slot: Slot) -> Any:
    """The type of a number that the kernel gets; None for a buffer."""
    if slot.kind in ("buffer", "offsets", "sizes", "strides", "spill", "fault"):
        return None
    if slot.kind != "number":
        return np.dtype(np.int64)
    assert slot.parameter is not None
    type_ = slot.parameter.type
    assert isinstance(type_, (TensorScalar, Boolean))
    return np.asarray(_as_number(np.zeros((), dtype_of(type_)), type_, 0)).dtype


def _as_number(value: Any, type_: TensorScalar | Boolean, part: int) -> Any:
    if isinstance(type_, Boolean):
        return np.int32(value)
    if type_.is_complex:
        return (value.imag if part else value.real)[()]
    if type_.is_floating and type_.size_bytes == 2:
        return np.float32(value)
    return value[()]


def _check_device(function: TensorFunction, emitted: Emitted, device: Device) -> None:
    profile = device.profile
    if emitted.needs_double and not profile.fp64:
        raise DeviceError(f"@{function.name} computes in double precision, which {profile.name} does not")
    if emitted.needs_wide_atomics and "cl_khr_int64_base_atomics" not in profile.extensions:
        raise DeviceError(
            f"@{function.name} adds atomically to numbers of 64 bits, for which {profile.name} has no instruction: "
            "use a type of 32 bits"
        )
