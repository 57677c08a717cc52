"""Steps: which equations an einsum's kernel computes, which ones share a kernel that goes through rows, which are alone.

Equations share a kernel of rows where all that one takes from another belongs to the same row: the maximum of a row, the
exponentials, their sum and the quotients of a softmax, for instance.  What a row computes on the way stays on chip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, TypeAlias

from feinsum.languages.declarative.forms import SCALARS, numpy_type
from feinsum.languages.declarative.lowering.folding import INDEX, constant_index, fold
from feinsum.languages.declarative.lowering.normal import Definition
from feinsum.languages.declarative.lowering.operands import with_operands
from feinsum.languages.declarative.lowering.sum_functions import SumFunction
from feinsum.languages.declarative.lowering.tensor_loops import LoopScope
from feinsum.languages.declarative.lowering.terms import (
    Apply,
    ArrayEquation,
    Constant,
    Load,
    Reduce,
    Select,
    Term,
    TermVariable,
    guarded_terms,
    rename_variables,
    substitute,
    walk_terms,
)
from feinsum.languages.declarative.lowering.threads import ThreadScope
from feinsum.languages.declarative.lowering.tiles import TileScope

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_ROW_BYTES: Final = 24 * 1024
"""Bytes that a row may keep on chip: devices have 32 KB of local memory at least, and partial sums need some."""
_LONGEST_TEXT: Final = 5000
"""Characters of an epilogue; a longer one repeats itself, and is computed apart."""
_SHORT: Final = 16
"""A reduction of fewer elements is no work for a group."""
_FEW_ROWS, _LONG = 64, 1 << 15
"""A reduction to fewer numbers than that, of more than that many each, is made in two stages."""


@dataclass(frozen=True)
class EinsumStep:
    """An einsum: its subscripts, the arrays that it takes, and the one that it makes.

    :ivar lengths: of each index; an array may be longer, and then a part of it is taken.
    :ivar epilogue: what is made of its sum, and `read` the names there, the arrays that these are, and their indices.
    """

    array: str
    subscripts: str
    operands: tuple[str, ...]
    equation: ArrayEquation
    lengths: Mapping[str, int]
    epilogue: str = ""
    read: tuple[tuple[str, str, str], ...] = ()

    @property
    def equations(self) -> tuple[ArrayEquation, ...]:
        """What it computes."""
        return (self.equation,)


@dataclass(frozen=True)
class RowStep:
    """Equations whose first `lead` variables say which row they are of.

    :ivar kept: arrays that are needed elsewhere, so that they are written to memory.
    """

    lead: int
    equations: tuple[ArrayEquation, ...]
    kept: frozenset[str]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return prod(self.equations[0].shape[: self.lead])


@dataclass(frozen=True)
class FlatStep:
    """An equation each of whose elements one work-item computes."""

    equation: ArrayEquation

    @property
    def equations(self) -> tuple[ArrayEquation, ...]:
        """What it computes."""
        return (self.equation,)


@dataclass(frozen=True)
class ScanStep:
    """An equation with a running reduction: of blocks, of what these add up to, and of both together."""

    equation: ArrayEquation

    @property
    def equations(self) -> tuple[ArrayEquation, ...]:
        """What it computes."""
        return (self.equation,)


@dataclass(frozen=True)
class ThreadStep:
    """A thread scope."""

    scope: ThreadScope

    @property
    def equations(self) -> tuple[ArrayEquation, ...]:
        """What it computes is said by no equation."""
        return ()


@dataclass(frozen=True)
class TileStep:
    """A grid as tiles, each of which a work-group computes."""

    scope: TileScope

    @property
    def equations(self) -> tuple[ArrayEquation, ...]:
        """What it computes is said by no equation."""
        return ()


@dataclass(frozen=True)
class LoopStep:
    """A loop over arrays: the steps of a round."""

    scope: LoopScope
    steps: tuple[Step, ...]

    @property
    def equations(self) -> tuple[ArrayEquation, ...]:
        """What it computes."""
        return tuple(equation for step in self.steps for equation in step.equations)


Step: TypeAlias = EinsumStep | LoopStep | RowStep | FlatStep | ScanStep | ThreadStep | TileStep


def partition(
    equations: Sequence[Definition], results: Sequence[str], *, einsums: bool = True, plain: bool = False
) -> list[Step]:
    """The steps of a program, in order.

    :param einsums: whether sums of products are left to the kernels of :func:`feinsum.generate`.
    :param plain: whether each equation has a step of its own, as simple as it can be.
    """
    if plain:
        return [_single_equation_step(e, einsums=False, plain=True) or FlatStep(e) for e in equations]  # type: ignore[arg-type]
    staged: list[Definition] = []
    for equation in equations:
        if not isinstance(equation, ArrayEquation) or 0 in equation.shape:
            staged.append(equation)
        else:
            parts = [part for one in with_operands(equation) for part in _split_einsum(one)] if einsums else [equation]
            parts = [one for part in parts for one in _split_rows(part, einsums)]
            staged += [stage for part in parts for stage in _stages_of_reduction(part)]
    steps: list[Step] = []
    row: list[ArrayEquation] = []
    lead = 0
    for equation in staged:
        step = _single_equation_step(equation, einsums)
        if (
            isinstance(equation, ArrayEquation)
            and step is None
            and row
            and (new := _row_depth(row, lead, equation)) is not None
        ):
            row.append(equation)
            lead = new
            continue
        if row:
            steps.append(_shared_step(row, lead, staged, results))
            row = []
        if step is not None:
            steps.append(step)
        elif isinstance(equation, ArrayEquation):
            row, lead = [equation], _own_lead(equation)
    if row:
        steps.append(_shared_step(row, lead, staged, results))
    return steps


def find_finished(equation: ArrayEquation) -> EinsumStep | None:
    """An equation as an einsum, with the function that is applied to it entry by entry."""
    bare = find_einsum(equation)
    if bare is not None or equation.scan:
        return bare
    sums = [t for t in walk_terms(equation.body) if isinstance(t, Reduce)]
    if len(sums) != 1 or sums[0].dtype != equation.dtype or sums[0] in guarded_terms(equation.body):
        return None
    inner = find_einsum(ArrayEquation(equation.array, equation.variables, sums[0]))
    if inner is None:
        return None
    finish = SumFunction(sums[0], dict(zip(equation.variables, _LETTERS, strict=False)))
    text = finish.text(equation.body)
    if text is None or len(text) > _LONGEST_TEXT:
        return None
    return replace(inner, equation=equation, epilogue=text, read=finish.read)


def steps_in_order(
    steps: Sequence[Step], kernels: Sequence[Any], names: Mapping[str, str]
) -> Iterator[tuple[Step, Any, Mapping[str, str]]]:
    """Steps in the order in which they run, rounds one after the other, with their kernels.

    :param kernels: of each step, and of each step in those of a loop.
    :param names: of arrays that are called otherwise here; those of a loop's state are in each round.
    """
    for step, own in zip(steps, kernels, strict=True):
        if isinstance(step, LoopStep):
            for called in step.scope.rounds(names):
                yield from steps_in_order(step.steps, own, called)
        else:
            yield step, own, names


def flattened(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps, and those in loops."""
    for step in steps:
        yield step
        yield from flattened(step.steps) if isinstance(step, LoopStep) else ()


