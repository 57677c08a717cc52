"""Functions of sums where finished sums are stored: ``out[o] = ω(accumulator, out[o], b[j])``.

A space transforms the bare einsum; what is to be made of its sums waits in :attr:`feinsum.match.Match.finishing`.  At the
end every instruction that stores an output stores what is made of its value instead.  A move that makes statements of C of
an instruction that stores an output finishes it before, and marks what stores it with :class:`Finished`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import loopy as lp
from pytools.tag import Tag, tag_dataclass

from feinsum.errors import TransformError
from feinsum.lower.same_bytes import SameBytes
from feinsum.match import Match
from feinsum.match.expressions import find_uses
from feinsum.match.finishing import Finishing
from feinsum.rewrites.reads import with_rules


@tag_dataclass
class Finished(Tag):  # type: ignore[misc]  # pytools is not typed for strict checking
    """Of an instruction that stores what is made of a sum."""


FINISHED = frozenset([Finished()])


def finished(match: Match, assignee: Any, value: Any) -> Any:
    """What is made of a sum that is to be stored at an entry of an output; the sum itself unless a match says more.

    :param assignee: the entry, ``out[i, j]`` in any terms.
    """
    finishing = match.finishing.get(getattr(assignee, "aggregate", assignee).name)
    return value if finishing is None else finishing.of(value, assignee)


def finish(t_unit: lp.TranslationUnit, match: Match) -> lp.TranslationUnit:
    """Let every instruction that stores an output of a match store what is made of its sum.

    Before::

        for i, j: out[i, j] = acc[i, j]

    After, for a match of ``out[i, j] = gelu(sum(k, A(i, k) * B(k, j)) + b[j])``::

        for i, j: out[i, j] = gelu(acc[i, j] + b[j])

    A sum that is none of loopy's accumulators yet becomes one: a function may need it more than once, and what loopy 2025.2
    sums in a branch of a choice it sums where the condition holds before the sum is known.

    :raises TransformError: if what stores an output is no assignment, or reads what it stores.

    An epilogue in CUTLASS and cuBLASLt.
    """
    # Other outputs may be those of later steps, whose sums are not there yet.
    own = {output: match.finishing[output] for output in match.outputs if output in match.finishing}
    if not own:
        return t_unit
    for insn in t_unit[match.kernel_name].instructions:
        for output in insn.assignee_var_names():
            if output in own and not insn.tags & FINISHED:
                t_unit = _finish(t_unit, match, insn, own[output])
    updated = [output for output, finishing in own.items() if finishing.reads_output]
    return t_unit.with_kernel(_without_conflicts(t_unit[match.kernel_name], updated))


def mark_finished(t_unit: lp.TranslationUnit, match: Match) -> lp.TranslationUnit:
    """The kernel in which all that stores outputs of a match is known to store what is made of their sums."""
    kernel = t_unit[match.kernel_name]
    own = {output for output in match.outputs if output in match.finishing}
    instructions = [
        insn.copy(tags=insn.tags | FINISHED) if own.intersection(insn.assignee_var_names()) else insn
        for insn in kernel.instructions
    ]
    return t_unit.with_kernel(kernel.copy(instructions=instructions)) if own else t_unit


def _without_conflicts(kernel: lp.LoopKernel, outputs: Sequence[str]) -> lp.LoopKernel:
    """Tell loopy that whoever reads an entry of an output also stores it, after that, and nobody else touches it.

    Where it looks for itself in statements of C, loopy 2025.2 raises AttributeError.
    """
    touch: dict[str, frozenset[tuple[str, str]]] = {}
    for output in outputs:
        ids = {
            insn.id
            for insn in kernel.instructions
            if output in insn.read_dependency_names() or output in insn.assignee_var_names()
        }
        for insn_id in ids:
            others = frozenset((other, "any") for other in ids if other != insn_id)
            touch[insn_id] = touch.get(insn_id, frozenset()) | others
    return kernel.copy(
        instructions=[
            insn.copy(no_sync_with=insn.no_sync_with | touch[insn.id]) if insn.id in touch else insn
            for insn in kernel.instructions
        ]
    )


def _finish(t_unit: lp.TranslationUnit, match: Match, insn: Any, finishing: Finishing) -> lp.TranslationUnit:
    kernel = t_unit[match.kernel_name]
    name = insn.assignee_var_names()[0]
    if not isinstance(insn, lp.Assignment):
        raise TransformError(f"'{insn.id}' stores '{name}' by a statement of C, so nothing can be made of what it stores")
    if name in insn.read_dependency_names():
        raise TransformError(f"'{insn.id}' adds to '{name}', so what it stores is not finished")
    if find_uses(with_rules(kernel, insn.expression)).reductions:
        t_unit, insn = _with_accumulator(t_unit, match, insn)
        kernel = t_unit[match.kernel_name]
    tags = frozenset(tag for tag in insn.tags if not isinstance(tag, SameBytes))  # it no longer is a copy
    done = insn.copy(expression=finishing.of(insn.expression, insn.assignee), tags=tags | FINISHED)
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
