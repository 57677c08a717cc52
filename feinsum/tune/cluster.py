"""Many machines: the workers of a dask.distributed scheduler do the trials, each on a device of its own.

The tuner searches, sends trials to the workers that have the device, and stores their outcomes.  A worker of the scheduler
does a trial in processes of its own (:mod:`feinsum.tune.runner`), so that a trial takes down neither; if a worker is lost
altogether, the scheduler gives its trials to another one.  Start one worker for each device, with two threads so that one
builds while the other measures::

    dask scheduler --port 8786
    CUDA_VISIBLE_DEVICES=0 dask worker tcp://node1:8786 --nthreads 2
    CUDA_VISIBLE_DEVICES=1 dask worker tcp://node1:8786 --nthreads 2

The final is held on one worker, so that its times can be compared.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from feinsum._checkout import how_to_install
from feinsum.devices import DeviceProfile
from feinsum.errors import DeviceError, FeinsumError
from feinsum.tune.budget import Budget
from feinsum.tune.final import Rounds
from feinsum.tune.runner import TrialRunner
from feinsum.tune.trial import Outcome, Trial

logger = logging.getLogger(__name__)

_CONNECT_S = 20.0
_LOOK_S = 2.0
"""Seconds between checks that a worker is left for an awaited call."""


class Cluster:
    """The :class:`feinsum.tune.runner.Engine` that a scheduler's workers are; a context manager.

    :param device: a word for :func:`feinsum.device`; the device that most workers understand by it is taken.
    :param trial_timeout_s: see :class:`TrialRunner`.
    """

    profile: DeviceProfile

    def __init__(self, address: str, device: Any, trial_timeout_s: float) -> None:
        if not (device is None or isinstance(device, str)):
            raise DeviceError(f"workers of a scheduler choose their device by a word such as 'gpu', not by {device!r}")
        self.best_s: float | None = None
        self.trial_s = 0.0
        self.refuted: dict[str, Outcome] = {}
        self._address = address
        self._word: str | None = device
        self._timeout_s = trial_timeout_s
        self._devices: dict[str, str] = {}

    def __enter__(self) -> Cluster:
        self._client = connect_scheduler(self._address)
        try:
            self.profile = self._choose()
        except BaseException:
            self._client.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(
        self, next_trial: Callable[[], Trial | None], budget: Budget | None = None
    ) -> Generator[tuple[Trial, Outcome], None, None]:
        """See :class:`Engine`; so many trials are handed out ahead that every thread has one and every worker one waiting.

        When the time is up, workers finish the trials that they are at; their results are not waited for.

        :raises DeviceError: if no worker with the device is left, or the scheduler is lost.
        """
        budget = budget or Budget()
        pending: deque[tuple[Trial, _RemoteCall]] = deque()
        try:
            while True:
                while len(pending) < self._capacity() and (trial := next_trial()) is not None:
                    pending.append((trial, self._call(_attempt_trial, trial.to_json(), self.best_s, self._timeout_s)))
                if not pending:
                    return
                trial, call = pending[0]
                outcome = self._outcome(call, budget)
                if outcome is None:
                    return
                pending.popleft()
                yield trial, outcome
        finally:
            for _, call in pending:
                call.cancel()

    def _outcome(self, call: _RemoteCall, budget: Budget) -> Outcome | None:
        """The outcome of a trial; None if the time of the search was up first."""
        try:
            answer = call.result(lambda: budget.search_patience_s)
        except _LostError as lost:
            return Outcome("launch-failed", str(lost))
        if answer is None:
            return None
        self.trial_s = answer.pop("trial_s")
        return Outcome(**answer)

    def compare(self, trials: Sequence[Trial], seconds: float, budget: Budget | None = None) -> Rounds:
        """See :class:`Engine`.

        :raises DeviceError: if no worker with the device is left, or the scheduler is lost.
        """
        plain = [trial.to_json() for trial in trials]
        patience_s = math.inf if budget is None else budget.patience_s
        left_s = None if patience_s == math.inf else patience_s
        try:
            found = self._call(_compare_variants, plain, seconds, left_s, self._timeout_s).result()
        except _LostError:
            return []
        self.refuted |= {name: Outcome("wrong", message) for name, message in found["refuted"].items()}
        rounds: list[dict[str, list[float]]] = found["rounds"]
        return rounds

    def workers(self) -> dict[str, int]:
        """The threads of the workers that have the device, by their address.

        :raises DeviceError: if the scheduler is lost.
        """
        threads = self._ask(self._client.nthreads)
        for address in [address for address in self._devices if address not in threads]:
            if self._devices.pop(address) == self.profile.id:
                logger.warning("worker %s is lost, others do its trials", address)
        if new := [address for address in threads if address not in self._devices]:
            with suppress(OSError):  # one of them went away just now; the next look finds out
                for address, said in self._ask(self._client.run, _describe_device, self._word, workers=new).items():
                    self._devices[address] = said["device"]
                    logger.info("worker %s joins with %s", address, said["device"] or f"no such device: {said['why']}")
        return {address: n for address, n in threads.items() if self._devices.get(address) == self.profile.id}

    def _choose(self) -> DeviceProfile:
        """The device that most workers have."""
        with suppress(TimeoutError):  # workers may be on their way
            self._ask(self._client.wait_for_workers, 1, timeout=_CONNECT_S)
        said = self._ask(self._client.run, _describe_device, self._word)
        self._devices = {address: answer["device"] for address, answer in said.items()}
        profiles = {answer["device"]: answer["profile"] for answer in said.values() if answer["device"]}
        if not profiles:
            why = next((answer["why"] for answer in said.values()), "it has no workers")
            raise DeviceError(f"no worker of {self._address} has the device {self._word or ''}: {why}")
        (common, _), *_ = Counter(device for device in self._devices.values() if device).most_common()
        return DeviceProfile.from_dict(profiles[common])

    def _capacity(self) -> int:
        workers = self.workers()
        return max(1, sum(workers.values()) + len(workers))

    def _call(self, function: Callable[..., Any], *arguments: Any) -> _RemoteCall:
        return _RemoteCall(self, function, (self.profile.id, *arguments))

    def _ask(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except (FeinsumError, TimeoutError):
            raise
        except Exception as error:  # whatever a lost connection raises
            raise DeviceError(f"the scheduler {self._address} does not answer: {type(error).__name__}: {error}") from None


class _LostError(Exception):
    """A call took down every worker that tried it."""


class _RemoteCall:
    """A function that one of the workers with the device runs, and another one if that is lost."""

    def __init__(self, cluster: Cluster, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._cluster = cluster
        self._function = function
        self._arguments = arguments
        self._submit()

    def _submit(self) -> None:
        self._workers = list(self._cluster.workers())
        if not self._workers:
            raise DeviceError(f"no worker with {self._cluster.profile.id} is left")
        self._future = self._cluster._client.submit(self._function, *self._arguments, workers=self._workers, pure=False)

    def cancel(self) -> None:
        """Want the answer no more."""
        self._future.cancel()

    def result(self, patience_s: Callable[[], float] = lambda: math.inf) -> Any:
        """Wait for the answer, which is None when patience is at its end."""
        from concurrent.futures import CancelledError

        from distributed.scheduler import KilledWorker

        while True:
            try:
                return self._future.result(timeout=min(_LOOK_S, patience_s()))
            except TimeoutError:
                if not patience_s():
                    return None
                if not set(self._workers) & set(self._cluster.workers()):
                    self._future.cancel()
                    self._submit()
            except KilledWorker:
                raise _LostError("it took down every worker that tried it") from None
            except CancelledError:
                raise DeviceError(f"the scheduler {self._cluster._address} has gone") from None


def connect_scheduler(address: str) -> Any:
    """A client of a scheduler.

    :raises DeviceError: if none answers.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise DeviceError(
            f"a scheduler needs the package {error.name}, which is not here: {how_to_install('cluster')}"
        ) from None
    try:
        return Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise DeviceError(f"no scheduler answers at {address}: {error}") from None


