"""Arrays of CuPy, which are all on CUDA devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from feinsum.errors import ValidationError
from feinsum.interop.library import Library
from feinsum.interrupts import load_module


class Cupy(Library):
    """See :class:`feinsum.interop.library.Library`."""

    name = "cupy"

    def __init__(self) -> None:
        self._cupy = load_module("cupy")

    def place(self, value: Any) -> str:
        """See :meth:`Library.place`."""
        return f"cuda:{value.device.id}"

    def borrow(self, label: str, value: Any, *, written: bool = False) -> tuple[np.ndarray[Any, Any], str]:
        """See :meth:`Library.borrow`."""
        raise ValidationError(f"{label} is an array of CuPy, which is not on the host")

    def give(self, result: Any) -> tuple[Any, str]:
        """See :meth:`Library.give`."""
        return self._cupy.asarray(result), "is on the host"
