"""Where arrays lie, and clocks for calls with them: of a CUDA stream by its events, of the host by its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.measure import Way, alternating, sample_of
from benchmarks.peers import installed_here
from benchmarks.peers.base import Engine
from benchmarks.rows import spread

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

    @cached_property
    def peers(self) -> dict[str, Engine]:
        """Libraries of arrays that are installed and have this side; torch with derivatives."""
        import torch

        found = {name: peer for name, peer in installed_here(("torch", "cupy", "jax")) if peer.has_device(self.name)}
        torch.set_grad_enabled(True)
        for peer in found.values():
            peer.adopt(np.zeros(1), self.name)  # which side it waits for
        return found

    def wait(self) -> None:
        """Wait until all is done that was asked for."""
        self.peers["torch"].wait()
        if not self.on_gpu:
            self.device.queue.finish()

    def tensor(self, value: Any) -> Any:
        """A numpy array as a tensor of torch, on this side."""
        return self.peers["torch"].adopt(value, self.name)

    def compare(self, ways: Mapping[str, Way], sample: Callable[[Way], float]) -> dict[str, dict[str, float]]:
        """Median, spread and least seconds of each way; one sample of each in every round."""
        samples = alternating({name: partial(sample, way) for name, way in ways.items()}, self.rounds)
        return {name: spread(taken) for name, taken in samples.items()}

    def back_to_back(self, way: Way) -> float:
        """Seconds of each of some calls in a row: by the events of the stream on a GPU, until the last is done."""
        runs = self._runs(way)
        self.wait()
        return self.peers["torch"].timed(way, runs) if self.on_gpu else sample_of(way, self.wait, runs)

    def apart(self, way: Way) -> float:
        """Seconds from the call until its result is there, with nothing under way before it."""
        runs = 20 if self._runs(way) > 1 else 1
        return median(sample_of(way, self.wait, 1) for _ in range(runs))

    def returned(self, way: Way) -> float:
        """Seconds until a call returns, of a hundred in a row."""
        self.wait()
        return sample_of(way, lambda: None, 100)

    def _runs(self, way: Way) -> int:
        self.wait()
        return max(1, min(100, round(_SAMPLE_S / sample_of(way, self.wait, 1))))
