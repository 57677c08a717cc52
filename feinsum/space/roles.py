"""Roles: how an einsum plays a pattern, ``bj,drb,rij->dbi`` as ``xre,rij,ej->xei``.

A space is written in the letters and the operand order of its pattern, and so are its configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from feinsum.canonicalization import canonicalize_einsum
from feinsum.einsum import BatchedEinsum
from feinsum.subscripts import Subscripts


@dataclass(frozen=True)
class Roles:
    """How an einsum plays a pattern: which of its indices and operands stand for those of the pattern.

    :ivar indices: index letter of the pattern -> index letter of the einsum.
    :ivar operands: ``operands[k]`` is the operand of the einsum that is operand k of the pattern.
    """

    indices: Mapping[str, str]
    operands: tuple[int, ...]

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
    """How an indexing expression plays a pattern: a permutation of operands and a bijection of indices.

    The axes of the output and of each operand keep their order: ``ik,kj->ij`` is no ``ik,jk->ij``.
    """
    if sorted(map(len, pattern.inputs)) != sorted(map(len, indexing.inputs)):
        return None

    def assign(indices: Mapping[str, str], operands: tuple[int, ...]) -> Roles | None:
        if len(operands) == len(pattern.inputs):
            return Roles(indices, operands)
        for k in range(len(indexing.inputs)):
            extended = None if k in operands else _unify(pattern.inputs[len(operands)], indexing.inputs[k], indices)
            found = None if extended is None else assign(extended, (*operands, k))
            if found is not None:
                return found
        return None

    start = _unify(pattern.output, indexing.output, {})
    return None if start is None else assign(start, ())


def _unify(ours: str, theirs: str, indices: Mapping[str, str]) -> dict[str, str] | None:
    """The bijection `indices` extended so that `ours` reads `theirs`, or None where it cannot be."""
    if len(ours) != len(theirs):
        return None
    extended = dict(indices)
    for a, b in zip(ours, theirs, strict=True):
        if extended.setdefault(a, b) != b:
            return None
    return extended if len(set(extended.values())) == len(extended) else None
