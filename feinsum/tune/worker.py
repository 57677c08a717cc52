"""Worker processes: a trial that hangs, crashes or eats the memory takes its worker down, never the tuner.

A worker is ``python -m feinsum.tune.worker``.  It reads requests, one JSON object a line, from its standard input and
answers each with one line.  It ends with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from feinsum.ending import leave_no_core, signal_group
from feinsum.errors import DeviceError
from feinsum.tune.memory_limit import used_up
from feinsum.tune.trial import CompiledTrial, Outcome, Trial, build_trial, prepare, prove_trial, time_trial

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 120.0
"""Seconds for a worker to start: it loads loopy and the driver, which takes seconds, and more on a busy machine."""


_SELDOM = (100_000, 20, 20)
"""Allocations before Python looks for cyclic garbage, and how often the older generations wait: nearly all objects of loopy
live on, and looking through them at Python's own pace was a sixth of what a build takes."""
_EXIT_S = 1.0
"""Seconds to wait for a worker's last words: children of its children may hold its pipe open for ever."""
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")
"""Signals by which others end a process; those of its own mistakes are SIGSEGV, SIGABRT and the like."""


class WorkerLostError(Exception):
    """A worker that gave no answer.

    :ivar why: ``"timeout"``: its time was up; ``"memory"``: so was its memory; ``"died"`` by itself; ``"killed"`` by
        others; or the run has ``"ended"``.
    """

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why

    def outcome(self, failed: str) -> Outcome:
        """The outcome of the trial; `failed` is the status of a trial at which the process died."""
        statuses = {"timeout": "timeout", "killed": "interrupted", "ended": "interrupted"}
        return Outcome(statuses.get(self.why, failed), str(self))


class _Clock:
    """The seconds for which a worker was paused in all, the present pause included."""

    def __init__(self) -> None:
        self._past_s = 0.0
        self._since: float | None = None

    def stop(self) -> None:
        self._since = time.monotonic()

    def start(self) -> None:
        self._past_s, self._since = self.stopped_s, None

    @property
    def stopped_s(self) -> float:
        since = self._since
        return self._past_s + (0.0 if since is None else time.monotonic() - since)


