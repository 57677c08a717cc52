"""The automatic route: einsums by record, or else by a race of both routes, on copies of the first call's arrays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from feinsum.languages.calling.protocols import ProgramCall
from feinsum.languages.tensor.running.einsums import EinsumKernel, UnsuitedError, are_equally_far
from feinsum.languages.tensor.running.kernel_route import GeneralKernel
from feinsum.timing.races import run_race

_RACE_S = 0.5
"""When a race is over though it is undecided; of what takes longer than that both are called once."""


class AutoKernel:
    """A function on a device, by the better of two routes.

    :ivar why: why that one.
    """

    def __init__(self, general: GeneralKernel, einsum: EinsumKernel) -> None:
        self.general, self.einsum = general, einsum
        # what is copied first was not measured
        known = einsum.is_recorded and not einsum.copies
        self._chosen: GeneralKernel | EinsumKernel | None = einsum if known else None
        self.why = "its einsums were measured on this device" if known else "it has not been called yet"
        self._lock = threading.Lock()

    @property
    def route(self) -> str:
        """Which one; ``"auto"`` as long as it is not decided."""
        return "auto" if self._chosen is None else self._chosen.route

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of sub-groups and work-groups of the general route."""
        return self.general.sizes

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

    def call(self, call: ProgramCall) -> Any:
        """Run it; arguments that do not suit einsums go the general route."""
        with self._lock:
            if self._chosen is None:
                self._decide(call)
        if self._chosen is self.einsum:
            try:
                return self.einsum.call(call)
            except UnsuitedError:
                pass
        return self.general.call(call)

    def _decide(self, call: ProgramCall) -> None:
        """Race them; whatever the arguments break is raised by the general route."""
        ways: dict[str, EinsumKernel | GeneralKernel] = {"einsum": self.einsum, "general": self.general}

        def sampler(kernel: EinsumKernel | GeneralKernel) -> Callable[[], float]:
            return lambda: _time_s(kernel, copied)

        try:
            copied = call._replace(arguments={name: _copied(value) for name, value in call.arguments.items()})
            for kernel in ways.values():  # the first call may compile or allocate
                _time_s(kernel, copied)
            race = run_race({name: sampler(kernel) for name, kernel in ways.items()}, seconds=_RACE_S)
        except UnsuitedError as error:
            self.why = f"of the first call {error}"
            self._chosen = self.general
            return
        self._chosen = ways[race.leader or "general"]
        self.why = f"both were raced on the arrays of the first call: {race}"


def _time_s(kernel: GeneralKernel | EinsumKernel, call: ProgramCall) -> float:
    start = time.perf_counter()
    _wait_for(kernel.call(call))
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
