"""Running: compiled functions on devices, called with arrays of numpy or pyopencl."""

from __future__ import annotations

from feinsum.errors import FeinsumError
from feinsum.languages.calling.protocols import BuildRequest, ProgramRunner
from feinsum.languages.source import SourceText
from feinsum.languages.tensor.ir import TensorFunction
from feinsum.languages.tensor.recognising import UnrecognisedError, function_steps
from feinsum.languages.tensor.running.auto import AutoKernel
from feinsum.languages.tensor.running.einsums import EinsumKernel
from feinsum.languages.tensor.running.kernel_route import GeneralKernel


def make(function: TensorFunction, source: SourceText, request: BuildRequest) -> ProgramRunner:
    """The runner of a function by a route; see :func:`feinsum.build`.

    :raises FeinsumError: if it should go the einsum route and cannot.
    """
    why = "the kernels of einsums check no index" if request.check else ""
    if not request.check and request.route != "general":
        try:
            einsum = EinsumKernel(function, source, request, function_steps(function))
        except UnrecognisedError as error:
            why = f"line {source.place(error.span).line} is no einsum: {error}"
        except FeinsumError as error:
            why = f"its einsums have no kernel: {error}"
        else:
            return (
                einsum if request.route == "einsum" else AutoKernel(GeneralKernel(function, source, request.device), einsum)
            )
    if request.route == "einsum":
        raise FeinsumError(f"@{function.name} cannot go the einsum route: {why}")
    return GeneralKernel(function, source, request.device, request.check is not None, why=why)
