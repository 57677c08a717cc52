"""Tuning: whatever a variant does is one record of what it did, and the tuner goes on and finds the good one."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from einsums import check_against_numpy, inputs
from plugins import install, installing
from profiles import CPU
from rogues import SOURCE

import feinsum as fe
from feinsum import registry
from feinsum.candidates.shortlist import CANDIDATES
from feinsum.devices import Device
from feinsum.tune import worker as worker_module
from feinsum.tune.report import TuningReport
from feinsum.tune.runner import TrialRunner
from feinsum.tune.task import make_task
from feinsum.tune.trial import CompiledTrial, Outcome
from feinsum.tune.tuning_search import TuningSearch
from feinsum.tune.worker import Worker, WorkerLostError

pytestmark = pytest.mark.slow

E = fe.einsum("abc,c->ba", fe.array("A", (40, "N", 30)), fe.array("x", 30))
CALM = fe.einsum("abc,c->ab", fe.array("A", (40, "N", 30)), fe.array("x", 30))
SIZES = {"N": 50}


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in which the package of rogues is installed, for this process and its workers."""
    directory = tmp_path_factory.mktemp("site")
    install(directory, "rogues_package", SOURCE)
    with installing(directory):
        yield directory


@pytest.fixture(scope="module")
def limit_s(cpu: Device) -> int:
    """Seconds in which a right variant is built however busy this machine is: eight times what a new worker takes."""
    good = make_task(E, SIZES, cpu).trial(registry.find_space("rogue"), {"way": "good"})
    worker = Worker("build", cpu.id)
    try:
        worker.start()
        begin = time.monotonic()
        assert isinstance(worker.build(good, 600), CompiledTrial)
        return math.ceil(8 * (time.monotonic() - begin))
    finally:
        worker.close()


@pytest.fixture(scope="module")
def report(cpu: Device, limit_s: int, tmp_path_factory: pytest.TempPathFactory) -> TuningReport:
    """A run over every way to go wrong, of which the right ones are among the first and the last."""
    store = str(tmp_path_factory.mktemp("rogues") / "records.sqlite")
    return fe.autotune(
        E,
        cpu,
        store,
        SIZES,
        "rogue",
        trials=len(OUTCOMES),
        sampler="exhaustive",
        trial_timeout=limit_s,
        workers=2,
        progress=False,
    )


OUTCOMES = {
    "slow": ("ok", ""),
    "good": ("ok", ""),
    "good again": ("ok", ""),
    "wrong": ("wrong", "instead of"),
    "nan": ("wrong", "not written or not finite, the first at [0, 0]"),
    "unwritten": ("wrong", "not written or not finite, the first at [0, 0]"),
    "out of bounds": ("wrong", "is written out of bounds at lengths"),
    "far out of bounds": ("wrong", "is written out of bounds at lengths"),
    "skips what is written": ("wrong", " instead of "),
    "skips what looks right": ("wrong", " instead of "),
    "overwrites an input": ("wrong", "is written though it is an input at lengths"),
    "reads past an input": ("wrong", "not written or not finite, the first at [0, 3]"),
    "refused": ("refused", "too small for this"),
    "a bug": ("compile-failed", "space 'rogue' fails on {'way': 'a bug'}: KeyError: 'missing'"),
    "no code": ("compile-failed", "loopy generates no code: "),
    "does not compile": ("compile-failed", "the OpenCL compiler refuses the kernel: "),
    "eats the memory": ("compile-failed", "MemoryError"),
    "eats the memory and hangs": ("compile-failed", "out of memory: no answer within LIMIT s, with "),
    "exits": ("compile-failed", "the process ended with code 3"),
    "leaves a child": ("compile-failed", "the process ended with code 3"),
    "leaves a daemon": ("compile-failed", "the process ended with code 3"),
    "is killed": ("compile-failed", "the process was killed by SIGKILL, twice; is the machine short of memory?"),
    "crashes": ("compile-failed", "the process was killed by SIGSEGV"),
    "hangs": ("timeout", "no answer within LIMIT s"),
    "crashes on the device": ("launch-failed", "the process was killed by SIG"),
    "hangs on the device": ("timeout", "no answer within LIMIT s"),
}


