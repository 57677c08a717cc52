"""Arrays of torch, JAX, CuPy and numpy compared with the bare kernels, and derivatives compared with torch's.

    python -m benchmarks arrays                                   # on the CPU, a minute or two
    python -m benchmarks arrays --groups calls host               # a part
    python -m benchmarks arrays --side gpu

*calls* compares every way to call one kernel with its raw launch; *host* measures how long the caller is busy with small
arrays; *training* measures forward and backward passes of layers, and the einsums in them.  ``tests/test_on_cuda.py`` tests
that calls on CUDA copy nothing, keep no memory and wait for nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import feinsum as fe
from benchmarks import parser_of
from benchmarks.measure import keep, stamp
from benchmarks.peers import peer_versions
from benchmarks.report import show

GROUPS = ("calls", "host", "training")


def main() -> None:
    """Measure the groups that are asked for."""
    arguments = parser().parse_args()
    # JAX takes three quarters of a GPU's memory at its first array unless it is told not to.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    warnings.filterwarnings("ignore", ".*torch.jit.script", DeprecationWarning)  # torch 2.13, of itself
    from benchmarks.arrays.side import Side

    side = Side(arguments.side, fe.device(arguments.device or arguments.side), arguments.rounds)
    versions, rows = peer_versions(("numpy", "torch", "jax", "cupy")), []
    for group in arguments.groups:
        begin = time.monotonic()
        for found in measured(group, side):
            rows.append(stamp("arrays", side.device, versions, {"group": group, **found, "side": side.name}))
            keep(arguments.out, rows[-1])
        print(f"{group}: {time.monotonic() - begin:.0f} s", flush=True)
    show(rows)
    if any("failed" in row for row in rows):
        sys.exit(1)


def measured(group: str, side: Any) -> Iterator[dict[str, Any]]:
    """The rows of a group; what ends with an error is a row that says so, and the others are measured."""
    from benchmarks.arrays import calls, training

    try:
        yield from {"calls": calls.calls, "host": calls.host, "training": training.training}[group](side)
    except Exception:  # one group's error must not take the figures of the others along
        yield {"name": group, "failed": traceback.format_exc()}


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = parser_of(__doc__)
    add = made.add_argument
    add("--groups", nargs="+", choices=GROUPS, default=GROUPS, help="(default: all)")
    add("--side", choices=("cpu", "gpu"), default="cpu", help="whose sizes (default: cpu)")
    add("--device", help="see feinsum.device; by default the side")
    add("--rounds", type=int, default=15, help="samples of each way, in turns (default: 15)")
    add("--out", default="arrays.jsonl", help="results are appended here (default: arrays.jsonl)")
    return made
