"""What can be done before a case has its turn on a GPU: inputs, references, and the kernel in the cache on disk."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any

import feinsum as fe
from benchmarks.cases import Case, describe, long_sizes
from benchmarks.engines.problem import write_problem

_WORKERS = "workers"


def pool_of(count: int | None = None, begin: Callable[..., object] | None = None, *arguments: Any) -> ProcessPoolExecutor:
    """A pool of so many processes; by default one for each core.

    They begin anew: a fork would have the threads of JAX and of OpenCL runtimes, which do not survive it.

    :param begin: what each of them calls first, with these arguments.
    """
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=begin, initargs=arguments)


class Ahead:
    """Prepares problems in processes of its own, a few more than there are processes ahead of the one that is taken.

    :param todo: cases and types, in the order in which they will be taken.
    :param how: see :meth:`benchmarks.engines.ours.Feinsum.load`; ``programs``, whether einsums are run as programs, too.
    :param processes: 0 prepares nothing.
    """

    def __init__(
        self, todo: Sequence[tuple[Case, str]], side: str, device: str, how: Mapping[str, Any], processes: int
    ) -> None:
        self._todo, self._what, self._how, self._processes = todo, (side, device), how, processes
        self._futures: dict[int, tuple[Path, Future[None]]] = {}
        self._next = 0

    def __enter__(self) -> Ahead:
        self._stack = contextlib.ExitStack()
        if self._processes:
            self._root = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="feinsum-ahead-")))
            (self._root / _WORKERS).mkdir()
            self._pool = pool_of(self._processes, sign_in, str(self._root / _WORKERS))
            self._stack.callback(self._pool.shutdown, wait=True, cancel_futures=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def take(self, number: int) -> Iterator[str | None]:
        """The directory of a problem, which is gone afterwards; None if it is to be written by who needs it."""
        if not self._processes:
            yield None
            return
        while self._next < min(number + 2 * self._processes, len(self._todo)):
            self._begin(self._next)
            self._next += 1
        directory, future = self._futures.pop(number)
        future.result()
        yield str(directory)
        for file in directory.iterdir():
            file.unlink()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop preparations while something is timed: their proofs and selections run on the device, too.

        On an H200 one turn in ten took 1.2 to 2 times as long as another of the same kernel without it (2026-11-26).
        """
        workers = [int(file.name) for file in (self._root / _WORKERS).iterdir()] if self._processes else []
        try:
            self._tell(workers, signal.SIGSTOP)
            yield
        finally:
            self._tell(workers, signal.SIGCONT)

    @staticmethod
    def _tell(workers: Sequence[int], what: signal.Signals) -> None:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, what)

    def _begin(self, number: int) -> None:
        directory = self._root / str(number)
        directory.mkdir()
        what = (*self._todo[number], *self._what, str(directory), dict(self._how))
        self._futures[number] = directory, self._pool.submit(prepare, *what)


def sign_in(workers: str) -> None:
    """Leave a file with the number of this process, by which it is stopped."""
    Path(workers, str(os.getpid())).touch()


def prepare(case: Case, dtype: str, side: str, device: str, directory: str, how: Mapping[str, Any]) -> None:
    """Write a problem, and have its kernel generated; what fails now fails again, and is told, when its turn comes."""
    from benchmarks.engines.ours import unseen

    e, sizes = describe(case, side, dtype, long=True), long_sizes(case, side)
    chosen = fe.device(device)
    write_problem(directory, e, sizes, side=side, device=chosen)
    with contextlib.suppress(fe.FeinsumError, ValueError), unseen(e) if how.get("hidden") else contextlib.nullcontext():
        fe.generate(e, chosen, how.get("database"), sizes)
        if how.get("programs"):
            from benchmarks.engines.programs import Language

            engine = Language()
            engine.load(directory, **how)
            engine.first()
