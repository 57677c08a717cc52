"""The run of a list of cases beside peers: what the file of results has is not measured again, each result is kept at once.

A command gives its cases, its engines and what it adds to a row; the options that all such commands have are here, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import feinsum as fe
from benchmarks.ahead import Ahead
from benchmarks.cases import Case
from benchmarks.engines.process import CutOffError, EngineProcess, FailedError
from benchmarks.peers import PEERS
from benchmarks.results import Row, read_results
from benchmarks.suite import Options, installed, machine, measure

_START_S = 120.0


@dataclass(frozen=True)
class Command:
    """What one command measures.

    :ivar cases: in the order in which they are measured.
    :ivar engines: the first is feinsum, which tells the peaks of the device.
    :ivar ahead: what kernels are prepared with, see :class:`benchmarks.ahead.Ahead`.
    :ivar told: takes a case and a row, and adds to the row what is not the same for all commands.
    :ivar is_whole: whether a row of the file has all that is asked for.
    :ivar prepare_s: seconds to load beyond those of the option.
    """

    cases: Sequence[tuple[Case, str]]
    engines: Sequence[EngineProcess]
    told: Callable[[Case, Row], object]
    print_row: Callable[[Row], None]
    ahead: Mapping[str, Any] = field(default_factory=dict)
    is_whole: Callable[[Row], bool] = lambda _: True
    prepare_s: float = 0.0


def add_options(parser: argparse.ArgumentParser, out: str, peers: str) -> None:
    """The options that are those of every such command.

    :param out: the name of the file of results.
    :param peers: which peers there are by default, in words.
    """
    add = parser.add_argument
    add("--side", choices=("cpu", "gpu"), default="cpu", help="whose sizes (default: cpu)")
    add("--device", help="see feinsum.device; by default the side")
    add("--peers", help=f"some of {','.join(PEERS)} ({peers})")
    add("--python", default=sys.executable, help="the interpreter that has the peers (default: this one)")
    add("--minutes", type=float, help="begin no case after so long")
    add("--ahead", type=int, default=0, help="processes that draw inputs and generate kernels ahead; not beside a CPU's")
    add("--out", default=out, help="results are appended here; what it has is not measured again")
    add("--read", nargs="+", metavar="FILE", help="only show the results of these files")
    add("--report", metavar="FILE.rst", help="write the tables as a page")
    add("--seconds", type=float, default=0.5, help="of samples for each engine and case (default: 0.5)")
    add("--rounds", type=int, default=3, help="turns of each engine (default: 3)")
    add("--cutoff", type=float, default=2.0, help="seconds of the longest first run of a peer (default: 2)")
    add("--prepare", type=float, default=60.0, help="seconds to load and compile (default: 60)")


def present(
    arguments: argparse.Namespace,
    run: Callable[[argparse.Namespace], list[Row]],
    print_tables: Callable[[Sequence[Row]], None],
    write_page: Callable[[Sequence[Row], str], None],
) -> None:
    """Read results or measure them, and show them."""
    rows = [row for path in arguments.read for row in read_results(path)] if arguments.read else run(arguments)
    print_tables(rows)
    if arguments.report:
        write_page(rows, arguments.report)


def drive(command: Command, device: fe.Device, arguments: argparse.Namespace) -> list[Row]:
    """Measure what is not in the file of results yet; all rows of that file."""
    options = Options(
        device,
        arguments.side,
        arguments.seconds,
        arguments.rounds,
        arguments.cutoff,
        arguments.prepare + command.prepare_s,
    )
    done = _done(arguments, device, command.is_whole)
    todo = [(case, dtype) for case, dtype in command.cases if (case["name"], dtype) not in done]
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(arguments.out, "a", encoding="utf-8"))
        versions, engines = _awake([stack.enter_context(engine) for engine in command.engines])
        names = ", ".join(engine.name for engine in engines[1:])
        print(f"{device}, {len(todo)} results beside {names or 'nothing'}; {len(done)} are there already", flush=True)
        prepared = stack.enter_context(Ahead(todo, options, command.ahead, arguments.ahead))
        for number, (case, dtype) in enumerate(todo):
            if time.monotonic() > end:
                print(f"{len(todo) - number} are left; the same command goes on with them", flush=True)
                break
            with prepared.take(number) as directory:
                row = measure(case, dtype, engines, options, directory, prepared.paused)
            row |= {"machine": machine(device), "versions": versions}
            command.told(case, row)
            out.write(json.dumps(row) + "\n")
            out.flush()
            command.print_row(row)
    return read_results(arguments.out)


def _awake(engines: Sequence[EngineProcess]) -> tuple[dict[str, str], list[EngineProcess]]:
    """The engines that are installed, after all of them were imported at once, each in a process of its own."""

    def wake(engine: EngineProcess) -> None:
        with contextlib.suppress(CutOffError, FailedError):  # which is told when it is asked next
            engine.ask(_START_S, "hello")

    with ThreadPoolExecutor(len(engines)) as pool:
        list(pool.map(wake, engines))
    return installed(list(engines))


def _done(arguments: argparse.Namespace, device: fe.Device, is_whole: Callable[[Row], bool]) -> set[tuple[str, str]]:
    """The cases and types of which the file of results has those of this device."""
    there: Iterable[Row] = read_results(arguments.out) if Path(arguments.out).exists() else []
    own = (arguments.side, device.profile.id)
    return {
        (row["case"], row["dtype"]) for row in there if (row["side"], row["machine"]["device"]) == own and is_whole(row)
    }
