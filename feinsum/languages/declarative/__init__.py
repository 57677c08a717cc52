"""The declarative language: what the elements of tensors are, and as much of how they are computed as one wants to say.

Its document is *Language specification* (declarative definitions, task reduction, thread scopes); where it leaves something
open or contradicts itself, doc/reference/declarative-language.rst says what holds here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feinsum.languages.declarative.checking import check_program
from feinsum.languages.declarative.printing import show
from feinsum.languages.declarative.reading import read_program as _read
from feinsum.languages.declarative.syntax import Declaration, DeclarativeFunction
from feinsum.languages.diagnostics import Diagnostic, Findings
from feinsum.languages.source import SourceText

if TYPE_CHECKING:
    from feinsum.languages.calling.protocols import BuildRequest, ProgramRunner
    from feinsum.languages.calling.signature import Signature
    from feinsum.tune.subject import Subject

__all__ = ["build", "interpret", "read", "sample_arguments", "show", "signature", "subject_at"]


def read(source: SourceText, strict: bool) -> tuple[tuple[DeclarativeFunction, ...], tuple[Diagnostic, ...]]:
    """The program of a text, checked, and its warnings.

    :raises LanguageError: with all that is wrong with it.
    """
    findings = Findings(source)
    function = _read(source, findings)
    if function is not None:
        check_program(function, findings)
    findings.raise_errors()
    return (function,) if function is not None else (), findings.warnings


def signature(function: DeclarativeFunction) -> Signature[Declaration]:
    """The parameters and results of a program."""
    from feinsum.languages.declarative.interpreting.arguments import signature as found

    return found(function)


def build(function: DeclarativeFunction, source: SourceText, request: BuildRequest) -> ProgramRunner:
    """A program on a device; see :func:`feinsum.build`."""
    from feinsum.languages.declarative.running import build_declarative as make

    return make(function, source, request)


def subject_at(function: DeclarativeFunction, source: SourceText, sizes: Mapping[str, int], name: str) -> Subject:
    """The subject by which the tuner knows a program; see :meth:`feinsum.Program.subject`."""
    from feinsum.languages.declarative.tuning import subject_at as make

    return make(function, source, sizes, name)


def sample_arguments(
    function: DeclarativeFunction, sizes: Mapping[str, int], seed: int, count: int | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Random arguments; see :func:`feinsum.languages.trying.try_out`."""
    from feinsum.languages.declarative.running.samples import declarative_samples as sample

    return sample(function, sizes, seed, given)


def interpret(
    function: DeclarativeFunction,
    source: SourceText,
    arguments: Mapping[str, Any],
    count: int | None,
    sizes: Mapping[str, Any],
) -> Any:
    """Execute a program with numpy; see :meth:`feinsum.Program.interpret`."""
    from feinsum.languages.calling.arguments import refuse_keywords
    from feinsum.languages.declarative.interpreting import execute_program

    refuse_keywords({"count": count, **sizes})
    return execute_program(function, source, arguments)
