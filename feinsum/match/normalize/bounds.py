"""Bounds that the kernel sets: a loop up to a temporary that is one number is a loop up to the number.

n = 4
y = sum(j, a[j])  for 0 <= j < n        ──▶   y = sum(j, a[j])  for 0 <= j < 4
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import islpy as isl
import loopy as lp
from pymbolic.primitives import Variable

from feinsum.match.source import Source

PARAM = isl.dim_type.param


def fix_bounds(source: Source, notes: MutableMapping[str, str]) -> Source:
    """The kernel with bounds that are temporaries put in where these are set to a number, once.

    :param notes: takes, by its id, what was done with an instruction.
    """
    kernel = source.kernel
    values = {name: found for name in _bounds(kernel) if (found := _find_value(kernel, name)) is not None}
    if not values:
        return source
    dropped = frozenset(insn_id for insn_id, _ in values.values())
    notes.update((insn_id, "its number is put in as a bound") for insn_id in dropped)
    domains = []
    for domain in kernel.domains:
        for name, (_, value) in values.items():
            if name in domain.get_var_names(PARAM):
                at = domain.get_var_names(PARAM).index(name)
                domain = domain.fix_val(PARAM, at, value).project_out(PARAM, at, 1)
        domains.append(domain)
    before = frozenset[str]().union(*(kernel.id_to_insn[insn_id].depends_on for insn_id in dropped)) - dropped
    instructions = [
        insn.copy(depends_on=(insn.depends_on - dropped) | before) if insn.depends_on & dropped else insn
        for insn in kernel.instructions
        if insn.id not in dropped
    ]
    temporaries = {name: variable for name, variable in kernel.temporary_variables.items() if name not in values}
    changed = kernel.copy(domains=domains, instructions=instructions, temporary_variables=temporaries)
    return Source.of(source.t_unit.with_kernel(changed), kernel.name)


def _bounds(kernel: lp.LoopKernel) -> list[str]:
    """The temporaries that bound loops."""
    names = {name for domain in kernel.domains for name in domain.get_var_names(PARAM)}
    return sorted(names & kernel.temporary_variables.keys())


def _find_value(kernel: lp.LoopKernel, name: str) -> tuple[str, int] | None:
    """The instruction that sets a temporary to a number, and the number; None if others set or read it."""
    users = [insn for insn in kernel.instructions if name in insn.dependency_names() | {*insn.assignee_var_names()}]
    if len(users) != 1 or not isinstance(users[0], lp.Assignment) or users[0].predicates:
        return None
    value: Any = users[0].expression
    plain = users[0].assignee == Variable(name) and isinstance(value, int) and not isinstance(value, bool)
    return (users[0].id, value) if plain else None