def _describe_device(word: str | None) -> dict[str, Any]:
    """The device that a worker understands by a word; run by the worker."""
    from feinsum.devices import device

    try:
        profile = device(word).profile
    except FeinsumError as error:
        return {"device": "", "why": str(error)}
    return {"device": profile.id, "profile": profile.to_dict()}


def _attempt_trial(device_id: str, trial: dict[str, Any], best_s: float | None, timeout_s: float) -> dict[str, Any]:
    """Do one trial; run by a worker."""
    runner = _runner(device_id, timeout_s)
    runner.best_s = best_s
    outcome = runner.attempt(Trial(**trial))
    answer = {"status": outcome.status, "message": outcome.message, "samples_s": outcome.samples_s}
    return {**answer, "trial_s": runner.trial_s}


def _compare_variants(
    device_id: str, trials: list[dict[str, Any]], seconds: float, left_s: float | None, timeout_s: float
) -> dict[str, Any]:
    """Time variants in rounds, for so many seconds; run by a worker."""
    runner, wanted = _runner(device_id, timeout_s), [Trial(**trial) for trial in trials]
    rounds = runner.compare(wanted, seconds, Budget(left_s))
    refuted = {trial.id: runner.refuted[trial.id].message for trial in wanted if trial.id in runner.refuted}
    return {"rounds": rounds, "refuted": refuted}


_starting = threading.Lock()


def _runner(device_id: str, timeout_s: float) -> TrialRunner:
    """The processes that a worker has for a device; they end with it."""
    with _starting:
        return _started(device_id, timeout_s)


@cache
def _started(device_id: str, timeout_s: float) -> TrialRunner:
    from distributed import get_worker

    from feinsum.devices import device

    return TrialRunner(device(device_id).profile, get_worker().state.nthreads, timeout_s)
