"""Kernels of steps: what they share, and those whose work-items go through elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from feinsum.languages.declarative.emitting.operators import divisors, is_vectorial
from feinsum.languages.declarative.emitting.types import PREAMBLE, c_type, helpers, stored_type
from feinsum.languages.declarative.emitting.writer import StatementWriter
from feinsum.languages.declarative.forms import numpy_type
from feinsum.languages.declarative.lowering.steps import FlatStep
from feinsum.languages.declarative.lowering.terms import ArrayEquation, Load, TermVariable

_LINE_BYTES: Final = 64
"""The bytes of a cache line, and of the longest vectors."""
_GROUPS_PER_UNIT: Final = 32
"""Work-groups for each compute unit at most: others take several turns."""


@dataclass(frozen=True)
class KernelText:
    """A kernel: its text, its name, the arrays it takes in order, and how it is launched."""

    text: str
    name: str
    arrays: tuple[str, ...]
    groups: int
    work_items: int

    @property
    def source(self) -> str:
        """The text with all that it needs before it."""
        return join_sources([self])


def join_sources(kernels: Sequence[KernelText]) -> str:
    """The source of several kernels."""
    body = "\n".join(kernel.text for kernel in kernels)
    return f"{PREAMBLE}{helpers(body)}{body}"


@dataclass(frozen=True)
class Spread:
    """The preferred spread of work on a device.

    :ivar lanes: work-items of a group.
    :ivar units: compute units.
    :ivar tree: whether partial results are brought together in two steps, or by every work-item for itself.
    :ivar vector_bytes: of vectors that a work-item computes in, or 0 where neighbouring work-items are the vector.
    :ivar cache_bytes: arrays of more are written past the cache, vector by vector; 0 if there is no such way.
    """

    lanes: int
    units: int
    tree: bool
    vector_bytes: int = 0
    cache_bytes: int = 0

    def width(self, dtype: str) -> int:
        """Numbers of a vector."""
        return self.vector_bytes // {"f32": 4, "f64": 8}.get(dtype, 1 << 30)


class Emitter:
    """One kernel on its way: the arrays of the program lie in memory, those of rows on chip."""

    def __init__(self, name: str, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread) -> None:
        self.name, self.arrays, self.spread = name, arrays, spread
        self.writer = StatementWriter(self.place)
        self.on_chip: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.scalars: dict[str, str] = {}
        self.used: dict[str, bool] = {}
        self.streamed: set[str] = set()
        self.width = 0

    def place(self, load: Load, indices: Sequence[str]) -> str:
        """The place of an element."""
        if load.array in self.scalars:
            return self.scalars[load.array]
        if load.array in self.on_chip:
            lead, shape = self.on_chip[load.array]
            return f"row_{load.array}[{flat(indices[lead:], shape)}]"
        self.used.setdefault(load.array, False)
        return f"{load.array}[{flat(indices, self.arrays[load.array][0])}]"

    def store(self, array: str, indices: Sequence[str], value: str) -> None:
        """Write an element to memory, or a vector from there on."""
        self.used[array] = True
        place = f"{array}[{flat(indices, self.arrays[array][0])}]"
        if self.width and self._is_streamed(array):
            self._stream(array, place, value)
        else:
            self.put(place, value)

    def _is_streamed(self, array: str) -> bool:
        """Whether an array is written past the cache: a vector of a line, at a line."""
        shape, dtype = self.arrays[array]
        size = numpy_type(dtype).itemsize
        fits = shape[-1] * size % _LINE_BYTES == 0 and self.width * size == _LINE_BYTES
        return fits and 0 < self.spread.cache_bytes < prod(shape) * size

    def _stream(self, array: str, place: str, value: str) -> None:
        """Write a vector past the cache, if the array begins where a line does, which a caller's array may not."""
        self.streamed.add(array)
        target = f"(__global {c_type(self.arrays[array][1])}{self.width} *) &{place}"
        self.writer.line(f"if (lined_{array}) __builtin_nontemporal_store({value}, {target});")
        self.writer.line(f"else vstore{self.width}({value}, 0, &{place});")

    def put(self, place: str, value: str) -> None:
        """Write an element, or a vector."""
        self.writer.line(f"vstore{self.width}({value}, 0, &{place});" if self.width else f"{place} = {value};")

    def finish(self, groups: int) -> KernelText:
        """The kernel, with the arrays that it turned out to take."""
        arrays = tuple(self.used)
        parameters = ", ".join(
            f"__global {'' if self.used[a] else 'const '}{stored_type(self.arrays[a][1])} *restrict {a}" for a in arrays
        )
        lined = [f"    const int lined_{a} = ((ulong) {a} & {_LINE_BYTES - 1}) == 0;" for a in sorted(self.streamed)]
        body = "\n".join([*lined, *self.writer.lines])
        head = f"__attribute__((reqd_work_group_size({self.spread.lanes}, 1, 1)))"
        text = f"__kernel {head}\nvoid {self.name}({parameters})\n{{\n{body}\n}}\n"
        most = _GROUPS_PER_UNIT * self.spread.units
        return KernelText(text, self.name, arrays, max(1, min(groups, most)), self.spread.lanes)

    def begin(self, groups: int) -> str:
        """Lines at the start; the head of the loop over what groups take turns at."""
        self.writer.line("const int lid = get_local_id(0);")
        if self.spread.lanes == 1:  # rows that lie side by side, as a core reads them best
            self.writer.line(f"const int share = ({groups} + get_num_groups(0) - 1) / get_num_groups(0);")
            self.writer.line("const int first = get_group_id(0) * share;")
            return f"for (int group = first; group < min(first + share, {groups}); group++)"
        return f"for (int group = get_group_id(0); group < {groups}; group += get_num_groups(0))"


