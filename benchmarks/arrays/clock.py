"""Clocks for calls with arrays: of a CUDA stream by its events, of the host by its own, always in turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import feinsum as fe

Way = Callable[[], object]

_SAMPLE_S = 5e-3
"""Calls that take less are repeated for so long in one sample."""


@dataclass(frozen=True)
class Side:
    """Where the arrays are.

    :ivar name: ``"cpu"`` or ``"gpu"``.
    :ivar rounds: samples of each way.
    """

    name: str
    device: fe.Device
    rounds: int

    @property
    def on_gpu(self) -> bool:
        """Whether arrays are in the memory of a CUDA device."""
        return self.name == "gpu"

    def wait(self) -> None:
        """Wait until all is done that was asked for."""
        if self.on_gpu:
            import torch

            torch.cuda.synchronize()
        else:
            self.device.queue.finish()

    def tensor(self, value: Any) -> Any:
        """A numpy array as a tensor of torch, on this side."""
        import torch

        found = torch.from_numpy(value)
        return found.cuda() if self.on_gpu else found

    def compare(self, ways: Mapping[str, Way], sample: Callable[[Way], float]) -> dict[str, dict[str, float]]:
        """Median, spread and least seconds of each way; one sample of each in every round, in another order each time."""
        order, rng = list(ways.items()), random.Random(0)
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for way in ways.values():
            sample(way)
        for _ in range(self.rounds):
            rng.shuffle(order)
            for name, way in order:
                samples[name].append(sample(way))
        return {name: _figures(taken) for name, taken in samples.items()}

    def back_to_back(self, way: Way) -> float:
        """Seconds of each of some calls in a row: by the events of the stream on a GPU, until the last is done."""
        runs = self._runs(way)
        self.wait()
        if not self.on_gpu:
            start = time.perf_counter()
            for _ in range(runs):
                way()
            self.wait()
            return (time.perf_counter() - start) / runs
        import torch

        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(runs):
            way()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3 / runs

    def apart(self, way: Way) -> float:
        """Seconds from the call until its result is there, with nothing under way before it."""
        taken = []
        for _ in range(20 if self._runs(way) > 1 else 1):
            self.wait()
            start = time.perf_counter()
            way()
            self.wait()
            taken.append(time.perf_counter() - start)
        return median(taken)

    def returned(self, way: Way) -> float:
        """Seconds until a call returns, of a hundred in a row."""
        self.wait()
        start = time.perf_counter()
        for _ in range(100):
            way()
        return (time.perf_counter() - start) / 100

    def _runs(self, way: Way) -> int:
        self.wait()
        start = time.perf_counter()
        way()
        self.wait()
        return max(1, min(100, round(_SAMPLE_S / (time.perf_counter() - start))))


def _figures(samples: list[float]) -> dict[str, float]:
    middle = median(samples)
    found = {"median_s": middle, "mad_s": median(abs(s - middle) for s in samples), "least_s": min(samples)}
    return {name: float(f"{value:.4g}") for name, value in found.items()}
