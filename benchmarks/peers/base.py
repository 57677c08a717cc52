"""What every engine is: one protocol, answered in a process of its own (benchmarks/engines/worker.py).

Each is used as its manual advises for speed: arrays stay where it wants them, compilation and the search for an order of
contraction are done beforehand, and float32 means float32 (no TF32).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from benchmarks.engines.problem import Problem, Values, read_problem

CORES = len(os.sched_getaffinity(0))
BATCH_S = 5e-3
"""Runs on a GPU are enqueued together for about so long, so that their launches overlap."""


@dataclass(frozen=True)
class Work:
    """What is asked for that is no einsum, written once for all libraries.

    :ivar arrays: the arguments by name.
    :ivar compute: takes the functions of a library (:meth:`Engine.functions`) and its arrays by name; returns the result.
    :ivar output: the argument that takes the result; "" where it is a new array.
    :ivar special: the same by the name of a peer, in the quickest of its ways, and the loops that numba compiles.
    """

    arrays: Mapping[str, Values]
    compute: Callable[..., Any]
    output: str = ""
    special: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


class Offer(NamedTuple):
    """A way in which a peer does some work: what runs it once, what waits for it, and what does both for a numpy array."""

    name: str
    run: Callable[[], Any]
    wait: Callable[[], object]
    fetch: Callable[[], Values]


class Engine:
    """Something that evaluates batched einsums.

    A subclass gives :meth:`prepare`, which takes the inputs and returns a function of them, and what else it needs.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    sides: ClassVar[tuple[str, ...]] = ("cpu",)
    environment: ClassVar[Mapping[str, str]] = {}
    """What its process has in the environment besides what all have."""

    def __init__(self) -> None:
        self._sets: list[dict[str, Any]] = []
        self._evaluate: Callable[[dict[str, Any]], list[Any]] = lambda _: []
        self._result: list[Any] = []
        self._turn = 0
        self._run_s = 0.0

    def hello(self) -> dict[str, Any]:
        """The versions of its packages, and the libraries that it loads."""
        return {"versions": self.versions(), "libraries": self.libraries()}

    def versions(self) -> dict[str, str]:
        """The versions of its packages."""
        return {name: importlib.metadata.version(name) for name in self.packages}

    def libraries(self) -> list[str]:
        """The BLAS libraries that this process has loaded, with their kernel sets and numbers of threads."""
        with contextlib.suppress(ImportError):
            import threadpoolctl

            return [described(found) for found in threadpoolctl.threadpool_info() if found["user_api"] == "blas"]
        return []

    def load(self, directory: str, **how: Any) -> dict[str, Any]:
        """Take the problem in a directory, and do everything that is done once; returns facts worth reporting.

        :param how: see :meth:`take`.
        """
        self.problem = read_problem(directory)
        return self.take(self.problem, **how)

    def check(self) -> dict[str, Any]:
        """How far the results of the last evaluation are off."""
        return {"error_of_bound": self.problem.error(self.outputs())}

    def take(self, problem: Problem, *, ordered: bool = False, **_: Any) -> dict[str, Any]:
        """Take a problem; see :meth:`load`.

        :param ordered: whether results shall lie in memory as their axes stand in the subscripts; torch, numpy and CuPy
            hand views of products out, whose axes lie in another order.
        """
        self._result = []
        self._sets = []
        self.release()
        inputs = problem.inputs()
        self._sets = [{name: self.adopt(values, problem.side) for name, values in inputs.items()}]
        for _copy in range(problem.copies - 1):
            self._sets.append({name: self.adopt(values.copy(), problem.side) for name, values in inputs.items()})
        evaluate = self.prepare(problem, self._sets[0])
        if ordered or problem.moves_only:  # a view of the operand would be no result
            self._evaluate = lambda a: [self.contiguous(values) for values in evaluate(a)]
        else:
            self._evaluate = evaluate
        return {}

    def release(self) -> None:
        """Give the freed memory of a device back, which is kept within a case: engines share a GPU."""

    def first(self) -> dict[str, Any]:
        """Evaluate for the first time."""
        start = time.perf_counter()
        self._run()
        self.wait()
        self._run_s = time.perf_counter() - start
        return {}

    def turn(self, seconds: float) -> dict[str, Any]:
        """Samples for so many seconds, after one evaluation that counts not; at least one.

        :returns: the samples in seconds, and the processor time of this process for an evaluation over the cores.
        """
        self._run()
        self.wait()
        runs = self.runs_per_sample()
        samples: list[float] = []
        start, start_cpu = time.perf_counter(), time.process_time()
        while not samples or time.perf_counter() - start < seconds:
            samples.append(self.sample(runs))
        cpu_s = (time.process_time() - start_cpu) / (runs * len(samples)) / CORES
        return {"samples_s": samples, "cpu_s": cpu_s}

    def sample(self, runs: int) -> float:
        """Seconds of one of so many evaluations in a row."""
        return self.timed(self._run, runs)

    def timed(self, run: Callable[[], object], runs: int) -> float:
        """Seconds of one of so many runs of whatever uses this peer's arrays."""
        start = time.perf_counter()
        for _ in range(runs):
            run()
        self.wait()
        return (time.perf_counter() - start) / runs

    def timed_by_events(self, make: Callable[[], Any], run: Callable[[], object], runs: int) -> float:
        """The time by two events of a stream, made by `make`."""
        begin, end = make(), make()
        begin.record()
        for _ in range(runs):
            run()
        end.record()
        end.synchronize()
        return self.elapsed_ms(begin, end) * 1e-3 / runs

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        raise NotImplementedError

    def outputs(self) -> list[Values]:
        """The results of the last evaluation."""
        return [self.fetch(values) for values in self._result]

    def fetch(self, values: Any) -> Values:
        """An array of this engine as one of numpy."""
        return np.asarray(values)

    def runs_per_sample(self) -> int:
        return 1

    def has_device(self, side: str) -> bool:
        """Whether it can compute on such a device here."""
        return side in self.sides

    def adopt(self, values: Values, side: str) -> Any:
        """An input as this engine wants it."""
        return values

    def contiguous(self, values: Any) -> Any:
        """An output whose axes lie in memory as they stand in the subscripts."""
        return np.ascontiguousarray(values)

    def functions(self) -> Any:
        """What :class:`Work` is written with besides operators: ``einsum`` and, of some, functions of networks."""
        raise NotImplementedError

    def offers(self, name: str, work: Work, side: str) -> Iterator[Offer]:
        """The ways in which this peer, called `name`, does some work, on arrays of its own."""
        held = {key: self.adopt(values.copy(), side) for key, values in work.arrays.items()}
        yield self.offer(name, partial(work.special.get(name, work.compute), self.functions(), **held))

    def offer(self, name: str, run: Callable[[], Any]) -> Offer:
        return Offer(name, run, self.wait, lambda: self.fetch(run()))

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        """By an ``einsum`` that takes a path as numpy's does."""
        path, einsum = ["einsum_path", *problem.path], self.functions().einsum
        return lambda a: [einsum(problem.subscripts, *(a[x] for x in row), optimize=path) for row in problem.rows]

    def wait(self) -> None:
        """Wait until all is done that was asked for."""

    def _run(self) -> None:
        self._turn += 1
        self._result = []  # so that its memory can be used again
        self._result = self._evaluate(self._sets[self._turn % len(self._sets)])

    def _batch(self) -> int:
        return max(1, math.ceil(BATCH_S / max(self._run_s, 1e-5)))


def described(library: Mapping[str, Any]) -> str:
    """A library that threadpoolctl has found, in words.

    >>> described({"internal_api": "openblas", "version": "0.3.31", "architecture": "Haswell", "num_threads": 2})
    'openblas 0.3.31 (Haswell kernels, 2 threads)'
    """
    kernels = [f"{library['architecture']} kernels"] if library.get("architecture") else []
    details = ", ".join([*kernels, f"{library['num_threads']} threads"])
    return f"{library['internal_api']} {library['version']} ({details})"
