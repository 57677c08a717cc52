"""A resolved function: updates of views, loops and barriers, all names looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from feinsum.languages.immediate.syntax import Function, Update
from feinsum.languages.immediate.views import Variable, View


@dataclass(frozen=True, eq=False)
class Step:
    """An update of views."""

    update: Update
    operands: tuple[View, ...]
    result: View


@dataclass(frozen=True, eq=False)
class Loop:
    """Steps that are repeated."""

    variable: Variable
    body: tuple[Action, ...]


@dataclass(frozen=True, eq=False)
class Fence:
    """A barrier."""


Action: TypeAlias = Step | Loop | Fence


@dataclass(frozen=True, eq=False)
class Resolved:
    """A function whose names are looked up.

    :ivar function: as it was written, with the types that were corrected.
    :ivar is_batched: whether it is executed for each item of groups.
    """

    function: Function
    actions: tuple[Action, ...]
    is_batched: bool
