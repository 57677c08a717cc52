"""Candidates are made apart: signals stay the caller's, and a space that hangs or goes wrong costs only its candidates."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugins import install, installing

import feinsum as fe
from feinsum import apart as apart_module
from feinsum.apart import VARIABLE, TimedStep, is_overdue, run_in_thread
from feinsum.devices import Device
from feinsum.effects import Pause
from feinsum.errors import FeinsumError, SpaceError

PACKAGE = '''
import sys, time
import numpy as np
from feinsum.space import space
from feinsum.subscripts import parse_subscripts

WAY = None


class Untold(Exception):
    def __str__(self):
        raise RuntimeError


def hang(where):
    while WAY == "hangs in " + where:
        time.sleep(0.02)


def parameters(problem):
    hang("parameters")
    return {f"x{k}": tuple(range(10)) for k in range(30)} if WAY == "refuses all" else {"x": (1, 2)}


def constraint(problem, configuration):
    hang("constraint")
    return "no" if WAY == "refuses all" else None


@space(pattern="pq,rq->rp", version=1, parameters=parameters, constraint=constraint, rank=9)
def odd(t_unit, match, problem, **configuration):
    """Goes wrong in a way that a test chooses."""
    import feinsum as fe

    hang("transform")
    if WAY == "is short of memory":
        raise MemoryError
    if WAY == "asks for too much":
        np.empty(1 << 60, np.uint8)
    if WAY == "exits":
        sys.exit(5)
    if WAY == "raises what cannot be told":
        raise Untold
    if WAY == "returns another kernel":
        return fe.generate_loopy(fe.einsum("ij,j->i", fe.array("A", (3, 4)), fe.array("x", 4)))
    return {"returns nothing": None, "returns a number": 42, "returns part": t_unit.default_entrypoint}[WAY]
'''


class LimitError(Exception):
    """What a caller's handler may raise."""


@pytest.fixture(autouse=True)
def nothing_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test leaves out takes part in the next."""
    monkeypatch.setattr(apart_module, "_overdue", set())


@pytest.fixture
def alarm() -> Iterator[Callable[[float, BaseException], None]]:
    """Have a signal handler raise an exception after some seconds."""
    before = signal.getsignal(signal.SIGALRM)

    def ring(after_s: float, error: BaseException) -> None:
        def handler(*_: object) -> None:
            raise error

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, after_s)

    yield ring
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module of a space for products of matrices, which does as its `WAY` says."""
    directory = tmp_path_factory.mktemp("odd")
    install(directory, "odd_package", PACKAGE)
    with installing(directory):
        from feinsum.registry import find_space

        yield sys.modules[find_space("odd").function.__module__]


