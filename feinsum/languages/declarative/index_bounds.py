"""Whether an index stays within its axis, by counting with sets of integers (isl: Verdoolaege, ICMS 2010).

The indices that enclose a read span a set, which the conditions around it cut; a violation is a point of it whose index is
below 0 or not below the extent.  Lengths are parameters of the set.  Products of atoms are taken for any number that is
not negative, so that what is proved holds, and what cannot be proved is looked at again when lengths are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Literal

from feinsum.languages.declarative.extents import Extent

Finding = Literal["inside", "outside", "unknown"]


@dataclass(frozen=True)
class Surroundings:
    """The facts that hold where an index stands.

    :ivar ranges: indices and their extents: ``0 <= index < extent``.
    :ivar conditions: what is not negative there.
    :ivar whole: what is an integer, as lengths that were divided are.
    :ivar exact: whether nothing else is known there, so that what is outside under these conditions is outside.
    """

    ranges: tuple[tuple[str, Extent], ...] = ()
    conditions: tuple[Extent, ...] = ()
    whole: tuple[Extent, ...] = ()
    exact: bool = True


def look(index: Extent, extent: Extent, known: Surroundings) -> Finding:
    """Whether an index stays within ``0 <= index < extent`` for all lengths, or for none from 2 on."""
    below, above = -index - Extent.of(1), index - extent
    if index.constant is not None and extent.constant is not None:
        if 0 <= index.constant < extent.constant:
            return "inside"
        if not known.ranges and not known.conditions:
            return "outside"
    writer = _SetWriter([index, extent, *known.conditions, *known.whole, *(e for _, e in known.ranges)], known)
    domain = [*writer.ranges(known.ranges), *(f"{writer.text(c)} >= 0" for c in known.conditions)]
    import islpy

    def violation(most: int) -> islpy.Set:
        sides = (writer.set([*domain, f"{writer.text(side)} >= 0"], known.whole, most) for side in (below, above))
        first, second = map(islpy.Set, sides)
        return first.union(second)

    if violation(1).is_empty():
        return "inside"
    if writer.inexact or not known.exact:
        return "unknown"
    lengths = islpy.Set(writer.set([], known.whole, 2)).params()
    reached = violation(2).params()
    return "outside" if not lengths.is_empty() and lengths.subtract(reached).is_empty() else "unknown"


class _SetWriter:
    """Sets in isl's notation, in which atoms have names of their own."""

    def __init__(self, extents: Iterable[Extent], known: Surroundings) -> None:
        self._indices = {name: f"i{k}" for k, (name, _) in enumerate(known.ranges)}
        self._parameters: dict[str, str] = {}
        self._opaque: dict[tuple[str, ...], str] = {}
        for extent in extents:
            for monomial, _ in extent.terms:
                if len(monomial) > 1 or (monomial and "(" in monomial[0]):
                    self._opaque.setdefault(monomial, f"x{len(self._opaque)}")
                elif monomial and monomial[0] not in self._indices:
                    self._parameters.setdefault(monomial[0], f"p{len(self._parameters)}")
        self.inexact = bool(self._opaque)

    def text(self, extent: Extent) -> str:
        """A multiple of an extent, such that its coefficients are integers."""
        return self._scaled(extent)[0]

    def _scaled(self, extent: Extent) -> tuple[str, int]:
        scale = lcm(*(c.denominator for _, c in extent.terms)) if extent.terms else 1
        parts = []
        for monomial, c in extent.terms:
            name = self._name(monomial)
            parts.append(f"({int(c * scale)}{f' * {name}' if name else ''})")
        return " + ".join(parts) or "0", scale

    def _name(self, monomial: tuple[str, ...]) -> str:
        if not monomial:
            return ""
        if monomial in self._opaque:
            return self._opaque[monomial]
        (atom,) = monomial
        return self._indices.get(atom) or self._parameters[atom]

    def ranges(self, ranges: Sequence[tuple[str, Extent]]) -> list[str]:
        found = []
        for name, extent in ranges:
            text, scale = self._scaled(extent)
            found.append(f"0 <= {self._indices[name]} and {scale} * {self._indices[name]} + 1 <= {text}")
        return found

    def set(self, constraints: Sequence[str], whole: Sequence[Extent], least: int) -> str:
        """A set of all indices and of what stands for products, for lengths from `least` on."""
        divisible = []
        for extent in whole:
            text, scale = self._scaled(extent)
            if scale > 1:
                divisible.append(f"({text}) mod {scale} = 0")
        known = [f"{p} >= {least}" for p in self._parameters.values()] + [f"{x} >= 0" for x in self._opaque.values()]
        dimensions = ", ".join([*self._indices.values(), *self._opaque.values()])
        together = " and ".join([*known, *divisible, *constraints]) or "true"
        return f"[{', '.join(self._parameters.values())}] -> {{ [{dimensions}] : {together} }}"