class Worker:
    """A worker process, started at the first request and again after it was lost.  Used by one thread at a time.

    :param role: ``"build"`` or ``"measure"``, for which it loads what takes long before it is asked anything.
    :param device: a word for the device that its trials are for: its id, with a number where there are several.
    """

    def __init__(self, role: str, device: str) -> None:
        self._prepare = {"do": "prepare", "role": role, "device": device}
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._log: IO[str] | None = None
        self._ended = False
        self._starting = threading.Lock()  # no process is born behind the back of close()
        self._clock = _Clock()

    def start(self) -> None:
        """Start the process if there is none, so that the first request need not wait for it.

        :raises DeviceError: if no worker can be started.
        """
        if self._process is None:
            with contextlib.suppress(WorkerLostError):  # the run has ended meanwhile
                self._start()

    def build(self, trial: Trial, timeout_s: float) -> CompiledTrial | Outcome:
        """See :func:`feinsum.tune.trial.build_trial`; a lost worker is an outcome.

        :raises DeviceError: if no worker can be started.
        """
        answer = self._insist({"do": "build", "trial": trial.to_json()}, timeout_s, "compile-failed")
        if isinstance(answer, Outcome):
            return answer
        return CompiledTrial.from_json(answer["built"]) if "built" in answer else self._checked(_answer_outcome(answer))

    def prove(self, trial: Trial, built: CompiledTrial, timeout_s: float) -> Outcome | None:
        """See :func:`feinsum.tune.trial.prove_trial`; a lost worker is an outcome.

        :raises DeviceError: if no worker can be started.
        """
        request = {"do": "prove", "trial": trial.to_json(), "built": built.to_json()}
        answer = self._insist(request, timeout_s, "launch-failed")
        if isinstance(answer, Outcome):
            return answer
        return self._checked(_answer_outcome(answer)) if answer else None

    def time(self, trial: Trial, timeout_s: float, **how: float) -> Outcome:
        """See :func:`feinsum.tune.trial.time_trial`; a lost worker is an outcome.

        One that others killed has the status "interrupted": another process has to prove the variant again.
        """
        try:
            answer = self._ask({"do": "time", "trial": trial.to_json(), "how": how}, timeout_s)
        except WorkerLostError as lost:
            return lost.outcome("launch-failed")
        return self._checked(_answer_outcome(answer))

    def _checked(self, outcome: Outcome) -> Outcome:
        """The outcome; a process that may have lost its integrity is not used again."""
        if outcome.tainted:
            self._stop()
        return outcome

    def pause(self) -> None:
        """Stop the process where it is; its time limit stands still.  May be called from another thread."""
        self._signal("SIGSTOP")
        self._clock.stop()

    def resume(self) -> None:
        """Let a paused process go on."""
        self._clock.start()
        self._signal("SIGCONT")

    def _signal(self, name: str) -> None:
        process = self._process
        if process is not None:
            signal_group(process, name)

    def _insist(self, request: dict[str, Any], timeout_s: float, failed: str) -> dict[str, Any] | Outcome:
        """The answer to a request, which is repeated if others killed the process; or the outcome of the trial.

        :param failed: the status of a trial at which the process dies.
        """
        try:
            try:
                return self._ask(request, timeout_s)
            except WorkerLostError as lost:
                if lost.why != "killed":
                    raise
                return self._ask(request, timeout_s)
        except WorkerLostError as lost:
            if lost.why == "killed":
                return Outcome(failed, f"{lost}, twice; is the machine short of memory?")
            return lost.outcome(failed)

    def close(self) -> None:
        """End the process, and start none any more.  May be called while another thread waits for an answer."""
        with self._starting:
            self._ended = True
        self._stop()

    def abandon(self) -> None:
        """End the process, so that a thread waiting for its answer learns that it was lost; the next request starts another
        one.

        May be called from another thread.
        """
        self._stop()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            signal_group(process, "SIGKILL")
            process.wait()
            for stream in (process.stdin, self._log):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._process is None:
            self._start()
        return self._exchange(request, timeout_s)

    def _exchange(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None:
            raise WorkerLostError("the run has ended", "ended")
        self._forget_log()
        # What a signal handler raises meanwhile, a TimeoutError perhaps, is no failure of the pipe.
        with contextlib.suppress(BrokenPipeError, ValueError):  # closed by either side, as the answer will say
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        try:
            line = self._wait(timeout_s)
        except queue.Empty:
            memory = used_up(process.pid)
            self._stop()
            if memory is not None:
                raise self._lost(f"out of memory: no answer within {timeout_s:g} s, {memory}", "memory") from None
            raise self._lost(f"no answer within {timeout_s:g} s", "timeout") from None
        if line is None:
            code, ours = process.wait(), self._process is not process
            message = f"the process {_ending(code)}{self._log_tail()}"
            if ours:
                raise WorkerLostError("the run has ended", "ended")
            self._stop()
            raise self._lost(message, "killed" if _signal_name(code) in _FROM_OUTSIDE else "died")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self, message: str, why: str) -> WorkerLostError:
        """The error of a worker that is lost, which is logged: one that others killed is worth a warning."""
        level = logging.WARNING if why == "killed" else logging.INFO
        logger.log(level, "a worker for %s is lost, another takes its place: %s", self._prepare["device"], message)
        return WorkerLostError(message, why)

    def _wait(self, timeout_s: float) -> str | None:
        """The next answer.

        :raises queue.Empty: if there is none within a time in which pauses do not count.
        """
        paused_s = self._clock.stopped_s
        while True:
            try:
                return self._answers.get(timeout=timeout_s)
            except queue.Empty:
                timeout_s, paused_s = self._clock.stopped_s - paused_s, self._clock.stopped_s
                if timeout_s <= 0:
                    raise

    def _start(self) -> None:
        with self._starting:
            if self._ended:
                raise WorkerLostError("the run has ended", "ended")
            self._log = tempfile.TemporaryFile("a+", errors="replace")  # noqa: SIM115 (closed with the process)
            self._answers = queue.SimpleQueue()
            logger.info("starting a worker for %s, to %s", self._prepare["device"], self._prepare["role"])
            self._process = _spawn(self._log)
            threading.Thread(target=_follow, args=(self._process, self._answers), daemon=True).start()
        try:
            answer = self._exchange(self._prepare, _START_TIMEOUT_S)
        except WorkerLostError as lost:
            if self._ended:
                raise
            raise DeviceError(f"no worker process can be started for {self._prepare['device']}: {lost}") from None
        if "message" in answer:
            self._stop()
            raise DeviceError(f"no worker process can be started for {self._prepare['device']}: {answer['message']}")

    def _forget_log(self) -> None:
        """Drop what was said about earlier requests: loopy prints a page for each kernel that it cannot schedule."""
        with contextlib.suppress(OSError, ValueError):
            if self._log is not None:
                self._log.truncate(0)

    def _log_tail(self) -> str:
        try:
            if self._log is None:
                return ""
            self._log.seek(0)
            text = self._log.read().strip()
        except ValueError:  # closed by another thread
            return ""
        return f"; it said: {text[-600:]}" if text else ""


