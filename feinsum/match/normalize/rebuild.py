"""Normalized statements as instructions of a kernel, with loops of their own, arrays between them, and dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import islpy as isl
import loopy as lp
from loopy.symbolic import IdentityMapper, Reduction
from pymbolic.primitives import Variable

from feinsum.match.domain import Length, write_cube
from feinsum.match.isolate import without_inames
from feinsum.match.normalize.statements import KernelStatement, StatementRegion
from feinsum.match.normalize.temporaries import TemporarySubstitution


def rebuild_kernel(
    region: StatementRegion, statements: Sequence[KernelStatement], substitution: TemporarySubstitution
) -> lp.LoopKernel:
    """The kernel with some statements in the place of the instructions of a region."""
    kernel = region.source.kernel
    old = {statement.insn_id for statement in region.statements}.union(*(s.merged for s in region.statements))
    old |= region.notes.keys()
    nests = _Nests(region, statements)
    made = {s.insn_id: nests.write(s, _depends_on(region, statements, s, old)) for s in statements}
    instructions, waiting = [], dict(made)
    last = max(k for k, insn in enumerate(kernel.instructions) if insn.id in old)
    for k, insn in enumerate(kernel.instructions):
        if insn.id not in old:
            instructions.append(_depend_on_new(region, insn, made, old))
        if k == last:
            instructions.extend(waiting.values())
    domains = [without_inames(domain, region.inames) for domain in kernel.domains]
    domains = [domain for domain in domains if domain.dim(isl.dim_type.set)]
    domains += [isl.BasicSet(write_cube(cube)) for cube in nests.cubes]
    return kernel.copy(
        instructions=instructions,
        domains=domains,
        temporary_variables=_kept_temporaries(region, instructions, substitution),
        loop_priority=frozenset(order for order in kernel.loop_priority if not set(order) & region.lengths.keys()),
    )


class _Nests:
    """The loops of statements: those of elementwise ones are shared where no sum is in between, others are their own.

    :ivar cubes: the lengths of the loops made.
    """

    def __init__(self, region: StatementRegion, statements: Sequence[KernelStatement]) -> None:
        self._region = region
        self._statements = statements
        self._fresh = region.fresh
        self._taken: set[str] = set()
        self._shared: dict[object, dict[str, str]] = {}
        self.cubes: list[Mapping[str, Length]] = []

    def write(self, statement: KernelStatement, depends_on: frozenset[str]) -> Any:
        """A statement as an instruction."""
        names = self._find_names(statement)
        rename = _ReductionRenamer(names)
        insn = self._region.source.kernel.id_to_insn[statement.insn_id]
        values = {
            "assignee": rename(statement.target),
            "expression": rename(statement.value),
            "within_inames": frozenset(names[iname] for iname in statement.loops),
            "depends_on": depends_on,
        }
        return insn.copy(temp_var_type=lp.Optional(), no_sync_with=frozenset(), **values)

    def _find_names(self, statement: KernelStatement) -> dict[str, str]:
        """The loops of a statement."""
        key = None if statement.summed else (statement.loops, self._sums_before(statement))
        if key is not None and key in self._shared:
            return self._shared[key]
        names = {iname: self._name(iname) for iname in sorted(statement.loops | statement.summed)}
        if names:
            self.cubes.append({new: self._region.lengths[old] for old, new in names.items()})
        if key is not None:
            self._shared[key] = names
        return names

    def _sums_before(self, statement: KernelStatement) -> frozenset[str]:
        """The sums that come before a statement: those of the same loop may not stand between two of its statements."""
        return frozenset(
            other.insn_id
            for other in self._statements
            if other.summed and self._region.is_before(other.insn_id, statement.insn_id)
        )

    def _name(self, iname: str) -> str:
        if iname in self._taken:
            return str(self._fresh(iname))
        self._taken.add(iname)
        return iname


class _ReductionRenamer(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    """Renames inames, those of reductions too."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self._names = names

    def map_variable(self, expr: Any) -> Any:
        return Variable(self._names[expr.name]) if expr.name in self._names else expr

    def map_reduction(self, expr: Any) -> Any:
        inames = tuple(self._names[iname] for iname in expr.inames)
        return Reduction(expr.operation, inames, self.rec(expr.expr), expr.allow_simultaneous)


def _depends_on(
    region: StatementRegion, statements: Iterable[KernelStatement], statement: KernelStatement, old: set[str]
) -> frozenset[str]:
    """The dependencies of a statement: statements that share arrays with it, and earlier instructions from elsewhere."""
    own = statement.insn_id
    inside = {
        other.insn_id
        for other in statements
        if other is not statement
        and (other.array in statement.reads | {statement.array} or statement.array in other.reads)
        and region.is_before(other.insn_id, own)
    }
    kernel = region.source.kernel
    before = [insn_id for insn_id in old if insn_id == own or region.is_before(insn_id, own)]
    outside = {name for insn_id in before for name in kernel.id_to_insn[insn_id].depends_on} - old
    return frozenset(inside | outside)


def _depend_on_new(region: StatementRegion, insn: Any, made: Mapping[str, Any], old: set[str]) -> Any:
    """An instruction from elsewhere that depends on the statements in place of its former dependencies."""
    if not insn.depends_on & old:
        return insn
    new = {insn_id for insn_id in made if not region.is_before(insn.id, insn_id)}
    return insn.copy(depends_on=(insn.depends_on - old) | new)


def _kept_temporaries(
    region: StatementRegion, instructions: Iterable[Any], substitution: TemporarySubstitution
) -> dict[str, Any]:
    """The temporaries that are still used: those kept with their axes, tables in global memory."""
    used = frozenset[str]().union(*(insn.dependency_names() for insn in instructions))
    rules = region.source.kernel.substitutions
    used = used.union(*(region.source.rule(name).reads for name in rules))
    found = {name: variable for name, variable in region.made.items() if name in used}
    for name, variable in region.source.kernel.temporary_variables.items():
        around = substitution.axes(name) if name in substitution.kept else None
        if name not in used:
            continue
        if around is not None:
            variable = region.widened(name)
        elif variable.initializer is not None:
            variable = variable.copy(address_space=lp.AddressSpace.GLOBAL)
        found[name] = variable
    return found
