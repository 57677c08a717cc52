"""Moves that divide loops and lay them on the axes of the device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import islpy as isl
import loopy as lp
from loopy.kernel.data import HardwareConcurrentTag, Iname
from loopy.symbolic import SubstitutionMapper, get_dependencies, parse, pw_aff_to_expr
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Comparison, FloorDiv, Variable, flattened_product, flattened_sum

from feinsum.errors import TransformError
from feinsum.match import Match

_GROUP_AXES = ("g.0", "g.1", "g.2")


def divide(
    t_unit: lp.TranslationUnit, match: Match, loop: str, lengths: Sequence[int], *, peel: bool = True
) -> tuple[lp.TranslationUnit, tuple[str, ...]]:
    """Divide a loop into a nest, of which `lengths` are the inner loops.

    Before::

        for i in range(n): S(i)

    After ``lengths=(4, 16)``::

        for i0 in range(ceil(n / 64)):
            for i1 in range(4):
                for i2 in range(16):
                    if (i0 * 4 + i1) * 16 + i2 < n: S((i0 * 4 + i1) * 16 + i2)

    Where the division leaves a remainder, `peel` gives the last iteration of ``i0`` code of its own, so that the others
    need no guard.

    :param loop: an index letter of the match, or an iname.
    :returns: the kernel and the inames of the nest, from the outside in.
    :raises TransformError: if there is no such loop, or a length is not positive.

    ``split`` in Halide and TVM, ``divide_loop`` in Exo.
    """
    iname = iname_of(t_unit, match, loop)
    if not lengths or any(length < 1 for length in lengths):
        raise TransformError(f"loop '{loop}' divided into {tuple(lengths)}; lengths are positive and at least one")
    kernel = t_unit[match.kernel_name]
    fresh = kernel.get_var_name_generator()
    names = [fresh(f"{iname}{level}") for level in range(len(lengths) + 1)]
    slabs = (0, 1) if peel and _leaves_remainder(kernel, iname, math.prod(lengths)) else (0, 0)
    rest = iname
    for level in range(len(lengths)):
        tail = names[-1] if level == len(lengths) - 1 else fresh(iname)
        kernel = lp.split_iname(
            kernel, rest, math.prod(lengths[level:]), outer_iname=names[level], inner_iname=tail, slabs=slabs
        )
        rest, slabs = tail, (0, 0)
    return t_unit.with_kernel(kernel), tuple(names)


def _leaves_remainder(kernel: lp.LoopKernel, iname: str, length: int) -> bool:
    size = pw_aff_to_expr(kernel.get_iname_bounds(iname).size)
    return not isinstance(size, int) or (size > length and size % length != 0)


def divide_guarded(
    t_unit: lp.TranslationUnit, match: Match, loop: str, lengths: Sequence[int], *, overlapping: bool = False
) -> tuple[lp.TranslationUnit, tuple[str, ...]]:
    """Divide a loop into a nest whose innermost loop always has its full length; its statements are guarded.

    Before::

        for e in range(E): S(e)

    After ``lengths=(500, 2)``::

        for e0 in range(ceil(E / 1000)):
            for e1 in range(500) while (e0 * 500 + e1) * 2 < E:
                for e2 in range(2):
                    if (e0 * 500 + e1) * 2 + e2 < E: S(...)

    So what :func:`feinsum.rewrites.materialize` keeps over ``e2`` can stay in registers.

    After ``lengths=(8,), overlapping=True`` with E = 20, where results that are stored twice are the same::

        for e0 in range(3):
            for e1 in range(8): S(8 * e0 - 4 * (e0 // 2) + e1)

    :param overlapping: whether the last of at least two parts begins where it has its full length, if that can be told.
    :param loop: an index letter of the match, or an iname, around its instructions.
    :returns: the kernel and the inames of the nest, from the outside in.
    :raises TransformError: if there is no such loop, it is summed over, or a length is not positive.
    """
    iname = iname_of(t_unit, match, loop)
    kernel = t_unit[match.kernel_name]
    length = loop_length(kernel, iname)
    fresh = kernel.get_var_name_generator()
    names = tuple(fresh(f"{iname}{level}") for level in range(len(lengths) + 1))
    position: Any = 0
    for name, extent in zip(names, (1, *lengths), strict=True):
        position = flattened_sum((flattened_product((position, extent)), Variable(name)))
    rows = {insn.id: insn for insn in kernel.instructions if iname in insn.within_inames}
    for insn in rows.values():
        if isinstance(insn, lp.Assignment) and iname in insn.reduction_inames():
            raise TransformError(f"instruction '{insn.id}' sums over '{iname}', so its iterations cannot be guarded")
    substitute = SubstitutionMapper(make_subst_func({iname: position}))
    guard = Comparison(position, "<", length)
    exact = isinstance(length, int) and length % math.prod(lengths) == 0
    if overlapping and not exact and isinstance(length, int) and len(lengths) == 1 and length > lengths[0]:
        last, beyond = length // lengths[0], -length % lengths[0]
        position = position - beyond * FloorDiv(Variable(names[0]), last)
        substitute, exact = SubstitutionMapper(make_subst_func({iname: position})), True
    changed = {
        insn.id: insn.with_transformed_expressions(substitute).copy(
            within_inames=(insn.within_inames - {iname}) | set(names),
            predicates=frozenset(map(substitute, insn.predicates)) | (frozenset() if exact else {guard}),
        )
        for insn in rows.values()
    }
    outer, *middle = names[:-1]
    begin = " + ".join(f"{name}*{math.prod(lengths[k:])}" for k, name in enumerate(names[:-1]))
    bounds = [f"0 <= {outer}", f"{begin} < {length}"]
    bounds += [f"0 <= {name} < {extent}" for name, extent in zip(middle, lengths, strict=False)]
    parameters = ", ".join(sorted(get_dependencies(length)))
    domains = [
        isl.BasicSet(f"[{parameters}] -> {{[{', '.join(names[:-1])}]: {' and '.join(bounds)}}}"),
        isl.BasicSet(f"{{[{names[-1]}]: 0 <= {names[-1]} < {lengths[-1]}}}"),
    ]
    kernel = kernel.copy(
        instructions=[changed.get(insn.id, insn) for insn in kernel.instructions],
        domains=[*kernel.domains, *domains],
        inames={**kernel.inames, **{name: Iname(name, frozenset()) for name in names}},
    )
    return t_unit.with_kernel(lp.remove_unused_inames(kernel)), names


def place(t_unit: lp.TranslationUnit, match: Match, tags: Mapping[str, str]) -> lp.TranslationUnit:
    """Run loops in parallel along axes of the device, or unroll them.

    Before::

        for i in range(n): S(i)

    After ``{"i": "g.1"}``: ``S(get_group_id(1))`` in n groups; after ``{"i": "unr"}``: ``S(0); S(1); ...``

    :param tags: iname or index letter -> tag of loopy.
    :raises TransformError: if there is no such loop.

    ``parallel``, ``gpu_blocks``, ``unroll`` in Halide, ``bind`` in TVM.
    """
    inames = {iname_of(t_unit, match, loop): tag for loop, tag in tags.items()}
    kernel = lp.tag_inames(t_unit[match.kernel_name], inames)
    return t_unit.with_kernel(without_shared_slabs(kernel))


def without_shared_slabs(kernel: lp.LoopKernel) -> lp.LoopKernel:
    """Guards in place of peeled iterations where loops share an axis of the device, since loopy peels only loops alone."""
    axes: dict[Any, list[str]] = {}
    for name, iname in kernel.inames.items():
        for tag in iname.tags_of_type(HardwareConcurrentTag):
            axes.setdefault(tag, []).append(name)
    shared = {name for names in axes.values() if len(names) > 1 for name in names}
    slabs = kernel.iname_slab_increments
    for name in shared & set(slabs):
        slabs = slabs.delete(name)
    return kernel.copy(iname_slab_increments=slabs)


def iname_of(t_unit: lp.TranslationUnit, match: Match, loop: str) -> str:
    """The iname that `loop` means: an index letter of the match, or an iname of the kernel.

    :raises TransformError: if it is neither.
    """
    if loop in match.inames and match.inames[loop] in t_unit[match.kernel_name].all_inames():
        return match.inames[loop]
    if loop in t_unit[match.kernel_name].all_inames():
        return loop
    raise TransformError(f"'{loop}' is no loop of kernel '{match.kernel_name}'")


def with_own_names(t_unit: lp.TranslationUnit, match: Match) -> tuple[lp.TranslationUnit, Match]:
    """Rename loops that are named like another index letter of the match, so that each name means one thing.

    Before: ``for i: ...`` where letter ``j`` stands for loop ``i``; after: ``for i_: ...``.

    :returns: the kernel, and the match with the new names.
    """
    kernel = t_unit[match.kernel_name]
    taken = set(kernel.all_variable_names()) | set(kernel.all_inames()) | set(match.einsum.indexing.indices)
    loops = []
    names: dict[str, str] = {}
    for row in match.loops:
        for iname in row.values():
            if iname in match.einsum.indexing.indices and iname not in names:
                names[iname] = iname + "_"
                while names[iname] in taken:
                    names[iname] += "_"
                taken.add(names[iname])
        loops.append({letter: names.get(iname, iname) for letter, iname in row.items()})
    return t_unit.with_kernel(_rename_loops(kernel, names)), replace(match, loops=tuple(loops))


def _rename_loops(kernel: lp.LoopKernel, names: Mapping[str, str]) -> lp.LoopKernel:
    """Rename loops, in one pass over the kernel where :func:`loopy.rename_iname` takes one each."""
    if not names:
        return kernel
    tags = [(name, tag) for iname, name in names.items() for tag in kernel.inames[iname].tags]
    kernel = lp.duplicate_inames(kernel, tuple(names), None, new_inames=list(names.values()))
    return lp.tag_inames(lp.remove_unused_inames(kernel, names), tags)


def axis_length(match: Match, letter: str) -> Any:
    """The length of an index of the match: an int, or an expression of the kernel's parameters."""
    axis = match.einsum.index_sizes[letter]
    return axis if isinstance(axis, int) else parse(match.axes[str(axis)])


def loop_length(kernel: lp.LoopKernel, iname: str) -> Any:
    """The length of a loop: an int, or an expression of parameters."""
    return pw_aff_to_expr(kernel.get_iname_bounds(iname).size)


def fixed_length(kernel: lp.LoopKernel, iname: str) -> int:
    """The length of a loop that has a fixed one.

    :raises TransformError: if it has not.
    """
    try:
        length = pw_aff_to_expr(kernel.get_iname_bounds(iname, constants_only=True).size)
    except isl.Error:  # there is no bound without parameters
        length = None
    if not isinstance(length, int):
        raise TransformError(f"loop '{iname}' has no fixed length")
    return length


def nest(t_unit: lp.TranslationUnit, match: Match, order: Sequence[str]) -> lp.TranslationUnit:
    """Order loops from the outside in.

    Before: ``for i: for j: S(i, j)``; after ``("j", "i")``: ``for j: for i: S(i, j)``.

    ``reorder`` in Halide, TVM and Exo.
    """
    loops = ",".join(iname_of(t_unit, match, loop) for loop in order)
    return t_unit.with_kernel(lp.prioritize_loops(t_unit[match.kernel_name], loops))


def without_race_warnings(kernel: lp.LoopKernel, insn_ids: Iterable[str]) -> lp.LoopKernel:
    """The kernel without loopy's warning that work-items of these instructions may write to one place."""
    races = frozenset(f"write_race({insn_id})" for insn_id in insn_ids)
    return kernel.copy(silenced_warnings=kernel.silenced_warnings | races)


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


def spread_tiles(
    t_unit: lp.TranslationUnit, match: Match, lanes: Mapping[str, int], sizes: Mapping[str, int]
) -> lp.TranslationUnit:
    """Give the device a work-item for each iteration of the three longest output loops, in groups that are tiles of two.

    Before::

        for a, b, c: out[a, b, c] = x[b, c, a]

    After, with `lanes` ``{"a": 8, "c": 32}``, so that neighbours in both arrays are in one group::

        a, b, c = get_global_id(0), get_group_id(2), get_global_id(1);  out[a, b, c] = x[b, c, a]

    :param lanes: two output indices, and how many work-items of a group run along each, the quickest first.
    :param sizes: lengths of the indices, to tell the longest.
    """
    counts = {letter: sizes[letter] for letter in match.einsum.indexing.output if letter not in lanes}
    tags = {}
    for axis, (letter, items) in enumerate(lanes.items()):
        t_unit, (groups, own) = divide(t_unit, match, letter, (items,), peel=False)
        tags[own], counts[groups] = f"l.{axis}", -(-sizes[letter] // items)
    longest = sorted(counts, key=lambda loop: (-counts[loop], loop))
    return place(t_unit, match, {**tags, **dict(zip(longest, _GROUP_AXES, strict=False))})


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
    # loopy warns that every work-item of a group stores the sum, and then lets only the one that holds it do so.
    return t_unit.with_kernel(without_race_warnings(kernel, match.insn_ids))
