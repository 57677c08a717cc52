"""The tensor language: kernels of work-groups, written with collective linear algebra and single work-items' code.

Its reference is *Tensor language reference* (Intel, 2023), whose rules have names here (:mod:`.rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feinsum.languages.diagnostics import Diagnostic, Findings
from feinsum.languages.source import SourceText
from feinsum.languages.tensor.checking import check_function
from feinsum.languages.tensor.ir import TensorFunction
from feinsum.languages.tensor.printing import show
from feinsum.languages.tensor.reading import read_module as _read

if TYPE_CHECKING:
    from feinsum.languages.calling.protocols import BuildRequest, ProgramRunner
    from feinsum.languages.calling.signature import Signature
    from feinsum.languages.tensor.ir import TensorValue

__all__ = ["build", "interpret", "read", "sample_arguments", "show", "signature", "subject_at"]


def read(source: SourceText, strict: bool) -> tuple[tuple[TensorFunction, ...], tuple[Diagnostic, ...]]:
    """The functions of a text, checked, and its warnings.

    :raises LanguageError: with all that is wrong with it.
    """
    findings = Findings(source)
    functions = _read(source, findings, strict)
    for function in functions:
        check_function(function, findings)
    findings.raise_errors()
    return functions, findings.warnings


def signature(function: TensorFunction) -> Signature[TensorValue]:
    """The parameters of a function."""
    from feinsum.languages.tensor.arguments import signature as found

    return found(function)


def interpret(
    function: TensorFunction, source: SourceText, arguments: Mapping[str, Any], count: int | None, sizes: Mapping[str, Any]
) -> Any:
    """Execute a function with numpy; see :meth:`feinsum.Program.interpret`."""
    from feinsum.languages.tensor.interpreting import execute_kernel

    return execute_kernel(function, source, arguments, count, **sizes)


def build(function: TensorFunction, source: SourceText, request: BuildRequest) -> ProgramRunner:
    """A function made ready for a device; see :func:`feinsum.build`."""
    from feinsum.languages.tensor.running import make

    return make(function, source, request)


def sample_arguments(
    function: TensorFunction, sizes: Mapping[str, int], seed: int, count: int | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Random arguments; see :func:`feinsum.languages.trying.try_out`."""
    from feinsum.languages.tensor.running.samples import tensor_samples as sample

    return sample(function, sizes, seed, count, given)


subject_at = None
"""Its einsums have spaces; a function leaves no numbers to tune."""
