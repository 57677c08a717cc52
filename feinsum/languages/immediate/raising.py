"""Raising: instructions become einsums of several operands, where that keeps their meaning.

    tmp := A B;  D := 5 tmp C + D     ->   D := 5 A B C + D       an alloca that is written once and read once
    for k { D += A[k] B[k] }          ->   D += sum_k A B         a loop that accumulates
    for k { D[k] := A[k] B }          ->   D_k := A_k B           a loop over what is independent

Types alone decide, never lengths or devices.  Rounding changes, values do not; so barriers keep what they part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_letters
from typing import Final

from feinsum.languages.immediate.function_plan import (
    At,
    FunctionPlan,
    PlannedContraction,
    PlannedLoop,
    Range,
    TensorTerm,
    Unit,
    walk_units,
)
from feinsum.languages.immediate.resolved import Fence
from feinsum.languages.immediate.views import IntegerVariable, Root

MOST_OPERANDS: Final = 8
"""The most operands of one einsum: with more, the search for contraction orders takes too long."""
LETTERS: Final = ascii_letters[:-1]
"""Indices of one einsum; the last letter is that of work-items."""


def raised(plan: FunctionPlan) -> FunctionPlan:
    """The plan with fewer and larger einsums."""
    return replace(plan, units=_raise_region(plan.units, plan.units))


def _raise_region(units: tuple[Unit, ...], everything: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """A region raised; `everything` is the function, in which an alloca may be used elsewhere."""
    inside: list[Unit] = []
    for unit in units:
        if isinstance(unit, PlannedLoop):
            body = _raise_region(unit.body, everything)
            inside.append(_folded_loop(PlannedLoop(unit.variable, body)))
        else:
            inside.append(unit)
    return _substituted_units(inside, units, everything)


# --- allocas


def _substituted_units(units: list[Unit], before: tuple[Unit, ...], everything: tuple[Unit, ...]) -> tuple[Unit, ...]:
    position = 0
    while position < len(units):
        consumer = _consumer(units, position, before, everything)
        if consumer is not None:
            units[consumer] = joined_consumer(*_pair(units, position, consumer))
            del units[position]
        else:
            position += 1
    return tuple(units)


def _pair(units: Sequence[Unit], producer: int, consumer: int) -> tuple[PlannedContraction, PlannedContraction]:
    first, second = units[producer], units[consumer]
    assert isinstance(first, PlannedContraction)
    assert isinstance(second, PlannedContraction)
    return first, second


def _consumer(units: Sequence[Unit], position: int, before: tuple[Unit, ...], everything: tuple[Unit, ...]) -> int | None:
    """The place of a contraction in the one unit that reads its result; None if it cannot be put there."""
    producer = units[position]
    if not isinstance(producer, PlannedContraction):
        return None
    root = producer.result.root
    if root.kind != "alloca" or not producer.result.is_whole or producer.beta != 0 or producer.alpha == 0:
        return None
    if _uses(units, root) != (1, 1) or _uses(everything, root) != _uses(before, root):
        return None
    for k in range(position + 1, len(units)):
        unit = units[k]
        if isinstance(unit, Fence):
            return None
        if isinstance(unit, PlannedContraction) and any(term.root is root for term in unit.terms):
            return k if _fits_consumer(producer, unit) else None
        if any(_overwrites(c, producer) for c in walk_units((unit,))) or _uses((unit,), root) != (0, 0):
            return None
    return None


def _uses(units: Sequence[Unit], root: Root) -> tuple[int, int]:
    """The numbers of writes and reads of a root."""
    writes = reads = 0
    for contraction in walk_units(tuple(units)):
        writes += contraction.result.root is root
        reads += sum(term.root is root for term in contraction.terms)
        reads += contraction.result.root is root and contraction.beta != 0
    return writes, reads


def _overwrites(contraction: PlannedContraction, producer: PlannedContraction) -> bool:
    return any(contraction.result.reach.overlaps(term.reach) for term in producer.terms)


def _fits_consumer(producer: PlannedContraction, consumer: PlannedContraction) -> bool:
    (read,) = [term for term in consumer.terms if term.root is producer.result.root]
    element = producer.result.root.type.element
    letters = len(producer.lengths) + len(consumer.lengths) - len(read.letters)
    return (
        read.is_whole
        and not _overwrites(consumer, producer)
        and len(producer.terms) + len(consumer.terms) - 1 <= MOST_OPERANDS
        and letters <= len(LETTERS)
        and element.holds(producer.alpha * consumer.alpha)
        and consumer.alpha != 0
    )


def joined_consumer(producer: PlannedContraction, consumer: PlannedContraction) -> PlannedContraction:
    """The consumer, with the producer's terms in the place of its result."""
    place = next(k for k, term in enumerate(consumer.terms) if term.root is producer.result.root)
    known = dict(zip(producer.result.letters, consumer.terms[place].letters, strict=True))
    taken = set(consumer.lengths)
    names = dict(known)
    for letter in producer.lengths:
        if letter not in names:
            names[letter] = letter if letter not in taken else next(x for x in LETTERS if x not in taken)
            taken.add(names[letter])
    terms = tuple(term.renamed(names) for term in producer.terms)
    groups = tuple(wish.renamed(names) for wish in producer.groups)
    loops = tuple(wish.renamed(names) for wish in producer.loops)
    return replace(
        consumer,
        terms=(*consumer.terms[:place], *terms, *consumer.terms[place + 1 :]),
        alpha=producer.alpha * consumer.alpha,
        sources=(*producer.sources, *consumer.sources),
        groups=(*groups, *consumer.groups),
        loops=(*loops, *consumer.loops),
        folded=consumer.folded + "".join(names[x] for x in producer.folded),
    )


# --- loops


def _folded_loop(loop: PlannedLoop) -> Unit:
    """A loop around one contraction as an index of this; the loop, where that is not so."""
    body, variable = loop.body[0] if len(loop.body) == 1 else None, loop.variable
    if not isinstance(body, PlannedContraction):
        return loop
    uses = [_count_occurrences(term, variable) for term in (*body.terms, body.result)]
    if not variable.values or max(uses) > 1 or not any(uses[:-1]):
        return loop
    if uses[-1] == 0 and body.beta != 1:
        return loop
    letter = next((x for x in LETTERS if x not in body.lengths), None)
    if letter is None:
        return loop
    return replace(
        body,
        terms=tuple(_spread_term(term, variable, letter) for term in body.terms),
        result=_spread_term(body.result, variable, letter),
        folded=body.folded + letter,
    )


def _count_occurrences(term: TensorTerm, variable: IntegerVariable) -> int:
    return sum(isinstance(entry, At) and entry.variable is variable for entry in term.entries)


def _spread_term(term: TensorTerm, variable: IntegerVariable, letter: str) -> TensorTerm:
    entries: list[Range | At] = []
    trips = variable.values
    for entry in term.entries:
        if isinstance(entry, At) and entry.variable is variable:
            entries.append(Range(entry.base + trips.start, entry.base + trips.stop, letter))
        else:
            entries.append(entry)
    return replace(term, entries=tuple(entries))
