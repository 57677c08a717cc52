"""Rewriting: functions built anew, operation by operation; what every pass is made of.

A :class:`OperationBuilder` makes operations in order, and a :class:`Rewriter` copies a function while it replaces some of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from feinsum.languages.source import Span
from feinsum.languages.tensor.ir import Kind, TensorFunction, TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.types import BOOL, INDEX, TensorMemref, TensorScalar, Type

_NOWHERE = Span(0, 0)


class FreshNames:
    """Names that a function does not have yet."""

    def __init__(self, function: TensorFunction) -> None:
        self._used = {value.name for value in function.parameters}
        for operation in function.body.walk():
            self._used.update(value.name for value in operation.results)
            self._used.update(value.name for region in operation.regions for value in region.parameters)
        self._next: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """A new name that begins like `hint`; names that begin with a digit are numbers."""
        if hint[0].isdigit():
            hint = f"v{hint}"
        number = self._next.get(hint, 0)
        while (name := f"{hint}{number or ''}") in self._used:
            number += 1
        self._next[hint] = number + 1
        self._used.add(name)
        return name


class OperationBuilder:
    """Makes operations, which have the place in the text of the one that they stand for.

    :ivar operations: those made so far.
    """

    def __init__(self, names: FreshNames, span: Span = _NOWHERE) -> None:
        self.names, self.span = names, span
        self.operations: list[TensorOperation] = []
        self._constants: dict[tuple[str, str], TensorValue] = {}

    def inside(self) -> OperationBuilder:
        """A builder for a region."""
        return OperationBuilder(self.names, self.span)

    def value(self, type_: Type, hint: str) -> TensorValue:
        return TensorValue(self.names.fresh(hint), type_, self.span)

    def emit(
        self,
        name: str,
        operands: Iterable[TensorValue] = (),
        types: Sequence[Type] = (),
        attributes: Mapping[str, Any] | None = None,
        regions: Sequence[TensorRegion] = (),
        hint: str = "t",
    ) -> tuple[TensorValue, ...]:
        """Make an operation; its results."""
        results = tuple(self.value(type_, hint) for type_ in types)
        made = TensorOperation(name, tuple(operands), results, attributes or {}, {}, tuple(regions), self.span)
        self.operations.append(made)
        return results

    def compute(
        self, name: str, operands: Iterable[TensorValue], type_: Type, hint: str = "t", **attributes: Any
    ) -> TensorValue:
        """Make an operation of one result."""
        (result,) = self.emit(name, operands, [type_], attributes, hint=hint)
        return result

    def constant(self, value: Any, type_: Type, hint: str = "c") -> TensorValue:
        """A constant; the same one where it was asked for before."""
        key = repr(value), str(type_)
        if key not in self._constants:
            self._constants[key] = self.compute("constant", (), type_, hint, value=value)
        return self._constants[key]

    def index(self, value: int) -> TensorValue:
        return self.constant(value, INDEX, "i")

    def zero(self, type_: Type) -> TensorValue:
        """The constant 0 of a number or a coopmatrix."""
        return self.constant(number_like(0, type_), type_, "zero")

    def arith(self, name: str, a: TensorValue, b: TensorValue) -> TensorValue:
        return self.compute(f"arith.{name}", (a, b), a.type)

    def compare(self, condition: str, a: TensorValue, b: TensorValue) -> TensorValue:
        return self.compute("cmp", (a, b), BOOL, condition=condition)

    def cast(self, value: TensorValue, type_: Type) -> TensorValue:
        return value if value.type == type_ else self.compute("cast", (value,), type_)

    def builtin(self, name: str, type_: Type) -> TensorValue:
        return self.compute("builtin", (), type_, name, builtin=name)

    def load(self, memref: TensorValue, *indices: TensorValue) -> TensorValue:
        assert isinstance(memref.type, TensorMemref)
        return self.compute("load", (memref, *indices), memref.type.element)

    def store(self, value: TensorValue, memref: TensorValue, *indices: TensorValue, atomic: str = "") -> None:
        self.emit("store", (value, memref, *indices), attributes={"atomic": atomic})

    def size(self, memref: TensorValue, mode: int) -> TensorValue:
        """The size of a mode: a constant where it is known."""
        assert isinstance(memref.type, TensorMemref)
        known = memref.type.shape[mode]
        return self.index(known) if known is not None else self.compute("size", (memref,), INDEX, mode=mode)

    def region(
        self, kind: Kind, types: Sequence[tuple[Type, str]], body: Callable[..., Sequence[TensorValue] | None]
    ) -> TensorRegion:
        """A region with parameters of some types; `body` gets a builder and the parameters, and returns what it yields."""
        inner = self.inside()
        parameters = tuple(inner.value(type_, hint) for type_, hint in types)
        results = body(inner, *parameters)
        if results:
            inner.emit("yield", results)
        return TensorRegion(kind, tuple(inner.operations), parameters)

    def loop(
        self,
        bounds: Sequence[TensorValue],
        body: Callable[..., Sequence[TensorValue] | None],
        begins: Sequence[TensorValue] = (),
        hint: str = "i",
    ) -> tuple[TensorValue, ...]:
        """A ``for`` from bounds[0] to bounds[1], by bounds[2] if there is one, that carries values from `begins` on."""
        types = [value.type for value in begins]
        region = self.region("mixed", [(bounds[0].type, hint), *((type_, "carried") for type_ in types)], body)
        return self.emit("for", (*bounds, *begins), types, regions=[region])

    def branch(
        self,
        condition: TensorValue,
        then: Callable[[OperationBuilder], Sequence[TensorValue] | None],
        other: Callable[[OperationBuilder], Sequence[TensorValue] | None] | None = None,
        types: Sequence[Type] = (),
    ) -> tuple[TensorValue, ...]:
        """An ``if``."""
        regions = [self.region("mixed", [], body) for body in (then, other) if body is not None]
        return self.emit("if", (condition,), types, regions=regions)

    def foreach(self, sizes: Sequence[TensorValue], body: Callable[..., None]) -> None:
        """A ``foreach`` from 0 to `sizes`; once if there are none."""
        upper = list(sizes) or [self.index(1)]
        region = self.region("spmd", [(INDEX, "i")] * len(upper), body)
        self.emit("foreach", ([self.index(0)] * len(upper)) + upper, regions=[region])

    def parallel(self, body: Callable[[OperationBuilder], None]) -> None:
        self.emit("parallel", regions=[self.region("spmd", [], body)])


def number_like(value: int, type_: Type) -> Any:
    """A number as the language writes it in a constant of a type.

    >>> from feinsum.languages.tensor.types import F32, I8
    >>> number_like(1, F32), number_like(1, I8)
    (1.0, 1)
    """
    scalar = getattr(type_, "component", type_) if not isinstance(type_, TensorScalar) else type_
    assert isinstance(scalar, TensorScalar)
    return value if scalar.is_integer else complex(value) if scalar.is_complex else float(value)


class Rewriter:
    """Copies a function; :meth:`rewrite` says what to replace.

    :ivar known: what stands for a value of the original.
    """

    def __init__(self, function: TensorFunction) -> None:
        self.function = function
        self.names = FreshNames(function)
        self.known: dict[TensorValue, TensorValue] = {}

    def rewrite(self, operation: TensorOperation, builder: OperationBuilder) -> Sequence[TensorValue] | None:
        """Put what stands for an operation into the builder, and return its results; None to keep the operation.

        Its operands are new ones, its regions those of the original.
        """
        return None

    def run(self) -> TensorFunction:
        """The new function."""
        return replace(self.function, body=self.region(self.function.body))

    def region(self, region: TensorRegion) -> TensorRegion:
        """The copy of a region."""
        builder = OperationBuilder(self.names)
        self.into(region.operations, builder)
        return TensorRegion(region.kind, tuple(builder.operations), region.parameters)

    def into(self, operations: Iterable[TensorOperation], builder: OperationBuilder) -> None:
        """Put copies of operations into a builder."""
        for operation in operations:
            operands = tuple(self.known.get(value, value) for value in operation.operands)
            moved = replace(operation, operands=operands)
            builder.span = operation.span
            results = self.rewrite(moved, builder)
            if results is None:
                regions = tuple(self.region(region) for region in moved.regions)
                builder.operations.append(replace(moved, regions=regions))
            else:
                self.known.update(zip(operation.results, results, strict=True))


class _ValueRenamer(Rewriter):
    """Gives every value a name of its own, so that regions can be merged."""

    def __init__(self, function: TensorFunction) -> None:
        super().__init__(function)
        self._taken = {value.name for value in function.parameters}

    def region(self, region: TensorRegion) -> TensorRegion:
        parameters = self._renamed(region.parameters)
        copied = super().region(region)
        return replace(copied, parameters=parameters)

    def into(self, operations: Iterable[TensorOperation], builder: OperationBuilder) -> None:
        for operation in operations:
            operands = tuple(self.known.get(value, value) for value in operation.operands)
            regions = tuple(self.region(region) for region in operation.regions)
            made = replace(operation, operands=operands, results=self._renamed(operation.results), regions=regions)
            builder.operations.append(made)

    def _renamed(self, values: Iterable[TensorValue]) -> tuple[TensorValue, ...]:
        found = []
        for value in values:
            if value.name in self._taken:
                self.known[value] = replace(value, name=self.names.fresh(f"{value.name}_"))
            self._taken.add(value.name)
            found.append(self.known.get(value, value))
        return tuple(found)


def with_unique_names(function: TensorFunction) -> TensorFunction:
    """The function with names of which none is given twice; regions beside each other may share names in a text."""
    return _ValueRenamer(function).run()
