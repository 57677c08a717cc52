"""An einsum as an operator of torch: with derivatives of any order, under ``torch.compile`` and ``vmap``.

The derivative in an operand is an einsum by the same operator, so it has derivatives and kernels, too.  An einsum that is
evaluated in steps is differentiated step by step, so that derivatives share what the steps before them have computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import torch
from torch.autograd import forward_ad

from feinsum.compile.call_cache import CallCache
from feinsum.contract.evaluate import How
from feinsum.contract.expression import PreparedEquation
from feinsum.devices import Device
from feinsum.errors import ArgumentError, ValidationError
from feinsum.interop.derivatives import (
    Derivative,
    batched_subscripts,
    derivative,
    derivative_steps,
    from_interleaved_form,
    matching_positions,
    spell,
)
from feinsum.interop.host_device import host_device
from feinsum.interop.torch_types import result_type

_REMEMBERED = 1024
Steps = Sequence[tuple[tuple[int, ...], str]]
"""See :func:`feinsum.interop.derivatives.derivative_steps`."""
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
"""For each type that devices lack, the type computed in; the result is rounded once."""
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The types of the parts of complex numbers; dynamo (torch 2.13) does not trace ``dtype.to_real``."""
_is_mapped = torch._C._functorch.is_legacy_batchedtensor
"""Whether a tensor is one of a batch in torch's older vmap, which makes batched gradients."""


def einsum(subscripts: Any, *tensors: Any) -> torch.Tensor:
    """An einsum of tensors by feinsum's kernels, in place of :func:`torch.einsum`.

    It has derivatives of any order, works under ``torch.compile`` without a graph break, and under ``torch.func``
    (``grad``, ``jvp``, ``hessian``, ``vmap`` and so on), save for forward mode in forward mode.

    :param subscripts: in the grammar of :func:`numpy.einsum`, with ellipses and implicit output.
    :param tensors: on one device; axes of length one broadcast.  The type of the result is that of :func:`torch.einsum`,
        also for sums of integers and under ``torch.autocast``; float16 and bfloat16 are computed in float32 and rounded
        once.  A list of them, and the form of tensors each followed by a list of the numbers of its indices, are taken as
        :func:`torch.einsum` takes them.
    :returns: a new tensor, contiguous.
    :raises SubscriptError, ShapeError, ValidationError: naming the operand or index at fault.

    Tensors on the host are computed with where ``FEINSUM_DEVICE`` says, or on the processor.
    """
    if isinstance(subscripts, torch.Tensor) and tensors:
        subscripts, tensors = from_interleaved_form((subscripts, *tensors))
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    if not tensors or not all(isinstance(one, torch.Tensor) for one in tensors):
        given = ", ".join(type(one).__name__ for one in tensors) or "none"
        raise ArgumentError(f"feinsum.torch.einsum takes subscripts and then tensors; got {given}")
    dtype = result_type(subscripts, tensors)
    computed = reduce(torch.promote_types, [one.dtype for one in tensors], dtype)
    wide = _WIDE.get(computed, computed)
    real = _REAL.get(wide, wide)
    operands = [one.to(wide if one.dtype.is_complex else real) for one in tensors]
    if wide.is_complex and not any(one.is_complex() for one in operands):
        operands[0] = operands[0].to(wide)
    result = _apply(subscripts, operands)
    return result if wide == dtype else result.to(dtype)


