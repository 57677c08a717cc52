"""The declarative language: what the elements of tensors are, and as much of how they are computed as one wants to say.

Its document is *Language specification* (declarative definitions, task reduction, thread scopes); where it leaves something
open or contradicts itself, doc/reference/declarative-language.rst says what holds here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feinsum.languages.declarative.checking import check
from feinsum.languages.declarative.printing import show
from feinsum.languages.declarative.reading import read as _read
from feinsum.languages.declarative.syntax import Function
from feinsum.languages.diagnostics import Diagnostic, Findings
from feinsum.languages.source import Source

__all__ = ["build", "interpret", "read", "result_names", "sample_arguments", "show", "subject_at", "written"]


def read(source: Source, strict: bool) -> tuple[tuple[Function, ...], tuple[Diagnostic, ...]]:
    """The program of a text, checked, and its warnings.

    :raises LanguageError: with all that is wrong with it.
    """
    findings = Findings(source)
    function = _read(source, findings)
    if function is not None:
        check(function, findings)
    findings.raise_errors()
    return (function,) if function is not None else (), findings.warnings


def build(function: Function, source: Source, device: Any, **request: Any) -> Any:
    """A program on a device; see :func:`feinsum.build`."""
    from feinsum.languages.declarative.running import build as make

    return make(function, source, device, **request)


def subject_at(function: Function, source: Source, sizes: Mapping[str, int], name: str) -> Any:
    """The subject by which the tuner knows a program; see :meth:`feinsum.Program.subject`."""
    from feinsum.languages.declarative.tuning import subject_at as make

    return make(function, source, sizes, name)


def written(function: Function) -> tuple[str, ...]:
    """The names of parameters that a program writes: none."""
    return ()


def sample_arguments(
    function: Function, sizes: Mapping[str, int], seed: int, count: int | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Random arguments; see :func:`feinsum.languages.trying.try_out`."""
    from feinsum.languages.declarative.running.samples import sample_arguments as sample

    return sample(function, sizes, seed, given)


def result_names(function: Function) -> tuple[str, ...]:
    """The names of what a program returns, which are no arguments of it."""
    return function.results


def interpret(
    function: Function, source: Source, arguments: Mapping[str, Any], count: int | None, sizes: Mapping[str, Any]
) -> Any:
    """Execute a program with numpy; see :meth:`feinsum.Program.interpret`."""
    from feinsum.languages.calling.arguments import refuse_keywords
    from feinsum.languages.declarative.interpreting import execute

    refuse_keywords({"count": count, **sizes})
    return execute(function, source, arguments)