@pytest.mark.parametrize(("way", "expected"), OUTCOMES.items(), ids=OUTCOMES)
def test_whatever_goes_wrong_is_a_record(way: str, expected: tuple[str, str], report: TuningReport, limit_s: int) -> None:
    """Of its own status, with a message that says what happened; a right variant has samples."""
    (record,) = [record for record in report.records if record.configuration == {"way": way}]
    status, message = expected
    assert record.status == status, record.message
    assert message.replace("LIMIT", str(limit_s)) in record.message
    assert bool(record.samples_s) == (status == "ok")


def test_tuning_goes_on_and_finds_the_good_one(report: TuningReport, cpu: Device) -> None:
    """Every configuration is tried once, everything is stored, and `generate` takes the best from there."""
    assert len(report.records) == len(OUTCOMES)
    assert report.best is not None
    assert report.best.configuration["way"] in ("good", "good again")
    assert report.final is not None
    assert report.final.winner == report.best
    assert {record.configuration["way"] for record, _ in report.final.ranking} <= {"good", "good again", "slow"}
    assert report.failures == {"wrong": 9, "compile-failed": 10, "timeout": 2, "launch-failed": 1, "refused": 1}
    with fe.Database(report.database) as database:
        stored = {record.id for record in database.query(status=None)}
    assert stored == {record.id for record in (*report.records, report.best)}
    assert report.best in fe.query(E, cpu, report.database)
    kernel = fe.generate(E, cpu, report.database, SIZES)
    assert kernel.rung == "exact"
    assert kernel.configuration["way"] in ("good", "good again")
    arrays = inputs(E, {"N": 13})
    check_against_numpy(E, arrays, kernel(arrays))


def test_a_report_is_a_table_and_plain_data(report: TuningReport) -> None:
    """The quickest first, with rates, and how the others ended."""
    lines = str(report).splitlines()
    assert report.best is not None
    assert lines[1].endswith(f"rogue: way={report.best.configuration['way']}")
    assert "1 refused" in lines[-1]
    assert "26 configurations in" in lines[-1]
    assert report.database in lines[-1]
    data = json.loads(json.dumps(report.to_json()))
    assert data["best"] == report.best.to_dict()
    assert data["tried"] == 26
    assert data["failures"]["timeout"] == 2


def test_records_say_all_there_is_to_know(report: TuningReport, cpu: Device) -> None:
    """Key and sizes of the canonical einsum, device, driver, versions, counts."""
    record = report.best
    c = fe.canonicalize_einsum(E)
    assert record is not None
    assert record.einsum_key == c.key
    assert record.pattern_key == c.pattern.key
    assert sorted(record.sizes.values()) == sorted(record.pattern_sizes.values()) == [30, 40, 50]
    assert (record.device, record.architecture, record.driver) == (
        cpu.profile.id,
        cpu.profile.architecture,
        cpu.profile.driver,
    )
    assert (record.space, record.space_version) == ("rogue", 1)
    assert record.flops == E.flops(SIZES) == 2 * 40 * 50 * 30
    assert record.bytes == E.min_bytes(SIZES)
    assert {"feinsum", "loopy", "pyopencl", "numpy"} <= set(record.versions)


def test_every_run_draws_what_it_proves_with(cpu: Device) -> None:
    """Records keep the seed of it; one that is given holds for the search and for the proofs."""
    tasks = [make_task(CALM, SIZES, cpu) for _ in range(3)]
    assert len({task.proof_seed for task in tasks}) == 3
    assert {task.seed for task in tasks} == {0}
    given = make_task(CALM, SIZES, cpu, 7)
    assert (given.seed, given.proof_seed) == (7, 7)
    trial = tasks[0].trial(registry.find_space("leisurely"), {"number": 1, "pause": 0.2})
    record = tasks[0].record(trial, Outcome("wrong", "no"))
    assert trial.seed == record.seed == tasks[0].proof_seed


