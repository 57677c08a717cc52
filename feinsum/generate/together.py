"""Many kernels at once: each that is new is made once, however often it is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feinsum.devices import Device
from feinsum.einsum import BatchedEinsum
from feinsum.generate import generate
from feinsum.generate.kernel import Kernel


def generate_all(
    wanted: Sequence[tuple[BatchedEinsum, Mapping[str, int]]], device: Device, database: Any = None
) -> list[Kernel]:
    """A kernel for each einsum and the lengths expected of its long axes, see :func:`feinsum.generate`."""
    return [generate(e, device, database, sizes) for e, sizes in wanted]
