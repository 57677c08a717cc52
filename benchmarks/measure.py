"""How cases are measured: beside engines in processes of their own, or as ways that race in one process.

Engines take turns, a few times round, and before each round the copy bandwidth and the rate of multiply-add are measured,
as they drift: roofline = max(operations / rate, least bytes / bandwidth).  Times are medians over all turns.  An engine
whose first evaluation takes longer than the cut-off is left out of the case.

Ways are timed in turns by :func:`feinsum.timing.races.run_race`, so that ratios are of times of the same round.

Every row is written to the file of results as soon as it is there.
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
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np

import feinsum as fe
from benchmarks import parser_of
from benchmarks.ahead import Ahead
from benchmarks.cases import Case, describe, long_sizes
from benchmarks.engines.problem import Values, write_problem
from benchmarks.engines.process import CutOffError, EngineProcess, FailedError
from benchmarks.peers import PEERS, installed_here, peer_versions
from benchmarks.peers.base import Work
from benchmarks.report import print_row, show
from benchmarks.rows import OURS, Row, read_rows, summary
from feinsum.devices.host import processor
from feinsum.timing.races import Race, run_race

_REST_S = 0.01
"""Before each turn, for the threads of the engine before it to go to sleep."""
_START_S = 120.0
_MIN_TURN_S = 0.01
_SAMPLE_S = 2e-3
"""Calls that take less are repeated for so long in one sample."""
_LATE_S = 5.0
"""Peers of which a run takes longer are not raced: there would be one round and no more."""

Way = Callable[[], object]
Sampler = Callable[[], float]


def stamp(command: str, device: fe.Device, versions: Mapping[str, str], found: Mapping[str, Any]) -> Row:
    """A row with what all rows have, see :mod:`benchmarks.rows`."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    about = {"machine": machine(device), "versions": dict(versions)}
    return {"command": command, **found, "date": date, "load": round(os.getloadavg()[0], 2), **about}


