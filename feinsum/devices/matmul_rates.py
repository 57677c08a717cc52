"""The rates of numpy's matrix products on this machine, measured once and remembered beside the peaks of devices.

The time of a stack of b products of m by k with k by n::

    call_s + b · each_s + max(2 b m n k / (rate · d / (d + half)), bytes / bytes_per_s),    d = min(m, n, k)

and the time of copies before and after.  There `rate` is that of large products, and `half` the shortest length at which
half of it is reached.  Complex products take four times the operations.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from feinsum.devices.host import processor, processors_allowed
from feinsum.devices.json_store import data_directory, read_json, write_json
from feinsum.devices.peaks import BUSY

DTYPES = ("float32", "float64", "complex64", "complex128")
"""The types for which numpy calls a BLAS."""
_FORMAT = 2
_BUSY_REMEMBERED_S = 3600.0
_LARGE, _THIN, _SMALL, _STACK = 384, 8, 4, 2000
_COPIED_BYTES = 32 << 20
_LEAST_SAMPLES, _MOST_SAMPLES, _SAMPLES_S = 3, 30, 0.02
_CLOCK_S = 1e-7
"""The resolution of the clock of the process, in seconds."""
_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE")


@dataclass(frozen=True)
class ProductRates:
    """The rates of :func:`numpy.matmul`, each from the fastest of a few samples, as other processes only slow it down.

    :param call_s: of one call that has nothing to do.
    :param each_s: of each product of a stack besides.
    :param flops_per_s: of large products, by name of type; operations on real numbers.
    :param half: the shortest length at which half of it is reached, by name of type.
    :param bytes_per_s: read and written while copying an array that no cache holds.
    :param processor_share: the share of a processor that this thread had while measuring; a busy machine's figures are too
        low.
    """

    call_s: float
    each_s: float
    flops_per_s: Mapping[str, float]
    half: Mapping[str, float]
    bytes_per_s: float
    processor_share: float

    def seconds(self, stack: int, rows: int, columns: int, summed: int, dtype: Any, copied_bytes: int = 0) -> float:
        """The time that a stack of products is expected to take.

        :param copied_bytes: of operands and results that have to be brought into another order.
        """
        dtype = np.dtype(dtype)
        least = min(rows, columns, summed)
        flops = stack * rows * columns * summed * (8 if dtype.kind == "c" else 2)
        rate = self.flops_per_s[dtype.name] * least / (least + self.half[dtype.name])
        touched = stack * (rows * summed + summed * columns + rows * columns) * dtype.itemsize
        copies_s = 4 * copied_bytes / self.bytes_per_s  # read and written, one of the two not in turn
        return float(self.call_s + stack * self.each_s + max(flops / rate, touched / self.bytes_per_s) + copies_s)


@lru_cache(maxsize=1)
def product_rates() -> ProductRates:
    """The rates of this machine; measured at first use on it, which takes a quarter of a second.

    Those of a busy machine count for an hour.
    """
    known = _remembered_times()
    if known is None:
        known = _measure_products()
        write_json(_products_file(), {"format": _FORMAT, "measured_at_s": time.time(), "rates": asdict(known)})
    return known


def _remembered_times() -> ProductRates | None:
    data: Any = read_json(_products_file())
    try:
        rates = ProductRates(**data["rates"])
        numbers = [rates.call_s, rates.each_s, rates.bytes_per_s, rates.processor_share]
        numbers += [float(by_type[name]) for by_type in (rates.flops_per_s, rates.half) for name in DTYPES]
        lasting = rates.processor_share >= BUSY or time.time() < data["measured_at_s"] + _BUSY_REMEMBERED_S
        good = data["format"] == _FORMAT and lasting and all(0 < number < math.inf for number in numbers)
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    return rates if good else None


def _products_file() -> Path:
    """One for each processor, version of numpy and number of threads."""
    facts = [processor().brand, processors_allowed(), np.__version__, *(os.environ.get(name) for name in _SETTINGS)]
    return data_directory() / "products" / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.json"


def _measure_products() -> ProductRates:
    begin_s, begin_of_thread_s = time.perf_counter(), time.thread_time()
    small = np.ones((_STACK, _SMALL, _SMALL))
    one = small[0]
    call_s = _fastest_seconds(lambda: [np.matmul(one, one) for _ in range(200)]) / 200
    each_s = max(_fastest_seconds(lambda: np.matmul(small, small)) - call_s, 1e-9 * _STACK) / _STACK
    rates, half = {}, {}
    for name in DTYPES:
        square, thin = np.ones((_LARGE, _LARGE), name), np.ones((_LARGE, _THIN), name)
        flops = 2 * _LARGE**2 * (4 if np.dtype(name).kind == "c" else 1)
        rates[name] = flops * _LARGE / _fastest_seconds(lambda a=square: np.matmul(a, a))  # type: ignore[misc]
        thin_rate = flops * _THIN / _fastest_seconds(lambda a=square, b=thin: np.matmul(a, b))  # type: ignore[misc]
        half[name] = max(_THIN * (rates[name] / thin_rate - 1), 0.01)
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.empty_like(source)
    bytes_per_s = 2 * _COPIED_BYTES / _fastest_seconds(lambda: np.copyto(target, source))
    share = (time.thread_time() - begin_of_thread_s) / (time.perf_counter() - begin_s)
    return ProductRates(call_s, each_s, rates, half, bytes_per_s, share)


def _fastest_seconds(work: Callable[[], object]) -> float:
    """The seconds of the fastest of a few runs, of more where they are short, after one to warm up.

    Where other processes have the processor, those that this one had count: those of all its threads, as an upper bound.
    """
    work()
    taken: list[float] = []
    end = time.perf_counter() + _SAMPLES_S
    while len(taken) < _LEAST_SAMPLES or (time.perf_counter() < end and len(taken) < _MOST_SAMPLES):
        start, start_of_process = time.perf_counter(), time.process_time()
        work()
        taken.append(min(time.perf_counter() - start, max(time.process_time() - start_of_process, _CLOCK_S)))
    return min(taken)
