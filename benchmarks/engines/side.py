"""One side of a gate: a process with one version of feinsum that answers requests, a line of JSON each.

Both sides run this file, with the feinsum of their own, of which it uses public names alone; nothing imports feinsum before
:func:`imported` does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.engines import serve

Answer = dict[str, Any]
_LONG_S = 5e-3
"""Calls are repeated for so long in one sample."""
SMALL_CALLS = (
    "numpy.einsum", "numpy.einsum, optimize=True", "contract", "expression", "expression, a kernel",
    "kernel, device arrays", "expression, device arrays", "contract, device arrays",
)  # fmt: skip
_way: list[Callable[[], object]] = []


def _device(word: str) -> Any:
    import feinsum as fe

    return fe.device(word)


def kernel(device: str, case: dict[str, Any], side: str, dtype: str) -> Answer:
    """Take the kernel that `generate` gives for a case, with arrays on the device."""
    import pyopencl.array as cla

    import feinsum as fe
    from benchmarks.cases import describe, long_sizes

    _way.clear()
    there, e, sizes = _device(device), describe(case, side, dtype, long=True), long_sizes(case, side)
    made = fe.generate(e, there, sizes=sizes)
    lengths, rng = case[side]["sizes"], np.random.default_rng(0)
    terms, _, output = e.subscripts.partition("->")
    used = {a.name: term for row in e.args for (a,), term in zip(row, terms.split(","), strict=True)}
    given = {
        name: cla.to_device(there.queue, rng.random([lengths[x] for x in term]).astype(dtype))
        for name, term in used.items()
    }
    out = [cla.empty(there.queue, tuple(lengths[x] for x in output), np.dtype(dtype)) for _ in e.args]

    def run() -> None:
        made(given, out=out if len(out) > 1 else out[0])

    def finished() -> None:
        for _ in range(runs):
            run()
        there.queue.finish()

    runs = 1
    finished()
    start = time.perf_counter()
    finished()
    runs = max(1, min(200, round(_LONG_S / (time.perf_counter() - start))))
    _way.append(finished)
    import feinsum.transforms

    return {"runs": runs, "feinsum": fe.__file__, "transforms": str(next(iter(feinsum.transforms.__path__)))}


def sample() -> Answer:
    """Seconds of the kernel's runs."""
    start = time.perf_counter()
    _way[0]()
    return {"seconds": time.perf_counter() - start}


def call(device: str, what: str, count: int) -> Answer:
    """Seconds of this thread for a call with arrays of 4 x 4, which other programs disturb little.

    :param what: one of :data:`SMALL_CALLS`.
    """
    import pyopencl.array as cla

    import feinsum as fe

    there, text, name = _device(device), "ij,jk->ik", what.partition(",")[0]
    operands = [np.ones((4, 4)), np.ones((4, 4))]
    if what.endswith("device arrays"):
        operands = [cla.to_device(there.queue, x) for x in operands]
    if name == "numpy.einsum":
        way: Callable[[], object] = partial(np.einsum, text, *operands, optimize="optimize" in what)
    elif name == "contract":
        way = partial(fe.contract, text, *operands, device=there)
    elif name == "expression":
        library = {"library": False} if what.endswith("a kernel") else {}
        way = partial(fe.contract_expression(text, (4, 4), (4, 4), device=there, **library), *operands)
    else:
        made = fe.generate(fe.einsum(text, fe.array("a", (4, 4)), fe.array("b", (4, 4))), there)
        way = partial(made, dict(zip("ab", operands, strict=True)))
    way()
    start = time.thread_time()
    for _ in range(count):
        way()
    taken = time.thread_time() - start
    there.queue.finish()
    return {"seconds": taken / count}


def first(device: str, database: str = "", more: int = 0) -> Answer:
    """Seconds of the first `generate` of this process, once the device is there.

    :param more: how often to generate it again; then comes another.
    """
    import feinsum as fe
    from benchmarks.cases import gradient

    there = _device(device)
    _ = there.context  # made when it is first asked for

    def seconds(nodes: int) -> float:
        e = gradient(nodes)
        start = time.perf_counter()
        fe.generate(e, there, database or None, {"E": 100_000})
        return time.perf_counter() - start

    found: Answer = {"seconds": seconds(20), "heavy": sorted({"loopy"} & set(sys.modules))}
    if more:
        found |= {"again": sorted(seconds(20) for _ in range(more))[more // 2], "other": seconds(10)}
    return found


def newcomer(device: str, database: str = "") -> Answer:
    """Seconds to find the device, and of a first line with it."""
    import feinsum as fe

    a, b = np.ones((30, 40)), np.ones((40, 50))
    times = [time.perf_counter()]
    there = _device(device)
    _ = there.context
    times.append(time.perf_counter())
    fe.contract("ij,jk->ik", a, b, device=there, database=database or None)
    times.append(time.perf_counter())
    return {"probe": times[1] - times[0], "seconds": times[2] - times[1]}


def imported() -> Answer:
    """Seconds of ``import feinsum``."""
    start = time.perf_counter()
    import feinsum

    taken = time.perf_counter() - start
    return {"seconds": taken, "feinsum": feinsum.__file__}


if __name__ == "__main__":
    known = {f.__name__: f for f in (kernel, sample, call, first, newcomer, imported)}
    serve(known.__getitem__)