def _apply(subscripts: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The einsum by what is quickest: at once, as a function with derivatives, or as an operator where others look on.

    A compiler knows operators, and no functions with derivatives in forward mode (torch 2.13); transforms of
    ``torch.func`` and forward mode know functions, and no operators.
    """
    found: torch.Tensor
    if torch.compiler.is_compiling():
        found = _operator(subscripts, operands)
    elif torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        _check_forward_mode()
        found = _EinsumFunction.apply(subscripts, *operands)
    elif _is_recorded() or not all(type(one) in _PLAIN and not one.is_meta for one in operands):
        found = _operator(subscripts, operands)
    elif torch.is_grad_enabled() and (learnt := sum(one.requires_grad for one in operands)):
        path = _einsum_steps(subscripts, operands) if learnt > 1 and len(operands) > 2 else ()
        found = _step_by_step(path, operands) if len(path) > 1 else _EagerFunction.apply(subscripts, *operands)
    else:
        found = _evaluate_tensors(subscripts, operands)
    return found


def _is_recorded() -> bool:
    """Whether ``torch.jit.trace`` or a dispatch mode, such as that of fake tensors, watches operators."""
    return bool(torch._C._len_torch_dispatch_stack()) or torch._C._get_tracing_state() is not None


def _check_forward_mode() -> None:
    """Refuse what torch would get wrong.

    :raises ValidationError: in forward mode in forward mode.
    """
    levels = torch._C._functorch.get_interpreter_stack() or ()
    if sum(one.key() == torch._C._functorch.TransformType.Jvp for one in levels) > 1:
        raise ValidationError(
            "feinsum.torch.einsum stands in forward mode in forward mode, where torch (2.13) forgets terms of functions;"
            " take jacfwd(jacrev(f)) in place of jacfwd(jacfwd(f))"
        )


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _evaluate_tensors(subscripts: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The einsum of tensors whose derivatives are computed elsewhere."""
    if any(map(_is_mapped, operands)):
        return _over_batches(subscripts, operands)
    result: torch.Tensor = _remembered_contraction(subscripts, None if operands[0].is_cuda else host_device()).evaluate(
        operands
    )
    return result


def _over_batches(subscripts: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The einsum of tensors of torch's older vmap, in which every level of mapping is one more index."""
    levels = 0
    while any(map(_is_mapped, operands)):
        levels += 1
        at = [0 if _is_mapped(one) else None for one in operands]
        # A tensor that this level does not map gets an axis of length one.
        bare = [
            one if axis is None else torch._remove_batch_dim(one, levels, 1, 0)
            for one, axis in zip(operands, at, strict=True)
        ]
        subscripts, operands = _batched_subscripts(subscripts, bare, at)
    result = _evaluate_tensors(subscripts, operands)
    for level in range(1, levels + 1):
        axis = levels - level
        mapped = result.shape[axis] != 1
        result = torch._add_batch_dim(result, axis, level) if mapped else result.select(axis, 0)
    return result


@lru_cache(maxsize=_REMEMBERED)
def _remembered_contraction(subscripts: str, device: Device | None) -> PreparedEquation:
    return PreparedEquation(subscripts, How(None, "K", "safe", True, device, None))


_known_steps = CallCache[Steps](_REMEMBERED)


def _einsum_steps(subscripts: str, operands: Sequence[torch.Tensor]) -> Steps:
    """The steps in which an einsum of tensors like these is evaluated; that is seen from evaluating it once."""
    key = (subscripts, operands[0].device, operands[0].dtype, *((one.shape, one.stride()) for one in operands))
    known = _known_steps.get(key)
    if known is None:
        device = None if operands[0].is_cuda else host_device()
        equation = PreparedEquation(subscripts, How(None, "K", "safe", True, device, None))
        equation.evaluate([one.detach() for one in operands])
        evaluation = equation.last()
        path = () if evaluation is None else [task.step.positions for task in evaluation.tasks]
        known = _known_steps[key] = derivative_steps(spell(subscripts, [one.shape for one in operands]), path)
    return known


def _step_by_step(path: Steps, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The einsum by its steps, each a function with derivatives."""
    pool = list(operands)
    for positions, text in path:
        taken = [pool[k] for k in positions]
        pool = [one for k, one in enumerate(pool) if k not in positions]
        pool.append(_apply(text, taken))
    return pool[0]


def _compute_einsum(subscripts: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    return _evaluate_tensors(subscripts, [one.detach() for one in operands])


_operator: Any = torch.library.custom_op(
    "feinsum::einsum", _compute_einsum, mutates_args=(), schema="(str subscripts, Tensor[] operands) -> Tensor"
)


def _fake_einsum(subscripts: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    shape = spell(subscripts, [one.shape for one in operands]).shape
    dtype = reduce(torch.promote_types, [one.dtype for one in operands])
    return operands[0].new_empty(shape, dtype=dtype)


@lru_cache(maxsize=_REMEMBERED)
def _known_derivatives(subscripts: str, shapes: tuple[Any, ...]) -> tuple[Derivative, ...]:
    e = spell(subscripts, shapes)
    return tuple(derivative(e, k, shape) for k, shape in enumerate(shapes))


def _derivatives(
    subscripts: str, operands: Sequence[torch.Tensor], cotangent: torch.Tensor, needed: Sequence[bool]
) -> list[torch.Tensor | None]:
    """The cotangents of the operands that are needed."""
    shapes = tuple(one.shape for one in operands)
    try:
        known = _known_derivatives(subscripts, shapes)
    except TypeError:  # lengths that a compiler has no numbers for yet
        known = _known_derivatives.__wrapped__(subscripts, shapes)
    found: list[torch.Tensor | None] = [None] * len(operands)
    for k, (operand, how) in enumerate(zip(operands, known, strict=True)):
        if not needed[k]:
            continue
        others = [one.conj() if one.is_complex() else one for n, one in enumerate(operands) if n != k]
        one = _spread_cotangent(_apply(how.subscripts, [cotangent, *others]), how)
        found[k] = one.real if one.is_complex() and not operand.is_complex() else one
    return found


def _spread_cotangent(value: torch.Tensor, how: Derivative) -> torch.Tensor:
    """The cotangent of an operand from the result of its einsum: with axes put in, and on the diagonal."""
    for axis in how.new_axes:
        value = value.unsqueeze(axis)
    if value.shape != how.shape:
        value = value.expand(how.shape)
    if not how.on_diagonal:
        return value
    # Axes are doubled one after the other: the last of the index becomes two, of which the diagonal has the values.
    at = list(range(len(how.indices)))
    for number in range(len(how.indices)):
        for _ in range(how.repeated.count(number) - 1):
            axis = len(at) - 1 - at[::-1].index(number)
            value = torch.diag_embed(value.movedim(axis, -1), 0, axis, axis + 1)
            at.insert(axis, number)
    return value.permute(matching_positions(at, how.repeated))


def _batched_subscripts(
    subscripts: str, operands: Sequence[torch.Tensor], at: Sequence[int | None]
) -> tuple[str, list[torch.Tensor]]:
    """The einsum for a batch, whose axis is the first one of the result.

    :param at: which axis of each operand is that of the batch; None if it has none.
    """
    moved = [one if axis is None else one.movedim(axis, 0) for one, axis in zip(operands, at, strict=True)]
    return batched_subscripts(subscripts, [one.shape for one in moved], at), moved


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.subscripts = inputs[0]
    ctx.save_for_backward(*inputs[1])


def _backward(ctx: Any, cotangent: torch.Tensor) -> tuple[None, list[torch.Tensor | None]]:
    needed = ctx.needs_input_grad[1]
    operands = ctx.saved_tensors
    flags = list(needed) if isinstance(needed, Sequence) else [needed] * len(operands)
    # What is to be differentiated again, or mapped, has to be einsums.
    mapped = torch._C._are_functorch_transforms_active() or any(map(_is_mapped, (cotangent, *operands)))
    if sum(flags) > 1 and not torch.is_grad_enabled() and not mapped:
        found = iter(_joint_operator(ctx.subscripts, operands, cotangent, flags))
        return None, [next(found) if flag else None for flag in flags]
    return None, _derivatives(ctx.subscripts, operands, cotangent, flags)


def _joint(
    subscripts: str, operands: Sequence[torch.Tensor], cotangent: torch.Tensor, needed: Sequence[bool]
) -> list[torch.Tensor]:
    """The cotangents of those operands that are needed, which share what the steps of the einsum have in common."""
    values, learnt = [one.detach() for one in operands], list(needed)
    path = _einsum_steps(subscripts, values)
    if len(path) < 2:
        path = [(tuple(range(len(values))), spell(subscripts, [one.shape for one in values]).text)]
    pool, taken = list(range(len(values))), []
    for number, (positions, text) in enumerate(path):
        slots = [pool[k] for k in positions]
        pool = [slot for k, slot in enumerate(pool) if k not in positions] + [len(operands) + number]
        taken.append(slots)
        learnt.append(any(learnt[slot] for slot in slots))
        if number < len(path) - 1:
            values.append(_evaluate_tensors(text, [values[slot] for slot in slots]))
    cotangents: dict[int, torch.Tensor | None] = {len(operands) + len(path) - 1: cotangent}
    for number in reversed(range(len(path))):
        slots, given = taken[number], cotangents.pop(len(operands) + number)
        if given is not None:
            flags = [learnt[slot] for slot in slots]
            given_back = _derivatives(path[number][1], [values[slot] for slot in slots], given, flags)
            cotangents.update(zip(slots, given_back, strict=True))
    return [_of_its_own(found) for k, flag in enumerate(needed) if flag and (found := cotangents[k]) is not None]


def _of_its_own(value: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor with memory of its own, as operators are to give."""
    whole = value.is_contiguous() and value.untyped_storage().nbytes() == value.nbytes
    return value.resolve_conj() if whole else value.clone(memory_format=torch.contiguous_format)


def _described_jointly(
    subscripts: str, operands: Sequence[torch.Tensor], cotangent: torch.Tensor, needed: Sequence[bool]
) -> list[torch.Tensor]:
    return [one.new_empty(one.shape) for one, flag in zip(operands, needed, strict=True) if flag]


def _map_rule(
    info: Any, in_dims: tuple[None, Sequence[int | None]], subscripts: str, operands: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, int]:
    text, moved = _batched_subscripts(subscripts, operands, in_dims[1])
    return _operator(text, moved), 0


_joint_operator: Any = torch.library.custom_op(
    "feinsum::einsum_derivatives",
    _joint,
    mutates_args=(),
    schema="(str subscripts, Tensor[] operands, Tensor cotangent, bool[] needed) -> Tensor[]",
)
_joint_operator.register_fake(_described_jointly)
_operator.register_fake(_fake_einsum)
_operator.register_autograd(_backward, setup_context=_set_up)
_operator.register_vmap(_map_rule)


class _EinsumFunction(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not followed
    """The einsum with derivatives for ``torch.func`` and forward mode."""

    @staticmethod
    def forward(subscripts: str, *operands: torch.Tensor) -> torch.Tensor:
        evaluate = _evaluate_tensors if any(map(_is_mapped, operands)) else _operator
        result: torch.Tensor = evaluate(subscripts, operands)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.subscripts = inputs[0]
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[Any, ...]:
        return None, *_derivatives(ctx.subscripts, ctx.saved_tensors, cotangent, ctx.needs_input_grad[1:])

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: torch.Tensor | None) -> torch.Tensor:
        operands = ctx.saved_tensors
        terms = [
            _apply(ctx.subscripts, [*operands[:k], tangent, *operands[k + 1 :]])
            for k, tangent in enumerate(tangents)
            if tangent is not None
        ]
        return sum(terms[1:], terms[0])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], subscripts: str, *operands: torch.Tensor) -> tuple[Any, int]:
        text, moved = _batched_subscripts(subscripts, operands, in_dims[1:])
        return _apply(text, moved), 0


class _EagerFunction(torch.autograd.Function):  # type: ignore[misc]
    """The einsum with derivatives for eager evaluation: a function of this form takes a third of the time (torch 2.13)."""

    @staticmethod
    def forward(ctx: Any, subscripts: str, *operands: torch.Tensor) -> torch.Tensor:
        ctx.subscripts = subscripts
        ctx.save_for_backward(*operands)
        return _evaluate_tensors(subscripts, operands)

    backward = _EinsumFunction.backward
