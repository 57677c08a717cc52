"""A tuning run ends when its time is up: the search leaves time for a final, and what still runs is stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import psutil
import pytest
from plugins import install, installing
from rogues import SOURCE

import feinsum as fe
from feinsum.devices import Device
from feinsum.registry import find_space
from feinsum.tune import budget as budget_module
from feinsum.tune.budget import Budget
from feinsum.tune.runner import TrialRunner
from feinsum.tune.task import make_task
from feinsum.tune.trial import Trial

pytestmark = pytest.mark.slow

E = fe.einsum("abc,c->ba", fe.array("A", (40, "N", 30)), fe.array("x", 30))
SIZES = {"N": 50}
GENEROUS_S = 120.0
"""Far less than what hangs would take, far more than what a busy machine needs to stop it."""


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package of rogues, installed for this process and its workers."""
    directory = tmp_path_factory.mktemp("site")
    install(directory, "rogues_package", SOURCE)
    with installing(directory):
        yield


@pytest.fixture
def few_samples() -> None:
    """Times are those of users here."""


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(budget_module, "time", made)
    return made


def test_the_search_ends_early_enough_for_the_final(clock: Clock) -> None:
    """By what proving and timing the finalists will take, and their samples."""
    budget = Budget(40)
    budget.reserve(finalists=10, trial_s=0.3)
    assert budget.search_left_s == pytest.approx(40 - 10 * 0.3 - 5)
    clock.now += 35
    assert budget.search_left_s == 0
    assert budget.left_s == pytest.approx(5)
    clock.now += 6
    assert budget.left_s == 0


def test_a_final_never_takes_more_than_half(clock: Clock) -> None:
    """However long a trial takes, there is a search."""
    budget = Budget(10)
    budget.reserve(finalists=10, trial_s=7.0)
    assert budget.search_left_s == pytest.approx(5)


@pytest.mark.parametrize(
    ("spent", "trial_s", "expected"),
    [
        (30, 0.2, (10, 4.5)),  # time for all
        (38, 0.25, (6, 0.5)),  # the slowest are left out, and samples are few
        (39.9, 0.25, (1, 0.5)),  # the quickest alone
        (50, 0.25, (1, 0.5)),
        (30, 0.0, (10, 4.5)),  # nothing was tried, all was known
    ],
)
def test_a_final_takes_the_time_that_is_left(
    clock: Clock, spent: float, trial_s: float, expected: tuple[int, float]
) -> None:
    """The quickest take part, as many as there is time for, one at least."""
    budget = Budget(40)
    clock.now += spent
    assert budget.final(10, trial_s) == pytest.approx(expected)


def test_without_a_limit_there_is_time_for_all(clock: Clock) -> None:
    """A share of what the search took goes to the samples of the final."""
    budget = Budget()
    budget.reserve(10, 100.0)
    clock.now += 20
    assert budget.search_left_s == budget.left_s == budget.patience_s == math.inf
    assert budget.final(10, 100.0) == pytest.approx((10, 3))


def test_patience_has_no_end_while_nothing_right_is_known(clock: Clock) -> None:
    """But no other trial begins."""
    budget = Budget(5, patient=True)
    clock.now += 6
    assert budget.search_left_s == 0
    assert budget.search_patience_s == budget.patience_s == math.inf
    budget.patient = False
    assert budget.search_patience_s == budget.patience_s == 0


def test_a_build_that_outlasts_the_run_is_stopped(cpu: Device, store: str) -> None:
    """It is not recorded, for it had time left; what was right before is the result, and its final was held."""
    others = set(psutil.Process().children())
    run = fe.autotune(
        E, cpu, store, SIZES, "rogue", sampler="exhaustive", timeout=30, trial_timeout=3600, workers=2, progress=False
    )
    assert run.seconds < GENEROUS_S
    assert run.best is not None
    assert "hangs" not in {record.configuration["way"] for record in run.records}
    left = set(psutil.Process().children()) - others
    assert not [child for child in left if "feinsum.tune.worker" in " ".join(child.cmdline())]


def test_a_variant_that_outlasts_the_run_is_stopped(cpu: Device) -> None:
    """It has no outcome, and the next run has a process that measures."""
    task, space = make_task(E, SIZES, cpu), find_space("rogue")
    hanging, good = (task.trial(space, {"way": way}) for way in ("hangs on the device", "good"))

    def one_by_one(*trials: Trial) -> Iterator[Trial | None]:
        yield from trials
        while True:
            yield None

    with TrialRunner(cpu.profile, 1, 3600) as runner:
        list(runner.run(one_by_one(good).__next__))  # so that its processes have started
        start = time.monotonic()
        assert list(runner.run(one_by_one(hanging).__next__, Budget(3))) == []
        assert time.monotonic() - start < GENEROUS_S
        assert [outcome.status for _, outcome in runner.run(one_by_one(good).__next__)] == ["ok"]
        assert runner.trial_s > 0
        assert runner.compare([hanging, good], 0.04, Budget(2)) == []
        rounds = runner.compare([good], 0.04, Budget(3600))
        assert len(rounds) >= 4
        assert all(list(found) == [good.id] for found in rounds)
