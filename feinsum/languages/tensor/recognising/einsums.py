"""Einsums of terms: axes in reversed order, as column-major arrays are C-contiguous when transposed; the group id is long.

D[m, l, e] := alpha K[m, k] Q[k, n, e] A[n, l] + D[m, l, e]   →   "km,enk,ln->elm" then "alpha*v + out"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import Any, Final, TypeAlias

import numpy as np

from feinsum.einsum import Array, array, einsum
from feinsum.errors import FeinsumError
from feinsum.languages.calling.protocols import INSTANCES
from feinsum.languages.calling.stage import EinsumStage
from feinsum.languages.source import Span
from feinsum.languages.tensor.ir import TensorFunction, TensorValue
from feinsum.languages.tensor.numbers import dtype_of
from feinsum.languages.tensor.passes import PASSES
from feinsum.languages.tensor.recognising.combinations import Combination, batch_modes, is_added
from feinsum.languages.tensor.recognising.operands import EinsumOperand, readable, scaled
from feinsum.languages.tensor.recognising.stacking import EinsumProduct, stacked_products
from feinsum.languages.tensor.recognising.terms import (
    GROUP_ID,
    MOST_TERMS,
    Factor,
    ProductTerm,
    RecognisedUpdate,
    UnrecognisedError,
    recognise,
    transposed,
)
from feinsum.languages.tensor.types import F32, F64, Extent, PointerGroup, TensorMemref

_TYPES: Final = (F32, F64)
"""The types for which kernels of einsums were measured."""


@dataclass(frozen=True)
class EinsumUpdate(EinsumStage[EinsumOperand]):
    """An einsum of transposed parameters that updates an array; arrays are named by :func:`.operands.name_of`.

    :ivar output: the parameter that is written, or local memory of all instances.
    :ivar epilogue: what is made of the sum; empty where it is stored as it is.
    :ivar scalars: parameters that are given at the call.
    :ivar spans: the instructions that it stands for.
    :ivar axes: the name of the long axis that each unknown size is: ``"D.2"``, or ``"A"`` for the memrefs of a group.
    """

    output: TensorValue
    epilogue: str
    scalars: tuple[TensorValue, ...]
    spans: tuple[Span, ...]
    axes: Mapping[str, str]

    @property
    def formula(self) -> str:
        """The einsum as text."""
        epilogue = readable(self.epilogue)
        operands = ", ".join(str(self.operands[array.name]) for (array,) in self.einsum.args[0])
        return f"{self.einsum.subscripts} of {operands}" + (f", then {epilogue}" if epilogue else "")

    @property
    def gaps(self) -> tuple[str, ...]:
        """The arrays that do not lie in memory as einsums need, each with the reason."""
        stacked = [f"{one} is stacked" for one in self.operands.values() if one.counter is not None]
        factors = [one.factors[0] for one in self.operands.values() if one.counter is None]
        blocks = [f"{EinsumOperand((factor,))} is a block" for factor in factors if any(factor.block)]
        values = dict.fromkeys([*(factor.root for factor in factors), self.output])
        return (
            *dict.fromkeys([*stacked, *blocks]),
            *(f"%{v.name} has gaps between its elements" for v in values if not _root_memref(v).is_packed),
        )


Step: TypeAlias = EinsumUpdate | Combination


def function_steps(function: TensorFunction) -> tuple[Step, ...]:
    """The einsums and combinations of which a function consists, in order.

    :raises UnrecognisedError: if it does something else.
    """
    for name in ("names", "constants", "dead-code"):
        function = PASSES[name](function)
    updates, sizes = recognise(function)
    _check_one_type(function)
    letters, stacked = dict(sizes), set[str]()
    return tuple(made for update in updates for made in _of_update(update, letters, stacked))


def _check_one_type(function: TensorFunction) -> None:
    """Check that all arrays are of one type, in which everything is computed."""
    elements = set()
    memrefs = [
        (value, _root_memref(value))
        for value in function.parameters
        if isinstance(value.type, (TensorMemref, PointerGroup))
    ]
    memrefs += [(op.results[0], _root_memref(op.results[0])) for op in function.body.walk() if op.name == "alloca"]
    for value, memref in memrefs:
        elements.add(memref.element)
        if memref.element not in _TYPES:
            raise UnrecognisedError(f"%{value.name} is of {memref.element}", value.span)
        if isinstance(value.type, PointerGroup) and (None in memref.shape or value.type.offset != 0):
            raise UnrecognisedError(f"the memrefs of %{value.name} differ in size, or have an offset", value.span)
    if len(elements) > 1:
        raise UnrecognisedError("arrays are of several types", function.span)


def _root_memref(value: TensorValue) -> TensorMemref:
    found = value.type.memref if isinstance(value.type, PointerGroup) else value.type
    assert isinstance(found, TensorMemref)
    return found


def _of_update(update: RecognisedUpdate, sizes: MutableMapping[int, Extent], stacked: set[str]) -> Iterator[Step]:
    """One einsum for each product: the first sees what was there, the others add.  If blocks are added to, one more step
    adds to these, and all arrays that are added as they are."""
    added = [term for term in update.terms if is_added(term, update)] if any(t.block for t in update.terms) else []
    rest = replace(update, terms=tuple(term for term in update.terms if term not in added))
    for term in rest.terms:
        _check_letters(update, {letter for factor in term.factors for letter in factor.letters})
    scale = update.scale
    for product in stacked_products(rest, sizes, stacked):
        yield _einsum_of_product(update, product, scale, sizes)
        scale = ProductTerm(1)
    if len(added) > MOST_TERMS:
        raise UnrecognisedError(f"it is a sum of {len(added)} arrays, more than {MOST_TERMS}", update.spans[-1])
    if added:
        yield Combination.of(update, added, scale)


def _check_letters(update: RecognisedUpdate, factors: set[int]) -> None:
    """A term has all letters of what it is added to, and no group id else."""
    if missing := [letter for letter in update.letters if letter not in factors]:
        what = "the group id" if GROUP_ID in missing else "a mode"
        raise UnrecognisedError(f"%{update.root.name} has {what} that its factors have not", update.spans[-1])
    if GROUP_ID in factors and GROUP_ID not in update.letters:
        raise UnrecognisedError(f"every instance writes all of %{update.root.name}", update.spans[-1])


def _einsum_of_product(
    update: RecognisedUpdate, product: EinsumProduct, scale: ProductTerm | None, sizes: Mapping[int, Extent]
) -> EinsumUpdate:
    term, operands = product.term, product.operands
    letters: dict[int, str] = {}
    for letter in (*update.letters, *(x for one in operands for factor in one.factors for x in factor.letters)):
        _name_letter(letter, letters, update)
    for letter in (x for one in operands for x in one.letters):
        _name_letter(letter, letters, update)
    inputs = ",".join("".join(letters[x] for x in one.letters) for one in operands)
    output = "".join(letters[x] for x in transposed(update.root, update.letters))
    arrays = {one.name: _operand_array(one, letters, sizes) for one in operands}
    try:
        e = einsum(f"{inputs}->{output}", *(arrays[one.name] for one in operands))
        e = e.then(epilogue) if (epilogue := _epilogue_of_term(term, scale)) else e
    except FeinsumError as error:
        raise UnrecognisedError(str(error), update.spans[-1]) from None
    scalars = dict.fromkeys([*term.scalars, *(scale.scalars if scale else ())])
    whole = Factor.whole(update.root, update.letters)
    axes: dict[str, str] = {}
    for factor in (whole, *(factor for one in operands for factor in one.factors)):
        axes.update(_long_axes_of(factor, letters, sizes))
    own = {one.name: one for one in operands}
    return EinsumUpdate(e, own, update.root, epilogue, tuple(scalars), update.spans, axes)


def _name_letter(letter: int, letters: dict[int, str], update: RecognisedUpdate) -> None:
    """Give a letter the next name, if it has none yet."""
    if letter not in letters:
        if len(letters) == len(ascii_lowercase):
            raise UnrecognisedError("an einsum of more than 26 indices", update.spans[-1])
        letters[letter] = ascii_lowercase[len(letters)]


def _long_axes_of(factor: Factor, letters: Mapping[int, str], sizes: Mapping[int, Extent]) -> dict[str, str]:
    """The long axes of a parameter, by its unknown sizes."""
    found = dict.fromkeys(batch_modes(factor), INSTANCES)
    if isinstance(factor.root.type, TensorMemref):
        for mode, letter in zip(factor.modes, factor.letters, strict=True):
            if letter != GROUP_ID and sizes[letter] is None:
                found[f"{factor.root.name}.{mode}"] = f"n_{letters[letter]}"
    return found


def _operand_array(operand: EinsumOperand, letters: Mapping[int, str], sizes: Mapping[int, Extent]) -> Array:
    def axis(letter: int) -> Any:
        if letter == GROUP_ID:
            return INSTANCES
        known = sizes[letter]
        return known if known is not None else f"n_{letters[letter]}"

    element = _root_memref(operand.factors[0].root).element
    return array(operand.name, tuple(axis(letter) for letter in operand.letters), np.dtype(dtype_of(element)).name)


def _epilogue_of_term(term: ProductTerm, scale: ProductTerm | None) -> str:
    """The function of the sum, in the notation of :meth:`feinsum.BatchedEinsum.then`.

    >>> _epilogue_of_term(ProductTerm(1), None), _epilogue_of_term(ProductTerm(2.0), ProductTerm(1))
    ('', '2.0*v + out')
    """
    value = scaled("v", term)
    if scale is None:
        return "" if value == "v" else value
    return f"{value} + {scaled('out', scale)}"
