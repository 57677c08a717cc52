"""From an einsum and a configuration to a program: lower, match, transform, generate."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from loopy import AddressSpace
from loopy.diagnostic import LoopyError

from feinsum.compile.codegen import generate_program, to_extent
from feinsum.compile.detours import detours_paused
from feinsum.compile.index_width import has_large, index_dtype
from feinsum.compile.kernel_program import Extent, KernelProgram
from feinsum.effects import deprecations_paused
from feinsum.einsum import BatchedEinsum
from feinsum.epilogue import Epilogue
from feinsum.epilogue.tree import EpilogueNumber, Sum, walk_tree
from feinsum.errors import FeinsumError, SpaceError
from feinsum.lower import generate_loopy, sum_names
from feinsum.lower.loopy_target import QuietTarget
from feinsum.match import match_einsum, match_finished
from feinsum.rewrites import finish_apart, finish_together
from feinsum.space import Configuration, TransformSpace

if TYPE_CHECKING:
    import loopy as lp

    from feinsum.devices import DeviceProfile

logger = logging.getLogger(__name__)

_FINISHED_BY_GROUP, _FINISHED_BY_GPU_GROUP = 1024, 256
"""Entries of an output that a work-group of a CPU, and of a GPU, finishes where that is a launch of its own."""


def transformed(
    e: BatchedEinsum,
    sizes: Mapping[str, int],
    space: TransformSpace,
    configuration: Configuration,
    profile: DeviceProfile,
    *,
    wide: bool = False,
    target: lp.TargetBase | None = None,
) -> lp.TranslationUnit:
    """The loopy kernel of `e` after one configuration of a space.

    Epilogues of a space that does not write them itself are applied by another launch.

    :param sizes: the lengths expected of the long axes.
    :param wide: whether to index with 64 bits even if these lengths do not need it.
    :param target: see :func:`feinsum.lower.generate_loopy`.
    :raises TransformError: if the space refuses the configuration.
    """
    with deprecations_paused, detours_paused():
        lengths = e.resolve(sizes)
        wide = wide or index_dtype(e, lengths) == "int64"
        by_name = {name: lengths[letter] for letter, name in e.length_names.items()}
        result = _applied(e, sizes, space, configuration, profile, wide=wide, target=target)
        if not wide and has_large(_global_shapes(result), by_name):
            return transformed(e, sizes, space, configuration, profile, wide=True, target=target)
        return result


def _applied(
    e: BatchedEinsum,
    sizes: Mapping[str, int],
    space: TransformSpace,
    configuration: Configuration,
    profile: DeviceProfile,
    *,
    wide: bool,
    target: lp.TargetBase | None,
) -> lp.TranslationUnit:
    """See :func:`transformed`; a space that cannot apply epilogues where it stores its sums stores the sums as they are."""
    parts = (e, sizes, space, configuration, profile)
    finishes = zip(e.epilogues, e.dtypes, strict=False)
    fused = space.finishes(e, configuration) and all(own is None or _is_fused(own, dtype) for own, dtype in finishes)
    if not e.epilogues or not fused:
        return _in_launches(*parts, apart=bool(e.epilogues), wide=wide, target=target)
    try:
        return _in_launches(*parts, apart=False, wide=wide, target=target)
    except SpaceError:
        raise
    except (FeinsumError, LoopyError) as error:
        logger.info("'%s' has a launch for its epilogue, as '%s' does not store it: %s", e, space.name, error)
        return _in_launches(*parts, apart=True, wide=wide, target=target)


def _is_fused(epilogue: Epilogue, dtype: np.dtype[Any]) -> bool:
    """Whether spaces can apply an epilogue to finished sums: only if it depends on the sum.

    Compilers leave out sums of integers that a zero multiplies.  Where only the output is read then, Intel's (2026.2)
    forgets the bound of the loops; the launch of its own has a predicate for that.
    """
    if not any(isinstance(node, Sum) for node in walk_tree(epilogue.expression)):
        return False
    zero = any(isinstance(node, EpilogueNumber) and node.value == 0 for node in walk_tree(epilogue.expression))
    return not (zero and epilogue.reads_output and dtype.kind in "iu")


def _in_launches(
    e: BatchedEinsum,
    sizes: Mapping[str, int],
    space: TransformSpace,
    configuration: Configuration,
    profile: DeviceProfile,
    *,
    apart: bool,
    wide: bool,
    target: lp.TargetBase | None,
) -> lp.TranslationUnit:
    """See :func:`transformed`.

    :param apart: whether epilogues have a launch of their own.
    """
    unfinished = apart or e.combines
    t_unit = generate_loopy(e, index_dtype="int64" if wide else "int32", target=target, unfinished=unfinished, inline=True)
    match = match_einsum(t_unit) if unfinished else match_finished(t_unit)
    if e.combines and not apart:
        t_unit, match = finish_together(t_unit, match, e)
    if match.einsum.indexing == e.indexing:  # asked about the very same, a space remembers what it worked out
        problem = space.problem(e, sizes, profile)
    else:
        lengths = e.resolve(sizes)
        by_name = {name: lengths[letter] for letter, name in e.length_names.items()}
        own = {axis: by_name[match.names[axis]] for axis in match.einsum.long_axes}
        problem = space.problem(match.einsum, own, profile)
    result = space.transform(t_unit, match, configuration, problem)
    return finish_apart(result, match.kernel_name, e, sum_names(e), items=finishing_items(profile)) if apart else result


def finishing_items(profile: DeviceProfile) -> int:
    """Work-items of a group that finishes sums: as many numbers as are worth one on a CPU, a few sub-groups elsewhere."""
    return min(_FINISHED_BY_GROUP if profile.kind == "cpu" else _FINISHED_BY_GPU_GROUP, profile.max_work_group_size)


def _global_shapes(t_unit: lp.TranslationUnit) -> list[list[Extent]]:
    """The shapes of the arrays that launches share."""
    temporaries = t_unit.default_entrypoint.temporary_variables.values()
    return [list(map(to_extent, t.shape)) for t in temporaries if t.address_space == AddressSpace.GLOBAL]


def realize(
    e: BatchedEinsum,
    sizes: Mapping[str, int],
    space: TransformSpace,
    configuration: Configuration,
    profile: DeviceProfile,
    *,
    wide: bool = False,
    proved: bool = False,
) -> KernelProgram:
    """The program of `e` after one configuration of a space; see :func:`transformed`.

    :param proved: see :func:`feinsum.compile.codegen.generate_program`.
    :raises TransformError: also if loopy generates no code.
    """
    t_unit = transformed(e, sizes, space, configuration, profile, wide=wide, target=QuietTarget())
    return generate_program(t_unit, proved=proved)
