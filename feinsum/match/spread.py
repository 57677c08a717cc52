"""Spreading: loops of which the iterations are independent become work-items.

    for e:                                             for group, item in parallel, with e = 64*group + item < E:
        d[e] = x[e, 1] - x[e, 0]               ──▶         d[e] = x[e, 1] - x[e, 0]
        w[e] = abs(d[e])                                   w[e] = abs(d[e])

Otherwise one work-item would do the work of a kernel beside its einsums, such as the geometry of each cell; on a GPU that
takes longer than everything else.  Polyhedral compilers call this parallelization of a band.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import islpy as isl
import loopy as lp

from feinsum.errors import MatchError, TransformError
from feinsum.match.domain import Length, find_lengths
from feinsum.match.expression_uses import plain_names
from feinsum.match.fence import fence
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.neighbours import Neighbours
from feinsum.match.signed import sign_lengths

_log = logging.getLogger(__name__)

ITEMS = 64
"""Work-items of a group of a GPU: two sub-groups."""
CHUNK = 512
"""Entries that a work-item of a CPU goes through, one after the other: the compiler has a loop to make vectors of."""


@dataclass(frozen=True)
class _LoopNest:
    """Assignments that share all their loops, and no others."""

    kernel_name: str
    insn_ids: tuple[str, ...]


def spread_loops(
    t_unit: lp.TranslationUnit,
    kind: Literal["cpu", "gpu"] = "cpu",
    kernel_name: str | None = None,
    *,
    reasons: MutableMapping[str, str] | None = None,
) -> lp.TranslationUnit:
    """Make work-items of sequential loops with independent iterations: those in which assignments touch their own entries.

    For the rest of a kernel after :func:`feinsum.transform` transformed its einsums.  All assignments in the same loops are
    spread together, as one launch, and kept apart from others by global barriers as :func:`feinsum.transform` does it;
    parallel loops stay as they are.  On a GPU neighbouring work-items have neighbouring entries, along the last axis of
    what is assigned; on a CPU each goes through some hundreds of entries.

    :param kind: of device, as :attr:`feinsum.DeviceProfile.kind` says it.
    :param kernel_name: an entry point; None for the only one.
    :param reasons: takes, by its id, why an assignment in sequential loops is left alone; the log has it, too.
    """
    name = SourceKernel.of(t_unit, kernel_name).kernel.name
    t_unit = sign_lengths(t_unit)
    source = SourceKernel(t_unit, t_unit[name])
    for nest in _find_nests(source) if name in t_unit.entrypoints else ():
        try:
            t_unit = _spread_nest(t_unit, nest, kind)
        except (MatchError, TransformError) as error:
            _log.info("the loops of '%s' are not spread: %s", nest.insn_ids[0], error)
            if reasons is not None:
                reasons.update(dict.fromkeys(nest.insn_ids, str(error)))
    return t_unit


def _find_nests(source: SourceKernel) -> Iterable[_LoopNest]:
    """The assignments in sequential loops, those of the same loops together."""
    found: dict[frozenset[str], list[str]] = {}
    for insn in source.kernel.instructions:
        tagged = any(source.kernel.iname_tags(iname) for iname in insn.within_inames)
        if isinstance(insn, lp.Assignment) and insn.within_inames and not tagged:
            found.setdefault(insn.within_inames, []).append(insn.id)
    return [_LoopNest(source.kernel.name, tuple(ids)) for ids in found.values()]


def _spread_nest(t_unit: lp.TranslationUnit, nest: _LoopNest, kind: str) -> lp.TranslationUnit:
    """The translation unit with the loops of a nest made work-items.

    :raises MatchError, TransformError: saying why that cannot be.
    """
    source = SourceKernel(t_unit, t_unit[nest.kernel_name])
    _check_nest(source, nest)
    t_unit = fence(t_unit, nest)
    source = SourceKernel(t_unit, t_unit[nest.kernel_name])
    first = source.kernel.id_to_insn[nest.insn_ids[0]]
    inames = [name for name in plain_names(first.assignee.index_tuple) if name in first.within_inames]
    kernel = _without_barriers(source.kernel, nest)
    divide = _into_chunks if kind == "cpu" else _into_items
    return t_unit.with_kernel(divide(kernel, inames, find_lengths(source, inames)))


def _check_nest(source: SourceKernel, nest: _LoopNest) -> None:
    kernel = source.kernel
    (loops,) = {kernel.id_to_insn[insn_id].within_inames for insn_id in nest.insn_ids}
    for insn in kernel.instructions:
        if insn.id not in nest.insn_ids and insn.within_inames & loops:
            raise MatchError(f"'{insn.id}' is in the loop '{min(insn.within_inames & loops)}', too, and in others")
    bounded = [name for domain in kernel.domains for name in domain.get_var_names(isl.dim_type.param) if name in loops]
    if bounded:
        raise MatchError(f"other loops depend on the loop '{bounded[0]}'")
    find_lengths(source, loops)
    neighbours = Neighbours(source)
    for one, other in product(nest.insn_ids, repeat=2):
        for array, apart in neighbours.shared_arrays(one, other, loops).items():
            if not apart:
                raise MatchError(f"'{one}' and '{other}' share '{array}' from iteration to iteration")


def _without_barriers(kernel: lp.LoopKernel, nest: _LoopNest) -> lp.LoopKernel:
    """The kernel whose assignments of a nest need no barriers between them, as each work-item reads what itself wrote."""
    passed = frozenset((insn_id, "any") for insn_id in nest.insn_ids)
    return kernel.copy(
        instructions=[
            insn.copy(no_sync_with=insn.no_sync_with | passed) if insn.id in nest.insn_ids else insn
            for insn in kernel.instructions
        ]
    )


def _into_chunks(kernel: lp.LoopKernel, inames: list[str], lengths: dict[str, Length]) -> lp.LoopKernel:
    """The kernel with a work-item for each chunk of the first of some loops, and the others inside."""
    first, *others = inames
    inside = math.prod(n for n in (lengths[iname] for iname in others) if isinstance(n, int))
    kernel = lp.split_iname(kernel, first, max(1, CHUNK // inside), outer_tag="g.0", inner_iname=f"{first}_inner")
    return lp.prioritize_loops(kernel, [f"{first}_inner", *others])


def _into_items(kernel: lp.LoopKernel, inames: list[str], lengths: dict[str, Length]) -> lp.LoopKernel:
    """The kernel with work-items along the last of some loops, and along the one before where that is short."""
    *others, last = inames
    length: Any = lengths[last]
    items, axis = ITEMS, 0
    if others and isinstance(length, int) and length <= ITEMS:
        kernel = lp.tag_inames(kernel, {last: "l.0"})
        *others, last = others
        items, axis = max(1, ITEMS // length), 1
    kernel = lp.split_iname(kernel, last, items, outer_tag="g.0", inner_tag=f"l.{axis}")
    return lp.tag_inames(kernel, {iname: f"g.{k}" for k, iname in zip((1, 2), reversed(others), strict=False)})
