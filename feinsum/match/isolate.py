"""Isolation: the matched instructions get loops and substitution rules of their own.

    for e:                                                  for e:
        z[e] = 2*w[e]                                           z[e] = 2*w[e]
        for i: y[e, i] = sum(j, D_(i, j)*u_(e, j))    ──▶   for e_0, i_0:
    for p, q: v[p, q] = sum(r, D_(q, r)*t_(p, r))               y[e_0, i_0] = sum(j_0, D_(i_0, j_0)*u_(e_0, j_0))
                                                                v[e_0, i_0] = sum(j_0, D_(i_0, j_0)*t_(e_0, j_0))

After that a transformation may split and tag the loops and precompute the operands as it likes, and the rest of the kernel
stays as it is.  The rows have one loop nest, and each operand a rule that neither another operand nor another
instruction invokes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

import islpy as isl
import loopy as lp
from loopy.kernel.array import ArrayBase
from loopy.kernel.data import ArrayArg, InameImplementationTag
from loopy.preprocess import make_args_for_offsets_and_strides
from loopy.symbolic import Reduction, SubstitutionMapper
from loopy.types import NumpyType
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Call, Product, Variable

from feinsum.errors import MatchError
from feinsum.lower.substitution_rules import keep_apart, rule_value
from feinsum.match.domain import find_lengths, write_cube
from feinsum.match.einsum_grammar import find_factors
from feinsum.match.expression_uses import find_uses
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.match import Match
from feinsum.match.row_groups import rename_inames

SET, PARAM = isl.dim_type.set, isl.dim_type.param


def isolate(t_unit: lp.TranslationUnit, match: Match) -> tuple[lp.TranslationUnit, Match]:
    """Give the matched instructions loops and substitution rules of their own, where they have none yet.

    Their inames have no tags and no priority.  The instructions keep their names, dependencies, predicates and tags; a
    kernel made by :func:`feinsum.generate_loopy` is returned as it is.

    :param match: a match in this translation unit.
    :returns: the translation unit, and the match in its new names.
    """
    t_unit = _with_offsets(_with_inferred_types(t_unit, match), match)
    source = SourceKernel(t_unit, t_unit[match.kernel_name])
    kernel = source.kernel
    others = [insn for insn in kernel.instructions if insn.id not in match.insn_ids]
    own_loops = _has_own_loops(source, match, others)
    own_rules, new_rules = _find_own_rules(source, match, others)
    if own_loops and own_rules == match.rules and not kernel.loop_priority:
        return t_unit, match
    loops = match.loops if own_loops else _name_loops(kernel, match)
    rewritten = {
        insn_id: _rewrite_in_loops(kernel.id_to_insn[insn_id], match, row, loops[row], own_rules[row])
        for row, insn_id in enumerate(match.insn_ids)
    }
    changed = kernel.copy(
        instructions=[rewritten.get(insn.id, insn) for insn in kernel.instructions],
        substitutions={**kernel.substitutions, **new_rules},
    )
    if own_loops:
        changed = _without_priority(changed, frozenset(match.inames.values()))
    else:
        changed = _replace_domains(source, changed, match, loops[0])
    return t_unit.with_kernel(changed), replace(match, loops=loops, rules=own_rules)


def without_others(t_unit: lp.TranslationUnit, match: Match) -> lp.TranslationUnit:
    """The matched instructions alone, as a kernel that can be built and tried by itself."""
    kernel = t_unit[match.kernel_name]
    rows = [kernel.id_to_insn[insn_id] for insn_id in match.insn_ids]
    rows = [row.copy(depends_on=row.depends_on.intersection(match.insn_ids), no_sync_with=frozenset()) for row in rows]
    return t_unit.with_kernel(kernel.copy(instructions=rows)).with_entrypoints(frozenset([kernel.name]))


def _with_inferred_types(t_unit: lp.TranslationUnit, match: Match) -> lp.TranslationUnit:
    """The kernel with the types of arrays that loopy infers written down: a transformation makes others like them."""
    source = SourceKernel(t_unit, t_unit[match.kernel_name])
    kernel = source.kernel

    def typed(array: Any) -> Any:
        if not isinstance(array, ArrayBase) or isinstance(array.dtype, NumpyType):
            return array
        try:
            return array.copy(dtype=NumpyType(source.dtype(array.name)))
        except MatchError:
            return array  # it has nothing to do with the einsum

    arguments = [typed(arg) for arg in kernel.args]
    temporaries = {name: typed(variable) for name, variable in kernel.temporary_variables.items()}
    known = [*kernel.args, *kernel.temporary_variables.values()]
    if all(one is other for one, other in zip([*arguments, *temporaries.values()], known, strict=True)):
        return t_unit
    return t_unit.with_kernel(kernel.copy(args=arguments, temporary_variables=temporaries))


def _with_offsets(t_unit: lp.TranslationUnit, match: Match) -> lp.TranslationUnit:
    """The kernel with arguments for offsets that are found at the call (``loopy.auto``): moves address arrays by them."""
    kernel = t_unit[match.kernel_name]
    if not any(isinstance(arg, ArrayArg) and arg.offset is lp.auto for arg in kernel.args):
        return t_unit
    kernel = make_args_for_offsets_and_strides(kernel)
    arguments = [
        arg.copy(offset=Variable(arg.offset)) if isinstance(arg, ArrayArg) and isinstance(arg.offset, str) else arg
        for arg in kernel.args
    ]
    return t_unit.with_kernel(kernel.copy(args=arguments))


def _has_own_loops(source: SourceKernel, match: Match, others: list[Any]) -> bool:
    """Whether the rows share one nest of loops without tags, which nothing else uses."""
    kernel, mine = source.kernel, frozenset(match.inames.values())
    if any(loops != match.inames for loops in match.loops) or mine & _used_inames(source, match, others):
        return False
    for domain in kernel.domains:
        names = frozenset(domain.get_var_names(SET))
        if (mine & names and not names <= mine) or mine.intersection(domain.get_var_names(PARAM)):
            return False
    return not any(kernel.iname_tags_of_type(iname, InameImplementationTag) for iname in mine)


def _used_inames(source: SourceKernel, match: Match, others: list[Any]) -> frozenset[str]:
    """The inames of other instructions and of substitution rules that are no operands."""
    used = {
        name for insn in others for name in (*insn.within_inames, *insn.reduction_inames(), *insn.sub_array_ref_inames())
    }
    operands = {name for row in match.rules for name in row}
    for name, rule in source.kernel.substitutions.items():
        if name not in operands:
            reductions = find_uses(rule.expression).reductions
            used.update(iname for reduction in reductions for iname in reduction.inames)
            used |= source.rule(name).captured
    return frozenset(used)


def _find_own_rules(
    source: SourceKernel, match: Match, others: list[Any]
) -> tuple[tuple[tuple[str, ...], ...], dict[str, lp.SubstitutionRule]]:
    """For each operand its rule, or a new one where another operand or instruction invokes that rule or an equal one."""
    rules = source.kernel.substitutions
    inside = [insn.predicates for insn in source.kernel.instructions if insn.id in match.insn_ids]
    uses = [find_uses(*expressions) for expressions in (*map(_expressions, others), *inside)]
    uses += [source.rule(name).uses for name in rules]
    values = {name: rule_value(rule) for name, rule in rules.items()}
    called = {values[name] for use in uses for name in source.called_rules(use)}
    known, fresh = set(values.values()), source.kernel.get_var_name_generator()
    owners: dict[tuple[int, Any], str] = {}
    new: dict[str, lp.SubstitutionRule] = {}
    for row in match.rules:
        for k, name in enumerate(row):
            if (k, values[name]) in owners:
                continue
            if values[name] in called:
                copy = rules[name].copy(name=fresh(name))
                new[copy.name] = keep_apart(copy, known)
                owners[k, values[name]] = copy.name
            else:
                owners[k, values[name]] = name
                called.add(values[name])
    return tuple(tuple(owners[k, values[name]] for k, name in enumerate(row)) for row in match.rules), new


def _expressions(insn: Any) -> Iterable[Any]:
    return (insn.expression, *insn.predicates) if hasattr(insn, "expression") else insn.predicates


def _name_loops(kernel: lp.LoopKernel, match: Match) -> tuple[Mapping[str, str], ...]:
    """New inames for every index, the same in every row."""
    fresh = kernel.get_var_name_generator()
    loops = {letter: fresh(iname) for letter, iname in match.inames.items()}
    return (loops,) * len(match.loops)


def _rewrite_in_loops(insn: Any, match: Match, row: int, loops: Mapping[str, str], rules: tuple[str, ...]) -> Any:
    """An instruction in new loops, with the operands of `row` by new rules; factors keep their order."""
    inames = {old: loops[letter] for letter, old in match.loops[row].items()}
    rename = SubstitutionMapper(make_subst_func({old: Variable(new) for old, new in inames.items()}))
    waiting = list(range(match.einsum.n))
    factors = []
    value = insn.expression
    for factor in find_factors(insn, value.expr if isinstance(value, Reduction) else value):
        at = factor.parameters if isinstance(factor, Call) else ()
        name = (factor.function if isinstance(factor, Call) else factor).name
        k = next(k for k in waiting if match.rules[row][k] == name and _rule_arguments(match, row, k) == at)
        waiting.remove(k)
        factors.append(Call(Variable(rules[k]), rename(at)))
    product = factors[0] if len(factors) == 1 else Product(tuple(factors))
    if isinstance(value, Reduction):
        summed = tuple(inames[iname] for iname in value.inames)
        product = Reduction(value.operation, summed, product, value.allow_simultaneous)
    return insn.copy(
        assignee=rename(insn.assignee),
        expression=product,
        within_inames=frozenset(inames[iname] for iname in insn.within_inames),
        predicates=rename_inames(insn.predicates, inames),
    )


def _rule_arguments(match: Match, row: int, k: int) -> tuple[Variable, ...]:
    return tuple(Variable(match.loops[row][letter]) for letter in match.einsum.indexing.inputs[k])


def _replace_domains(source: SourceKernel, kernel: lp.LoopKernel, match: Match, loops: Mapping[str, str]) -> lp.LoopKernel:
    """Add the hypercube of the new loops, and drop the old ones that nothing uses any more."""
    lengths = find_lengths(source, match.inames.values())
    cube = write_cube({loops[letter]: lengths[iname] for letter, iname in match.inames.items()})
    old = {iname for row in match.loops for iname in row.values()}
    rest = [insn for insn in kernel.instructions if insn.id not in match.insn_ids]
    bounds = {name for domain in kernel.domains for name in domain.get_var_names(PARAM)}
    unused = old - _used_inames(source, match, rest) - bounds
    domains = [without_inames(domain, unused) for domain in kernel.domains]
    domains = [domain for domain in domains if domain.dim(SET)]
    return _without_priority(kernel.copy(domains=[*domains, isl.BasicSet(cube)]), unused)


def _without_priority(kernel: lp.LoopKernel, inames: Container[str]) -> lp.LoopKernel:
    """The kernel without an order of these loops, which a transformation splits and orders itself."""
    orders = (tuple(iname for iname in order if iname not in inames) for order in kernel.loop_priority)
    return kernel.copy(loop_priority=frozenset(order for order in orders if len(order) > 1))


def without_inames(domain: Any, inames: set[str]) -> Any:
    """The domain without some inames; what they say about other inames is kept."""
    for iname in sorted(inames.intersection(domain.get_var_names(SET))):
        at = domain.get_var_names(SET).index(iname)
        bounds = [c for c in domain.get_constraints() if c.involves_dims(SET, at, 1)]
        if all(c.involves_dims(SET, k, 1) == (k == at) for c in bounds for k in range(domain.dim(SET))):
            # Projection would leave the condition that this loop is not empty to the loops of others.
            domain = domain.drop_constraints_involving_dims(SET, at, 1)
        domain = domain.project_out(SET, at, 1)
    return domain