def _single_equation_step(equation: Definition, einsums: bool, *, plain: bool = False) -> Step | None:
    """The step of an equation that shares no kernel with others."""
    if isinstance(equation, LoopScope):
        steps = partition(equation.body, equation.arrays, einsums=einsums, plain=plain)
        return LoopStep(equation, tuple(steps))
    if isinstance(equation, ThreadScope):
        return ThreadStep(equation)
    if isinstance(equation, TileScope):
        return TileStep(equation)
    if 0 in equation.shape:
        return FlatStep(equation)
    if equation.scan:
        return ScanStep(equation)
    return find_finished(equation) if einsums else None


# einsums


def find_einsum(equation: ArrayEquation) -> EinsumStep | None:
    """The einsum that an equation is: a sum of a product of two arrays or more, each at indices and no index twice."""
    body = equation.body
    if not isinstance(body, Reduce) or body.operator != "sum" or body.dtype not in ("f32", "f64"):
        return None
    factors = _product_factors(body.body)
    if len(factors) < 2 or any(not isinstance(f, Load) or f.dtype != body.dtype for f in factors):
        return None
    letters: dict[Term, str] = {}
    for variable in (*equation.variables, *body.variables):
        letters[variable] = _LETTERS[len(letters)] if len(letters) < len(_LETTERS) else ""
    inputs = []
    for factor in factors:
        if not isinstance(factor, Load) or len(set(factor.indices)) < len(factor.indices):
            return None
        if any(letters.get(index, "") == "" for index in factor.indices):
            return None
        inputs.append("".join(letters[index] for index in factor.indices))
    output = "".join(letters[v] for v in equation.variables)
    if any(letter not in "".join(inputs) for letter in letters.values()) or 0 in (v.extent for v in letters):  # type: ignore[union-attr]
        return None
    operands = tuple(f.array for f in factors if isinstance(f, Load))
    lengths = {letter: v.extent for v, letter in letters.items() if isinstance(v, TermVariable)}
    return EinsumStep(equation.array, f"{','.join(inputs)}->{output}", operands, equation, lengths)


