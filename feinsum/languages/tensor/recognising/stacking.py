"""Stacking: several terms of one form as one product, with an index more that is summed over.

Q[m, p] := K_0[m, l] P[l, q] A_0[q, p] + K_1[m, l] P[l, q] A_1[q, p] + Q[m, p]
  →  Q[m, p] := K[m, l, d] P[l, q] A[q, p, d] + Q[m, p],   K and A made of those of all terms at every call
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from feinsum.languages.tensor.recognising.operands import EinsumOperand
from feinsum.languages.tensor.recognising.terms import GROUP_ID, Letters, ProductTerm, RecognisedUpdate
from feinsum.languages.tensor.types import Extent


@dataclass(frozen=True)
class EinsumProduct:
    """The products that one einsum sums: the numbers of a term, and operands."""

    term: ProductTerm
    operands: tuple[EinsumOperand, ...]


def stacked_products(
    update: RecognisedUpdate, sizes: MutableMapping[int, Extent], stacked: set[str]
) -> list[EinsumProduct]:
    """The products of which an update is the sum; terms of one form are one where that pays.

    :param sizes: of letters; those that count what is stacked are added.
    :param stacked: names of operands that are stacked for other products; those of these are added.
    """
    forms: dict[Any, list[ProductTerm]] = {}
    for term in update.terms:
        forms.setdefault(_stacking_form(term, update.letters, sizes), []).append(term)
    found = []
    for terms in forms.values():
        operands = _stacked_operands(terms, max(sizes, default=GROUP_ID) + 1)
        if len(terms) > 1 and _pays(operands, len(terms), update.letters, sizes, stacked):
            sizes[max(sizes) + 1] = len(terms)
            stacked.update(one.name for one in operands if one.counter is not None)
            found.append(EinsumProduct(terms[0], operands))
        else:
            found += [EinsumProduct(term, tuple(EinsumOperand((factor,)) for factor in term.factors)) for term in terms]
    return found


def _stacking_form(term: ProductTerm, output: Letters, sizes: MutableMapping[int, Extent]) -> Any:
    """The form that terms must share to be stacked: numbers, and the places of indices, of terms with known sizes."""
    own = [factor.transposed for factor in term.factors]
    if any(sizes[letter] is None for letters in own for letter in letters if letter != GROUP_ID):
        return id(term)
    bound = list(dict.fromkeys(letter for letters in own for letter in letters if letter not in output))
    axes = tuple(
        tuple((letter, 0) if letter in output else (~bound.index(letter), sizes[letter]) for letter in letters)
        for letters in own
    )
    return term.number, tuple(sorted(value.name for value in term.scalars)), axes


def _stacked_operands(terms: Sequence[ProductTerm], counter: int) -> tuple[EinsumOperand, ...]:
    """The operands of terms of one form: what differs is stacked."""
    renamed = [term.renamed(_letters_of(terms[0], term)) for term in terms]
    found = []
    for k, factor in enumerate(terms[0].factors):
        own = tuple(term.factors[k] for term in renamed)
        found.append(EinsumOperand(own, counter) if any(other != factor for other in own) else EinsumOperand((factor,)))
    return tuple(found)


def _letters_of(first: ProductTerm, term: ProductTerm) -> dict[int, int]:
    """The letters of a term, by those that the first one has in their places."""
    pairs = zip(term.factors, first.factors, strict=True)
    return {own: wanted for factor, like in pairs for own, wanted in zip(factor.transposed, like.transposed, strict=True)}


def _pays(
    operands: Sequence[EinsumOperand],
    count: int,
    output: Letters,
    sizes: MutableMapping[int, Extent],
    stacked: Iterable[str],
) -> bool:
    """Whether one product moves less than `count` of them, all of which have the same arithmetic.

    What is stacked, and has not been for another product, is read and written once more for each term.  Products of their
    own read and write the result again, and read the shared operands again, for each term but one.  Where there are
    instances only arrays that have an element for each count: the others stay in caches.
    """
    instances = GROUP_ID in output

    def elements(letters: Letters) -> int:
        return 0 if instances and GROUP_ID not in letters else prod(sizes[x] or 1 for x in letters if x != GROUP_ID)

    differing = [one for one in operands if one.counter is not None]
    shared = sum(elements(one.letters) for one in operands if one.counter is None)
    copied = sum(2 * count * elements(one.factors[0].transposed) for one in differing if one.name not in stacked)
    return bool(differing) and copied < (count - 1) * (2 * elements(output) + shared)
