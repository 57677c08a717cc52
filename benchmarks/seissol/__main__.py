"""Kernels of SeisSol as programs of the immediate language, beside `generate`, one launch per instruction, and the peers.

    python -m benchmarks seissol                                    # seven einsums, orders 4 to 7, two types, on the CPU
    python -m benchmarks seissol --case volume local --order 6 --dtypes float64 --peers numpy,torch
    python -m benchmarks seissol --minutes 2                        # what 2 minutes suffice for; again for the next ones
    python -m benchmarks seissol --read seissol.jsonl --report doc/seissol-cpu.rst
    python -m benchmarks seissol --print volume --order 6           # the program
    python -m benchmarks job --cases seissol > seissol.toml         # what to tune them by

A program is the plan of its einsum (:func:`feinsum.plan`), for arrays as numpy has them.  Raised, as one launch for each
instruction, and `generate` itself, it is called with device arrays in the same rounds, so that these ratios are of times
next to each other; a call is over when its result is there.  For how kernels and peers are timed see that of ``suite``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import feinsum as fe
from benchmarks.ahead import Ahead
from benchmarks.cases import Case, describe
from benchmarks.engines.peers import PEERS
from benchmarks.engines.process import CutOffError, EngineProcess, FailedError
from benchmarks.engines.programs import LANGUAGE, plan_of_elements
from benchmarks.results import OURS, Row, read_results
from benchmarks.seissol.cases import DTYPES, ORDERS, WORKLOADS, seissol_cases
from benchmarks.seissol.table import print_row, print_tables, write_page
from benchmarks.suite import Options, installed, machine, measure

_START_S = 120.0
PEERS_OF = {"cpu": "numpy,opt_einsum,torch,jax", "gpu": "torch,torch_compile,jax,cupy"}


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.shown:
        for case in seissol_cases([arguments.shown], arguments.orders):
            for dtype in arguments.dtypes.split(","):
                print(plan_of_elements(describe(case, "cpu", dtype, long=True), arguments.shown))
        return
    rows = [row for path in arguments.read for row in read_results(path)] if arguments.read else run(arguments)
    print_tables(rows)
    if arguments.report:
        write_page(rows, arguments.report)


def run(arguments: argparse.Namespace) -> list[Row]:
    """Measure what is asked for; the rows of the file of results."""
    device = fe.device(arguments.device or arguments.side)
    options = Options(device, arguments.side, arguments.seconds, arguments.rounds, arguments.cutoff, arguments.prepare)
    todo = _todo(arguments, device)
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    how = {"database": arguments.database}
    names = [LANGUAGE, *(arguments.peers or PEERS_OF[arguments.side]).split(",")]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(arguments.out, "a", encoding="utf-8"))
        started = [EngineProcess(OURS, how=how)]
        started += [EngineProcess(n, arguments.python, how=how if n == LANGUAGE else None) for n in names]
        entered = [stack.enter_context(engine) for engine in started]
        with ThreadPoolExecutor(len(entered)) as pool:  # they import for seconds, each in a process of its own
            list(pool.map(_wake, entered))
        versions, engines = installed(entered)
        print(f"{device}, {len(todo)} results beside {', '.join(e.name for e in engines[2:]) or 'nothing'}", flush=True)
        prepared = stack.enter_context(Ahead(todo, options, {**how, "programs": True}, arguments.ahead))
        for number, (case, dtype) in enumerate(todo):
            if time.monotonic() > end:
                print(f"{len(todo) - number} are left; the same command goes on with them", flush=True)
                break
            with prepared.take(number) as directory:
                row = measure(case, dtype, engines, options, directory)
            row |= {"workload": case["workload"], "order": case["order"], "machine": machine(device), "versions": versions}
            row[LANGUAGE] = row["engines"].pop(LANGUAGE)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print_row(row)
    return read_results(arguments.out)


def _wake(engine: EngineProcess) -> None:
    """Have an engine imported; one that fails is told of later."""
    with contextlib.suppress(CutOffError, FailedError):
        engine.ask(_START_S, "hello")


def _todo(arguments: argparse.Namespace, device: fe.Device) -> list[tuple[Case, str]]:
    """What is to be measured, and not in the file of results of this device."""
    there = read_results(arguments.out) if Path(arguments.out).exists() else []
    done = {
        (row["case"], row["dtype"])
        for row in there
        if (row["side"], row["machine"]["device"]) == (arguments.side, device.profile.id)
    }
    wanted = [(c, d) for c in seissol_cases(arguments.cases, arguments.orders) for d in arguments.dtypes.split(",")]
    return [(case, dtype) for case, dtype in wanted if (case["name"], dtype) not in done]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--case", dest="cases", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS), help="(default: all)")
    add("--order", dest="orders", nargs="+", type=int, default=list(ORDERS), help="(default: 4 5 6 7)")
    add("--dtypes", default=",".join(DTYPES), help="separated by commas")
    add("--side", choices=("cpu", "gpu"), default="cpu", help="whose sizes (default: cpu)")
    add("--device", help="see feinsum.device; by default the side")
    add("--peers", help=f"some of {','.join(PEERS)} (default: {PEERS_OF['cpu']}, on GPUs {PEERS_OF['gpu']})")
    add("--python", default=sys.executable, help="the interpreter that has the peers (default: this one)")
    add("--database", help="a store of records besides those that come with feinsum")
    add("--minutes", type=float, help="begin no case after so long")
    add("--ahead", type=int, default=0, help="processes that draw inputs and generate kernels ahead; not beside a CPU's")
    add("--out", default="seissol.jsonl", help="results are appended here; what it has is not measured again")
    add("--read", nargs="+", metavar="FILE", help="only show the results of these files")
    add("--report", metavar="FILE.rst", help="write the tables as a page")
    add("--print", dest="shown", choices=list(WORKLOADS), help="print the program and nothing else")
    add("--seconds", type=float, default=0.5, help="of samples for each engine and case (default: 0.5)")
    add("--rounds", type=int, default=3, help="turns of each engine (default: 3)")
    add("--cutoff", type=float, default=2.0, help="seconds of the longest first run of a peer (default: 2)")
    add("--prepare", type=float, default=60.0, help="seconds to load and compile (default: 60)")
    return parser


if __name__ == "__main__":
    main()
