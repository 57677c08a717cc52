"""Kernels whose work-groups go through rows; what a row computes on the way stays on chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from feinsum.languages.declarative.emitting.kernels import Emitter, KernelText, Spread, decode_indices, elements, flat
from feinsum.languages.declarative.emitting.operators import better, combined, is_vectorial
from feinsum.languages.declarative.emitting.partial import Partial, is_partial
from feinsum.languages.declarative.emitting.types import c_type
from feinsum.languages.declarative.lowering.folding import INDEX, constant_index, fold
from feinsum.languages.declarative.lowering.steps import RowStep
from feinsum.languages.declarative.lowering.terms import (
    Apply,
    ArrayEquation,
    Load,
    Reduce,
    Term,
    TermVariable,
    rename_variables,
    substitute,
    walk_terms,
)


def row_kernel(name: str, step: RowStep, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread) -> KernelText:
    """A work-group for each row; what its equations make on the way is in local memory, or in each work-item."""
    emitter = Emitter(name, arrays, spread)
    writer = emitter.writer
    read = {a for e in step.equations for a in e.reads}
    for equation in step.equations:
        trailing = equation.shape[step.lead :]
        if trailing and equation.array in read:
            emitter.on_chip[equation.array] = (step.lead, trailing)
            writer.line(f"__local {c_type(equation.dtype)} row_{equation.array}[{max(prod(trailing), 1)}];")
    for number, equation in enumerate(step.equations):
        if isinstance(equation.body, Reduce) and len(equation.variables) == step.lead:
            _declare_parts(emitter, equation, number)
    with writer.braces(emitter.begin(step.rows)):
        rows = decode_indices(emitter, step.equations[0].variables[: step.lead], "group")
        riding: set[int] = set()
        for number, equation in enumerate(step.equations):
            if number in riding:
                continue
            for variable, row in zip(equation.variables[: step.lead], rows, strict=True):
                writer.define(variable, row)
            if equation.variables[step.lead :]:
                riders = _riders(emitter, step, number)
                _row_elements(emitter, step, number, rows, riders)
                riding |= set(riders)
            else:
                _row_number(emitter, step, number, rows)
        if spread.lanes > 1:
            writer.line("barrier(CLK_LOCAL_MEM_FENCE);")
    return emitter.finish(step.rows)


def _declare_parts(emitter: Emitter, equation: ArrayEquation, number: int) -> None:
    body = equation.body
    assert isinstance(body, Reduce)
    lanes = emitter.spread.lanes
    if lanes == 1:
        return
    emitter.writer.line(f"__local {c_type(body.dtype)} part{number}[{lanes}] __attribute__((aligned(64)));")
    if body.operator.startswith("arg"):
        emitter.writer.line(f"__local {c_type(body.body.dtype)} value{number}[{lanes}];")


def _row_number(emitter: Emitter, step: RowStep, number: int, rows: Sequence[str]) -> None:
    """An equation of one number of a row, which all work-items know."""
    body = step.equations[number].body
    if isinstance(body, Reduce):
        _keep_number(emitter, step, number, rows, _reduce_in_group(emitter, step, number, rows))
    else:
        _keep_number(emitter, step, number, rows, emitter.writer.value(body))


def _keep_number(emitter: Emitter, step: RowStep, number: int, rows: Sequence[str], name: str) -> None:
    array = step.equations[number].array
    emitter.scalars[array] = name
    if array in step.kept:
        with emitter.writer.braces("if (lid == 0)"):
            emitter.store(array, rows, name)


def _row_elements(emitter: Emitter, step: RowStep, number: int, rows: Sequence[str], riders: Mapping[int, Reduce]) -> None:
    """An equation of elements of a row, which work-items share.

    :param riders: reductions of the elements, which are made while these are at hand: by number of their equation.
    """
    writer, equation = emitter.writer, step.equations[number]
    *outer, last = equation.variables[step.lead :]
    ahead = _read_again(emitter, step, number)
    width = emitter.spread.width(equation.dtype)
    partial = {rider: Partial(writer, body, width, 1) for rider, body in riders.items()}
    with writer.braces(""), writer.over(outer, {}):
        indices = [writer.value(v) for v in outer]

        def store(element: str, value: str) -> None:
            if emitter.width:
                _ask_ahead(emitter, step, ahead, [*rows, *indices, element])
            if equation.array in emitter.on_chip:
                emitter.put(f"row_{equation.array}[{flat([*indices, element], equation.shape[step.lead :])}]", value)
            if equation.array in step.kept:
                emitter.store(equation.array, [*rows, *indices, element], value)
            if riders:
                writer.define(Load(equation.dtype, equation.array, equation.variables), value)
            for rider, body in riders.items():
                if emitter.width:
                    partial[rider].take_vectors([writer.widened(body.body)])
                else:
                    partial[rider].take(body.body)

        elements(emitter, equation, last, ("0", str(last.extent)), store)
    for rider in riders:
        _keep_number(emitter, step, rider, rows, partial[rider].result())
    if emitter.spread.lanes > 1 and equation.array in emitter.on_chip and not _own_elements(equation.array, step):
        writer.line("barrier(CLK_LOCAL_MEM_FENCE);")


def _riders(emitter: Emitter, step: RowStep, number: int) -> dict[int, Reduce]:
    """The reductions right behind an equation of elements that take each of these once, in terms of its variables.

    Only where the elements are made in vectors, which are at hand then: a sum of exponentials costs one addition for each.
    """
    equation, found = step.equations[number], dict[int, Reduce]()
    *_, last = equation.variables
    width = emitter.spread.width(equation.dtype)
    if emitter.spread.lanes > 1 or not width or not is_vectorial(equation.body, last, equation.dtype):
        return found
    not_yet = {e.array for e in step.equations[number:]} - {equation.array}
    for position, other in enumerate(step.equations[number + 1 :], number + 1):
        body = other.body
        if not isinstance(body, Reduce) or body.dtype != equation.dtype or set(other.reads) & not_yet:
            break
        own = dict(zip((*other.variables, *body.variables), equation.variables, strict=False))
        if [v.extent for v in own] != [v.extent for v in equation.variables] or len(other.variables) > step.lead:
            break
        inside = rename_variables(body.body, own)
        loads = {t for t in walk_terms(inside) if isinstance(t, Load) and t.array == equation.array}
        rider = Reduce(body.dtype, body.operator, equation.variables[step.lead :], inside)
        if {t.indices for t in loads} != {equation.variables} or not is_partial(rider, last, width):
            break
        found[position] = rider
    return found


def _ask_ahead(emitter: Emitter, step: RowStep, arrays: Sequence[str], indices: Sequence[str]) -> None:
    """Ask for the elements of the next row that lie where those at some indices do."""
    for array in arrays:
        shape = emitter.arrays[array][0]
        emitter.writer.line(f"__builtin_prefetch(&{array}[{flat(indices, shape)} + {prod(shape[step.lead :])}]);")


def _read_again(emitter: Emitter, step: RowStep, number: int) -> list[str]:
    """Arrays that an equation reads at the very elements it makes or reduces, as an equation before it did.

    They are in the cache by now, and memory has nothing to do while functions of them are computed: a core asks for the
    same of its next row meanwhile.  A reduction leaves that to elements that are made later of the same.
    """
    equation = step.equations[number]
    if not emitter.spread.vector_bytes:
        return []
    before = {array for e in step.equations[:number] for array in e.reads}
    later = {a for e in step.equations[number + 1 :] if e.variables[step.lead :] for a in e.reads}
    own = {e.array for e in step.equations}
    if equation.variables[step.lead :]:
        return sorted(_read_along(equation.body, equation.variables) & before - own)
    assert isinstance(equation.body, Reduce)
    return sorted(_read_along(equation.body.body, (*equation.variables, *equation.body.variables)) & before - own - later)


def _read_along(body: Term, variables: Sequence[TermVariable]) -> set[str]:
    """The arrays that are read at some variables."""
    return {t.array for t in walk_terms(body) if isinstance(t, Load) and t.indices == tuple(variables)}


def _own_elements(array: str, step: RowStep) -> bool:
    """Whether each work-item reads only those elements of an array of a row that it wrote itself."""
    for equation in step.equations:
        lasts = set(equation.variables[step.lead :][-1:])
        reduce = equation.body
        if isinstance(reduce, Reduce) and len(equation.variables) == step.lead:
            lasts = set(reduce.variables[-1:])
        for term in walk_terms(equation.body):
            if isinstance(term, Load) and term.array == array and term.indices[-1] not in lasts:
                return False
    return True


def _reduce_in_group(emitter: Emitter, step: RowStep, number: int, rows: Sequence[str]) -> str:
    """A reduction by all work-items of a group, which all know its result."""
    writer, lanes, body = emitter.writer, emitter.spread.lanes, step.equations[number].body
    assert isinstance(body, Reduce)
    arg = body.operator.startswith("arg")
    if lanes == 1 and not arg:
        return _by_one(emitter, step, number, rows)
    own = writer.reduce(body, {body.variables[-1]: ("lid", str(lanes))})
    if lanes == 1:
        return own
    writer.line(f"part{number}[lid] = {own};")
    if arg:
        writer.line(f"value{number}[lid] = {own}_value;")
    writer.line("barrier(CLK_LOCAL_MEM_FENCE);")
    if arg:
        return _first_best(emitter, body, number)
    parts = lanes
    if emitter.spread.tree:  # as long as two steps are, they take fewer barriers than halves do
        parts = 1 << (lanes.bit_length() - 1) // 2
        pair = combined(body.operator, body.dtype, f"{own}", f"part{number}[lid + t]")
        with writer.braces(f"if (lid < {parts})"):
            writer.line(f"for (int t = {parts}; t < {lanes}; t += {parts}) {own} = {pair};")
            writer.line(f"part{number}[lid] = {own};")
        writer.line("barrier(CLK_LOCAL_MEM_FENCE);")
    result = writer.declare(c_type(body.dtype), f"part{number}[0]", "all")
    pair = combined(body.operator, body.dtype, result, f"part{number}[t]")
    writer.line(f"for (int t = 1; t < {parts}; t++) {result} = {pair};")
    return result


def _by_one(emitter: Emitter, step: RowStep, number: int, rows: Sequence[str]) -> str:
    """A reduction by the only work-item of a group, in vectors where that is possible."""
    writer, body = emitter.writer, step.equations[number].body
    assert isinstance(body, Reduce)
    dtype, ahead = body.dtype, _read_again(emitter, step, number)
    *outer, last = body.variables
    width = emitter.spread.width(dtype)
    if not is_partial(body, last, width):
        return writer.reduce(body, {})
    partial = Partial(writer, body, width)
    with writer.over(outer, {}):
        indices, e = [*rows, *(writer.value(v) for v in outer)], writer.declare("int", "0", "e")
        for chains in (partial.chains, 1):
            taken = width * chains
            head = f"for (; {e} + {taken} <= {last.extent}; {e} += {taken})"
            with writer.braces(head), writer.vectors(last, width, dtype):
                writer.define(last, e)
                places = [fold(Apply(INDEX, "+", (last, constant_index(count * width)))) for count in range(chains)]
                for place in places:
                    _ask_ahead(emitter, step, ahead, [*indices, writer.scalar(place)])
                partial.take_vectors([writer.widened(substitute(body.body, {last: place})) for place in places])
        with writer.braces(f"for (; {e} < {last.extent}; {e}++)"):
            writer.define(last, e)
            partial.take(body.body)
    return partial.result()


def _first_best(emitter: Emitter, body: Reduce, number: int) -> str:
    """The position of the best value, the first of several."""
    writer, dtype = emitter.writer, body.body.dtype
    result = writer.declare("long", "-1", "all")
    writer.line(f"{c_type(dtype)} {result}_value = 0;")
    with writer.braces(f"for (int t = 0; t < {emitter.spread.lanes}; t++)"):
        part, value, best = f"part{number}[t]", f"value{number}[t]", f"{result}_value"
        equal = f"({value} == {best} || ({value} != {value} && {best} != {best}))"
        wins = f"{result} < 0 || {better(body.operator, dtype, value, best)} || ({equal} && {part} < {result})"
        with writer.braces(f"if ({part} >= 0 && ({wins}))"):
            writer.line(f"{result} = {part};")
            writer.line(f"{best} = {value};")
    return result