def _product_factors(term: Term) -> list[Term]:
    if isinstance(term, Apply) and term.function == "*":
        return [factor for argument in term.arguments for factor in _product_factors(argument)]
    return [term]


def _split_einsum(equation: ArrayEquation) -> list[ArrayEquation]:
    """An equation with an einsum in it as the einsum, and the function of it."""
    if find_finished(equation) is not None or equation.scan:
        return [equation]
    return _split_reductions(equation, "sum", lambda one: find_einsum(one) is not None)


def _split_reductions(
    equation: ArrayEquation, word: str, wanted: Callable[[ArrayEquation], bool], number: int = 0
) -> list[ArrayEquation]:
    """An equation with the wanted ones of its reductions as equations before it."""
    guarded = guarded_terms(equation.body)
    for term in walk_terms(equation.body):
        if not isinstance(term, Reduce) or term in guarded or not term.free <= set(equation.variables):
            continue
        name = f"{equation.array}_{word}{number}"
        if wanted(ArrayEquation(name, equation.variables, term)):
            own = {v: TermVariable(v.dtype, f"{v.name}_{name}", v.extent) for v in equation.variables}
            before = ArrayEquation(name, tuple(own.values()), rename_variables(term, own))
            load = Load(term.dtype, name, equation.variables)
            rest = ArrayEquation(equation.array, equation.variables, substitute(equation.body, {term: load}))
            return [before, *_split_reductions(rest, word, wanted, number + 1)]
    return [equation]


# reductions in two stages


