"""Work apart: candidates are made on a thread of their own, so that signals stay the caller's and every wait has an end.

Python runs signal handlers in the main thread alone, between any two instructions.  What a handler raises there would look
like an error of the candidate that is being made; where callbacks of C or ``__del__`` swallow it, it would be lost.  So the
thread of the caller only waits::

    caller    waits ........................ result, or what a handler raised
    apart     space A? | space B? | write | build | prove

What a space answers, and each step of making a kernel, is a :class:`TimedStep` with a time limit.  A
subject that exceeds it is left out from then on: its thread is left behind, and the work begins again
without it.
"""

from __future__ import annotations

import atexit
import contextvars
import ctypes
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from feinsum.effects import leave_behind
from feinsum.ending import calling
from feinsum.errors import SpaceError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

VARIABLE = "FEINSUM_CANDIDATE_TIMEOUT"
"""The environment variable with the seconds that each step of making a kernel may take."""
DEFAULT_S = 60.0
_ANSWER_SHARE = 3
"""A space has to answer a question in a third of that time."""
_TICK_S = 0.05
"""Waiting is counted in these, so that a process that was stopped meanwhile has not waited.  Of each tick only that part
counts in which the thread did not wait for a processor, so that other processes make no task late."""


class Abandoned(BaseException):
    """Ends a thread whose result is not wanted any more."""


class TimedStep:
    """A context in which a subject answers, or is made, within a time limit.

    :param subject: what is left out if it takes longer.
    :param task: what takes the time, for the log.
    :param answer: whether it is an answer of a space, which takes milliseconds.
    :raises Abandoned: if its result is not wanted any more.
    """

    def __init__(self, subject: Hashable, task: str, *, answer: bool = False) -> None:
        self.subject, self.task = subject, task
        self.limit_s = limit_s() / (_ANSWER_SHARE if answer else 1)
        self.waited_s = 0.0
        self._work: _ThreadTask | None = None

    def __enter__(self) -> TimedStep:
        self._work = getattr(_here, "work", None)
        if self._work is not None:
            if self._work.abandoned:
                raise Abandoned
            self._work.steps.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._work is not None:
            self._work.steps.remove(self)


_here = threading.local()
_overdue: set[Hashable] = set()
_working: weakref.WeakSet[_ThreadTask] = weakref.WeakSet()


def limit_s() -> float:
    """The seconds that each step of making a kernel may take."""
    text = os.environ.get(VARIABLE, "").strip()
    try:
        seconds = float(text or DEFAULT_S)
    except ValueError:
        seconds = 0.0
    if seconds > 0:
        return seconds
    logger.warning("%s=%r is not a number of seconds; using the default, %g", VARIABLE, text, DEFAULT_S)
    return DEFAULT_S


class remembered(Generic[T]):  # noqa: N801  # read like functools.cached_property
    """A property that is worked out once for each object, for what may ask a space.

    ``functools.cached_property`` of Python 3.11 has one lock for all objects, which a space that hangs would hold for ever.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        found = instance.__dict__[self._function.__name__] = self._function(instance)
        return found


def is_overdue(subject: Hashable) -> bool:
    """Whether a subject exceeded its time limit in this process."""
    return subject in _overdue


def none_overdue() -> bool:
    """Whether nothing was left out in this process so far."""
    return not _overdue


def run_in_thread(task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a task that a thread of its own does, while this one waits; what this one raises ends the wait at once.

    The task begins anew if a step takes too long, so it asks :func:`is_overdue` first and can be done twice.

    :raises SpaceError: if a step takes too long whose subject is not left out.
    """
    if getattr(_here, "work", None) is not None or calling.is_ending:
        return task(*args, **kwargs)
    while True:
        work = _ThreadTask(lambda: task(*args, **kwargs))
        try:
            if not work.start():
                return task(*args, **kwargs)
            late = work.wait()
        except BaseException:
            work.abandoned = True
            raise
        if late is None:
            result: T = work.result()
            return result
        work.leave_behind(late)
        message = f"{late.task} took longer than {late.limit_s:g} s, the limit that {VARIABLE} sets"
        if is_overdue(late.subject):
            raise SpaceError(message)
        logger.warning("%s; it is left out", message)
        _overdue.add(late.subject)


class _ThreadTask:
    """A task on a thread of its own.

    :ivar steps: those that it is in, outer ones first.
    :ivar abandoned: whether its result is not wanted any more.
    """

    def __init__(self, task: Callable[[], Any]) -> None:
        self._task = task
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self.steps: list[TimedStep] = []
        self.abandoned = False
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._do,), daemon=True, name="feinsum-apart")

    def _do(self) -> None:
        _here.work = self
        try:
            with calling:
                self._result = self._task()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def start(self) -> bool:
        """Whether a thread can be started: not at the end of the process, nor where there are too many."""
        _working.add(self)
        try:
            self._thread.start()
        except RuntimeError:
            return False
        return True

    def wait(self) -> TimedStep | None:
        """Wait for the end; the step that takes too long if there is one."""
        before, delayed = time.monotonic(), _delay_s(self._thread)
        while not self._done.wait(_TICK_S):
            asked = list(self.steps)
            now, delay = time.monotonic(), _delay_s(self._thread)
            share = min(1.0, max(0.0, 1 - (delay - delayed) / (now - before)))
            before, delayed = now, delay
            for step in asked:
                step.waited_s += _TICK_S * share
            if any(step.waited_s > step.limit_s for step in asked):
                # The innermost is to blame, unless it has only just begun.
                return next(step for step in reversed(asked) if step.waited_s > step.limit_s / 2)
        return None

    def result(self) -> Any:
        """The value that the task returned.

        :raises BaseException: what it raised.
        """
        error, self._error = self._error, None
        if error is None:
            return self._result
        if self.abandoned:  # the process ends, and with it the daemon thread that waits for this one
            raise SystemExit
        try:
            raise error
        finally:
            del error  # whose traceback holds this frame

    def leave_behind(self, late: TimedStep) -> None:
        """Let the thread end where it next runs Python, and the process end without it."""
        self.abandoned, thread = True, self._thread.ident
        if thread is None or late not in self.steps:  # it ends by itself
            return
        calling.leave_behind(thread)
        leave_behind(thread)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Abandoned))


def _delay_s(thread: threading.Thread) -> float:
    """The seconds that a thread has waited for a processor, where Linux tells; else 0."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _abandon_all() -> None:
    for work in list(_working):
        work.abandoned = True


atexit.register(_abandon_all)
