"""Engines: feinsum's peers behind one interface, each run in a process of its own (benchmarks/engines/worker.py).

Each is used as its manual advises for speed: arrays stay where it wants them, compilation and the search for an order of
contraction are done beforehand, and float32 means float32 (no TF32).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.engines.loops import loops_source
from benchmarks.engines.problem import Problem, Values

CORES = len(os.sched_getaffinity(0))
BATCH_S = 5e-3
"""Runs on a GPU are enqueued together for about so long, so that their launches overlap."""


class Engine:
    """Something that evaluates batched einsums.

    A subclass gives :meth:`prepare`, which takes the inputs and returns a function of them, and what else it needs.
    """

    packages: tuple[str, ...] = ()
    sides: tuple[str, ...] = ("cpu",)

    def __init__(self) -> None:
        self._sets: list[dict[str, Any]] = []
        self._evaluate: Callable[[dict[str, Any]], list[Any]] = lambda _: []
        self._result: list[Any] = []
        self._turn = 0
        self._run_s = 0.0

    def versions(self) -> dict[str, str]:
        """The versions of its packages."""
        return {name: importlib.metadata.version(name) for name in self.packages}

    def load(self, problem: Problem, *, ordered: bool = False, **_: Any) -> dict[str, Any]:
        """Take a problem, and do all that needs doing once; returns what is worth telling.

        :param ordered: whether results shall lie in memory as their axes stand in the subscripts; torch, numpy and CuPy
            hand views of products out, whose axes lie in another order.
        """
        self._result = []
        self._sets = []
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

    def first(self) -> float:
        """Seconds of the first evaluation."""
        start = time.perf_counter()
        self._run()
        self.wait()
        self._run_s = time.perf_counter() - start
        return self._run_s

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
        start = time.perf_counter()
        for _ in range(runs):
            self._run()
        self.wait()
        return (time.perf_counter() - start) / runs

    def outputs(self) -> list[Values]:
        """The results of the last evaluation."""
        return [np.asarray(values) for values in self._result]

    def runs_per_sample(self) -> int:
        return 1

    def adopt(self, values: Values, side: str) -> Any:
        """An input as this engine wants it."""
        return values

    def contiguous(self, values: Any) -> Any:
        """An output whose axes lie in memory as they stand in the subscripts."""
        return np.ascontiguousarray(values)

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until all is done that was asked for."""

    def _run(self) -> None:
        self._turn += 1
        self._result = []  # so that its memory can be used again
        self._result = self._evaluate(self._sets[self._turn % len(self._sets)])

    def _batch(self) -> int:
        return max(1, math.ceil(BATCH_S / max(self._run_s, 1e-5)))


class Numpy(Engine):
    """numpy.einsum along the cheapest path; with BLAS where it sees a matrix product."""

    packages = ("numpy",)

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        path = ["einsum_path", *problem.path]
        return lambda a: [np.einsum(problem.subscripts, *(a[x] for x in row), optimize=path) for row in problem.rows]


class OptEinsum(Engine):
    """opt_einsum on numpy along the cheapest path; several outputs share their partial results."""

    packages = ("opt_einsum", "numpy")

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        import opt_einsum

        shapes = [inputs[name].shape for name in problem.rows[0]]
        contract = opt_einsum.contract_expression(problem.subscripts, *shapes, optimize=list(problem.path))

        def evaluate(a: dict[str, Any]) -> list[Any]:
            if len(problem.rows) == 1:
                return [contract(*(a[x] for x in problem.rows[0]))]
            with opt_einsum.shared_intermediates():
                return [contract(*(a[x] for x in row)) for row in problem.rows]

        return evaluate


class Torch(Engine):
    """torch.einsum with opt_einsum's optimal path."""

    packages = ("torch",)
    sides = ("cpu", "gpu")

    def __init__(self) -> None:
        super().__init__()
        import torch

        self._torch = torch
        self._cuda = False
        torch.set_num_threads(CORES)
        torch.set_grad_enabled(False)
        torch.set_float32_matmul_precision("highest")
        if torch.backends.opt_einsum.is_available():
            torch.backends.opt_einsum.strategy = "optimal"

    def adopt(self, values: Values, side: str) -> Any:
        self._cuda = side == "gpu"
        tensor = self._torch.from_numpy(values)
        return tensor.cuda() if self._cuda else tensor

    def contiguous(self, values: Any) -> Any:
        return values.contiguous()

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        einsum = self._torch.einsum
        return lambda a: [einsum(problem.subscripts, *(a[x] for x in row)) for row in problem.rows]

    def wait(self) -> None:
        if self._cuda:
            self._torch.cuda.synchronize()

    def runs_per_sample(self) -> int:
        return self._batch() if self._cuda else 1

    def sample(self, runs: int) -> float:
        if not self._cuda:
            return super().sample(runs)
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(runs):
            self._run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / runs

    def outputs(self) -> list[Values]:
        return [values.cpu().numpy() for values in self._result]


