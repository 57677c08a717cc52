"""The machine: regions of one work-group instance, whose work-items go on together, each with its place in arrays.

In collective regions there is one work-item for all; in SPMD regions values have an axis of work-items, or of sub-groups
for coopmatrices, and a mask says who takes part.  What a language leaves undefined is an error here, at its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from feinsum.languages.diagnostics import broken_rule
from feinsum.languages.source import SourceText
from feinsum.languages.tensor.interpreting.memory import OutOfBoundsError
from feinsum.languages.tensor.ir import TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.numbers import component, dtype_of, rounded
from feinsum.languages.tensor.types import Coopmatrix

Mask = NDArray[np.bool_]


class KernelInterpreter:
    """One instance of a kernel.

    :ivar values: what names stand for: arrays of numbers, views and groups.
    :ivar active: who takes part, an entry for each work-item.
    :ivar collective: whether one stands for all.
    """

    def __init__(
        self,
        source: SourceText,
        instance: int,
        count: int,
        subgroup_size: int,
        subgroups: int,
        instructions: Mapping[str, Instruction],
    ) -> None:
        self._source, self._instructions = source, instructions
        self.instance, self.count = instance, count
        self.subgroup_size, self.subgroups = subgroup_size, subgroups
        self.values: dict[TensorValue, Any] = {}
        self.collective = True
        self.active: Mask = np.ones(1, bool)

    def fail(self, operation: TensorOperation, rule: str, message: str) -> NoReturn:
        """Say which rule the program breaks as it runs.

        :raises LanguageError: always.
        """
        where = f"{message} (instance {self.instance} of {self.count})"
        raise broken_rule(self._source, rule, operation.span, where)

    def run(self, region: TensorRegion) -> list[Any]:
        """Execute a region; what it yields."""
        for operation in region.operations:
            if operation.name == "yield":
                return [self.values[value] for value in operation.operands]
            try:
                self._instructions[operation.name](self, operation)
            except OutOfBoundsError as error:
                self.fail(operation, "run-bounds", f"there is no {error}")
        return []

    def operands(self, operation: TensorOperation) -> list[Any]:
        """The values of an operation's operands."""
        return [self.values[value] for value in operation.operands]

    def give(self, operation: TensorOperation, *results: Any) -> None:
        """Set the values of an operation's results."""
        self.values.update(zip(operation.results, results, strict=True))

    def of_active(self, numbers: Any) -> NDArray[Any]:
        """The entries of those who take part."""
        spread: NDArray[Any] = np.broadcast_to(numbers, self.active.shape)
        return spread[self.active]

    @contextmanager
    def together(self, active: Mask) -> Iterator[None]:
        """With another set of work-items that take part."""
        before, self.active = self.active, active
        try:
            yield
        finally:
            self.active = before

    @contextmanager
    def apart(self, active: Mask) -> Iterator[None]:
        """A context of an SPMD region."""
        self.collective = False
        try:
            with self.together(active):
                yield
        finally:
            self.collective = True

    @property
    def work_items(self) -> int:
        return self.subgroup_size * self.subgroups

    @property
    def active_subgroups(self) -> Mask:
        """The sub-groups with a work-item that takes part; in collective regions, one for all."""
        if self.collective:
            return self.active
        return np.asarray(self.active.reshape(self.subgroups, -1).any(axis=1))

    def of_subgroups(self, operation: TensorOperation, numbers: Any, what: str) -> NDArray[Any]:
        """The value that each sub-group has, which is the same for all who take part in it."""
        if self.collective:
            return np.broadcast_to(numbers, (1,))
        spread = np.broadcast_to(numbers, self.active.shape).reshape(self.subgroups, -1)
        active = self.active.reshape(self.subgroups, -1)
        leaders = spread[np.arange(self.subgroups), active.argmax(axis=1)]
        if (active & (spread != leaders[:, None])).any():
            self.fail(operation, "run-uniform", f"{what} differs between the work-items of a sub-group")
        return np.asarray(leaders)

    def merged(self, operation: TensorOperation, where: Mask, new: Any, old: Any, value: TensorValue) -> Any:
        """`new` for those in `where`, and `old` for the others."""
        if isinstance(value.type, Coopmatrix):
            chosen = self.of_subgroups(operation, where, "who gets a coopmatrix")
            return np.where(chosen[:, None, None], new, old)
        return np.where(where, new, old)


