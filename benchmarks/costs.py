"""What using feinsum costs besides the kernel itself: ``python -m benchmarks costs [--device cpu] [--database PATH]``.

Import, generate and a first contract are measured in new processes, each with a clock of its own; the caches of "cold" are
empty directories.  Modules are byte code, as after ``pip install``, whatever the environment says of writing it.  The
einsum is the DG gradient ``xre,rij,ej->xei`` with p = 3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks import ROOT, parser_of
from benchmarks.cases import gradient
from benchmarks.gate import process_of
from benchmarks.measure import Way, in_turns, keep, sample_of, stamp
from benchmarks.report import duration, show
from benchmarks.rows import Row, spread

ELEMENTS = 100_000
_CALLS = 300
_CALLS_S = 3.0
"""Calls of kernels that take long are fewer."""
_LIMIT_S = 300.0
_IMPORT = """
import json, sys, time
start = time.perf_counter()
import {package}
print(json.dumps({{"seconds": time.perf_counter() - start, "heavy": sorted({{"loopy", "pyopencl"}} & set(sys.modules))}}))
"""


def cost(what: str, seconds: Sequence[float], most_s: float | None = None, remark: str = "") -> Row:
    """A row of the table.

    :param seconds: the samples; several of them are one median and one spread.
    :param most_s: the target of the median; None without one.
    """
    return {"case": what, "figures": spread(seconds), "most_s": most_s, "remark": remark}


def main() -> None:
    parser = parser_of(__doc__, "cpu")
    parser.add_argument("--database", default="", help="a store of records besides those that come with feinsum")
    parser.add_argument("--calls", action="store_true", help="calls only, no new processes")
    parser.add_argument("--small", action="store_true", help="calls of small products only, in processor time")
    parser.add_argument("--samples", type=int, default=7, help="new processes for each figure (default: 7)")
    parser.add_argument("--out", help="a file to which the rows are added")
    options = parser.parse_args()
    device, rows = fe.device(options.device), []
    print(f"{device}, load average {os.getloadavg()[0]:.1f}, medians of {options.samples} new processes\n")
    for found in measured(device, options):
        rows.append(stamp("costs", device, {}, found))
        keep(options.out, rows[-1])
    show(rows)


def measured(device: fe.Device, options: argparse.Namespace) -> Iterator[Row]:
    """All that is asked for."""
    database = options.database or None
    if not options.small:
        if not options.calls:
            yield from _processes(options)
        for group in (_calls, _hosted, _expressions):
            yield from group(device, database)
    yield from _small(device, database)


def _processes(options: argparse.Namespace) -> Iterator[Row]:
    """Import, generate, and what a first line takes on a machine that never ran feinsum."""
    with tempfile.TemporaryDirectory(prefix="feinsum-costs-") as byte_code:
        environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": byte_code}
        for package, most_s in (("feinsum", 0.150), ("numpy", None)):
            command = [sys.executable, "-c", _IMPORT.format(package=package)]
            run = partial(subprocess.run, command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True)
            answers = [json.loads(run().stdout) for _ in range(options.samples + 1)][1:]
            remark = _loads(answers) if package == "feinsum" else "part of it"
            yield cost(f"import {package}", [a["seconds"] for a in answers], most_s, remark)

        def fresh(cold: bool, **ask: Any) -> list[dict[str, Any]]:
            """Answers of new processes, without the first, which makes byte code of what it imports, or caches."""
            answers = []
            for _ in range(options.samples + 1):
                with tempfile.TemporaryDirectory() as empty:
                    caches = Path(empty) if cold else None
                    with process_of(ROOT, caches, PYTHONPYCACHEPREFIX=byte_code) as process:
                        answers.append(process.ask(_LIMIT_S, device=options.device, database=options.database, **ask))
            return answers[1:]

        cold, warm = (fresh(cold, do="first", more=50) for cold in (True, False))
        yield cost("generate, new process, cold caches", [a["seconds"] for a in cold], 0.5, _loads(cold))
        yield cost("generate, new process, warm caches", [a["seconds"] for a in warm], 0.050, _loads(warm))
        yield cost("generate, same process, cold, after another", [a["other"] for a in cold], 0.5)
        yield cost("generate, same process, again", [a["again"] for a in warm], 100e-6)
        new = fresh(True, do="newcomer")
        yield cost("device, new machine: drivers probed", [a["probe"] for a in new])
        yield cost("contract, new process, cold caches", [a["seconds"] for a in new], None, "after the device was chosen")


def _loads(answers: Sequence[Mapping[str, Any]]) -> str:
    """Whether a library was imported that should not be."""
    heavy = sorted({name for answer in answers for name in answer["heavy"]})
    return f"imports {', '.join(heavy)}" if heavy else ""


@dataclass(frozen=True)
class Beside:
    """What a way is compared with.

    :ivar other: another way of the same samples.
    :ivar words: the remark; ``ratio`` is the time over the other's, ``speed`` the reverse, ``more`` the difference.
    :ivar factor: so many times as long, and `more_s` longer, it may take at most; None without a target.
    """

    other: str
    words: str
    factor: float | None = None
    more_s: float = 0.0


def compared(
    title: str,
    samples: Mapping[str, Sequence[float]],
    beside: Mapping[str, Beside],
    figure: Callable[[Sequence[float]], float] = median,
) -> Iterator[Row]:
    """A row for each way.

    :param title: with the name of a way in braces.
    """
    for name, taken in samples.items():
        most_s, remark = None, ""
        if one := beside.get(name):
            own_s, other_s = figure(taken), figure(samples[one.other])
            most_s = None if one.factor is None else one.factor * other_s + one.more_s
            remark = one.words.format(ratio=own_s / other_s, speed=other_s / own_s, more=duration(own_s - other_s))
        yield cost(title.format(name), taken, most_s, remark)


def _calls(device: fe.Device, database: str | None) -> Iterator[Row]:
    """Calls of a kernel on device arrays, from Python's side: until the call returns, and until the result is there."""
    import pyopencl.array as cla
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    from feinsum.compile.executable import build
    from feinsum.devices import build_program
    from feinsum.validate import length_values

    e, queue = gradient(), device.queue
    kernel = fe.generate(e, device, database, {"E": ELEMENTS})
    pool = MemoryPool(ImmediateAllocator(queue))
    canonical = fe.canonicalize_einsum(e)
    executable = build(device.context, kernel.program)
    for elements in (1, ELEMENTS):
        lengths = e.resolve({"E": elements})
        ones = {a.name: np.ones([lengths[x] for x in letters]) for a, letters in e.array_indices.items()}
        arrays = {name: cla.to_device(queue, value) for name, value in ones.items()}
        # A result is taken from the allocator of the first operand.
        pooled = {name: cla.to_device(queue, value, allocator=pool) for name, value in ones.items()}
        out = cla.empty(queue, (3, elements, 20), np.float64)
        values = length_values(canonical.einsum, canonical.renaming.lengths(lengths))
        buffers = {canonical.renaming.arrays[name]: value.base_data for name, value in arrays.items()}
        buffers |= {canonical.einsum.output_names[0]: out.base_data, **executable.scratch(device.context, values)}
        ways: dict[str, Way] = {
            "raw launch": _raw(build_program(device.context, kernel.source), kernel.program, queue, buffers, values),
            "Executable.enqueue": partial(executable.enqueue, queue, buffers, values),
            "kernel(..., out=)": partial(kernel, arrays, out=out),
            "kernel(...), memory pool": partial(kernel, pooled),
            "kernel(...)": partial(kernel, arrays),
        }
        # A large problem would take the processors from Python, so there only the end is of interest.
        large = elements > 1
        words = "{ratio:.2f} of a raw launch" if large else "{more} of our own"
        target = {"factor": 1.3} if large else {"factor": 1.0, "more_s": 15e-6}
        beside = dict.fromkeys(list(ways)[2:], Beside("raw launch", words, **target))
        beside["Executable.enqueue"] = Beside("raw launch", words)
        samples = _interleaved(ways, queue, wait=large)
        yield from compared(f"{{}}, E = {elements}, {'done' if large else 'returns'}", samples, beside)


