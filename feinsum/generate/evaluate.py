"""How a contraction of arrays is evaluated: a recipe, made once for equation, shapes and types, then step by step.

Each step is an einsum for :func:`feinsum.generate`; intermediate results stay on the device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from feinsum.compile.buffers import download, upload
from feinsum.compile.strided import copy_strided
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.einsum import Array, BatchedEinsum, einsum
from feinsum.ending import calling
from feinsum.errors import DTypeError, ShapeError, SubscriptError, ValidationError
from feinsum.generate import generate
from feinsum.generate.operands import CASTINGS, STAND_INS, Operands, Types, choose_types, contiguous_order, take_operands
from feinsum.generate.plan import Plan, Shape, Step, make_plan

_COMPILED_IN_UP_TO = 64
"""Axes that may be lengths compiled into a kernel."""
_WORTH_COMPILING = 1 << 20
"""Products from which a kernel is made for lengths of its own; below, one kernel serves all lengths."""
_EXPECTED_POINTS, _EXPECTED_BITS = 1 << 20, 5
"""Long axes are expected to be 2⁵ long at least, shorter where an array or the loop nest would have more than 2²⁰ points;
so small arrays of all shapes share a kernel."""


@dataclass(frozen=True)
class How:
    """What the keywords of :func:`feinsum.contract` say.

    :raises ValidationError: if `order` is none.
    :raises DTypeError: if `dtype` or `casting` is none.
    """

    dtype: Any
    order: str
    casting: str
    optimize: Any
    device: Any
    database: Any

    def __post_init__(self) -> None:
        order = "K" if self.order is None else self.order
        if not isinstance(order, str) or order.upper() not in ("C", "F", "A", "K"):
            raise ValidationError(f"order is {order!r}; it is 'C', 'F', 'A' or 'K'")
        if self.casting not in CASTINGS:
            raise DTypeError(f"casting is {self.casting!r}; it is one of {', '.join(CASTINGS)}")
        try:
            dtype = None if self.dtype is None else np.dtype(self.dtype)
        except (TypeError, ValueError) as error:
            raise DTypeError(f"dtype is {self.dtype!r}, which is no data type: {error}") from None
        object.__setattr__(self, "order", order.upper())
        object.__setattr__(self, "dtype", dtype)


@dataclass(frozen=True)
class Recipe:
    """What is known of a contraction from shapes, types and layouts alone.

    :ivar einsums: the einsum of each step, and the lengths expected of its long axes.
    :ivar orders: the order in which the axes of each operand are taken, in which it need not be copied.
    :ivar backwards: whether the plan has the axes of the result backwards, so that it is in Fortran order.
    """

    plan: Plan
    types: Types
    einsums: tuple[tuple[BatchedEinsum, Mapping[str, int]], ...] = field(repr=False)
    orders: tuple[tuple[int, ...], ...]
    backwards: bool

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return self.plan.shape[::-1] if self.backwards else self.plan.shape


def evaluate(
    text: str,
    values: Sequence[Any],
    how: How,
    out: Any = None,
    constants: frozenset[int] = frozenset(),
    known: dict[Any, Any] | None = None,
) -> Any:
    """Evaluate an einsum of arrays; see :func:`feinsum.contract`.

    :param constants: the operands that are the same in every call with this `known`, which takes what follows from them.
    """
    operands = take_operands(values)
    recipe = _recipe_for(text, operands, how, out)
    wanted = recipe.types.result
    if operands.library == "pyopencl" and wanted != recipe.einsums[-1][0].dtype:
        raise DTypeError(
            f"the result would be a device array of {wanted}; ask for {STAND_INS.get(wanted, wanted.newbyteorder('='))}"
        )
    _check_result(out, recipe, operands.library, how.casting)
    with calling:
        run = _Run(recipe, operands, how, constants, {} if known is None else known)
        result = run.evaluate(out if operands.library == "pyopencl" else None)
        return result if operands.library == "pyopencl" else _on_host(result, recipe, out)


def _recipe_for(text: str, operands: Operands, how: How, out: Any) -> Recipe:
    orders = tuple(
        tuple(range(len(a.shape))) if a.flags.c_contiguous else contiguous_order(a) or tuple(range(len(a.shape)))
        for a in operands.arrays
    )
    if out is not None:
        backwards = operands.library == "pyopencl" and _is_fortran(out)
    else:
        backwards = how.order == "F" or (how.order == "A" and all(map(_is_fortran, operands.arrays)))
    dtypes = tuple(np.dtype(a.dtype) for a in operands.arrays)
    optimize = _frozen(how.optimize)
    return _make_recipe(text, operands.shapes, dtypes, orders, backwards, how.dtype, how.casting, optimize)


def _frozen(optimize: Any) -> Any:
    """A strategy or path as what can be remembered.

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
        einsums.append(_describe(step, taken))
        pool.append(einsums[-1][0].dtype)
    return Recipe(plan, types, tuple(einsums), orders, backwards)


