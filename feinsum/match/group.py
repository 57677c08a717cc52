"""Rows gathered into one batched einsum, with the reason why another row may not join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from feinsum.match.domain import Length
from feinsum.match.einsum_grammar import Row, Rule, read_row, refuse
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.neighbours import Neighbours
from feinsum.match.row_groups import Correspondence, InstructionOrder, find_correspondence
from feinsum.match.row_operands import OperandReader, RowOperand


@dataclass(frozen=True)
class RowArrays:
    """A row with the arrays behind its operands."""

    row: Row
    operands: tuple[RowOperand, ...]


class RowReader:
    """Reads the instructions of one kernel as rows."""

    def __init__(self, source: SourceKernel) -> None:
        self.source = source
        self.order = InstructionOrder(source)
        self._operands = OperandReader(source)
        self._neighbours = Neighbours(source)

    def read(self, insn: Any) -> RowArrays:
        """Read one instruction.

        :raises MatchError: naming the instruction, the rule of the grammar that it breaks, and the reason.
        """
        row = read_row(self.source, insn)
        operands = self._operands.read(row)
        self._neighbours.check(row)
        return RowArrays(row, operands)


class RowGroup:
    """Rows of one batched einsum; made with the first of them."""

    def __init__(self, reader: RowReader, first: RowArrays) -> None:
        self._reader = reader
        self.members: list[RowArrays] = []
        self.correspondences: list[Correspondence] = []
        self._written: dict[str, str] = {}
        self._read: dict[str, str] = {}
        self._shapes: dict[str, tuple[Length, ...]] = {}
        self.mask = 0
        self.before = 0
        self.add(first)

    @property
    def first(self) -> Row:
        """The row whose inames and order of operands describe the group."""
        return self.members[0].row

    def add(self, seen: RowArrays) -> None:
        """Add a row.

        :raises MatchError: if it computes another einsum than the rows there are, or is not independent of them.
        """
        correspondence = find_correspondence(self.first, seen.row) if self.members else _itself(seen.row)
        if correspondence is None:
            raise refuse(
                seen.row.insn_id,
                Rule.ROWS,
                f"it computes {sketch(seen.row)}, another einsum than '{self.first.insn_id}', which computes"
                f" {sketch(self.first)}; choose instructions with insn_match",
            )
        self._check_independence(seen.row)
        self._shapes.update(self._find_shapes(seen))
        self.members.append(seen)
        self.correspondences.append(correspondence)
        source, insn_id = self._reader.source, seen.row.insn_id
        self._written[source.storage(seen.row.output)] = insn_id
        for name in seen.row.reads:
            self._read.setdefault(source.storage(name), insn_id)
        self.mask |= self._reader.order.mask([insn_id])
        self.before |= self._reader.order.before(insn_id)

    def _find_shapes(self, seen: RowArrays) -> dict[str, tuple[Length, ...]]:
        """The shapes of the arrays of a row, which an array of another row or operand must have too."""
        shapes: dict[str, tuple[Length, ...]] = {}
        for operand, (_, at) in zip(seen.operands, seen.row.calls, strict=True):
            shape = tuple(seen.row.lengths[iname] for iname in at)
            for name in () if operand.opaque else (name for name, _ in operand.arrays):
                known = self._shapes.get(name, shapes.setdefault(name, shape))
                if known != shape:
                    here, there = ("(" + ", ".join(map(str, lengths)) + ")" for lengths in (shape, known))
                    reason = f"array '{name}' is read over {here} here but over {there} elsewhere; an array has one shape"
                    raise refuse(seen.row.insn_id, Rule.READING, reason)
        return shapes

    def _check_independence(self, row: Row) -> None:
        source, order = self._reader.source, self._reader.order
        output = source.storage(row.output)
        reason = None
        if output in self._written:
            reason = f"it writes '{row.output}', which '{self._written[output]}' writes too"
        elif output in self._read:
            reason = f"it writes '{row.output}', which '{self._read[output]}' reads"
        elif order.mask([row.insn_id]) & self.before or order.before(row.insn_id) & self.mask:
            reason = "the dependencies of the kernel order it before or after another row, directly or over a barrier"
        for name in sorted(row.reads):
            if reason is None and source.storage(name) in self._written:
                reason = f"it reads '{name}', which '{self._written[source.storage(name)]}' writes"
        if reason is not None:
            raise refuse(row.insn_id, Rule.ROWS, f"{reason}; rows of a batched einsum are independent")


def _itself(row: Row) -> Correspondence:
    return Correspondence(tuple(range(len(row.calls))), {iname: iname for iname in row.inames})


def sketch(row: Row) -> str:
    """A row in its own inames: ``[e=n, i=4] ij,ej`` as ``y[e, i] = D(i, j)*u(e, j) for e < n, i < 4, j < 4``."""
    output = f"{row.output}[{', '.join(row.free)}]" if row.free else row.output
    product = "*".join(f"{rule}({', '.join(at)})" for rule, at in row.calls)
    ranges = ", ".join(f"{iname} < {row.lengths[iname]}" for iname in row.inames)
    guard = f" if {', '.join(sorted(map(str, row.predicates)))}" if row.predicates else ""
    return f"{output} = {product}{f' for {ranges}' if ranges else ''}{guard}"
