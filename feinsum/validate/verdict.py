"""The verdict of a proof on a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """Whether a kernel is right.

    :ivar message: what is wrong, where and by how much; empty if nothing is.
    :ivar worst: the largest error as a fraction of its bound.
    :ivar escaped: whether it wrote where it must not, so that the memory of this process cannot be relied on any more.
    """

    message: str
    worst: float
    escaped: bool = False

    @property
    def ok(self) -> bool:
        return not self.message
