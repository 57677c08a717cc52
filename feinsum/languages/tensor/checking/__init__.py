"""Checking: every rule of the reference about types, shapes and places, one function for each instruction.

Checks know nothing of each other, and what has an unknown type is not checked, so that all that is wrong is said at once,
and nothing twice.
"""

from __future__ import annotations

from typing import Final

from feinsum.languages.diagnostics import Findings
from feinsum.languages.tensor.checking import linear_algebra, matrices, scalars, structure, views
from feinsum.languages.tensor.checking.check_report import Check, Report
from feinsum.languages.tensor.checking.signature import check_signature
from feinsum.languages.tensor.checking.uniformity import check_uniformity
from feinsum.languages.tensor.definitions import DEFINITIONS
from feinsum.languages.tensor.ir import TensorFunction
from feinsum.languages.tensor.types import UNKNOWN

CHECKS: Final[dict[str, Check]] = {
    **linear_algebra.CHECKS,
    **scalars.CHECKS,
    **views.CHECKS,
    **matrices.CHECKS,
    **structure.CHECKS,
}
"""The check of each instruction."""


def check_function(function: TensorFunction, findings: Findings) -> None:
    """Put into `findings` what is wrong with a function whose text could be read."""
    operations = list(function.body.walk())
    constants = {op.results[0]: op.attributes["value"] for op in operations if op.name == "constant" and op.results}
    report = Report(findings, constants)
    check_signature(function, report)
    structure.check_region(function.body, "collective", report)
    for operation in operations:
        values = operation.operands + operation.results
        if any(value.type is UNKNOWN for value in values):
            continue
        # where the number of operands or results is wrong, reading has said so
        if len(operation.operands) >= len(DEFINITIONS[operation.name].roles) and structure.has_results(operation):
            report.span = operation.span
            CHECKS[operation.name](operation, report)
    check_uniformity(function, report)