def _hosted(device: fe.Device, database: str | None) -> Iterator[Row]:
    """Calls of kernels with large numpy arrays, beside the same with device arrays."""
    import pyopencl.array as cla

    beside = {f"numpy{x}": Beside(f"device{x}", "{ratio:.2f} of device arrays", 1.1) for x in (" arrays", " arrays, out=")}
    for text, shapes, dtype in (
        ("bij,bjk->bik", [(1_000_000, 8, 8), (1_000_000, 8, 8)], "float32"),
        ("xre,rij,ej->xei", [(3, 3, ELEMENTS), (3, 20, 20), (ELEMENTS, 20)], "float64"),
        ("ij,ij->ij", [(4000, 2000), (4000, 2000)], "float64"),
    ):
        e = fe.einsum(text, *(fe.array(f"a{k}", shape, dtype) for k, shape in enumerate(shapes)))
        kernel = fe.generate(e, device, database)
        host = {a.name: np.random.default_rng(0).uniform(-1, 1, a.shape).astype(dtype) for a in e.arrays}
        there = {name: cla.to_device(device.queue, value) for name, value in host.items()}
        out = kernel(host)
        ways: dict[str, Way] = {
            "device arrays": partial(kernel, there),
            "numpy arrays": partial(kernel, host),
            "device arrays, out=": partial(kernel, there, out=cla.to_device(device.queue, out)),
            "numpy arrays, out=": partial(kernel, host, out=out),
        }
        yield from compared(f"{text}, {{}}", _interleaved(ways, device.queue, wait=True), beside)