def keep(out: str | None, row: Row) -> None:
    """Append a row to a file, if there is one."""
    if out:
        with Path(out).expanduser().open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def machine(device: fe.Device) -> dict[str, Any]:
    """What was measured on, as plain data."""
    profile = device.profile
    return {
        "device": profile.id,
        "name": profile.name,
        "driver": profile.driver,
        "platform": profile.platform,
        "processor": processor().brand or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def sampler(run: Way, finish: Way = lambda: None) -> Sampler:
    """What returns the seconds of a run: of several in a row, where one takes less than :data:`_SAMPLE_S`."""
    run()
    finish()
    first = sample_of(run, finish, 1)
    return partial(sample_of, run, finish, max(1, min(100, int(_SAMPLE_S / max(first, 1e-6)))))


def sample_of(run: Way, finish: Way, runs: int) -> float:
    """Seconds of each of some runs in a row, until the last is done."""
    begin = time.perf_counter()
    for _ in range(runs):
        run()
    finish()
    return (time.perf_counter() - begin) / runs


def alternating(samplers: Mapping[str, Sampler], rounds: int, seconds: float = float("inf")) -> dict[str, list[float]]:
    """Samples of each, one a round for so many rounds, but for a first one that does not count."""
    race = take_rounds(samplers, seconds, rounds + 1)
    return {name: [r[name] for r in race.rounds[1:] or race.rounds] for name in race.names}


def take_rounds(samplers: Mapping[str, Sampler], seconds: float, rounds: int = 64) -> Race:
    """A race in which no way drops out: which is the fastest is not the question."""
    return run_race(samplers, seconds=seconds, looks=(rounds,))


class Comparison:
    """A command that races ways in one process; a subclass says which, and its module's docstring is the help.

    :cvar peers: the names of peers by the kind of device.
    :cvar more: options besides those of every comparison, as ``add_argument`` takes them.
    """

    command: ClassVar[str]
    peers: ClassVar[Mapping[str, Sequence[str]]] = {}
    more: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, device: fe.Device, options: argparse.Namespace) -> None:
        self.device, self.options = device, options
        self.names = self.peers.get(device.profile.kind, ())

    def cases(self) -> Iterable[Any]:
        """The cases for this device; each has a ``name``."""
        raise NotImplementedError

    def samplers(self, case: Any) -> Mapping[str, Sampler]:
        """The functions that time each way of a case once."""
        raise NotImplementedError

    def told(self, case: Any, race: Race, seconds: Mapping[str, float]) -> dict[str, Any]:
        """``ratios``, and what else a row has, from a race and the seconds of each way."""
        raise NotImplementedError

    def timed(self, run: Way) -> Sampler:
        """The function that times a way of feinsum's."""
        return sampler(run, self.device.queue.finish)

    def beside(
        self, work: Work, is_right: Callable[[Values], bool] = lambda _: True, without: str = ""
    ) -> dict[str, Sampler]:
        """The functions that time the ways of installed peers; ways that fail or take long are left out with a reason.

        :param without: a peer that cannot do it.

        :raises ValueError: if the results of one are wrong.
        """
        found = {}
        for name, peer in installed_here(self.names):
            if name == without or not peer.has_device(self.device.profile.kind):
                continue
            for offer in peer.offers(name, work, self.device.profile.kind):
                try:
                    if not is_right(offer.fetch()):
                        raise ValueError(f"the results of {offer.name} are wrong")
                    if (first_s := sample_of(offer.run, offer.wait, 1)) > _LATE_S:
                        print(f"{offer.name} is left out: one run takes {first_s:.0f} s", flush=True)
                        continue
                except (RuntimeError, AttributeError) as error:  # as where torch.compile finds no compiler
                    print(f"{offer.name} is left out: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
                    continue
                found[offer.name] = sampler(offer.run, offer.wait)
        return found

    @classmethod
    def main(cls) -> None:
        """Race all cases that are asked for, and show the results."""
        parser = parser_of(sys.modules[cls.__module__].__doc__, "cpu")
        add = parser.add_argument
        for name, how in cls.more.items():
            add(f"--{name}", **how)
        add("--seconds", type=float, default=5.0, help="for each case (default: 5)")
        add("--only", default="", help="cases whose name has one of these texts in it, with commas between")
        add("--out", help="a file to which a row is added for each case")
        options = parser.parse_args()
        comparison = cls(fe.device(options.device), options)
        versions, rows = peer_versions(comparison.names), []
        warnings.simplefilter("ignore")  # of libraries, at every case
        for case in comparison.cases():
            if not any(text in case.name for text in options.only.split(",")):
                continue
            race = take_rounds(comparison.samplers(case), options.seconds)
            seconds = {name: float(np.median([r[name] for r in race.rounds if name in r])) for name in race.names}
            found = {"case": case.name, "seconds": seconds, "rounds": len(race.rounds)}
            rows.append(stamp(cls.command, comparison.device, versions, found | comparison.told(case, race, seconds)))
            keep(options.out, rows[-1])
            print(f"{case.name}: " + ", ".join(f"{k} {v * 1e3:.3f} ms" for k, v in seconds.items()), flush=True)
        show(rows)


def add_options(
    parser: argparse.ArgumentParser, out: str, peers: str, seconds: float = 0.5, rounds: int = 3, cutoff: float = 2.0
) -> None:
    """The options of every command that measures beside engines, with some of their defaults.

    :param out: the name of the file of results.
    :param peers: which peers there are by default, in words.
    """
    add = parser.add_argument
    add("--side", choices=("cpu", "gpu"), default="cpu", help="whose sizes (default: cpu)")
    add("--device", help="see feinsum.device; by default the side")
    add("--dtypes", default="float64,float32", help="separated by commas")
    add("--peers", help=f"some of {','.join(PEERS)} ({peers})")
    add("--python", default=sys.executable, help="the interpreter that has the peers (default: this one)")
    add("--database", help="a store of records besides those that come with feinsum")
    add("--minutes", type=float, help="begin no case after so long")
    add("--ahead", type=int, default=0, help="processes that draw inputs and generate kernels ahead; not beside a CPU's")
    add("--out", default=out, help=f"results are appended here (default: {out})")
    add("--report", metavar="FILE.rst", help="write all results of the file of --out as a page")
    add("--seconds", type=float, default=seconds, help=f"of samples for each engine and case (default: {seconds:g})")
    add("--rounds", type=int, default=rounds, help=f"turns of each engine (default: {rounds})")
    add("--cutoff", type=float, default=cutoff, help=f"seconds of the longest first run of a peer (default: {cutoff:g})")
    add("--prepare", type=float, default=120.0, help="seconds to load and compile (default: 120)")


def drive(
    name: str,
    cases: Sequence[tuple[Case, str]],
    engines: Sequence[EngineProcess],
    arguments: argparse.Namespace,
    told: Callable[[Case, Row], object] = lambda *_: None,
    ahead: Mapping[str, Any] | None = None,
    is_whole: Callable[[Row], bool] = lambda _: True,
) -> None:
    """Measure the cases that the file of results lacks, with all engines, and show its rows.

    :param cases: the cases in the order in which they are measured.
    :param engines: the first is feinsum, which tells the peaks of the device.
    :param arguments: those of :func:`add_options`.
    :param told: takes a case and a row, and adds the fields of this command to the row.
    :param ahead: the keywords that kernels are prepared with, see :class:`benchmarks.ahead.Ahead`.
    :param is_whole: tells whether a row of the file is complete, so that it is not measured again.
    """
    device = fe.device(arguments.device or arguments.side)
    done = _done(arguments, device, is_whole)
    todo = [(case, dtype) for case, dtype in cases if (case["name"], dtype) not in done]
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    with contextlib.ExitStack() as stack:
        versions, installed = _installed([stack.enter_context(engine) for engine in engines])
        names = ", ".join(engine.name for engine in installed[1:])
        print(f"{device}, {len(todo)} results beside {names or 'nothing'}; {len(done)} are there already", flush=True)
        prepared = stack.enter_context(Ahead(todo, arguments.side, device.id, ahead or {}, arguments.ahead))
        for number, (case, dtype) in enumerate(todo):
            if time.monotonic() > end:
                print(f"{len(todo) - number} are left; the same command goes on with them", flush=True)
                break
            with prepared.take(number) as directory:
                found = measure(case, dtype, installed, device, arguments, directory, prepared.paused)
            row = stamp(name, device, versions, found)
            told(case, row)
            keep(arguments.out, row)
            print_row(row)
    if Path(arguments.out).exists():
        show(read_rows(arguments.out), arguments.report)


def _done(arguments: argparse.Namespace, device: fe.Device, is_whole: Callable[[Row], bool]) -> set[tuple[str, str]]:
    """The cases and types of which the file of results has those of this device."""
    there = read_rows(arguments.out) if Path(arguments.out).exists() else []
    own = (arguments.side, device.profile.id)
    return {
        (row["case"], row["dtype"]) for row in there if (row["side"], row["machine"]["device"]) == own and is_whole(row)
    }


def _installed(engines: Sequence[EngineProcess]) -> tuple[dict[str, str], list[EngineProcess]]:
    """The versions of all packages and of the BLAS of each engine, and the engines that are installed.

    All are imported at once, each in a process of its own.
    """

    def hello(engine: EngineProcess) -> dict[str, Any]:
        try:
            return engine.ask(_START_S, "hello")
        except (CutOffError, FailedError) as error:
            return {"error": str(error)}

    versions: dict[str, str] = {}
    found = []
    with ThreadPoolExecutor(len(engines)) as pool:
        answers = list(pool.map(hello, engines))
    for engine, told in zip(engines, answers, strict=True):
        if "error" not in told:
            blas = ", ".join(told["libraries"])
            versions |= told["versions"] | ({f"BLAS of {engine.name}:": blas} if blas else {})
            found.append(engine)
        elif engine.name == OURS:
            sys.exit(f"feinsum does not start: {told['error']}")
        else:
            print(f"{engine.name} is left out: {told['error']}", flush=True)
            engine.close()
    return versions, found


def measure(
    case: Case,
    dtype: str,
    engines: list[EngineProcess],
    device: fe.Device,
    options: argparse.Namespace,
    written: str | None = None,
    alone: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> dict[str, Any]:
    """What a case in one element type takes, see :mod:`benchmarks.rows`.

    :param options: those of :func:`add_options`.
    :param written: where its problem is, if it was written before.
    :param alone: what stops all else that uses the device, for as long as engines are timed.
    """
    e, sizes = describe(case, options.side, dtype, long=True), long_sizes(case, options.side)
    with tempfile.TemporaryDirectory(prefix="feinsum-benchmark-") as own:
        directory = written or own
        if written is None:
            write_problem(directory, e, sizes, side=options.side, device=device)
        told = _begin(engines, directory, options)
        running = [engine for engine in engines if told[engine.name]["status"] == "ok"]
        with alone():
            turns, peaks = _alternate(partial(_peaks, engines[0], device, options), running, told, options)
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
        "peaks": peaks,
        **_rooflines(peaks, flops, nbytes, dtype),
        "engines": told,
    }


def _begin(engines: list[EngineProcess], directory: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Load a problem, evaluate it once, and check the result, in every engine.

    Nothing is timed but the first evaluation, so all load at once, and check at once, where there is a core for each.
    """

    def load(engine: EngineProcess) -> dict[str, Any]:
        return engine.ask(options.prepare, "load", directory=directory, **engine.how)

    def check(engine: EngineProcess) -> dict[str, Any]:
        return engine.ask(options.prepare, "check")

    def first(engine: EngineProcess) -> dict[str, Any]:
        started = time.perf_counter()
        # No cut-off for feinsum itself.
        engine.ask(options.cutoff if engine.name in PEERS else options.prepare, "first")
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


def _alternate(
    ask_peaks: Callable[[], dict[str, float]],
    running: list[EngineProcess],
    told: dict[str, dict[str, Any]],
    options: argparse.Namespace,
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, float]]:
    """The turns of each engine, and the peaks of the meantime; an engine that fails on the way is told so."""
    turns: dict[str, list[dict[str, Any]]] = {engine.name: [] for engine in running}
    peaks = []
    limit = 5 * options.prepare + options.seconds
    each = max(_MIN_TURN_S, options.seconds / options.rounds)
    for k in range(options.rounds):
        peaks.append(ask_peaks())
        first = k % max(1, len(running))
        for engine in running[first:] + running[:first]:
            if told[engine.name]["status"] != "ok":
                continue
            time.sleep(_REST_S)
            try:
                turns[engine.name].append(engine.ask(limit, "turn", seconds=each))
            except (CutOffError, FailedError) as error:
                told[engine.name] = {"status": "failed", "message": str(error)}
    peaks.append(ask_peaks())
    return turns, _together(peaks)


def _together(peaks: list[dict[str, float]]) -> dict[str, float]:
    """Of bandwidths, which drift, the median; of rates, which only other programs lower, the highest."""
    return {name: float(f"{(max if 'flops' in name else median)(p[name] for p in peaks):.5g}") for name in peaks[0]}


def _peaks(ours: EngineProcess, device: fe.Device, options: argparse.Namespace) -> dict[str, float]:
    """By the process of ours, which is started again if the case has killed it."""
    try:
        return ours.ask(options.prepare, "peaks", device=device.id)
    except (CutOffError, FailedError) as error:
        sys.exit(f"the peaks of {device} cannot be measured: {error}")


def _rooflines(peaks: dict[str, float], flops: int, nbytes: int, dtype: str) -> dict[str, float]:
    """The least time by these peaks; ``vector_roofline_s`` leaves out the matrix units, where there are some."""
    bits = 8 * np.dtype(dtype).itemsize
    vector, memory_s = peaks[f"fp{bits}_flops_per_s"], nbytes / peaks["copy_bytes_per_s"]
    matrix = peaks.get(f"fp{bits}_matrix_flops_per_s", 0.0)
    rooflines = {"roofline_s": max(flops / max(vector, matrix), memory_s)}
    return rooflines | ({"vector_roofline_s": max(flops / vector, memory_s)} if matrix else {})
