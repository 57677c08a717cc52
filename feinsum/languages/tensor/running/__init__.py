"""Running: compiled functions on devices, called with arrays of numpy or pyopencl."""

from __future__ import annotations

from typing import Any

from feinsum.devices import Device
from feinsum.errors import FeinsumError
from feinsum.languages.source import Source
from feinsum.languages.tensor.ir import Function
from feinsum.languages.tensor.recognising import UnrecognisedError, steps
from feinsum.languages.tensor.running.auto import AutoKernel
from feinsum.languages.tensor.running.einsums import EinsumKernel
from feinsum.languages.tensor.running.kernel import GeneralKernel


def make(
    function: Function, source: Source, device: Device, *, database: Any, sizes: Any, tune: str, route: str, check: bool
) -> Any:
    """What runs a function by a route; see :func:`feinsum.build`.

    :raises FeinsumError: if it should go the einsum route and cannot.
    """
    if route == "general" or check:
        return GeneralKernel(function, source, device, check)
    try:
        found = steps(function)
        einsum = EinsumKernel(function, source, device, found, database, sizes, tune)
    except UnrecognisedError as error:
        why = f"line {source.place(error.span).line} is no einsum: {error}"
    except FeinsumError as error:
        why = f"its einsums have no kernel: {error}"
    else:
        return einsum if route == "einsum" else AutoKernel(GeneralKernel(function, source, device), einsum)
    if route == "einsum":
        raise FeinsumError(f"@{function.name} cannot go the einsum route: {why}")
    general = GeneralKernel(function, source, device)
    general.why = why
    return general
