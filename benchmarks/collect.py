"""Times of configurations for the cost model: built while a machine is busy, timed together when it is quiet.

    python -m benchmarks collect build benchmarks/jobs/cost-model-cpu-rich.toml --into built
    python -m benchmarks collect time --from built --out rich.sqlite

Of every einsum of a job file some configurations of every space are built: its default, those that the cost model expects
to be quickest, and some near these by chance.  What is built already is not built again.  They are timed in turns, and of
each the least time is kept, as what else runs only adds to it.  Kernels are not proved here: tests prove spaces.

With many cores beside the device it is the quickest way to tune many einsums, too: with ``--best`` the quickest three of
each are timed again, as a tuning run does, and these are records once they have been proved::

    python -m benchmarks collect time --from built --out all.sqlite --best best.jsonl
    feinsum db prove best.jsonl proved.jsonl
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import feinsum as fe
from benchmarks import parser_of
from feinsum.candidates.diversity import spread_choices
from feinsum.candidates.predicted import top_predictions
from feinsum.canonicalization import parse_key
from feinsum.compile.executable import Executable, build_executable
from feinsum.registry import matching_spaces
from feinsum.space import Instance, TransformSpace
from feinsum.timing import sampler_of, time_executable
from feinsum.tune.jobs import read_jobs
from feinsum.tune.task import Task, make_task
from feinsum.tune.trial import CompiledTrial, Outcome, Trial, build_trial
from feinsum.validate import Rotation, Workload
from feinsum.validate.noise import noisy_sets

ROUNDS = 7
LATE, TWICE = 6.0, 2
"""What takes so many times as long as the best of its einsum in so many rounds is not timed again."""
AGAIN, AGAIN_S = 3, 0.15
"""How many of the quickest are timed again for a record, and for how many seconds each."""


def some_configurations(here: Instance, s: TransformSpace, each: int, seed: int) -> Iterator[Mapping[str, Any]]:
    """The default of a space, predictions of the cost model that differ from each other, and others that it looked at: so
    many at most."""
    found = top_predictions(here, [s], share=math.inf)
    with suppress(fe.TransformError):
        default = dict(s.default(here.problem(s)))
        ordered = sorted(found, key=lambda f: dict(f.configuration) != default)
        best = spread_choices(ordered, 1 + 3 * each // 4, lambda f: f.expected_s, lambda f: (s.name, f.configuration))
        rest = [f for f in ordered if f not in best]
        chosen = [*best, *random.Random(seed).sample(rest, min(len(rest), each - len(best)))]
        yield from (f.configuration for f in chosen)


def build_all(job: Path, into: Path, device: fe.Device, each: int, only: Sequence[str], seed: int) -> None:
    """Build configurations of the einsums of a job file; each is a file of `into`.

    :param only: the names of the spaces to build; by default all that match.
    :param seed: of the order in which it goes through the job file; several processes may work at one folder, and several
        jobs may be there.
    """
    into.mkdir(exist_ok=True)
    jobs = list(enumerate(read_jobs(job).jobs))
    random.Random(seed).shuffle(jobs)  # what there is time for is a fair sample
    for number, asked in jobs:
        task = make_task(asked.einsum, asked.sizes, device, seed=0)
        here = task.instance
        assert here is not None
        for s in (s for s in matching_spaces(here.einsum) if not only or s.name in only):
            for k, c in enumerate(some_configurations(here, s, each if s.rank else 2, number)):
                path = into / f"{job.stem}.{number:03}-{s.name}-{k}.json"
                if path.exists():
                    continue
                begin = time.monotonic()
                built = build_trial(task.trial(s, c))
                if isinstance(built, CompiledTrial):
                    path.write_text(json.dumps({"trial": task.trial(s, c).to_json(), **built.to_json()}), encoding="utf-8")
                print(f"{path.name} {time.monotonic() - begin:.1f} s", flush=True)


def time_all(begun: Path, out: Path, device: fe.Device, seconds: float, best: Path | None = None) -> None:
    """Time what is in a folder, an einsum after the other, and add records to a database.

    :param best: a file to which records of the quickest of each einsum are added.
    """
    end = time.monotonic() + seconds
    einsums = sorted({path.name.rsplit("-", 2)[0] for path in begun.glob("*.json")})
    with fe.Database(str(out)) as store:
        for name in einsums:
            if time.monotonic() > end:
                print(f"{len(einsums) - einsums.index(name)} einsums are left")
                break
            paths = sorted(begun.glob(f"{name}-*.json"))
            read = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
            trials = [Trial(**data["trial"]) for data in read]
            e = parse_key(trials[0].key)
            task = make_task(e, trials[0].sizes, device, seed=0)
            made = [build_executable(device.context, own.program, own.binary) for own in map(CompiledTrial.from_json, read)]
            workload = Workload(e, e.resolve(trials[0].sizes), device.queue)
            times_s = timed(workload, made, device)
            for trial, samples in zip(trials, times_s, strict=True):
                store.add(task.record(trial, Outcome("ok", samples_s=tuple(samples))))
            show(task, trials, times_s)
            if best is not None:
                first = sorted(range(len(made)), key=lambda k: min(times_s[k]))[:AGAIN]
                record = timed_again(task, workload, [(trials[k], made[k]) for k in first], device)
                with best.open("a", encoding="utf-8") as file:
                    file.write(record.to_json() + "\n")


def timed_again(task: Task, workload: Workload, some: list[tuple[Trial, Executable]], device: fe.Device) -> fe.TuningRecord:
    """The record of the quickest, timed as tuning runs do it: by events, with inputs that no cache holds."""
    rotation = Rotation.make(workload, device.profile)
    found = []
    for trial, executable in some:
        rotation.begin(executable)
        timing = time_executable(executable, device.queue, rotation, workload.parameters, seconds=AGAIN_S)
        found.append((median(timing.samples_s), trial, timing.samples_s))
    _, trial, samples_s = min(found, key=lambda one: one[0])
    return task.record(trial, Outcome("ok", samples_s=samples_s))


def timed(workload: Workload, made: list[Executable], device: fe.Device) -> list[list[float]]:
    """Samples of each, in seconds, with arrays in turns, so that no cache holds them, and on large pages as in calls."""
    e, most_bytes = workload.einsum, device.profile.global_memory_bytes // 4
    sets = cycle(noisy_sets(e, workload.lengths, device.queue, device.profile, most_bytes))
    found: list[list[float]] = [[] for _ in made]
    samplers = [_sampler(executable, sets, workload.parameters, device) for executable in made]
    for turn in range(ROUNDS):
        best = min((min(own) for own in found if own), default=math.inf)
        for sample, samples in zip(samplers, found, strict=True):
            if turn < TWICE or min(samples) <= LATE * best:
                samples.append(sample(1))
    return found


def _sampler(
    executable: Executable, sets: Iterator[Mapping[str, Any]], lengths: Mapping[str, Any], device: fe.Device
) -> Callable[[int], float]:
    """What takes the time of some runs, after one to warm up."""

    def run() -> list[Any]:
        return executable.enqueue(device.queue, {**next(sets), **executable.kept_scratch(device.queue, lengths)}, lengths)

    events = run()
    device.queue.finish()
    return sampler_of(device.queue, run, events)


def show(task: Task, trials: list[Trial], times_s: list[list[float]]) -> None:
    """Print the least time of every space, in milliseconds."""
    least: dict[str, float] = {}
    for trial, samples in zip(trials, times_s, strict=True):
        least[trial.space] = min(least.get(trial.space, math.inf), *samples)
    told = (f"{name} {1e3 * t:.3g}" for name, t in sorted(least.items(), key=lambda item: item[1]))
    print(task.subject.key, *told, flush=True)


def main() -> None:
    parser = parser_of(__doc__, "cpu")
    what = parser.add_subparsers(dest="what", required=True)
    building = what.add_parser("build", help="build configurations of the einsums of a job file")
    building.add_argument("job", type=Path)
    building.add_argument("--into", type=Path, required=True, help="a folder")
    building.add_argument("--each", type=int, default=5, help="configurations of a space (default: 5)")
    building.add_argument("--only", nargs="+", default=(), help="spaces (default: all that match)")
    building.add_argument("--seed", type=int, default=0, help="of the order of einsums (default: 0)")
    timing = what.add_parser("time", help="time what was built")
    timing.add_argument("--from", dest="begun", type=Path, required=True, help="the folder")
    timing.add_argument("--out", type=Path, required=True, help="a database")
    timing.add_argument("--best", type=Path, help="JSON Lines to which a record of the quickest of each einsum is added")
    timing.add_argument("--seconds", type=float, default=math.inf, help="begin no einsum after so long")
    arguments = parser.parse_args()
    device = fe.device(arguments.device)
    if arguments.what == "build":
        build_all(arguments.job, arguments.into, device, arguments.each, arguments.only, arguments.seed)
    else:
        time_all(arguments.begun, arguments.out, device, arguments.seconds, arguments.best)
