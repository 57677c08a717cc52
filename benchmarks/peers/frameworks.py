"""Peers that bring arrays and a compiler of their own: torch, torch.compile and JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from benchmarks.engines.problem import Problem, Values
from benchmarks.peers.base import CORES, Engine, Offer, Work


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

    def functions(self) -> Any:
        """Its own, layer_norm over the last axis."""
        own = self._torch.nn.functional
        return SimpleNamespace(
            torch=self._torch,
            einsum=self._torch.einsum,
            softmax=self._torch.softmax,
            gelu=own.gelu,
            layer_norm=lambda x, gamma, beta: own.layer_norm(x, x.shape[-1:], gamma, beta),
        )

    def offers(self, name: str, work: Work, side: str) -> Iterator[Offer]:
        """As it is called, and compiled."""
        yield from super().offers(name, work, side)
        function = self._torch.compile(partial(work.special.get(name, work.compute), self.functions()))
        held = {key: self.adopt(values.copy(), side) for key, values in work.arrays.items()}
        yield self.offer("torch.compile", partial(function, **held))

    def release(self) -> None:
        if self._cuda:
            self._torch.cuda.empty_cache()

    def wait(self) -> None:
        if self._cuda:
            self._torch.cuda.synchronize()

    def runs_per_sample(self) -> int:
        return self._batch() if self._cuda else 1

    def timed(self, run: Callable[[], object], runs: int) -> float:
        """By events of the stream, where there is one."""
        if not self._cuda:
            return super().timed(run, runs)
        return self.timed_by_events(partial(self._torch.cuda.Event, enable_timing=True), run, runs)

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end))

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

    def functions(self) -> Any:
        """Its own, gelu by the error function, layer_norm over the last axis."""

        def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
            mean = x.mean(-1, keepdims=True)
            variance = ((x - mean) ** 2).mean(-1, keepdims=True)
            return (x - mean) * self._jax.lax.rsqrt(variance + 1e-5) * gamma + beta

        return SimpleNamespace(
            einsum=partial(self._jax.numpy.einsum, optimize="optimal"),
            softmax=self._jax.nn.softmax,
            gelu=partial(self._jax.nn.gelu, approximate=False),
            layer_norm=layer_norm,
        )

    def offers(self, name: str, work: Work, side: str) -> Iterator[Offer]:
        """Compiled; the output, which does not change, is given away to each run."""
        held = {key: self.adopt(values.copy(), side) for key, values in work.arrays.items()}
        outputs = {work.output: held.pop(work.output)} if work.output else {}
        functions = self.functions()
        step = self._jax.jit(lambda out, given: work.compute(functions, **out, **given), donate_argnums=0)

        def run() -> Any:
            self._result = step(outputs, held)
            outputs.update(dict.fromkeys(outputs, self._result))
            return self._result

        yield self.offer(name, run)

    def runs_per_sample(self) -> int:
        return self._batch() if self._on_gpu else 1
