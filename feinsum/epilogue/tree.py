"""The expression of an epilogue as a tree, whose leaves are reads and whose other nodes are calls of operators and
functions.

::

    alpha*v + beta*out      EpilogueCall("+", (EpilogueCall("*", (EpilogueScalar("alpha"), Sum())), EpilogueCall("*",
    (EpilogueScalar("beta"), Present()))))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from feinsum.arrays import Array


@dataclass(frozen=True)
class Sum:
    """The sum of the row, ``v``, or of one row of several, ``v0``, ``v1``, ...

    :ivar row: which row; None for that of the epilogue itself.
    """

    row: int | None = None


@dataclass(frozen=True)
class Present:
    """The present content of the output, ``out``."""


@dataclass(frozen=True)
class Read:
    """An entry of an array.

    :ivar axes: for each axis of the array the position in the output's indices of the one that runs along it.
    """

    array: Array
    axes: tuple[int, ...]


@dataclass(frozen=True)
class EpilogueScalar:
    """A number that is given at the call, by this name."""

    name: str


@dataclass(frozen=True)
class EpilogueNumber:
    """A constant; an int wherever it is a whole number below 2**53."""

    value: int | float


@dataclass(frozen=True)
class EpilogueCall:
    """An operator or a function of :data:`feinsum.elementwise.FUNCTIONS` with its arguments."""

    function: str
    arguments: tuple[Node, ...]


Node = Sum | Present | Read | EpilogueScalar | EpilogueNumber | EpilogueCall


def walk_tree(node: Node) -> Iterator[Node]:
    """The node and all below it, from left to right."""
    yield node
    if isinstance(node, EpilogueCall):
        for argument in node.arguments:
            yield from walk_tree(argument)


def rebuild_tree(node: Node, change: Callable[[Node], Node]) -> Node:
    """The tree with `change` applied to every node, to arguments before their calls."""
    if isinstance(node, EpilogueCall):
        node = EpilogueCall(node.function, tuple(rebuild_tree(argument, change) for argument in node.arguments))
    return change(node)


def is_uniform(node: Node) -> bool:
    """Whether a value is the same for every entry of the output."""
    return not any(isinstance(part, (Sum, Present, Read)) for part in walk_tree(node))


def reads_output(node: Node) -> bool:
    """Whether a value depends on the present content of the output."""
    return any(isinstance(part, Present) for part in walk_tree(node))


def vanishing_factor(node: EpilogueCall) -> Node | None:
    """The factor of a product that makes it zero where it is zero, whatever the other one is; None if there is none.

    That is a scalar of the call that multiplies the present content of the output, as in ``beta*out``: where beta is 0, the
    output may hold anything (the rule of the BLAS).
    """
    if node.function != "*":
        return None
    first, second = node.arguments
    for factor, other in ((first, second), (second, first)):
        if is_uniform(factor) and not isinstance(factor, EpilogueNumber) and reads_output(other):
            return factor
    return None