def _describe(step: Step, dtypes: Sequence[np.dtype[Any]]) -> tuple[BatchedEinsum, dict[str, int]]:
    """The einsum of a step, and the lengths expected of its long axes: the next powers of two, so that few differ."""
    worth = math.prod(step.lengths.values()) >= _WORTH_COMPILING
    fixed = {x: n for x, n in step.lengths.items() if worth and n <= _COMPILED_IN_UP_TO}
    terms = step.subscripts.partition("->")[0].split(",")
    arrays = [
        Array(f"a{k}", tuple(fixed.get(x, math.inf) for x in term), dtype)
        for k, (term, dtype) in enumerate(zip(terms, dtypes, strict=True))
    ]
    least = _least_length(step.lengths, (*terms, "".join(step.lengths)))
    expected = {x: 1 << (max(least, n) - 1).bit_length() for x, n in step.lengths.items() if x not in fixed}
    return einsum(step.subscripts, *arrays), expected


def _least_length(lengths: Mapping[str, int], terms: Sequence[str]) -> int:
    """The length up to which those expected are raised: repeated indices count as often as they stand in a term."""
    for bits in range(_EXPECTED_BITS, 0, -1):
        if all(math.prod(max(1 << bits, lengths[x]) for x in term) <= _EXPECTED_POINTS for term in terms):
            return 1 << bits
    return 1


def _is_fortran(value: Any) -> bool:
    return bool(value.flags.f_contiguous and not value.flags.c_contiguous)


def _check_result(out: Any, recipe: Recipe, library: str, casting: str) -> None:
    """Check the array that the caller wants the result in.

    :raises ValidationError, ShapeError, DTypeError: if it is of another library, shape, or a type not to be cast to.
    """
    if out is None:
        return
    if isinstance(out, np.ndarray) != (library == "numpy") or not hasattr(out, "flags"):
        raise ValidationError(f"out is a {type(out).__name__}; pass a {library} array, as the operands are")
    if tuple(out.shape) != recipe.shape:
        raise ShapeError(f"out has shape {tuple(out.shape)} but the result has {recipe.shape}")
    if library == "numpy":
        if not np.can_cast(recipe.types.result, out.dtype, casting):  # type: ignore[arg-type]
            raise DTypeError(f"out is {out.dtype}, to which {recipe.types.result} is not cast by the rule '{casting}'")
        if not out.flags.writeable:
            raise ValidationError("out is read-only; pass an array that can be written")
        return
    if np.dtype(out.dtype) != recipe.types.result:
        raise DTypeError(f"out is {out.dtype} but the result is {recipe.types.result}")
    if not out.flags.forc:
        raise ValidationError("out is not contiguous; pass a contiguous array")


@lru_cache(maxsize=16)
def _device_of(context: Any) -> Device:
    return choose_device(context)


