"""Scalars, elements of memory and views, as the machine executes them."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from feinsum.languages.tensor.definitions import ARITHMETIC
from feinsum.languages.tensor.interpreting.machine import Instruction, KernelInterpreter
from feinsum.languages.tensor.interpreting.memory import ElementStorage, InterpretedGroup, InterpretedView
from feinsum.languages.tensor.ir import TensorOperation
from feinsum.languages.tensor.numbers import component, compute_scalar, dtype_of, poison, rounded
from feinsum.languages.tensor.types import Coopmatrix, TensorMemref, TensorScalar


def run_arithmetic(machine: KernelInterpreter, operation: TensorOperation) -> None:
    name, operands = operation.name.removeprefix("arith."), machine.operands(operation)
    result = operation.results[0]
    type_ = component(result.type)
    if isinstance(type_, TensorScalar) and type_.is_integer:
        whole = isinstance(result.type, Coopmatrix)
        second = operands[-1][machine.active_subgroups] if whole and len(operands[-1]) > 1 else operands[-1]
        second = second if whole else machine.of_active(second)
        if name in ("div", "rem") and (second == 0).any():
            machine.fail(operation, "run-arithmetic", "a division by 0")
        bits = 8 * type_.size_bytes
        if name in ("shl", "shr"):
            if ((second < 0) | (second >= bits)).any():
                machine.fail(operation, "run-arithmetic", f"a shift of {type_} by less than 0 or more than {bits - 1}")
            operands[1] = np.clip(operands[1], 0, bits - 1)
    machine.give(operation, compute_scalar(name, operands, result.type))


def run_comparison(machine: KernelInterpreter, operation: TensorOperation) -> None:
    name = operation.attributes["condition"]
    machine.give(operation, compute_scalar(name, machine.operands(operation), operation.results[0].type))


def run_math(machine: KernelInterpreter, operation: TensorOperation) -> None:
    name = operation.attributes["function"]
    machine.give(operation, compute_scalar(name, machine.operands(operation), operation.results[0].type))


def run_cast(machine: KernelInterpreter, operation: TensorOperation) -> None:
    (values,) = machine.operands(operation)
    machine.give(operation, rounded(values, component(operation.results[0].type)))


def run_constant(machine: KernelInterpreter, operation: TensorOperation) -> None:
    type_, value = operation.results[0].type, operation.attributes["value"]
    scalar = component(type_)
    if isinstance(scalar, TensorScalar) and scalar.is_integer:
        number = np.array(value).astype(dtype_of(scalar))
    else:
        number = rounded(value, scalar)
    if isinstance(type_, Coopmatrix):
        number = np.broadcast_to(number, (1, *type_.shape))
    machine.give(operation, number)


def run_builtin(machine: KernelInterpreter, operation: TensorOperation) -> None:
    items = np.arange(machine.work_items)
    values: dict[str, Any] = {
        "group_id": machine.instance,
        "group_size": machine.count,
        "num_subgroups": machine.subgroups,
        "subgroup_size": machine.subgroup_size,
        "subgroup_id": items // machine.subgroup_size,
        "subgroup_local_id": items % machine.subgroup_size,
    }
    name = operation.attributes["builtin"]
    machine.give(operation, rounded(values[name], component(operation.results[0].type)))


def run_alloca(machine: KernelInterpreter, operation: TensorOperation) -> None:
    type_ = operation.results[0].type
    assert isinstance(type_, TensorMemref)
    shape = [size or 0 for size in type_.shape]
    strides = [stride or 0 for stride in type_.strides]
    length = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
    memory = ElementStorage.of_size(type_.element, length)
    machine.give(operation, InterpretedView(memory, 0, tuple(shape), tuple(strides), 0, length))


def run_lifetime_stop(machine: KernelInterpreter, operation: TensorOperation) -> None:
    memory = machine.operands(operation)[0].memory
    memory.data[...] = poison(memory.element, memory.data.shape)


def run_load(machine: KernelInterpreter, operation: TensorOperation) -> None:
    source, *indices = machine.operands(operation)
    if isinstance(source, InterpretedGroup):
        machine.give(operation, source.pick(np.asarray(indices[0]), machine.active))
        return
    places = source.positions(indices, machine.active)
    data = source.memory.data
    machine.give(operation, data[places] if data.size else np.zeros(places.shape, data.dtype))


def run_store(machine: KernelInterpreter, operation: TensorOperation) -> None:
    """Store an element: in a collective region one work-item stores, but each adds."""
    value, target, *indices = machine.operands(operation)
    places = target.positions(indices, machine.active)[machine.active]
    values = machine.of_active(value)
    memory = target.memory
    if operation.attributes["atomic"] == "atomic_add":
        times = machine.work_items if machine.collective else 1
        add_one_by_one(memory, np.tile(places, times), np.tile(values, times))
    else:
        memory.data[places] = values


def add_one_by_one(memory: ElementStorage, places: Any, values: Any) -> None:
    """Add values to elements, rounding every time."""
    with np.errstate(all="ignore"):
        for place, value in zip(places.reshape(-1), values.reshape(-1), strict=True):
            memory.data[place] = rounded(memory.data[place] + value, memory.element)


def run_size(machine: KernelInterpreter, operation: TensorOperation) -> None:
    (source,) = machine.operands(operation)
    size = source.size if isinstance(source, InterpretedGroup) else source.shape[operation.attributes["mode"]]
    machine.give(operation, np.asarray(size, np.int64))


def run_subview(machine: KernelInterpreter, operation: TensorOperation) -> None:
    view, *dynamic = machine.operands(operation)
    left = iter(dynamic)
    place, shape, strides = view.offset, [], []
    bounds = zip(operation.attributes["offsets"], operation.attributes["sizes"], view.strides, strict=True)
    for mode, (offset, size, stride) in enumerate(bounds):
        given = size
        offset = next(left) if offset is None else offset
        size = next(left) if size is None else size
        if (machine.of_active(offset) < 0).any():
            machine.fail(operation, "run-view", f"mode {mode} has the offset {machine.of_active(offset).min()}")
        if given is None and (machine.of_active(size) <= 0).any():
            machine.fail(operation, "run-view", f"mode {mode} has the size {machine.of_active(size).min()}")
        place = place + offset * stride
        if given != 0:
            shape.append(size)
            strides.append(stride)
    machine.give(operation, InterpretedView(view.memory, place, tuple(shape), tuple(strides), view.first, view.end))


def run_expand(machine: KernelInterpreter, operation: TensorOperation) -> None:
    view, *dynamic = machine.operands(operation)
    mode, left = operation.attributes["mode"], iter(dynamic)
    sizes = [next(left) if size is None else size for size in operation.attributes["shape"]]
    wrong = machine.of_active(prod(sizes)) != machine.of_active(view.shape[mode])
    if wrong.any():
        made, size = machine.of_active(prod(sizes))[wrong][0], machine.of_active(view.shape[mode])[wrong][0]
        machine.fail(operation, "run-view", f"the sizes multiply to {made}, and mode {mode} has the size {size}")
    strides = [view.strides[mode] * prod(sizes[:number]) for number in range(len(sizes))]
    shape = (*view.shape[:mode], *sizes, *view.shape[mode + 1 :])
    steps = (*view.strides[:mode], *strides, *view.strides[mode + 1 :])
    machine.give(operation, InterpretedView(view.memory, view.offset, shape, steps, view.first, view.end))


def run_fuse(machine: KernelInterpreter, operation: TensorOperation) -> None:
    (view,) = machine.operands(operation)
    first, last = operation.attributes["first"], operation.attributes["last"]
    for mode in range(first, last):
        end, step = machine.of_active(view.strides[mode] * view.shape[mode]), machine.of_active(view.strides[mode + 1])
        if (wrong := end != step).any():
            message = f"mode {mode} ends at {end[wrong][0]}, and mode {mode + 1} steps by {step[wrong][0]}"
            machine.fail(operation, "run-view", message)
    shape = (*view.shape[:first], prod(view.shape[first : last + 1]), *view.shape[last + 1 :])
    strides = (*view.strides[: first + 1], *view.strides[last + 1 :])
    machine.give(operation, InterpretedView(view.memory, view.offset, shape, strides, view.first, view.end))


INSTRUCTIONS: Final[dict[str, Instruction]] = {
    **dict.fromkeys(ARITHMETIC, run_arithmetic),
    "cmp": run_comparison,
    "math": run_math,
    "cast": run_cast,
    "constant": run_constant,
    "builtin": run_builtin,
    "alloca": run_alloca,
    "lifetime_stop": run_lifetime_stop,
    "load": run_load,
    "store": run_store,
    "size": run_size,
    "subview": run_subview,
    "expand": run_expand,
    "fuse": run_fuse,
}
