"""The evaluation of a contraction of arrays: planned once for equation, shapes, types and layouts, then run.

Each step is an einsum for :func:`feinsum.generate`, or a product for numpy's BLAS where that is faster; intermediate
results stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from feinsum.compile.buffers import Room
from feinsum.compile.host_buffers import computes_in_host_memory, new_array
from feinsum.compile.shortage import new_device_buffer
from feinsum.contract.contraction_operands import (
    CASTINGS,
    STAND_INS,
    ContractionTypes,
    Operands,
    choose_types,
    contiguous_order,
)
from feinsum.contract.contraction_plan import ContractionPlan, PlannedStep, Shape, make_plan, split_strategy
from feinsum.contract.evaluation import Evaluation
from feinsum.contract.prepared_steps import OperandLayout, PreparedStep, Results
from feinsum.contract.step_choice import FEW_AXES, StepChoice, choose_kernel_or_library, measured_times, step_name
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.devices.matmul_rates import DTYPES as PRODUCT_DTYPES
from feinsum.einsum import Array, BatchedEinsum, einsum
from feinsum.errors import ArgumentError, DTypeError, ShapeError, SubscriptError, ValidationError
from feinsum.generate.many_kernels import generate_all
from feinsum.interrupts import load_module

_COMPILED_IN_UP_TO = 64
"""Axes up to this long may have their lengths compiled into a kernel."""
_WORTH_COMPILING = 1 << 20
"""Multiplications of a step from which a kernel is made for its lengths; below, one kernel serves all lengths."""
_WORTH_A_KERNEL = 1 << 24
"""Multiplications from which a kernel has at most one long axis among indices that spaces treat as one."""
_WORTH_ASKING_BYTES = 1 << 30
"""Arrays of this size may not fit, so the system is asked for their memory first."""
_EXPECTED_POINTS, _EXPECTED_BITS = 1 << 20, 5
"""Long axes are expected to be 2⁵ long at least, shorter where an array or the loop nest would have more than 2²⁰ points;
so small arrays of all shapes share a kernel."""


def is_positive_seconds(seconds: Any) -> bool:
    """Whether a value is a positive, finite number of seconds."""
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < math.inf


@dataclass(frozen=True)
class How:
    """The keywords of :func:`feinsum.contract`, checked.

    :raises ValidationError: if `order`, `casting` or `tune` has no valid value.
    :raises DTypeError: if `dtype` is no data type.
    """

    dtype: Any
    order: str
    casting: str
    optimize: Any
    device: Any
    database: Any
    library: bool = True
    backend: str = "auto"
    tune: str | float = "never"

    def __post_init__(self) -> None:
        seconds = self.tune
        if seconds not in ("never", "missing") and not is_positive_seconds(seconds):
            raise ValidationError(f"tune is {seconds!r}; it is 'never', 'missing' or a number of seconds")
        order = "K" if self.order is None else self.order
        if not isinstance(order, str) or order.upper() not in ("C", "F", "A", "K"):
            raise ValidationError(f"order is {order!r}; it is 'C', 'F', 'A' or 'K'")
        if self.casting not in CASTINGS:
            raise ValidationError(f"casting is {self.casting!r}; it is one of {', '.join(CASTINGS)}")
        try:
            dtype = None if self.dtype is None else np.dtype(self.dtype)
        except (TypeError, ValueError) as error:
            raise DTypeError(f"dtype is {self.dtype!r}, which is no data type: {error}") from None
        object.__setattr__(self, "order", order.upper())
        object.__setattr__(self, "dtype", dtype)


@dataclass(frozen=True)
class Recipe:
    """The facts about a contraction that follow from shapes, types and layouts alone.

    :ivar einsums: the einsum of each step, and the lengths expected of its long axes.
    :ivar orders: the order in which the axes of each operand are taken, so that it need not be copied.
    :ivar backwards: whether the plan takes the axes of the result from the last to the first, for Fortran order.
    """

    plan: ContractionPlan
    types: ContractionTypes
    einsums: tuple[tuple[BatchedEinsum, Mapping[str, int]], ...] = field(repr=False)
    orders: tuple[tuple[int, ...], ...]
    backwards: bool

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return self.plan.shape[::-1] if self.backwards else self.plan.shape


def recipe_for(text: str, operands: Operands, how: How, out: Any) -> Recipe:
    """The recipe for a contraction of operands like these, for a result like `out` or a new one."""
    orders = tuple(
        tuple(range(len(a.shape))) if a.flags.c_contiguous else contiguous_order(a) or tuple(range(len(a.shape)))
        for a in operands.arrays
    )
    if out is not None:
        backwards = hasattr(out, "flags") and _is_fortran(out)
    else:
        backwards = how.order == "F" or (how.order == "A" and all(map(_is_fortran, operands.arrays)))
    dtypes = tuple(np.dtype(a.dtype) for a in operands.arrays)
    optimize = _frozen(how.optimize)
    return _make_recipe(text, operands.shapes, dtypes, orders, backwards, how.dtype, how.casting, optimize)


def _frozen(optimize: Any) -> Any:
    """A strategy or path in a hashable form.

    :raises SubscriptError: if it is neither.
    """
    if isinstance(optimize, (list, tuple)):
        return tuple(map(_frozen, optimize))
    try:
        hash(optimize)
    except TypeError:
        raise SubscriptError(f"optimize is {optimize!r}, neither a strategy nor a path") from None
    return optimize


@lru_cache(maxsize=1024)
def _make_recipe(
    text: str,
    shapes: tuple[Shape, ...],
    dtypes: tuple[np.dtype[Any], ...],
    orders: tuple[tuple[int, ...], ...],
    backwards: bool,
    dtype: Any,
    casting: str,
    optimize: Any,
) -> Recipe:
    plan = make_plan(text, shapes, optimize, orders, backwards)
    types = choose_types(dtypes, dtype, casting, len(plan.steps) > 1)
    pool = list(types.operands)
    einsums = []
    for step in plan.steps:
        taken = [pool[k] for k in step.positions]
        pool = [one for k, one in enumerate(pool) if k not in step.positions]
        einsums.append(_describe_contraction(step, taken))
        pool.append(einsums[-1][0].dtype)
    return Recipe(plan, types, tuple(einsums), orders, backwards)


def _describe_contraction(step: PlannedStep, dtypes: Sequence[np.dtype[Any]]) -> tuple[BatchedEinsum, dict[str, int]]:
    """The einsum of a step, and the lengths expected of its long axes: the next powers of two, so that few differ."""
    terms, fixed = step.subscripts.partition("->")[0].split(","), _compiled_in(step)
    arrays = [
        Array(f"a{k}", tuple(fixed.get(x, math.inf) for x in term), dtype)
        for k, (term, dtype) in enumerate(zip(terms, dtypes, strict=True))
    ]
    least = _least_length(step.lengths, (*terms, "".join(step.lengths)))
    expected = {x: 1 << (max(least, n) - 1).bit_length() for x, n in step.lengths.items() if x not in fixed}
    return einsum(step.subscripts, *arrays), expected


def _compiled_in(step: PlannedStep) -> dict[str, int]:
    """The lengths that are compiled into the kernel of a step.

    Contractions in blocks fuse the rows, the columns and the sums of a product, each to one index, of whose parts at most
    one may be long.  Of three and more operands any two may be multiplied first, so those of the output count as one.
    A sum with more terms than the result has entries is divided among groups, for which all its lengths are known.
    Sources with many lengths take compilers seconds, and tensors of many axes rarely come with other lengths.
    """
    products = math.prod(step.lengths.values())
    own = products >= _WORTH_COMPILING or len(step.lengths) > FEW_AXES
    fixed = {x: n for x, n in step.lengths.items() if own and n <= _COMPILED_IN_UP_TO}
    inputs, _, output = step.subscripts.partition("->")
    terms = inputs.split(",")
    if products < _WORTH_A_KERNEL or len(terms) == 1:
        return fixed
    if _is_deep_product(step, terms, output):
        fixed |= {x: n for x, n in step.lengths.items() if x not in output}
    groups: dict[Any, list[str]] = {}
    for x in step.lengths:
        if x not in fixed:
            held = tuple(x in term for term in terms) if len(terms) == 2 else None
            groups.setdefault((x in output, held), []).append(x)
    for group in groups.values():
        stays = max(group, key=step.lengths.__getitem__)
        fixed |= {x: step.lengths[x] for x in group if x != stays}
    return fixed


def _is_deep_product(step: PlannedStep, terms: Sequence[str], output: str) -> bool:
    """Whether a step is a matrix product, the sum of which has at least as many terms as the result has entries."""
    if len(terms) != 2 or not all(set(output) & set(terms[k]) - set(terms[1 - k]) for k in range(2)):
        return False
    return math.prod(n for x, n in step.lengths.items() if x not in output) >= math.prod(step.lengths[x] for x in output)


def _least_length(lengths: Mapping[str, int], terms: Sequence[str]) -> int:
    """The length to which shorter expected lengths are raised: repeated indices count once for each place in a term."""
    for bits in range(_EXPECTED_BITS, 0, -1):
        if all(math.prod(max(1 << bits, lengths[x]) for x in term) <= _EXPECTED_POINTS for term in terms):
            return 1 << bits
    return 1


def _is_fortran(value: Any) -> bool:
    return bool(value.flags.f_contiguous and not value.flags.c_contiguous)


def _check_out(out: Any, recipe: Recipe, library: str, casting: str) -> None:
    """Check the array that the caller wants the result in.

    :raises ArgumentError: if it is no array, or one of another library.
    :raises ValidationError, ShapeError, DTypeError: if it is read-only, of another shape, or a type not to be cast to.
    """
    if out is None:
        return
    if isinstance(out, np.ndarray) != (library == "numpy") or not hasattr(out, "flags"):
        raise ArgumentError(f"out is a {type(out).__name__}; pass a {library} array, as the operands are")
    if tuple(out.shape) != recipe.shape:
        raise ShapeError(f"out has shape {tuple(out.shape)} but the result has {recipe.shape}")
    if library == "numpy":
        check_result_type(out.dtype, recipe, casting)
        if not out.flags.writeable:
            raise ValidationError("out is read-only; pass an array that can be written")
        return
    if np.dtype(out.dtype) != recipe.types.result:
        raise DTypeError(f"out is {out.dtype} but the result is {recipe.types.result}")
    if not out.flags.forc:
        raise ValidationError("out is not contiguous; pass a contiguous array")


def check_result_type(dtype: np.dtype[Any], recipe: Recipe, casting: str) -> None:
    """Check the type of the array for a result.

    :raises DTypeError: if the result is not cast to it.
    """
    if not np.can_cast(recipe.types.result, dtype, casting):  # type: ignore[arg-type]
        raise DTypeError(f"out is {dtype}, to which {recipe.types.result} is not cast by the rule '{casting}'")


@lru_cache(maxsize=16)
def _device_of_context(context: Any) -> Device:
    return choose_device(context)


def find_device(how: How, arrays: Sequence[Any]) -> Device:
    """The device of a contraction.

    :raises ValidationError: if device arrays are of another context.
    """
    first = next((a for a in arrays if not isinstance(a, np.ndarray)), None)
    device = _device_of_context(first.context) if how.device is None and first is not None else choose_device(how.device)
    if first is not None and first.context != device.context:
        raise ValidationError(
            f"the operands are arrays of another context than that of {device}; leave out device=, or make them"
            " with its queue"
        )
    return device


def prepare(
    text: str, operands: Operands, how: How, out: Any = None, constants: frozenset[int] = frozenset(), then: str = ""
) -> tuple[Evaluation, bool]:
    """An evaluation of operands like these, and whether its last step may write to `out`.

    :param constants: the operands that are the same in every call.
    :param then: the epilogue of the result; empty if there is none.
    :raises MemoryError: naming the size, if a result, or an intermediate one, does not fit into memory.
    """
    recipe = recipe_for(text, operands, how, out)
    wanted, on_host = recipe.types.result, operands.library == "numpy"
    if not on_host and wanted != recipe.einsums[-1][0].dtype:
        raise DTypeError(
            f"the result would be a device array of {wanted}; ask for {STAND_INS.get(wanted, wanted.newbyteorder('='))}"
        )
    _check_out(out, recipe, operands.library, how.casting)
    device = find_device(how, operands.arrays)
    _check_room(recipe, device, on_host)  # before anything is asked of spaces
    by_library = on_host and how.library and computes_in_host_memory(device.context)
    alternative = in_steps(text, operands, how, out, recipe) if by_library else None
    chosen = _choices_of_steps(recipe, how, device, by_library=by_library, timed=alternative is not None)
    if alternative is not None:
        other = _choices_of_steps(alternative, how, device, by_library=True, timed=True)
        if sum(choice.seconds for choice in other) < sum(choice.seconds for choice in chosen):
            recipe, chosen = alternative, other
    computed = recipe.einsums[-1][0].dtype
    direct = (
        out is not None
        and out.dtype == computed == wanted
        and bool((out.T if recipe.backwards else out).flags.c_contiguous)
    )
    if then and chosen[-1].product is None and (direct or (out is None and computed == wanted)):
        *before, (last, sizes) = recipe.einsums
        recipe = replace(recipe, einsums=(*before, (last.then(then), sizes)))
    tasks = prepare_steps(recipe, chosen, how, device, on_host=on_host, constants=constants)
    layouts = [_operand_layout(recipe, k, a) for k, a in enumerate(operands.arrays)]
    results = Results(recipe.plan.shape, recipe.backwards, wanted, computed)
    writes = out is not None and (not then or bool(tasks[-1].e.epilogues))  # else the result is scaled into `out` later
    facts = device.id, recipe.types, how.library
    return Evaluation(tasks, layouts, results, on_host, device, constants, facts, operands.arrays, writes), direct


def in_steps(text: str, operands: Operands, how: How, out: Any, recipe: Recipe) -> Recipe | None:
    """The recipe in steps of two operands, where one kernel would contract all and the caller leaves the choice open."""
    if split_strategy(how.optimize)[0] is not True or len(recipe.plan.steps) > 1 or len(operands.arrays) < 3:
        return None
    if recipe.types.result.name not in PRODUCT_DTYPES:
        return None
    limit = split_strategy(how.optimize)[1]
    return recipe_for(text, operands, replace(how, optimize="auto" if limit is None else ("auto", limit)), out)


def _choices_of_steps(recipe: Recipe, how: How, device: Device, *, by_library: bool, timed: bool) -> list[StepChoice]:
    """The choice between kernel and library for each step.

    :param timed: whether it matters how long steps take that only a kernel can do.
    """
    if not by_library:
        return [StepChoice(None) for _ in recipe.einsums]
    return [
        choose_kernel_or_library(e, sizes, step.lengths, device, how.database, timed=timed)
        for step, (e, sizes) in zip(recipe.plan.steps, recipe.einsums, strict=True)
    ]


def prepare_steps(
    recipe: Recipe, chosen: Sequence[StepChoice], how: How, device: Device, *, on_host: bool, constants: frozenset[int]
) -> list[PreparedStep]:
    """The steps with their kernels, made where no library does them."""
    plan, n = recipe.plan, len(recipe.orders)
    tuned = measured_times(device)
    wanted = [
        (e, e.sizes_from(step.lengths) if step_name(e, step.lengths) in tuned else sizes)
        for step, (e, sizes), choice in zip(plan.steps, recipe.einsums, chosen, strict=True)
        if choice.product is None
    ]
    kernels = iter(generate_all(wanted, device, how.database))
    pool, constant = list(range(n)), [k in constants for k in range(n)]
    tasks = []
    for number, (step, (e, _), choice) in enumerate(zip(plan.steps, recipe.einsums, chosen, strict=True)):
        slots = tuple(pool[k] for k in step.positions)
        pool = [slot for k, slot in enumerate(pool) if k not in step.positions] + [n + number]
        is_last = number == len(plan.steps) - 1
        constant.append(not is_last and all(constant[slot] for slot in slots))
        kernel = None if choice.product is not None else next(kernels)
        if choice.undecided and kernel is not None:
            choice = load_module("feinsum.contract.step_timing").compare_kernel_and_library(choice, e, step.lengths, kernel)
            kernel = kernel if choice.product is None else None
        bound = None if kernel is None else kernel.bind(step.lengths)
        product = None if choice.product is None else choice.product.prepared(step.lengths)
        room = None if on_host else Room(device.queue, plan.shape if is_last else step.shape, e.dtype)
        tasks.append(PreparedStep(step, slots, e, choice, kernel, bound, product, constant[-1], room))
    return tasks


def _check_room(recipe: Recipe, device: Device, on_host: bool) -> None:
    """Ask the system, or the device, for each large array that steps make, and give it back: kernels take seconds to make.

    :raises MemoryError: naming the size, if it refuses.
    """
    for step, (e, _) in zip(recipe.plan.steps, recipe.einsums, strict=True):
        size = math.prod(step.shape) * e.dtype.itemsize
        if size >= _WORTH_ASKING_BYTES and on_host:
            new_array(step.shape, e.dtype, e.dtype.alignment)
        elif size >= _WORTH_ASKING_BYTES:
            new_device_buffer(device.context, size)


def _operand_layout(recipe: Recipe, k: int, value: Any) -> OperandLayout:
    dtype, order = recipe.types.operands[k], recipe.orders[k]
    axes = None if order == tuple(range(len(order))) else order
    laid_out = value if axes is None else value.transpose(axes)
    plain = type(value) is np.ndarray or not isinstance(value, np.ndarray)
    convert = not plain or value.dtype != dtype or not laid_out.flags.c_contiguous
    return OperandLayout(dtype, axes, convert, convert and recipe.types.result.kind == "b")
