"""The meanings of names: parts of tensors in memory, as boxes of indices, and integers.

A slice has no step and an index is a number or a variable, so that every view is a box of its root: an argument, an item
of a group, or an alloca.  Whether two views overlap is decided index by index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from feinsum.languages.immediate.types import ImmediateMemref, ImmediateScalar, MemrefGroup
from feinsum.languages.source import Span

NOWHERE = Span(0, 0)


@dataclass(frozen=True, eq=False)
class IntegerVariable:
    """An integer: a loop variable with `start <= value < stop`, or an argument, of which that is not known.

    Two of one name are two variables, for loops that stand side by side may call theirs alike.
    """

    name: str
    type: ImmediateScalar
    start: int | None = None
    stop: int | None = None
    span: Span = NOWHERE

    @property
    def values(self) -> range:
        """The values of a loop variable, in order."""
        assert self.start is not None
        assert self.stop is not None
        return range(self.start, self.stop)


@dataclass(frozen=True, eq=False)
class Root:
    """A tensor in memory.

    :ivar kind: an argument that all work-items share, an item of a group, or memory of one work-item.
    :ivar group: the parameter that it is an item of.
    :ivar offset: what is added to the number of the work-item.
    """

    name: str
    kind: Literal["argument", "item", "alloca"]
    type: ImmediateMemref
    group: str = ""
    offset: IntegerVariable | None = None
    span: Span = NOWHERE
    depth: int = 0


@dataclass(frozen=True)
class Bounds:
    """Values of one index of a root: `low <= value < high`; of a variable it is one of them, `base` plus its value."""

    low: int
    high: int
    variable: IntegerVariable | None = None
    base: int = 0

    def meets(self, other: Bounds) -> bool:
        """Whether a value may be in both."""
        return self.low < other.high and other.low < self.high

    @property
    def is_point(self) -> bool:
        """Whether it is one value, at one time."""
        return self.variable is not None or self.high == self.low + 1


@dataclass(frozen=True)
class ImmediateView:
    """A box of a root.

    :ivar bounds: of each index of the root.
    :ivar axes: which of these the indices of the view are.
    """

    root: Root
    bounds: tuple[Bounds, ...]
    axes: tuple[int, ...]
    span: Span = field(default=Span(0, 0), compare=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths, first index first."""
        return tuple(self.bounds[axis].high - self.bounds[axis].low for axis in self.axes)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances in elements."""
        return tuple(self.root.type.strides[axis] for axis in self.axes)

    @property
    def type(self) -> ImmediateMemref:
        """The type of the view by the document's rules: integers drop their index, strides stay."""
        return ImmediateMemref(self.root.type.element, self.shape, self.strides)

    @property
    def offset(self) -> tuple[int, Mapping[IntegerVariable, int]]:
        """Elements in front of it in its root, and those for each variable times its value."""
        constant, factors = 0, dict[IntegerVariable, int]()
        for bounds, stride in zip(self.bounds, self.root.type.strides, strict=True):
            if bounds.variable is None:
                constant += bounds.low * stride
            else:
                constant += bounds.base * stride
                factors[bounds.variable] = factors.get(bounds.variable, 0) + stride
        return constant, factors

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its root, in the order of this."""
        return self.axes == tuple(range(self.root.type.order)) and self.shape == self.root.type.shape

    def overlaps(self, other: ImmediateView) -> bool:
        """Whether the two may have an element in common, at one time; arguments are apart, as calls check."""
        if self.root is not other.root:
            same = self.root.group == other.root.group != "" and self.root.offset is other.root.offset
            return same and self._boxes_meet(other)
        return self._boxes_meet(other)

    def _boxes_meet(self, other: ImmediateView) -> bool:
        return all(a.meets(b) for a, b in zip(self.bounds, other.bounds, strict=True))


def whole_root(root: Root) -> ImmediateView:
    """The view of all of a root."""
    bounds = tuple(Bounds(0, length) for length in root.type.shape)
    return ImmediateView(root, bounds, tuple(range(root.type.order)), root.span)


Meaning: TypeAlias = IntegerVariable | ImmediateView | MemrefGroup | ImmediateScalar | None
"""The meaning of a name: of a float argument its type, of an erroneous name nothing."""
