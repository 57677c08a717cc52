"""Arrays of torch, JAX, CuPy and numpy beside the bare kernels, and derivatives beside torch's.

    python -m benchmarks arrays                                   # on the CPU, a minute or two
    python -m benchmarks arrays --groups calls host               # a part
    python -m benchmarks arrays --side gpu --processes 14

calls: one kernel called in every way, beside its raw launch.  host: how long the caller is busy with small arrays.  copies:
the memory that a call takes besides its result.  leaks: what stays of ten thousand calls.  streams: that nothing waits
(on CUDA).  gradcheck: random einsums, seeded.  training: forward and backward of layers, and the einsums they consist of.
devices: two equal GPUs told apart, each computing what lies on it, both tuned at once (where there are two).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import feinsum as fe
from benchmarks import parser_of
from benchmarks.measure import keep, stamp
from benchmarks.report import show

GROUPS = ("calls", "host", "copies", "leaks", "streams", "gradcheck", "training", "devices")
_PACKAGES = ("numpy", "torch", "jax", "cupy-cuda12x", "cupy-cuda13x", "cuda-bindings", "opt_einsum")


def main() -> None:
    """Measure the groups that are asked for."""
    arguments = parser().parse_args()
    # JAX takes three quarters of a GPU's memory at its first array unless it is told not to.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    warnings.filterwarnings("ignore", ".*torch.jit.script", DeprecationWarning)  # torch 2.13, of itself
    from benchmarks.arrays.side import Side

    side = Side(arguments.side, fe.device(arguments.device or arguments.side), arguments.rounds)
    versions, rows = dict(_versions()), []
    for group in arguments.groups:
        begin = time.monotonic()
        for found in measured(group, side, arguments):
            rows.append(stamp("arrays", side.device, versions, {"group": group, **found, "side": side.name}))
            keep(arguments.out, rows[-1])
        print(f"{group}: {time.monotonic() - begin:.0f} s", flush=True)
    show(rows)
    if any("failed" in row for row in rows):
        sys.exit(1)


def measured(group: str, side: Any, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of a group; what ends with an error is a row that says so, and the others are measured."""
    from benchmarks.arrays import calls, devices, training

    ways: Mapping[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "calls": lambda: calls.calls(side),
        "host": lambda: calls.host(side),
        "copies": lambda: calls.copies(side),
        "leaks": lambda: calls.leaks(side, arguments.repeat),
        "streams": lambda: calls.streams(side),
        "gradcheck": lambda: training.gradchecks(side, arguments.einsums, arguments.processes),
        "training": lambda: training.training(side, arguments.processes),
        "devices": lambda: devices.devices(side),
    }
    try:
        yield from ways[group]()
    except Exception:  # one group's error must not take the figures of the others along
        yield {"name": group, "failed": traceback.format_exc()}


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = parser_of(__doc__)
    add = made.add_argument
    add("--groups", nargs="+", choices=GROUPS, default=GROUPS, help="(default: all)")
    add("--side", choices=("cpu", "gpu"), default="cpu", help="whose sizes (default: cpu)")
    add("--device", help="see feinsum.device; by default the side")
    add("--rounds", type=int, default=15, help="samples of each way, in turns (default: 15)")
    add("--repeat", type=int, default=10_000, help="calls that must leave nothing behind (default: 10000)")
    add("--einsums", type=int, default=100, help="random einsums for gradcheck (default: 100)")
    add("--processes", type=int, default=1, help="for gradcheck, and to make kernels beforehand (default: 1)")
    add("--out", default="arrays.jsonl", help="results are appended here (default: arrays.jsonl)")
    return made
