"""feinsum beside numpy: the same einsum on the same random numbers, the largest difference, and the times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.report.displays import nominal_sizes
from feinsum.report.figures import duration, listed, rate
from feinsum.report.html import bar, display_block, element, table

if TYPE_CHECKING:
    from feinsum.database import TuningRecord
    from feinsum.einsum import BatchedEinsum
    from feinsum.kernel.kernel import Kernel
    from feinsum.report.picture import Picture

_REPETITIONS = 3
"""At least, after one to warm up."""
_ORDERED_UP_TO = 5
"""Operands up to which numpy is asked for the cheapest order, which takes it a factorial of their number."""


@dataclass(frozen=True)
class PeerComparison:
    """The outcome of :func:`compare_with_numpy`.

    :ivar kernel: ours.
    :ivar sizes: the lengths of long axes at which both were timed.
    :ivar error: the largest difference of the results, relative to the largest result.
    :ivar times_s: name of the evaluation -> the median of its times, in seconds.
    """

    kernel: Kernel
    sizes: Mapping[str, int]
    error: float
    times_s: Mapping[str, float]

    @property
    def flops(self) -> int:
        """Operations of one evaluation, along the cheapest order."""
        return self.kernel.einsum.flops(self.sizes)

    def picture(self) -> Picture:
        """Both below the roofline of the device, whose peaks are measured if they never were.

        :raises FeinsumError: if matplotlib is not installed.
        """
        from feinsum.report.plots import Rooflines, rooflines

        e, peaks = self.kernel.einsum, self.kernel.device.peaks
        intensity = self.flops / e.min_bytes(self.sizes)
        series = {name: [(intensity, self.flops / t)] for name, t in self.times_s.items()}
        title = f"{e.subscripts}, {e.dtype.name}"
        return rooflines(Rooflines(title, series, peaks.flops_per_s(e.dtype), peaks.copy_bytes_per_s))

    def __str__(self) -> str:
        times = ", ".join(f"{name} {duration(t)}" for name, t in self.times_s.items())
        return f"{self.kernel.einsum.subscripts} at {listed(self.sizes)}: {times}; they differ by {self.error:.1e}"

    def _repr_html_(self) -> str:
        least = min(self.times_s.values())
        rows = (
            [name, duration(t), rate(self.flops / t), bar(least / t, f"{least / t:.0%}")]
            for name, t in self.times_s.items()
        )
        shown = table(["", "time", "rate", "of the fastest"], rows, text=["", "of the fastest"])
        differ = element("p", f"The results differ by {self.error:.1e} of the largest.")
        return display_block(shown, differ, title=f"{self.kernel.einsum.subscripts} at {listed(self.sizes)}")


def compare_with_numpy(
    kernel: Kernel, sizes: Mapping[str, int] | None = None, *, seconds: float = 0.5, seed: int = 0
) -> PeerComparison:
    """Evaluate the einsum of a kernel by the kernel and by :func:`numpy.einsum`, along the cheapest order.

    Three times are taken: the kernel by itself, on arrays that are on the device; a call with numpy arrays, which moves
    them there and back; and numpy.

    :param sizes: lengths of the long axes; by default round ones at which the einsum moves 64 MiB at most.
    :param seconds: the most that each may take for its samples.
    """
    from feinsum.tune.timeit import timeit

    e, device = kernel.einsum, kernel.device
    lengths = nominal_sizes(e) if sizes is None else dict(sizes)
    arrays = random_arrays(e, lengths, seed)
    ours = kernel(arrays)
    ours = ours if isinstance(ours, tuple) else (ours,)
    evaluate = numpy_evaluation(e, arrays)
    theirs = evaluate()
    error = max(
        float(np.max(abs(a - b), initial=0) / max(np.max(abs(b), initial=0), 1e-300))
        for a, b in zip(ours, theirs, strict=True)
    )
    on_device = timeit(e, device, configuration=kernel.configuration, space=kernel.space, sizes=lengths, seconds=seconds)
    out = ours if len(ours) > 1 else ours[0]
    times_s = {
        "feinsum": on_device.median_s,
        "feinsum, numpy arrays": host_seconds(lambda: kernel(arrays, out=out), seconds),
        "numpy": host_seconds(evaluate, seconds),
    }
    return PeerComparison(kernel, lengths, error, times_s)


def roofline_with_peers(
    kernel: Kernel,
    sizes: Mapping[str, int],
    median_s: float,
    records: Iterable[TuningRecord] = (),
    *,
    seconds: float = 0.5,
    seed: int = 0,
) -> Picture:
    """A kernel below the roofline of its device, beside numpy on the host and other records of the device.

    :param median_s: the time of the kernel.
    :param records: of the same einsum, at any lengths.
    :param seconds: the most that numpy may take for its samples.
    :raises FeinsumError: if matplotlib is not installed.
    """
    from feinsum.report.plots import Rooflines, rooflines

    e, peaks = kernel.einsum, kernel.device.peaks
    flops, nbytes = e.flops(sizes), e.min_bytes(sizes)
    numpy_s = host_seconds(numpy_evaluation(e, random_arrays(e, sizes, seed)), seconds)
    series: dict[str, Sequence[tuple[float, float]]] = {
        "this kernel": [(flops / nbytes, flops / median_s)],
        "numpy": [(flops / nbytes, flops / numpy_s)],
    }
    others = [r for r in records if r.median_s is not None and r.device == kernel.device.id]
    if others:
        series["records"] = [(r.flops / r.bytes, r.flops / r.median_s) for r in others if r.median_s and r.bytes]
    title = f"{e.subscripts}, {e.dtype.name}, {kernel.device.profile.name}"
    return rooflines(Rooflines(title, series, peaks.flops_per_s(e.dtype), peaks.copy_bytes_per_s))


def random_arrays(e: BatchedEinsum, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers between -1 and 1 for every array of an einsum; integers between -9 and 9, or 0 and 9 if unsigned."""
    rng = np.random.default_rng(seed)
    lengths = e.resolve(sizes)
    made = {}
    for a, letters in e.array_indices.items():
        shape = [lengths[letter] for letter in letters]
        if a.dtype.kind in "iu":
            made[a.name] = rng.integers(-9 if a.dtype.kind == "i" else 0, 10, shape).astype(a.dtype)
        else:
            parts = rng.uniform(-1, 1, (2, *shape))
            made[a.name] = (parts[0] + 1j * parts[1] if a.dtype.kind == "c" else parts[0]).astype(a.dtype)
    return made


def numpy_evaluation(
    e: BatchedEinsum, arrays: Mapping[str, np.ndarray[Any, Any]]
) -> Callable[[], Sequence[np.ndarray[Any, Any]]]:
    """A function that evaluates every output by :func:`numpy.einsum`, the order of contractions settled beforehand."""
    rows = [[prod(arrays[a.name] for a in entry[1:]) * arrays[entry[0].name] for entry in row] for row in e.args]
    search = "optimal" if e.n <= _ORDERED_UP_TO else "greedy"
    path = np.einsum_path(e.subscripts, *rows[0], optimize=search)[0]
    return lambda: [np.einsum(e.subscripts, *row, optimize=path) for row in rows]


def host_seconds(run: Callable[[], object], seconds: float) -> float:
    """The median time of a call by the clock of the host."""
    run()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < _REPETITIONS or (time.perf_counter() < end and len(samples) < 100):
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return median(samples)
