"""From an einsum and a configuration to a program: lower, match, transform, generate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from loopy import AddressSpace

from feinsum.compile.codegen import generate_program, to_extent
from feinsum.compile.indices import has_large, index_dtype
from feinsum.compile.pause import deprecations_paused
from feinsum.compile.program import Extent, Program
from feinsum.einsum import BatchedEinsum
from feinsum.lower import generate_loopy
from feinsum.lower.target import QuietTarget
from feinsum.match import match_finished
from feinsum.space import Configuration, TransformSpace

if TYPE_CHECKING:
    import loopy as lp

    from feinsum.devices import DeviceProfile


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

    :param sizes: the lengths expected of the long axes.
    :param wide: whether to index with 64 bits even if these lengths do not need it.
    :param target: see :func:`feinsum.lower.generate_loopy`.
    :raises TransformError: if the space refuses the configuration.
    """
    with deprecations_paused:
        lengths = e.resolve(sizes)
        wide = wide or index_dtype(e, lengths) == "int64"
        t_unit = generate_loopy(e, index_dtype="int64" if wide else "int32", target=target)
        match = match_finished(t_unit)
        by_name = {name: lengths[letter] for letter, name in e.length_names.items()}
        if match.einsum.indexing == e.indexing:  # asked about the very same, a space remembers what it worked out
            problem = space.problem(e.bare, sizes, profile)
        else:
            own = {axis: by_name[match.names[axis]] for axis in match.einsum.long_axes}
            problem = space.problem(match.einsum, own, profile)
        result = space.transform(t_unit, match, configuration, problem)
        if not wide and has_large(_global_shapes(result), by_name):
            return transformed(e, sizes, space, configuration, profile, wide=True, target=target)
        return result


def _global_shapes(t_unit: lp.TranslationUnit) -> list[list[Extent]]:
    """The shapes of what launches share."""
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
) -> Program:
    """The program of `e` after one configuration of a space; see :func:`transformed`.

    :param proved: see :func:`feinsum.compile.codegen.generate_program`.
    :raises TransformError: also if loopy generates no code.
    """
    t_unit = transformed(e, sizes, space, configuration, profile, wide=wide, target=QuietTarget())
    return generate_program(t_unit, proved=proved)
