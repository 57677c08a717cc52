"""A move that makes one index of several that lie one after the other in memory: ``X[e, i] = X[0, x]``, ``x = 8 e + i``.

It needs rows without gaps and leaves no quotients: a skeleton then treats all of them as one index, with one digit of a
fused index and one tile that divides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import loopy as lp
from pymbolic.primitives import Subscript, Variable

from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.match.stored_functions import Finishing, bare_value, output_placeholder
from feinsum.rewrites.fusion import digits_of, name_one_index, put_one_loop


def side_by_side(e: BatchedEinsum) -> tuple[str, ...]:
    """Groups of indices of fixed length that every array has side by side, in this order, or not at all.

    >>> from feinsum import array, einsum
    >>> side_by_side(einsum("abfe,cdfe->abcd", array("A", (4, 5, 8, 9)), array("B", (6, 7, 8, 9))))
    ('ab', 'cd', 'fe')
    """
    terms = (*e.indexing.inputs, e.indexing.output)
    fixed = [x for x in e.indexing.indices if isinstance(e.index_sizes[x], int)]
    after = {x: y for x in fixed for y in fixed if all(x + y in term or not {x, y} & set(term) for term in terms)}
    groups = []
    for x in fixed:
        if x in after and x not in after.values():
            letters = x
            while letters[-1] in after:
                letters += after[letters[-1]]
            groups.append(letters)
    return tuple(groups)


def join(t_unit: lp.TranslationUnit, match: Match, letters: str) -> tuple[lp.TranslationUnit, Match]:
    """Make one index of several, summed over or not, that lie one after the other in every array that has them.

    Before::

        for a, b: out[a, b] = sum([k, l], A(a, k, l) * B(b, k, l))

    After ``letters="kl"``::

        for a, b: out[a, b] = sum(l, A_joined(a, l) * B_joined(b, l))        A_joined(a, l) := A[a, 0, l]

    The index runs beyond the end of its axis into the next row, which is where the values are.  Functions of sums read
    their arrays at the quotients and remainders that the index stands for, ``b[l // 5, l % 5]``, as these need not lie so.

    :param letters: as of :func:`side_by_side`; the new index has the last of them.
    :returns: the kernel, and its match with one index for them.
    :raises TransformError: if the indices are not side by side, or an array does not lie in memory row by row.

    ``fuse`` in Halide and TVM.
    """
    e = match.einsum
    if not any(letters in group for group in side_by_side(e)):
        raise TransformError(f"indices '{letters}' of '{e}' are not side by side in every array")
    kernel = t_unit[match.kernel_name]
    result, rules = name_one_index(
        kernel, match, letters, "joined", lambda rule, name, term: _joined_rule(kernel, rule, name, term, letters)
    )
    changed = {
        insn_id: _joined_row(kernel, match, result, number, letters) for number, insn_id in enumerate(match.insn_ids)
    }
    sizes = [int(e.index_sizes[x]) for x in letters]
    joined = replace(result, finishing=_joined_finishing(kernel, match, letters, sizes))
    return put_one_loop(t_unit, joined, changed, rules, prod(sizes)), joined


def _joined_finishing(kernel: lp.LoopKernel, match: Match, letters: str, sizes: Sequence[int]) -> Mapping[str, Finishing]:
    """The functions of sums, where the last of some axes of an output runs through all of them."""
    moved = {}
    for insn_id, loops, output in zip(match.insn_ids, match.loops, match.outputs, strict=True):
        if output in match.finishing and letters in match.einsum.indexing.output:
            old = kernel.id_to_insn[insn_id].assignee.index_tuple
            axes = [old.index(Variable(loops[x])) for x in letters]
            index = [output_placeholder(k) for k in range(len(old))]
            for axis, digit in zip(axes, digits_of(index[axes[-1]], sizes), strict=True):
                index[axis] = digit
            moved[output] = match.finishing[output].moved(tuple(index))
    return {**match.finishing, **moved}


def _joined_rule(kernel: lp.LoopKernel, rule: str, name: str, term: str, letters: str) -> lp.SubstitutionRule:
    """``name(a, l) := A[a, 0, l]``."""
    definition = kernel.substitutions[rule]
    formal = tuple(f"{x}_arg" for x in term.replace(letters, letters[-1]))
    plain = tuple(map(Variable, definition.arguments))
    at = tuple(0 if x in letters[:-1] else Variable(f"{x}_arg") for x in term)
    return lp.SubstitutionRule(name, formal, _moved_entry(kernel, definition.expression, plain, at))


def _joined_row(kernel: lp.LoopKernel, match: Match, result: Match, number: int, letters: str) -> Any:
    """The instruction of a row, with one loop or sum for several."""
    output, insn = match.einsum.indexing.output, kernel.id_to_insn[match.insn_ids[number]]
    expression = bare_value(result, number)
    if letters not in output:
        return insn.copy(expression=expression)
    loops, iname = match.loops[number], result.loops[number][letters[-1]]
    plain = tuple(Variable(loops[x]) for x in output)
    at = tuple(0 if x in letters[:-1] else Variable(iname if x == letters[-1] else loops[x]) for x in output)
    inside = (insn.within_inames - {loops[x] for x in letters}) | {iname}
    return insn.copy(
        assignee=_moved_entry(kernel, insn.assignee, plain, at), expression=expression, within_inames=frozenset(inside)
    )


def _moved_entry(kernel: lp.LoopKernel, entry: Any, plain: tuple[Any, ...], at: tuple[Any, ...]) -> Subscript:
    """An entry of an array with other indices; before, they have to be `plain`, but for zeros where some are joined."""
    old = entry.index_tuple if isinstance(entry, Subscript) else ()
    if tuple(index for index in old if index != 0) != plain:
        raise TransformError(f"'{entry}' is no entry of an array at {plain}, so its indices cannot be joined")
    if not in_rows(kernel.get_var_descriptor(entry.aggregate.name)):
        raise TransformError(f"array '{entry.aggregate.name}' does not lie in memory row by row, so its rows have no next")
    moved = dict(zip(plain, at, strict=True))
    return Subscript(entry.aggregate, tuple(moved.get(index, 0) for index in old))


def in_rows(array: Any) -> bool:
    """Whether an array lies in memory row by row, from the beginning of its buffer."""
    if getattr(array, "offset", 0):
        return False
    stride: Any = 1
    for axis, tag in reversed(list(enumerate(array.dim_tags or ()))):
        if getattr(tag, "stride", None) != stride:
            return False
        stride = stride * array.shape[axis]
    return True
