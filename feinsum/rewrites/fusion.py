"""A move that makes one index of several that stand together: ``X[e, i] = X[x // 8, x % 8]`` with ``x = 8 e + i``.

An index shorter than a vector fills its lanes together with its neighbour.  See :mod:`feinsum.rewrites.joining` for one
that leaves no quotients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from math import prod
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
from loopy.kernel.data import Iname
from loopy.symbolic import SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Call, FloorDiv, Remainder, Variable

from feinsum.einsum import Array, BatchedEinsum
from feinsum.errors import TransformError
from feinsum.lower.schedule_steps import fresh_name
from feinsum.match import Match
from feinsum.match.stored_functions import bare_value
from feinsum.subscripts import Subscripts


def neighbours(e: BatchedEinsum) -> str:
    """The longest run of indices of fixed length that ends the output and that every array has whole or not at all.

    >>> from feinsum import array, einsum
    >>> X, T = array("X", (9, 4, 16, 8)), array("T", (7, 9))
    >>> neighbours(einsum("bgei,db->dgei", X, T))
    'gei'
    """
    row = last_together(e.indexing)
    return "".join(takewhile(lambda letter: isinstance(e.index_sizes[letter], int), reversed(row)))[::-1]


def last_together(indexing: Subscripts) -> str:
    """The longest run of indices that ends the output and stands side by side wherever any of them stands."""
    row = ""
    for letter in reversed(indexing.output):
        wider = letter + row
        if not all(wider in term or not set(wider) & set(term) for term in (*indexing.inputs, indexing.output)):
            break
        row = wider
    return row


def fuse(t_unit: lp.TranslationUnit, match: Match, letters: str) -> tuple[lp.TranslationUnit, Match]:
    """Make one index of several that stand side by side in every array that has them.

    Before::

        for e in range(16), i in range(8): out[e, i] = sum(k, S(k) * X(k, e, i))

    After ``letters="ei"``::

        for x in range(128): out[x // 8, x % 8] = sum(k, S(k) * X_fused(k, x))        X_fused(k, x) := X(k, x // 8, x % 8)

    Vectors along the new index see that its quotients and remainders are one row of memory.

    :param letters: indices of the output of fixed length; the new index has the last of these letters.
    :returns: the kernel, and its match with one index for them.
    :raises TransformError: if an array has some of them, but not all in this order, or a length is not fixed.

    ``fuse`` in Halide and TVM.
    """
    e = match.einsum
    terms = (*e.indexing.inputs, e.indexing.output)
    lengths = [e.index_sizes.get(letter) for letter in letters]
    if any(set(letters) & set(term) and letters not in term for term in terms) or letters not in e.indexing.output:
        raise TransformError(f"indices '{letters}' do not stand side by side in every array of '{e.subscripts}'")
    sizes = [length for length in lengths if isinstance(length, int)]
    if len(sizes) < len(letters):
        raise TransformError(f"indices '{letters}' of '{e}' have lengths {lengths}, which are not all fixed")
    kernel = t_unit[match.kernel_name]
    result, rules = name_one_index(
        kernel, match, letters, "fused", lambda rule, name, term: _with_one_argument(rule, name, term, letters, sizes)
    )
    iname = result.inames[letters[-1]]
    changed = {}
    for number, (insn_id, loops) in enumerate(zip(match.insn_ids, match.loops, strict=True)):
        insn = kernel.id_to_insn[insn_id]
        old = [loops[x] for x in letters]
        at = SubstitutionMapper(make_subst_func(dict(zip(old, digits_of(Variable(iname), sizes), strict=True))))
        changed[insn_id] = insn.copy(
            assignee=at(insn.assignee),
            expression=bare_value(result, number),
            predicates=frozenset(map(at, insn.predicates)),
            within_inames=(insn.within_inames - set(old)) | {iname},
        )
    return put_one_loop(t_unit, result, changed, rules, prod(sizes)), result


def name_one_index(
    kernel: lp.LoopKernel,
    match: Match,
    letters: str,
    suffix: str,
    write_rule: Callable[[str, str, str], lp.SubstitutionRule],
) -> tuple[Match, list[lp.SubstitutionRule]]:
    """The match with one index for several, called by the last of them, and the rules of operands that have it.

    Its loop and these rules have names that are new; the kernel has them after :func:`put_one_loop`.

    :param suffix: ends the names of the rules.
    :param write_rule: the rule of a name for another rule, whose arguments are the indices of a term.
    """
    e = match.einsum
    taken = set(kernel.all_variable_names()) | set(kernel.substitutions)
    iname = fresh_name("_".join(match.inames[x] for x in letters), taken)
    rules: dict[str, lp.SubstitutionRule] = {}
    for row in match.rules:
        for rule, term in zip(row, e.indexing.inputs, strict=True):
            if letters in term and rule not in rules:
                rules[rule] = write_rule(rule, fresh_name(f"{rule}_{suffix}", taken), term)
    result = replace(
        match,
        einsum=fused(e, letters),
        rules=tuple(tuple(str(rules[rule].name) if rule in rules else rule for rule in row) for row in match.rules),
        loops=tuple({**{x: own for x, own in row.items() if x not in letters}, letters[-1]: iname} for row in match.loops),
    )
    return result, list(rules.values())


def put_one_loop(
    t_unit: lp.TranslationUnit, match: Match, changed: Mapping[str, Any], rules: Sequence[lp.SubstitutionRule], length: int
) -> lp.TranslationUnit:
    """The kernel with the loop and the rules of :func:`name_one_index`, without the loops that became empty.

    :param match: with one index for several.
    :param changed: instructions by their names.
    """
    kernel = t_unit[match.kernel_name]
    (iname,) = set(match.inames.values()) - set(kernel.inames)
    kernel = kernel.copy(
        instructions=[changed.get(insn.id, insn) for insn in kernel.instructions],
        domains=[*kernel.domains, isl.BasicSet(f"{{[{iname}]: 0 <= {iname} < {length}}}")],
        inames={**kernel.inames, iname: Iname(iname, frozenset())},
        substitutions={**kernel.substitutions, **{rule.name: rule for rule in rules}},
    )
    return t_unit.with_kernel(lp.remove_unused_inames(kernel))


def fused(e: BatchedEinsum, letters: str) -> BatchedEinsum:
    """The einsum after :func:`fuse`; arrays of a row that are multiplied together become one."""
    terms = e.indexing.inputs
    indexing = Subscripts(
        tuple(x.replace(letters, letters[-1]) for x in terms), e.indexing.output.replace(letters, letters[-1])
    )
    args = tuple(
        tuple(
            (_with_one_axis(entry, term.index(letters), len(letters)),) if letters in term else entry
            for entry, term in zip(row, terms, strict=True)
        )
        for row in e.args
    )
    return BatchedEinsum(indexing, args)


def _with_one_axis(entry: Sequence[Array], axis: int, count: int) -> Array:
    shape = entry[0].shape
    length = prod(int(n) for n in shape[axis : axis + count])
    name = "_".join((*(a.name for a in entry), f"fused{axis}"))
    return Array(name, (*shape[:axis], length, *shape[axis + count :]), np.result_type(*(a.dtype for a in entry)))


def _with_one_argument(rule: str, name: str, term: str, letters: str, sizes: Sequence[int]) -> lp.SubstitutionRule:
    """``name(k, x) := rule(k, x // 8, x % 8)``."""
    formal = [f"{x}_arg" for x in term.replace(letters, letters[-1])]
    digits = dict(zip(letters, digits_of(Variable(f"{letters[-1]}_arg"), sizes), strict=True))
    return lp.SubstitutionRule(
        name, tuple(formal), Call(Variable(rule), tuple(digits.get(x, Variable(f"{x}_arg")) for x in term))
    )


def digits_of(position: Any, sizes: Sequence[int]) -> list[Any]:
    """The indices that a position in the fused index stands for, as quotients and remainders."""
    digits: list[Any] = []
    for k, size in enumerate(sizes):
        step = prod(sizes[k + 1 :])
        quotient = FloorDiv(position, step) if step > 1 else position
        # A remainder or quotient that changes nothing would hide the lane from the search for vectors.
        digit = Remainder(quotient, size) if prod(sizes[:k]) > 1 else quotient
        digits.append(digit if size > 1 else 0)
    return digits
