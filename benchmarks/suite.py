"""feinsum beside its peers: every engine on the same inputs and cores, in one run.  Three commands, a list each.

    python -m benchmarks suite                                  # the short list on the CPU device, all peers installed
    python -m benchmarks suite --cases all --side gpu --device gpu --out h200.jsonl
    python -m benchmarks suite --cases sem_interp_p7 --peers numpy,jax --python /tmp/peers/bin/python

    python -m benchmarks wide --limit 2                         # untuned einsums: two of each class, on the CPU
    python -m benchmarks wide --class rich --tune 20            # each tuned for 20 s as well
    python -m benchmarks wide --cases tccg_0 dg_ --layout turned --out wide.jsonl
    python -m benchmarks wide --side gpu --minutes 9 --ahead 8  # what 9 minutes suffice for; again for the next ones
    python -m benchmarks wide --cases tccg_34 --ordered         # peers copy views into the order that is asked for

    python -m benchmarks seissol                                # seven einsums, orders 4 to 7, two types, on the CPU
    python -m benchmarks seissol --cases volume local --order 6 --dtypes float64 --peers numpy,torch

The suite measures all that is asked for; the other two leave out what the file of results has already.  Untuned is what
`generate` takes first where all records of the very einsum are hidden from it, those that come with feinsum among them.
Programs of SeisSol are plans of their einsums (:func:`feinsum.plan`), for arrays as numpy has them: raised, as one launch
for each instruction, and `generate` itself, they are called with device arrays in the same rounds, until results are there.
How engines are timed: :mod:`benchmarks.measure`.
"""

from __future__ import annotations

import argparse
import random
import tempfile

from benchmarks import parser_of
from benchmarks.cases import Case
from benchmarks.cases.lists import CLASSES, LAYOUTS, MEGABYTES, ORDERS, WORKLOADS, base, seissol_cases, select, wide_cases
from benchmarks.engines.process import EngineProcess
from benchmarks.measure import add_options, drive
from benchmarks.peers import peers_for
from benchmarks.report import LANGUAGE, ORDERED, TUNED
from benchmarks.rows import OURS, Row

SEISSOL_PEERS = {"cpu": "numpy,opt_einsum,torch,jax,tblis,onemkl,libxsmm", "gpu": "torch,torch_compile,jax,cupy,cutensor"}


def _beside(arguments: argparse.Namespace, **how: object) -> list[EngineProcess]:
    """The peers that are asked for, or all for the side."""
    names = arguments.peers.split(",") if arguments.peers else peers_for(arguments.side)
    return [EngineProcess(name, arguments.python, how=how) for name in names]


def suite() -> None:
    """Cases of suite.json, with the records that come with feinsum."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--cases", nargs="+", default=["short"], help="names of cases, 'short', 'all' or 'seissol' (default: short)"
    )
    add_options(parser, "results.jsonl", "by default all for the side", 1.0, 5, 3.0)
    arguments = parser.parse_args()
    dtypes = arguments.dtypes.split(",")
    wanted = [(case, dtype) for case in select(arguments.cases) for dtype in dtypes if dtype in case["dtypes"]]
    engines = [EngineProcess(OURS, how={"database": arguments.database}), *_beside(arguments)]
    drive("suite", wanted, engines, arguments, is_whole=lambda _: False)


def wide() -> None:
    """Untuned einsums."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--class", dest="classes", nargs="+", choices=CLASSES, default=CLASSES, help="(default: all)")
    add("--cases", nargs="+", default=(), help="names of cases, or what they begin with (default: all)")
    add("--layout", dest="layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS, help="(default: both)")
    add("--limit", type=int, help="so many cases of each class in each layout")
    add("--ordered", action="store_true", help="the results of peers lie in memory as their axes are asked for; no views")
    add("--tune", type=float, default=0.0, metavar="SECONDS", help="tune each for so long, too (default: do not)")
    add_options(parser, "wide.jsonl", "by default all for the side")
    arguments = parser.parse_args()

    def told(case: Case, row: Row) -> None:
        row |= {"layout": case["layout"], **({ORDERED: True} if arguments.ordered else {})}
        if TUNED in row["engines"]:
            row[TUNED] = row["engines"].pop(TUNED)

    with tempfile.TemporaryDirectory(prefix="feinsum-wide-") as stores:
        untuned = {"database": f"{stores}/untuned.sqlite", "hidden": True}
        tuned = {"database": f"{stores}/tuned.sqlite", "tune_s": arguments.tune}
        engines = [EngineProcess(OURS, how=untuned)]
        engines += [EngineProcess(TUNED, engine=OURS, how=tuned)] if arguments.tune else []
        engines += _beside(arguments, ordered=arguments.ordered)
        arguments.prepare += arguments.tune
        wanted = [(case, dtype) for case in _sample(arguments) for dtype in arguments.dtypes.split(",")]
        drive("wide", wanted, engines, arguments, told, untuned, lambda row: TUNED in row or not arguments.tune)


def _sample(arguments: argparse.Namespace) -> list[Case]:
    """The cases; where the time may not suffice for all a fair sample, both layouts and types of a case together."""
    cases = wide_cases(arguments.classes, arguments.layouts, arguments.cases, arguments.limit)
    if not arguments.minutes:
        return cases
    bases = sorted({base(case["name"]) for case in cases})
    random.Random(0).shuffle(bases)
    return sorted(cases, key=lambda case: bases.index(base(case["name"])))


def seissol() -> None:
    """Kernels of SeisSol as programs of the immediate language, too."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--cases", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS), help="(default: all)")
    add("--order", dest="orders", nargs="+", type=int, default=list(ORDERS), help="(default: 4 5 6 7), in turn")
    add("--megabytes", type=float, help=f"of arrays in float64 (default: {MEGABYTES['cpu']}, on GPUs {MEGABYTES['gpu']})")
    add_options(parser, "seissol.jsonl", f"default: {SEISSOL_PEERS['cpu']}, on GPUs {SEISSOL_PEERS['gpu']}")
    arguments = parser.parse_args()

    def told(case: Case, row: Row) -> None:
        row |= {"workload": case["workload"], "order": case["order"], LANGUAGE: row["engines"].pop(LANGUAGE)}

    how = {"database": arguments.database}
    arguments.peers = arguments.peers or SEISSOL_PEERS[arguments.side]
    engines = [EngineProcess(name, how=how) for name in (OURS, LANGUAGE)] + _beside(arguments)
    megabytes = MEGABYTES | ({arguments.side: arguments.megabytes} if arguments.megabytes else {})
    cases = [case for order in arguments.orders for case in seissol_cases(arguments.cases, [order], megabytes)]
    wanted = [(case, dtype) for dtype in arguments.dtypes.split(",") for case in cases]
    drive("seissol", wanted, engines, arguments, told, {**how, "programs": True})
