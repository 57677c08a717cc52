"""The interpreter: programs executed with numpy, for all indices at once, with every index looked at.

It is what every kernel is compared with.  Thread scopes are emulated, and races in them found (:mod:`.threads`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from feinsum.errors import DTypeError, ShapeError, ValidationError
from feinsum.languages.calling.arguments import take_number
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import SCALARS, type_name
from feinsum.languages.declarative.interpreting.functions import called, require_function
from feinsum.languages.declarative.interpreting.threads import Storage, Threads
from feinsum.languages.declarative.interpreting.values import Value
from feinsum.languages.declarative.syntax import Block, Call, Declaration, Form, Function, Let
from feinsum.languages.program import Program
from feinsum.languages.source import Source


class Interpreter(Threads):
    """Executes statements.

    :ivar empty: names of tensors that nobody has written.
    """

    def __init__(self, source: Source, tunes: Mapping[str, int]) -> None:
        super().__init__(source, tunes)
        self.empty: set[str] = set()

    def run(self, block: Block) -> None:
        """Execute the statements of a block."""
        for node in block.statements:
            if isinstance(node, Let):
                self._let(node)
            elif isinstance(node, syntax.Assignment):
                self.assign(node)
            elif isinstance(node, syntax.Guarded):
                condition = self.evaluate(node.condition).at_depth(self.depth)
                with self.inside(), self.where(condition):
                    if self.wanted(condition).any():
                        self.run(node.body)
            elif isinstance(node, Form) and node.kind == "thread":
                self.run_thread(node)
            elif isinstance(node, Form):
                self._loop(node)
            elif isinstance(node, Call):
                self.sync()

    def _loop(self, node: Form) -> None:
        """A loop of a thread scope."""
        end, begin = node.argument("end"), node.argument("begin")
        assert end is not None
        bound = self.evaluate(end).at_depth(self.depth)
        for number in range(0 if begin is None else self.integer(begin), int(bound.max(initial=0))):
            with self.inside():
                self.names[node.binder[0].name] = Value(np.asarray(number), 0, "int")
                with self.where(number < bound):
                    self.run(node.body)

    def _let(self, node: Let) -> None:
        if isinstance(node.value, syntax.TensorType):
            self.names[node.name] = self.allocate(node.value)
            return
        if isinstance(node.value, Call) and node.value.function == "tune":
            self.names[node.name] = self.tuned(node.name, node.value)
            return
        type_ = node.type
        shape = None
        if isinstance(type_, syntax.TensorType):
            shape = tuple(self.extents(syntax.ListOf(type_.extents)))
        value = self.evaluate(node.value, shape)
        if shape is not None and value.shape != shape:
            raise self.fail("run-shape", node.span, f"the shape is {list(value.shape)}, and said to be {list(shape)}")
        word = type_.name if isinstance(type_, syntax.ScalarType) else getattr(type_, "dtype", None)
        dtype = SCALARS.get(word or "") or self.names.get(f"dtype {word}")
        if dtype is not None:
            value = Value(value.data.astype(dtype), value.depth)
        self.names[node.name] = value
        if isinstance(node.value, Call) and node.value.function == "empty":
            self.empty.add(node.name)


def execute(
    function: Function, source: Source, arguments: Mapping[str, Any], *, tunes: Mapping[str, int] | None = None
) -> Any:
    """Execute a program with numpy.

    :param arguments: arrays, numbers and functions by name; lengths that follow from no array too, and tuned numbers.
    :returns: what it computes: one array, or a tuple in the order of the text.
    :raises ValidationError: if arguments are missing or do not fit.
    :raises LanguageError: if the program does what its language leaves undefined.
    """
    tuned = {s.name for s in syntax.walk(function.body) if isinstance(s, Let) and _is_tune(s.value)}
    given = {name: int(value) for name, value in arguments.items() if name in tuned}
    machine = Interpreter(source, {**given, **(tunes or {})})
    bind(machine, function, {name: value for name, value in arguments.items() if name not in tuned})
    with np.errstate(all="ignore"):  # infinity is a result, also of a literal that becomes a float32
        machine.run(function.body)
        results = function.results
        found = [machine.names[name] for name in results if name != function.value_name]
        if function.body.value is not None:
            found.append(machine.evaluate(function.body.value))
    arrays = [np.array(value.data) for value in found if not isinstance(value, Storage)]
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _is_tune(node: syntax.Expression) -> bool:
    return isinstance(node, Call) and node.function == "tune"


def bind(machine: Threads, function: Function, arguments: Mapping[str, Any]) -> None:
    """Give parameters their values, and lengths theirs."""
    parameters = {p.name: p for p in function.parameters}
    lengths = {n.name for p in function.parameters for n in _length_names(p)}
    for name in arguments:
        if name not in parameters and name not in lengths:
            known = ", ".join([*parameters, *sorted(lengths)])
            raise ValidationError(f"the program has no parameter {name!r}; it has {known}")
    missing = [name for name in parameters if name not in arguments]
    if missing:
        raise ValidationError(f"there is no argument for {', '.join(missing)}")
    for name in sorted(lengths & set(arguments) - set(parameters)):
        machine.names[name] = Value(np.asarray(int(arguments[name])), 0, "int")
    for name, parameter in parameters.items():
        _bind(machine, parameter, arguments[name])
    unknown = [name for name in sorted(lengths) if name not in machine.names]
    if unknown:
        raise ValidationError(f"no argument says what {', '.join(unknown)} is; give it by name")
    for parameter in parameters.values():
        _require_shape(machine, parameter, arguments[parameter.name])


def _length_names(parameter: Declaration) -> list[syntax.Name]:
    return [n for n in syntax.walk(parameter.type) if isinstance(n, syntax.Name)]


def _bind(machine: Threads, parameter: Declaration, argument: Any) -> None:
    """Take an argument, and learn lengths and types from it."""
    type_, name = parameter.type, parameter.name
    if isinstance(type_, syntax.FunctionType):
        if not isinstance(argument, Program) and not callable(argument):
            kind = type(argument).__name__
            raise ValidationError(f"argument {name!r} is of type {kind}; it is a program here, or a function of arrays")
        if isinstance(argument, Program):
            require_function(name, type_, argument.function())
            argument = called(argument)
        machine.names[name] = argument
        machine.signatures[name] = type_
        return
    if not hasattr(argument, "dtype") and not isinstance(argument, (list, tuple, int, float, complex)):
        raise ValidationError(f"argument {name!r} is a {type(argument).__name__}; pass an array, a list or a number")
    data = np.asarray(argument)
    word = type_.name if isinstance(type_, syntax.ScalarType) else type_.dtype or "dtype"
    rank = 0 if isinstance(type_, syntax.ScalarType) else len(type_.extents)
    if data.ndim != rank:
        raise ShapeError(f"argument {name!r} has {data.ndim} axes; it is declared with {rank}")
    if isinstance(type_, syntax.ScalarType):
        data = take_number(f"argument {name!r}", word, argument, "biuf", SCALARS.get(word))
    else:
        type_name(data.dtype)
    wanted = SCALARS.get(word) or machine.names.setdefault(f"dtype {word}", data.dtype)
    if isinstance(type_, syntax.ScalarType):
        with np.errstate(over="ignore"):  # a number beyond float32 is infinite
            data = data.astype(wanted)
    elif data.dtype != wanted:
        raise DTypeError(f"argument {name!r} is of {data.dtype}; it is {wanted} by its declaration, or by an array before")
    machine.names[name] = Value(data, 0, "int" if word == "int" else "")
    for extent, length in zip(getattr(type_, "extents", ()), data.shape, strict=False):
        if isinstance(extent, syntax.Name) and extent.name not in machine.names:
            machine.names[extent.name] = Value(np.asarray(length), 0, "int")


def _require_shape(machine: Threads, parameter: Declaration, argument: Any) -> None:
    if not isinstance(parameter.type, syntax.TensorType):
        return
    for axis, (extent, length) in enumerate(zip(parameter.type.extents, np.shape(argument), strict=True)):
        wanted = machine.integer(extent)
        if wanted != length:
            raise machine.fail(
                "run-sizes",
                extent.span,
                f"axis {axis} of {parameter.name} is {length} long, and {wanted} by other arguments",
            )
