"""Moves that contract some operands first: inside a kernel, or in kernels of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_letters
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
from loopy.kernel.data import Iname
from loopy.symbolic import SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Call, Variable

from feinsum.contraction import ContractionSchedule
from feinsum.einsum import Array, BatchedEinsum
from feinsum.errors import TransformError
from feinsum.lower.schedule_steps import StepNest, Steps, fresh_name
from feinsum.lower.substitution_rules import sum_of_calls
from feinsum.match import Match
from feinsum.match.stored_functions import bare_value
from feinsum.subscripts import Subscripts


def contract_in_steps(
    t_unit: lp.TranslationUnit, match: Match, schedule: ContractionSchedule
) -> tuple[lp.TranslationUnit, tuple[Match, ...]]:
    """Contract along a schedule, one launch a step, partial results in global memory.

    Before::

        out[i] = sum([j, k], A(i, j) * B(j, k) * x(k))

    After::

        partial_0[j] = sum(k, B(j, k) * x(k))
        ... gbarrier
        out[i] = sum(j, A(i, j) * partial_0(j))

    Every step has inames of its own; the instructions of the last step keep the ids they had.

    :returns: the kernel, and the match of each step.
    :raises SubscriptError: if the schedule does not evaluate the einsum of the match.
    :raises TransformError: if an instruction of the match has a predicate.

    opt_einsum calls the schedule a path.
    """
    schedule.check(match.einsum.indexing)
    kernel = t_unit[match.kernel_name]
    rows = [kernel.id_to_insn[insn_id] for insn_id in match.insn_ids]
    if any(insn.predicates for insn in rows):
        raise TransformError(f"instruction '{rows[0].id}' has a predicate, which the steps of a schedule cannot have")
    steps = Steps(
        rules=match.rules,
        outputs=match.outputs,
        dtypes=match.einsum.dtypes,
        lengths={
            letter: axis if isinstance(axis, int) else match.names[str(axis)]
            for letter, axis in match.einsum.index_sizes.items()
        },
        taken=set(kernel.all_variable_names()) | set(kernel.id_to_insn) | set(kernel.substitutions),
        after=frozenset[str]().union(*(insn.depends_on for insn in rows)) - set(match.insn_ids),
    )
    steps.add(schedule)
    last = dict(zip((insn.id for insn in steps.instructions[-len(rows) :]), match.insn_ids, strict=True))
    added = [insn.copy(id=last.get(insn.id, insn.id)) for insn in steps.instructions]
    domains = [isl.BasicSet(domain) for domain in steps.domains]
    inames = [name for domain in domains for name in domain.get_var_dict(isl.dim_type.set)]
    kernel = kernel.copy(
        domains=[*kernel.domains, *domains],
        inames={**kernel.inames, **{name: Iname(name, frozenset()) for name in inames}},
        instructions=[insn for insn in kernel.instructions if insn.id not in match.insn_ids] + added,
        substitutions={**kernel.substitutions, **{rule.name: rule for rule in steps.new_rules}},
        temporary_variables={**kernel.temporary_variables, **{t.name: t for t in steps.temporaries}},
    )
    matches = tuple(_match_of_step(match, nest, last) for nest in steps.nests)
    return t_unit.with_kernel(lp.remove_unused_inames(kernel)), matches


def _match_of_step(match: Match, nest: StepNest, last: Mapping[str, str]) -> Match:
    """The match of one step, whose operands are arrays named after their rules."""
    sizes = match.einsum.index_sizes
    args = tuple(
        tuple(
            (Array(rule, tuple(sizes[letter] for letter in letters), dtype),)
            for rule, letters in zip(rules, nest.step.indexing.inputs, strict=True)
        )
        for rules, _, dtype, _ in nest.results
    )
    return replace(
        match,
        einsum=BatchedEinsum(nest.step.indexing, args),
        insn_ids=tuple(last.get(insn_id, insn_id) for *_, insn_id in nest.results),
        rules=tuple(rules for rules, *_ in nest.results),
        loops=(nest.inames,) * len(nest.results),
        outputs=tuple(output for _, output, _, _ in nest.results),
    )


def contract_first(
    t_unit: lp.TranslationUnit, match: Match, operands: Sequence[int], order: str | None = None
) -> tuple[lp.TranslationUnit, Match]:
    """Sum a product of some operands by itself, so that the rest multiplies its result.

    Before::

        out[x, e, i] = sum([r, j], J(x, r, e) * D(r, i, j) * u(e, j))

    After ``operands=(1, 2)``::

        D_u(r, i, e) := sum(j, D(r, i, j) * u(e, j))
        out[x, e, i] = sum(r, J(x, r, e) * D_u(r, i, e))

    This is algebra only: the new rule is evaluated wherever it is used until
    :func:`feinsum.rewrites.materialize` gives it memory.  Rows that share those operands share the rule.

    :param operands: which operands of the match to contract; all of them is allowed.
    :param order: the axes of the new operand; by default the kept indices in order of appearance.
    :returns: the kernel, and its match with the new operand in place of the old ones, as the last one.
    :raises TransformError: if `operands` are none of the match, or `order` has other indices than are kept.

    ``rfactor`` is the nearest move in TVM and Halide.
    """
    e = match.einsum
    chosen = tuple(sorted(set(operands)))
    if not chosen or chosen[0] < 0 or chosen[-1] >= e.n:
        raise TransformError(f"{tuple(operands)} are no operands of '{e.subscripts}', which has {e.n}")
    rest = tuple(k for k in range(e.n) if k not in chosen)
    inside = "".join(e.indexing.inputs[k] for k in chosen)
    outside = set(e.indexing.output).union(*(e.indexing.inputs[k] for k in rest))
    kept = "".join(dict.fromkeys(letter for letter in inside if letter in outside))
    if order is not None and sorted(order) != sorted(kept):
        raise TransformError(f"contracting operands {chosen} of '{e.subscripts}' keeps the indices '{kept}', not '{order}'")
    kept = order if order is not None else kept
    summed = "".join(dict.fromkeys(letter for letter in inside if letter not in kept))

    kernel = t_unit[match.kernel_name]
    new_rules: dict[tuple[str, ...], lp.SubstitutionRule] = {}
    taken = set(kernel.all_variable_names()) | set(kernel.substitutions)
    for row in match.rules:
        factors = tuple(row[k] for k in chosen)
        if factors not in new_rules:
            name = fresh_name("_".join(factors), taken)
            new_rules[factors] = _partial_sum(match, name, chosen, factors, kept, summed)
    indexing = Subscripts((*(e.indexing.inputs[k] for k in rest), kept), e.indexing.output)
    rules = tuple((*(row[k] for k in rest), str(new_rules[tuple(row[k] for k in chosen)].name)) for row in match.rules)
    shape = tuple(e.index_sizes[letter] for letter in kept)
    args = tuple(
        (*(row[k] for k in rest), (Array(names[-1], shape, np.result_type(*(a.dtype for k in chosen for a in row[k]))),))
        for row, names in zip(e.args, rules, strict=True)
    )
    result = replace(match, einsum=BatchedEinsum(indexing, args), rules=rules)
    changed = {insn_id: bare_value(result, row) for row, insn_id in enumerate(match.insn_ids)}
    kernel = kernel.copy(
        instructions=[
            insn.copy(expression=changed[insn.id]) if insn.id in changed else insn for insn in kernel.instructions
        ],
        substitutions={**kernel.substitutions, **{rule.name: rule for rule in new_rules.values()}},
    )
    return t_unit.with_kernel(kernel), result


def _partial_sum(
    match: Match, name: str, chosen: tuple[int, ...], factors: tuple[str, ...], kept: str, summed: str
) -> lp.SubstitutionRule:
    """``name(kept) := sum(summed, product of factors)``, formal arguments named like the inames they stand for."""
    formal = {letter: f"{match.inames[letter]}_arg" for letter in kept}
    at = {**{letter: match.inames[letter] for letter in summed}, **formal}
    value = sum_of_calls(factors, [match.einsum.indexing.inputs[k] for k in chosen], summed, at)
    return lp.SubstitutionRule(name, tuple(formal[letter] for letter in kept), value)


def split_index(
    t_unit: lp.TranslationUnit, match: Match, letter: str, length: int
) -> tuple[lp.TranslationUnit, Match, str]:
    """Make two indices of one, so that each can be treated by itself.

    Before::

        out[i] = sum([k], A(i, k) * x(k))        for 1000 k

    After ``letter="k", length=10``::

        out[i] = sum([k0, k1], A_split(i, k0, k1) * x_split(k0, k1))        A_split(i, k0, k1) := A(i, 10 k0 + k1)

    After ``letter="i"``, for 1000 i::

        out[10 i0 + i1] = sum([k], A_split(i0, i1, k) * x(k))

    Summing over k1 in a step of its own makes work for several groups where the output is small; lanes along i1 have a row
    that registers hold.

    :returns: the kernel, its match with the new index before the old one, and the letter of the new index.
    :raises TransformError: if `length` does not divide the fixed length of the index.

    ``split`` in TVM and Halide; of a reduction axis the first half of ``rfactor``.
    """
    e = match.einsum
    made, chunk = split(e, letter, length)
    size = int(e.index_sizes[letter])
    kernel = t_unit[match.kernel_name]
    taken = set(kernel.all_variable_names()) | set(kernel.substitutions)
    outside, inside = (fresh_name(f"{match.inames[letter]}{level}", taken) for level in range(2))
    rules: dict[tuple[str, int], lp.SubstitutionRule] = {}
    for row in match.rules:
        for rule, letters in zip(row, e.indexing.inputs, strict=True):
            at = rule, letters.find(letter)  # an operand that is read twice is split at an axis each
            if letter in letters and at not in rules:
                rules[at] = _with_split_argument(rule, fresh_name(f"{rule}_split", taken), letters, letter, chunk, length)
    names = tuple(
        tuple(
            str(rules[rule, letters.find(letter)].name) if letter in letters else rule
            for rule, letters in zip(row, e.indexing.inputs, strict=True)
        )
        for row in match.rules
    )
    args = tuple(
        tuple((replace(entry[0], name=name),) for name, entry in zip(row, entries, strict=True))
        for row, entries in zip(names, made.args, strict=True)
    )
    result = replace(
        match,
        einsum=BatchedEinsum(made.indexing, args),
        rules=names,
        loops=tuple(
            {**{x: iname for x, iname in row.items() if x != letter}, chunk: outside, letter: inside} for row in match.loops
        ),
    )
    changed = {}
    for number, (insn_id, loops) in enumerate(zip(match.insn_ids, match.loops, strict=True)):
        insn = kernel.id_to_insn[insn_id]
        if letter in e.indexing.output:
            divided = SubstitutionMapper(make_subst_func({loops[letter]: Variable(outside) * length + Variable(inside)}))
            insn = insn.copy(
                assignee=divided(insn.assignee),
                predicates=frozenset(map(divided, insn.predicates)),
                within_inames=(insn.within_inames - {loops[letter]}) | {outside, inside},
            )
        changed[insn_id] = insn.copy(expression=bare_value(result, number))
    domain = isl.BasicSet(f"{{[{outside}, {inside}]: 0 <= {outside} < {size // length} and 0 <= {inside} < {length}}}")
    kernel = kernel.copy(
        instructions=[changed.get(insn.id, insn) for insn in kernel.instructions],
        domains=[*kernel.domains, domain],
        inames={**kernel.inames, **{name: Iname(name, frozenset()) for name in (outside, inside)}},
        substitutions={**kernel.substitutions, **{rule.name: rule for rule in rules.values()}},
    )
    return t_unit.with_kernel(lp.remove_unused_inames(kernel)), result, chunk


def split(e: BatchedEinsum, letter: str, length: int) -> tuple[BatchedEinsum, str]:
    """The einsum after :func:`split_index`, and the letter of the new index; arrays that are multiplied become one.

    >>> from feinsum import array, einsum
    >>> made, chunk = split(einsum("ij,jk->ik", array("A", (12, 5)), array("B", (5, 7))), "i", 4)
    >>> made.subscripts, made.arrays[0].shape, chunk
    ('aij,jk->aik', (3, 4, 5), 'a')

    :raises TransformError: if `length` does not divide the fixed length of the index.
    """
    size = e.index_sizes.get(letter)
    if not isinstance(size, int) or length < 1 or size % length:
        raise TransformError(f"index '{letter}' of '{e}' cannot be split into parts of {length}")
    chunk = next(x for x in ascii_letters if x not in e.indexing.indices)
    terms = tuple(x.replace(letter, chunk + letter) for x in e.indexing.inputs)
    indexing = Subscripts(terms, e.indexing.output.replace(letter, chunk + letter))
    made: dict[str, Array] = {}

    def one_array(entry: Sequence[Array], term: str) -> Array:
        """A square matrix that two operands read is split at an axis each, and then two arrays."""
        found = _with_split_axis(entry, term.find(letter), length)
        while made.setdefault(found.name, found).shape != found.shape:
            found = replace(found, name=f"{found.name}_split")
        return found

    args = tuple(tuple((one_array(entry, x),) for entry, x in zip(row, e.indexing.inputs, strict=True)) for row in e.args)
    return BatchedEinsum(indexing, args), chunk


def _with_split_argument(rule: str, name: str, letters: str, letter: str, chunk: str, length: int) -> lp.SubstitutionRule:
    """``name(i, k0, k1) := rule(i, length k0 + k1)``."""
    formal = [f"{x}_arg" for x in letters.replace(letter, chunk + letter)]
    position = Variable(f"{chunk}_arg") * length + Variable(f"{letter}_arg")
    at = tuple(position if x == letter else Variable(f"{x}_arg") for x in letters)
    return lp.SubstitutionRule(name, tuple(formal), Call(Variable(rule), at))


def _with_split_axis(entry: Sequence[Array], axis: int, length: int) -> Array:
    """One array for all that are multiplied; an axis below 0 is none."""
    shape: tuple[Any, ...] = entry[0].shape
    if axis >= 0:
        shape = (*shape[:axis], shape[axis] // length, length, *shape[axis + 1 :])
    return Array("_".join(a.name for a in entry), shape, np.result_type(*(a.dtype for a in entry)))


def separate_rows(
    t_unit: lp.TranslationUnit, match: Match, common: str = ""
) -> tuple[lp.TranslationUnit, tuple[Match, ...]]:
    """Give every row loops of its own, so that one output is finished before the next is begun.

    Before::

        for e: out_0[e] = sum(j, D(j) * u0(e, j)); out_1[e] = sum(j, D(j) * u1(e, j))

    After::

        for e0: out_0[e0] = sum(j0, D(j0) * u0(e0, j0))
        for e1: out_1[e1] = sum(j1, D(j1) * u1(e1, j1))

    :param common: index letters whose loops the rows go on sharing.
    :returns: the kernel, and a match of one row for each.

    ``fission`` in Exo and Halide.
    """
    kernel = t_unit[match.kernel_name]
    rows = []
    for row, insn_id in enumerate(match.insn_ids):
        loops = dict(match.loops[row])
        if row:
            fresh = kernel.get_var_name_generator()
            copies = {letter: fresh(iname) for letter, iname in loops.items() if letter not in common}
            old = [loops[letter] for letter in copies]
            kernel = lp.duplicate_inames(kernel, old, within=f"id:{insn_id}", new_inames=list(copies.values()))
            loops |= copies
        rows.append(
            replace(
                match,
                einsum=BatchedEinsum(match.einsum.indexing, (match.einsum.args[row],)),
                insn_ids=(insn_id,),
                rules=(match.rules[row],),
                loops=(loops,),
                outputs=(match.outputs[row],),
            )
        )
    return t_unit.with_kernel(kernel), tuple(rows)
