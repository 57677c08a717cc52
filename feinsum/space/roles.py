"""Roles: how an einsum matches a pattern, ``bj,drb,rij->dbi`` as ``xre,rij,ej->xei``.

A space is written in the letters and the operand order of its pattern, and so are its configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, permutations

from feinsum.canonicalization import Renaming, canonicalize_einsum
from feinsum.einsum import BatchedEinsum
from feinsum.subscripts import Subscripts, extended_bijection


@dataclass(frozen=True)
class Roles:
    """How an einsum matches a pattern: which of its indices and operands stand for those of the pattern.

    :ivar indices: index letter of the pattern -> index letter of the einsum.
    :ivar operands: ``operands[k]`` is the operand of the einsum that is operand k of the pattern.
    """

    indices: Mapping[str, str]
    operands: tuple[int, ...]

    def of_given(self, renaming: Renaming) -> Roles:
        """How the source of a renaming matches the pattern, if these are the roles of its target."""
        back = renaming.inverse.indices
        return Roles(
            {letter: back[own] for letter, own in self.indices.items()},
            tuple(renaming.operands[k] for k in self.operands),
        )

    @property
    def reverse(self) -> Roles:
        """The roles of the pattern in the einsum."""
        back = tuple(sorted(range(len(self.operands)), key=self.operands.__getitem__))
        return Roles({own: letter for letter, own in self.indices.items()}, back)

    def with_longest(self, letter: str, indexing: Subscripts, length: Callable[[str], float]) -> Roles:
        """The same roles, but the longest of the indices that stand in the same operands has the role `letter`.

        :param indexing: that of the einsum.
        :param length: returns the length of an index of it.
        """
        terms = (*indexing.inputs, indexing.output)
        stands = {own: tuple(term.count(own) for term in terms) for own in self.indices.values()}
        alike = (role for role, own in self.indices.items() if stands[own] == stands[self.indices[letter]])
        role = max((letter, *alike), key=lambda role: length(self.indices[role]))
        exchanged = {letter: self.indices[role], role: self.indices[letter]}
        return Roles({**self.indices, **exchanged}, self.operands)

    def apply(self, e: BatchedEinsum) -> BatchedEinsum:
        """The einsum written in the letters and the operand order of the pattern."""
        clashes = self._names_for_clashes(e)
        e = e.with_sizes(clashes) if clashes else e
        renamed = e.indexing.rename({own: letter for letter, own in self.indices.items()})
        return BatchedEinsum(
            Subscripts(tuple(renamed.inputs[k] for k in self.operands), renamed.output),
            tuple(tuple(row[k] for k in self.operands) for row in e.args),
            e.epilogues,
        )

    def _names_for_clashes(self, e: BatchedEinsum) -> dict[str, str]:
        """Names for anonymous long axes that would go by a letter which is the name of another axis."""
        taken = {a.name for a in e.arrays} | {axis for axis in e.index_sizes.values() if isinstance(axis, str)}
        names: dict[str, str] = {}
        for letter, own in self.indices.items():
            if isinstance(e.index_sizes[own], float) and letter in taken:
                name = letter
                while name in taken:
                    name += "_"
                taken.add(name)
                names[own] = name
        return names


def canonical_roles(e: BatchedEinsum) -> Roles:
    """The letters and operand order of the canonical pattern, so that what a configuration means depends on neither."""
    renaming = canonicalize_einsum(e.bare).pattern.renaming
    return Roles({letter: own for own, letter in renaming.indices.items()}, renaming.operands)


def find_roles(pattern: Subscripts, indexing: Subscripts) -> Roles | None:
    """How an indexing expression matches a pattern: a permutation of operands and a bijection of indices.

    The axes of the output and of each operand keep their order: ``ik,kj->ij`` is no ``ik,jk->ij``.
    """
    if sorted(map(len, pattern.inputs)) != sorted(map(len, indexing.inputs)):
        return None

    def assign(indices: Mapping[str, str], operands: tuple[int, ...]) -> Roles | None:
        if len(operands) == len(pattern.inputs):
            return Roles(indices, operands)
        for k in range(len(indexing.inputs)):
            extended = (
                None if k in operands else extended_bijection(pattern.inputs[len(operands)], indexing.inputs[k], indices)
            )
            found = None if extended is None else assign(extended, (*operands, k))
            if found is not None:
                return found
        return None

    start = extended_bijection(pattern.output, indexing.output, {})
    return None if start is None else assign(start, ())


def find_loose_roles(pattern: Subscripts, indexing: Subscripts) -> Iterator[Roles]:
    """The roles where the axes of the output and of each operand stand in any order, for each permutation of operands.

    Indices that stand in the same operands are paired in order of appearance.

    >>> from feinsum.subscripts import parse_subscripts
    >>> (roles,) = find_loose_roles(parse_subscripts("e,ij,ej->ei"), parse_subscripts("an,n,ca->nc"))
    >>> roles.operands, dict(roles.indices)
    ((1, 2, 0), {'e': 'n', 'i': 'c', 'j': 'a'})
    >>> roles = find_loose_roles(parse_subscripts("re,rij,ej->ei"), parse_subscripts("an,ne,cae->cn"))
    >>> [dict(one.indices) for one in roles]
    [{'e': 'n', 'i': 'c', 'r': 'a', 'j': 'e'}, {'e': 'n', 'i': 'c', 'r': 'e', 'j': 'a'}]
    """
    ours = _appearances((*pattern.inputs, pattern.output))
    if sorted(map(len, pattern.inputs)) != sorted(map(len, indexing.inputs)):
        return
    for operands in permutations(range(len(indexing.inputs))):
        theirs = _appearances((*(indexing.inputs[k] for k in operands), indexing.output))
        if {place: len(letters) for place, letters in ours.items()} == {p: len(letters) for p, letters in theirs.items()}:
            pairs = (zip(letters, theirs[place], strict=True) for place, letters in ours.items())
            yield Roles(dict(chain.from_iterable(pairs)), operands)


def _appearances(terms: Sequence[str]) -> dict[tuple[int, ...], list[str]]:
    """The letters that are as often in each of some terms, output last, in order of appearance from there."""
    found: dict[tuple[int, ...], list[str]] = {}
    for letter in dict.fromkeys("".join((terms[-1], *terms))):
        found.setdefault(tuple(term.count(letter) for term in terms), []).append(letter)
    return found
