"""Kernels of steps: work-items that go through elements, and work-groups that go through rows together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from feinsum.languages.declarative.emitting.types import PREAMBLE, c_type, helpers, stored_type
from feinsum.languages.declarative.emitting.writer import FIRST, Writer, better, combined
from feinsum.languages.declarative.lowering.steps import FlatStep, RowStep, ScanStep
from feinsum.languages.declarative.lowering.terms import Equation, Load, Reduce, Variable, walk

_GROUPS_PER_UNIT: Final = 32
"""Work-groups for each compute unit at most: others take several turns."""


@dataclass(frozen=True)
class KernelText:
    """A kernel: its source, its name, the arrays it takes in order, and how it is launched."""

    source: str
    name: str
    arrays: tuple[str, ...]
    groups: int
    work_items: int


@dataclass(frozen=True)
class Spread:
    """How a device likes work spread.

    :ivar lanes: work-items of a group.
    :ivar units: compute units.
    :ivar tree: whether partial results are brought together by halves, or by every work-item for itself.
    """

    lanes: int
    units: int
    tree: bool


class _Emitter:
    """One kernel on its way: the arrays of the program lie in memory, those of rows on chip."""

    def __init__(self, name: str, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread) -> None:
        self.name, self.arrays, self.spread = name, arrays, spread
        self.writer = Writer(self.place)
        self.on_chip: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.scalars: dict[str, str] = {}
        self.used: dict[str, bool] = {}

    def place(self, load: Load, indices: Sequence[str]) -> str:
        """Where an element is."""
        if load.array in self.scalars:
            return self.scalars[load.array]
        if load.array in self.on_chip:
            lead, shape = self.on_chip[load.array]
            return f"row_{load.array}[{flat(indices[lead:], shape)}]"
        self.used.setdefault(load.array, False)
        return f"{load.array}[{flat(indices, self.arrays[load.array][0])}]"

    def store(self, array: str, indices: Sequence[str], value: str) -> None:
        """Write an element to memory."""
        self.used[array] = True
        self.writer.line(f"{array}[{flat(indices, self.arrays[array][0])}] = {value};")

    def finish(self, groups: int) -> KernelText:
        """The kernel, with the arrays that it turned out to take."""
        arrays = tuple(self.used)
        parameters = ", ".join(
            f"__global {'' if self.used[a] else 'const '}{stored_type(self.arrays[a][1])} *restrict {a}" for a in arrays
        )
        body = "\n".join(self.writer.lines)
        head = f"__attribute__((reqd_work_group_size({self.spread.lanes}, 1, 1)))"
        source = f"{PREAMBLE}{helpers(body)}__kernel {head}\nvoid {self.name}({parameters})\n{{\n{body}\n}}\n"
        most = _GROUPS_PER_UNIT * self.spread.units
        return KernelText(source, self.name, arrays, max(1, min(groups, most)), self.spread.lanes)

    def begin(self, groups: int) -> str:
        """Lines at the start; the head of the loop over what groups take turns at."""
        self.writer.line("const int lid = get_local_id(0);")
        return f"for (int group = get_group_id(0); group < {groups}; group += get_num_groups(0))"


def flat(indices: Sequence[str], shape: Sequence[int]) -> str:
    """The offset of an element in C order."""
    text = "0"
    for index, length in zip(indices, shape, strict=True):
        text = index if text == "0" else f"({text}) * {length} + {index}"
    return text


def decoded(emitter: _Emitter, variables: Sequence[Variable], number: str) -> list[str]:
    """Indices of a number that counts through them in C order; the variables are defined."""
    names = []
    behind = prod(v.extent for v in variables)
    for variable in variables:
        behind //= max(variable.extent, 1)
        name = emitter.writer.fresh("i")
        text = f"{number} / {behind}" if behind > 1 else number
        emitter.writer.line(f"const int {name} = ({text}) % {variable.extent};")
        emitter.writer.define(variable, name)
        names.append(name)
    return names


def flat_kernel(name: str, step: FlatStep, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread) -> KernelText:
    """A work-item for each element; groups take pieces of the last axis, so that neighbours are neighbours."""
    equation, emitter = step.equation, _Emitter(name, arrays, spread)
    writer = emitter.writer
    *outer, last = equation.variables or (Variable("int", "nothing", 1),)
    if last.extent < spread.lanes:  # pieces of such an axis would leave most work-items without any
        total = max(prod(equation.shape), 0)
        groups = -(-total // spread.lanes)
        with writer.braces(emitter.begin(groups)):
            writer.line(f"const int element = group * {spread.lanes} + lid;")
            with writer.braces(f"if (element < {total})"):
                indices = decoded(emitter, equation.variables, "element")
                emitter.store(equation.array, indices, writer.value(equation.body))
        return emitter.finish(groups)
    piece = spread.lanes * max(1, min(8, last.extent // spread.lanes))
    pieces = -(-last.extent // piece)
    groups = prod(v.extent for v in outer) * pieces
    with writer.braces(emitter.begin(groups)):
        writer.line(f"const int begin = group % {pieces} * {piece};")
        indices = decoded(emitter, outer, f"(group / {pieces})")
        end = f"min(begin + {piece}, {last.extent})"
        with writer.braces(f"for (int e = begin + lid; e < {end}; e += {spread.lanes})"):
            writer.define(last, "e")
            emitter.store(equation.array, [*indices, "e"], writer.value(equation.body))
    return emitter.finish(groups)


def row_kernel(name: str, step: RowStep, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread) -> KernelText:
    """A work-group for each row; what its equations make on the way is in local memory, or in each work-item."""
    emitter = _Emitter(name, arrays, spread)
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
        if emitter.on_chip or len(step.equations) > 0:
            writer.line("barrier(CLK_LOCAL_MEM_FENCE);")
    return emitter.finish(step.rows)


def _declare_parts(emitter: _Emitter, equation: Equation, number: int) -> None:
    body = equation.body
    assert isinstance(body, Reduce)
    lanes = emitter.spread.lanes
    emitter.writer.line(f"__local {c_type(body.dtype)} part{number}[{lanes}];")
    if body.operator.startswith("arg"):
        emitter.writer.line(f"__local {c_type(body.body.dtype)} value{number}[{lanes}];")


def _row_equation(emitter: _Emitter, step: RowStep, equation: Equation, rows: Sequence[str], number: int) -> None:
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
    lanes = str(emitter.spread.lanes)
    with writer.over(trailing, {trailing[-1]: ("lid", lanes)}):
        value, indices = writer.value(equation.body), [writer.value(v) for v in trailing]
        if equation.array in emitter.on_chip:
            writer.line(f"row_{equation.array}[{flat(indices, equation.shape[step.lead :])}] = {value};")
        if equation.array in step.kept:
            emitter.store(equation.array, [*rows, *indices], value)
    if equation.array in emitter.on_chip and not _own_elements(equation.array, step):
        writer.line("barrier(CLK_LOCAL_MEM_FENCE);")


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


def _together(emitter: _Emitter, body: Reduce, number: int) -> str:
    """A reduction by all work-items of a group, which all know its result."""
    writer, lanes = emitter.writer, emitter.spread.lanes
    own = writer.reduce(body, {body.variables[-1]: ("lid", str(lanes))})
    arg = body.operator.startswith("arg")
    writer.line(f"part{number}[lid] = {own};")
    if arg:
        writer.line(f"value{number}[lid] = {own}_value;")
    writer.line("barrier(CLK_LOCAL_MEM_FENCE);")
    if arg:
        return _first_best(emitter, body, number)
    if emitter.spread.tree:
        width = lanes // 2
        while width:
            pair = combined(body.operator, body.dtype, f"part{number}[lid]", f"part{number}[lid + {width}]")
            writer.line(f"if (lid < {width}) part{number}[lid] = {pair};")
            writer.line("barrier(CLK_LOCAL_MEM_FENCE);")
            width //= 2
        result = writer.fresh("all")
        writer.line(f"const {c_type(body.dtype)} {result} = part{number}[0];")
        return result
    result = writer.fresh("all")
    writer.line(f"{c_type(body.dtype)} {result} = {FIRST[body.operator](body.dtype)};")
    pair = combined(body.operator, body.dtype, result, f"part{number}[t]")
    writer.line(f"for (int t = 0; t < {lanes}; t++) {result} = {pair};")
    return result


def _first_best(emitter: _Emitter, body: Reduce, number: int) -> str:
    """Where the best value is, and the first of several."""
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


def scan_kernels(
    name: str, step: ScanStep, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread
) -> list[KernelText]:
    """Three launches: what blocks add up to, the scan of that, and the scan of every block from there on."""
    equation = step.equation
    rows, blocks, block = scan_sizes(step, spread)
    totals = f"{name}_totals"
    known = {**arrays, totals: ((rows, blocks), equation.dtype)}
    return [
        _scan_part(f"{name}_{what}", what, equation, known, (rows, blocks, block), totals, spread)
        for what in ("totals", "starts", "scan")
    ]


def scan_sizes(step: ScanStep, spread: Spread) -> tuple[int, int, int]:
    """How many rows a scan has, how many blocks a row, and how many elements a block."""
    *outer, last = step.equation.shape
    block = max(16, -(-last // max(1, 64 * spread.units)))
    return prod(outer), max(-(-last // block), 1), block


def _scan_part(
    name: str,
    what: str,
    equation: Equation,
    arrays: Mapping[str, tuple[tuple[int, ...], str]],
    sizes: tuple[int, int, int],
    totals: str,
    spread: Spread,
) -> KernelText:
    rows, blocks, block = sizes
    emitter = _Emitter(name, arrays, spread)
    writer, op, c = emitter.writer, equation.scan, c_type(equation.dtype)
    count = rows if what == "starts" else rows * blocks
    groups = -(-count // spread.lanes)
    first = FIRST[op](equation.dtype)
    with writer.braces(emitter.begin(groups)):
        writer.line(f"const int item = group * {spread.lanes} + lid;")
        with writer.braces(f"if (item < {count})"):
            if what == "starts":
                emitter.used[totals] = True
                writer.line(f"{c} acc = {first};")
                with writer.braces(f"for (int b = 0; b < {blocks}; b++)"):
                    writer.line(f"const {c} own = {totals}[item * {blocks} + b];")
                    writer.line(f"{totals}[item * {blocks} + b] = acc;")
                    writer.line(f"acc = {combined(op, equation.dtype, 'acc', 'own')};")
            else:
                emitter.used[totals] = what == "totals"
                begin = first if what == "totals" else f"{totals}[item]"
                _scan_block(emitter, equation, begin, blocks, block, stores=what == "scan")
                if what == "totals":
                    writer.line(f"{totals}[item] = acc;")
    return emitter.finish(groups)


def _scan_block(emitter: _Emitter, equation: Equation, begin: str, blocks: int, block: int, *, stores: bool) -> None:
    """A block of a running reduction, from what all before it add up to."""
    writer, c = emitter.writer, c_type(equation.dtype)
    *outer, last = equation.variables
    indices = decoded(emitter, outer, f"(item / {blocks})")
    writer.line(f"const int from = item % {blocks} * {block};")
    writer.line(f"{c} acc = {begin};")
    with writer.braces(f"for (int e = from; e < min(from + {block}, {last.extent}); e++)"):
        writer.define(last, "e")
        writer.line(f"acc = {combined(equation.scan, equation.dtype, 'acc', writer.value(equation.body))};")
        if stores:
            emitter.store(equation.array, [*indices, "e"], "acc")
