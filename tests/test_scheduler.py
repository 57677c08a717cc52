"""Many machines, here as many processes: a scheduler's workers do the trials, and losing one of them loses no trial."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from plugins import install, installing
from rogues import SOURCE

import feinsum as fe
from feinsum.tune import cluster as cluster_module
from feinsum.tune.batch import run_batch
from feinsum.tune.jobs import Job

pytestmark = pytest.mark.slow

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")

CALM = fe.einsum("abc,c->ab", fe.array("A", (40, "N", 30)), fe.array("x", 30))
ROGUE = fe.einsum("abc,c->ba", fe.array("A", (40, "N", 30)), fe.array("x", 30))
SIZES = {"N": 50}


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A package of spaces that take their time, installed for this process and all workers."""
    directory = tmp_path_factory.mktemp("site")
    install(directory, "rogues_package", SOURCE)
    with installing(directory, Path(fe.__file__).parents[1]) as patch:
        # In the order of their choices, whatever the cost model that comes with feinsum expects of them.
        patch.setattr("feinsum.tune.tuning_search._predicted_configurations", lambda task, space: [])
        yield


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of dask, ended with what it started when the context ends."""
    started = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


@contextmanager
def scheduler() -> Iterator[str]:
    """The address of a new scheduler, which answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show")
    with process("scheduler", *options):
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"tcp://127.0.0.1:{port}"


def worker(stack: ExitStack, address: str) -> subprocess.Popen[bytes]:
    """A new worker with one thread, for the one device that there is."""
    return stack.enter_context(process("worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"))


def wait_for_workers(address: str, count: int) -> None:
    """Until so many workers are known to a scheduler."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=60)


@pytest.fixture(scope="module")
def two_workers() -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and its workers, one of which the last test kills."""
    with ExitStack() as stack:
        address = stack.enter_context(scheduler())
        workers = [worker(stack, address) for _ in range(2)]
        wait_for_workers(address, 2)
        yield address, workers


Cluster = tuple[str, list[subprocess.Popen[bytes]]]


def test_a_run_on_a_cluster_is_like_one_here(two_workers: Cluster, store: str) -> None:
    """Records, the final and the best; a trial that goes wrong is a record."""
    address, _ = two_workers
    run = fe.autotune(
        ROGUE, "cpu", store, SIZES, "rogue", trials=4, sampler="exhaustive", scheduler=address, progress=False
    )
    assert [(r.configuration["way"], r.status) for r in run.records] == [
        ("slow", "ok"),
        ("good", "ok"),
        ("wrong", "wrong"),
        ("nan", "wrong"),
    ]
    assert run.final is not None
    assert run.best == run.final.winner
    with fe.Database(store) as database:
        assert {r.id for r in database.query(status=None)} == {r.id for r in (*run.records, run.best)}


def test_jobs_of_a_batch_go_to_the_cluster(two_workers: Cluster, store: str) -> None:
    """One after the other, each over all workers."""
    jobs = [Job(CALM, {"N": n}, "cpu", 2, space="leisurely") for n in (20, 30)]
    results = run_batch(jobs, store, scheduler=two_workers[0], progress=False)
    assert [result.status for result in results] == ["tuned", "tuned"]
    assert [result.status for result in run_batch(jobs, store, scheduler=two_workers[0])] == ["done", "done"]


def test_a_device_that_no_worker_has_is_named(two_workers: Cluster, store: str) -> None:
    """With what a worker says."""
    with pytest.raises(fe.DeviceError, match=r"no worker of tcp://.* has the device no-such-device: "):
        fe.autotune(CALM, "no-such-device", store, SIZES, scheduler=two_workers[0], progress=False)


def test_trials_of_a_killed_worker_are_done_elsewhere(
    two_workers: Cluster, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """None is lost, none fails, none is done twice; the processes of the dead worker end with it, and the log names it."""
    address, workers = two_workers
    victim = psutil.Process(workers[0].pid)
    orphans: list[psutil.Process] = []

    def kill(done: int, *_: object) -> None:
        if done == 3:
            orphans.extend(victim.children(recursive=True))
            os.kill(victim.pid, signal.SIGKILL)

    run = fe.autotune(
        CALM,
        "cpu",
        store,
        SIZES,
        "leisurely",
        trials=10,
        sampler="exhaustive",
        scheduler=address,
        progress=kill,
    )
    assert [r.configuration["number"] for r in run.records] == list(range(10))
    assert {r.status for r in run.records} == {"ok"}
    assert run.best is not None
    assert re.search(r"worker tcp://\S+ is lost, others do its trials", caplog.text)
    assert orphans
    _, alive = psutil.wait_procs(orphans, timeout=20)
    assert not alive


def test_a_worker_that_joins_later_takes_over(store: str) -> None:
    """When the only one is killed and another comes, the run goes on; when none comes, it says so."""
    with ExitStack() as stack:
        address = stack.enter_context(scheduler())
        first = worker(stack, address)
        wait_for_workers(address, 1)

        def replace(done: int, *_: object) -> None:
            if done == 2:
                worker(stack, address)
                wait_for_workers(address, 2)
                first.kill()

        options: dict[str, object] = {"trials": 5, "sampler": "exhaustive", "scheduler": address}
        run = fe.autotune(CALM, "cpu", store, SIZES, "leisurely", progress=replace, **options)
        assert [(r.configuration["number"], r.status) for r in run.records] == [(k, "ok") for k in range(5)]


def test_a_scheduler_that_does_not_answer_is_asked_once(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first job of a batch, not for each of them; one that dies later is not waited for again."""
    monkeypatch.setattr("feinsum.tune.cluster._CONNECT_S", 0.5)
    asked: list[str] = []
    connect = cluster_module.connect_scheduler
    monkeypatch.setattr(cluster_module, "connect_scheduler", lambda address: (asked.append(address), connect(address))[1])
    jobs = [Job(CALM, {"N": n}, device, 2, space="leisurely") for n in (20, 30) for device in ("cpu", "gpu")]
    with pytest.raises(fe.DeviceError, match=r"no scheduler answers at tcp://127.0.0.1:9: "):
        run_batch(jobs, store, scheduler="tcp://127.0.0.1:9", progress=False)
    assert len(asked) == 1
    monkeypatch.setattr("feinsum.tune.batch.require_scheduler", lambda address: None)
    results = run_batch(jobs, store, scheduler="tcp://127.0.0.1:9", progress=False)
    assert {result.status for result in results} == {"failed"}
    assert len(asked) == 3


def test_an_address_without_a_scheduler_is_named(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while of trying, or at once if it is no address."""
    monkeypatch.setattr("feinsum.tune.cluster._CONNECT_S", 0.5)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(fe.DeviceError, match=f"no scheduler answers at {address}: "):
            fe.autotune(CALM, "cpu", store, SIZES, scheduler=address, progress=False)
