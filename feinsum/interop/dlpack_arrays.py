"""Arrays in the memory of the host of any library that speaks DLPack.

Results come back by the ``from_dlpack`` of the library: of the namespace that its arrays name (the array API standard), or
of the module that their class comes from.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from feinsum.errors import DTypeError, ValidationError
from feinsum.interop.library import Library, place_of


class Dlpack(Library):
    """See :class:`feinsum.interop.library.Library`; one for each library that is met.

    :param example: an array of the library.
    """

    def __init__(self, example: Any) -> None:
        kind = type(example)
        self.name = kind.__module__.partition(".")[0]
        self._from_dlpack = getattr(_namespace(example), "from_dlpack", None)

    def place(self, value: Any) -> str:
        """See :meth:`Library.place`."""
        return place_of(*value.__dlpack_device__())

    def borrow(self, label: str, value: Any, *, written: bool = False) -> tuple[np.ndarray[Any, Any], str]:
        """See :meth:`Library.borrow`."""
        try:
            found = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise DTypeError(f"{label} is a {type(value).__name__} that numpy cannot take by DLPack: {error}") from None
        if written and not found.flags.writeable:
            raise ValidationError(f"{label} is read-only; pass an array that can be written")
        return found, ""

    def give(self, result: Any) -> tuple[Any, str]:
        """See :meth:`Library.give`.

        :raises ValidationError: if the library has no ``from_dlpack``.
        """
        return self.take(np.asarray(result)), ""

    def take(self, value: Any) -> Any:
        """An array of another library, wherever it is.

        :raises ValidationError: if the library has no ``from_dlpack``.
        """
        if self._from_dlpack is None:
            raise ValidationError(f"{self.name} has no from_dlpack to take the result by; say like='numpy'")
        return self._from_dlpack(value)


def _namespace(example: Any) -> Any:
    if hasattr(example, "__array_namespace__"):
        return example.__array_namespace__()
    return sys.modules.get(type(example).__module__.partition(".")[0])
