"""Einsums of terms: axes in reversed order, as column-major arrays are C-contiguous when transposed; the group id is long.

D[m, l, e] := alpha K[m, k] Q[k, n, e] A[n, l] + D[m, l, e]   →   "km,enk,ln->elm" then "alpha*v + out"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, Final

import numpy as np

from feinsum.einsum import Array, BatchedEinsum, array, einsum
from feinsum.errors import FeinsumError
from feinsum.languages.source import Span
from feinsum.languages.tensor.interpreting.numbers import dtype_of
from feinsum.languages.tensor.ir import Function, Value
from feinsum.languages.tensor.passes import PASSES
from feinsum.languages.tensor.recognising.terms import GROUP_ID, Block, Term, UnrecognisedError, Update, recognise
from feinsum.languages.tensor.types import F32, F64, Extent, Group, Memref

BATCH: Final = "E"
"""The name of the axis that counts instances."""
_TYPES: Final = (F32, F64)
"""Those for which kernels of einsums were measured."""


@dataclass(frozen=True)
class Contraction:
    """An einsum that updates an array.

    :ivar einsum: of the parameters by their :func:`name_of`, transposed.
    :ivar output: the parameter that is written.
    :ivar operands: those that are read, in order, each with the block that is read of it.
    :ivar epilogue: what is made of the sum; empty where it is stored as it is.
    :ivar scalars: parameters that are given at the call.
    :ivar spans: the instructions that it stands for.
    :ivar axes: the name of the long axis that each unknown size is: ``"D.2"``, or ``"A"`` for the memrefs of a group.
    """

    einsum: BatchedEinsum
    output: Value
    operands: tuple[tuple[Value, Block], ...]
    epilogue: str
    scalars: tuple[Value, ...]
    spans: tuple[Span, ...]
    axes: Mapping[str, str]

    @property
    def formula(self) -> str:
        """The einsum as text."""
        operands = ", ".join(f"%{value.name}{_shown(block)}" for value, block in self.operands)
        epilogue = re.sub(r"\bp_", "%", self.epilogue)
        return f"{self.einsum.subscripts} of {operands}" + (f", then {epilogue}" if epilogue else "")

    @property
    def gaps(self) -> tuple[str, ...]:
        """What does not lie in memory as einsums have it."""
        blocks = [f"%{value.name}{_shown(block)} is a block" for value, block in self.operands if any(block)]
        values = dict.fromkeys([*(value for value, _ in self.operands), self.output])
        return (
            *dict.fromkeys(blocks),
            *(f"%{v.name} has gaps between its elements" for v in values if not _memref(v).is_packed),
        )


def name_of(value: Value, block: Block = ()) -> str:
    """The name of a parameter in einsums and epilogues, where a few names mean something else."""
    parts = "".join("_all" if part is None else f"_{part[0]}_{part[1]}" for part in block) if any(block) else ""
    return "p_" + re.sub(r"\W", "_", value.name) + parts


def _shown(block: Block) -> str:
    """A block as ``subview`` has it; empty for all of an array."""
    if not any(block):
        return ""
    return f"[{', '.join(':' if part is None else f'{part[0]}:{part[1]}' for part in block)}]"


def contractions(function: Function) -> tuple[Contraction, ...]:
    """The einsums of which a function consists, in order.

    :raises UnrecognisedError: if it does something else.
    """
    for name in ("names", "constants", "dead-code"):
        function = PASSES[name](function)
    updates, sizes = recognise(function)
    _check_types(function)
    found = [made for update in updates for made in _of_update(update, sizes)]
    return tuple(found)


def _check_types(function: Function) -> None:
    """All arrays are of one type, in which everything is computed."""
    elements = set()
    memrefs = [(value, _memref(value)) for value in function.parameters if isinstance(value.type, (Memref, Group))]
    memrefs += [(op.results[0], _memref(op.results[0])) for op in function.body.walk() if op.name == "alloca"]
    for value, memref in memrefs:
        elements.add(memref.element)
        if memref.element not in _TYPES:
            raise UnrecognisedError(f"%{value.name} is of {memref.element}", value.span)
        if isinstance(value.type, Group) and (None in memref.shape or value.type.offset != 0):
            raise UnrecognisedError(f"the memrefs of %{value.name} differ in size, or have an offset", value.span)
    if len(elements) > 1:
        raise UnrecognisedError("arrays are of several types", function.span)


def _memref(value: Value) -> Memref:
    found = value.type.memref if isinstance(value.type, Group) else value.type
    assert isinstance(found, Memref)
    return found


def _of_update(update: Update, sizes: Mapping[int, Extent]) -> Iterator[Contraction]:
    """One einsum for each term: the first sees what was there, the others add."""
    scale = update.scale
    for term in update.terms:
        factors = {letter for factor in term.factors for letter in factor.letters}
        if missing := [letter for letter in update.letters if letter not in factors]:
            what = "the group id" if GROUP_ID in missing else "a mode"
            raise UnrecognisedError(f"%{update.root.name} has {what} that its factors have not", update.spans[-1])
        if GROUP_ID in factors and GROUP_ID not in update.letters:
            raise UnrecognisedError(f"every instance writes all of %{update.root.name}", update.spans[-1])
        yield _contraction(update, term, scale, sizes)
        scale = Term(1)


def _contraction(update: Update, term: Term, scale: Term | None, sizes: Mapping[int, Extent]) -> Contraction:
    letters: dict[int, str] = {}
    for letter in (*update.letters, *(x for factor in term.factors for x in factor.letters)):
        if letter not in letters:
            if len(letters) == len(ascii_lowercase):
                raise UnrecognisedError("an einsum of more than 26 indices", update.spans[-1])
            letters[letter] = ascii_lowercase[len(letters)]

    def subscript(own: Sequence[int]) -> str:
        # a group's memrefs lie one behind the other
        return "".join(letters[letter] for letter in own)

    arrays: dict[str, Array] = {}
    inputs = []
    for factor in term.factors:
        own = _reversed(factor.root, factor.letters)
        inputs.append(subscript(own))
        name = name_of(factor.root, factor.block)
        arrays[name] = _array(name, _memref(factor.root), own, letters, sizes)
    output = subscript(_reversed(update.root, update.letters))
    try:
        e = einsum(
            f"{','.join(inputs)}->{output}", *(arrays[name_of(factor.root, factor.block)] for factor in term.factors)
        )
    except FeinsumError as error:
        raise UnrecognisedError(str(error), update.spans[-1]) from None
    scalars = dict.fromkeys([*term.scalars, *(scale.scalars if scale else ())])
    operands = tuple((factor.root, factor.block) for factor in term.factors)
    axes: dict[str, str] = {}
    for root, own in ((update.root, update.letters), *((factor.root, factor.letters) for factor in term.factors)):
        axes.update(_axes(root, own, letters, sizes))
    return Contraction(e, update.root, operands, _epilogue(term, scale), tuple(scalars), update.spans, axes)


def _axes(root: Value, own: Sequence[int], letters: Mapping[int, str], sizes: Mapping[int, Extent]) -> dict[str, str]:
    """The long axes of a parameter, by its unknown sizes."""
    found = {}
    for mode, letter in enumerate(own):
        name = f"{root.name}.{mode}" if isinstance(root.type, Memref) else root.name if mode == 0 else ""
        if letter == GROUP_ID:
            found[name] = BATCH
        elif sizes[letter] is None:
            found[name] = f"n_{letters[letter]}"
    return found


def _reversed(root: Value, letters: Sequence[int]) -> tuple[int, ...]:
    """The axes of the array that is transposed: of a group the first stays."""
    if isinstance(root.type, Group):
        return (letters[0], *reversed(letters[1:]))
    return tuple(reversed(letters))


def _array(name: str, memref: Memref, own: Sequence[int], letters: Mapping[int, str], sizes: Mapping[int, Extent]) -> Array:
    def axis(letter: int) -> Any:
        if letter == GROUP_ID:
            return BATCH
        known = sizes[letter]
        return known if known is not None else f"n_{letters[letter]}"

    return array(name, tuple(axis(letter) for letter in own), np.dtype(dtype_of(memref.element)).name)


def _epilogue(term: Term, scale: Term | None) -> str:
    """What is made of the sum, as :meth:`feinsum.BatchedEinsum.then` has it.

    >>> _epilogue(Term(1), None), _epilogue(Term(2.0), Term(1))
    ('', '2.0*v + out')
    """
    value = _scaled("v", term)
    if scale is None:
        return "" if value == "v" else value
    return f"{value} + {_scaled('out', scale)}"


def _scaled(what: str, by: Term) -> str:
    number = [] if by.number == 1 else [repr(float(by.number))]
    return "*".join([*number, *(name_of(value) for value in by.scalars), what])
