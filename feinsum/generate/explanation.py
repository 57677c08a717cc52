"""What a kernel says of itself: which rung of the ladder, which record, how far from it, at which speed, at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feinsum.cost import roofline_s

if TYPE_CHECKING:
    from feinsum.generate.calls import Copied
    from feinsum.generate.kernel import Kernel
    from feinsum.generate.origin import Origin
    from feinsum.generate.workshop import Job


def explain(kernel: Kernel, meaning: str, job: Job, origin: Origin, copied: Sequence[Copied]) -> str:
    """See :meth:`Kernel.explain`."""
    given = kernel.expected | {letter: 0 for letter, axis in kernel.einsum.index_sizes.items() if axis == 0}
    lines = [
        f"{kernel.einsum.subscripts} on {kernel.device}",
        f"  lengths   {_listed(given)}",
        f"  rung      {origin.rung}: {meaning}",
        f"  space     {origin.space} (version {origin.version}): {_listed(origin.configuration)}",
    ]
    return "\n".join([*lines, *_record(kernel, job, origin), *(_copy(kernel, one) for one in copied)])


def _record(kernel: Kernel, job: Job, origin: Origin) -> list[str]:
    r = origin.record
    if r is None or r.median_s is None:
        return []
    t, back = r.median_s, job.canonical.pattern.renaming.inverse
    at = back.lengths(r.pattern_sizes)
    lines = [
        f"  record    {r.id} of {r.created}, at {_listed(at)}",
        f"  time      {t * 1e3:.4g} ms, {r.flops / t / 1e9:.4g} GFLOP/s, {r.bytes / t / 1e9:.4g} GB/s",
    ]
    ours = kernel.expected
    factors = {x: ours[x] / length for x, length in at.items() if length and ours[x] != length}
    if factors:
        lines[0] += f"; the lengths are {_listed({x: f'{factor:.3g}' for x, factor in factors.items()})} times those"
    peaks = kernel.device.known_peaks
    if peaks is not None:
        fraction = roofline_s(r.flops, r.bytes, kernel.einsum.dtype, peaks) / t
        lines.append(f"  roofline  {fraction:.0%} of what the device can do")
    return lines


def _copy(kernel: Kernel, copied: Copied) -> str:
    """A line for an array that the last call copied; the time is that of reading and writing it once."""
    peaks = kernel.device.known_peaks
    cost = "" if peaks is None else f", {2 * copied.nbytes / peaks.copy_bytes_per_s * 1e3:.3g} ms at least"
    return f"  copied    '{copied.name}', which {copied.why}, in the last call: {copied.nbytes} bytes{cost}"


def _listed(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())
