"""Statements: assignments as normalization reads them, with affine indices in one form, in the order they have to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import loopy as lp
from loopy.kernel.data import AddressSpace, TemporaryVariable
from pymbolic import parse
from pymbolic.primitives import Subscript, Variable

from feinsum.errors import MatchError
from feinsum.match.domain import Length, find_lengths
from feinsum.match.expression_uses import Uses, find_uses, plain_names
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.row_groups import InstructionOrder


@dataclass(frozen=True)
class KernelStatement:
    """An assignment ``array[at] = value`` in loops.

    :ivar merged: the instructions that it stands for besides its own.
    """

    insn_id: str
    array: str
    at: tuple[Any, ...]
    value: Any
    loops: frozenset[str]
    merged: tuple[str, ...] = ()

    @cached_property
    def uses(self) -> Uses:
        """The uses in its value."""
        return find_uses(self.value)

    @cached_property
    def summed(self) -> frozenset[str]:
        """The inames of its reductions."""
        return frozenset(iname for reduction in self.uses.reductions for iname in reduction.inames)

    @cached_property
    def target(self) -> Any:
        """The entry that it assigns to."""
        return Subscript(Variable(self.array), self.at) if self.at else Variable(self.array)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names in its value and its index."""
        at = find_uses(*self.at)
        return frozenset(name for uses in (self.uses, at) for name in (*uses.values, *(name for name, _ in uses.reads)))

    def moved(self, array: str, at: tuple[Any, ...]) -> KernelStatement:
        """The statement that assigns to another element."""
        return replace(self, array=array, at=at)

    def then(self, value: Any, *, without: frozenset[str] = frozenset(), merged: Iterable[str] = ()) -> KernelStatement:
        """The statement with another value, out of some of its loops."""
        return replace(self, value=value, loops=self.loops - without, merged=(*self.merged, *merged))


@dataclass
class StatementRegion:
    """Statements of a kernel that share loops or temporaries, in an order in which they may run.

    :ivar lengths: the length of every iname in them.
    :ivar notes: what was done with an instruction, by its id.
    :ivar made: new arrays.
    :ivar around: temporary -> the loops that it gets an axis for.
    """

    source: SourceKernel
    order: InstructionOrder
    statements: list[KernelStatement]
    lengths: dict[str, Length]
    notes: dict[str, str] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    around: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def is_temporary(self, name: str) -> bool:
        """Whether a name is a temporary that the kernel computes, no table."""
        temporary = self.source.kernel.temporary_variables.get(name)
        return temporary is not None and temporary.initializer is None and temporary.base_storage is None

    def is_before(self, one: str, other: str) -> bool:
        """Whether an instruction comes before another in every iteration of the loops that both are in."""
        return bool(self.order.mask([one]) & self.order.before(other))

    @cached_property
    def fresh(self) -> Callable[[str], str]:
        """Makes names that the kernel has not."""
        made: Callable[[str], str] = self.source.kernel.get_var_name_generator()
        return made

    @cached_property
    def inames(self) -> set[str]:
        """The inames of the instructions that statements are made of."""
        return set(self.lengths)

    def variable(self, name: str) -> Any:
        """A temporary of the kernel; None for what is none."""
        return self.source.kernel.temporary_variables.get(name)

    def is_in_pieces(self, name: str) -> bool:
        """Whether a temporary is not assigned by one statement."""
        return len(self.writers(name)) != 1

    def widened(self, name: str) -> Any:
        """A temporary with an axis in front for each loop around it, in global memory."""
        axes = tuple(parse(str(self.lengths[iname])) for iname in self.around.get(name, ()))
        shape = axes + tuple(self.variable(name).shape)
        return TemporaryVariable(name, self.source.dtype(name), shape=shape, address_space=AddressSpace.GLOBAL)

    def writers(self, array: str) -> list[KernelStatement]:
        """The statements that assign to an array."""
        return [statement for statement in self.statements if statement.array == array]

    def readers(self, array: str) -> list[KernelStatement]:
        """The statements that read an array."""
        return [statement for statement in self.statements if array in statement.reads]

    def put(self, old: KernelStatement, new: KernelStatement, dropped: Iterable[KernelStatement] = ()) -> None:
        """Put a statement in the place of one, and drop others."""
        gone = [id(statement) for statement in dropped]
        kept = [new if statement is old else statement for statement in self.statements]
        self.statements = [statement for statement in kept if id(statement) not in gone]


