"""The typed program: functions of regions of operations, each name assigned once (SSA).

An operation is data: its instruction is a row of :mod:`.definitions`, so that printing, cloning and substituting are
written once.  Values, operations and regions are compared by identity; :meth:`TensorFunction.structure` is what equal
functions share.

    operands      values in the order of the text, for `subview` and `expand` those of unknown offsets and sizes last
    attributes    what the text fixes: transposes, flags, modes, offsets, the value of a constant
    annotations   the dictionary in braces, of `alloca` and `for`
    regions       their parameters are loop variables, and then the values that a loop carries
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from feinsum.languages.source import Span
from feinsum.languages.tensor.types import Type

Kind: TypeAlias = Literal["collective", "spmd", "mixed"]
"""The executor of an instruction or a region: the work-group together, each work-item, or that of the enclosing region."""

_NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class TensorValue:
    """The value of a name: a parameter, a loop variable or a result; `name` is without its ``%``."""

    name: str
    type: Type
    span: Span = _NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class TensorOperation:
    """One instruction; its `span` begins behind ``%x =`` and ends with its head where it has regions."""

    name: str
    operands: tuple[TensorValue, ...] = ()
    results: tuple[TensorValue, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    regions: tuple[TensorRegion, ...] = ()
    span: Span = _NOWHERE

    @property
    def bounds(self) -> list[tuple[int | TensorValue, int | TensorValue]]:
        """The offset and size of each mode of a subview, operands where the text says no number."""
        left, pairs = iter(self.operands[1:]), zip(self.attributes["offsets"], self.attributes["sizes"], strict=True)
        return [(next(left) if a is None else a, next(left) if n is None else n) for a, n in pairs]

    @property
    def loop_bounds(self) -> tuple[TensorValue, ...]:
        """The begin, end and step of a ``for``; behind them are the values that it carries."""
        return self.operands[: len(self.operands) - len(self.regions[0].parameters) + 1]


@dataclass(frozen=True, slots=True, eq=False)
class TensorRegion:
    """Operations in order, and the values that are defined as the region is entered."""

    kind: Kind
    operations: tuple[TensorOperation, ...]
    parameters: tuple[TensorValue, ...] = ()

    def walk(self) -> Iterator[TensorOperation]:
        """Every operation in here and in the regions of these, in order of the text."""
        for operation in self.operations:
            yield operation
            for region in operation.regions:
                yield from region.walk()


@dataclass(frozen=True, eq=False)
class TensorFunction:
    """A kernel.

    :ivar parameter_attributes: the dictionary of each parameter.
    :ivar attributes: ``subgroup_size`` and ``work_group_size``, where given.
    """

    name: str
    parameters: tuple[TensorValue, ...]
    body: TensorRegion
    parameter_attributes: tuple[Mapping[str, Any], ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    span: Span = _NOWHERE

    def structure(self) -> tuple[object, ...]:
        """The structure without places in the text: equal for functions that are spelled alike."""
        return (
            self.name,
            *(
                (p.name, p.type, _typed_constant(a))
                for p, a in zip(self.parameters, self.parameter_attributes, strict=True)
            ),
            _typed_constant(self.attributes),
            _structure(self.body),
        )

    def __eq__(self, other: object) -> bool:
        return self.structure() == other.structure() if isinstance(other, TensorFunction) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)


def _structure(region: TensorRegion) -> tuple[object, ...]:
    return (
        tuple((value.name, value.type) for value in region.parameters),
        *(
            (
                operation.name,
                tuple(value.name for value in operation.operands),
                tuple((value.name, value.type) for value in operation.results),
                _typed_constant(operation.attributes),
                _typed_constant(operation.annotations),
                tuple(map(_structure, operation.regions)),
            )
            for operation in region.operations
        ),
    )


def _typed_constant(value: object) -> object:
    """A value with its type, so that 1, 1.0 and true differ, and 0.0 and -0.0."""
    if isinstance(value, Mapping):
        return tuple((key, _typed_constant(entry)) for key, entry in sorted(value.items()))
    if isinstance(value, tuple):
        return tuple(map(_typed_constant, value))
    return type(value).__name__, repr(value)
