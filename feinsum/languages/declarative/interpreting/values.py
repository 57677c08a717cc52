"""Values of all indices at once: arrays whose first axes are the indices that enclose an expression.

A value of depth d has d such axes, each of the length of its index or of 1 where the value is the same for all; behind them
come its own axes.  A literal is *weak*: it takes the type of what it meets, as numbers of Python do in numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Weak = Literal["", "int", "float"]


@dataclass(frozen=True)
class IndexedValue:
    """Numbers for all indices; `weak` says what kind of literal they are, if they are one."""

    data: Any
    depth: int = 0
    weak: Weak = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes of its own."""
        found: tuple[int, ...] = self.data.shape[self.depth :]
        return found

    def at_depth(self, depth: int) -> Any:
        """The data with axes for all indices that are open, of length 1 where they are new."""
        if depth == self.depth:
            return self.data
        return self.data.reshape((*self.data.shape[: self.depth], *(1,) * (depth - self.depth), *self.shape))


def literal_value(value: bool | int | float) -> IndexedValue:
    """A literal."""
    if isinstance(value, bool):
        return IndexedValue(np.asarray(value))
    return IndexedValue(np.asarray(value, np.int64 if isinstance(value, int) else np.float64), 0, _value_kind(value))


def _value_kind(value: int | float) -> Weak:
    return "int" if isinstance(value, int) else "float"


def common_type(values: list[IndexedValue]) -> tuple[np.dtype[Any], Weak]:
    """The type of what is computed from values, and whether that is weak."""
    strong = [v.data.dtype for v in values if not v.weak]
    weak_float = any(v.weak == "float" for v in values)
    if not strong:
        return np.dtype(np.float64 if weak_float else np.int64), "float" if weak_float else "int"
    found = np.result_type(*strong)
    if weak_float and found.kind not in "fc":
        return np.dtype(np.float64), ""
    if found.kind == "b" and any(v.weak for v in values):
        return np.dtype(np.int64), "int"
    return found, ""


def aligned_values(values: list[IndexedValue], depth: int) -> list[Any]:
    """The data of values at a depth, with new axes where one is a number and another a tensor."""
    rank = max(len(v.shape) for v in values)
    found = []
    for v in values:
        data = v.at_depth(depth)
        found.append(data if len(v.shape) == rank else data.reshape((*data.shape, *(1,) * (rank - len(v.shape)))))
    return found


def gather_elements(base: Any, lead: int, picks: list[Any]) -> Any:
    """Elements of an array, by arrays of indices for its axes behind the first `lead`; those are gone through in step.

    The arrays of indices have `lead` axes in front that broadcast against those of `base`, and maybe others behind.
    """
    rank = max([lead, *(pick.ndim for pick in picks)])
    if not base.size:  # nothing of it is wanted
        return np.zeros(
            np.broadcast_shapes((*base.shape[:lead], *(1,) * (rank - lead)), *(p.shape for p in picks)), base.dtype
        )
    leads = []
    for axis in range(lead):
        length = base.shape[axis]
        leads.append(np.arange(length).reshape((1,) * axis + (length,) + (1,) * (rank - axis - 1)) if length > 1 else 0)
    return base[(*leads, *picks)]
