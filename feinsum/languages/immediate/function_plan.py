"""Plans: what a function does, as einsums of parts of tensors and loops around them; no device, and no order of memory.

    result := alpha einsum(terms) + beta result

Each index of a root has an entry: a range of it with the letter of an index of the einsum, or one value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from feinsum.languages.immediate.maps import Mark
from feinsum.languages.immediate.resolved import Action, Fence, Loop, Resolved, ViewUpdate
from feinsum.languages.immediate.syntax import ImmediateUpdate
from feinsum.languages.immediate.views import ImmediateView, IntegerVariable, Root


@dataclass(frozen=True)
class Range:
    """``low:high`` of an index, which is an index of the einsum, too."""

    low: int
    high: int
    letter: str

    @property
    def length(self) -> int:
        return self.high - self.low


@dataclass(frozen=True)
class At:
    """One value of an index: a number, plus a variable if there is one."""

    base: int
    variable: IntegerVariable | None = None


@dataclass(frozen=True)
class TensorTerm:
    """A part of a tensor, and which index of the einsum each of its indices is.

    :ivar reach: all that it may be a part of, from trip to trip.
    """

    root: Root
    entries: tuple[Range | At, ...]
    reach: ImmediateView

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The entries that are indices of the einsum."""
        return tuple(entry for entry in self.entries if isinstance(entry, Range))

    @property
    def letters(self) -> str:
        """The fastest one first."""
        return "".join(entry.letter for entry in self.ranges)

    @property
    def lengths(self) -> dict[str, int]:
        """By letter."""
        return {entry.letter: entry.length for entry in self.ranges}

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its root."""
        return all(
            isinstance(entry, Range) and entry.length == length
            for entry, length in zip(self.entries, self.root.type.shape, strict=True)
        )

    def renamed(self, letters: Mapping[str, str]) -> TensorTerm:
        """The same term in other letters."""
        return replace(
            self, entries=tuple(replace(e, letter=letters[e.letter]) if isinstance(e, Range) else e for e in self.entries)
        )


@dataclass(frozen=True)
class IndexMark:
    """A mark of an index map: letters that are to be treated as one, or one that is to be looped over.

    :ivar letters: in the einsum.
    :ivar mark: as it was written.
    """

    letters: str
    mark: Mark

    def renamed(self, letters: Mapping[str, str]) -> IndexMark:
        """The same wish in other letters of the einsum."""
        return replace(self, letters="".join(letters[x] for x in self.letters))


@dataclass(frozen=True, eq=False)
class PlannedContraction:
    """An einsum of parts of tensors.

    :ivar sources: the instructions that it does, in order.
    :ivar groups: letters that are to be treated as one index.
    :ivar loops: letters that are to be looped over.
    :ivar folded: letters that were loop variables.
    """

    terms: tuple[TensorTerm, ...]
    result: TensorTerm
    alpha: float
    beta: float
    sources: tuple[ImmediateUpdate, ...] = ()
    groups: tuple[IndexMark, ...] = ()
    loops: tuple[IndexMark, ...] = ()
    folded: str = ""

    @property
    def lengths(self) -> dict[str, int]:
        """By letter."""
        return {x: n for term in (*self.terms, self.result) for x, n in term.lengths.items()}

    @property
    def text(self) -> str:
        """The index map that it would have, without marks."""
        inputs = ", ".join(term.letters or "_" for term in self.terms)
        return f"{{{inputs} to {self.result.letters or '_'}}}"


@dataclass(frozen=True, eq=False)
class PlannedLoop:
    """A loop that the host executes: it repeats units for each value of a variable."""

    variable: IntegerVariable
    body: tuple[Unit, ...]


Unit: TypeAlias = PlannedContraction | PlannedLoop | Fence


@dataclass(frozen=True, eq=False)
class FunctionPlan:
    """The plan of a function.

    :ivar is_batched: whether items of groups and allocas have one more axis, of work-items.
    """

    units: tuple[Unit, ...]
    is_batched: bool

    def contractions(self) -> Iterator[PlannedContraction]:
        """The contractions; one in a loop comes once."""
        return walk_units(self.units)


def walk_units(units: tuple[Unit, ...]) -> Iterator[PlannedContraction]:
    """The contractions of units."""
    for unit in units:
        if isinstance(unit, PlannedContraction):
            yield unit
        elif isinstance(unit, PlannedLoop):
            yield from walk_units(unit.body)


def as_written(resolved: Resolved) -> FunctionPlan:
    """One contraction for each instruction."""
    return FunctionPlan(tuple(map(_unit, resolved.actions)), resolved.is_batched)


def _unit(action: Action) -> Unit:
    if isinstance(action, Loop):
        return PlannedLoop(action.variable, tuple(map(_unit, action.body)))
    return _contraction_of_step(action) if isinstance(action, ViewUpdate) else action


def _contraction_of_step(step: ViewUpdate) -> PlannedContraction:
    update = step.update
    *inputs, output = [term.letters for term in update.map.terms]
    terms = tuple(_term(view, letters) for view, letters in zip(step.operands, inputs, strict=True))
    result = _term(step.result, output)
    wishes: dict[str, IndexMark] = {}
    for mark in (mark for term in update.map.terms for mark in term.marks):
        wishes.setdefault(str(mark), IndexMark(mark.letters, mark))
    groups, loops = (tuple(w for w in wishes.values() if w.mark.kind == kind) for kind in ("fuse", "loop"))
    return PlannedContraction(terms, result, update.alpha, update.beta, (update,), groups=groups, loops=loops)


def _term(view: ImmediateView, letters: str) -> TensorTerm:
    names = dict(zip(view.axes, letters, strict=True))
    entries: list[Range | At] = []
    for axis, bounds in enumerate(view.bounds):
        if axis in names:
            entries.append(Range(bounds.low, bounds.high, names[axis]))
        elif bounds.variable is None:
            entries.append(At(bounds.low))
        else:
            entries.append(At(bounds.base, bounds.variable))
    return TensorTerm(view.root, tuple(entries), view)