def _expressions(device: fe.Device, database: str | None) -> Iterator[Row]:
    """A small product, and untuned contractions of several kinds, beside numpy and opt_einsum."""
    import opt_einsum

    rng, how = np.random.default_rng(0), {"device": device, "database": database}
    quick = Beside("numpy.einsum", "{speed:.2f} times as quick as numpy.einsum")
    for title, text, shapes, dtype in (
        ("4 x 4", "ij,jk->ik", [(4, 4), (4, 4)], "float64"),
        ("100 x 100 complex128", "ij,jk->ik", [(100, 100), (100, 100)], "complex128"),
        ("MTTKRP", "ijk,jl,kl->il", [(100, 100, 100), (100, 32), (100, 32)], "float64"),
        ("chain of four", "ab,bc,cd,de->ae", [(30, 40), (40, 50), (50, 60), (60, 20)], "float64"),
    ):
        operands = [(rng.uniform(-1, 1, shape) * (1j if dtype.startswith("c") else 1)).astype(dtype) for shape in shapes]
        kernels = fe.contract_expression(text, *shapes, library=False, dtype=dtype, **how)
        ways: dict[str, Way] = {
            "numpy.einsum": partial(np.einsum, text, *operands, optimize=len(operands) > 3),
            "opt_einsum": partial(opt_einsum.contract, text, *operands),
            "contract": partial(fe.contract, text, *operands, **how),
            "expression": partial(fe.contract_expression(text, *shapes, dtype=dtype, **how), *operands),
            "expression, library=False": partial(kernels, *operands),
        }
        beside = {"contract": quick, "expression": quick}
        [kernel, *others] = kernels.kernels
        if kernel is not None and not others:
            ways["its kernel"] = partial(kernel, {f"a{k}": x for k, x in enumerate(operands)})
            beside["expression, library=False"] = Beside("its kernel", "{ratio:.2f} of its kernel", 1.2)
        yield from compared(f"{title}, {{}}", _interleaved(ways, device.queue, wait=True), beside)


