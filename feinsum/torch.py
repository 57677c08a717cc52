"""Einsums as operators of torch, with derivatives: ``feinsum.torch.einsum`` where ``torch.einsum`` was."""

from feinsum.interop.torch_operator import einsum

__all__ = ["einsum"]
