"""Epilogues: functions of a finished sum, ``out[o] = ω(Σ ..., out[o], z[o|S], ...)``, entry by entry of the output.

``C := αAB + βC`` is ``alpha*v + beta*out``, and a layer of a network is ``gelu(v + b[j])``.  An epilogue is described by
text (:mod:`feinsum.epilogue.text`) and kept as a tree in normal form (:mod:`feinsum.epilogue.tree`, :mod:`.normal_form`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from feinsum.arrays import Array, Axis
from feinsum.elementwise import FUNCTIONS
from feinsum.epilogue.normal_form import normal_form, skeleton
from feinsum.epilogue.text import parse_tree, write_tree
from feinsum.epilogue.tree import (
    EpilogueCall,
    EpilogueNumber,
    EpilogueScalar,
    Node,
    Read,
    Sum,
    reads_output,
    rebuild_tree,
    walk_tree,
)
from feinsum.errors import DTypeError

__all__ = ["Epilogue", "check_types", "computed_in", "parse_epilogue", "uses_of"]


@dataclass(frozen=True)
class Epilogue:
    """A function of a row's sum, or of those of all rows, that is stored; made by :meth:`feinsum.BatchedEinsum.then`.

    The indices at which arrays are read are given by their positions in the output, so that renaming indices changes
    nothing.

    :ivar expression: the tree; it is brought to normal form.
    """

    expression: Node

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", normal_form(self.expression))

    @cached_property
    def reads_output(self) -> bool:
        """Whether the present content of the output is read, so that the output is updated in place."""
        return reads_output(self.expression)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The reads of arrays, no read twice, in order of appearance."""
        return tuple(dict.fromkeys(self.all_reads))

    @cached_property
    def all_reads(self) -> tuple[Read, ...]:
        """The reads of arrays, in order of appearance."""
        return tuple(node for node in walk_tree(self.expression) if isinstance(node, Read))

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays read, in order of appearance."""
        return tuple(dict.fromkeys(read.array for read in self.reads))

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The rows whose sums are read by number, in order; none where it is an epilogue of one row."""
        return tuple(sorted(set(self.all_rows)))

    @cached_property
    def all_rows(self) -> tuple[int, ...]:
        """The same in order of appearance, each as often as it appears."""
        return tuple(node.row for node in walk_tree(self.expression) if isinstance(node, Sum) and node.row is not None)

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The names of the scalars of the call, in order of appearance."""
        return tuple(dict.fromkeys(self.all_scalars))

    @cached_property
    def all_scalars(self) -> tuple[str, ...]:
        """The scalars, each as often as it appears."""
        return tuple(node.name for node in walk_tree(self.expression) if isinstance(node, EpilogueScalar))

    @cached_property
    def operations(self) -> int:
        """Operators and functions for each entry of the output; a function counts as one."""
        free = ("where", "neg", "conj")
        return sum(isinstance(node, EpilogueCall) and node.function not in free for node in walk_tree(self.expression))

    @cached_property
    def is_total(self) -> bool:
        """Whether finite numbers, which are not very large, make a finite number."""
        called = {node.function for node in walk_tree(self.expression) if isinstance(node, EpilogueCall)}
        return all(FUNCTIONS[name].total for name in called)

    def text(self, output: str) -> str:
        """The epilogue as text, for an output of these indices; :func:`parse_epilogue` reads it back."""
        return write_tree(self.expression, output)

    @property
    def skeleton(self) -> str:
        """The epilogue as text without names."""
        return skeleton(self.expression)

    def renamed(
        self,
        arrays: Mapping[str, Array],
        scalars: Mapping[str, str] | None = None,
        rows: Mapping[int, int] | None = None,
    ) -> Epilogue:
        """The epilogue of other arrays, scalars and rows, by the names and numbers of those that it has."""

        def change(node: Node) -> Node:
            if isinstance(node, Read):
                return Read(arrays.get(node.array.name, node.array), node.axes)
            if isinstance(node, EpilogueScalar) and scalars is not None:
                return EpilogueScalar(scalars.get(node.name, node.name))
            if isinstance(node, Sum) and node.row is not None and rows is not None:
                return Sum(rows[node.row])
            return node

        return Epilogue(rebuild_tree(self.expression, change))

    def resized(self, axes: Iterable[Axis]) -> Epilogue:
        """The epilogue of arrays with other axes.

        :param axes: those of the output.
        """
        known = tuple(axes)
        return self.renamed(
            {r.array.name: Array(r.array.name, tuple(known[k] for k in r.axes), r.array.dtype) for r in self.reads}
        )


def parse_epilogue(text: str, output: str, arrays: Mapping[str, Array], rows: int = 1) -> Epilogue:
    """The epilogue that a text describes; see :meth:`feinsum.BatchedEinsum.then`.

    :param output: the indices of the output.
    :param arrays: what it may read, by the names in the text.
    :param rows: the number of rows of which it may make one output.
    :raises SubscriptError: saying what in the text has no meaning.

    >>> parse_epilogue("out*beta + v*alpha", "ij", {}).text("ij")
    'alpha*v + beta*out'
    """
    return Epilogue(parse_tree(text, output, arrays, rows))


def uses_of(epilogues: Iterable[Epilogue | None], output: str) -> tuple[tuple[Array, str], ...]:
    """Each array that some epilogues read, with the indices at which it is read, no pair twice."""
    reads = (read for epilogue in epilogues if epilogue is not None for read in epilogue.reads)
    return tuple(dict.fromkeys((read.array, "".join(output[k] for k in read.axes)) for read in reads))


def computed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which the epilogue of an output is worked out: its own, but 32 bits for narrower integers, as in C."""
    return np.dtype(np.int32) if dtype.kind in "iu" and dtype.itemsize < 4 else dtype


def check_types(epilogue: Epilogue, dtype: np.dtype[Any], text: str) -> None:
    """Check that an epilogue makes numbers of the type of its output.

    :param dtype: of the output, in which everything is computed.
    :param text: the epilogue as text, for errors.
    :raises DTypeError: naming an array or constant that does not promote into that type, or a function that lacks it.
    """
    for array in epilogue.arrays:
        if np.result_type(array.dtype, dtype) != dtype:
            raise DTypeError(
                f"the epilogue '{text}' reads '{array.name}', which is {array.dtype}, and its output is {dtype}, which that"
                " does not promote into; convert the array, or give the einsum operands of a wider type"
            )
    for node in walk_tree(epilogue.expression):
        if isinstance(node, EpilogueCall) and dtype.kind not in FUNCTIONS[node.function].kinds:
            raise DTypeError(f"the epilogue '{text}' takes '{node.function}' of {dtype}, of which there is none")
        if isinstance(node, EpilogueNumber) and dtype.kind in "iu":
            _check_whole(node, dtype, text)


def _check_whole(number: EpilogueNumber, dtype: np.dtype[Any], text: str) -> None:
    info = np.iinfo(dtype)
    if not isinstance(number.value, int) or not info.min <= number.value <= info.max:
        raise DTypeError(f"the epilogue '{text}' has the constant {number.value}, and its output is {dtype}")
