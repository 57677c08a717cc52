"""Matrix units as data: ``D = A B + D`` by the lanes of a sub-group, each of which holds some registers of every matrix.

A *fragment* is what one lane holds of a matrix.  The element in register r of lane l is a sum over the digits of both
numbers, the quickest digit first:

    (row, column) = Σ_i digit_i(l) (lanes[i].row, lanes[i].column) + Σ_i digit_i(r) (registers[i].row, registers[i].column)

So ``lanes=(LayoutDigit(4, 0, 1), LayoutDigit(8, 1, 0))`` puts lane l at row l / 4 and column l mod 4.  CuTe calls such maps
strided layouts; here a step has two dimensions.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple


class LayoutDigit(NamedTuple):
    """A digit of the number of a lane or of a register: its number of values, and its step along rows and columns."""

    length: int
    row: int
    column: int


@dataclass(frozen=True)
class FragmentLayout:
    """The place in a matrix of each register of each lane; see the module's formula."""

    lanes: tuple[LayoutDigit, ...]
    registers: tuple[LayoutDigit, ...] = ()

    @property
    def length(self) -> int:
        """The number of registers of a lane."""
        return prod(digit.length for digit in self.registers)

    def offset(self, register: int) -> tuple[int, int]:
        """Row and column of a register, from that of the lane's first."""
        return _stepped(register, self.registers)

    def place(self, lane: int, register: int) -> tuple[int, int]:
        """Row and column of a register of a lane."""
        (row, column), (down, across) = _stepped(lane, self.lanes), self.offset(register)
        return row + down, column + across

    def steps(self, axis: int) -> Iterator[tuple[int, int, int]]:
        """The digits of a lane's number that step along rows (0) or columns (1): divisor of the number, length and step."""
        divisor = 1
        for digit in self.lanes:
            if digit[1 + axis]:
                yield divisor, digit.length, digit[1 + axis]
            divisor *= digit.length

    def text(self, lane: str, register: int) -> tuple[str, str]:
        """Row and column of a register as expressions of C."""
        terms = ([f"{lane} / {d} % {n} * {step}" for d, n, step in self.steps(axis)] for axis in (0, 1))
        row, column = (" + ".join([*own, str(start)]) for own, start in zip(terms, self.offset(register), strict=True))
        return row, column


def _stepped(number: int, digits: Sequence[LayoutDigit]) -> tuple[int, int]:
    """The row and the column that the digits of a number add up to."""
    row = column = 0
    for digit in digits:
        number, value = divmod(number, digit.length)
        row, column = row + value * digit.row, column + value * digit.column
    return row, column


@dataclass(frozen=True)
class UnitTile:
    """The fragments of ``D[m, n] += A[m, depth] B[depth, n]``; repeated along the sum, they are those of a unit."""

    m: int
    n: int
    depth: int
    a: FragmentLayout
    b: FragmentLayout
    d: FragmentLayout


