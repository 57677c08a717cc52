"""The type of the result of :func:`torch.einsum`: torch itself is asked, with tensors of at most two elements an axis.

Two kinds of einsums differ from the promoted type of the operands: sums of integers widen to int64, and under
``torch.autocast`` products of matrices have its type.  Both depend on the steps that torch takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import torch

_REMEMBERED = 1024
_Example = tuple[tuple[int, ...], torch.dtype]


def result_type(subscripts: str, tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """The type that torch gives the result; the promoted one where torch refuses the einsum."""
    promoted = reduce(torch.promote_types, [one.dtype for one in tensors])
    kind = tensors[0].device.type
    cast = torch.get_autocast_dtype(kind) if kind != "meta" and torch.is_autocast_enabled(kind) else None
    if cast is None and (promoted.is_floating_point or promoted.is_complex):
        return promoted
    examples = tuple((tuple(_symbolic_length(n) for n in _tensor_shape(one)), one.dtype) for one in tensors)
    if torch.compiler.is_compiling():
        found: torch.dtype = _asked.__wrapped__(subscripts, examples, tensors[0].device, cast, promoted)
        return found
    return _asked(subscripts, examples, tensors[0].device, cast, promoted)


def _tensor_shape(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The lengths of the axes; ``torch.jit.trace`` would have them for tensors."""
    state = torch._C._get_tracing_state() if torch.jit.is_tracing() else None
    if state is None:
        return tuple(tensor.shape)
    torch._C._set_tracing_state(None)
    try:
        return tuple(tensor.shape)
    finally:
        torch._C._set_tracing_state(state)


def _symbolic_length(length: Any) -> int:
    """Lengths of 0 and 1 have rules of their own in torch, all others have the same."""
    if length == 0:
        return 0
    return 1 if length == 1 else 2


@lru_cache(maxsize=_REMEMBERED)
def _asked(
    subscripts: str,
    examples: Sequence[_Example],
    device: torch.device,
    cast: torch.dtype | None,
    promoted: torch.dtype,
) -> torch.dtype:
    """The type of the result of small tensors.

    :param cast: the type of ``torch.autocast``, which is part of the key.
    """
    tensors = [torch.ones(shape, dtype=dtype, device=device) for shape, dtype in examples]
    try:
        found: torch.dtype = torch.einsum(subscripts, *tensors).dtype
    except (RuntimeError, ValueError):  # of a mixture of types, or a grammar wider than torch's
        return promoted
    return found
