"""Peers on arrays of CuPy: cuBLAS, and cuTENSOR where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.engines.problem import Values
from benchmarks.peers.base import Engine


class Cupy(Engine):
    """cupy.einsum along the cheapest path, with cuBLAS."""

    packages = ("cupy",)
    sides = ("gpu",)
    environment = {"CUPY_ACCELERATORS": "cub"}  # noqa: RUF012 (a constant of the class)

    def __init__(self) -> None:
        super().__init__()
        import cupy

        self._cupy = cupy

    def versions(self) -> dict[str, str]:
        return {"cupy": self._cupy.__version__}

    def adopt(self, values: Values, side: str) -> Any:
        return self._cupy.asarray(values)

    def contiguous(self, values: Any) -> Any:
        return self._cupy.ascontiguousarray(values)

    def functions(self) -> Any:
        return self._cupy

    def release(self) -> None:
        self._cupy.get_default_memory_pool().free_all_blocks()

    def wait(self) -> None:
        self._cupy.cuda.Device().synchronize()

    def runs_per_sample(self) -> int:
        return self._batch()

    def timed(self, run: Callable[[], object], runs: int) -> float:
        """By events of the stream."""
        return self.timed_by_events(self._cupy.cuda.Event, run, runs)

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        return float(self._cupy.cuda.get_elapsed_time(begin, end))

    def fetch(self, values: Any) -> Values:
        return self._cupy.asnumpy(values)  # type: ignore[no-any-return]


class Cutensor(Cupy):
    """cupy.einsum along the cheapest path, with cuTENSOR."""

    environment = {"CUPY_ACCELERATORS": "cub,cutensor"}  # noqa: RUF012 (a constant of the class)

    def __init__(self) -> None:
        super().__init__()
        # without it CuPy falls back to cuBLAS in silence
        from cupy_backends.cuda.libs import cutensor

        self._version = str(cutensor.get_version())

    def versions(self) -> dict[str, str]:
        return super().versions() | {"cutensor": self._version}
