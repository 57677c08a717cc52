"""Arrays like earlier ones, recognised with as little as may be asked of each: what small launches wait for is Python.

A quick call takes arrays of the same class, shape, strides, type and device as those of a call that went the long way, that
begin where vectors may.  Nobody may miss their derivative, and their memory is what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from operator import and_, or_
from typing import Any

Recognise = Callable[[Sequence[Any]], "list[int] | None"]
"""The pointers of as many arrays as there were; None if one is another."""


def tensors_like(torch: Any, given: Sequence[Any], alignments: Sequence[int]) -> Recognise:
    """A function that recognises tensors.

    :param alignments: at a multiple of how many bytes each must begin: powers of two.
    """
    if any(one.__class__ not in (torch.Tensor, torch.nn.Parameter) for one in given):
        return lambda values: None  # a subclass may mean anything by what it does
    guard = _trusted_guard()
    # It refuses a tensor that is there twice.
    if guard is None or len({id(one) for one in given}) < len(given):
        return _one_by_one(torch, given, alignments)
    check, grad_enabled, address = guard(given), torch.is_grad_enabled, torch.Tensor.data_ptr
    learnt = any(one.requires_grad for one in given)
    below = [n - 1 for n in alignments]
    most = max(below, default=0)

    def recognise(values: Sequence[Any]) -> list[int] | None:
        if not check(*values) or (learnt and grad_enabled()):
            return None
        pointers = list(map(address, values))
        if reduce(or_, pointers, 0) & most and any(map(and_, pointers, below)):
            return None
        return pointers

    return recognise


def _one_by_one(torch: Any, given: Sequence[Any], alignments: Sequence[int]) -> Recognise:
    """The checks by public attributes, one by one."""
    marks = [
        (one.__class__, one.shape, one.stride(), one.dtype, one.device, one.dtype.is_complex, n - 1)
        for one, n in zip(given, alignments, strict=True)
    ]
    grad_enabled = torch.is_grad_enabled

    def recognise(values: Sequence[Any]) -> list[int] | None:
        pointers = []
        for value, (kind, shape, strides, dtype, device, is_complex, below) in zip(values, marks, strict=True):
            if (
                value.__class__ is not kind
                or value.shape != shape
                or value.dtype is not dtype
                or value.stride() != strides
                or value.device != device
                or value.is_neg()
                or (is_complex and value.is_conj())
                or (value.requires_grad and grad_enabled())
            ):
                return None
            pointer = value.data_ptr()
            if pointer & below:
                return None
            pointers.append(pointer)
        return pointers

    return recognise


_TRIED = ("2.11.", "2.12.", "2.13.")
"""Versions of torch whose guard was tried: called otherwise than it expects, it ends the process."""


@lru_cache(maxsize=1)
def _trusted_guard() -> Callable[[Sequence[Any]], Callable[..., bool]] | None:
    """Makes checks for tensors like given ones, by the guard with which code of ``torch.compile`` recognises its arguments:
    all at once and without Python.  It is not public.

    :returns: None where this torch is another, or its guard lets pass what a kernel would compute wrongly with.
    """
    import torch

    if not torch.__version__.startswith(_TRIED):
        return None

    def guard(given: Sequence[Any]) -> Callable[..., bool]:
        made = torch._C._dynamo.guards.TensorGuards(*given, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        check: Callable[..., bool] = made.check
        return check

    try:
        return guard if all(_tells_apart(guard([one]), one, other) for one, other in _different(torch)) else None
    except (AttributeError, TypeError, RuntimeError):
        return None


def _different(torch: Any) -> list[tuple[Any, Any]]:
    """Pairs of tensors that a quick call must tell apart."""
    a, z = torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.complex64)
    others = [a[:2], a.T, a[None], a.double(), torch._neg_view(a), torch.zeros(4, 4, requires_grad=True), a.to_sparse()]
    others += [torch.nn.Parameter(a, requires_grad=False), torch.zeros(4, 4, device="meta"), a.numpy(), None]
    return [*((a, other) for other in others), (z, z.conj())]


def _tells_apart(check: Callable[..., bool], one: Any, other: Any) -> bool:
    return check(one) and check(one.clone()) and not check(other)


def cupy_arrays_like(ndarray: Any, given: Sequence[Any], alignments: Sequence[int]) -> Recognise:
    """A function that recognises arrays of CuPy.

    :param ndarray: their class.
    """
    marks = [
        (one.shape, one.strides, one.dtype, one.data.device_id, n - 1) for one, n in zip(given, alignments, strict=True)
    ]

    def recognise(values: Sequence[Any]) -> list[int] | None:
        pointers = []
        for value, (shape, strides, dtype, device, below) in zip(values, marks, strict=True):
            if (
                value.__class__ is not ndarray
                or value.shape != shape
                or value.strides != strides
                or (value.dtype is not dtype and value.dtype != dtype)
            ):
                return None
            memory = value.data
            pointer = memory.ptr
            if pointer & below or memory.device_id != device:
                return None
            pointers.append(pointer)
        return pointers

    return recognise
