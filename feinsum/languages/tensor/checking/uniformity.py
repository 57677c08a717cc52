"""Uniformity: which values may differ between work-items, uniform < sub-group < varying, by one pass over a function.

Sources are `builtin.subgroup_id` (the same in a sub-group), `builtin.subgroup_local_id` and the variables of a `foreach`
(different everywhere); what is computed from values is as varying as they are, or as what decides whether it is computed.
"""

from __future__ import annotations

from typing import Final

from feinsum.languages.tensor.checking.check_report import Report
from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorRegion, TensorValue

UNIFORM, SUBGROUP, VARYING = 0, 1, 2

_BUILTINS: Final = {"subgroup_id": SUBGROUP, "subgroup_local_id": VARYING}
_UNIFORM_IN_SUBGROUP: Final = {
    "cooperative_matrix_load": slice(1, 3),
    "cooperative_matrix_store": slice(2, 4),
    "subgroup_broadcast": slice(1, 2),
}
"""Operands that are the same in a sub-group."""


def check_uniformity(function: TensorFunction, report: Report) -> None:
    """Warn of barriers that not all work-items may meet, and of varying operands that should not vary."""
    _visit(function.body, UNIFORM, {}, report)


def levels(function: TensorFunction) -> dict[TensorValue, int]:
    """How each value that is not uniform varies."""
    found: dict[TensorValue, int] = {}
    _visit(function.body, UNIFORM, found, None)
    return found


def _visit(region: TensorRegion, control: int, found: dict[TensorValue, int], report: Report | None) -> int:
    """Visit a region that is entered as `control` varies; the level of what it yields."""
    for operation in region.operations:
        operands = max((found.get(value, UNIFORM) for value in operation.operands), default=UNIFORM)
        level = operands
        name = operation.name
        if name == "builtin":
            level = _BUILTINS.get(operation.attributes["builtin"], UNIFORM)
        elif name == "subgroup_broadcast" or operation.attributes.get("scan") == "reduce":
            level = min(operands, SUBGROUP)
        elif name.startswith("subgroup_"):
            level = VARYING
        if report is not None:
            report.span = operation.span
            _warn_divergence(operation, control, found, report)
        if operation.regions:
            level = _visit_inside(operation, level, control, found, report)
        if level:
            found.update(dict.fromkeys(operation.results, level))
        if name == "yield":
            return max(level, control)
    return UNIFORM


def _visit_inside(
    operation: TensorOperation, level: int, control: int, found: dict[TensorValue, int], report: Report | None
) -> int:
    """Visit the regions of an operation whose operands vary by `level`."""
    if operation.name in ("parallel", "foreach"):
        inside = VARYING if operation.name == "foreach" else UNIFORM
        for region in operation.regions:
            found.update(dict.fromkeys(region.parameters, VARYING))
            _visit(region, inside, found, report)
        return UNIFORM
    if operation.name == "for":
        (region,) = operation.regions
        variable, *carried = region.parameters
        bounds = operation.loop_bounds
        trips = max((found.get(value, UNIFORM) for value in bounds), default=UNIFORM)
        # what a loop carries is as varying as what it yields, which depends on what it carries: levels only rise
        known = level
        while True:
            found.update({variable: trips, **dict.fromkeys(carried, known)})
            yielded = max(_visit(region, max(control, trips), found, None), known)
            if yielded == known:
                break
            known = yielded
        if report is not None:
            _visit(region, max(control, trips), found, report)
        return max(known, trips)
    condition = max(control, level)
    return max((_visit(region, condition, found, report) for region in operation.regions), default=level)


def _warn_divergence(operation: TensorOperation, control: int, found: dict[TensorValue, int], report: Report) -> None:
    if operation.name == "barrier" and control:
        report.warn("barrier-varying", "whether this barrier is met may differ between work-items, and all have to meet it")
    if operation.name in _UNIFORM_IN_SUBGROUP:
        for value in operation.operands[_UNIFORM_IN_SUBGROUP[operation.name]]:
            if found.get(value, UNIFORM) == VARYING:
                report.warn("uniform", f"%{value.name} may differ between the work-items of a sub-group", value)