def test_a_second_run_tries_what_is_left(cpu: Device, store: str) -> None:
    """And none twice."""
    ways: list[int] = []
    for trials in (1, 2):
        run = fe.autotune(CALM, cpu, store, SIZES, "leisurely", trials=trials, workers=1, progress=False)
        assert len(run.records) == trials
        ways += [record.configuration["number"] for record in run.records]
    assert len(set(ways)) == 3


def test_an_exhausted_space_ends_the_run(report: TuningReport, cpu: Device) -> None:
    """With nothing to try the best known is reported."""
    again = fe.autotune(E, cpu, report.database, SIZES, "rogue", trials=100, progress=False)
    assert again.records == ()
    assert again.best is not None
    assert again.best.configuration["way"] in ("good", "good again")


def test_the_generic_space_stands_in_for_others(cpu: Device, store: str) -> None:
    """It gets some of the trials where another space matches, so that both are known: after the candidates of a selection,
    which may be four of one space, and one of each other space."""
    trials = CANDIDATES + len(registry.matching_spaces(CALM))
    run = fe.autotune(CALM, cpu, store, SIZES, trials=trials, workers=1, progress=False)
    spaces = [record.space for record in run.records]
    assert {"leisurely", "generic"} <= set(spaces)


def test_progress_is_reported_after_each_trial(cpu: Device, store: str) -> None:
    """How many of how many, the best so far, and the last; by then it is stored."""
    seen: list[tuple[int, int | None]] = []

    def watch(done: int, planned: int | None, best: fe.TuningRecord | None, last: fe.TuningRecord) -> None:
        seen.append((done, planned))
        assert best is not None
        with fe.Database(store) as database:
            assert last.id in {record.id for record in database.query(status=None)}

    fe.autotune(CALM, cpu, store, SIZES, "leisurely", trials=2, workers=1, progress=watch)
    assert seen == [(1, 2), (2, 2)]


def test_the_time_is_kept(cpu: Device, store: str) -> None:
    """No trial begins after it is up."""
    run = fe.autotune(CALM, cpu, store, SIZES, "leisurely", timeout=0, progress=False)
    assert run.records == ()
    assert run.best is None
    assert not run.interrupted


def test_a_user_may_interrupt(cpu: Device, store: str) -> None:
    """What is known by then is reported, and no process is left."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = workers_of(psutil.Process())
    run = fe.autotune(CALM, cpu, store, SIZES, "leisurely", trials=30, workers=2, progress=interrupt)
    assert run.interrupted
    assert len(run.records) == 1
    assert run.best is not None
    assert workers_of(psutil.Process()) == before


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children(recursive=True) if "feinsum.tune.worker" in " ".join(cmdline(child))]


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


TUNER = """
import sys
import feinsum as fe
A, x = fe.array("A", (40, "N", 30)), fe.array("x", 30)
fe.autotune(fe.einsum("abc,c->ab", A, x), sys.argv[2], sys.argv[1], {"N": 50}, "leisurely", sampler="exhaustive",
            workers=2, progress=lambda done, *_: print(done, flush=True))