@dataclass(frozen=True)
class MatrixUnit(ABC):
    """One shape of a vendor's matrix instruction: (m, k) times (k, n), with its text as OpenCL C.

    :ivar name: unique among all vendors; profiles, configurations and records know the unit by it.
    :ivar operand: the type of the numbers that it multiplies, by its name in numpy, or ``"bfloat16"``.
    :ivar dtype: the OpenCL C type of the registers of A, B and D, ``"double"`` or ``"float"``.
    :ivar a, b, d: the places of the registers in A, B and D.
    :ivar lanes: the number of work-items of the sub-group.
    :ivar attribute: the attribute that a kernel has to declare, such as the size of its sub-groups; empty if none.
    """

    name: str
    m: int
    n: int
    k: int
    operand: str
    dtype: str
    a: FragmentLayout
    b: FragmentLayout
    d: FragmentLayout
    lanes: int
    attribute: str = ""

    @abstractmethod
    def statement(self, d: str, a: str, b: str) -> str:
        """The OpenCL C statement ``D += A B`` on scalar variables: register i of A is the variable ``{a}{i}``."""

    @property
    def registers(self) -> tuple[int, int, int]:
        """The numbers of registers of a lane for A, B and D."""
        return self.a.length, self.b.length, self.d.length

    @property
    def number(self) -> str:
        """The type of the registers, by its name in numpy."""
        return "float64" if self.dtype == "double" else "float32"

    @property
    def flops(self) -> int:
        """Operations of one instruction of a sub-group."""
        return 2 * self.m * self.n * self.k

    @cached_property
    def tile(self) -> UnitTile:
        """The smallest fragments of which those of the unit are repetitions along the sum, register after register."""
        (a, of_a), (b, of_b) = _without_repetition(self.a, 1, self.k), _without_repetition(self.b, 0, self.k)
        if of_a != of_b:
            return UnitTile(self.m, self.n, self.k, self.a, self.b, self.d)
        return UnitTile(self.m, self.n, of_a, a, b, self.d)

    @property
    def splits(self) -> bool:
        """Whether numbers of the operands are split, as the unit multiplies shorter ones."""
        return False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The functions of a unit: ``""`` is ``D + A B`` of fragments.

        A unit that splits numbers also has ``"summed"``, where the unit and not the ordinary adder adds them to D;
        ``"bits"``, the part of a number that it multiplies exactly; and ``"whole"`` and ``"split"``, which add A B to D in
        two sums, one of such parts and one of the other terms, with B whole or split beforehand.
        """
        return ("",)

    def error(self, terms: int) -> float:
        """The error of a sum of `terms` products, in units of the roundoff u of `number` times Σ |a| |b|; 1 where only the
        result is rounded."""
        return 1.0

    def tile_error(self, terms: int, depth: int) -> float:
        """The error where the unit itself adds up the products of a tile of `depth`, before the ordinary adder does."""
        return 1.0

    def sum_error(self, terms: int, kind: str) -> float:
        """The error of sums by the functions of the kinds "whole" and "split"."""
        return 1.0

    @property
    def helpers(self) -> Mapping[str, str]:
        """The functions that the functions of the unit call, by name."""
        return {}

    def called(self, kind: str = "") -> str:
        """The name of a function of the unit."""
        return "_".join(filter(None, ["feinsum", re.sub(r"\W", "_", self.name), kind]))

    def arguments(self, kind: str = "") -> tuple[list[str], list[str]]:
        """The numbers that a function takes, and those that it returns: expressions after :meth:`body`."""
        numbers = [[f"{x}{i}" for i in range(count)] for x, count in zip("abd", self.registers, strict=True)]
        return numbers[2] + numbers[0] + numbers[1], numbers[2]

    def body(self, kind: str = "") -> list[str]:
        """The statements of a function; by default those that add A B to the variables d0, d1 and so on."""
        return [self.statement("d", "a", "b")]

    def function(self, kind: str = "") -> str:
        """A function of the unit in OpenCL C; its first number comes back as its value, and the others through pointers."""
        inputs, results = self.arguments(kind)
        declared = [f"{self.dtype} {x}" for x in inputs] + [f"{self.dtype} *r{i}" for i in range(1, len(results))]
        stores = " ".join(f"*r{i} = {x};" for i, x in enumerate(results) if i)
        lines = "\n  ".join(filter(None, [*self.body(kind), stores, f"return {results[0]};"]))
        return f"static inline {self.dtype} {self.called(kind)}({', '.join(declared)})\n{{\n  {lines}\n}}"


def _without_repetition(layout: FragmentLayout, axis: int, depth: int) -> tuple[FragmentLayout, int]:
    """A layout without the last digits of registers that only repeat it along an axis, and what is left of the depth."""
    registers = list(layout.registers)
    while registers and not registers[-1][2 - axis] and registers[-1].length * registers[-1][1 + axis] == depth:
        depth = registers.pop()[1 + axis]
    return replace(layout, registers=tuple(registers)), depth
