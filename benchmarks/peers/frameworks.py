"""Peers that bring arrays and a compiler of their own: torch, torch.compile and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.engines.problem import Problem, Values
from benchmarks.peers.base import CORES, Engine


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

    def libraries(self) -> list[str]:
        """The MKL inside torch, which threadpoolctl does not see."""
        blas = [line.strip(" -") for line in self._torch.__config__.show().splitlines() if "Math Kernel Library" in line]
        return [f"{name} ({CORES} threads)" for name in blas] or super().libraries()

    def has_device(self, side: str) -> bool:
        return side == "cpu" or bool(self._torch.cuda.is_available())

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

    def fetch(self, values: Any) -> Values:
        return values.cpu().numpy()  # type: ignore[no-any-return]


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
        jax.config.update("jax_default_matmul_precision", "highest")
        self._jax = jax
        self._on_gpu = False

    def has_device(self, side: str) -> bool:
        return side == "cpu" or bool(self._jax.default_backend() == side)

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

    def following(self, function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        """A function compiled, whose last result :meth:`wait` waits for."""
        compiled = self._jax.jit(function, **how)

        def run(*arguments: Any) -> Any:
            self._result = compiled(*arguments)
            return self._result

        return run

    def runs_per_sample(self) -> int:
        return self._batch() if self._on_gpu else 1