"""


def test_a_killed_tuner_loses_the_trials_in_flight_alone(cpu: Device, store: str, tmp_path: Path) -> None:
    """What it said was done is stored, its workers are gone, and the next run goes on where it stopped."""
    with subprocess.Popen([sys.executable, "-c", TUNER, store, cpu.id], stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None
        done = [int(tuner.stdout.readline()) for _ in range(3)]
        workers = workers_of(psutil.Process(tuner.pid))
        assert workers
        os.kill(tuner.pid, signal.SIGKILL)
        done += [int(line) for line in tuner.stdout]
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
    with fe.Database(store) as database:
        before = database.query(status=None)
    assert done[-1] <= len(before) <= done[-1] + 1
    rest = fe.autotune(CALM, cpu, store, SIZES, "leisurely", sampler="exhaustive", trials=2, workers=1, progress=False)
    tried = [record.configuration["number"] for record in (*before, *rest.records)]
    options: dict[str, Any] = {"sampler": "exhaustive", "trials": len(tried), "workers": 1, "progress": False}
    undisturbed = fe.autotune(CALM, cpu, str(tmp_path / "undisturbed.sqlite"), SIZES, "leisurely", **options)
    assert len(tried) == len(before) + 2
    assert sorted(tried) == sorted(record.configuration["number"] for record in undisturbed.records)


@pytest.fixture
def worker(cpu: Device) -> Iterator[Worker]:
    """A worker that builds."""
    made = Worker("build", cpu.id)
    yield made
    made.close()


def test_a_run_begins_with_what_is_taken_without_it(tmp_path: Path) -> None:
    """However short it is, it leaves nobody worse off: whatever space a record at other lengths is of, it comes first."""
    A, B, C = fe.array("A", (20, 20)), fe.array("B", ("N", 20, 9)), fe.array("C", ("N", 9, 9))
    e = fe.einsum("kl,elq,eqp->ekp", A, B, C)
    before, task = make_task(e, {"N": 1000}, CPU), make_task(e, {"N": 1100}, CPU)
    spaces = [s for s in task.subject.spaces() if s.rank > 0 and next(s.configurations(before.problem(s)), None)]
    assert len(spaces) > 1
    for s in spaces:
        configuration = s.default(before.problem(s))
        with fe.Database(tmp_path / f"{s.name}.sqlite") as store:
            store.add([before.record(before.trial(s, configuration), Outcome("ok", samples_s=(1e-6,)))])
            first = TuningSearch(task, store, None, None, None).next_trial()
            assert first is not None
            assert first.space == s.name


def test_a_lost_worker_is_started_again(worker: Worker, cpu: Device) -> None:
    """The next trial does not notice; what the last one said is part of its record."""
    task = make_task(CALM, SIZES, cpu, 0)
    good = task.trial(registry.find_space("leisurely"), {"number": 1, "pause": 0.2})
    assert not isinstance(worker.build(good, 60), Outcome)
    assert worker._process is not None
    worker._process.kill()
    assert isinstance(worker.build(good, 60), CompiledTrial)


def test_a_build_that_others_stop_is_made_again(worker: Worker, cpu: Device) -> None:
    """It says nothing of the configuration, which here takes its time in another process, too."""
    slow = make_task(E, SIZES, cpu, 0).trial(registry.find_space("rogue"), {"way": "hangs"})
    worker.start()
    first = worker._process
    assert first is not None
    threading.Timer(0.5, first.kill).start()
    assert worker.build(slow, 3) == Outcome("timeout", "no answer within 3 s")
    assert first.returncode == -signal.SIGKILL


def test_a_measurement_that_others_stop_is_made_again(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the proof on, as the process that knew it is gone."""
    good = make_task(CALM, SIZES, cpu, 0).trial(registry.find_space("leisurely"), {"number": 1, "pause": 0.2})
    killed: list[int] = []
    time_it = Worker.time

    def interrupted(self: Worker, *arguments: Any, **how: Any) -> Outcome:
        if not killed and self._process is not None:
            self._process.kill()
            killed.append(self._process.wait())
        return time_it(self, *arguments, **how)

    monkeypatch.setattr(Worker, "time", interrupted)
    with TrialRunner(cpu.profile, 1, 60) as runner:
        [(_, outcome)] = runner.run(iter([good, None, None]).__next__)
    assert (outcome.status, killed) == ("ok", [-signal.SIGKILL])