@dataclass(frozen=True)
class _Value:
    """A value of the pool: a contiguous device array."""

    array: Any
    constant: bool


class _Run:
    """One evaluation of a recipe."""

    def __init__(
        self, recipe: Recipe, operands: Operands, how: How, constants: frozenset[int], known: dict[Any, Any]
    ) -> None:
        first = next((a for a in operands.arrays if not isinstance(a, np.ndarray)), None)
        self._recipe = recipe
        self._operands = operands
        self._database = how.database
        self._device = _device_of(first.context) if how.device is None and first is not None else choose_device(how.device)
        if first is not None and first.context != self._device.context:
            raise ValidationError(
                f"the operands are arrays of another context than that of {self._device}; leave out device=, or make them"
                " with its queue"
            )
        self._queue = getattr(first, "queue", None) or self._device.queue
        self._constants = constants
        self._known = known

    def evaluate(self, out: Any) -> Any:
        """The result on the device, in the shape that the caller sees.

        :param out: the device array for it, if there is one.
        """
        plan, backwards = self._recipe.plan, self._recipe.backwards
        target = out.T if out is not None and backwards else out
        pool = [self._operand(k) for k in range(len(self._operands.arrays))]
        for number in range(len(plan.steps)):
            positions = plan.steps[number].positions
            taken = [pool[k] for k in positions]
            pool = [value for k, value in enumerate(pool) if k not in positions]
            pool.append(self._step(number, taken, target if number == len(plan.steps) - 1 else None))
        if out is not None:
            out.events.extend(event for event in pool[0].array.events if event not in out.events)
            return out
        result = pool[0].array.reshape(plan.shape)
        return result.T if backwards else result

    def _step(self, number: int, taken: Sequence[_Value], target: Any) -> _Value:
        step, (e, sizes) = self._recipe.plan.steps[number], self._recipe.einsums[number]
        constant = target is None and all(value.constant for value in taken)
        key = (number, self._recipe.orders, self._recipe.backwards, self._recipe.types, self._device.id)
        if not constant or key not in self._known:
            kernel = generate(e, self._device, self._database, sizes)
            arrays = {f"a{k}": v.array.reshape(shape) for k, (v, shape) in enumerate(zip(taken, step.shapes, strict=True))}
            room = None if target is None else target.reshape(step.shape)
            result = _Value(kernel(arrays, out=room, queue=self._queue), constant)
            if not constant:
                return result
            self._known[key] = result
        known: _Value = self._known[key]
        return known

    def _operand(self, k: int) -> _Value:
        dtype, order = self._recipe.types.operands[k], self._recipe.orders[k]
        key = ("operand", k, dtype, order, self._device.id)
        if k not in self._constants:
            return _Value(self._laid_out(k, dtype, order), constant=False)
        if key not in self._known:
            self._known[key] = _Value(self._laid_out(k, dtype, order), constant=True)
        known: _Value = self._known[key]
        return known

    def _laid_out(self, k: int, dtype: np.dtype[Any], order: tuple[int, ...]) -> Any:
        """An operand as a C-contiguous device array of the type to compute in."""
        value = self._operands.arrays[k].transpose(order)
        if isinstance(value, np.ndarray):
            if self._recipe.types.result.kind == "b":
                value = np.asarray(value, bool)  # a half is true, though no integer is one
            return upload(np.asarray(value, dtype, order="C"), self._queue)
        return value if value.flags.c_contiguous and value.dtype == dtype else copy_strided(value, self._queue, dtype)


def _on_host(result: Any, recipe: Recipe, out: Any) -> Any:
    """The result as numpy has it: an array, a number where there are no axes, or in `out`."""
    host = download(result)
    wanted = recipe.types.result
    if host.dtype != wanted:
        host = host != 0 if wanted.kind == "b" else host.astype(wanted)
    if out is None:
        return host[()]
    out[...] = host
    return out
