"""The interface of a library of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
"""Kinds of devices as DLPack numbers them (``DLDeviceType`` in dlpack.h)."""
_KINDS: Mapping[int, str] = {CPU: "cpu", CUDA: "cuda", CUDA_HOST: "cpu", CUDA_MANAGED: "cuda"}
_LEAST_ALIGNMENT = 64


class Library(Protocol):
    """The arrays of one library.

    :ivar name: as in ``like=``.
    """

    name: str

    def place(self, value: Any) -> str:
        """Where an array is: ``"cpu"``, ``"cuda:0"`` and so on; else a word for errors."""

    def borrow(self, label: str, value: Any, *, written: bool = False) -> tuple[np.ndarray[Any, Any], str]:
        """An array of the host as numpy sees it, and why it was copied for that; empty if it was not.

        :param label: what errors call it.
        :param written: whether it is to be written to.
        :raises ValidationError, DTypeError: if that cannot be.
        """

    def give(self, result: Any) -> tuple[Any, str]:
        """An array of numpy's as one of this library, and why it was copied for that; empty if it was not."""

    def written(self, value: Any) -> None:
        """Tell the library that one of its arrays was written to, if it has to know."""
        return


def place_of(kind: int, number: int) -> str:
    """The name of a device of DLPack: ``"cpu"``, ``"cuda:0"``; for others, its number."""
    name = _KINDS.get(int(kind), f"DLPack device type {int(kind)}")
    return f"cuda:{number}" if name == "cuda" else name