def test_no_child_of_a_worker_outlives_it(worker: Worker, cpu: Device) -> None:
    """They are ended with the group of processes that the worker leads."""
    child = make_task(E, SIZES, cpu, 0).trial(registry.find_space("rogue"), {"way": "leaves a child"})
    worker.start()
    assert worker._process is not None
    group = worker._process.pid
    outcome = worker.build(child, 60)
    assert isinstance(outcome, Outcome)
    assert outcome.message == "the process ended with code 3"
    members = [p for p in psutil.process_iter() if group_of(p) == group]
    _, alive = psutil.wait_procs(members, timeout=10)
    assert not alive


def group_of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def test_a_trial_of_another_version_is_refused(worker: Worker, cpu: Device) -> None:
    """Records must not be of kernels that the space does not make any more; an unknown space is no crash."""
    trial = make_task(CALM, SIZES, cpu, 0).trial(registry.find_space("leisurely"), {"number": 1, "pause": 0.2})
    old = type(trial)(**{**vars(trial), "version": 99})
    gone = type(trial)(**{**vars(trial), "space": "gone"})
    assert worker.build(old, 60) == Outcome("refused", "space 'leisurely' has version 1, not 99")
    process = worker._process
    outcome = worker.build(gone, 60)
    assert isinstance(outcome, Outcome)
    assert outcome.status == "refused"
    assert outcome.message.startswith("no transform space is named 'gone'; there are ")
    assert worker._process is process


def test_a_closed_worker_stays_closed(cpu: Device) -> None:
    """Nobody starts it again behind the back of whoever ended the run."""
    closed = Worker("build", cpu.id)
    closed.close()
    with pytest.raises(WorkerLostError, match="the run has ended"):
        closed._ask({"do": "prepare"}, 1)
    assert closed._process is None


