"""Moves that spread whatever loops an einsum has over work-groups and work-items."""

from __future__ import annotations

from collections.abc import Mapping

import loopy as lp

from feinsum.match import Match
from feinsum.rewrites.loops import divide, place, without_race_warnings

_GROUP_AXES = ("g.0", "g.1", "g.2")


def spread(t_unit: lp.TranslationUnit, match: Match, lane: str, items: int, sizes: Mapping[str, int]) -> lp.TranslationUnit:
    """Give the device a work-item for each iteration of the three longest output loops.

    Before::

        for a, b, c, d: out[a, b, c, d] = ...

    After, with `lane` ``"d"`` and a and b the longest of the rest::

        out[get_group_id(1), get_group_id(2), c, get_global_id(0)] = ...        for each c

    :param lane: the output index that runs along the work-items of a group.
    :param items: work-items of a group.
    :param sizes: lengths of the indices, to tell the longest.
    """
    t_unit, (groups, lanes) = divide(t_unit, match, lane, (items,), peel=False)
    others = sorted(set(match.einsum.indexing.output) - {lane}, key=lambda letter: (-sizes[letter], letter))
    return place(t_unit, match, {groups: "g.0", lanes: "l.0", **dict(zip(others, _GROUP_AXES[1:], strict=False))})


def spread_sum(t_unit: lp.TranslationUnit, match: Match, items: int, sizes: Mapping[str, int]) -> lp.TranslationUnit:
    """Give every entry of the output a work-group, whose work-items share the longest summed loop.

    Before::

        for i: out[i] = sum(j, a(i, j))

    After::

        partial[l] = sum(j0, a(i, j0 * items + l))        l = get_local_id(0), i = get_group_id(0)
        out[i] = sum(l, partial[l])                       a tree in local memory

    :param items: work-items of a group.
    :param sizes: lengths of the indices, to tell the longest.
    """
    summed = match.einsum.indexing.summed
    longest = max(summed, key=lambda letter: sizes[letter])
    t_unit, (chunks, lanes) = divide(t_unit, match, longest, (items,), peel=False)
    outputs = sorted(match.einsum.indexing.output, key=lambda letter: (-sizes[letter], letter))
    t_unit = place(t_unit, match, {lanes: "l.0", **dict(zip(outputs, _GROUP_AXES, strict=False))})
    inward = [chunks, *(match.inames[letter] for letter in summed if letter != longest)]
    kernel = lp.split_reduction_inward(t_unit[match.kernel_name], inward)
    # Every work-item of a group would store the sum; loopy warns, then lets only the one that holds it do so.
    return t_unit.with_kernel(without_race_warnings(kernel, match.insn_ids))