class TorchCompile(Torch):
    """torch.compile of all outputs together."""

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        self._torch._dynamo.reset()
        compiled = self._torch.compile(super().prepare(problem, inputs), dynamic=False)
        compiled(inputs)
        self.wait()
        return compiled  # type: ignore[no-any-return]


class Jax(Engine):
    """jax.jit of all outputs together, each jax.numpy.einsum along the cheapest path."""

    packages = ("jax", "jaxlib")
    sides = ("cpu", "gpu")

    def __init__(self) -> None:
        super().__init__()
        import jax

        jax.config.update("jax_enable_x64", True)
        self._jax = jax
        self._on_gpu = False

    def adopt(self, values: Values, side: str) -> Any:
        self._on_gpu = side == "gpu"
        return self._jax.device_put(values, self._jax.devices(side)[0])

    def contiguous(self, values: Any) -> Any:
        return values  # as all results of XLA are

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        path = list(problem.path)
        einsum = self._jax.numpy.einsum

        def evaluate(a: dict[str, Any]) -> list[Any]:
            return [
                einsum(problem.subscripts, *(a[x] for x in row), optimize=path, precision="highest") for row in problem.rows
            ]

        return self._jax.jit(evaluate).lower(inputs).compile()  # type: ignore[no-any-return]

    def wait(self) -> None:
        self._jax.block_until_ready(self._result)

    def runs_per_sample(self) -> int:
        return self._batch() if self._on_gpu else 1


class Numba(Engine):
    """The loops of :mod:`benchmarks.engines.loops`, compiled in parallel with fast mathematics."""

    packages = ("numba", "numpy")

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        import numba

        scope: dict[str, Any] = {"np": np, "prange": numba.prange}
        exec(compile(loops_source(problem), "<loops>", "exec"), scope)
        shape = tuple(problem.lengths[letter] for letter in problem.output)
        results = [np.empty(shape, problem.dtype) for _ in problem.rows]
        run = numba.njit(parallel=True, fastmath=True)(scope["run"])
        run.compile(tuple(numba.typeof(values) for values in (*inputs.values(), *results)))

        def evaluate(a: dict[str, Any]) -> list[Any]:
            run(*a.values(), *results)
            return results

        return evaluate


class Cupy(Engine):
    """cupy.einsum along the cheapest path; with cuBLAS, and cuTENSOR where it is installed."""

    packages = ("cupy",)
    sides = ("gpu",)

    def __init__(self) -> None:
        super().__init__()
        import cupy

        self._cupy = cupy

    def versions(self) -> dict[str, str]:
        found = {"cupy": self._cupy.__version__}
        with contextlib.suppress(ImportError):
            from cupy_backends.cuda.libs import cutensor

            found["cutensor"] = str(cutensor.get_version())
        return found

    def adopt(self, values: Values, side: str) -> Any:
        return self._cupy.asarray(values)

    def contiguous(self, values: Any) -> Any:
        return self._cupy.ascontiguousarray(values)

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        path = ["einsum_path", *problem.path]
        einsum = self._cupy.einsum
        return lambda a: [einsum(problem.subscripts, *(a[x] for x in row), optimize=path) for row in problem.rows]

    def wait(self) -> None:
        self._cupy.cuda.Device().synchronize()

    def runs_per_sample(self) -> int:
        return self._batch()

    def sample(self, runs: int) -> float:
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record()
        for _ in range(runs):
            self._run()
        end.record()
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(begin, end)) * 1e-3 / runs

    def outputs(self) -> list[Values]:
        return [self._cupy.asnumpy(values) for values in self._result]


PEERS: dict[str, type[Engine]] = {
    "numpy": Numpy,
    "opt_einsum": OptEinsum,
    "torch": Torch,
    "torch_compile": TorchCompile,
    "jax": Jax,
    "numba": Numba,
    "cupy": Cupy,
}
