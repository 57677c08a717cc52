"""feinsum beside its peers: every engine on the same inputs and cores, in one run.

    python -m benchmarks suite                                  # the short list on the CPU device, all peers installed
    python -m benchmarks suite --cases all --side gpu --device gpu --out h200.jsonl
    python -m benchmarks suite --cases sem_interp_p7 --peers numpy,jax --python /tmp/peers/bin/python

Each engine is a process of its own.  Engines take turns, a few times round, and before each round the copy bandwidth and
the rate of multiply-add are measured, as they drift: roofline = max(operations / rate, least bytes / bandwidth).  Times
are medians over all turns.  An engine whose first evaluation takes longer than the cut-off is left out of the case.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import feinsum as fe
from benchmarks.cases import Case, describe, long_sizes
from benchmarks.engines.problem import write_problem
from benchmarks.engines.process import CutOffError, EngineProcess, FailedError
from benchmarks.peers import PEERS, peers_for
from benchmarks.report import write_report
from benchmarks.results import OURS, Row, read_results, summary
from benchmarks.selection import select
from benchmarks.table import print_results, print_row

_REST_S = 0.01
"""Before each turn, for the threads of the engine before it to go to sleep."""
_START_S = 120.0
_MIN_TURN_S = 0.01


@dataclass(frozen=True)
class Options:
    """How to measure.

    :ivar seconds: of samples for each engine and case.
    :ivar rounds: turns of each engine.
    :ivar cutoff_s: the longest first evaluation.
    :ivar prepare_s: the longest time to load and compile.
    """

    device: fe.Device
    side: str
    seconds: float
    rounds: int
    cutoff_s: float
    prepare_s: float


def main() -> None:
    arguments = _parser().parse_args()
    cases = select(arguments.cases)
    device = fe.device(arguments.device or arguments.side)
    options = Options(
        device,
        arguments.side,
        arguments.seconds,
        arguments.rounds,
        arguments.cutoff,
        arguments.prepare,
    )
    with contextlib.ExitStack() as stack, open(arguments.out, "a", encoding="utf-8") as out:
        ours = stack.enter_context(EngineProcess(OURS, how={"database": arguments.database}))
        names = arguments.peers.split(",") if arguments.peers else peers_for(options.side)
        engines = [ours, *(stack.enter_context(EngineProcess(name, arguments.python)) for name in names)]
        versions, engines = installed(engines)
        print(f"{device}, {len(cases)} cases beside {', '.join(e.name for e in engines[1:]) or 'nothing'}", flush=True)
        rows = []
        for case in cases:
            for dtype in (d for d in arguments.dtypes.split(",") if d in case["dtypes"]):
                row = {**measure(case, dtype, engines, options), "machine": machine(device), "versions": versions}
                out.write(json.dumps(row) + "\n")
                out.flush()
                print_row(row)
                rows.append(row)
    print_results(rows)
    if arguments.report:
        write_report(read_results(arguments.out), arguments.report)


def measure(
    case: Case,
    dtype: str,
    engines: list[EngineProcess],
    options: Options,
    written: str | None = None,
    alone: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Row:
    """The row of a case in one element type; see :mod:`benchmarks.results`.

    :param written: where its problem is, if it was written before.
    :param alone: what stops all else that uses the device, for as long as engines are timed.
    """
    e, sizes = describe(case, options.side, dtype, long=True), long_sizes(case, options.side)
    with tempfile.TemporaryDirectory(prefix="feinsum-benchmark-") as own:
        directory = written or own
        if written is None:
            write_problem(directory, e, sizes, side=options.side, device=options.device)
        told = _begin(engines, directory, options)
        running = [engine for engine in engines if told[engine.name]["status"] == "ok"]
        with alone():
            turns, peaks = _take_turns(engines[0], running, told, options)
    for name, taken in turns.items():
        if told[name]["status"] == "ok":
            told[name] |= summary(taken)
    counts = case[options.side]
    flops, nbytes = int(counts["flops"]["pairwise_shared"]), counts["min_bytes"][dtype]
    return {
        "case": case["name"],
        "family": case["family"],
        "einsum": case["einsum"],
        "outputs": case["n_outputs"],
        "dtype": dtype,
        "side": options.side,
        "sizes": counts["sizes"],
        "flops": flops,
        "bytes": nbytes,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load": os.getloadavg()[0],
        "peaks": peaks,
        **_rooflines(peaks, flops, nbytes, dtype),
        "engines": told,
    }


def _begin(engines: list[EngineProcess], directory: str, options: Options) -> dict[str, dict[str, Any]]:
    """Load a problem, evaluate it once, and check the result, in every engine.

    Nothing is timed but the first evaluation, so all load at once, and check at once, where there is a core for each.
    """

    def load(engine: EngineProcess) -> dict[str, Any]:
        return engine.ask(options.prepare_s, "load", directory=directory, **engine.how)

    def check(engine: EngineProcess) -> dict[str, Any]:
        return engine.ask(options.prepare_s, "check")

    def first(engine: EngineProcess) -> dict[str, Any]:
        started = time.perf_counter()
        # feinsum is not let off: what it does is what is asked about.
        engine.ask(options.prepare_s if engine.how else options.cutoff_s, "first")
        return {"first_s": round(time.perf_counter() - started, 4)}

    told: dict[str, dict[str, Any]] = {engine.name: {"status": "ok"} for engine in engines}
    at_once = len(engines) if len(os.sched_getaffinity(0)) > len(engines) else 1
    with ThreadPoolExecutor(at_once) as pool:
        for ask, run in ((load, pool.map), (first, map), (check, pool.map)):
            left = [engine for engine in engines if told[engine.name]["status"] == "ok"]
            for engine, answer in zip(left, run(partial(_answer, ask), left), strict=True):
                told[engine.name] |= answer
    for own in told.values():
        if own["status"] == "ok" and own["error_of_bound"] > 1:
            own |= {"status": "wrong", "message": f"{own['error_of_bound']:.3g} times the error of rounding"}
    return told


def _answer(ask: Callable[[EngineProcess], dict[str, Any]], engine: EngineProcess) -> dict[str, Any]:
    """What an engine answers, or how it failed."""
    try:
        return ask(engine)
    except CutOffError as error:
        return {"status": "slow", "message": str(error)}
    except FailedError as error:
        return {"status": "failed", "message": str(error)}


def _take_turns(
    ours: EngineProcess, running: list[EngineProcess], told: dict[str, dict[str, Any]], options: Options
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, float]]:
    """The turns of each engine, and the peaks of the meantime; an engine that fails on the way is told so."""
    turns: dict[str, list[dict[str, Any]]] = {engine.name: [] for engine in running}
    peaks = []
    for k in range(options.rounds):
        peaks.append(_peaks(ours, options))
        first = k % max(1, len(running))
        for engine in running[first:] + running[:first]:
            if told[engine.name]["status"] != "ok":
                continue
            time.sleep(_REST_S)
            try:
                limit = 5 * options.prepare_s + options.seconds
                turns[engine.name].append(
                    engine.ask(limit, "turn", seconds=max(_MIN_TURN_S, options.seconds / options.rounds))
                )
            except (CutOffError, FailedError) as error:
                told[engine.name] = {"status": "failed", "message": str(error)}
    peaks.append(_peaks(ours, options))
    return turns, _together(peaks)


def _together(peaks: list[dict[str, float]]) -> dict[str, float]:
    """Of bandwidths, which drift, the median; of rates, which only other programs lower, the highest."""
    return {name: float(f"{(max if 'flops' in name else median)(p[name] for p in peaks):.5g}") for name in peaks[0]}


def _peaks(ours: EngineProcess, options: Options) -> dict[str, float]:
    """By the process of ours, which is started again if the case has killed it."""
    try:
        return ours.ask(options.prepare_s, "peaks", device=options.device.id)
    except (CutOffError, FailedError) as error:
        sys.exit(f"the peaks of {options.device} cannot be measured: {error}")


def _rooflines(peaks: dict[str, float], flops: int, nbytes: int, dtype: str) -> dict[str, float]:
    """The least time by these peaks; ``vector_roofline_s`` leaves out the matrix units, where there are some."""
    bits = 8 * fe.array("x", 1, dtype).dtype.itemsize
    vector, memory_s = peaks[f"fp{bits}_flops_per_s"], nbytes / peaks["copy_bytes_per_s"]
    matrix = peaks.get(f"fp{bits}_matrix_flops_per_s", 0.0)
    rooflines = {"roofline_s": max(flops / max(vector, matrix), memory_s)}
    return rooflines | ({"vector_roofline_s": max(flops / vector, memory_s)} if matrix else {})


def installed(engines: list[EngineProcess]) -> tuple[dict[str, str], list[EngineProcess]]:
    """The versions of all packages and of the BLAS of each engine, and the engines that are installed."""
    versions: dict[str, str] = {}
    found = []
    for engine in engines:
        try:
            told = engine.ask(_START_S, "hello")
            versions |= told["versions"] | {f"BLAS of {engine.name}:": x for x in [", ".join(told["libraries"])] if x}
            found.append(engine)
        except (CutOffError, FailedError) as error:
            if engine.name == OURS:
                sys.exit(f"feinsum does not start: {error}")
            print(f"{engine.name} is left out: {error}", flush=True)
            engine.close()
    return versions, found


def machine(device: fe.Device) -> dict[str, Any]:
    """What was measured on, as plain data."""
    profile = device.profile
    return {
        "device": profile.id,
        "name": profile.name,
        "driver": profile.driver,
        "platform": profile.platform,
        "processor": next(_processor(), platform.processor()),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _processor() -> Iterator[str]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                yield line.partition(":")[2].strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cases", nargs="+", default=["short"], help="names of cases, 'short', 'all' or 'seissol' (default: short)"
    )
    parser.add_argument("--dtypes", default="float64,float32", help="separated by commas")
    parser.add_argument("--side", choices=("cpu", "gpu"), default="cpu", help="whose sizes (default: cpu)")
    parser.add_argument("--device", help="see feinsum.device; by default the side")
    parser.add_argument("--peers", help=f"some of {','.join(PEERS)}; by default all for the side")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers (default: this one)")
    parser.add_argument("--database", help="a store of records besides those that come with feinsum")
    parser.add_argument("--out", default="results.jsonl", help="results are appended here (default: results.jsonl)")
    parser.add_argument("--report", metavar="FILE.rst", help="write all results of the file of --out as a page")
    parser.add_argument("--seconds", type=float, default=1.0, help="of samples for each engine and case (default: 1)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each engine (default: 5)")
    parser.add_argument("--cutoff", type=float, default=3.0, help="seconds of the longest first run (default: 3)")
    parser.add_argument("--prepare", type=float, default=120.0, help="seconds to load and compile (default: 120)")
    return parser


if __name__ == "__main__":
    main()
