"""Functions of sums where finished sums are stored: ``out[o] = ω(accumulator, out[o], b[j])``.

A space transforms the bare einsum; the functions of its sums wait in :attr:`feinsum.match.Match.finishing`.  At the end
every instruction that stores an output stores the function of its value instead.  A move that turns an instruction which
stores an output into statements of C finishes it before, and marks these with :class:`Finished`.

One output that is made of several rows is stored by one instruction, which takes the place of those that would store the
sums of these rows at the same entry: :func:`gather_sums`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import permutations
from typing import Any

import loopy as lp
from loopy.symbolic import SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Call, Subscript, Variable
from pytools.tag import Tag, tag_dataclass

from feinsum.errors import TransformError
from feinsum.lower.same_bytes import SameBytes
from feinsum.match import Match
from feinsum.match.expression_uses import find_uses
from feinsum.match.stored_functions import Finishing, Together
from feinsum.rewrites.loops import fixed_length
from feinsum.rewrites.reads import with_rules


@tag_dataclass
class Finished(Tag):  # type: ignore[misc]  # pytools is not typed for strict checking
    """A tag of an instruction that stores a function of a sum."""


FINISHED = frozenset([Finished()])


def finished(match: Match, assignee: Any, value: Any) -> Any:
    """The function of a sum that is to be stored at an entry of an output; the sum itself unless a match says more.

    :param assignee: the entry, ``out[i, j]`` in any terms.
    """
    finishing = match.finishing.get(getattr(assignee, "aggregate", assignee).name)
    return value if finishing is None else finishing.of(value, assignee)


def finish(
    t_unit: lp.TranslationUnit, match: Match, others: Collection[str] = (), present: Mapping[str, Any] | None = None
) -> lp.TranslationUnit:
    """Let every instruction that stores an output of a match store the function of its sum.

    Before::

        for i, j: out[i, j] = acc[i, j]

    After, for a match of ``out[i, j] = gelu(sum(k, A(i, k) * B(k, j)) + b[j])``::

        for i, j: out[i, j] = gelu(acc[i, j] + b[j])

    A sum that is none of loopy's accumulators yet becomes one: a function may need it more than once, and a sum in a branch
    of a choice is summed by loopy 2025.2 where the condition holds before the sum is known.

    :param others: instructions that are no part of the match, which may store an output before or after.
    :param present: output -> what holds the present content of the entry where that is stored; by default it is read there.
    :raises TransformError: if an instruction that stores an output is no assignment, or reads the entry that it stores.

    An epilogue in CUTLASS and cuBLASLt.
    """
    # Other outputs may be those of later steps, whose sums are not there yet.
    own = {output: match.finishing[output] for output in match.outputs if output in match.finishing}
    if match.own_together is not None:
        t_unit, own = gather_sums(t_unit, match, others), {match.own_together.output: match.own_together.finishing}
    if not own:
        return t_unit
    for insn in t_unit[match.kernel_name].instructions:
        for output in insn.assignee_var_names():
            if output in own and insn.id not in others and not insn.tags & FINISHED:
                t_unit = _finish_store(t_unit, match, insn, own[output], (present or {}).get(output))
    updated = [output for output, finishing in own.items() if finishing.reads_output]
    return t_unit.with_kernel(_without_conflicts(t_unit[match.kernel_name], updated, others))


_MOST_LOOPS = 3
"""Loops that a store has to itself at most: those of a tile of registers."""
_SEVERAL = Variable("several sums")
"""The placeholder of a function of several sums, until the function is put in."""


def sums_of(value: Any) -> Any:
    """The sums that an instruction stores, or is to apply a function to: a tuple if they are those of several rows."""
    return value.parameters if isinstance(value, Call) and value.function == _SEVERAL else value


def gather_sums(t_unit: lp.TranslationUnit, match: Match, others: Collection[str] | None = None) -> lp.TranslationUnit:
    """Let one instruction have the sums of all rows of which one output is made, for :func:`finish` or a move to finish.

    Before::

        for i, j:
            sum_0[i, j] = a[i, j]
            sum_1[i, j] = b[i, j]

    After::

        for i, j: out[i, j] = several sums(a[i, j], b[i, j])

    A match that has no such output, or a kernel in which that is done, stays as it is.

    :param others: instructions that are no part of the match.
    :raises TransformError: if rows do not store their sums by assignments side by side.
    """
    own = match.own_together
    others = others_than(t_unit, match) if others is None else others
    if own is None or not any(_stores(t_unit[match.kernel_name], name, others) for name in own.sums):
        return t_unit
    for name in own.sums:
        for insn in _stores(t_unit[match.kernel_name], name, others):
            if (
                isinstance(insn, lp.Assignment)
                and find_uses(with_rules(t_unit[match.kernel_name], insn.expression)).reductions
            ):
                t_unit, _ = _with_accumulator(t_unit, match, insn)
    kernel = t_unit[match.kernel_name]
    rows = [_by_place(kernel, name, others) for name in own.sums]
    rows = [rows[0], *(_in_loops_of(kernel, rows[0], row) for row in rows[1:])]
    if any(row.keys() != rows[0].keys() for row in rows):
        raise TransformError(f"the sums that '{own.output}' is made of are not stored side by side")
    merged = {at: _merged(own, [row[at] for row in rows]) for at in rows[0]}
    names = {row[at].id: merged[at].id for row in rows for at in row}
    last = {insn.id: insn for insn in merged.values()}
    instructions = []
    for insn in kernel.instructions:
        if insn.id in names and insn.id not in last:
            continue
        made = last.get(insn.id, insn)
        after = frozenset(names.get(other, other) for other in made.depends_on) - {made.id}
        apart = frozenset((names.get(other, other), scope) for other, scope in made.no_sync_with)
        instructions.append(made.copy(depends_on=after, no_sync_with=apart))
    temporaries = {name: t for name, t in kernel.temporary_variables.items() if name not in own.sums}
    arguments = [argument for argument in kernel.args if argument.name not in own.sums]
    kernel = kernel.copy(instructions=instructions, temporary_variables=temporaries, args=arguments)
    return t_unit.with_kernel(lp.remove_unused_inames(kernel))


def _in_loops_of(
    kernel: lp.LoopKernel, first: Mapping[Any, lp.Assignment], row: Mapping[Any, lp.Assignment]
) -> dict[Any, lp.Assignment]:
    """The stores of a row in the loops of those of the first one, where they have loops to themselves."""
    found = {}
    for at, insn in row.items():
        for other in first.values() if at not in first else ():
            moved = _renamed_store(kernel, insn, other)
            if moved is not None:
                at, insn = _store_place(moved), moved
                break
        found[at] = insn
    return found


def _renamed_store(kernel: lp.LoopKernel, insn: lp.Assignment, other: lp.Assignment) -> lp.Assignment | None:
    """A store in the loops of another one at the same place; None if it is at another, or shares those of its loops."""
    apart = sorted(insn.within_inames - other.within_inames)
    wanted = sorted(other.within_inames - insn.within_inames)
    users = kernel.iname_to_insns()
    if len(apart) != len(wanted) or len(apart) > _MOST_LOOPS or any(users[loop] != {insn.id} for loop in apart):
        return None
    for loops in permutations(wanted):
        if any(_loop_extent(kernel, one) != _loop_extent(kernel, its) for one, its in zip(apart, loops, strict=True)):
            continue
        rename = SubstitutionMapper(make_subst_func(dict(zip(apart, map(Variable, loops), strict=True))))
        moved = insn.with_transformed_expressions(rename)
        moved = moved.copy(within_inames=other.within_inames)
        if _store_place(moved) == _store_place(other):
            return moved
    return None


def _loop_extent(kernel: lp.LoopKernel, iname: str) -> tuple[Any, Any]:
    """How long a loop is, and how it runs."""
    return fixed_length(kernel, iname), kernel.inames[iname].tags


def _stores(kernel: lp.LoopKernel, name: str, others: Collection[str]) -> list[Any]:
    return [insn for insn in kernel.instructions if insn.id not in others and name in insn.assignee_var_names()]


def _by_place(kernel: lp.LoopKernel, name: str, others: Collection[str]) -> dict[Any, lp.Assignment]:
    """The instructions that store the sums of a row, by their places: loops, conditions and index."""
    found = {}
    for insn in _stores(kernel, name, others):
        if not isinstance(insn, lp.Assignment) or name in insn.read_dependency_names():
            raise TransformError(f"'{insn.id}' does not simply assign to '{name}', so it cannot store what is made of it")
        found[_store_place(insn)] = insn
    if len(found) < len(_stores(kernel, name, others)):
        raise TransformError(f"'{name}' is stored more than once at one place")
    return found


def _store_place(insn: lp.Assignment) -> tuple[Any, ...]:
    """Where an instruction stores: its loops, conditions and index."""
    index = insn.assignee.index_tuple if isinstance(insn.assignee, Subscript) else ()
    return insn.within_inames, insn.predicates, index


def _merged(own: Together, rows: Sequence[lp.Assignment]) -> lp.Assignment:
    """The last of some stores, which has the sums of all of them."""
    last, ids = rows[-1], {insn.id for insn in rows}
    index = last.assignee.index_tuple if isinstance(last.assignee, Subscript) else ()
    output = Variable(own.output)
    return last.copy(
        assignee=Subscript(output, index) if index else output,
        expression=Call(_SEVERAL, tuple(insn.expression for insn in rows)),
        depends_on=frozenset[str]().union(*(insn.depends_on for insn in rows)) - ids,
        no_sync_with=frozenset[tuple[str, str]]().union(*(insn.no_sync_with for insn in rows)),
        tags=frozenset(tag for tag in last.tags if not isinstance(tag, SameBytes)),
    )


def mark_finished(t_unit: lp.TranslationUnit, match: Match, others: Collection[str]) -> lp.TranslationUnit:
    """The kernel in which all instructions that store outputs of a match are marked as finished.

    :param others: see :func:`finish`.
    """
    kernel = t_unit[match.kernel_name]
    own = {output for output in match.outputs if output in match.finishing}
    instructions = [
        insn.copy(tags=insn.tags | FINISHED)
        if insn.id not in others and own.intersection(insn.assignee_var_names())
        else insn
        for insn in kernel.instructions
    ]
    return t_unit.with_kernel(kernel.copy(instructions=instructions)) if own else t_unit


def others_than(t_unit: lp.TranslationUnit, match: Match) -> frozenset[str]:
    """The ids of the instructions that are no part of a match."""
    return frozenset(t_unit[match.kernel_name].id_to_insn) - set(match.insn_ids)


def _without_conflicts(kernel: lp.LoopKernel, outputs: Sequence[str], others: Collection[str]) -> lp.LoopKernel:
    """Tell loopy that the work-item that reads an entry of an output also stores it, afterwards, and no other touches it.

    Where it looks for itself in statements of C, loopy 2025.2 raises AttributeError.
    """
    touch: dict[str, frozenset[tuple[str, str]]] = {}
    for output in outputs:
        ids = {
            insn.id
            for insn in kernel.instructions
            if insn.id not in others and (output in insn.read_dependency_names() or output in insn.assignee_var_names())
        }
        for insn_id in ids:
            rest = frozenset((other, "any") for other in ids if other != insn_id)
            touch[insn_id] = touch.get(insn_id, frozenset()) | rest
    return kernel.copy(
        instructions=[
            insn.copy(no_sync_with=insn.no_sync_with | touch[insn.id]) if insn.id in touch else insn
            for insn in kernel.instructions
        ]
    )


def _finish_store(
    t_unit: lp.TranslationUnit, match: Match, insn: Any, finishing: Finishing, present: Any
) -> lp.TranslationUnit:
    kernel = t_unit[match.kernel_name]
    name = insn.assignee_var_names()[0]
    if not isinstance(insn, lp.Assignment):
        raise TransformError(f"'{insn.id}' stores '{name}' by a statement of C, so nothing can be made of what it stores")
    if name in insn.read_dependency_names():
        raise TransformError(f"'{insn.id}' adds to '{name}', so what it stores is not finished")
    sums = sums_of(insn.expression)
    if sums is insn.expression and find_uses(with_rules(kernel, insn.expression)).reductions:
        t_unit, insn = _with_accumulator(t_unit, match, insn)
        kernel = t_unit[match.kernel_name]
    tags = frozenset(tag for tag in insn.tags if not isinstance(tag, SameBytes))  # it no longer is a copy
    index = insn.assignee.index_tuple if isinstance(insn.assignee, Subscript) else ()
    stands = insn.assignee if present is None else present
    done = insn.copy(expression=finishing.at(sums_of(insn.expression), stands, index), tags=tags | FINISHED)
    return t_unit.with_kernel(
        kernel.copy(instructions=[done if other.id == insn.id else other for other in kernel.instructions])
    )


def _with_accumulator(t_unit: lp.TranslationUnit, match: Match, insn: Any) -> tuple[lp.TranslationUnit, Any]:
    """The kernel in which an instruction reads its sum from an accumulator."""
    kernel = t_unit[match.kernel_name]
    plain = insn.copy(expression=with_rules(kernel, insn.expression))
    kernel = kernel.copy(instructions=[plain if other.id == insn.id else other for other in kernel.instructions])
    t_unit = lp.realize_reduction(t_unit.with_kernel(kernel), insn_id_filter=insn.id)
    made = t_unit[match.kernel_name]
    # They depend on what the sum depended on; loopy would look for more writers of what they read, and warn.
    instructions = [
        other if other.id in kernel.id_to_insn else other.copy(depends_on_is_final=True) for other in made.instructions
    ]
    return t_unit.with_kernel(made.copy(instructions=instructions)), made.id_to_insn[insn.id]