def _spawn(log: IO[str]) -> subprocess.Popen[str]:
    """A worker process, whose unsolicited output goes to `log`."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "feinsum.tune.worker"],  # -P: no module of the working directory gets in
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # so that it can be ended with all that it started, and Ctrl-C is for the tuner alone
    )


def _follow(process: subprocess.Popen[str], answers: queue.SimpleQueue[str | None]) -> None:
    """Move lines that a process writes to a queue, then None when it has ended.

    That is told by the process rather than by its pipe, which children that it left behind may hold open.
    """

    def forward(stream: IO[str]) -> None:
        with stream:
            for line in stream:
                answers.put(line)

    assert process.stdout is not None
    reader = threading.Thread(target=forward, args=(process.stdout,), daemon=True)
    reader.start()
    process.wait()
    signal_group(process, "SIGKILL")
    reader.join(_EXIT_S)
    answers.put(None)


def _ending(code: int) -> str:
    return f"was killed by {_signal_name(code)}" if code < 0 else f"ended with code {code}"


def _signal_name(code: int) -> str:
    """The signal that ended a process; empty if it ended by itself."""
    return signal.Signals(-code).name if code < 0 else ""


def _answer_outcome(answer: dict[str, Any]) -> Outcome:
    samples_s = tuple(answer.get("samples_s", ()))
    return Outcome(answer["status"], answer.get("message", ""), samples_s, answer.get("tainted", False))


def _serve_requests(requests: IO[str], answers: IO[str]) -> None:
    for line in requests:
        answers.write(json.dumps(_answer_request(json.loads(line))) + "\n")
        answers.flush()


def _answer_request(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request; every failure is an answer, too."""
    do = request["do"]
    try:
        if do == "prepare":
            prepare(request["device"], request["role"] == "build")
            return {}
        trial = Trial(**request["trial"])
        result: CompiledTrial | Outcome | None
        if do == "build":
            result = build_trial(trial)
        elif do == "prove":
            result = prove_trial(trial, CompiledTrial.from_json(request["built"]))
        else:
            result = time_trial(trial, **request["how"])
    except Exception as error:
        status = "compile-failed" if do in ("prepare", "build") else "launch-failed"
        # A driver that found no memory may hang at the next call.
        return {"status": status, "message": f"{type(error).__name__}: {error}", "tainted": isinstance(error, MemoryError)}
    if result is None:
        return {}
    return {"built": result.to_json()} if isinstance(result, CompiledTrial) else vars(result)


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends, even if it hangs in a kernel."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _expect_the_worst() -> None:
    """Leave no core file where a trial crashes, and be the first process to be killed where one exhausts the memory."""
    leave_no_core()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def serve_stdin() -> None:
    """Serve requests until the end of the standard input."""
    _die_with_parent()
    _expect_the_worst()
    gc.set_threshold(*_SELDOM)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # compilers write to the standard output what they like
    _serve_requests(sys.stdin, answers)


if __name__ == "__main__":
    serve_stdin()
