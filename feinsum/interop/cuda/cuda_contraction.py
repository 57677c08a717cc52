"""Contractions of CUDA arrays: each step of a plan is a kernel's launch, results in between are the library's arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from feinsum.contract.contraction_operands import STAND_INS, Operands
from feinsum.contract.evaluate import How, Recipe, check_result_type, in_steps, prepare_steps, recipe_for
from feinsum.contract.evaluation import Evaluation
from feinsum.contract.prepared_steps import OperandLayout, PreparedStep, Results
from feinsum.contract.step_choice import StepChoice, kernel_seconds
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.errors import ShapeError, ValidationError
from feinsum.interop.cuda.cuda_adapter import check_cuda_device, launcher_of, opencl_device, overlap, take_array
from feinsum.interop.cuda.holders import Holder
from feinsum.interop.cuda.launching import BoundLaunches
from feinsum.interop.cuda.quick import QuickCall, QuickCalls, QuickStep
from feinsum.kernel.array_adapter import Copied, array_label, is_number


@dataclass(frozen=True)
class ArrayLayout:
    """The part of an array that plans depend on: its layout in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    @property
    def flags(self) -> Any:
        """As of numpy."""
        return SimpleNamespace(
            c_contiguous=self.strides == _dense(self.shape, self.dtype),
            f_contiguous=self.strides[::-1] == _dense(self.shape[::-1], self.dtype),
        )