def test_a_worker_closed_while_it_starts_leaves_no_process(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a run has no time at all, its end meets processes that are being made."""
    begun, made, spawn = threading.Event(), list[subprocess.Popen[str]](), worker_module._spawn

    def spawned(*arguments: Any) -> subprocess.Popen[str]:
        begun.set()
        time.sleep(0.2)
        made.append(spawn(*arguments))
        return made[0]

    monkeypatch.setattr(worker_module, "_spawn", spawned)
    worker = Worker("build", cpu.id)
    starting = threading.Thread(target=worker.start)
    starting.start()
    assert begun.wait(10)
    worker.close()
    starting.join()
    assert made[0].poll() == -signal.SIGKILL
    assert worker._process is None


def test_a_worker_that_cannot_start_is_no_failure_of_a_configuration(
    cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with an error and nothing is recorded."""
    monkeypatch.setattr(worker_module.sys, "executable", "/bin/false")
    with pytest.raises(
        fe.DeviceError, match=f"no worker process can be started for {cpu.id}: the process ended with code 1"
    ):
        fe.autotune(CALM, cpu, store, SIZES, "leisurely", trials=2, workers=1, progress=False)
    with fe.Database(store) as database:
        assert database.query(status=None) == []


def test_a_device_that_is_gone_is_named() -> None:
    """Before anything is built for it."""
    lost = Worker("build", "cpu:gone:gone:1cu")
    with pytest.raises(
        fe.DeviceError, match="no worker process can be started for cpu:gone:gone:1cu: DeviceError: no OpenCL"
    ):
        lost._ask({"do": "prepare"}, 1)
    lost.close()


def test_what_cannot_be_tuned_is_refused(cpu: Device, store: str) -> None:
    """An unknown space, a length that is not given, an axis that is empty."""
    with pytest.raises(fe.TransformError, match=r"no transform space named 'gone' applies to 'abc,c->ab'; .*generic do"):
        fe.autotune(CALM, cpu, store, SIZES, "gone", progress=False)
    with pytest.raises(fe.ShapeError, match="the long axis 'N' of 'abc,c->ab' has no length; pass sizes="):
        fe.autotune(CALM, cpu, store, progress=False)
    with pytest.raises(fe.ShapeError, match="index 'b' of 'abc,c->ab' is empty, so there is nothing to tune"):
        fe.autotune(CALM, cpu, store, {"N": 0}, progress=False)


def test_one_configuration_can_be_timed(cpu: Device) -> None:
    """In this process: proved first, and refused if it is wrong."""
    timing = fe.timeit(E, cpu, space="rogue", configuration={"way": "good"}, sizes=SIZES, seconds=0.05)
    assert timing.median_s > 0
    assert len(timing.samples_s) >= 3
    with pytest.raises(fe.ValidationError, match="instead of"):
        fe.timeit(E, cpu, space="rogue", configuration={"way": "wrong"}, sizes=SIZES)
    with pytest.raises(fe.TransformError, match="way is 'gone', not one of"):
        fe.timeit(E, cpu, space="rogue", configuration={"way": "gone"}, sizes=SIZES)


def test_what_is_timed_is_chosen_where_it_is_not_said(cpu: Device) -> None:
    """The most specific space that has a configuration for the device, or takes the one given; the first may have none."""
    J, D, u = fe.array("J", (3, 3, "E")), fe.array("D", (3, 4, 4)), fe.array("u", ("E", 4))
    e, sizes = fe.einsum("xre,rij,ej->xei", J, D, u), {"E": 100}
    assert fe.timeit(e, cpu, sizes=sizes, seconds=0.01).median_s > 0
    generic = {"schedule": "fused", "lane": "last", "items": 64}
    assert fe.timeit(e, cpu, configuration=generic, sizes=sizes, seconds=0.01).median_s > 0
    with pytest.raises(
        fe.TransformError, match=r"no space takes {'ways': 3} for 'xre,rij,ej->xei' .* name one of .*generic"
    ):
        fe.timeit(e, cpu, configuration={"ways": 3}, sizes=sizes)


@pytest.mark.parametrize(("name", "value"), [("trials", 0), ("timeout", -1), ("workers", 0), ("trial_timeout", -0.5)])
def test_numbers_out_of_range_are_refused(name: str, value: float, cpu: Device, store: str) -> None:
    """A run of no trial, of no worker or of negative time is a mistake, and the message names it."""
    with pytest.raises(fe.SearchError, match=rf"{name} is {value}; it is [01] or more"):
        fe.autotune(E, cpu, store, SIZES, progress=False, **{name: value})


def test_times_with_a_unit_are_refused(cpu: Device, store: str) -> None:
    """The message names the argument; seconds are numbers."""
    with pytest.raises(fe.SearchError, match="timeout is '10s', which is not a number of seconds"):
        fe.autotune(E, cpu, store, SIZES, progress=False, timeout="10s")  # type: ignore[arg-type]


def test_missing_records_are_tuned_for_on_demand(cpu: Device, store: str) -> None:
    """Once: the second time the record is there, and tuning is not begun."""
    first = fe.generate(CALM, cpu, store, SIZES, tune="missing", timeout=8)
    assert first.rung == "exact"
    with fe.Database(store) as database:
        count = len(database.query(status=None))
    start = time.monotonic()
    second = fe.generate(CALM, cpu, store, SIZES, tune="missing", timeout=3600)
    assert second.record == first.record
    assert time.monotonic() - start < 3600
    with fe.Database(store) as database:
        assert len(database.query(status=None)) == count


def test_diagonals_of_unknown_length_are_tuned_for(cpu: Device, store: str) -> None:
    """At a length at which the whole matrix is to be had, though little of it is read."""
    diagonal = fe.einsum("ii->i", fe.array("A", ("N", "N")))
    assert fe.generate(diagonal, cpu, store, tune="missing", timeout=3).rung == "exact"
