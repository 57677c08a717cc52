"""The wide list: einsums that nobody tuned, beside the peers, in one run.

    python -m benchmarks wide --limit 2                         # two of each class, on the CPU, untuned
    python -m benchmarks wide --class rich --tune 20            # each tuned for 20 s as well
    python -m benchmarks wide --case tccg_0 dg_ --layout turned --out wide.jsonl
    python -m benchmarks wide --side gpu --minutes 9 --ahead 8  # what 9 minutes suffice for; again for the next ones
    python -m benchmarks wide --case tccg_34 --ordered          # peers copy views into the order that is asked for
    python -m benchmarks wide --read wide.jsonl                 # the tables of what was measured

Untuned is what `generate` takes first where all records of the very einsum are hidden from it, those that come with
feinsum among them.  How engines are timed: python -m benchmarks suite --help.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from functools import partial

import feinsum as fe
from benchmarks.cases import Case
from benchmarks.driver import Command, add_options, drive, present
from benchmarks.engines.process import EngineProcess
from benchmarks.peers import peers_for
from benchmarks.results import OURS, Row
from benchmarks.wide.cases import CLASSES, DTYPES, LAYOUTS, base, wide_cases
from benchmarks.wide.table import ORDERED, TUNED, print_row, print_tables, write_page


def main() -> None:
    present(_parser().parse_args(), run, print_tables, write_page)


def run(arguments: argparse.Namespace) -> list[Row]:
    """Measure what is asked for; the rows of the file of results."""
    device = fe.device(arguments.device or arguments.side)
    with tempfile.TemporaryDirectory(prefix="feinsum-wide-") as stores:
        untuned = {"database": f"{stores}/untuned.sqlite", "hidden": True}
        command = Command(
            _cases(arguments),
            list(_engines(arguments, stores, untuned)),
            partial(_told, ordered=arguments.ordered),
            print_row,
            ahead=untuned,
            is_whole=lambda row: TUNED in row or not arguments.tune,
            prepare_s=arguments.tune,
        )
        return drive(command, device, arguments)


def _told(case: Case, row: Row, *, ordered: bool) -> None:
    row["layout"] = case["layout"]
    if ordered:
        row[ORDERED] = True
    if TUNED in row["engines"]:
        row[TUNED] = row["engines"].pop(TUNED)


def _cases(arguments: argparse.Namespace) -> list[tuple[Case, str]]:
    cases = wide_cases(arguments.classes, arguments.layouts, arguments.cases, arguments.limit)
    if arguments.minutes or arguments.share:  # a fair sample, both layouts and types of a case together
        bases = sorted({base(case["name"]) for case in cases})
        random.Random(0).shuffle(bases)
        number, shares = arguments.share or (1, 1)
        bases = bases[number - 1 :: shares]
        cases = sorted((case for case in cases if base(case["name"]) in bases), key=lambda c: bases.index(base(c["name"])))
    return [(case, dtype) for case in cases for dtype in arguments.dtypes.split(",")]


def _engines(arguments: argparse.Namespace, stores: str, untuned: dict[str, object]) -> Iterator[EngineProcess]:
    yield EngineProcess(OURS, how=untuned)
    if arguments.tune:
        yield EngineProcess(TUNED, engine=OURS, how={"database": f"{stores}/tuned.sqlite", "tune_s": arguments.tune})
    asked = arguments.peers.split(",") if arguments.peers else peers_for(arguments.side)
    for name in asked:
        yield EngineProcess(name, arguments.python, how={"ordered": arguments.ordered})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--class", dest="classes", nargs="+", choices=CLASSES, default=CLASSES, help="(default: all)")
    add("--case", dest="cases", nargs="+", default=(), help="names of cases, or what they begin with (default: all)")
    add("--layout", dest="layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS, help="(default: both)")
    add("--limit", type=int, help="so many cases of each class in each layout")
    add("--share", type=_share, help="as 1/2: the first of two halves, for two machines or GPUs side by side")
    add("--ordered", action="store_true", help="the results of peers lie in memory as their axes are asked for; no views")
    add("--dtypes", default=",".join(DTYPES), help="separated by commas")
    add("--tune", type=float, default=0.0, metavar="SECONDS", help="tune each for so long, too (default: do not)")
    add_options(parser, "wide.jsonl", "by default all for the side")
    return parser


def _share(text: str) -> tuple[int, int]:
    number, shares = (int(part) for part in text.split("/"))
    if not 1 <= number <= shares:
        raise ValueError(text)
    return number, shares


if __name__ == "__main__":
    main()
