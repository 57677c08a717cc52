"""Tensors of torch in the memory of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from feinsum.errors import DTypeError, ValidationError
from feinsum.interop.library import Library


class Torch(Library):
    """See :class:`feinsum.interop.library.Library`."""

    name = "torch"

    def place(self, value: Any) -> str:
        """See :meth:`Library.place`."""
        device = value.device
        if device.type == "cuda":
            return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"
        return str(device.type)

    def borrow(self, label: str, value: Any, *, written: bool = False) -> tuple[np.ndarray[Any, Any], str]:
        """See :meth:`Library.borrow`."""
        plain, why = plain_tensor(label, value, written=written)
        try:
            return plain.numpy(), why
        except (RuntimeError, TypeError, ValueError) as error:  # of a tensor that stands for others, or has no memory
            raise ValidationError(f"{label} is a {type(value).__name__} that is not in memory: {error}") from None

    def give(self, result: Any) -> tuple[Any, str]:
        """See :meth:`Library.give`."""
        return torch.from_numpy(np.asarray(result)), ""

    def written(self, value: Any) -> None:
        """See :meth:`Library.written`: a derivative that needs what was there before says so."""
        torch.autograd.graph.increment_version(value)


def plain_tensor(label: str, value: Any, *, written: bool = False) -> tuple[torch.Tensor, str]:
    """A strided tensor without history, and why it was copied.

    :raises ValidationError: if its derivative would be lost, or it is sparse, or is written to though conjugated.
    :raises DTypeError: if it is of a type that numpy does not know.
    """
    if value.requires_grad and torch.is_grad_enabled():
        raise ValidationError(
            f"{label} requires gradients, which this call does not give; call feinsum.torch.einsum, or pass its detach()"
        )
    if value.layout != torch.strided:
        raise ValidationError(f"{label} is {value.layout}; pass a dense tensor, as its to_dense()")
    if value.dtype == torch.bfloat16 or value.is_quantized:
        raise DTypeError(f"{label} is {value.dtype}, which kernels do not compute with; convert it to float32")
    plain, why = value.detach(), ""
    if plain.is_conj() or plain.is_neg():
        if written:
            raise ValidationError(f"{label} is a view of its conjugate or negative; pass a tensor of its own")
        plain, why = plain.resolve_conj().resolve_neg(), "is a view of its conjugate or negative"
    return plain, why
