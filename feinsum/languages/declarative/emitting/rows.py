"""Kernels whose work-groups go through rows; what a row computes on the way stays on chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from feinsum.languages.declarative.emitting.kernels import Emitter, KernelText, Spread, decoded, elements, flat
from feinsum.languages.declarative.emitting.operators import FIRST, VECTOR_OPERATORS, better, combined, is_vectorial
from feinsum.languages.declarative.emitting.types import c_type
from feinsum.languages.declarative.lowering.folding import INDEX, fold, integer
from feinsum.languages.declarative.lowering.steps import RowStep
from feinsum.languages.declarative.lowering.terms import Apply, Equation, Load, Reduce, substitute, walk

_CHAINS: Final = 4
"""Vectors of partial results: one alone would wait for itself."""


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
        rows = decoded(emitter, step.equations[0].variables[: step.lead], "group")
        for number, equation in enumerate(step.equations):
            for variable, row in zip(equation.variables[: step.lead], rows, strict=True):
                writer.define(variable, row)
            _row_equation(emitter, step, equation, rows, number)
        if spread.lanes > 1:
            writer.line("barrier(CLK_LOCAL_MEM_FENCE);")
    return emitter.finish(step.rows)


def _declare_parts(emitter: Emitter, equation: Equation, number: int) -> None:
    body = equation.body
    assert isinstance(body, Reduce)
    lanes = emitter.spread.lanes
    if lanes == 1:
        return
    emitter.writer.line(f"__local {c_type(body.dtype)} part{number}[{lanes}] __attribute__((aligned(64)));")
    if body.operator.startswith("arg"):
        emitter.writer.line(f"__local {c_type(body.body.dtype)} value{number}[{lanes}];")


def _row_equation(emitter: Emitter, step: RowStep, equation: Equation, rows: Sequence[str], number: int) -> None:
    """One equation of a row: of numbers that all work-items know, or of elements that they share."""
    writer, trailing = emitter.writer, equation.variables[step.lead :]
    if not trailing:
        if isinstance(equation.body, Reduce):
            name = _together(emitter, equation.body, number)
        else:
            name = writer.value(equation.body)
        emitter.scalars[equation.array] = name
        if equation.array in step.kept:
            with writer.braces("if (lid == 0)"):
                emitter.store(equation.array, rows, name)
        return
    *outer, last = trailing
    ahead = _read_again(emitter, step, number)
    with writer.braces(""), writer.over(outer, {}):
        indices = [writer.value(v) for v in outer]

        def store(element: str, value: str) -> None:
            for array in ahead if emitter.width else ():
                shape = emitter.arrays[array][0]
                place = flat([*rows, *indices, element], shape)
                writer.line(f"__builtin_prefetch(&{array}[{place} + {prod(shape[step.lead :])}]);")
            if equation.array in emitter.on_chip:
                emitter.put(f"row_{equation.array}[{flat([*indices, element], equation.shape[step.lead :])}]", value)
            if equation.array in step.kept:
                emitter.store(equation.array, [*rows, *indices, element], value)

        elements(emitter, equation, last, ("0", str(last.extent)), store)
    if emitter.spread.lanes > 1 and equation.array in emitter.on_chip and not _own_elements(equation.array, step):
        writer.line("barrier(CLK_LOCAL_MEM_FENCE);")


def _read_again(emitter: Emitter, step: RowStep, number: int) -> list[str]:
    """Arrays that an equation reads at the very elements it makes, as an equation before it did.

    They are in the cache by now, and memory has nothing to do while functions of them are computed: a core asks for the
    same of its next row meanwhile.
    """
    equation = step.equations[number]
    if not emitter.spread.vector_bytes:
        return []
    before = {array for e in step.equations[:number] for array in e.reads}
    loads = {t for t in walk(equation.body) if isinstance(t, Load) and t.indices == equation.variables}
    own = {e.array for e in step.equations}
    return sorted({t.array for t in loads if t.array in before and t.array not in own})


def _own_elements(array: str, step: RowStep) -> bool:
    """Whether each work-item reads only those elements of an array of a row that it wrote itself."""
    for equation in step.equations:
        lasts = set(equation.variables[step.lead :][-1:])
        reduce = equation.body
        if isinstance(reduce, Reduce) and len(equation.variables) == step.lead:
            lasts = set(reduce.variables[-1:])
        for term in walk(equation.body):
            if isinstance(term, Load) and term.array == array and term.indices[-1] not in lasts:
                return False
    return True


def _together(emitter: Emitter, body: Reduce, number: int) -> str:
    """A reduction by all work-items of a group, which all know its result."""
    writer, lanes = emitter.writer, emitter.spread.lanes
    arg = body.operator.startswith("arg")
    if lanes == 1 and not arg:
        return _by_one(emitter, body)
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
    result = writer.fresh("all")
    writer.line(f"{c_type(body.dtype)} {result} = part{number}[0];")
    pair = combined(body.operator, body.dtype, result, f"part{number}[t]")
    writer.line(f"for (int t = 1; t < {parts}; t++) {result} = {pair};")
    return result


def _by_one(emitter: Emitter, body: Reduce) -> str:
    """A reduction by the only work-item of a group, in vectors where that is possible."""
    writer, dtype = emitter.writer, body.dtype
    *outer, last = body.variables
    width = emitter.spread.width(dtype)
    if (
        not width
        or not is_vectorial(body.body, last, dtype)
        or last.extent < width
        or body.operator not in VECTOR_OPERATORS
    ):
        return writer.reduce(body, {})
    first = FIRST[body.operator](dtype)
    name, *parts = [writer.fresh("acc") for _ in range(1 + _CHAINS)]
    writer.line(f"{c_type(dtype)} {name} = {first};")
    writer.line(f"{c_type(dtype)}{width} {', '.join(f'{part} = {first}' for part in parts)};")
    with writer.over(outer, {}):
        e = writer.fresh("e")
        writer.line(f"int {e} = 0;")
        for chains in (parts, parts[:1]):
            step = width * len(chains)
            with writer.braces(f"for (; {e} + {step} <= {last.extent}; {e} += {step})"), writer.vectors(last, width, dtype):
                writer.define(last, e)
                for count, part in enumerate(chains):
                    place = fold(Apply(INDEX, "+", (last, integer(count * width))))
                    term = substitute(body.body, {last: place})
                    writer.accumulate(part, Reduce(dtype, body.operator, body.variables, term), width)
        with writer.braces(f"for (; {e} < {last.extent}; {e}++)"):
            writer.define(last, e)
            writer.accumulate(name, body)
    wide = _halved(emitter, body, parts, width)
    while width > 1:
        half = width // 2
        narrow, suffix = writer.fresh("acc"), str(half) if half > 1 else ""
        pair = combined(body.operator, dtype, f"{wide}.lo", f"{wide}.hi", half if half > 1 else 0)
        writer.line(f"const {c_type(dtype)}{suffix} {narrow} = {pair};")
        wide, width = narrow, half
    writer.line(f"{name} = {combined(body.operator, dtype, name, wide)};")
    return name


def _halved(emitter: Emitter, body: Reduce, parts: Sequence[str], width: int) -> str:
    """Vectors of partial results as one."""
    while len(parts) > 1:
        half = len(parts) // 2
        for a, b in zip(parts[:half], parts[half:], strict=True):
            emitter.writer.line(f"{a} = {combined(body.operator, body.dtype, a, b, width)};")
        parts = parts[:half]
    return parts[0]


def _first_best(emitter: Emitter, body: Reduce, number: int) -> str:
    """The position of the best value, the first of several."""
    writer, dtype = emitter.writer, body.body.dtype
    result = writer.fresh("all")
    writer.line(f"long {result} = -1;")
    writer.line(f"{c_type(dtype)} {result}_value = 0;")
    with writer.braces(f"for (int t = 0; t < {emitter.spread.lanes}; t++)"):
        part, value, best = f"part{number}[t]", f"value{number}[t]", f"{result}_value"
        equal = f"({value} == {best} || ({value} != {value} && {best} != {best}))"
        wins = f"{result} < 0 || {better(body.operator, dtype, value, best)} || ({equal} && {part} < {result})"
        with writer.braces(f"if ({part} >= 0 && ({wins}))"):
            writer.line(f"{result} = {part};")
            writer.line(f"{best} = {value};")
    return result
