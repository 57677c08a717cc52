"""Micro-benchmarks: small kernels that only multiply-add, multiply matrices, copy, read, or start, as fast as the device
can.

Every benchmark runs for a *count*: work = count x work of one.  Samples of all benchmarks are taken in turns, so that a
slow second of the machine spoils one sample of each and not all of one.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.devices.device_checks import most_telling_line
from feinsum.devices.opencl import build_program
from feinsum.devices.peaks import BUSY, Peaks, settled_figures
from feinsum.devices.profile import DeviceProfile
from feinsum.devices.vendors.known_vendors import matrix_units
from feinsum.devices.vendors.trials import rate_source
from feinsum.errors import DeviceError

if TYPE_CHECKING:
    import pyopencl as cl

_log = logging.getLogger(__name__)

_SAMPLES = 21
_KEPT = 7
"""Samples of a CPU that count: those during which this process had most of its processors."""
_SAMPLE_S = 0.01
_WARM_UP_S = 0.3
"""A GPU takes a while to raise its clock."""

_TIMES = ("launch_s", "round_trip_s")
_MIB = 2**20
_BLOCKS = 4096
"""Contiguous pieces into which a CPU's work-items divide an array; a divisor of every array's length."""

_FMA = """
kernel void rate(global {T} *out, {T} a, {T} b, int n)
{{
  const {V} va = ({V})(a), vb = ({V})(b);
  {declarations}
  for (int i = 0; i < n; ++i) {{
    {steps}
  }}
  {V} total = {total};
  out[get_global_id(0)] = {sum};
}}
"""

_BLOCK_LOOP = "long m = n / get_global_size(0), first = get_global_id(0) * m; for (long i = first; i < first + m; {step})"
_ARRAYS = "global const {V} *restrict x, global {V} *restrict y, long n"
_COPY_ELEMENT = "kernel void move(" + _ARRAYS + ") {{ size_t i = get_global_id(0); y[i] = x[i]; }}"
_COPY_BLOCK = "kernel void move(" + _ARRAYS + ") {{ " + _BLOCK_LOOP.format(step="++i") + " y[i] = x[i]; }}"
_COPY_AROUND_CACHE = _COPY_BLOCK.replace("y[i] = x[i]", "__builtin_nontemporal_store(x[i], y + i)")
_READ_BLOCK = (
    "kernel void move(" + _ARRAYS + ") {{ {V} s = 0, t = 0, u = 0, v = 0; " + _BLOCK_LOOP.format(step="i += 4")
    + " {{ s += x[i]; t += x[i + 1]; u += x[i + 2]; v += x[i + 3]; }} y[get_global_id(0)] = s + t + u + v; }}"
)  # fmt: skip
_READ_STRIDED = (
    "kernel void move(" + _ARRAYS + ") {{ {V} s = 0, t = 0, u = 0, v = 0; long g = get_global_size(0);"
    " for (long i = get_global_id(0); i + 3 * g < n; i += 4 * g)"
    " {{ s += x[i]; t += x[i + g]; u += x[i + 2 * g]; v += x[i + 3 * g]; }} y[get_global_id(0)] = s + t + u + v; }}"
)


@dataclass(frozen=True)
class _Benchmark:
    """`run(count)` does ``count * work`` units of the figure `name` of :class:`Peaks` and waits for the end."""

    name: str
    work: float
    run: Callable[[int], None]


@dataclass(frozen=True)
class _Sample:
    """Units per second, and how many processors this process had meanwhile."""

    rate: float
    processors: float


def benchmark_peaks(profile: DeviceProfile, context: cl.Context, device: cl.Device) -> Peaks:
    """Measure the peaks of `device`, which takes about four seconds, and up to three times as long if it is a busy CPU.

    :raises DeviceError: if the device fails meanwhile.
    """
    found = settled_figures(partial(_measured, profile, context, device))
    if found.processor_share < BUSY:
        _log.warning(
            "%s: the measurement of the peaks had %.0f%% of the processor; other processes or a limit took the rest",
            profile.id,
            100 * found.processor_share,
        )
    return found


def _measured(profile: DeviceProfile, context: cl.Context, device: cl.Device) -> Peaks:
    import pyopencl as cl

    queue = cl.CommandQueue(context, device)
    try:
        benchmarks = [*_arithmetic_benchmarks(profile, queue), *_memory(profile, queue), *_launches(queue)]
        samples = _sampled(benchmarks)
    except cl.Error as error:
        raise DeviceError(
            f"measuring the peaks of {profile.id} failed: {most_telling_line(error)}; is another process using its memory?"
        ) from error
    best: dict[str, tuple[float, float]] = {}
    for benchmark, taken in zip(benchmarks, samples, strict=True):
        rates = [sample.rate for sample in _undisturbed(profile, taken)]
        median = statistics.median(rates)
        if median > best.get(benchmark.name, (0.0, 0.0))[0]:
            best[benchmark.name] = median, statistics.median(abs(rate - median) for rate in rates) / median
    values = {name: 1 / median if name in _TIMES else median for name, (median, _) in best.items()}
    share = statistics.median(sample.processors for sample in _undisturbed(profile, samples[0])) / profile.compute_units
    return Peaks(
        **{"fp64_flops_per_s": None, "fp64_matrix_flops_per_s": None, **values},  # type: ignore[arg-type]
        processor_share=min(1.0, share) if profile.kind == "cpu" else 1.0,
        spread={name: spread for name, (_, spread) in best.items()},
    )


class PeakProbe:
    """The benchmarks of a device kept ready: one sample of each, whenever it is asked, between the runs of other programs.

    Where the machine's speed drifts, such samples tell the peaks of the moment.  It holds two arrays that fill the cache.
    """

    def __init__(self, profile: DeviceProfile, context: cl.Context, device: cl.Device) -> None:
        import pyopencl as cl

        queue = cl.CommandQueue(context, device)
        self._benchmarks = [*_arithmetic_benchmarks(profile, queue), *_memory(profile, queue)]
        self._counts = [_calibrated(benchmark) for benchmark in self._benchmarks]

    def sample(self) -> dict[str, float]:
        """The rates of :class:`Peaks` by name, each by the fastest of its ways."""
        best: dict[str, float] = {}
        for benchmark, count in zip(self._benchmarks, self._counts, strict=True):
            best[benchmark.name] = max(best.get(benchmark.name, 0.0), _sample_benchmark(benchmark, count).rate)
        return best


def _sampled(benchmarks: Sequence[_Benchmark]) -> list[list[_Sample]]:
    start = time.perf_counter()
    while time.perf_counter() - start < _WARM_UP_S:
        benchmarks[0].run(1)
    counts = [_calibrated(benchmark) for benchmark in benchmarks]
    samples: list[list[_Sample]] = [[] for _ in benchmarks]
    for _ in range(_SAMPLES):
        for benchmark, count, taken in zip(benchmarks, counts, samples, strict=True):
            taken.append(_sample_benchmark(benchmark, count))
    return samples


def _undisturbed(profile: DeviceProfile, samples: list[_Sample]) -> list[_Sample]:
    """The samples that count: all on a GPU; on a CPU those during which other processes used it least."""
    if profile.kind != "cpu":
        return samples
    return sorted(samples, key=lambda sample: -sample.processors)[:_KEPT]


def _calibrated(benchmark: _Benchmark) -> int:
    """The power of two that makes one sample long enough for the clock."""
    count = 1
    while count * benchmark.work / _sample_benchmark(benchmark, count).rate < _SAMPLE_S and count < 2**20:
        count *= 2
    return count


def _sample_benchmark(benchmark: _Benchmark, count: int) -> _Sample:
    start, start_busy = time.perf_counter(), time.process_time()
    benchmark.run(count)
    seconds, busy = time.perf_counter() - start, time.process_time() - start_busy
    return _Sample(count * benchmark.work / seconds, busy / seconds)


def _arithmetic_benchmarks(profile: DeviceProfile, queue: cl.CommandQueue) -> Iterator[_Benchmark]:
    is_cpu = profile.kind == "cpu"
    local = min(64 if is_cpu else 256, profile.max_work_group_size)
    items = local * profile.compute_units * 64  # PoCL gives a thread up to 32 work-groups at a time
    for name, dtype in (("float", np.dtype(np.float32)), ("double", np.dtype(np.float64))):
        if name == "float" or profile.fp64:
            # As many chains as hide the latency and leave room in the registers: 32 of 64 bytes, 16 of less.
            lanes, chains = max(1, profile.simd_bytes // dtype.itemsize), 12 if 0 < profile.simd_bytes < 64 else 16
            source = _fma_source(name, lanes, chains)
            work = 2.0 * items * lanes * chains
            yield _rate_benchmark(f"fp{8 * dtype.itemsize}_flops_per_s", queue, source, dtype, work, items, local)
    units = (matrix_units().get(name) for name in profile.matrix_units)
    for unit in (unit for unit in units if unit is not None and unit.operand == "float64"):
        for chains in (4, 8):  # eight need so many registers that fewer sub-groups fit
            work = 1.0 * unit.flops * chains * items / unit.lanes
            source = rate_source(unit, chains)
            yield _rate_benchmark("fp64_matrix_flops_per_s", queue, source, np.dtype(np.float64), work, items, local)


def _rate_benchmark(
    name: str, queue: cl.CommandQueue, source: str, dtype: np.dtype[Any], work: float, items: int, local: int
) -> _Benchmark:
    """A benchmark of a kernel ``rate(out, a, b, n)`` whose work is in proportion to n."""
    import pyopencl as cl

    unit = 64  # iterations that count as one
    kernel = cl.Kernel(build_program(queue.context, source), "rate")
    out = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, items * dtype.itemsize)

    def run(count: int) -> None:
        # x -> a x + b with a < 1 stays finite and never becomes denormal.
        kernel(queue, (items,), (local,), out, dtype.type(0.999), dtype.type(0.5), np.int32(count * unit))
        queue.finish()

    return _Benchmark(name, work * unit, run)


def _fma_source(scalar: str, lanes: int, chains: int) -> str:
    """Explicit vectors, since not every CPU runtime vectorises across work-items."""
    vector = scalar if lanes == 1 else f"{scalar}{lanes}"
    names = [f"x{k}" for k in range(chains)]
    pragma = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable" if scalar == "double" else ""
    return pragma + _FMA.format(
        T=scalar,
        V=vector,
        declarations=" ".join(f"{vector} {x} = ({vector})(a * {k + 1} + get_local_id(0));" for k, x in enumerate(names)),
        steps=" ".join(f"{x} = fma({x}, va, vb);" for x in names),
        total=" + ".join(names),
        sum="total" if lanes == 1 else " + ".join(f"total.s{lane:x}" for lane in range(lanes)),
    )


def _memory(profile: DeviceProfile, queue: cl.CommandQueue) -> Iterator[_Benchmark]:
    import pyopencl as cl

    size = _array_bytes(profile)
    x, y = (cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size) for _ in range(2))
    lanes = profile.simd_bytes // 4 if profile.kind == "cpu" else 4
    vectors = size // (4 * lanes)
    strided = min(profile.compute_units * 2048, vectors // 4)
    variants: list[tuple[str, str, int, int | None]] = [
        ("copy_bytes_per_s", _COPY_BLOCK, _BLOCKS, 1),
        ("copy_bytes_per_s", _COPY_AROUND_CACHE, _BLOCKS, 1),
        ("read_bytes_per_s", _READ_BLOCK, _BLOCKS, 1),
    ]
    if profile.kind != "cpu":
        local = 256 if profile.max_work_group_size >= 256 else None
        variants = [
            ("copy_bytes_per_s", _COPY_ELEMENT, vectors, local),
            ("read_bytes_per_s", _READ_STRIDED, strided, local),
        ]
    for name, source, items, local in variants:
        try:
            program = build_program(queue.context, source.format(V=f"float{lanes}"))
        except cl.Error:  # a compiler without the store that goes around the cache
            continue
        kernel = cl.Kernel(program, "move")
        # Pages that were never written are one page of zeros, which the cache holds; so write x in the same pattern.
        kernel(queue, (items,), None if local is None else (local,), y, x, np.int64(vectors))
        kernel.set_args(x, y, np.int64(vectors))
        moved = 2.0 * size if name.startswith("copy") else 1.0 * size
        yield _Benchmark(name, moved, _launcher(queue, kernel, items, local))

    def copy(count: int) -> None:
        for _ in range(count):
            cl.enqueue_copy(queue, y, x)
        queue.finish()

    yield _Benchmark("copy_bytes_per_s", 2.0 * size, copy)


def _array_bytes(profile: DeviceProfile) -> int:
    """Eight times the cache, between 64 MiB and 1 GiB, and no burden on the device's memory."""
    wanted = min(max(8 * profile.cache_bytes, (64 if profile.kind == "cpu" else 256) * _MIB), 1024 * _MIB)
    limit = min(profile.max_allocation_bytes, profile.global_memory_bytes // 8)
    unit = 4 * 64 * _BLOCKS  # four of the widest vectors in every block
    return max(min(wanted, limit) // unit, 1) * unit


def _launcher(queue: cl.CommandQueue, kernel: cl.Kernel, items: int, local: int | None) -> Callable[[int], None]:
    import pyopencl as cl

    def run(count: int) -> None:
        for _ in range(count):
            cl.enqueue_nd_range_kernel(queue, kernel, (items,), None if local is None else (local,))
        queue.finish()

    return run


def _launches(queue: cl.CommandQueue) -> Iterator[_Benchmark]:
    import pyopencl as cl

    kernel = cl.Kernel(build_program(queue.context, "kernel void nothing(int n) { }"), "nothing")
    kernel.set_args(np.int32(0))
    launch = _launcher(queue, kernel, 1, 1)

    def round_trips(count: int) -> None:
        for _ in range(count):
            launch(1)

    yield _Benchmark("launch_s", 1.0, launch)
    yield _Benchmark("round_trip_s", 1.0, round_trips)
