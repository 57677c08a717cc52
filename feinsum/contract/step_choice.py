"""The choice between a kernel and numpy's BLAS for a step: whichever was measured or is expected to be faster.

A measured time counts as it is.  Half of the predictions of the cost model are off by a factor that it knows, so a kernel
that was not measured has to be expected to be faster than the library by that factor.  Where it is, and not by far,
both are timed once as the kernel is made (:mod:`feinsum.contract.step_timing`), and the times are remembered.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from feinsum.build.freshness import place_key
from feinsum.candidates.records import KINDS
from feinsum.contract.library_products import LibraryProduct, find_product
from feinsum.cost.model import cost_model
from feinsum.devices import Device
from feinsum.devices.json_store import data_directory, read_json, write_json
from feinsum.einsum import BatchedEinsum
from feinsum.generate import expected_rung

CALL_S = 8e-6
"""The least time of a call besides its kernel: arguments, launch, and waiting for the end."""
_UNKNOWN_FACTOR = 2.0
"""The assumed error of predictions where no record taught the cost model."""

_FAR = 8.0
"""The factor by which a kernel has to be expected to be faster than the library to need no comparison."""
FEW_AXES = 6
"""A product with more axes gets a kernel for its own lengths, which takes a second or more to make."""
_LEAST_TRIED_S = 1e-3
"""The time from which such a kernel is made for a comparison."""
_LEAST_GAIN_S = 2e-5
"""The least gain of a call that is worth a comparison: it repays a kernel made in a second after 50 000 calls."""
_MOST_TRIED_S = 0.05
"""The longest expected time of a product for which both are timed, a few times each."""


@dataclass(frozen=True)
class StepChoice:
    """The way in which a step is computed.

    :ivar product: the product for numpy, if that computes the step; None if a kernel does.
    :ivar library_s: the time of numpy's product, measured or expected; None if the step is no product.
    :ivar kernel_s: the time of the kernel; None if it is unknown, or was not asked for.
    :ivar measured: whether both were measured here.
    :ivar undecided: whether the kernel is predicted to be faster but may be slower, so that both are to be timed.
    """

    product: LibraryProduct | None
    library_s: float | None = None
    kernel_s: float | None = None
    measured: bool = False
    undecided: bool = False

    @property
    def seconds(self) -> float:
        """The time of the chosen way; infinite where it is unknown."""
        known = self.library_s if self.product is not None else self.kernel_s
        return math.inf if known is None else known


def choose_kernel_or_library(
    e: BatchedEinsum,
    sizes: Mapping[str, int],
    lengths: Mapping[str, int],
    device: Device,
    database: Any,
    *,
    timed: bool = True,
) -> StepChoice:
    """Choose between kernel and library for a step.

    :param sizes: what :func:`feinsum.generate` is told of long axes.
    :param lengths: the length of each index.
    :param timed: whether the time of the kernel is wanted where there is no choice.
    """
    product = find_product(e.subscripts, e.dtype)
    if product is None or 0 in lengths.values():
        return StepChoice(None, kernel_s=kernel_seconds(e, sizes, lengths, device, database) if timed else None)
    name, known = step_name(e, lengths), measured_times(device)
    if name in known and (found := quicker(product, *known[name])) is not None:
        return found
    library_s = product.seconds(lengths, e.dtype, [a.dtype != e.dtype for a in e.arrays])
    if library_s <= CALL_S:
        return StepChoice(product, library_s)
    careful_s = kernel_seconds(e, sizes, lengths, device, database, margin=True)
    kernel_s = kernel_seconds(e, sizes, lengths, device, database)
    if careful_s is None or kernel_s is None or library_s < careful_s:
        return StepChoice(product, library_s, kernel_s)
    guessed = careful_s > kernel_s
    if guessed and (found := quicker(product, *known.get(untuned(name), (None, None)))) is not None:
        return found
    undecided = guessed and library_s < min(_FAR * kernel_s, _MOST_TRIED_S)
    many = len(lengths) > FEW_AXES
    if undecided and (library_s - kernel_s < _LEAST_GAIN_S or (many and library_s < _LEAST_TRIED_S)):
        return StepChoice(product, library_s, kernel_s)
    return StepChoice(None, library_s, kernel_s, undecided=undecided)


def quicker(product: LibraryProduct, library_s: float | None, kernel_s: float | None) -> StepChoice | None:
    """The faster of library and kernel for a step if both were measured; None if one was not."""
    if library_s is None or kernel_s is None:
        return None
    return StepChoice(product if library_s < kernel_s else None, library_s, kernel_s, measured=True)


def kernel_seconds(
    e: BatchedEinsum,
    sizes: Mapping[str, int],
    lengths: Mapping[str, int],
    device: Device,
    database: Any,
    *,
    margin: bool = False,
) -> float | None:
    """The expected time of a call of the kernel; None if it is unknown.

    :param margin: whether to multiply predictions by the error that they may have.
    """
    rung, known_s = _expected_kernel_seconds(e, tuple(sorted(sizes.items())), device, place_key(database), database)
    if known_s is None:
        return None
    expected = e.resolve(sizes)
    factor = 1.0
    if margin and rung not in KINDS:
        factor = cost_model().factor(device.profile.kind) or _UNKNOWN_FACTOR
    work = math.prod(lengths.values()) / max(1, math.prod(expected.values()))
    return CALL_S + known_s * factor * work


@lru_cache(maxsize=512)
def _expected_kernel_seconds(
    e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: Device, _place: Any, database: Any
) -> tuple[str, float | None]:
    return expected_rung(e, device, database, dict(sizes))


def forget_expectations() -> None:
    """Forget expected times, which tuning has changed."""
    _expected_kernel_seconds.cache_clear()


def step_name(e: BatchedEinsum, lengths: Mapping[str, int]) -> str:
    """The name under which the times of a step are remembered."""
    dtypes = ",".join(a.dtype.name for a in e.arrays)
    return f"{e.subscripts} {' '.join(f'{x}={n}' for x, n in sorted(lengths.items()))} {dtypes}"


def untuned(name: str) -> str:
    """The name for times of kernels not tuned for the step, which count until it is tuned."""
    return f"untuned {name}"


def measured_times(device: Device) -> dict[str, tuple[float | None, float]]:
    """Seconds of numpy's product, if it can do the step, and of the kernel, by :func:`step_name`, of tuned steps."""
    data: Any = read_json(_choices_file(device))
    try:
        return {str(name): (None if a is None else float(a), float(b)) for name, (a, b) in data.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def remember_times(device: Device, times: Mapping[str, tuple[float | None, float]]) -> None:
    """Store measured times for later processes."""
    write_json(_choices_file(device), {**measured_times(device), **times})


def _choices_file(device: Device) -> Path:
    profile = device.profile
    facts = f"{profile.id}\n{profile.driver}\n{np.__version__}"
    return data_directory() / "products" / f"steps-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.json"
