"""The immediate language: programs of loops over matrix products on items of batches, as YATeTo's code generator wrote it.

Its reference is *YATeTo immediate language reference* (Intel, 2023), whose rules have names here (:mod:`.rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feinsum.languages.diagnostics import Diagnostic, Findings
from feinsum.languages.immediate.initialized import check_initialized
from feinsum.languages.immediate.notation import ImmediateNotation
from feinsum.languages.immediate.printing import show
from feinsum.languages.immediate.reading import read_functions as _read
from feinsum.languages.immediate.resolve import resolve_names
from feinsum.languages.immediate.rules import WAYS_OUT
from feinsum.languages.immediate.syntax import ImmediateFunction, ImmediateParameter
from feinsum.languages.source import SourceText

if TYPE_CHECKING:
    from feinsum.languages.calling.protocols import BuildRequest, ProgramRunner
    from feinsum.languages.calling.signature import Signature

__all__ = ["build", "interpret", "read", "sample_arguments", "show", "signature", "subject_at"]


def read(source: SourceText, strict: bool) -> tuple[tuple[ImmediateFunction, ...], tuple[Diagnostic, ...]]:
    """The functions of a text, checked, and its warnings.

    :raises LanguageError: with all that is wrong with it.
    """
    findings = Findings(source, WAYS_OUT)
    notation = ImmediateNotation(findings, strict)
    found = [resolve_names(reading, notation) for reading in _read(source, findings, strict)]
    for one in found:
        check_initialized(one, findings)
    findings.raise_errors()
    return tuple(one.function for one in found), findings.warnings


def signature(function: ImmediateFunction) -> Signature[ImmediateParameter]:
    """The parameters of a function."""
    from feinsum.languages.immediate.arguments import signature as found

    return found(function)


def build(function: ImmediateFunction, source: SourceText, request: BuildRequest) -> ProgramRunner:
    """A function made ready for a device; see :func:`feinsum.build`."""
    from feinsum.languages.immediate.kernels import build_immediate as _build

    return _build(function, source, request)


def interpret(
    function: ImmediateFunction,
    source: SourceText,
    arguments: Mapping[str, Any],
    count: int | None,
    sizes: Mapping[str, Any],
) -> Any:
    """Execute a function with numpy; see :meth:`feinsum.Program.interpret`."""
    from feinsum.languages.calling.arguments import refuse_keywords
    from feinsum.languages.immediate.interpreting import execute_function

    refuse_keywords(sizes)
    return execute_function(function, arguments, count)


def sample_arguments(
    function: ImmediateFunction, sizes: Mapping[str, int], seed: int, count: int | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Random arguments; see :func:`feinsum.languages.trying.try_out`."""
    from feinsum.languages.immediate.samples import immediate_samples as sample

    return sample(function, sizes, seed, count, given)


subject_at = None
"""Its einsums have spaces; a function leaves no numbers to tune."""
