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
    """A digit of the number of a lane or of a register: how many values it has, and its step along rows and columns."""

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
        """Registers of a lane."""
        return prod(digit.length for digit in self.registers)

    def offset(self, register: int) -> tuple[int, int]:
        """Row and column of a register, from that of the lane's first."""
        found = [digit_of(register, self.registers, i) for i in range(len(self.registers))]
        pairs = list(zip(found, self.registers, strict=True))
        return sum(x * digit.row for x, digit in pairs), sum(x * digit.column for x, digit in pairs)

    def place(self, lane: int, register: int) -> tuple[int, int]:
        """Row and column of a register of a lane."""
        (row, column), at = self.offset(register), [digit_of(lane, self.lanes, i) for i in range(len(self.lanes))]
        pairs = list(zip(at, self.lanes, strict=True))
        return row + sum(x * digit.row for x, digit in pairs), column + sum(x * digit.column for x, digit in pairs)

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


def digit_of(number: int, digits: Sequence[LayoutDigit], i: int) -> int:
    """The value of digit i of a number."""
    return number // prod(digit.length for digit in digits[:i]) % digits[i].length


@dataclass(frozen=True)
class UnitTile:
    """The fragments of ``D[m, n] += A[m, depth] B[depth, n]`` that are repeated along the sum to make those of a unit."""

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
    :ivar operand: the type of the numbers that it multiplies, in the words of numpy or ``"bfloat16"``.
    :ivar dtype: the OpenCL C type of the registers of A, B and D, ``"double"`` or ``"float"``.
    :ivar a, b, d: the places of the registers in A, B and D.
    :ivar lanes: work-items of the sub-group.
    :ivar attribute: what a kernel has to declare, such as the size of its sub-groups; empty if nothing.
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
        """Registers of a lane for A, B and D."""
        return self.a.length, self.b.length, self.d.length

    @property
    def number(self) -> str:
        """The type of the registers in the words of numpy."""
        return "float64" if self.dtype == "double" else "float32"

    @property
    def flops(self) -> int:
        """Operations of one instruction of a sub-group."""
        return 2 * self.m * self.n * self.k

    @cached_property
    def tile(self) -> UnitTile:
        """The least fragments of which those of the unit are a row along the sum, register after register."""
        (a, of_a), (b, of_b) = _without_repetition(self.a, 1, self.k), _without_repetition(self.b, 0, self.k)
        if of_a != of_b:
            return UnitTile(self.m, self.n, self.k, self.a, self.b, self.d)
        return UnitTile(self.m, self.n, of_a, a, b, self.d)

    @property
    def splits(self) -> bool:
        """Whether numbers of the operands are split, as the unit multiplies shorter ones."""
        return False

    def error(self, terms: int) -> float:
        """The error of a sum of `terms` products, in units of the roundoff u of `number` times Σ |a| |b|; 1 where only the
        result is rounded."""
        return 1.0

    def tile_error(self, terms: int, depth: int) -> float:
        """The same where the unit itself adds up the products of a tile of `depth`, before the ordinary adder does."""
        return 1.0

    def sum_error(self, terms: int, *, rounded: bool) -> float:
        """The same where the unit adds the products of all steps, in two sums: of first bits, and of what the rests add.

        :param rounded: whether the first bits of B are rounded as those of A, or cut.
        """
        return 1.0

    def first_bits(self, x: str, *, rounded: bool) -> str:
        """An expression of OpenCL C for the part of a number that the unit multiplies exactly: all of it, unless it splits.

        :param rounded: whether to the nearest such number; else the other bits are cut off.
        """
        return x

    @property
    def split_names(self) -> tuple[str, str]:
        """The names of the functions for :meth:`first_bits`, and for a step of a sum that the unit itself adds up."""
        return f"{self.called()}_first_bits", f"{self.called()}_summing"

    @property
    def helpers(self) -> Mapping[str, str]:
        """The functions that :meth:`function` calls, by name."""
        return {}

    def called(self, *, summed: bool = False) -> str:
        """The name of :meth:`function`."""
        return "feinsum_" + re.sub(r"\W", "_", self.name)

    def body(self, *, summed: bool = False) -> list[str]:
        """The statements of :meth:`function` that add A B to the variables d0, d1 and so on."""
        return [self.statement("d", "a", "b")]

    def function(self, *, summed: bool = False) -> str:
        """The OpenCL C function ``D + A B`` of fragments; D comes back as its value and through pointers.

        :param summed: whether the unit adds split numbers to D, not the ordinary adder.
        """
        na, nb, nd = self.registers
        inputs = [f"{self.dtype} {name}{i}" for name, count in (("d", nd), ("a", na), ("b", nb)) for i in range(count)]
        outputs = [f"{self.dtype} *r{i}" for i in range(1, nd)]
        stores = " ".join(f"*r{i} = d{i};" for i in range(1, nd))
        lines = "\n  ".join([*self.body(summed=summed), stores, "return d0;"])
        declared = f"static inline {self.dtype} {self.called(summed=summed)}({', '.join(inputs + outputs)})"
        return f"{declared}\n{{\n  {lines}\n}}"


def _without_repetition(layout: FragmentLayout, axis: int, depth: int) -> tuple[FragmentLayout, int]:
    """A layout without the last digits of registers that only repeat it along an axis, and what is left of the depth."""
    registers = list(layout.registers)
    while registers and not registers[-1][2 - axis] and registers[-1].length * registers[-1][1 + axis] == depth:
        depth = registers.pop()[1 + axis]
    return replace(layout, registers=tuple(registers)), depth
