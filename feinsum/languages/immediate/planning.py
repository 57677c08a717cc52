"""`plan`: an einsum as a program of the immediate language, in the order of contraction that the planner finds."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from feinsum.einsum import Array, BatchedEinsum, require_einsum
from feinsum.errors import DTypeError, ShapeError, SubscriptError
from feinsum.flops import contraction_path
from feinsum.languages.immediate.index_orders import OrderNode
from feinsum.languages.immediate.joint_orders import trees_together
from feinsum.languages.immediate.maps import IndexMap as Map
from feinsum.languages.immediate.maps import Mark, OperandIndices, index_map
from feinsum.languages.immediate.planner import MOST_OPERANDS, Expression, Planner, tree_of
from feinsum.languages.immediate.printing import show_function
from feinsum.languages.immediate.syntax import (
    Alloca,
    GetWorkItem,
    ImmediateFunction,
    ImmediateName,
    ImmediateParameter,
    ImmediateUpdate,
    Instruction,
    Opcode,
)
from feinsum.languages.immediate.types import SCALARS, ImmediateMemref, ImmediateScalar, MemrefGroup, make_immediate_memref
from feinsum.languages.program import Program, program
from feinsum.lengths import require_mapping

ORDERS = ("F", "C")
"""Whether the first or the last index of an array is the fastest one in memory."""


def plan(e: BatchedEinsum, sizes: Mapping[str, int] | None = None, order: str = "F", name: str = "plan") -> Program:
    """An einsum as loops over matrix products: a program of the immediate language, which :func:`feinsum.build` runs.

    The order of contraction has the fewest operations; among those that have as few, the orders in which the indices of
    partial results lie in memory decide.  Several outputs share partial results.  A long axis that is the slowest index of
    every array that has it becomes the batch: the program then says what happens to one item of it.

    >>> import feinsum as fe
    >>> A, B = fe.array("A", (8, 9, 10)), fe.array("B", (10, 11, 12))
    >>> print(fe.plan(fe.einsum("ikm,mjn->ijnk", A, B)), end="")
    define @plan(%A: memref<f64x8x9x10>, %B: memref<f64x10x11x12>, %out: memref<f64x8x11x12x9>) {
        log {i[k]m, m(jn) to i(jn)[k]} 1.0, %A, %B, 0.0, %out
            : memref<f64x8x9x10>, memref<f64x10x11x12> to memref<f64x8x11x12x9>
    }

    :param sizes: lengths of long axes by name; the batch needs none.
    :param order: ``"F"`` if the first index of an array is the fastest in memory, as everywhere in the immediate language,
        ``"C"`` if the last one is, as numpy and :func:`feinsum.generate` have it.  The program then has the indices of
        every array in reverse.
    :param name: of the function.
    :raises ShapeError: if another long axis has no length.
    :raises SubscriptError: if an operand has an index twice, or there are too many operands.
    :raises DTypeError: if the arrays are complex, which the language is not.
    """
    return _Drawing(e, sizes, order, name).program()


@dataclass(frozen=True)
class _PlannedTensor:
    """A name with the letters and the type of what it stands for."""

    name: ImmediateName
    letters: str
    type: ImmediateMemref


class _Drawing:
    """A plan as it is written down."""

    def __init__(self, e: BatchedEinsum, sizes: Mapping[str, int] | None, order: str, name: str) -> None:
        require_einsum(e)
        require_mapping(sizes)
        if order not in ORDERS:
            raise SubscriptError(f"order is {order!r}; it is 'F', the first index is the fastest, or 'C', the last one is")
        self._e, self._name = e, name
        step = 1 if order == "F" else -1
        terms, output = [term[::step] for term in e.indexing.inputs], e.indexing.output[::step]
        self._item = _batch(e, terms, output)
        self._lengths = _index_lengths(e, sizes, self._item)
        self._terms = [term.removesuffix(self._item) if self._item else term for term in terms]
        self._batched = [bool(self._item) and self._item in term for term in terms]
        self._output = output.removesuffix(self._item) if self._item else output
        self._element = element_of(e)
        self._body: list[Instruction] = []
        self._parameters: list[ImmediateParameter] = []
        self._tensors: dict[object, _PlannedTensor] = {}
        self._taken = {a.name for a in e.arrays} | set(e.output_names)

    def program(self) -> Program:
        rows = [self._operands(row) for row in self._e.args]
        results = [self._result(name) for name in self._e.output_names]
        expression = Expression(tuple(self._terms), self._output, self._lengths, self._element.dtype.itemsize)
        names = [[tensor.name for tensor in row] for row in rows]
        for node, operands, result in zip(_schedules(expression, names, self._e), rows, results, strict=True):
            self._emit(node, operands, result)
        function = ImmediateFunction(self._name, tuple(self._parameters), tuple(self._body))
        return program(show_function(function), "immediate")

    # --- tensors

    def _operands(self, row: Sequence[Sequence[Array]]) -> list[_PlannedTensor]:
        found = []
        for k, entry in enumerate(row):
            first, *others = [self._argument(a.name, self._terms[k], self._batched[k]) for a in entry]
            for other in others:
                first = self._multiplied(first, other)
            found.append(first)
        return found

    def _type(self, letters: str) -> ImmediateMemref:
        return make_immediate_memref(self._element, tuple(self._lengths[x] for x in letters))

    def _argument(self, name: str, letters: str, is_batched: bool) -> _PlannedTensor:
        if name in self._tensors:
            return replace(self._tensors[name], letters=letters)
        type_ = self._type(letters)
        if is_batched:
            group = MemrefGroup(type_, type_.extent)
            self._parameters.append(ImmediateParameter(ImmediateName(name), group))
            item = ImmediateName(self._fresh(f"{name}_item"))
            self._body.append(GetWorkItem(item, ImmediateName(name), None, group))
            made = _PlannedTensor(item, letters, type_)
        else:
            self._parameters.append(ImmediateParameter(ImmediateName(name), type_))
            made = _PlannedTensor(ImmediateName(name), letters, type_)
        self._tensors[name] = made
        return made

    def _result(self, name: str) -> _PlannedTensor:
        return self._argument(name, self._output, bool(self._item))

    def _fresh(self, wish: str) -> str:
        number, word = 0, wish
        while word in self._taken:
            number, word = number + 1, f"{wish}{number}"
        self._taken.add(word)
        return word

    def _alloca(self, letters: str) -> _PlannedTensor:
        number = 0
        while f"tmp{number}" in self._taken:
            number += 1
        made = _PlannedTensor(ImmediateName(self._fresh(f"tmp{number}")), letters, self._type(letters))
        self._body.append(Alloca(made.name, made.type))
        return made

    # --- instructions

    def _multiplied(self, a: _PlannedTensor, b: _PlannedTensor) -> _PlannedTensor:
        """The elementwise product of two arrays of one operand."""
        key = "*", a.name, b.name
        if key not in self._tensors:
            result = self._alloca(a.letters)
            self._update(
                "product", [_plain_indices(a.letters), _plain_indices(b.letters)], _plain_indices(a.letters), [a, b], result
            )
            self._tensors[key] = result
        return self._tensors[key]

    def _emit(
        self, node: OrderNode, operands: Sequence[_PlannedTensor], result: _PlannedTensor | None = None
    ) -> _PlannedTensor:
        """Write what makes a node of some operands, unless that was done for another output."""
        if node.operand >= 0 and result is None:
            return operands[node.operand]
        key = node, tuple(operands[k].name for k in _leaves(node)), result
        if key in self._tensors:
            return self._tensors[key]
        sources = [self._emit(child, operands) for child in node.children] or [operands[node.operand]]
        target = self._alloca(node.letters) if result is None else result
        if len(sources) == 2:
            self._product(node, sources, target)
        else:
            kept = set(sources[0].letters) == set(node.letters)
            opcode: Opcode = "axpby" if kept else "sum"
            self._update(opcode, [_plain_indices(sources[0].letters)], _plain_indices(node.letters), sources, target)
        self._tensors[key] = target
        return target

    def _product(self, node: OrderNode, sources: Sequence[_PlannedTensor], target: _PlannedTensor) -> None:
        groups = node.groups
        first, second = sources
        if node.letters[:1] not in first.letters or (node.letters and node.letters[0] in second.letters):
            first, second = sorted(sources, key=lambda one: (node.letters[:1] not in one.letters, one.letters))
        summed = set(first.letters + second.letters) - set(node.letters)
        terms = [one.letters for one in (first, second, target)]
        marked = [_marked_letters(term, groups) if summed else _plain_indices(term) for term in terms]
        self._update("log" if summed else "product", marked[:2], marked[2], [first, second], target)

    def _update(
        self,
        opcode: Opcode,
        inputs: Sequence[OperandIndices],
        output: OperandIndices,
        sources: Sequence[_PlannedTensor],
        target: _PlannedTensor,
    ) -> None:
        types = (*(one.type for one in sources), target.type)
        names = tuple(one.name for one in sources)
        self._body.append(ImmediateUpdate(opcode, Map(tuple(inputs), output), 1.0, names, 0.0, target.name, types))


def _schedules(expression: Expression, rows: Sequence[Sequence[ImmediateName]], e: BatchedEinsum) -> Iterator[OrderNode]:
    """How each output is made, from what those before it have made as far as that helps."""
    if e.b == 1 and e.n <= MOST_OPERANDS:
        yield Planner(expression).best[1]
        return
    given = tree_of(contraction_path(e, expression.lengths), e.n)
    everything: dict[Hashable, OrderNode] = {}
    for row, tree in zip(rows, trees_together(Planner(expression, given), rows, given), strict=True):
        sets = [*tree, *(frozenset([k]) for k in range(e.n))]
        known = {operands: frozenset((k, row[k]) for k in operands) for operands in sets}
        made = {operands: everything[what] for operands, what in known.items() if what in everything}
        node = Planner(expression, tree, made).best[1]
        yield node
        for part in _partial_results(node):
            everything.setdefault(known[frozenset(_leaves(part))], part)


def _partial_results(node: OrderNode) -> Iterator[OrderNode]:
    """The partial results on the way to a result, before it is turned round."""
    for child in node.children:
        yield from _partial_results(child)
        if len(child.children) == 2 or (child.children and len(child.letters) < len(child.children[0].letters)):
            yield child


def _batch(e: BatchedEinsum, terms: Sequence[str], output: str) -> str:
    """The index of the batch: long, and the slowest of every array that has it; nothing if there is none."""
    last = output[-1:]
    if not last or isinstance(e.index_sizes[last], int):
        return ""
    return last if all(last not in term[:-1] for term in (*terms, output)) else ""


def _index_lengths(e: BatchedEinsum, sizes: Mapping[str, int] | None, item: str) -> dict[str, int]:
    """The length of each index; that of the batch is 1."""
    given = dict(sizes or {})
    if item:
        axis = e.index_sizes[item]
        given = {name: n for name, n in given.items() if name not in (item, axis)}
        given[axis if isinstance(axis, str) else item] = 1
    try:
        lengths = e.resolve(given)
    except ShapeError as error:
        hint = "the first index is the fastest here; with order='C' the last one is, and a long axis in front is the batch"
        raise ShapeError(f"{error}; {hint}") from None
    for letter, length in lengths.items():
        if length < 1:
            raise ShapeError(f"index '{letter}' has length {length}; the immediate language has no empty tensors")
    return lengths


def element_of(e: BatchedEinsum) -> ImmediateScalar:
    """The one type of number that the arrays of an einsum have.

    :raises DTypeError: if they have two, or one that the language has not.
    """
    names = {scalar.dtype: scalar for scalar in SCALARS.values()}
    for a in e.arrays:
        if a.dtype not in names:
            raise DTypeError(f"'{a.name}' is {a.dtype}; the immediate language has real numbers and integers")
        if a.dtype != e.arrays[0].dtype:
            raise DTypeError(
                f"'{a.name}' is {a.dtype} and '{e.arrays[0].name}' {e.arrays[0].dtype}; a program has one type"
            )
    return names[e.arrays[0].dtype]


def _leaves(node: OrderNode) -> list[int]:
    return [node.operand] if node.operand >= 0 else [k for child in node.children for k in _leaves(child)]


def _plain_indices(letters: str) -> OperandIndices:
    return OperandIndices(tuple(Mark(x) for x in letters))


def _marked_letters(letters: str, groups: Sequence[str]) -> OperandIndices:
    """Indices with marks: groups of several letters together, others that the product does not go over looped."""
    text = letters
    for group in groups:
        if len(group) > 1:
            text = text.replace(group, f"({group})")
    inside = "".join(groups)
    shown = "".join(x if not x.isalpha() or x in inside else f"[{x}]" for x in text)
    return index_map([], shown).output
