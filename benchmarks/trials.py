"""Where the time of a trial goes, and how many variants a minute are tried: the DG gradient with p = 3.

The phases of a few configurations are done one after the other in this process; then a real run is timed.  Processor time
tells what a phase costs on a machine that is busy with other things, where wall time tells little.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from statistics import median

import feinsum as fe
from feinsum.canonicalization import parse_key
from feinsum.compile.codegen import generate_program
from feinsum.compile.executable import build
from feinsum.compile.realize import transformed
from feinsum.registry import find_space, matching_spaces
from feinsum.tune.task import make_task
from feinsum.tune.trial import Built, Trial, prove_trial, time_trial

SIZES = {"E": 100_000}


def dg_gradient(p: int = 3) -> fe.BatchedEinsum:
    """``xre,rij,ej->xei`` for tetrahedra of degree p, in float64."""
    n = (p + 1) * (p + 2) * (p + 3) // 6
    return fe.einsum("xre,rij,ej->xei", fe.array("J", (3, 3, "E")), fe.array("D", (3, n, n)), fe.array("u", ("E", n)))


class Phases:
    """Wall and processor time of every phase, in seconds."""

    def __init__(self) -> None:
        self.spent: dict[str, list[tuple[float, float]]] = defaultdict(list)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        wall, processor = time.perf_counter(), time.process_time()
        yield
        self.spent[name].append((time.perf_counter() - wall, time.process_time() - processor))

    def table(self) -> str:
        lines = [f"{'phase':<12} {'wall (ms)':>10} {'processor (ms)':>15}   medians"]
        for name, spent in self.spent.items():
            wall, processor = (1e3 * median(times) for times in zip(*spent, strict=True))
            lines.append(f"{name:<12} {wall:10.1f} {processor:15.1f}")
        return "\n".join(lines)


def run_phases(e: fe.BatchedEinsum, device: fe.Device, count: int) -> Phases:
    """Do what workers do for `count` configurations, in this process."""
    task, phases = make_task(e, SIZES, device, 0), Phases()
    e = task.subject.canonical.einsum
    candidates = ((space, list(space.configurations(task.problem(space)))) for space in matching_spaces(e))
    space, configurations = next((space, found) for space, found in candidates if found)
    phases_of_first = Phases()  # which pays for data and references
    for configuration in random.Random(0).sample(configurations, min(3 * count, len(configurations))):
        if len(phases.spent.get("time", ())) == count:
            break
        with suppress(fe.FeinsumError), redirect_stdout(io.StringIO()):  # loopy prints what it cannot schedule
            run_trial(task.trial(space, configuration), device, phases if phases_of_first.spent else phases_of_first)
    return phases


def run_trial(trial: Trial, device: fe.Device, phase: Phases) -> None:
    """What workers do for one configuration."""
    e, space = parse_key(trial.key), find_space(trial.space)
    with phase("transform"):
        t_unit = transformed(e, e.sizes_from(trial.sizes), space, trial.configuration, device.profile)
    with phase("generate"):
        program = generate_program(t_unit)
    with phase("compile"):
        built = Built(program, build(device.context, program).binary)
    with phase("exchange"):
        built = Built.from_json(json.loads(json.dumps(built.to_json())))
    with phase("prove"):
        wrong = prove_trial(trial, built)
    if wrong is None:
        with phase("time"):
            time_trial(trial, seconds=0.15)


def run_tuner(e: fe.BatchedEinsum, device: fe.Device, seconds: float, workers: int | None) -> str:
    """Tune for so long and say how many trials a minute that makes, and whose processor time it took."""

    def spent(who: int) -> float:
        usage = resource.getrusage(who)
        return usage.ru_utime + usage.ru_stime

    before = spent(resource.RUSAGE_SELF), spent(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "records.sqlite"
        report = fe.autotune(e, device, store, SIZES, timeout=seconds, workers=workers, progress=False)
    ours = spent(resource.RUSAGE_SELF) - before[0]
    workers_s = spent(resource.RUSAGE_CHILDREN) - before[1]
    count = max(1, len(report.records))
    return (
        f"{count} variants in {report.seconds:.1f} s: {60 * count / report.seconds:.0f} a minute"
        f" ({', '.join(f'{n} {status}' for status, n in report.failures.items()) or 'no failures'})\n"
        f"processor time of a variant: {1e3 * workers_s / count:.0f} ms in workers,"
        f" {1e3 * ours / count:.1f} ms in the tuner ({ours / (ours + workers_s):.1%})"
    )


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks trials", description=__doc__)
    parser.add_argument("--device", help="cpu, gpu or a part of an id")
    parser.add_argument("--phases", type=int, default=8, metavar="N", help="configurations to take apart; 8")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the run; 60")
    parser.add_argument("--workers", type=int, help="processes that build")
    arguments = parser.parse_args()
    device, e = fe.device(arguments.device), dg_gradient()
    if arguments.phases:
        print(run_phases(e, device, arguments.phases).table(), flush=True)
    if arguments.seconds:
        print(run_tuner(e, device, arguments.seconds, arguments.workers))


if __name__ == "__main__":
    main()
