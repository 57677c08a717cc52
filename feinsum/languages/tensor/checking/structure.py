"""Checks of regions: what stands where, loops, yields, and the lifetimes of allocas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from feinsum.languages.diagnostics import counted
from feinsum.languages.tensor.checking.check_report import Check, Report
from feinsum.languages.tensor.checking.signature import warn_of_unused
from feinsum.languages.tensor.definitions import BUILTINS, LINEAR_ALGEBRA, kind_of
from feinsum.languages.tensor.ir import Kind, TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.types import BOOL, UNKNOWN, Boolean, Coopmatrix, TensorScalar, Type

_VIEWS: Final = frozenset({"subview", "expand", "fuse"})
_WITHOUT_RESULT: Final = frozenset(
    (*LINEAR_ALGEBRA, *"foreach parallel lifetime_stop barrier yield store cooperative_matrix_store for if".split())
)


def has_results(operation: TensorOperation) -> bool:
    """Whether an operation has the results that its instruction gives; reading has said so if it has not."""
    return operation.name in _WITHOUT_RESULT or len(operation.results) == 1


def check_region(region: TensorRegion, kind: Kind, report: Report) -> None:
    """Check the places of instructions in a region and in those inside it.

    :param kind: collective or spmd, which a mixed region takes over from the one around it.
    """
    for position, operation in enumerate(region.operations):
        report.span = operation.span
        belongs = kind_of(operation.name, operation.attributes)
        if kind == "spmd" and belongs == "collective":
            report.error(
                "nesting-collective", f"{operation.name} is for all work-items together, and this is an SPMD region"
            )
        elif kind == "collective" and belongs == "spmd":
            name = operation.attributes.get("builtin", operation.name)
            report.error("nesting-spmd", f"{name} is for single work-items: put it into 'parallel {{...}}' or a foreach")
        elif operation.name == "lifetime_stop":
            _check_lifetime(operation, region.operations[:position], region.operations[position + 1 :], report)
        elif operation.name == "store" and kind == "collective" and operation.attributes["atomic"] == "atomic_add":
            report.warn("collective-atomic-add", "every work-item adds here; for one addition, use linear algebra")
        if operation.name == "yield" and not (region.kind == "mixed" and position == len(region.operations) - 1):
            report.error("yield-place", "a yield stands last in a region of 'for' or 'if'")
        for inner in operation.regions:
            check_region(inner, kind if inner.kind == "mixed" else inner.kind, report)
            report.span = operation.span


def _check_lifetime(
    stop: TensorOperation, before: Sequence[TensorOperation], after: Sequence[TensorOperation], report: Report
) -> None:
    if not stop.operands:
        return
    (value,) = stop.operands
    if value.type is not UNKNOWN and not any(op.name == "alloca" and value in op.results for op in before):
        report.error("lifetime-alloca", f"%{value.name} is no alloca of this region", value)
        return
    dead = {value}
    for operation in (inner for outer in before for inner in _all(outer)):
        if operation.name in _VIEWS and operation.operands[:1] and operation.operands[0] in dead:
            dead.update(operation.results)
    for operation in (inner for outer in after for inner in _all(outer)):
        if used := [operand for operand in operation.operands if operand in dead]:
            report.error("lifetime-use", f"the memory of %{used[0].name} has ended", stop.operands[0], span=operation.span)
            return


def _all(operation: TensorOperation) -> list[TensorOperation]:
    return [operation, *(inner for region in operation.regions for inner in region.walk())]


def _is_carried(type_: Type) -> bool:
    return isinstance(type_, (Boolean, TensorScalar, Coopmatrix))


def _check_loop_type(variable: TensorValue, bounds: Sequence[TensorValue], report: Report) -> None:
    type_ = variable.type
    if type_ is UNKNOWN:
        return
    if not (isinstance(type_, TensorScalar) and type_.is_integer):
        report.error("loop-type", f"%{variable.name} is of type {type_}, which is no integer")
    elif wrong := [bound for bound in bounds if bound.type != type_]:
        message = f"%{wrong[0].name} is of type {wrong[0].type}, and %{variable.name} of type {type_}"
        report.error("loop-type", message, wrong[0])


def check_foreach(operation: TensorOperation, report: Report) -> None:
    variables = operation.regions[0].parameters
    count = len(variables)
    for position, variable in enumerate(variables if operation.operands else ()):
        _check_loop_type(variable, (operation.operands[position], operation.operands[count + position]), report)


def check_for(operation: TensorOperation, report: Report) -> None:
    warn_of_unused(operation.annotations, ("unroll",), report)
    if not isinstance(operation.annotations.get("unroll", True), bool):
        report.error("attribute-type", "unroll is true or false")
    variable, *carried = operation.regions[0].parameters
    if operation.operands:
        bounds = operation.loop_bounds
        _check_loop_type(variable, bounds, report)
        for value, begin in zip(carried, operation.operands[len(bounds) :], strict=True):
            if not _is_carried(value.type):
                report.error("loop-carried", f"a loop cannot carry %{value.name}, which is of type {value.type}")
            elif value.type != begin.type:
                message = f"%{value.name} is of type {value.type}, and begins with %{begin.name} of type {begin.type}"
                report.error("loop-carried", message, begin)
    _check_yield(operation.regions[0], [value.type for value in carried], report)


def check_if(operation: TensorOperation, report: Report) -> None:
    (condition,) = operation.operands
    if condition.type != BOOL:
        report.error("if-condition", f"the condition %{condition.name} is of type {condition.type}, not bool", condition)
    for value in operation.results:
        if not _is_carried(value.type):
            report.error("loop-carried", f"an 'if' cannot give %{value.name}, which is of type {value.type}")
    if operation.results and len(operation.regions) == 1:
        report.error("if-else", "an 'if' with results has an else, which yields them too")
    for region in operation.regions:
        _check_yield(region, [value.type for value in operation.results], report)


def _check_yield(region: TensorRegion, types: Sequence[Type], report: Report) -> None:
    """The yield at the end of a region, against the types of what its instruction gives."""
    last = region.operations[-1] if region.operations else None
    if last is None or last.name != "yield":
        if types:
            wanted = ", ".join(map(str, types))
            report.error("yield-missing", f"the region has to end with a yield of ({wanted})")
        return
    found = [value.type for value in last.operands]
    if len(found) != len(types):
        report.error(
            "yield-values", f"a yield of {counted(len(found), 'value')} for {counted(len(types), 'result')}", span=last.span
        )
        return
    for value, wanted_type in zip(last.operands, types, strict=True):
        if value.type != wanted_type and UNKNOWN not in (value.type, wanted_type):
            message = f"%{value.name} is of type {value.type}, and the result of type {wanted_type}"
            report.error("yield-values", message, value, span=last.span)


def check_builtin(operation: TensorOperation, report: Report) -> None:
    name = operation.attributes["builtin"]
    if str(operation.results[0].type) != BUILTINS[name]:
        report.error("builtin-type", f"builtin.{name} is of type {BUILTINS[name]}, not {operation.results[0].type}")


def check_nothing(operation: TensorOperation, report: Report) -> None:
    """For instructions whose rules are all about their place, which :func:`check_region` checks."""


CHECKS: Final[dict[str, Check]] = {
    "foreach": check_foreach,
    "for": check_for,
    "if": check_if,
    "builtin": check_builtin,
    "parallel": check_nothing,
    "lifetime_stop": check_nothing,
    "barrier": check_nothing,
    "yield": check_nothing,
}