Instruction = Callable[[KernelInterpreter, TensorOperation], None]


def run_parallel(machine: KernelInterpreter, operation: TensorOperation) -> None:
    with machine.apart(np.ones(machine.work_items, bool)):
        machine.run(operation.regions[0])


def run_foreach(machine: KernelInterpreter, operation: TensorOperation) -> None:
    """The first variable is the fastest; work-items take what is left over in turn."""
    (region,) = operation.regions
    bounds = [int(np.asarray(bound).reshape(-1)[0]) for bound in machine.operands(operation)]
    lower, upper = bounds[: len(bounds) // 2], bounds[len(bounds) // 2 :]
    sizes = [max(to - begin, 0) for begin, to in zip(lower, upper, strict=True)]
    total = int(np.prod(sizes, dtype=object))
    for start in range(0, total, machine.work_items):
        number = np.arange(start, start + machine.work_items)
        rest = np.minimum(number, total - 1)
        for variable, begin, size in zip(region.parameters, lower, sizes, strict=True):
            machine.values[variable] = rounded(begin + rest % size, component(variable.type))
            rest = rest // size
        with machine.apart(number < total):
            machine.run(region)


def run_for(machine: KernelInterpreter, operation: TensorOperation) -> None:
    (region,) = operation.regions
    variable, *carried = region.parameters
    values = machine.operands(operation)
    bounds, now = values[: len(values) - len(carried)], values[len(values) - len(carried) :]
    begin, to, *steps = (np.asarray(bound, np.int64) for bound in bounds)
    step = steps[0] if steps else np.int64(1)
    if (machine.of_active(step) <= 0).any():
        message = f"a loop with the step {machine.of_active(step).min()} never ends"
        machine.fail(operation, "run-loop", message)
    index = np.broadcast_to(begin, machine.active.shape)
    going = machine.active & (index < to)
    while going.any():
        machine.values[variable] = index.astype(dtype_of(component(variable.type)))
        machine.values.update(zip(carried, now, strict=True))
        with machine.together(going):
            following = machine.run(region)
        now = [
            machine.merged(operation, going, new, old, value)
            for new, old, value in zip(following, now, carried, strict=True)
        ]
        # what is left is compared rather than the next index, which may lie beyond 64 bits
        left = to.astype(np.uint64) - index.astype(np.uint64)
        going = going & (left > step.astype(np.uint64))
        index = np.where(going, index + step, index)
    machine.give(operation, *now)


def run_if(machine: KernelInterpreter, operation: TensorOperation) -> None:
    condition = np.broadcast_to(machine.operands(operation)[0], machine.active.shape)
    outcomes: list[list[Any] | None] = [None, None]
    for number, region in enumerate(operation.regions):
        active = machine.active & (condition if number == 0 else ~condition)
        if active.any():
            with machine.together(active):
                outcomes[number] = machine.run(region)
    then, other = outcomes
    if then is None or other is None:
        chosen = then if other is None else other
        if chosen is not None:
            machine.give(operation, *chosen[: len(operation.results)])
        return
    results = zip(then, other, operation.results, strict=False)
    machine.give(operation, *(machine.merged(operation, condition, new, old, value) for new, old, value in results))


def run_nothing(machine: KernelInterpreter, operation: TensorOperation) -> None:
    """For barriers: work-items are never apart."""


INSTRUCTIONS: Final[dict[str, Instruction]] = {
    "parallel": run_parallel,
    "foreach": run_foreach,
    "for": run_for,
    "if": run_if,
    "barrier": run_nothing,
}
