"""`timeit`: prove and time one configuration, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from feinsum.compile.executable import build_executable
from feinsum.compile.realize import realize
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.einsum import BatchedEinsum
from feinsum.errors import SearchError, TransformError, ValidationError
from feinsum.registry import find_space, matching_spaces
from feinsum.space import Configuration, Missed, TransformSpace
from feinsum.timing import Timing, time_executable
from feinsum.tune.subject import nonempty_lengths
from feinsum.tune.task import draw_seed
from feinsum.validate import Rotation, Verdict, proof

if TYPE_CHECKING:
    import pyopencl as cl


def timeit(
    e: BatchedEinsum,
    device: Device | str | cl.Device | cl.CommandQueue | None = None,
    *,
    configuration: Configuration | None = None,
    space: TransformSpace | str | None = None,
    sizes: Mapping[str, int] | None = None,
    seconds: float = 0.3,
    seed: int | None = None,
) -> Timing:
    """Prove that one configuration is right, then time it.  A kernel that hangs or crashes takes this process along.

    :param configuration: by default that which the space would try first.
    :param space: a space or its name; by default the most specific that matches and takes `configuration`, or has any for
        this device.
    :param sizes: the lengths of long axes.
    :param seconds: the budget for samples.
    :param seed: of the inputs and of one of the lengths at which it is proved; None draws one.
    :raises ShapeError: if a long axis has no length in `sizes`, or any axis is empty.
    :raises SearchError: if `seconds` is below 0.
    :raises TransformError: if the space refuses the configuration or the kernel does not compile.
    :raises ValidationError: if its results are wrong, or those of the runs that were timed; the message names the seed.
    """
    lengths = nonempty_lengths(e, sizes, "time")
    if not seconds >= 0:
        raise SearchError(f"seconds is {seconds}; it is 0 or more")
    chosen = choose_device(device)
    s = find_space(space) if isinstance(space, str) else space or _find_taker(e, configuration, sizes, chosen)
    program = realize(
        e,
        dict(sizes or {}),
        s,
        s.default(s.problem(e, sizes, chosen.profile)) if configuration is None else configuration,
        chosen.profile,
    )
    executable = build_executable(chosen.context, program)
    seed = draw_seed() if seed is None else seed
    for workload in (workloads := proof(e, lengths, chosen.queue, seed)):
        _require_right(workload.check(executable), seed)
    main = workloads[-1]
    rotation = Rotation.make(main, chosen.profile)
    rotation.begin(executable)
    timing = time_executable(executable, chosen.queue, rotation, main.parameters, seconds=seconds)
    _require_right(rotation.check(executable), seed)
    return timing


def _require_right(verdict: Verdict, seed: int) -> None:
    if not verdict.ok:
        raise ValidationError(f"{verdict.message} (seed {seed})")


def _find_taker(
    e: BatchedEinsum, configuration: Configuration | None, sizes: Mapping[str, int] | None, device: Device
) -> TransformSpace:
    """The most specific space that takes the configuration, or has any for this device."""
    spaces = matching_spaces(e)
    for s in spaces:
        with Missed(s):
            problem = s.problem(e, sizes, device.profile)
            if configuration is None:
                taken = next(s.configurations(problem), None) is not None
            else:
                taken = s.refusal(problem, configuration) is None
            if taken:
                return s
    raise TransformError(
        f"no space takes {dict(configuration or {})} for '{e.subscripts}' on {device.profile.name}; name one of "
        f"{', '.join(s.name for s in spaces)} with space=... to see why"
    )
