"""`generate`: the fastest kernel anybody has found for a batched einsum on a device."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feinsum.canonicalization import CanonicalEinsum, canonicalize_einsum
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.einsum import BatchedEinsum
from feinsum.errors import DeviceError, FeinsumError

if TYPE_CHECKING:
    import os

    import pyopencl as cl

    from feinsum.compile.executable import Executable
    from feinsum.database import Database
    from feinsum.generate.kernel import Kernel
    from feinsum.generate.ladder import Choice

logger = logging.getLogger(__name__)

_EXPECTED_BYTES = 64 << 20
"""How much an einsum with long axes of unknown length is taken to move: more than caches hold."""


def generate(
    e: BatchedEinsum,
    device: Device | str | cl.Device | cl.CommandQueue | None = None,
    database: Database | str | os.PathLike[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    tune: str = "never",
    *,
    timeout: float = 60.0,
) -> Kernel:
    """The fastest kernel known for `e` on a device.

    :param device: see :func:`feinsum.device`.
    :param database: where to look for records besides those that come with feinsum; None is the store of the user.
    :param sizes: lengths expected of long axes.  They rank records and never limit what the kernel accepts.
    :param tune: ``"never"``; ``"missing"`` to tune first where no record is exact; ``"always"`` to tune first.
    :param timeout: seconds of tuning.
    :raises DeviceError: if there is no usable device, or none of our kernels runs on it.
    :raises ValueError: if `tune` is none of the three.
    """
    from feinsum.database import open_stores
    from feinsum.generate.kernel import Kernel
    from feinsum.generate.ladder import candidates

    if tune not in ("never", "missing", "always"):
        raise ValueError(f"tune is {tune!r}; it is 'never', 'missing' or 'always'")
    chosen = choose_device(device)
    # Nothing is ever launched where an axis is empty, so a kernel for one of length 1 will do.
    empty = {letter: 1 for letter, axis in e.index_sizes.items() if axis == 0}
    canonical = canonicalize_einsum(e.with_sizes(empty) if empty else e)
    expected = {letter: max(1, length) for letter, length in e.resolve(expected_sizes(e, sizes)).items()}
    lengths = canonical.renaming.lengths(expected)
    stores = open_stores(database)
    if tune == "always" or (tune == "missing" and _missing(canonical, lengths, chosen, stores)):
        from feinsum.tune.autotune import autotune

        autotune(canonical.given, chosen, stores.working or database, e.sizes_from(expected), timeout=timeout)
    for choice in candidates(canonical, lengths, chosen.profile, stores):
        try:
            executable = _build(canonical.einsum, lengths, chosen, choice)
        except FeinsumError as error:
            logger.warning("%s %s is passed over: %s", choice.space.name, dict(choice.configuration), error)
            continue
        return Kernel(e, canonical, lengths, chosen, choice, executable)
    raise DeviceError(f"no kernel for '{e.subscripts}' works on {chosen}; the log says what was tried")


def expected_sizes(e: BatchedEinsum, sizes: Mapping[str, int] | None) -> dict[str, int]:
    """Lengths for the long axes: those given, and for the others one that makes the einsum move 64 MiB at most."""
    given = dict(sizes or {})
    axes = {letter: axis for letter, axis in e.index_sizes.items() if isinstance(axis, str)}
    known = {key if key in e.long_axes else axes.get(key, key) for key in given}
    missing = [name for name in e.long_axes if name not in known]
    length = 1
    while missing and length < 1 << 40 and e.min_bytes(given | dict.fromkeys(missing, 2 * length)) <= _EXPECTED_BYTES:
        length *= 2
    return given | dict.fromkeys(missing, length)


def _missing(canonical: CanonicalEinsum, lengths: Mapping[str, int], device: Device, stores: Any) -> bool:
    from feinsum.registry import matching_spaces

    current = [(s.name, s.version) for s in matching_spaces(canonical.einsum)]
    profile = device.profile
    return stores.best(canonical.key, lengths, profile.id, driver=profile.driver, spaces=current) is None


def _build(e: BatchedEinsum, lengths: Mapping[str, int], device: Device, choice: Choice) -> Executable:
    """Realise a choice; below the first rung, check it once."""
    from feinsum.compile.executable import build
    from feinsum.compile.realize import realize
    from feinsum.errors import ValidationError
    from feinsum.validate import Workload, odd_lengths

    program = realize(e, e.sizes_from(lengths), choice.space, choice.configuration, device.profile)
    executable = build(device.context, program)
    if choice.rung != "exact":
        at = (odd_lengths(e, lengths) or [dict(lengths)])[-1]
        verdict = Workload(e, at, device.queue).check(executable)
        if not verdict.ok:
            raise ValidationError(verdict.message)
    return executable
