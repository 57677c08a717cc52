"""Writing the steps of a schedule as instructions of two operands each, below a remark for each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from feinsum.contraction import ContractionStep
from feinsum.einsum import BatchedEinsum
from feinsum.errors import SubscriptError
from feinsum.languages.immediate.marks import Marks, marked
from feinsum.languages.immediate.planning import element_of
from feinsum.languages.immediate.printing import show_function
from feinsum.languages.immediate.syntax import (
    Alloca,
    ImmediateFunction,
    ImmediateName,
    ImmediateParameter,
    ImmediateUpdate,
    Instruction,
    Opcode,
)
from feinsum.languages.immediate.types import ImmediateMemref, make_immediate_memref

NO_MARKS = Marks()


@dataclass(frozen=True)
class _NamedTensor:
    """A name, and its indices with the fastest one first."""

    name: ImmediateName
    letters: str


class ScheduleWriter:
    """Makes a function of the steps of an einsum.

    :param lengths: of all indices.
    """

    def __init__(self, e: BatchedEinsum, lengths: Mapping[str, int]) -> None:
        for term in (*e.indexing.inputs, e.indexing.output):
            if len(set(term)) < len(term):
                raise SubscriptError(f"'{term}' of '{e.subscripts}' has an index twice; the language has no diagonals")
        self._lengths, self._element = lengths, element_of(e)
        arrays = [row[0] for row in e.args[0]]
        self._known = {
            k: _NamedTensor(ImmediateName(a.name), term[::-1])
            for k, (a, term) in enumerate(zip(arrays, e.indexing.inputs, strict=True))
        }
        self._out = _NamedTensor(ImmediateName(e.output_names[0]), e.indexing.output[::-1])
        self._taken = {tensor.name.text for tensor in (*self._known.values(), self._out)}
        types = {tensor.name: self._type(tensor.letters) for tensor in (*self._known.values(), self._out)}
        self._parameters = tuple(ImmediateParameter(name, type_) for name, type_ in types.items())
        self._body: list[Instruction] = []
        self._remarks: dict[int, str] = {}
        self._marks = NO_MARKS

    def text(self, name: str) -> str:
        """The program."""
        return show_function(ImmediateFunction(name, self._parameters, tuple(self._body)), self._remarks)

    def step(self, step: ContractionStep, remark: str, marks: Marks = NO_MARKS, *, is_last: bool) -> None:
        """Write the instructions of one step."""
        begin, self._marks = len(self._body), marks
        pool = [self._known[k] for k in step.operands]
        kept = step.indexing.output[::-1]
        while len(pool) > 2:
            needed = set(kept).union(*(tensor.letters for tensor in pool[2:]))
            pool = [self._product(pool[0], pool[1], needed, None), *pool[2:]]
        target = self._out if is_last else self._alloca(kept)
        if len(pool) == 2:
            self._product(pool[0], pool[1], set(kept), target)
        else:
            opcode: Opcode = "axpby" if len(kept) == len(pool[0].letters) else "sum"
            self._update(opcode, [pool[0]], target)
        self._known[max(self._known) + 1] = target
        first = next(i for i in self._body[begin:] if isinstance(i, (Alloca, ImmediateUpdate)))
        self._remarks[id(first)] = remark

    def _type(self, letters: str) -> ImmediateMemref:
        return make_immediate_memref(self._element, tuple(self._lengths[x] for x in letters))

    def _alloca(self, letters: str) -> _NamedTensor:
        number = 0
        while f"tmp{number}" in self._taken:
            number += 1
        self._taken.add(f"tmp{number}")
        made = _NamedTensor(ImmediateName(f"tmp{number}"), letters)
        self._body.append(Alloca(made.name, self._type(letters)))
        return made

    def _product(self, a: _NamedTensor, b: _NamedTensor, needed: set[str], target: _NamedTensor | None) -> _NamedTensor:
        """A product, after what one operand alone has was summed."""
        a, b = self._summed(a, needed | set(b.letters)), self._summed(b, needed | set(a.letters))
        both = dict.fromkeys(a.letters + b.letters)
        target = target or self._alloca("".join(x for x in both if x in needed))
        self._update("product" if set(both) == set(target.letters) else "log", [a, b], target)
        return target

    def _summed(self, a: _NamedTensor, needed: set[str]) -> _NamedTensor:
        kept = "".join(x for x in a.letters if x in needed)
        if kept == a.letters:
            return a
        target = self._alloca(kept)
        self._update("sum", [a], target)
        return target

    def _update(self, opcode: Opcode, sources: list[_NamedTensor], target: _NamedTensor) -> None:
        tensors = [*sources, target]
        inputs, output = [tensor.letters for tensor in sources], target.letters
        indices = marked(inputs, output, self._marks if opcode == "log" else NO_MARKS)
        types = tuple(self._type(tensor.letters) for tensor in tensors)
        names = tuple(tensor.name for tensor in sources)
        self._body.append(ImmediateUpdate(opcode, indices, 1.0, names, 0.0, target.name, types))