def _small(device: fe.Device, database: str | None) -> Iterator[Row]:
    """What the thread of the caller is busy for with a product of 4 x 4, which other programs disturb little."""
    import pyopencl.array as cla

    text, how = "ij,jk->ik", {"device": device, "database": database}
    a, b = (np.random.default_rng(seed).uniform(-1, 1, (4, 4)) for seed in (0, 1))
    there = [cla.to_device(device.queue, value) for value in (a, b)]
    by_library, by_kernel, of_device = (
        fe.contract_expression(text, (4, 4), (4, 4), library=library, **how) for library in (True, False, True)
    )
    of_device(*there)
    [kernel] = of_device.kernels
    if kernel is None:
        raise AssertionError("device arrays are contracted by kernels")
    named = dict(zip([array.name for array in kernel.einsum.arrays], there, strict=True))
    ways: dict[str, Way] = {
        "numpy.einsum": lambda: np.einsum(text, a, b),
        "numpy.einsum, optimize=True": lambda: np.einsum(text, a, b, optimize=True),
        "contract": lambda: fe.contract(text, a, b, **how),
        "expression": lambda: by_library(a, b),
        "expression, a kernel": lambda: by_kernel(a, b),
        "kernel, device arrays": lambda: kernel(named),
        "expression, device arrays": lambda: of_device(*there),
        "contract, device arrays": lambda: fe.contract(text, *there, **how),
    }
    clock = partial(sample_of, finish=lambda: None, runs=1000, clock=time.thread_time)
    samples = in_turns({name: partial(_then, partial(clock, way), device.queue) for name, way in ways.items()}, 9)
    of_kernel, of_numpy = "{ratio:.2f} of its kernel", "{ratio:.2f} of numpy.einsum"
    beside = {
        name: Beside("kernel, device arrays", of_kernel) if "device" in name else Beside("numpy.einsum", of_numpy)
        for name in ways
    }
    beside["expression, device arrays"] = Beside("kernel, device arrays", of_kernel, 1.2)
    yield from compared("4 x 4, {}, busy for", samples, beside, min)


def _then(sample: Callable[[], float], queue: Any) -> float:
    """A sample, after which the queue is emptied."""
    taken = sample()
    queue.finish()
    return taken


def _raw(program: Any, plan: Any, queue: Any, buffers: Mapping[str, Any], values: Mapping[str, int]) -> Callable[[], None]:
    """The launches of a program by pyopencl alone, their arguments set beforehand."""
    import pyopencl as cl

    from feinsum.compile.program import evaluate

    dtypes = {a.name: np.dtype(a.dtype) for a in plan.arguments}
    launches = []
    for launch in plan.launches:
        kernel = cl.Kernel(program, launch.kernel)
        kernel.set_args(*(buffers[x] if x in buffers else dtypes[x].type(values[x]) for x in launch.arguments))
        groups = [evaluate(extent, values) for extent in launch.groups]
        local = [*launch.group_size, *[1] * (len(groups) - len(launch.group_size))]
        launches.append((kernel, [n * size for n, size in zip(groups, local, strict=True)], local))

    def run() -> None:
        for kernel, items, local in launches:
            cl.enqueue_nd_range_kernel(queue, kernel, items, local)

    return run


def _interleaved(ways: Mapping[str, Way], queue: Any, *, wait: bool) -> dict[str, list[float]]:
    """Seconds of each way, all in turns; until the queue is empty with `wait`."""
    finish = queue.finish if wait else lambda: None
    samplers = {name: partial(_then, partial(sample_of, way, finish, 1), queue) for name, way in ways.items()}
    return {name: taken[10:] or taken for name, taken in in_turns(samplers, _CALLS, _CALLS_S).items()}
