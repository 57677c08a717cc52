"""Reports of the errors that checks find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from feinsum.languages.diagnostics import Findings, Note
from feinsum.languages.source import Span
from feinsum.languages.tensor.ir import TensorOperation, TensorValue


class Report:
    """The report of errors, at the instruction that is being checked (`span`) unless a check names a place.

    :ivar constants: the values of the results of `constant`.
    """

    def __init__(self, findings: Findings, constants: Mapping[TensorValue, object]) -> None:
        self._findings = findings
        self.constants = constants
        self.span = Span(0, 0)

    def error(self, rule: str, message: str, *about: TensorValue, span: Span | None = None) -> None:
        """Say that a rule is broken, and where the values it is about are defined."""
        self._findings.error(rule, span or self.span, message, self._notes(about))

    def warn(self, rule: str, message: str, *about: TensorValue, span: Span | None = None) -> None:
        """Say what is allowed and probably not meant."""
        self._findings.warn(rule, span or self.span, message, self._notes(about))

    def _notes(self, values: tuple[TensorValue, ...]) -> list[Note]:
        return [self._findings.note(f"%{value.name}: {value.type}", value.span) for value in dict.fromkeys(values)]


Check: TypeAlias = Callable[[TensorOperation, Report], None]
"""Compares an operation with the rules of its instruction; the types of its operands and results are known."""
