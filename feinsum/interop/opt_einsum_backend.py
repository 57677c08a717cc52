"""The backend of opt_einsum whose operations our kernels compute: ``oe.contract(..., backend="feinsum")``.

opt_einsum decides about the order, and calls :func:`einsum` or :func:`tensordot` for each step; tensors of torch and arrays
of JAX are given to the operators, so that there are derivatives.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from feinsum.contract.contract import contract

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(subscripts: str, *operands: Any, **keywords: Any) -> Any:
    """An einsum of arrays of one library, in one step.

    :param keywords: as of :func:`feinsum.contract`.
    """
    if not keywords:
        torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
        if torch is not None and any(isinstance(one, torch.Tensor) for one in operands):
            from feinsum.interop.torch_operator import einsum as of_torch

            return of_torch(subscripts, *operands)
        if jax is not None and any(isinstance(one, jax.Array) for one in operands):
            from feinsum.interop.jax_operator import einsum as of_jax

            return of_jax(subscripts, *operands)
    return contract(subscripts, *operands, optimize=False, **keywords)


def tensordot(a: Any, b: Any, axes: int | Sequence[Any] = 2) -> Any:
    """As :func:`numpy.tensordot`: the axes that are summed over, those of `a` and those of `b`; or how many at the end."""
    ranks = len(a.shape), len(b.shape)
    if isinstance(axes, int):
        axes = (range(ranks[0] - axes, ranks[0]), range(axes))
    ours, theirs = ([axes[k]] if isinstance(axes[k], int) else list(axes[k]) for k in (0, 1))
    first, rest = _LETTERS[: ranks[0]], iter(_LETTERS[ranks[0] :])
    paired = {there % ranks[1]: first[here % ranks[0]] for here, there in zip(ours, theirs, strict=True)}
    second = [paired.get(axis) or next(rest) for axis in range(ranks[1])]
    kept = [x for x in first if x not in second] + [x for x in second if x not in first]
    return einsum(f"{first},{''.join(second)}->{''.join(kept)}", a, b)


def transpose(a: Any, axes: Sequence[int]) -> Any:
    """A view of the array with its axes in another order."""
    return a.permute(*axes) if hasattr(a, "permute") else a.transpose(axes)
