"""Calls like earlier ones: the facts found about a call are kept for all calls with arrays alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

V = TypeVar("V")


class CallCache(dict[Any, V]):
    """Facts about calls, by their keys; it forgets all when it has `most` of them."""

    def __init__(self, most: int = 512) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Any, value: V) -> None:
        if len(self) >= self._most:
            self.clear()
        super().__setitem__(key, value)


def likeness(arrays: Iterable[Any]) -> tuple[Any, ...] | None:
    """The classes, shapes, strides and types of arrays, the key of calls that one kernel serves in the same way; None if
    something among them is not an array."""
    try:
        return tuple([(one.__class__, one.shape, one.strides, one.dtype) for one in arrays])
    except AttributeError:
        return None
