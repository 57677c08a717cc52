"""Cases of benchmarks/suite.json as a job file for ``feinsum tune``: ``python -m benchmarks job --side gpu > gpu.toml``.

The winners of the job, curated, are what ``generate`` goes by on that device.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from typing import Any

import feinsum as fe
from benchmarks import parser_of
from benchmarks.cases import Case, describe, long_sizes
from benchmarks.cases.lists import select


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--side", choices=["cpu", "gpu"], default="cpu", help="whose sizes (default: cpu)")
    parser.add_argument(
        "--cases", default="all", help="names of cases with commas between; all, short or seissol (default: all)"
    )
    parser.add_argument("--dtypes", default="float64,float32", help="(default: float64,float32)")
    parser.add_argument("--device", default="", help="see feinsum.device (default: that of the side)")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds for each einsum (default: 20)")
    parser.add_argument("--trials", type=int, default=0, help="of each einsum, instead of a time")
    parser.add_argument("--then", default="", help="what is made of each sum, 'v + out' for updates; none unless given")
    options = parser.parse_args()
    dtypes = options.dtypes.split(",")
    cases = [case for case in select(options.cases.split(",")) if set(case["dtypes"]) & set(dtypes)]
    print(f"# Made by: python -m benchmarks job {shlex.join(sys.argv[1:])}\n")
    print(f"devices = [{_text(options.device or options.side)}]")
    print(f"trials = {options.trials}" if options.trials else f"timeout = {options.timeout:g}")
    then = f"\nthen = {_text(options.then)}" if options.then else ""
    for case in cases:
        print("\n" + table(case, options.side, [name for name in dtypes if name in case["dtypes"]]) + then)


def table(case: Case, side: str, dtypes: Iterable[str]) -> str:
    """The ``[[einsum]]`` of a case, its mesh a long axis."""
    e = describe(case, side, "float64", long=True)
    lines = [f"[[einsum]]  # {case['name']}", f"subscripts = {_text(e.subscripts)}"]
    lines += [f"rows = {_text(_rows(e))}"]
    lines += ["shapes = {" + ", ".join(f"{a.name} = {_text(list(a.shape))}" for a in e.arrays) + "}"]
    lines += [f"dtypes = {_text(list(dtypes))}"]
    if sizes := long_sizes(case, side):
        lines += ["sizes = {" + ", ".join(f"{name} = [{length}]" for name, length in sizes.items()) + "}"]
    return "\n".join(lines)


def _rows(e: fe.BatchedEinsum) -> list[list[str]]:
    return [["*".join(array.name for array in entry) for entry in row] for row in e.args]


def _text(value: Any) -> str:
    """A value as TOML writes it, which for texts, whole numbers and lists of them is what JSON writes."""
    return json.dumps(value, ensure_ascii=False)
