"""CUDA arrays of libraries that describe them by ``__cuda_array_interface__`` and not by DLPack, such as Numba.

Torch or CuPy look at their memory where it is, and results are arrays of theirs, which describe themselves in the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feinsum.errors import ValidationError
from feinsum.interop.cuda.cuda_driver import device_of
from feinsum.interop.library import Library


class InterfaceArrays(Library):
    """See :class:`feinsum.interop.library.Library`; one for each library that is met.

    :param example: an array of the library.
    """

    def __init__(self, example: Any) -> None:
        self.name = type(example).__module__.partition(".")[0]

    def place(self, value: Any) -> str:
        """See :meth:`Library.place`."""
        return f"cuda:{device_of(int(value.__cuda_array_interface__['data'][0]))}"

    def borrow(self, label: str, value: Any, *, written: bool = False) -> tuple[np.ndarray[Any, Any], str]:
        """See :meth:`Library.borrow`."""
        raise ValidationError(f"{label} is a {type(value).__name__}, which is not on the host")

    def give(self, result: Any) -> tuple[Any, str]:
        """See :meth:`Library.give`."""
        raise ValidationError(f"cannot create arrays of {self.name}; pass like=")