def _dense(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    strides, step = [], dtype.itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Planned:
    """A contraction of CUDA arrays of certain shapes, types and layouts.

    :ivar evaluation: the same for explanations and for the tuner.
    """

    recipe: Recipe
    steps: tuple[tuple[PreparedStep, BoundLaunches], ...]
    evaluation: Evaluation


def contract_on_cuda(
    text: str,
    how: How,
    inputs: Mapping[int, Any],
    out: Any,
    held: Holder,
    number: int,
    known: dict[Any, Any],
    *,
    at_once: bool = False,
) -> tuple[Any, list[Copied], tuple[Evaluation, tuple[Any, ...]], QuickCalls]:
    """The result, what was copied, how operands of which shapes and types were contracted, and the quick way for like ones.

    To be called with the device and the stream current.

    :param known: what was planned for the same equation so far.
    :param at_once: whether to try the quick way, which the caller has not tried.
    """
    quick: QuickCalls = known.setdefault("quick", QuickCalls())
    last = known.get("last")
    if at_once and last is not None and (found := quick(list(inputs.values()), out)) is not None:
        return found, [], last, quick
    copied: list[Copied] = []
    values = _operand_arrays(inputs, held, number, copied)
    kinds = [(tuple(value.shape), held.strides(value), held.numbers(value)) for value in values]
    wanted = None if out is None else ArrayLayout(tuple(out.shape), held.numbers(out), held.strides(out))
    key = (held.name, number, wanted, *kinds)
    planned: Planned | None = known.get(key)
    if planned is None:
        views = [ArrayLayout(shape, dtype, strides) for shape, strides, dtype in kinds]
        planned = _plan_contraction(text, how, views, wanted, number)
        known[key] = planned
    result = _run_planned(planned, values, out, held, number, copied)
    last = known["last"] = planned.evaluation, tuple((shape, dtype) for shape, _, dtype in kinds)
    if not copied:
        _remember(quick, planned, list(inputs.values()), out, held, number)
    return result, copied, last, quick


def _remember(quick: QuickCalls, planned: Planned, given: Sequence[Any], out: Any, held: Holder, number: int) -> None:
    """Let contractions like this one be quick, if it takes all its operands where they are and writes to what is given."""
    recipe, n = planned.recipe, len(given)
    if recipe.types.result != recipe.einsums[-1][0].dtype or any(bound.empty for _, bound in planned.steps):
        return
    if not all(map(held.is_array, given)) or (out is not None and not _is_direct(recipe, out, given, held)):
        return
    wanted = [] if out is None else [out]
    needed = [1] * (n + len(wanted))
    for task, bound in planned.steps:
        for slot, alignment in zip(task.slots, bound.alignments, strict=False):
            if slot < n:
                needed[slot] = max(needed[slot], alignment)
    if wanted:
        needed[-1] = planned.steps[-1][1].alignments[-1]
    steps = [_quick_step(planned, position, n, wanted, held, number) for position in range(len(planned.steps))]
    turn = tuple(reversed(range(len(recipe.plan.shape))))
    finish = (lambda made: held.permuted(made[0], turn)) if recipe.backwards else None
    quick.add(QuickCall(held, number, given, wanted, needed, steps, finish), given, out)


def _quick_step(planned: Planned, position: int, n: int, wanted: Sequence[Any], held: Holder, number: int) -> QuickStep:
    """A step of a quick call of `n` operands, after which come the pointers of the results `wanted`, if given."""
    task, bound = planned.steps[position]
    last = position == len(planned.steps) - 1
    slots = [slot if slot < n else slot + len(wanted) for slot in task.slots]
    made: tuple[Callable[[], Any], ...] = ()
    if last and wanted:
        slots.append(n)
    else:
        shape = tuple(planned.recipe.plan.shape if last else task.step.shape)
        made = (held.maker(shape, task.e.dtype, number),)
    scratch = tuple(held.maker((size,), np.dtype(np.uint8), number) for size in bound.scratch_bytes)
    in_order = len(planned.steps) == 1 and slots == list(range(n + len(wanted)))
    return QuickStep(None if in_order else tuple(slots), made, scratch, bound)


def _operand_arrays(inputs: Mapping[int, Any], held: Holder, number: int, copied: list[Copied]) -> list[Any]:
    """The operands as arrays whose memory is what it says, numbers among them on the device."""
    values = []
    for key, value in inputs.items():
        if is_number(value) and not hasattr(value, "shape"):
            values.append(held.number(value, np.asarray(value).dtype, number))
            continue
        if isinstance(value, (np.ndarray, np.generic)):
            values.append(held.number(value.item(), value.dtype, number))
            continue
        plain, why = held.plain(array_label(key), value)
        if why:
            copied.append(Copied(array_label(key), why, int(value.nbytes)))
        values.append(plain)
    return values


def _plan_contraction(text: str, how: How, views: Sequence[ArrayLayout], out: ArrayLayout | None, number: int) -> Planned:
    operands = Operands(tuple(views), "cuda")
    recipe = recipe_for(text, operands, how, out)
    device = opencl_device(number) if how.device is None else choose_device(how.device)
    check_cuda_device(device, number)
    alternative = in_steps(text, operands, how, out, recipe)
    if alternative is not None and _contraction_seconds(alternative, how, device) < _contraction_seconds(
        recipe, how, device, margin=True
    ):
        recipe = alternative
    if out is not None:
        if out.shape != recipe.shape:
            raise ShapeError(f"out has shape {out.shape} but the result has {recipe.shape}")
        check_result_type(out.dtype, recipe, how.casting)
        if not out.flags.c_contiguous and not out.flags.f_contiguous:
            raise ValidationError("out is not contiguous; pass a contiguous array")
    chosen = [StepChoice(None) for _ in recipe.einsums]
    tasks = prepare_steps(recipe, chosen, how, device, on_host=True, constants=frozenset())
    steps = []
    for task in tasks:
        if task.kernel is None:
            raise AssertionError("a step on a CUDA device is done by a kernel")
        steps.append((task, launcher_of(task.kernel).bind(task.step.lengths, number)))
    layouts = [
        OperandLayout(dtype, order, view.dtype != dtype or _strided_view(view, order), False)
        for view, dtype, order in zip(views, recipe.types.operands, recipe.orders, strict=True)
    ]
    results = Results(recipe.plan.shape, recipe.backwards, recipe.types.result, recipe.einsums[-1][0].dtype)
    return Planned(recipe, tuple(steps), Evaluation(tasks, layouts, results, True, device))


def _contraction_seconds(recipe: Recipe, how: How, device: Device, *, margin: bool = False) -> float:
    """The time that all steps are expected to take; infinite if a time is unknown.

    :param margin: whether guesses are taken to be as wrong as they may be: one kernel for all has to be worth it.
    """
    times = [
        kernel_seconds(e, sizes, step.lengths, device, how.database, margin=margin)
        for step, (e, sizes) in zip(recipe.plan.steps, recipe.einsums, strict=True)
        if 0 not in step.lengths.values()
    ]
    return sum(math.inf if one is None else one for one in times)


def _strided_view(view: ArrayLayout, order: tuple[int, ...]) -> bool:
    shape, strides = (tuple(one[axis] for axis in order) for one in (view.shape, view.strides))
    return strides != _dense(shape, view.dtype)


def _run_planned(planned: Planned, given: Sequence[Any], out: Any, held: Holder, number: int, copied: list[Copied]) -> Any:
    recipe, n = planned.recipe, len(given)
    values = _typed_operands(recipe, given, held, copied)
    target = out if out is not None and _is_direct(recipe, out, values, held) else None
    for position, (task, bound) in enumerate(planned.steps):
        taken = [take_array(values[slot], n, held) for slot, n in zip(task.slots, bound.alignments, strict=False)]
        for slot, found in zip(task.slots, taken, strict=True):
            if found is not values[slot] and slot < n:
                copied.append(Copied(array_label(slot), "is strided, or not aligned for vector access", int(found.nbytes)))
        last = position == len(planned.steps) - 1
        result = target if last and target is not None else held.empty(tuple(task.step.shape), task.e.dtype, number)
        _launch_bound(bound, taken, result, held, number)
        values.append(result)
        for slot in task.slots:
            values[slot] = None  # its memory may be taken again, by what comes later on the stream
    if target is not None:
        return out
    found = values[-1].reshape(tuple(recipe.plan.shape))
    if recipe.backwards:
        found = held.permuted(found, _backwards(found))
    if recipe.types.result != recipe.einsums[-1][0].dtype:
        found = held.contiguous(found, recipe.types.result)
    if out is None:
        return found
    out[...] = found
    return out


def _typed_operands(recipe: Recipe, given: Sequence[Any], held: Holder, copied: list[Copied]) -> list[Any]:
    """The operands in the types to compute in, with their axes as they lie in memory."""
    values: list[Any] = []
    for k, (value, dtype, order) in enumerate(zip(given, recipe.types.operands, recipe.orders, strict=True)):
        turned = value if order == tuple(range(len(order))) else held.permuted(value, order)
        if held.numbers(value) in STAND_INS and recipe.types.result.kind == "b":
            turned = held.contiguous(turned, np.dtype(bool))
        found = turned if held.numbers(turned) == dtype else held.contiguous(turned, dtype)
        values.append(found)
        if found is not turned:
            copied.append(Copied(array_label(k), f"is converted to {dtype}", int(found.nbytes)))
    return values


def _is_direct(recipe: Recipe, out: Any, values: Sequence[Any], held: Holder) -> bool:
    """Whether the last step may write to `out`: it is of its type, contiguous, and no operand is there."""
    if not held.numbers(out) == recipe.einsums[-1][0].dtype == recipe.types.result:
        return False
    turned = held.permuted(out, _backwards(out)) if recipe.backwards else out
    return held.contiguous(turned) is turned and not any(overlap(value, out, held) for value in values)


def _backwards(value: Any) -> tuple[int, ...]:
    return tuple(reversed(range(len(value.shape))))


def _launch_bound(bound: BoundLaunches, taken: Sequence[Any], result: Any, held: Holder, number: int) -> None:
    if bound.empty:
        held.zero(result)
        return
    scratch = [held.empty((size,), np.dtype(np.uint8), number) for size in bound.scratch_bytes]
    bound.enqueue([held.pointer(one) for one in (*taken, result, *scratch)], held.stream(number))
