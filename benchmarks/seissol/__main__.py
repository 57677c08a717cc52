"""Kernels of SeisSol as programs of the immediate language, beside `generate`, one launch per instruction, and the peers.

    python -m benchmarks seissol                                    # seven einsums, orders 4 to 7, two types, on the CPU
    python -m benchmarks seissol --case volume local --order 6 --dtypes float64 --peers numpy,torch
    python -m benchmarks seissol --minutes 2                        # what 2 minutes suffice for; again for the next ones
    python -m benchmarks seissol --read seissol.jsonl --report benchmarks/results/zen3/seissol.rst
    python -m benchmarks seissol --print volume --order 6           # the program
    python -m benchmarks job --cases seissol > seissol.toml         # what to tune them by

A program is the plan of its einsum (:func:`feinsum.plan`), for arrays as numpy has them.  Raised, as one launch for each
instruction, and `generate` itself, it is called with device arrays in the same rounds, so that these ratios are of times
next to each other; a call is over when its result is there.  For how kernels and peers are timed see that of ``suite``.
"""

from __future__ import annotations

import argparse

import feinsum as fe
from benchmarks.cases import Case, describe
from benchmarks.driver import Command, add_options, drive, present
from benchmarks.engines.process import EngineProcess
from benchmarks.engines.programs import LANGUAGE, plan_of_elements
from benchmarks.results import OURS, Row
from benchmarks.seissol.cases import DTYPES, MEGABYTES, ORDERS, WORKLOADS, seissol_cases
from benchmarks.seissol.table import print_row, print_tables, write_page

PEERS_OF = {"cpu": "numpy,opt_einsum,torch,jax,tblis,onemkl,libxsmm", "gpu": "torch,torch_compile,jax,cupy,cutensor"}


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.shown:
        for case in seissol_cases([arguments.shown], arguments.orders):
            for dtype in arguments.dtypes.split(","):
                print(plan_of_elements(describe(case, "cpu", dtype, long=True), arguments.shown))
        return
    present(arguments, run, print_tables, write_page)


def run(arguments: argparse.Namespace) -> list[Row]:
    """Measure what is asked for; the rows of the file of results."""
    device = fe.device(arguments.device or arguments.side)
    how = {"database": arguments.database}
    peers = (arguments.peers or PEERS_OF[arguments.side]).split(",")
    engines = [EngineProcess(name, how=how) for name in (OURS, LANGUAGE)]
    engines += [EngineProcess(name, arguments.python) for name in peers]
    megabytes = MEGABYTES | ({arguments.side: arguments.megabytes} if arguments.megabytes else {})
    cases = [case for order in arguments.orders for case in seissol_cases(arguments.cases, [order], megabytes)]
    wanted = [(case, dtype) for dtype in arguments.dtypes.split(",") for case in cases]
    return drive(Command(wanted, engines, _told, print_row, {**how, "programs": True}), device, arguments)


def _told(case: Case, row: Row) -> None:
    row |= {"workload": case["workload"], "order": case["order"], LANGUAGE: row["engines"].pop(LANGUAGE)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--case", dest="cases", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS), help="(default: all)")
    add("--order", dest="orders", nargs="+", type=int, default=list(ORDERS), help="(default: 4 5 6 7), in turn")
    add("--dtypes", default=",".join(DTYPES), help="separated by commas, in turn")
    add("--megabytes", type=float, help=f"of arrays in float64 (default: {MEGABYTES['cpu']}, on GPUs {MEGABYTES['gpu']})")
    add("--database", help="a store of records besides those that come with feinsum")
    add("--print", dest="shown", choices=list(WORKLOADS), help="print the program and nothing else")
    add_options(parser, "seissol.jsonl", f"default: {PEERS_OF['cpu']}, on GPUs {PEERS_OF['gpu']}")
    return parser


if __name__ == "__main__":
    main()