def flat(indices: Sequence[str], shape: Sequence[int]) -> str:
    """The offset of an element in C order."""
    text = "0"
    for index, length in zip(indices, shape, strict=True):
        text = index if text == "0" else f"({text}) * {length} + {index}"
    return text


def decode_indices(emitter: Emitter, variables: Sequence[TermVariable], number: str) -> list[str]:
    """Indices of a number that counts through them in C order; the variables are defined."""
    names = []
    behind = prod(v.extent for v in variables)
    for variable in variables:
        behind //= max(variable.extent, 1)
        text = f"{number} / {behind}" if behind > 1 else number
        name = emitter.writer.declare("const int", f"({text}) % {variable.extent}", "i")
        emitter.writer.define(variable, name)
        names.append(name)
    return names


def flat_kernel(name: str, step: FlatStep, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread) -> KernelText:
    """A work-item for each element; groups take pieces of the last axis, so that neighbours are neighbours."""
    equation, emitter = step.equation, Emitter(name, arrays, spread)
    writer = emitter.writer
    *outer, last = equation.variables or (TermVariable("int", "nothing", 1),)
    if last.extent < max(spread.lanes, 16):  # pieces of such an axis would leave most work-items without any
        total = max(prod(equation.shape), 0)
        each = spread.lanes if spread.lanes > 1 else 256
        groups = -(-total // each)
        with writer.braces(emitter.begin(groups)), writer.braces(f"for (int at = lid; at < {each}; at += {spread.lanes})"):
            writer.line(f"const int element = group * {each} + at;")
            with writer.braces(f"if (element < {total})"):
                indices = decode_indices(emitter, equation.variables, "element")
                emitter.store(equation.array, indices, writer.value(equation.body))
        return emitter.finish(groups)
    wanted = 8 * spread.lanes if spread.lanes > 1 else 4096
    piece = max(spread.lanes, min(wanted, last.extent) // spread.lanes * spread.lanes)
    pieces = -(-last.extent // piece)
    groups = prod(v.extent for v in outer) * pieces
    with writer.braces(emitter.begin(groups)):
        writer.line(f"const int begin = group % {pieces} * {piece};")
        indices = decode_indices(emitter, outer, f"(group / {pieces})")
        end = f"min(begin + {piece}, {last.extent})"

        def store(element: str, value: str) -> None:
            emitter.store(equation.array, [*indices, element], value)

        elements(emitter, equation, last, ("begin", end), store)
    return emitter.finish(groups)


def elements(
    emitter: Emitter,
    equation: ArrayEquation,
    last: TermVariable,
    bounds: tuple[str, str],
    store: Callable[[str, str], None],
) -> None:
    """The elements of an equation along its last variable, in vectors where that is possible, and what is left by one."""
    writer, (begin, end), dtype = emitter.writer, bounds, equation.dtype
    width, e = emitter.spread.width(dtype), writer.fresh("e")
    if not width or not is_vectorial(equation.body, last, dtype):
        lanes = emitter.spread.lanes
        whole = bounds == ("0", str(last.extent)) and last.extent % lanes == 0
        # a compiler sees how many rounds there are if they are counted from 0
        first, own = ("0", f"({e} + lid)") if whole else (f"{begin} + lid", e)
        with writer.braces(f"for (int {e} = {first}; {e} < {end}; {e} += {lanes})"):
            writer.define(last, own)
            store(own, writer.value(equation.body))
        return
    for divisor in divisors(equation.body, last):
        writer.inverse(divisor)
    writer.line(f"int {e} = {begin};")
    with writer.braces(f"for (; {e} + {width} <= {end}; {e} += {width})"), writer.vectors(last, width, dtype):
        writer.define(last, e)
        emitter.width = width
        store(e, writer.widened(equation.body))
        emitter.width = 0
    with writer.braces(f"for (; {e} < {end}; {e}++)"):
        writer.define(last, e)
        store(e, writer.value(equation.body))
