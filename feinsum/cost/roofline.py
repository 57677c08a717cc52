"""The roofline: no kernel is faster than its bytes at copy bandwidth or its operations at peak rate.

S. Williams, A. Waterman, D. Patterson, *Roofline*, CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from feinsum.einsum import BatchedEinsum, require_einsum

if TYPE_CHECKING:
    from feinsum.devices import Device, Peaks


@dataclass(frozen=True)
class Roofline:
    """The least time of a batched einsum on a device.

    :ivar flops: operations, shared partial results counted once.
    :ivar bytes: every input read once, every output written once.
    :ivar compute_s: `flops` at the measured peak rate.
    :ivar memory_s: `bytes` at the measured copy bandwidth.
    """

    flops: int
    bytes: int
    compute_s: float
    memory_s: float

    @property
    def seconds(self) -> float:
        """The larger of the two times."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound(self) -> str:
        """``"compute"`` or ``"memory"``, whichever takes longer."""
        return "compute" if self.compute_s > self.memory_s else "memory"

    def _repr_html_(self) -> str:
        from feinsum.report.displays import roofline_html

        return roofline_html(self)


def roofline(e: BatchedEinsum, device: Device | Any = None, sizes: Mapping[str, int] | None = None) -> Roofline:
    """The roofline of a batched einsum, from the peaks of a device (measured at first use).

    :param device: see :func:`feinsum.device`.
    :param sizes: the lengths of long axes.
    """
    from feinsum.devices import device as choose

    require_einsum(e)
    flops, nbytes = e.flops(sizes), e.min_bytes(sizes)
    peaks = choose(device).peaks
    return Roofline(flops, nbytes, flops / peaks.flops_per_s(e.dtype), nbytes / peaks.copy_bytes_per_s)


def roofline_s(flops: int, nbytes: int, dtype: Any, peaks: Peaks) -> float:
    """The least time in seconds for so many operations on `dtype` and bytes."""
    return max(flops / peaks.flops_per_s(dtype), nbytes / peaks.copy_bytes_per_s)
