"""The end of a process, at which no thread may be inside a driver.

Python ends a daemon thread where it next asks for the interpreter's lock.  In a function of pyopencl that unwinds frames of
C++ which cannot be unwound, and the process aborts (until Python 3.14, https://github.com/python/cpython/issues/87135).  So
calls of drivers are counted, and the end waits until those of other threads have returned; threads that call a driver later
end there.

The calls of POSIX that end other processes, or prepare for an end, are here too, for Windows lacks them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

P = ParamSpec("P")
T = TypeVar("T")
_PATIENCE_S = 10.0
"""For calls that do not return, as on a device that hangs."""
_PAUSE_S = 1e-3


class Calling:
    """A context around calls of drivers; reentrant, and one for all threads."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}
        self._ending = False

    def __enter__(self) -> None:
        thread = threading.get_ident()
        # Counted before it is asked whether the end has come, and the end asks in the other order.
        depth = self._depths[thread] = self._depths.get(thread, 0) + 1
        if self._ending and depth == 1 and threading.current_thread().daemon:
            del self._depths[thread]
            raise SystemExit

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        thread = threading.get_ident()
        if self._depths.get(thread, 1) == 1:
            self._depths.pop(thread, None)
        else:
            self._depths[thread] -= 1

    @property
    def is_ending(self) -> bool:
        """Whether the process is about to end."""
        return self._ending

    def leave_behind(self, thread: int) -> None:
        """Let the end not wait for a thread that hangs."""
        self._depths.pop(thread, None)

    def end(self) -> None:
        """Let no daemon thread begin another call, and wait for those that have."""
        self._ending = True
        end = time.monotonic() + _PATIENCE_S
        while self._depths.keys() - {threading.get_ident()} and time.monotonic() < end:
            time.sleep(_PAUSE_S)

    def forget(self) -> None:
        """Forget the threads that a process has no more after a fork."""
        here = threading.get_ident()
        self._depths = {thread: depth for thread, depth in self._depths.items() if thread == here}


def submit(pool: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Have a thread of a pool call a function; call it here where pools take nothing more.

    They do not once the main thread has ended, though the process goes on while other threads do.
    """
    try:
        return pool.submit(function, *args, **kwargs)
    except RuntimeError:
        from concurrent.futures import Future

        done: Future[T] = Future()
        try:
            done.set_result(function(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


calling = Calling()
atexit.register(calling.end)


def after_fork(action: Callable[[], object]) -> None:
    """Have every child that is forked begin with an action; there are none on Windows."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


def leave_no_core() -> None:
    """Let this process leave no core file if it crashes."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows writes none
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def signal_group(process: subprocess.Popen[Any], name: str) -> None:
    """Send a signal to a process, started as the leader of its group, and to all that it started.

    :param name: ``"SIGKILL"``, say; where there are no groups the process alone is killed, and other signals are lost.
    """
    with contextlib.suppress(OSError):  # all of them may just have ended
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, name))
        elif name == "SIGKILL":
            process.kill()


after_fork(calling.forget)
