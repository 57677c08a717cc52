"""The interpreter: programs executed with numpy, for all indices at once, with every index looked at.

It is what every kernel is compared with.  Thread scopes are emulated, and races in them found (:mod:`.threads`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from feinsum.languages.calling.signature import one_or_all
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import SCALARS
from feinsum.languages.declarative.interpreting.arguments import bind_arguments
from feinsum.languages.declarative.interpreting.threads import Storage, ThreadInterpreter
from feinsum.languages.declarative.interpreting.values import IndexedValue
from feinsum.languages.declarative.syntax import DeclarativeCall, DeclarativeFunction, FormCall, Let, StatementBlock
from feinsum.languages.source import SourceText


class Interpreter(ThreadInterpreter):
    """Executes statements.

    :ivar empty: names of tensors that are not written yet.
    """

    def __init__(self, source: SourceText, tunes: Mapping[str, int]) -> None:
        super().__init__(source, tunes)
        self.empty: set[str] = set()

    def run(self, block: StatementBlock) -> None:
        """Execute the statements of a block."""
        for node in block.statements:
            if isinstance(node, Let):
                self._let(node)
            elif isinstance(node, syntax.Assignment):
                self.assign(node)
            elif isinstance(node, syntax.GuardedBlock):
                condition = self.evaluate(node.condition).at_depth(self.depth)
                with self.inside(), self.where(condition):
                    if self.wanted(condition).any():
                        self.run(node.body)
            elif isinstance(node, FormCall) and node.kind == "thread":
                self.run_thread(node)
            elif isinstance(node, FormCall):
                self._loop(node)
            elif isinstance(node, DeclarativeCall):
                self.sync()

    def _loop(self, node: FormCall) -> None:
        """A loop of a thread scope."""
        end, begin = node.argument("end"), node.argument("begin")
        assert end is not None
        bound = self.evaluate(end).at_depth(self.depth)
        for number in range(0 if begin is None else self.integer(begin), int(bound.max(initial=0))):
            with self.inside():
                self.names[node.binder[0].name] = IndexedValue(np.asarray(number), 0, "int")
                with self.where(number < bound):
                    self.run(node.body)

    def _let(self, node: Let) -> None:
        if isinstance(node.value, syntax.TensorType):
            self.names[node.name] = self.allocate(node.value)
            return
        if isinstance(node.value, DeclarativeCall) and node.value.function == "tune":
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
            value = IndexedValue(value.data.astype(dtype), value.depth)
        self.names[node.name] = value
        if isinstance(node.value, DeclarativeCall) and node.value.function == "empty":
            self.empty.add(node.name)


def execute_program(
    function: DeclarativeFunction,
    source: SourceText,
    arguments: Mapping[str, Any],
    *,
    tunes: Mapping[str, int] | None = None,
) -> Any:
    """Execute a program with numpy.

    :param arguments: arrays, numbers and functions by name; lengths that follow from no array too, and tuned numbers.
    :returns: what it computes: one array, or a tuple in the order of the text.
    :raises ValidationError: if arguments are missing or do not fit.
    :raises LanguageError: if the program does what its language leaves undefined.
    """
    tuned = {s.name for s in syntax.walk_nodes(function.body) if isinstance(s, Let) and _is_tune(s.value)}
    given = {name: int(value) for name, value in arguments.items() if name in tuned}
    machine = Interpreter(source, {**given, **(tunes or {})})
    bind_arguments(machine, function, {name: value for name, value in arguments.items() if name not in tuned})
    with np.errstate(all="ignore"):  # infinity is a result, also of a literal that becomes a float32
        machine.run(function.body)
        results = function.results
        found = [machine.names[name] for name in results if name != function.value_name]
        if function.body.value is not None:
            found.append(machine.evaluate(function.body.value))
    return one_or_all([np.array(value.data) for value in found if not isinstance(value, Storage)])


def _is_tune(node: syntax.Expression) -> bool:
    return isinstance(node, DeclarativeCall) and node.function == "tune"
