"""The automatic route: einsums by record, or else by timing both routes once, on copies of the first call's arrays."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from feinsum.languages.tensor.running.einsums import EinsumKernel, UnsuitedError, are_equally_far
from feinsum.languages.tensor.running.kernel import GeneralKernel

_CALLS = 4
"""Of each route, of which the quickest counts; the first may compile or allocate."""


class AutoKernel:
    """A function on a device, by the better of two routes.

    :ivar why: why that one.
    """

    def __init__(self, general: GeneralKernel, einsum: EinsumKernel) -> None:
        self.general, self.einsum = general, einsum
        # what is copied first was not measured
        known = einsum.is_recorded and not einsum.copies
        self._chosen: GeneralKernel | EinsumKernel | None = einsum if known else None
        self.why = "its einsums were measured on this device" if known else "nobody has called it yet"
        self._lock = threading.Lock()

    @property
    def route(self) -> str:
        """Which one; ``"auto"`` as long as it is not decided."""
        return "auto" if self._chosen is None else self._chosen.route

    @property
    def source(self) -> str:
        """The OpenCL C source of the route that was chosen, or of the general one."""
        return (self._chosen or self.general).source

    def ir(self, name: str | None = None) -> str:
        """The function behind a pass of the general route."""
        return self.general.ir(name)

    def explain(self) -> str:
        """Which route and why."""
        return f"{(self._chosen or self.einsum).explain()}\nroute: {self.route}, as {self.why}"

    def call(self, arguments: Mapping[str, Any], count: int | None, queue: Any, wait_for: Any) -> Any:
        """Run it; arguments that do not suit einsums go the general route."""
        with self._lock:
            if self._chosen is None:
                self._decide(arguments, count, queue, wait_for)
        if self._chosen is self.einsum:
            try:
                return self.einsum.call(arguments, count, queue, wait_for)
            except UnsuitedError:
                pass
        return self.general.call(arguments, count, queue, wait_for)

    def _decide(self, arguments: Mapping[str, Any], count: int | None, queue: Any, wait_for: Any) -> None:
        """Time both; whatever the arguments break is raised by the general route."""
        samples: dict[str, list[float]] = {"einsum": [], "general": []}
        try:
            copies = {name: _copied(value) for name, value in arguments.items()}
            # in turn, so that what else the machine does slows both
            for _ in range(_CALLS):
                for kernel in (self.einsum, self.general):
                    samples[kernel.route].append(_time_s(kernel, copies, count, queue, wait_for))
        except UnsuitedError as error:
            self.why = f"of the first call {error}"
            self._chosen = self.general
            return
        einsum_s, general_s = min(samples["einsum"]), min(samples["general"])
        self._chosen = self.einsum if einsum_s <= general_s else self.general
        self.why = (
            f"the first call took {einsum_s * 1e6:.0f} us by einsums and {general_s * 1e6:.0f} us by the general route"
        )


def _time_s(
    kernel: GeneralKernel | EinsumKernel, arguments: Mapping[str, Any], count: int | None, queue: Any, wait_for: Any
) -> float:
    start = time.perf_counter()
    _wait_for(kernel.call(arguments, count, queue, wait_for))
    return time.perf_counter() - start


def _wait_for(result: Any) -> None:
    for one in result if isinstance(result, tuple | list) else (result,):
        if isinstance(one, tuple | list):
            _wait_for(one)
        for event in getattr(one, "events", ()):
            event.wait()


def _copied(value: Any) -> Any:
    """An argument of its own; the arrays of a group stay as far from each other as they are.

    :raises UnsuitedError: if it is a device array with gaps, which no library copies in one piece.
    """
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if isinstance(value, list | tuple):
        arrays = list(value)
        if len(arrays) > 1 and all(isinstance(one, np.ndarray) for one in arrays) and are_equally_far(arrays):
            whole = np.stack([one.T for one in arrays])
            return [whole[number].T for number in range(len(arrays))]
        return [_copied(one) for one in arrays]
    flags = getattr(value, "flags", None)
    if flags is not None and not flags.forc:
        raise UnsuitedError("an array on the device has gaps")
    return value.copy() if hasattr(value, "copy") else value
