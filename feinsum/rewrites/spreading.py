"""Moves that spread whatever loops an einsum has over work-groups and work-items."""

from __future__ import annotations

from collections.abc import Mapping

import loopy as lp

from feinsum.match import Match
from feinsum.rewrites.loops import divide, place

_GROUP_AXES = ("g.1", "g.2")


def spread(t_unit: lp.TranslationUnit, match: Match, lane: str, items: int, sizes: Mapping[str, int]) -> lp.TranslationUnit:
    """Give the device one work-item for each iteration of the three longest output loops.

    Before::

        for a, b, c, d: out[a, b, c, d] = ...

    After, with `lane` ``"d"`` and a and b the longest of the rest::

        out[get_group_id(1), get_group_id(2), c, get_global_id(0)] = ...        for each c

    :param lane: the output index that runs along the work-items of a group.
    :param items: work-items of a group.
    :param sizes: lengths of the indices, to tell the longest.
    """
    t_unit = divide(t_unit, match, lane, items, outer="g.0", inner="l.0")
    others = [letter for letter in match.einsum.indexing.output if letter != lane]
    others.sort(key=lambda letter: -sizes[letter])
    for letter, tag in zip(others, _GROUP_AXES, strict=False):
        t_unit = place(t_unit, match, letter, tag)
    return t_unit


def spread_sum(t_unit: lp.TranslationUnit, match: Match, items: int, sizes: Mapping[str, int]) -> lp.TranslationUnit:
    """Give every entry of the output a work-group, whose work-items share the longest summed loop.

    Before::

        for i: out[i] = sum(j, a(i, j))

    After::

        partial[l] = sum(j_outer, a(i, j_outer * items + l))        l = get_local_id(0), i = get_group_id(0)
        out[i] = sum(l, partial[l])                                 a tree in local memory

    :param items: work-items of a group.
    :param sizes: lengths of the indices, to tell the longest.
    """
    longest = max(match.einsum.indexing.summed, key=lambda letter: sizes[letter])
    t_unit = divide(t_unit, match, longest, items, inner="l.0")
    outputs = sorted(match.einsum.indexing.output, key=lambda letter: -sizes[letter])
    for letter, tag in zip(outputs, ("g.0", *_GROUP_AXES), strict=False):
        t_unit = place(t_unit, match, letter, tag)
    kernel = t_unit[match.kernel_name]
    iname = match.inames[longest]
    kernel = lp.split_reduction_outward(kernel, f"{iname}_inner")
    return t_unit.with_kernel(kernel)
