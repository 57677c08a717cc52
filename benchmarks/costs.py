"""What using feinsum costs besides the kernel itself: ``python -m benchmarks costs [--device cpu] [--database PATH]``.

processes: import, generate and a first contract in new processes, each with a clock of its own; the caches of "cold" are
empty directories.  Modules are byte code, as after ``pip install``.  The einsum is the DG gradient ``xre,rij,ej->xei`` with
p = 3.  expressions: untuned contractions of several kinds, compared with numpy and opt_einsum.  small: how long a product
of 4 x 4 keeps the caller's thread busy.  canonical: canonical forms (``python -m benchmarks canonical`` measures these
alone).  What a call costs with arrays of each library is measured by ``python -m benchmarks arrays``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks import ROOT, parser_of
from benchmarks.cases import gradient
from benchmarks.engines.side import SMALL_CALLS
from benchmarks.gate import process_of
from benchmarks.measure import Way, alternating, keep, sample_of, stamp
from benchmarks.report import show
from benchmarks.rows import Row, spread

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


def main(groups: Sequence[str] = ("processes", "expressions", "small")) -> None:
    parser = parser_of(__doc__, "cpu")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=groups, help=f"(default: {' '.join(groups)})")
    parser.add_argument("--database", default="", help="a store of records besides those that come with feinsum")
    parser.add_argument("--samples", type=int, default=7, help="new processes for each figure (default: 7)")
    parser.add_argument("--out", help="a file to which the rows are added")
    options = parser.parse_args()
    device, rows = fe.device(options.device), []
    print(f"{device}, load average {os.getloadavg()[0]:.1f}\n")
    for group in options.groups:
        for found in GROUPS[group](device, options):
            rows.append(stamp("costs", device, {}, found))
            keep(options.out, rows[-1])
    show(rows)


def canonical() -> None:
    """The costs of canonical forms alone."""
    main(("canonical",))


def _processes(device: fe.Device, options: argparse.Namespace) -> Iterator[Row]:
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


def compared(
    title: str,
    samples: Mapping[str, Sequence[float]],
    others: Mapping[str, str],
    factors: Mapping[str, float],
    figure: Callable[[Sequence[float]], float] = median,
) -> Iterator[Row]:
    """A row for each way, which says how its time compares with another's.

    :param others: the name of the other way.
    :param factors: how often the other's time a way may take.
    """
    for name, taken in samples.items():
        most_s, remark = None, ""
        if other := others.get(name):
            other_s = figure(samples[other])
            most_s = other_s * factors[name] if name in factors else None
            remark = f"{figure(taken) / other_s:.2f} of {other}"
        yield cost(f"{title}, {name}", taken, most_s, remark)


def _expressions(device: fe.Device, options: argparse.Namespace) -> Iterator[Row]:
    """A small product, and untuned contractions of several kinds, beside numpy and opt_einsum."""
    import opt_einsum

    rng, how = np.random.default_rng(0), {"device": device, "database": options.database or None}
    for title, text, shapes, dtype in (
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
        [kernel, *others] = kernels.kernels
        if kernel is not None and not others:
            ways["its kernel"] = partial(kernel, {f"a{k}": x for k, x in enumerate(operands)})
        timed = {name: partial(sample_of, way, device.queue.finish, 1) for name, way in ways.items()}
        samples = {name: taken[10:] or taken for name, taken in alternating(timed, _CALLS, _CALLS_S).items()}
        beside = dict.fromkeys(("contract", "expression"), "numpy.einsum")
        beside |= {"expression, library=False": "its kernel"} if "its kernel" in ways else {}
        yield from compared(title, samples, beside, {"expression, library=False": 1.2})


def _small(device: fe.Device, options: argparse.Namespace) -> Iterator[Row]:
    """What the thread of the caller is busy for with a product of 4 x 4, which other programs disturb little."""
    with process_of(ROOT, None) as process:
        samples = {}
        for what in SMALL_CALLS:
            ask = {"do": "call", "device": options.device, "what": what, "count": 1000}
            samples[what] = [process.ask(_LIMIT_S, **ask)["seconds"] for _ in range(9)]
    beside = {name: "kernel, device arrays" if "device" in name else "numpy.einsum" for name in samples}
    yield from compared("4 x 4, busy for", samples, beside, {"expression, device arrays": 1.2}, min)


def _canonical(device: fe.Device, options: argparse.Namespace) -> Iterator[Row]:
    """Canonical forms of einsums not seen before, as their arrays have new names, and of known ones."""
    canonicalize = fe.canonicalize_einsum
    canonicalize(_alike("first"))  # the first form with a tie loads the graph library
    samples = 7 * options.samples

    def timed(einsums: Iterator[fe.BatchedEinsum]) -> list[float]:
        return [sample_of(partial(canonicalize, e), lambda: None, 1) for e in einsums]

    # three operands that are told apart without the graph library, and three that only this puts in order
    yield cost("xre,rij,ej->xei", timed(gradient(35, f"n{k}_") for k in range(samples)))
    yield cost("i,i,i->i, all alike", timed(_alike(f"n{k}_") for k in range(samples)))
    for what, (subscripts, operands) in BATCHES.items():
        for rows in (4, 16, 64, 200, 500):
            yield cost(f"{what}, {rows} rows", timed(_batch(subscripts, operands, rows, f"n{k}_") for k in range(samples)))
    for rows in (1, 64, 500):
        makes = [_batch(*BATCHES["ij,ej->ei, one D"], rows, "a_") for _ in range(samples)]
        canonicalize(makes[0])
        yield cost(f"again, the same object, {rows} rows", timed(itertools.repeat(makes[0], samples)))
        yield cost(f"again, an equal object, {rows} rows", timed(iter(makes[1:])))


def _alike(prefix: str) -> fe.BatchedEinsum:
    return fe.einsum("i,i,i->i", *(fe.array(f"{prefix}{k}", "E") for k in "xyz"))


Operands = Callable[[int, int], Sequence[str]]
"""Takes a row and how many there are; returns the names of its operands."""
_SHAPES: dict[str, tuple[int | str, ...]] = {
    "D": (35, 35), "u": ("E", 35), "R": (35, 4, 15), "F": (4, "E"), "v": (4, "E", 15), "J": ("E",), "s": (8, 8)
}  # fmt: skip
"""By the first letter of a name."""


def _at_random(row: int, rows: int) -> Sequence[str]:
    rng = random.Random(1000 * rows + row)
    return [f"{x}{rng.randrange((rows + 1) // 2)}" for x in "Du"]


BATCHES: dict[str, tuple[str, Operands]] = {
    "ij,ej->ei, one D": ("ij,ej->ei", lambda k, _: ("D", f"u{k}")),
    "ifj,fe,fej->ei, one R and F": ("ifj,fe,fej->ei", lambda k, _: ("R", "F", f"v{k}")),
    "e,ij,ej->ei, gradients": ("e,ij,ej->ei", lambda k, _: (f"J{k % 3}", "D", f"u{k // 3}")),
    "ij,ej->ei, D and u at random": ("ij,ej->ei", _at_random),
    "ij,jk->ik, a ring": ("ij,jk->ik", lambda k, rows: (f"s{k}", f"s{(k + 1) % rows}")),
    "ij,jk->ik, separate pairs": ("ij,jk->ik", lambda k, rows: (f"s{k}", f"s{(k ^ 1) % rows}")),
}
"""Rows of one operator; that share two operands; every field with three metric terms; every array in two rows or so; in two
rows, all of which look alike; pairs that exchange their arrays, which are as many symmetries as there can be."""


def _batch(subscripts: str, operands: Operands, rows: int, prefix: str) -> fe.BatchedEinsum:
    """Equal einsums for equal prefixes."""
    names = [operands(k, rows) for k in range(rows)]
    arrays = {x: fe.array(prefix + x, _SHAPES[x[0]]) for row in names for x in row}
    return fe.batched_einsum(subscripts, [[arrays[x] for x in row] for row in names])


GROUPS: dict[str, Callable[[fe.Device, argparse.Namespace], Iterator[Row]]] = {
    "processes": _processes, "expressions": _expressions, "small": _small, "canonical": _canonical,
}  # fmt: skip
