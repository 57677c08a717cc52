"""Barriers: between collective instructions of which one needs what another one did.

    axpby.n %1, %x, %0, %T                         axpby.n %1, %x, %0, %T
    axpby.n %1, %T, %0, %y                   ->    barrier.local
                                                   axpby.n %1, %T, %0, %y

A forward analysis keeps what has been read and written since the last barrier.  An operation that reads what was written,
or writes what was read or written, waits first.  Parameters are different memories; allocas are the elements that
:mod:`.storage` gave them.  A region of work-items is one access to all it touches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.memory_effects import everything, read_by, roots, written_by
from feinsum.languages.tensor.passes.storage import spans
from feinsum.languages.tensor.types import PointerGroup

_SPMD: Final = frozenset({"foreach", "parallel"})


@dataclass
class _Pending:
    """Memories that were read and written since the last barrier."""

    read: set[TensorValue] = field(default_factory=set)
    written: set[TensorValue] = field(default_factory=set)

    def copy(self) -> _Pending:
        return _Pending(set(self.read), set(self.written))

    def join(self, other: _Pending) -> None:
        self.read |= other.read
        self.written |= other.written


def insert_barriers(function: TensorFunction) -> TensorFunction:
    """The function with barriers in its collective regions."""
    return _Inserter(function).run()


class _Inserter:
    def __init__(self, function: TensorFunction) -> None:
        self.function = function
        self.root, self.spans = roots(function), spans(function)
        self.pending = _Pending()

    def run(self) -> TensorFunction:
        return replace(self.function, body=self._region(self.function.body))

    def _region(self, region: TensorRegion) -> TensorRegion:
        kept: list[TensorOperation] = []
        for operation in region.operations:
            if operation.name == "barrier":
                self._clear(bool(operation.attributes["global"]), bool(operation.attributes["local"]))
            elif operation.name in ("for", "if"):
                operation = self._control(operation)
            else:
                found = (operation,) if operation.name not in _SPMD else tuple(everything((operation,)))
                kept.extend(self._before(found, operation))
            kept.append(operation)
        return TensorRegion(region.kind, tuple(kept), region.parameters)

    def _control(self, operation: TensorOperation) -> TensorOperation:
        """A loop is visited twice: what its end leaves is there at its begin.  Either branch may have been taken."""
        if operation.name == "for":
            (region,) = operation.regions
            before = self.pending.copy()
            self._region(region)
            self.pending.join(before)
            entered = self.pending.copy()
            made = self._region(region)
            self.pending.join(entered)
            return replace(operation, regions=(made,))
        before, after, regions = self.pending.copy(), _Pending(), []
        for region in operation.regions:
            self.pending = before.copy()
            regions.append(self._region(region))
            after.join(self.pending)
        if len(regions) == 1:
            after.join(before)
        self.pending = after
        return replace(operation, regions=tuple(regions))

    def _before(self, operations: Iterable[TensorOperation], whole: TensorOperation) -> list[TensorOperation]:
        """The barrier that operations need before them; notes what they touch."""
        touched = _Pending()
        for operation in operations:
            # what a load gives of a group is no access to elements
            if not (operation.name == "load" and isinstance(operation.operands[0].type, PointerGroup)):
                touched.read.update(self.root[value] for value in read_by(operation) if value in self.root)
            touched.written.update(self.root[value] for value in written_by(operation) if value in self.root)
        clashes = self._clashes(touched.read, self.pending.written)
        clashes += self._clashes(touched.written, self.pending.written | self.pending.read)
        spaces = {self._is_local(value) for value in clashes}
        made = []
        if spaces:
            self._clear(False in spaces, True in spaces)
            attributes = {"global": "global" if False in spaces else "", "local": "local" if True in spaces else ""}
            made = [TensorOperation("barrier", attributes=attributes, span=whole.span)]
        self.pending.join(touched)
        return made

    def _clashes(self, wanted: set[TensorValue], others: set[TensorValue]) -> list[TensorValue]:
        return [value for value in wanted for other in others if value is other or self._overlap(value, other)]

    def _overlap(self, a: TensorValue, b: TensorValue) -> bool:
        if a not in self.spans or b not in self.spans:
            return False
        (one, begin, end), (other, first, last) = self.spans[a], self.spans[b]
        return one == other and begin < last and first < end

    def _is_local(self, value: TensorValue) -> bool:
        return value in self.spans

    def _clear(self, global_: bool, local: bool) -> None:
        for found in (self.pending.read, self.pending.written):
            found -= {value for value in found if (local if self._is_local(value) else global_)}