@pytest.fixture
def way(odd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Choose what the odd space does; kernels are not kept."""
    monkeypatch.setenv("FEINSUM_CACHE_BYTES", "0")
    monkeypatch.setenv("FEINSUM_DATABASE", str(tmp_path / "records.sqlite"))
    yield lambda text: setattr(odd, "WAY", text)
    odd.WAY = None


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The odd space has a second for each step; the others as long as ever: a busy machine leaves none of them out."""
    whole = TimedStep.__init__

    def begin(self: TimedStep, subject: Any, task: str, *, answer: bool = False) -> None:
        whole(self, subject, task, answer=answer)
        if "odd" in f"{subject} {task}":
            self.limit_s = 1.0

    monkeypatch.setattr(TimedStep, "__init__", begin)


def product(n: int) -> fe.BatchedEinsum:
    return fe.einsum("ij,ej->ei", fe.array("D", (n, 13)), fe.array("u", ("E", 13)))


def require_right(kernel: fe.Kernel) -> None:
    """By another space than the odd one."""
    (n, _), rng = kernel.einsum.arrays[0].shape, np.random.default_rng(0)
    D, u = rng.random((n, 13)), rng.random((50, 13))
    assert np.allclose(kernel(D=D, u=u), u @ D.T)
    assert kernel.space != "odd"


@pytest.mark.parametrize(
    "error", [LimitError(), TimeoutError(), FeinsumError(), MemoryError(), SystemExit(), KeyboardInterrupt()]
)
def test_what_a_handler_raises_ends_the_wait(alarm: Callable[[float, BaseException], None], error: BaseException) -> None:
    """Though the task swallows every exception it can, as loopy does in places; it ends at its next question."""
    ended = threading.Event()

    def task() -> None:
        try:
            while True:
                with TimedStep("a space", "asking it"):
                    try:
                        time.sleep(0.01)
                    except BaseException:
                        continue
        finally:
            ended.set()

    alarm(0.05, error)
    with pytest.raises(type(error)) as caught:
        run_in_thread(task)
    assert caught.value is error
    assert ended.wait(60)


@pytest.mark.parametrize("error", [ValueError(), SystemExit(3), KeyboardInterrupt(), MemoryError()])
def test_what_the_task_raises_is_the_callers(error: BaseException) -> None:
    """The same object, as if there were no other thread."""

    def task() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        run_in_thread(task)
    assert caught.value is error


def test_a_task_has_the_context_of_its_caller() -> None:
    """As numpy keeps there how it treats errors; tasks of tasks stay on the thread."""
    with np.errstate(divide="raise"):
        assert run_in_thread(np.geterr)["divide"] == "raise"
    assert run_in_thread(lambda: run_in_thread(threading.get_ident) == threading.get_ident())


def test_a_question_without_end_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work begins anew without it; what the thread that hangs had switched off is on again."""
    monkeypatch.setenv(VARIABLE, "1.2")
    state, free = [True], threading.Event()
    pause = Pause(lambda: state[0], lambda on: state.__setitem__(0, on))

    def task() -> str:
        if is_overdue("inner"):
            return "the others"
        with TimedStep("outer", "asking the outer one"), pause, TimedStep("inner", "asking the inner one", answer=True):
            free.wait(60)
        return "the inner one"

    assert run_in_thread(task) == "the others"
    assert state == [True]
    free.set()


def test_what_cannot_be_left_out_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which says what took too long, and how to allow more."""
    monkeypatch.setenv(VARIABLE, "0.3")

    def task() -> None:
        with TimedStep("needed", "asking what is needed"):
            threading.Event().wait(60)

    with pytest.raises(SpaceError, match=rf"asking what is needed took longer than 0\.3 s.*{VARIABLE}"):
        run_in_thread(task)


def test_a_limit_that_is_no_number_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the log says."""
    monkeypatch.setenv(VARIABLE, "soon")
    assert apart_module.limit_s() == apart_module.DEFAULT_S


@pytest.mark.parametrize(
    "wrong",
    [
        "refuses all",
        "returns nothing",
        "returns a number",
        "returns part",
        "returns another kernel",
        "raises what cannot be told",
        "asks for too much",
    ],
)
def test_a_space_that_goes_wrong_is_passed_over(way: Callable[[str], None], cpu: Device, wrong: str) -> None:
    """The kernel is another space's."""
    way(wrong)
    require_right(fe.generate(product(6), cpu, sizes={"E": 50}))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("where", ["parameters", "constraint", "transform"])
def test_a_space_that_hangs_is_passed_over(way: Callable[[str], None], cpu: Device, where: str) -> None:
    """By generate and by transform; the collector of garbage goes on."""
    way(f"hangs in {where}")
    require_right(fe.generate(product(7), cpu, sizes={"E": 50}))
    assert gc.isenabled()
    fe.transform(fe.generate_loopy(product(7)), cpu, sizes={"E": 50})


@pytest.mark.parametrize(("wrong", "error"), [("is short of memory", MemoryError), ("exits", SystemExit)])
def test_what_is_no_error_of_the_candidate_reaches_the_caller(
    way: Callable[[str], None], cpu: Device, wrong: str, error: type[BaseException]
) -> None:
    """Another candidate would hide it."""
    way(wrong)
    with pytest.raises(error):
        fe.generate(product(8), cpu, sizes={"E": 50})


@pytest.mark.slow
@pytest.mark.parametrize("error", [LimitError(), TimeoutError()])
def test_a_limit_ends_a_tuning_run(
    alarm: Callable[[float, BaseException], None], cpu: Device, tmp_path: Path, error: Exception
) -> None:
    """Also while it waits for a worker, where a TimeoutError was taken for a broken pipe."""
    alarm(2.0, error)
    with pytest.raises(type(error)):
        fe.autotune(product(9), cpu, str(tmp_path / "r.sqlite"), sizes={"E": 50}, timeout=60, progress=False)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_space_that_hangs_or_refuses_all_does_not_hold_up_a_tuning_run(
    way: Callable[[str], None], cpu: Device, tmp_path: Path
) -> None:
    """The others are searched."""
    for wrong in ("hangs in parameters", "refuses all"):
        way(wrong)
        report = fe.autotune(product(10), cpu, str(tmp_path / "r.sqlite"), sizes={"E": 50}, trials=3, progress=False)
        assert report.best is not None


def test_filters_of_other_threads_cost_no_candidate(cpu: Device) -> None:
    """Where warnings are errors, and another thread puts back filters that it found, a kernel is made all the same."""
    stopped = threading.Event()

    def meddle() -> None:
        while not stopped.is_set():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                time.sleep(1e-4)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thread = threading.Thread(target=meddle)
        thread.start()
        try:
            transformed = fe.transform(fe.generate_loopy(product(11)), cpu, sizes={"E": 50})
        finally:
            stopped.set()
            thread.join()
    assert len(transformed.default_entrypoint.instructions) > 0


@pytest.mark.parametrize("error", [FileNotFoundError, apart_module.Abandoned])
def test_a_daemon_that_waits_ends_with_the_process_without_a_word(error: type[BaseException]) -> None:
    """Files that its task needs are removed at the end, and questions are not answered."""

    def work() -> None:
        apart_module._abandon_all()
        raise error

    with pytest.raises(SystemExit):
        run_in_thread(work)
