"""Operands of einsums: parameters or blocks of them, and several of these stacked.

Axes are those of the transposed array; the index that counts what is stacked comes behind that of instances, or first.

    K_0[m, k], K_1[m, k]            →   (2, k, m)
    A_0[q, p, id], A_1[q, p, id]    →   (instances, 2, p, q)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from feinsum.languages.tensor.ir import TensorValue
from feinsum.languages.tensor.recognising.terms import GROUP_ID, Block, Factor, Letters, ProductTerm


@dataclass(frozen=True)
class EinsumOperand:
    """An array that an einsum reads.

    :ivar factors: of what it is made: one, or those that are stacked, in order, whose letters are the same.
    :ivar counter: the letter that counts those; None where there is one.
    """

    factors: tuple[Factor, ...]
    counter: int | None = None

    @cached_property
    def axis(self) -> int:
        """The axis of the letter that counts."""
        return int(self.factors[0].transposed[:1] == (GROUP_ID,))

    @cached_property
    def letters(self) -> Letters:
        """One for each axis."""
        own = self.factors[0].transposed
        return own if self.counter is None else (*own[: self.axis], self.counter, *own[self.axis :])

    @cached_property
    def name(self) -> str:
        """The name of the array in einsums."""
        names = [name_of(factor.root, factor.block) for factor in self.factors]
        return names[0] if self.counter is None else "_".join([f"stack{self.axis}", *names])

    def __str__(self) -> str:
        parts = [f"%{factor.root.name}{shown_block(factor.block)}" for factor in self.factors]
        return parts[0] if self.counter is None else f"({', '.join(parts)})"


def name_of(value: TensorValue, block: Block = ()) -> str:
    """The name of a parameter in einsums and epilogues, where a few names mean something else."""
    parts = "".join("_all" if part is None else f"_{part[0]}_{part[1]}" for part in block) if any(block) else ""
    return "p_" + re.sub(r"\W", "_", value.name) + parts


def shown_block(block: Block) -> str:
    """A block as ``subview`` has it; empty for all of an array."""
    if not any(block):
        return ""
    parts = (":" if part is None else f"{part[0]}:{part[1]}" if part[1] else str(part[0]) for part in block)
    return f"[{', '.join(parts)}]"


def scaled(what: str, by: ProductTerm) -> str:
    """Something times the numbers of a term, as epilogues have it.

    >>> scaled("v", ProductTerm(2.0))
    '2.0*v'
    """
    number = [] if by.number == 1 else [repr(float(by.number))]
    return "*".join([*number, *(name_of(value) for value in by.scalars), what])


def readable(epilogue: str) -> str:
    """An epilogue with the names of the program."""
    return re.sub(r"\bp_", "%", epilogue)
