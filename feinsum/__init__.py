"""Batched Einstein summations as fast kernels on any OpenCL device."""

from __future__ import annotations

from pathlib import Path as _Path

from feinsum._version import __version__
from feinsum.einsum import Array, BatchedEinsum, array, batched_einsum, einsum
from feinsum.errors import (
    DatabaseError,
    DeviceError,
    DTypeError,
    FeinsumError,
    MatchError,
    ShapeError,
    SubscriptError,
    TransformError,
    ValidationError,
)

# In a checkout the transform spaces and the curated records stand beside this package, not inside it.
if (_Path(__file__).parents[1] / "transforms" / "__init__.py").exists():
    __path__.append(str(_Path(__file__).parents[1]))

__all__ = [
    "Array",
    "BatchedEinsum",
    "DTypeError",
    "DatabaseError",
    "DeviceError",
    "FeinsumError",
    "MatchError",
    "ShapeError",
    "SubscriptError",
    "TransformError",
    "ValidationError",
    "__version__",
    "array",
    "batched_einsum",
    "einsum",
]
