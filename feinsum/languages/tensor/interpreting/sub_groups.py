"""Cooperative matrices, an array for each sub-group, and what the work-items of a sub-group do together."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from feinsum.languages.tensor.interpreting.machine import Instruction, KernelInterpreter
from feinsum.languages.tensor.interpreting.memory import InterpretedView
from feinsum.languages.tensor.interpreting.scalars import add_one_by_one
from feinsum.languages.tensor.ir import TensorOperation
from feinsum.languages.tensor.numbers import Numbers, accumulation_type, component, compute_scalar, extreme, rounded
from feinsum.languages.tensor.types import Coopmatrix, TensorScalar


def _component_places(
    machine: KernelInterpreter,
    operation: TensorOperation,
    view: InterpretedView,
    position: list[Any],
    shape: tuple[int, int],
) -> Any:
    """Where the components of a matrix lie, an array for each sub-group, and which of them are there to be used."""
    shared = [machine.of_subgroups(operation, bound, what) for bound, what in zip(position, ("x", "y"), strict=True)]
    rows, columns = np.indices(shape)
    turned = operation.attributes.get("transposes") == ("t",)
    first = shared[0][:, None, None] + (columns if turned else rows)
    second = shared[1][:, None, None] + (rows if turned else columns)
    along_rows, along_columns = ((second, 1), (first, 0)) if turned else ((first, 0), (second, 1))
    view = _of_subgroups(machine, operation, view)
    used = np.broadcast_to(machine.active_subgroups[:, None, None], first.shape).copy()
    checked = operation.attributes["checked"]
    for index, mode in [along_rows] * (checked in ("rows_checked", "both_checked")) + [along_columns] * (
        checked in ("cols_checked", "both_checked")
    ):
        used &= (index >= 0) & (index < view.shape[mode])
    return view.positions([first, second], used), used


def _of_subgroups(machine: KernelInterpreter, operation: TensorOperation, view: InterpretedView) -> InterpretedView:
    """A view whose offset and sizes have an entry for each sub-group."""

    def shared(bound: Any) -> Any:
        if np.ndim(bound) == 0:
            return bound
        return machine.of_subgroups(operation, bound, "the memref")[:, None, None]

    return InterpretedView(
        view.memory,
        shared(view.offset),
        tuple(map(shared, view.shape)),
        tuple(map(shared, view.strides)),
        shared(view.first),
        shared(view.end),
    )


def run_matrix_load(machine: KernelInterpreter, operation: TensorOperation) -> None:
    view, *position = machine.operands(operation)
    type_ = operation.results[0].type
    assert isinstance(type_, Coopmatrix)
    places, used = _component_places(machine, operation, view, position, type_.shape)
    data = view.memory.data
    loaded = data[places] if data.size else np.zeros(places.shape, data.dtype)
    machine.give(operation, np.where(used, loaded, np.zeros((), data.dtype)))


def run_matrix_store(machine: KernelInterpreter, operation: TensorOperation) -> None:
    matrix, view, *position = machine.operands(operation)
    type_ = operation.operands[0].type
    assert isinstance(type_, Coopmatrix)
    places, used = _component_places(machine, operation, view, position, type_.shape)
    values = np.broadcast_to(matrix, places.shape)[used]
    if operation.attributes["atomic"] == "atomic_add":
        add_one_by_one(view.memory, places[used], values)
    else:
        view.memory.data[places[used]] = values


def run_product(machine: KernelInterpreter, operation: TensorOperation) -> None:
    a, b, c = machine.operands(operation)
    sum_type = component(operation.operands[2].type)
    assert isinstance(sum_type, TensorScalar)
    dtype = accumulation_type(sum_type)
    with np.errstate(all="ignore"):
        total = rounded(a.astype(dtype) @ b.astype(dtype) + c.astype(dtype), sum_type)
        machine.give(operation, rounded(total, component(operation.results[0].type)))


def run_scale(machine: KernelInterpreter, operation: TensorOperation) -> None:
    scalar, matrix = machine.operands(operation)
    factor = machine.of_subgroups(operation, scalar, "the factor")[:, None, None]
    machine.give(operation, compute_scalar("mul", [factor, matrix], operation.results[0].type))


def run_broadcast(machine: KernelInterpreter, operation: TensorOperation) -> None:
    value, item = machine.operands(operation)
    chosen = machine.of_subgroups(operation, item, "the work-item")
    wrong = machine.active_subgroups & ((chosen < 0) | (chosen >= machine.subgroup_size))
    if wrong.any():
        machine.fail(operation, "run-bounds", f"there is no work-item {chosen[wrong][0]} in {machine.subgroup_size}")
    spread = np.broadcast_to(value, machine.active.shape).reshape(machine.subgroups, -1)
    found = spread[np.arange(machine.subgroups), np.clip(chosen, 0, machine.subgroup_size - 1)]
    machine.give(operation, np.repeat(found, machine.subgroup_size))


def run_scan(machine: KernelInterpreter, operation: TensorOperation) -> None:
    """Run a scan; work-items that do not take part contribute the identity."""
    (value,) = machine.operands(operation)
    name, type_ = operation.name.removeprefix("subgroup_"), component(operation.results[0].type)
    assert isinstance(type_, TensorScalar)
    identity = rounded(0 if name == "add" else extreme(type_, largest=name == "min"), type_)
    active = machine.active.reshape(machine.subgroups, -1)
    inputs = np.where(active, np.broadcast_to(value, machine.active.shape).reshape(active.shape), identity)
    sums: list[Numbers] = [np.broadcast_to(identity, machine.subgroups)]
    for item in range(machine.subgroup_size):
        first = item == 0
        sums.append(inputs[:, 0] if first else compute_scalar(name, [sums[-1], inputs[:, item]], type_))
    scan = operation.attributes["scan"]
    if scan == "reduce":
        outputs = np.repeat(sums[-1][:, None], machine.subgroup_size, axis=1)
    else:
        outputs = np.stack(sums[1:] if scan == "inclusive_scan" else sums[:-1], axis=1)
    machine.give(operation, outputs.reshape(-1))


INSTRUCTIONS: Final[dict[str, Instruction]] = {
    "cooperative_matrix_load": run_matrix_load,
    "cooperative_matrix_store": run_matrix_store,
    "cooperative_matrix_mul_add": run_product,
    "cooperative_matrix_scale": run_scale,
    "subgroup_broadcast": run_broadcast,
    **dict.fromkeys(("subgroup_add", "subgroup_max", "subgroup_min"), run_scan),
}
