"""numpy's own arrays, where another library's are asked to become such."""

from __future__ import annotations

from typing import Any

import numpy as np

from feinsum.interop.library import Library


class Numpy(Library):
    """See :class:`feinsum.interop.library.Library`."""

    name = "numpy"

    def place(self, value: Any) -> str:
        """See :meth:`Library.place`."""
        return "cpu"

    def borrow(self, label: str, value: Any, *, written: bool = False) -> tuple[np.ndarray[Any, Any], str]:
        """See :meth:`Library.borrow`."""
        return np.asarray(value), ""

    def give(self, result: Any) -> tuple[Any, str]:
        """See :meth:`Library.give`."""
        return result, ""
