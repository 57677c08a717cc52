"""Epilogues of einsums that kernels compute: the functions of sums that instructions store, in the terms of
:mod:`feinsum.epilogue`.

out[i, j] = exp(sum(k, A(i, k)*B(k, j))) + b[j]        ik,kj->ij  with the epilogue  exp(v) + b[j]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import Reduction, TypeCast
from pymbolic.primitives import (
    Call,
    Comparison,
    If,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    Max,
    Min,
    Power,
    Product,
    Quotient,
    Subscript,
    Sum,
    Variable,
)

from feinsum.arrays import Array, Axis, is_identifier
from feinsum.elementwise import COMPARISONS, FUNCTIONS, NAMED
from feinsum.epilogue import Epilogue, check_types, tree
from feinsum.errors import DTypeError, MatchError
from feinsum.lower.epilogue_expressions import IN_LOOPY
from feinsum.match.einsum_grammar import Rule, refuse
from feinsum.match.finished_sums import match_finished, split_finished, split_several
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.match import Match, choose_instructions, match_bare
from feinsum.match.stored_functions import PRESENT, VALUE, Finishing, output_placeholder, value_of, with_instructions

_NAMES = {name: row.name for row in (*NAMED.values(), FUNCTIONS["**"]) for name in (row.name, row.numpy, row.opencl)} | {
    known: name for name, known in IN_LOOPY.items()
}
"""The functions that kernels may call, by all of their names."""


def match_einsum(
    t_unit: lp.TranslationUnit, kernel_name: str | None = None, insn_match: Any = None, *, epilogues: bool = False
) -> Match:
    """The batched einsum that the chosen instructions compute together, one row an instruction.

    :param t_unit: with substitution rules as operands; see :func:`feinsum.extract_operands` for kernels without.
    :param kernel_name: an entry point or a kernel that others call; None for the only entry point.
    :param insn_match: the instructions, as :func:`loopy.match.parse_match` takes them; None for all.  Barriers and
        instructions that do nothing are passed over.
    :param epilogues: whether instructions may store functions of their sums entry by entry, ``2*sum(...)``,
        ``y[i] + sum(...)``, ``sin(sum(...))*b[i]``; :attr:`Match.epilogues` holds them, and the einsum is that of the sums.
        A single instruction may store a function of several sums, ``sum(...)*sum(...)``, which are the rows.  Arrays are
        read at indices of the output; the output itself at the entry that is written.
    :raises MatchError: naming the instruction, the rule of the grammar that it breaks, and the reason.
    """
    if not epilogues:
        return match_bare(t_unit, kernel_name, insn_match)
    return match_with_epilogues(t_unit, match_finished(t_unit, kernel_name, insn_match))


def find_whole(source: SourceKernel) -> list[Match]:
    """The matches of instructions that make one output of several sums."""
    found = []
    for insn in choose_instructions(source, None):
        try:
            if split_several(source, insn) is not None:
                found.append(match_einsum(source.t_unit, source.kernel.name, f"id:{insn.id}", epilogues=True))
        except MatchError:
            continue
    return found


def set_all_aside(source: SourceKernel) -> tuple[lp.TranslationUnit, dict[str, Finishing]]:
    """The kernel whose instructions store their sums alone where the functions of them are epilogues, and those
    functions."""
    bare, found = {}, {}
    for insn in choose_instructions(source, None):
        try:
            value, finishing = split_finished(source, insn)
            if finishing is not None:
                match_einsum(source.t_unit, source.kernel.name, f"id:{insn.id}", epilogues=True)
                bare[insn.id], found[insn.id] = insn.copy(expression=value), finishing
        except MatchError:
            continue
    return with_instructions(source.t_unit, source.kernel, bare), found


def match_with_epilogues(t_unit: lp.TranslationUnit, match: Match) -> Match:
    """The match with the functions of its sums as epilogues.

    :raises MatchError: if a function is no epilogue, or needs numbers of a wider type than the output's.
    """
    if not match.makes_more:
        return match
    reader = _EpilogueReader(SourceKernel.of(t_unit, match.kernel_name), match)
    found: list[Epilogue | None] = []
    rows = list(zip(match.insn_ids, match.outputs, match.einsum.dtypes, strict=True))
    for insn_id, output, dtype in rows[:1] if match.combines else rows:
        finishing = match.finishing.get(output)
        try:
            found.append(None if finishing is None else reader.read(finishing, dtype))
            if match.combines:
                replace(match.einsum, epilogues=tuple(found))  # which says whether the rows can be one output
        except DTypeError as error:
            raise refuse(insn_id, Rule.READING, str(error)) from None
        except MatchError as error:
            raise refuse(insn_id, Rule.OUTPUT, f"what it makes of its sum is no epilogue: {error}") from None
    return replace(match, epilogues=tuple(found), arrays={**match.arrays, **reader.sources})


class _EpilogueReader:
    """Reads expressions as epilogues; arrays that the einsum has too keep the name they have there.

    :ivar sources: array that an epilogue alone reads -> array of the kernel.
    """

    def __init__(self, source: SourceKernel, match: Match) -> None:
        self._source, self._match = source, match
        plain = {a.name: a for a in match.einsum.arrays}
        self._known = {own: plain[name] for name, own in match.arrays.items() if source.is_array(own)}
        self._sums = {value_of(row): tree.Sum(row) for row in range(match.einsum.b)}
        self._taken = {*plain, *match.axes, *match.einsum.output_names, "v", "out"}
        self._taken |= {f"v{row}" for row in range(match.einsum.b)}
        self.sources: dict[str, str] = {}
        self._dtype = np.dtype(np.float64)

    def read(self, finishing: Finishing, dtype: np.dtype[Any]) -> Epilogue:
        """The epilogue of an output of this type."""
        self._dtype = dtype
        epilogue = Epilogue(self._node(finishing.expression))
        check_types(epilogue, dtype, epilogue.text(self._match.einsum.indexing.output))
        return epilogue

    def _node(self, value: Any) -> tree.Node:
        match value:
            case Variable() | Subscript():
                return self._leaf(value)
            case bool() | complex() | np.complexfloating():
                raise MatchError(f"it has the constant {value}")
            case int() | float() | np.integer() | np.floating():
                return tree.EpilogueNumber(value.item() if isinstance(value, np.generic) else value)
            case Sum() | Product() | LogicalAnd() | LogicalOr() | Min() | Max():
                return self._fold(value)
            case Quotient():
                return tree.EpilogueCall("/", (self._node(value.numerator), self._node(value.denominator)))
            case Power():
                return tree.EpilogueCall("**", (self._node(value.base), self._node(value.exponent)))
            case LogicalNot():
                return tree.EpilogueCall("not", (self._node(value.child),))
            case If():
                return tree.EpilogueCall("where", tuple(map(self._node, (value.condition, value.then, value.else_))))
            case Comparison():
                operator = str(getattr(value.operator, "value", value.operator))
                if operator in COMPARISONS:
                    return tree.EpilogueCall(operator, (self._node(value.left), self._node(value.right)))
        return self._call(value)

    def _fold(self, value: Any) -> tree.Node:
        names = {Sum: "+", Product: "*", LogicalAnd: "and", LogicalOr: "or", Min: "min", Max: "max"}
        first, *others = map(self._node, value.children)
        for other in others:
            negative = isinstance(value, Product) and first == tree.EpilogueNumber(-1)
            first = (
                tree.EpilogueCall("neg", (other,)) if negative else tree.EpilogueCall(names[type(value)], (first, other))
            )
        return first

    def _call(self, value: Any) -> tree.Node:
        if isinstance(value, TypeCast):
            real = np.empty(0, self._dtype).real.dtype
            if value.type.numpy_dtype in (self._dtype, real):
                return self._node(value.child)
            raise MatchError(f"it converts to {value.type.numpy_dtype}, and the output is {self._dtype}")
        if isinstance(value, Call):
            name = _NAMES.get(value.function.name)
            if name is not None and len(value.parameters) == FUNCTIONS[name].arity:
                return tree.EpilogueCall(name, tuple(map(self._node, value.parameters)))
            raise MatchError(f"it calls '{value.function.name}', which is no function of epilogues")
        kind = "another sum" if isinstance(value, Reduction) else f"{value}"
        raise MatchError(f"it has {kind}, which no epilogue has")

    def _leaf(self, value: Any) -> tree.Node:
        if value == VALUE:
            return tree.Sum()
        if value in self._sums:
            return self._sums[value]
        if value == PRESENT:
            return tree.Present()
        name = value.aggregate.name if isinstance(value, Subscript) else value.name
        if isinstance(value, Variable) and self._source.is_parameter(name):
            return tree.EpilogueScalar(name)
        index = value.index_tuple if isinstance(value, Subscript) else ()
        output = self._match.einsum.indexing.output
        places = [output_placeholder(k) for k in range(len(output))]
        axes = tuple(places.index(at) for at in index)
        return tree.Read(self._array(name, tuple(self._match.einsum.index_sizes[output[k]] for k in axes)), axes)

    def _array(self, name: str, shape: tuple[Axis, ...]) -> Array:
        """The array of the einsum of that name in the kernel, or one that only epilogues read."""
        known = self._known.get(name)
        if known is None:
            own = name.lstrip("_") or "array"
            own = own if is_identifier(own) else f"array_{own}"
            while own in self._taken:
                own += "_"
            known = self._known[name] = Array(own, shape, self._source.dtype(name))
            self._taken.add(own)
            self.sources[own] = name
        if known.shape != shape:
            raise MatchError(f"it reads '{name}' over {shape}, which is {known.shape} elsewhere")
        return known
