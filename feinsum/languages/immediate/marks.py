"""Marks of a step: which indices a kernel treats as one, and of which it takes one value at a time.

{i[k]m, m(jn) to i(jn)[k]}         k is looped over, j and n are one index
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feinsum.build.looping import divided_indices
from feinsum.languages.immediate.maps import IndexMap, Mark, OperandIndices
from feinsum.space import Instance, TransformSpace


@dataclass(frozen=True)
class Marks:
    """Marks in the letters of an einsum.

    :ivar fused: groups of letters, outer ones first.
    :ivar looped: letters, sorted.
    """

    fused: tuple[str, ...] = ()
    looped: str = ""

    def __bool__(self) -> bool:
        return bool(self.fused or self.looped)

    def missed(self, found: Marks | None) -> list[str]:
        """The marks that are not among `found`, as the language writes them; all of them if `found` is None."""
        known = found or Marks()
        groups = [f"({group[::-1]})" for group in self.fused if not any(group in other for other in known.fused)]
        return groups + [f"[{x}]" for x in self.looped if x not in known.looped]


def marks_of(here: Instance, space: TransformSpace, configuration: Mapping[str, Any]) -> Marks | None:
    """The marks of a configuration: its treatment of an einsum's indices, in its letters; None if that is not known."""
    roles, found = space.roles(here.einsum), divided_indices(here, space, configuration)
    if roles is None or found is None:
        return None
    groups = ("".join(roles.indices[x] for x in group) for group in space.fused(here.problem(space), configuration))
    looped = sorted(x for x in here.einsum.indexing.indices if x not in found)
    return Marks(tuple(group for group in groups if len(group) > 1), "".join(looped))


def marked(inputs: Sequence[str], output: str, marks: Marks) -> IndexMap:
    """The index map of a product with those marks that it may have.

    >>> str(marked(["ikba", "kjba"], "ijba", Marks(("ab",), "ak")))
    '{i[k]b[a], [k]jb[a] to ijb[a]}'
    >>> str(marked(["imn", "nmj"], "ij", Marks(("nm",), ""))), str(marked(["imn", "mnj"], "ij", Marks(("nm",), "")))
    ('{imn, nmj to ij}', '{i(mn), (mn)j to ij}')

    :param inputs: the indices of each operand, the fastest one first, as in `output`.
    """
    plain = IndexMap(tuple(_marked_indices(term, (), "") for term in inputs), _marked_indices(output, (), ""))
    terms = (*inputs, output)
    groups = [group[::-1] for group in marks.fused if _may_be_one(group[::-1], plain, terms)]
    looped = "".join(x for x in marks.looped if not any(x in group for group in groups))
    shown = [_marked_indices(term, groups, looped) for term in terms]
    return IndexMap(tuple(shown[:-1]), shown[-1])


def _may_be_one(group: str, plain: IndexMap, terms: Sequence[str]) -> bool:
    """Whether letters are of one class, not in all operands, and stand together in this order wherever they are."""
    classes = {plain.letter_class(x) for x in group}
    return len(classes) == 1 and "common" not in classes and all(group in term for term in terms if set(group) & set(term))


def _marked_indices(term: str, groups: Sequence[str], looped: str) -> OperandIndices:
    """The indices of a term with these marks."""
    found: list[Mark] = []
    k = 0
    while k < len(term):
        run = next((group for group in groups if term.startswith(group, k)), term[k])
        found.append(Mark(run, "fuse" if len(run) > 1 else "loop" if run in looped else ""))
        k += len(run)
    return OperandIndices(tuple(found))
