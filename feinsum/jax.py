"""Einsums as a primitive of JAX, with derivatives: ``feinsum.jax.einsum`` where ``jax.numpy.einsum`` was."""

from feinsum.interop.jax_operator import einsum

__all__ = ["einsum"]
