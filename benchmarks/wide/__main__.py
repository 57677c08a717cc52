"""The wide list: einsums that nobody tuned, beside the peers, in one run.

    python -m benchmarks wide --limit 2                         # two of each class, on the CPU, untuned
    python -m benchmarks wide --class rich --tune 20            # each tuned for 20 s as well
    python -m benchmarks wide --case tccg_0 dg_ --layout turned --out wide.jsonl
    python -m benchmarks wide --side gpu --minutes 9 --ahead 8  # what 9 minutes suffice for; again for the next ones
    python -m benchmarks wide --read wide.jsonl                 # the tables of what was measured

Untuned is what `generate` takes first where all records of the very einsum are hidden from it, those that come with
feinsum among them.  How engines are timed: python -m benchmarks suite --help.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import feinsum as fe
from benchmarks.ahead import Ahead
from benchmarks.cases import Case
from benchmarks.engines.peers import PEERS
from benchmarks.engines.process import EngineProcess
from benchmarks.results import OURS, Row, read_results
from benchmarks.suite import Options, installed, machine, measure
from benchmarks.wide.cases import CLASSES, DTYPES, LAYOUTS, base, wide_cases
from benchmarks.wide.table import TUNED, print_row, print_tables, write_page


def main() -> None:
    arguments = _parser().parse_args()
    rows = [row for path in arguments.read for row in read_results(path)] if arguments.read else run(arguments)
    print_tables(rows)
    if arguments.report:
        write_page(rows, arguments.report)


def run(arguments: argparse.Namespace) -> list[Row]:
    """Measure what is asked for; the rows of the file of results."""
    device = fe.device(arguments.device or arguments.side)
    options = Options(
        device, arguments.side, arguments.seconds, arguments.rounds, arguments.cutoff, arguments.prepare + arguments.tune
    )
    todo, done = _todo(arguments, device)
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(arguments.out, "a", encoding="utf-8"))
        stores = stack.enter_context(tempfile.TemporaryDirectory(prefix="feinsum-wide-"))
        untuned = {"database": f"{stores}/untuned.sqlite", "hidden": True}
        versions, engines = installed([stack.enter_context(engine) for engine in _engines(arguments, stores, untuned)])
        names = ", ".join(engine.name for engine in engines[1:])
        print(f"{device}, {len(todo)} results beside {names or 'nothing'}; {len(done)} are there already", flush=True)
        prepared = stack.enter_context(Ahead(todo, options, untuned, arguments.ahead))
        for number, (case, dtype) in enumerate(todo):
            if time.monotonic() > end:
                print(f"{len(todo) - number} are left; the same command goes on with them", flush=True)
                break
            with prepared.take(number) as directory:
                row = measure(case, dtype, engines, options, directory)
            row |= {"layout": case["layout"], "machine": machine(device), "versions": versions}
            if TUNED in row["engines"]:
                row[TUNED] = row["engines"].pop(TUNED)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print_row(row)
    return read_results(arguments.out)


def _todo(arguments: argparse.Namespace, device: fe.Device) -> tuple[list[tuple[Case, str]], set[tuple[str, str]]]:
    """What is to be measured, and what the file of results has already of this device."""
    cases = wide_cases(arguments.classes, arguments.layouts, arguments.cases, arguments.limit)
    if arguments.minutes:  # what there is time for is a fair sample, both layouts and types of a case together
        bases = sorted({base(case["name"]) for case in cases})
        random.Random(0).shuffle(bases)
        cases.sort(key=lambda case: bases.index(base(case["name"])))
    wanted = [(case, dtype) for case in cases for dtype in arguments.dtypes.split(",")]
    there = read_results(arguments.out) if Path(arguments.out).exists() else []
    done = {
        (row["case"], row["dtype"])
        for row in there
        if (row["side"], row["machine"]["device"]) == (arguments.side, device.profile.id)
        and (TUNED in row or not arguments.tune)
    }
    return [(case, dtype) for case, dtype in wanted if (case["name"], dtype) not in done], done


def _engines(arguments: argparse.Namespace, stores: str, untuned: dict[str, object]) -> Iterator[EngineProcess]:
    yield EngineProcess(OURS, how=untuned)
    if arguments.tune:
        yield EngineProcess(TUNED, engine=OURS, how={"database": f"{stores}/tuned.sqlite", "tune_s": arguments.tune})
    asked = arguments.peers.split(",") if arguments.peers else [n for n in PEERS if arguments.side in PEERS[n].sides]
    for name in asked:
        yield EngineProcess(name, arguments.python)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--class", dest="classes", nargs="+", choices=CLASSES, default=CLASSES, help="(default: all)")
    add("--case", dest="cases", nargs="+", default=(), help="names of cases, or what they begin with (default: all)")
    add("--layout", dest="layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS, help="(default: both)")
    add("--limit", type=int, help="so many cases of each class in each layout")
    add("--dtypes", default=",".join(DTYPES), help="separated by commas")
    add("--side", choices=("cpu", "gpu"), default="cpu", help="whose sizes (default: cpu)")
    add("--device", help="see feinsum.device; by default the side")
    add("--peers", help=f"some of {','.join(PEERS)}; by default all for the side")
    add("--python", default=sys.executable, help="the interpreter that has the peers (default: this one)")
    add("--tune", type=float, default=0.0, metavar="SECONDS", help="tune each for so long, too (default: do not)")
    add("--minutes", type=float, help="begin no case after so long")
    add("--ahead", type=int, default=0, help="processes that draw inputs and generate kernels ahead; not beside a CPU's")
    add("--out", default="wide.jsonl", help="results are appended here; what it has is not measured again")
    add("--read", nargs="+", metavar="FILE", help="only show the results of these files")
    add("--report", metavar="FILE.rst", help="write the tables as a page")
    add("--seconds", type=float, default=0.5, help="of samples for each engine and case (default: 0.5)")
    add("--rounds", type=int, default=3, help="turns of each engine (default: 3)")
    add("--cutoff", type=float, default=2.0, help="seconds of the longest first run (default: 2)")
    add("--prepare", type=float, default=60.0, help="seconds to load and compile (default: 60)")
    return parser


if __name__ == "__main__":
    main()