def _stages_of_reduction(equation: ArrayEquation) -> list[ArrayEquation]:
    """A reduction of many to few as one of parts, and one of these."""
    body = equation.body
    if not isinstance(body, Reduce) or body.operator.startswith("arg") or find_einsum(equation) is not None:
        return [equation]
    first, *rest = body.variables
    if prod(equation.shape) >= _FEW_ROWS or prod(v.extent for v in body.variables) < _LONG or first.extent < 2:
        return [equation]
    inner = prod(v.extent for v in rest)
    length = max(1, -(-_LONG // 8 // inner))
    parts = -(-first.extent // length)
    if parts < 2:
        return [equation]
    part = TermVariable(INDEX, f"{first.name}_part", parts)
    step = TermVariable(INDEX, f"{first.name}_step", length)
    place = fold(Apply(INDEX, "+", (fold(Apply(INDEX, "*", (part, constant_index(length)))), step)))
    inside = substitute(body.body, {first: place})
    if parts * length != first.extent:
        exists = Apply("bool", "<", (place, constant_index(first.extent)))
        inside = Select(inside.dtype, exists, inside, _neutral_element(body))
    name = f"{equation.array}_parts"
    own = {v: TermVariable(v.dtype, f"{v.name}_parts", v.extent) for v in equation.variables}
    partial = Reduce(body.dtype, body.operator, (step, *rest), inside)
    first_stage = ArrayEquation(name, (*own.values(), part), rename_variables(partial, own))
    last = TermVariable(INDEX, f"{first.name}_last", parts)
    load = Load(body.dtype, name, (*equation.variables, last))
    return [
        first_stage,
        ArrayEquation(equation.array, equation.variables, Reduce(body.dtype, body.operator, (last,), load)),
    ]


def _neutral_element(body: Reduce) -> Constant:
    from feinsum.languages.declarative.forms import REDUCTIONS

    value = REDUCTIONS[body.operator].neutral
    if body.operator in ("min", "max") and body.dtype not in ("f32", "f64"):
        import numpy as np

        info = np.iinfo(SCALARS.get(body.dtype, np.dtype(np.int32)))
        value = info.max if body.operator == "min" else info.min
    return Constant(body.dtype, value)


# rows


def _split_rows(equation: ArrayEquation, einsums: bool) -> list[ArrayEquation]:
    """A function of reductions along rows as these and the function, as a row's kernel takes them one after the other."""
    if isinstance(equation.body, Reduce) or equation.scan or (einsums and find_finished(equation) is not None):
        return [equation]
    return _split_reductions(equation, "row", _along_rows)


def _own_lead(equation: ArrayEquation) -> int:
    """The number of an equation's variables that name its row: all of a reduction's, all but the last otherwise."""
    has = any(isinstance(t, Reduce) for t in walk_terms(equation.body))
    return len(equation.variables) if has else max(len(equation.variables) - 1, 0)


def _row_depth(row: Sequence[ArrayEquation], lead: int, equation: ArrayEquation) -> int | None:
    """The number of variables that name the row if an equation joins others; None if it cannot."""
    names = {e.array: e for e in row}
    if len(equation.variables) > lead:  # or it makes one number of each row
        lead = min(lead, _own_lead(equation))
    loads = [t for t in walk_terms(equation.body) if isinstance(t, Load) and t.array in names]
    if not loads and not _shares_operands(row, lead, equation):
        return None
    for load in loads:
        same = 0
        for index, variable in zip(load.indices, equation.variables, strict=False):
            if index != variable:
                break
            same += 1
        lead = min(lead, same)
    shapes = {e.shape[:lead] for e in (*row, equation)}
    if len(shapes) > 1 or not any(isinstance(t, Reduce) for e in (*row, equation) for t in walk_terms(e.body)):
        return None
    if prod(equation.shape[:lead]) < _FEW_ROWS // 16 and prod(equation.shape[lead:]) > _LONG // 4:
        return None
    read = {name for e in (*row, equation) for name in e.reads}
    inner = [e for e in (*row, equation) if e.shape[lead:] and e.array in read]
    kept = sum(prod(e.shape[lead:]) * numpy_type(e.dtype).itemsize for e in inner)
    return lead if kept <= _ROW_BYTES and _inner_rank(row, equation, lead) else None


def _shares_operands(row: Sequence[ArrayEquation], lead: int, equation: ArrayEquation) -> bool:
    """Whether an equation reduces the same rows of the same arrays as one before it, though it takes nothing from it."""
    along = len(equation.variables) == lead and _along_rows(equation)
    return along and any(_along_rows(e) and len(e.variables) == lead and e.reads & equation.reads for e in row)


def _inner_rank(row: Sequence[ArrayEquation], equation: ArrayEquation, lead: int) -> bool:
    """Whether none is a reduction in each of the elements of a row, which asks for another spread of the work."""
    return not any(
        isinstance(t, Reduce) and e.variables[lead:] and t.free & set(e.variables[lead:])
        for e in (*row, equation)
        for t in walk_terms(e.body)
    )


def _shared_step(row: Sequence[ArrayEquation], lead: int, all_: Sequence[Definition], results: Sequence[str]) -> Step:
    """The step of equations that share a kernel, or of one that is alone."""
    if len(row) == 1 and not _along_rows(row[0]):
        return FlatStep(row[0])
    own = {e.array for e in row}
    outside = {name for e in all_ if not own & set(e.arrays) for name in e.reads} | set(results)
    return RowStep(lead, tuple(row), frozenset(own & outside))


def _along_rows(equation: ArrayEquation) -> bool:
    """Whether a reduction is at the top, and goes along the last axes of all that it reads, which are long."""
    body = equation.body
    if not isinstance(body, Reduce) or prod(v.extent for v in body.variables) < _SHORT:
        return False
    last = body.variables[-1]
    read = [
        t.indices for t in walk_terms(body.body) if isinstance(t, Load) and any(last in index.free for index in t.indices)
    ]
    return bool(read) and all(last in own.free and not any(last in i.free for i in outer) for *outer, own in read)
