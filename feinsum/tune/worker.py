"""Worker processes: a trial that hangs, crashes or eats the memory takes its worker down, never the tuner.

A worker is ``python -m feinsum.tune.worker``.  It reads requests, one JSON object a line, from its standard input and
answers each with one line.  It ends with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from feinsum.tune.trial import Built, Outcome, Trial, build_trial, measure_trial


class WorkerLostError(Exception):
    """A worker that gave no answer.

    :ivar timed_out: whether it was killed because its time was up; otherwise it died by itself.
    """

    def __init__(self, message: str, timed_out: bool) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class Worker:
    """A worker process, started at the first request and again after it was lost.  Used by one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._log: IO[str] | None = None

    def build(self, trial: Trial, timeout_s: float) -> Built | Outcome:
        """See :func:`feinsum.tune.trial.build_trial`; a lost worker is an outcome."""
        try:
            answer = self._ask({"do": "build", "trial": trial.to_json()}, timeout_s)
        except WorkerLostError as lost:
            return Outcome("timeout" if lost.timed_out else "compile-failed", str(lost))
        return Built.from_json(answer["built"]) if "built" in answer else _outcome(answer)

    def measure(self, trial: Trial, built: Built, timeout_s: float, **how: float) -> Outcome:
        """See :func:`feinsum.tune.trial.measure_trial`; a lost worker is an outcome."""
        request = {"do": "measure", "trial": trial.to_json(), "built": built.to_json(), "how": how}
        try:
            return _outcome(self._ask(request, timeout_s))
        except WorkerLostError as lost:
            return Outcome("timeout" if lost.timed_out else "launch-failed", str(lost))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._log):
                if stream is not None:
                    stream.close()
            self._process = None

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        process = self._process or self._start()
        try:
            assert process.stdin is not None  # a pipe, by construction
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self.close()
            raise WorkerLostError(f"no answer within {timeout_s:g} s", timed_out=True) from None
        except BrokenPipeError:
            line = None
        if line is None:
            code = process.wait()
            message = f"the process {_ending(code)}{self._log_tail()}"
            self.close()
            raise WorkerLostError(message, timed_out=False)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[str]:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed with the process)
        self._answers = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "feinsum.tune.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        threading.Thread(target=_forward, args=(self._process.stdout, self._answers), daemon=True).start()
        return self._process

    def _log_tail(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        text = self._log.read().strip()
        return f"; it said: {text[-600:]}" if text else ""


def _forward(stream: IO[str], answers: queue.SimpleQueue[str | None]) -> None:
    """Move lines to a queue, then None at the end of the stream."""
    try:
        for line in stream:
            answers.put(line)
    except ValueError:  # closed while reading
        pass
    answers.put(None)


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _outcome(answer: dict[str, Any]) -> Outcome:
    return Outcome(answer["status"], answer.get("message", ""), tuple(answer.get("samples_s", ())))


def _serve(requests: IO[str], answers: IO[str]) -> None:
    for line in requests:
        request = json.loads(line)
        trial = Trial(**request["trial"])
        if request["do"] == "build":
            result = build_trial(trial)
        else:
            result = measure_trial(trial, Built.from_json(request["built"]), **request["how"])
        answer = {"built": result.to_json()} if isinstance(result, Built) else vars(result)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends, even if it hangs in a kernel."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main() -> None:
    """Serve requests until the end of the standard input."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tuner, which then closes its workers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # compilers write to the standard output what they like
    _serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
