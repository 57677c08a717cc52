"""The demonstration that ``make demo`` runs: tune three einsums, compare, use the kernels in a new process.

What the user's store knows already is not tuned again, so a second run only measures and checks.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

import feinsum as fe
from benchmarks import ROOT, parser_of
from benchmarks.cases import gradient
from benchmarks.measure import alternating, sampler
from feinsum.cli.output import PERFORMANCE, performance, print_table
from feinsum.database import locate
from feinsum.report.figures import duration, figure
from feinsum.validate.reference import random_inputs, references

TUNING_S = 36.0
"""Seconds of tuning for each einsum: with what follows, two minutes in all."""


@dataclass(frozen=True)
class Case:
    """An einsum, and the lengths of its long axes at which it is tuned."""

    name: str
    einsum: fe.BatchedEinsum
    sizes: dict[str, int]


def cases() -> list[Case]:
    lift, faces = fe.array("R", (4, 4, 3)), fe.array("J", (4, "E"))
    fluxes = [fe.array(f"v{k}", (4, "E", 3)) for k in range(4)]
    a, b = fe.array("A", (1024, 1024)), fe.array("B", (1024, 1024))
    return [
        Case("DG gradient, p = 3", gradient(), {"E": 100_000}),
        Case(
            "face mass, p = 1, 4 outputs",
            fe.batched_einsum("ifj,fe,fej->ei", [[lift, faces, flux] for flux in fluxes]),
            {"E": 150_000},
        ),
        Case("matrix product, 1024³", fe.einsum("ij,jk->ik", a, b), {}),
    ]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--check", action="store_true", help="only generate, and compare with numpy")
    if parser.parse_args().check:
        sys.exit(check())
    device = fe.device()
    peaks = device.peaks
    fp64 = figure(peaks.flops_per_s("float64") / 1e9)
    print(f"{device}: {fp64} GFLOP/s in float64, {figure(peaks.copy_bytes_per_s / 1e9)} GB/s, measured")
    rows = [measure(case, tuned(case, device)) for case in cases()]
    print()
    headings = ["float64", *PERFORMANCE, "roofline", "numpy", "speed-up", "plain numpy", "speed-up "]
    print_table(headings, rows, left=["float64"])
    print()
    print("time      of the kernel, arrays on the device; median, and ± its median absolute deviation")
    print("roofline  the least time by the device's measured peaks, over this time")
    print("numpy     numpy.einsum(optimize=True); plain numpy: numpy.einsum without it")
    print(f"records   {locate()}")
    print()
    print("the same kernels from a new process, against references:", flush=True)
    sys.exit(subprocess.run([sys.executable, "-m", "benchmarks", "demo", "--check"], cwd=ROOT, check=False).returncode)


def tuned(case: Case, device: fe.Device) -> fe.Kernel:
    """The best kernel known, after tuning if there is no record of this very problem."""
    kernel = fe.generate(case.einsum, device, sizes=case.sizes)
    if kernel.rung == "exact":
        print(f"{case.name}: known")
        return kernel
    print(f"{case.name}: tuning for {TUNING_S:.0f} s", flush=True)
    report = fe.autotune(case.einsum, device, sizes=case.sizes, timeout=TUNING_S)
    if report.interrupted or report.best is None:
        sys.exit("interrupted" if report.interrupted else f"nothing that was tried is right: {report}")
    failed = sum(report.failures.values())
    print(f"{case.name}: {len(report.records)} configurations tried in {report.seconds:.0f} s, {failed} of them failed")
    return fe.generate(case.einsum, device, sizes=case.sizes)


def measure(case: Case, kernel: fe.Kernel) -> list[str]:
    """A row of the table."""
    timing = fe.timeit(case.einsum, kernel.device, configuration=kernel.configuration, space=kernel.space, sizes=case.sizes)
    roof = fe.roofline(case.einsum, kernel.device, case.sizes)
    row = [case.name, *performance(timing.median_s, timing.spread_s, roof.flops, roof.bytes)]
    row.append(f"{roof.seconds / timing.median_s:.0%}")
    arrays = random_inputs(case.einsum, case.einsum.resolve(case.sizes), 0)
    rows = [[arrays[a.name] for (a,) in row] for row in case.einsum.args]

    def by_numpy(optimize: bool) -> None:
        for operands in rows:
            np.einsum(case.einsum.subscripts, *operands, optimize=optimize)

    for optimize in (True, False):
        seconds = median(alternating({"numpy": sampler(partial(by_numpy, optimize))}, 64, 0.5)["numpy"])
        row += [duration(seconds), f"{seconds / timing.median_s:.1f}x"]
    return row


def check() -> int:
    """Generate each kernel, compare it with the reference, and return an exit code."""
    wrong = 0
    for case in cases():
        e, lengths = case.einsum, case.einsum.resolve(case.sizes)
        kernel, arrays = fe.generate(e, sizes=case.sizes), random_inputs(e, lengths, 0)
        found = kernel(**arrays)
        worst = max(
            float((abs(ours[np.ix_(*reference.at)] - reference.expected) / reference.bound).max())
            for ours, reference in zip([found] if e.b == 1 else found, references(e, lengths, arrays, 0), strict=True)
        )
        wrong += not worst <= 1
        print(f"{case.name}: {'right' if worst <= 1 else 'WRONG'}, largest error {worst:.1%} of its bound ({kernel.rung})")
    return 1 if wrong else 0
