"""Bounds that the kernel sets: a loop up to a temporary that is one number is a loop up to the number.

n = 2*m
y = sum(j, a[j])  for 0 <= j < n        ──▶   y = sum(j, a[j])  for 0 <= j < 2*m
"""

from __future__ import annotations

from collections.abc import MutableMapping

import islpy as isl
import loopy as lp
from pymbolic.primitives import Variable

from feinsum.match.domain import Length, find_parameters, write_affine
from feinsum.match.indices import collect_affine
from feinsum.match.source import Source

PARAM = isl.dim_type.param


def fix_bounds(source: Source, notes: MutableMapping[str, str]) -> Source:
    """The kernel with bounds that are temporaries put in where these are set once, to a number or an
    affine expression of value arguments.

    :param notes: takes, by its id, what was done with an instruction.
    """
    kernel = source.kernel
    values = {name: found for name in _bounds(kernel) if (found := _find_value(source, name)) is not None}
    if not values:
        return source
    dropped = frozenset(insn_id for insn_id, _ in values.values())
    notes.update((insn_id, "its value is put in as a bound") for insn_id in dropped)
    domains = []
    for domain in kernel.domains:
        for name, (_, value) in values.items():
            if name in domain.get_var_names(PARAM):
                used = ", ".join((name, *sorted(find_parameters(value))))
                equal = isl.BasicSet(f"[{used}] -> {{ : {name} = {value} }}")
                domain = domain.align_params(equal.get_space())
                domain = domain.intersect_params(equal.align_params(domain.get_space().params()))
                domain = domain.project_out(PARAM, domain.get_var_names(PARAM).index(name), 1)
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


def _find_value(source: Source, name: str) -> tuple[str, Length] | None:
    """The instruction that sets a temporary, and its value in value arguments; None if others set or read it."""
    kernel = source.kernel
    users = [insn for insn in kernel.instructions if name in insn.dependency_names() | {*insn.assignee_var_names()}]
    if len(users) != 1 or not isinstance(users[0], lp.Assignment) or users[0].predicates:
        return None
    value = users[0].expression
    terms = collect_affine(value, frozenset(filter(source.is_parameter, kernel.arg_dict)))
    if terms is None or isinstance(value, bool) or users[0].assignee != Variable(name):
        return None
    return users[0].id, write_affine({x: c for x, c in terms.items() if x}, terms.get("", 0))
