"""The declarative language: what the elements of tensors are, and as much of how they are computed as one wants to say.

Its document is *Language specification* (declarative definitions, task reduction, thread scopes); where it leaves something
open or contradicts itself, doc/declarative-language.rst says what holds here.
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

__all__ = ["build", "interpret", "read", "show"]


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


def interpret(
    function: Function, source: Source, arguments: Mapping[str, Any], count: int | None, sizes: Mapping[str, Any]
) -> Any:
    """Execute a program with numpy; see :meth:`feinsum.Program.interpret`."""
    from feinsum.languages.declarative.interpreting import execute

    return execute(function, source, arguments)
