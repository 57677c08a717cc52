"""Arrays of JAX in the memory of the host.

JAX shares memory with numpy where it begins at a multiple of 64 bytes (jax 0.10, seen from addresses; XLA's own alignment),
which that of larger results of kernels does (:func:`feinsum.compile.host_buffers.new_array`).  That takes 53 us; a copy 22
us and what the memory takes, so that small results are copied (two cores of Zen 5).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from feinsum.compile.host_buffers import LEAST_RESULT_BYTES, SHARED_BYTES
from feinsum.errors import ValidationError
from feinsum.interop.library import Library

_ALIGNMENT = SHARED_BYTES


class Jax(Library):
    """See :class:`feinsum.interop.library.Library`."""

    name = "jax"

    def place(self, value: Any) -> str:
        """See :meth:`Library.place`."""
        if isinstance(value, jax.core.Tracer) or not isinstance(value, jax.Array):
            return "tracing"
        devices = value.devices()
        if len(devices) > 1:
            return f"{len(devices)} devices"
        [device] = devices
        platform = "cuda" if device.platform == "gpu" else device.platform
        return f"cuda:{device.local_hardware_id}" if platform == "cuda" else str(platform)

    def borrow(self, label: str, value: Any, *, written: bool = False) -> tuple[np.ndarray[Any, Any], str]:
        """See :meth:`Library.borrow`."""
        if written:
            way_out = "omit out=" if label == "out" else "pass an array that can be written"
            raise ValidationError(f"{label} is an array of JAX, which is immutable; {way_out}")
        return np.asarray(value), ""

    def give(self, result: Any) -> tuple[Any, str]:
        """See :meth:`Library.give`."""
        value = np.asarray(result)
        # Without x64 JAX has no 64-bit numbers, and takes those of numpy for 32-bit ones; DLPack would let them pass.
        wanted = jax.dtypes.canonicalize_dtype(value.dtype)
        if wanted != value.dtype:
            return jax.numpy.asarray(value, wanted), f"is {value.dtype}, and JAX has no 64-bit types enabled"
        if value.nbytes < LEAST_RESULT_BYTES or value.dtype.kind == "b":
            return jax.numpy.asarray(value), "is small" if value.size else ""
        if not value.flags.c_contiguous or value.ctypes.data % _ALIGNMENT:
            return jax.numpy.asarray(value), "begins where JAX takes no memory"
        return jax.dlpack.from_dlpack(value), ""
