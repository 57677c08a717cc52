"""Bounds that the kernel sets: a loop up to a temporary that is one number is a loop up to the number.

n = 2*m
k = n + 1
y = sum(j, a[j])  for 0 <= j < k        ──▶   y = sum(j, a[j])  for 0 <= j < 2*m + 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping

import islpy as isl
import loopy as lp
from pymbolic.primitives import Variable

from feinsum.match.affine_indices import collect_affine
from feinsum.match.domain import find_parameters, write_affine
from feinsum.match.kernel_source import SourceKernel

PARAM = isl.dim_type.param


def fix_bounds(source: SourceKernel, notes: MutableMapping[str, str]) -> SourceKernel:
    """The kernel with bounds that are temporaries put in where these are set once, to a number or an affine expression of
    value arguments and of such temporaries.

    :param notes: takes, by its id, what was done with an instruction.
    """
    kernel = source.kernel
    parameters = {name for domain in kernel.domains for name in domain.get_var_names(PARAM)}
    bounds = sorted(parameters & kernel.temporary_variables.keys())
    setting, values = _find_values(source) if bounds else ({}, {})
    bounds = [name for name in bounds if name in setting]
    if not bounds:
        return source
    dropped: set[str] = set()
    for name in reversed(setting):
        readers = {insn.id for insn in kernel.instructions if name in insn.read_dependency_names()}
        if readers <= dropped and (readers or name in bounds):
            dropped.add(setting[name])
    notes.update((insn_id, "its value is put in as a bound") for insn_id in dropped)
    domains = []
    for domain in kernel.domains:
        for name in bounds:
            if name in domain.get_var_names(PARAM):
                value = write_affine({x: c for x, c in values[name].items() if x and c}, values[name][""])
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
    temporaries = {name: v for name, v in kernel.temporary_variables.items() if setting.get(name) not in dropped}
    changed = kernel.copy(domains=domains, instructions=instructions, temporary_variables=temporaries)
    return SourceKernel.of(source.t_unit.with_kernel(changed), kernel.name)


def _find_values(source: SourceKernel) -> tuple[dict[str, str], dict[str, Counter[str]]]:
    """The temporaries that are one number: the instruction that sets each, after those that it is set from, and its
    coefficients in value arguments.

    One that is set from itself, or by several instructions, is none.
    """
    kernel = source.kernel
    count = Counter(name for insn in kernel.instructions for name in insn.assignee_var_names())
    once = {
        insn.assignee.name: insn
        for insn in kernel.instructions
        if isinstance(insn, lp.Assignment) and isinstance(insn.assignee, Variable) and count[insn.assignee.name] == 1
        if not insn.predicates and not isinstance(insn.expression, bool)
    }
    left = once.keys() & kernel.temporary_variables.keys()
    setting: dict[str, str] = {}
    values: dict[str, Counter[str]] = {name: Counter([name]) for name in filter(source.is_parameter, kernel.arg_dict)}
    found: dict[str, Mapping[str, int]] | None = None
    while found is None or found:
        known = frozenset(values)
        affine = {name: collect_affine(once[name].expression, known) for name in sorted(left - known)}
        found = {name: terms for name, terms in affine.items() if terms is not None}
        for name, terms in found.items():
            setting[name], values[name] = once[name].id, Counter()
            for x, c in terms.items():
                for y, d in values.get(x, Counter([x])).items():
                    values[name][y] += c * d
    return setting, values
