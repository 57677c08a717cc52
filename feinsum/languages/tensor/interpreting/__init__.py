"""Interpreting: programs executed by numpy, one work-group instance after the other; the oracle of everything faster.

Linear algebra is computed in double precision and rounded once, all else is rounded after every instruction.  Memory is
poisoned before it is written, and what the language leaves undefined is an error with a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from feinsum.errors import ValidationError
from feinsum.languages.source import SourceText
from feinsum.languages.tensor.arguments import indexed_by_group, instance_count, signature
from feinsum.languages.tensor.interpreting import linear_algebra, machine, scalars, sub_groups
from feinsum.languages.tensor.interpreting.arguments import bind_values, give_back, values_of
from feinsum.languages.tensor.interpreting.machine import KernelInterpreter
from feinsum.languages.tensor.ir import TensorFunction

SUBGROUP_SIZE: Final = 16
"""The sub-group size of functions that do not state one; the reference calls 16 and 32 typical."""

INSTRUCTIONS: Final = machine.INSTRUCTIONS | scalars.INSTRUCTIONS | linear_algebra.INSTRUCTIONS | sub_groups.INSTRUCTIONS
"""The function that executes each instruction."""


def execute_kernel(
    function: TensorFunction,
    source: SourceText,
    arguments: Mapping[str, Any],
    count: int | None = None,
    subgroup_size: int | None = None,
    work_group_size: tuple[int, int] | None = None,
) -> Any:
    """Execute every instance of a function; see :meth:`feinsum.Program.interpret`.

    Sizes that the function itself gives prevail; by default a work-group has two sub-groups of 16.
    """
    items, columns = _sizes(function, subgroup_size, work_group_size)
    bound = bind_values(function, arguments)
    values, count = values_of(bound), instance_count(function, bound, indexed_by_group(function), count)
    for instance in range(count):
        one = KernelInterpreter(source, instance, count, items, columns, INSTRUCTIONS)
        one.values.update(values)
        one.run(function.body)
    give_back(values, bound)
    return signature(function).written_among(arguments)


def _sizes(function: TensorFunction, subgroup_size: int | None, work_group_size: tuple[int, int] | None) -> tuple[int, int]:
    """The work-items of a sub-group, and the sub-groups of a work-group."""
    items = function.attributes.get("subgroup_size", subgroup_size)
    group = function.attributes.get("work_group_size", work_group_size)
    if items is None:
        # the largest usual one that fits a given work-group
        items = SUBGROUP_SIZE
        while group is not None and group[0] % items:
            items //= 2
    rows, columns = group if group is not None else (2 * items, 1)
    if items < 1 or min(rows, columns) < 1 or rows % items:
        raise ValidationError(f"a work-group of {rows} x {columns} work-items cannot have sub-groups of {items}")
    return items, rows // items * columns
