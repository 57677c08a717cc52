"""Integers that are not known yet: polynomials with rational coefficients in lengths, indices and what stands for the rest.

``N / 2`` is half of N, which asks N to be even; what is no polynomial, such as ``cdiv(N, tile)``, is an atom of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Extent:
    """A polynomial: its terms in order, each a sorted tuple of atoms and a coefficient that is not 0."""

    terms: tuple[tuple[Monomial, Fraction], ...] = ()

    @classmethod
    def of(cls, value: int | str) -> Extent:
        """A number, or an atom."""
        if isinstance(value, str):
            return cls((((value,), Fraction(1)),))
        return cls((((), Fraction(value)),)) if value else cls()

    @classmethod
    def _make(cls, terms: Mapping[Monomial, Fraction]) -> Extent:
        return cls(tuple(sorted((m, c) for m, c in terms.items() if c)))

    def __add__(self, other: Extent) -> Extent:
        terms = dict(self.terms)
        for monomial, coefficient in other.terms:
            terms[monomial] = terms.get(monomial, Fraction(0)) + coefficient
        return self._make(terms)

    def __neg__(self) -> Extent:
        return Extent(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Extent) -> Extent:
        return self + -other

    def __mul__(self, other: Extent) -> Extent:
        terms: dict[Monomial, Fraction] = {}
        for m, c in self.terms:
            for n, d in other.terms:
                key = tuple(sorted(m + n))
                terms[key] = terms.get(key, Fraction(0)) + c * d
        return self._make(terms)

    def over(self, divisor: int) -> Extent:
        """The quotient by a number, exactly."""
        return Extent(tuple((m, c / divisor) for m, c in self.terms))

    @property
    def constant(self) -> int | None:
        """The integer that it is, if it is one."""
        if not self.terms:
            return 0
        (monomial, coefficient), *rest = self.terms
        return int(coefficient) if not rest and not monomial and coefficient.denominator == 1 else None

    @cached_property
    def atoms(self) -> frozenset[str]:
        """The atoms in it."""
        return frozenset(atom for monomial, _ in self.terms for atom in monomial)

    def at(self, values: Mapping[str, int]) -> Extent:
        """With numbers in place of atoms."""
        found = Extent()
        for monomial, coefficient in self.terms:
            term = Extent((((), coefficient),))
            for atom in monomial:
                term = term * Extent.of(values.get(atom, atom))
            found = found + term
        return found

    def __str__(self) -> str:
        """The extent as the text of a program has it.

        >>> str(Extent.of("N").over(2) + Extent.of("i") * Extent.of("N") - Extent.of(1))
        '-1 + N/2 + N*i'
        """
        parts = []
        for monomial, c in self.terms:
            atoms = "*".join(map(plain_name, monomial))
            number = "" if abs(c.numerator) == 1 and atoms else str(abs(c.numerator))
            text = "*".join(filter(None, (number, atoms))) + (f"/{c.denominator}" if c.denominator > 1 else "")
            parts.append(("-" if c < 0 else "+", text))
        if not parts:
            return "0"
        (sign, first), *rest = parts
        return ("-" if sign == "-" else "") + first + "".join(f" {s} {text}" for s, text in rest)


def plain_name(atom: str) -> str:
    """An atom as the text calls it; indices have a number behind an apostrophe that keeps equal names apart."""
    return atom.partition("'")[0]


def extent_product(extents: Iterable[Extent]) -> Extent:
    """The product of extents."""
    found = Extent.of(1)
    for extent in extents:
        found = found * extent
    return found
