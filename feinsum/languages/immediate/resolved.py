"""A resolved function: updates of views, loops and barriers, all names looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from feinsum.languages.immediate.syntax import ImmediateFunction, ImmediateUpdate
from feinsum.languages.immediate.views import ImmediateView, IntegerVariable


@dataclass(frozen=True, eq=False)
class ViewUpdate:
    """An update of views."""

    update: ImmediateUpdate
    operands: tuple[ImmediateView, ...]
    result: ImmediateView


@dataclass(frozen=True, eq=False)
class Loop:
    """Steps that are repeated."""

    variable: IntegerVariable
    body: tuple[Action, ...]


@dataclass(frozen=True, eq=False)
class Fence:
    """A barrier."""


Action: TypeAlias = ViewUpdate | Loop | Fence


@dataclass(frozen=True, eq=False)
class Resolved:
    """A function whose names are looked up.

    :ivar function: as it was written, with the types that were corrected.
    :ivar is_batched: whether it is executed for each item of groups.
    """

    function: ImmediateFunction
    actions: tuple[Action, ...]
    is_batched: bool