def find_regions(source: SourceKernel) -> Iterator[list[Any]]:
    """The instructions of a kernel in groups that share sequential loops or temporaries."""
    groups: list[tuple[set[str], list[Any]]] = []
    for insn in source.kernel.instructions:
        if isinstance(insn, (lp.BarrierInstruction, lp.NoOpInstruction)):
            continue
        names = set(insn.within_inames) | set(insn.reduction_inames())
        names.update(name for name in insn.dependency_names() if name in source.kernel.temporary_variables)
        names = {name for name in names if not _is_table(source, name)}
        joined = [group for group in groups if group[0] & names]
        groups = [group for group in groups if not group[0] & names]
        names = names.union(*(group[0] for group in joined))
        groups.append((names, [*(member for group in joined for member in group[1]), insn]))
    return (members for _, members in groups)


def _is_table(source: SourceKernel, name: str) -> bool:
    temporary = source.kernel.temporary_variables.get(name)
    return temporary is not None and temporary.initializer is not None


def read_region(source: SourceKernel, instructions: Iterable[Any]) -> StatementRegion:
    """The statements of some instructions.

    :raises MatchError: naming the instruction that is no plain assignment, or in what order statements are not.
    """
    order = InstructionOrder(source)
    place = {insn.id: k for k, insn in enumerate(source.kernel.instructions)}
    found = sorted(instructions, key=lambda insn: (order.before(insn.id).bit_count(), place[insn.id]))
    statements = [_read_statement(source, insn) for insn in found]
    inames = frozenset[str]().union(*(statement.loops | statement.summed for statement in statements))
    region = StatementRegion(source, order, statements, find_lengths(source, inames))
    _check_order(region)
    return region


def _read_statement(source: SourceKernel, insn: Any) -> KernelStatement:
    if not isinstance(insn, lp.Assignment) or insn.atomicity or insn.predicates:
        kind = "has a predicate" if insn.predicates else f"is a {type(insn).__name__}"
        raise MatchError(f"'{insn.id}', in the same loops or with the same temporaries, {kind}, no plain assignment")
    tagged = sorted(iname for iname in insn.within_inames if source.kernel.iname_tags(iname))
    if tagged:
        raise MatchError(f"the loop '{tagged[0]}' around '{insn.id}' is tagged")
    target = insn.assignee
    if not isinstance(target, (Subscript, Variable)):
        raise MatchError(f"'{insn.id}' assigns to {target}, no array with a tuple of indices")
    at = target.index_tuple if isinstance(target, Subscript) else ()
    value = insn.expression
    uses = find_uses(value, *at)
    behind = frozenset[str]().union(*(source.rule(name).reads for name in source.called_rules(uses)))
    computed = sorted(name for name in behind if name in source.kernel.get_written_variables())
    if computed:
        raise MatchError(f"'{insn.id}' reads '{computed[0]}', which the kernel writes, behind a substitution rule")
    return to_statement(insn)


def to_statement(insn: Any) -> KernelStatement:
    """An assignment as a statement."""
    at = insn.assignee.index_tuple if isinstance(insn.assignee, Subscript) else ()
    return KernelStatement(insn.id, str(insn.assignee_name), tuple(at), insn.expression, frozenset(insn.within_inames))


def _check_order(region: StatementRegion) -> None:
    """Check that the dependencies say in which order statements that share an array run."""
    for k, late in enumerate(region.statements):
        for early in region.statements[:k]:
            shared = {early.array} & (late.reads | {late.array}) or {late.array} & early.reads
            if shared and not region.is_before(early.insn_id, late.insn_id):
                raise MatchError(
                    f"'{early.insn_id}' and '{late.insn_id}' both access '{min(shared)}', and no dependency says which"
                    " comes first"
                )


def is_plain_index(at: tuple[Any, ...], inames: Iterable[str]) -> bool:
    """Whether an index is a tuple of different names out of `inames`."""
    names = plain_names(at)
    return len(names) == len(at) and len(set(names)) == len(names) and set(names) <= set(inames)
