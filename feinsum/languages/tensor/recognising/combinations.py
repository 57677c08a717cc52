"""Combinations: sums of arrays, each times a number, of which some are added to blocks.

I[:, :] := t_0 Q[:, :] + t_1 D_1[:, :] in I[0:20, :] + I[:, :]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from feinsum.languages.calling.protocols import INSTANCES
from feinsum.languages.source import Span
from feinsum.languages.tensor.ir import TensorValue
from feinsum.languages.tensor.recognising.operands import EinsumOperand, readable, scaled, shown_block
from feinsum.languages.tensor.recognising.terms import GROUP_ID, Factor, ProductTerm, RecognisedUpdate, transposed
from feinsum.languages.tensor.types import TensorMemref


@dataclass(frozen=True)
class Combination:
    """A sum that updates a parameter.

    :ivar terms: with a factor each, whose axes are those of the output, or of its block.
    :ivar scale: what the content is multiplied by; None where it is not read.
    :ivar axes: "E" for each mode that the group id is the index of: ``"Q.2"``.
    """

    output: TensorValue
    terms: tuple[ProductTerm, ...]
    scale: ProductTerm | None
    spans: tuple[Span, ...]
    axes: Mapping[str, str]

    @classmethod
    def of(cls, update: RecognisedUpdate, terms: Sequence[ProductTerm], scale: ProductTerm | None) -> Combination:
        """The combination of terms of an update that :func:`is_added` accepts."""
        factors = [Factor.whole(update.root, update.letters), *(term.factors[0] for term in terms)]
        axes = {name: INSTANCES for factor in factors for name in batch_modes(factor)}
        return cls(update.root, tuple(terms), scale, update.spans, axes)

    @cached_property
    def operands(self) -> Mapping[int, EinsumOperand]:
        """The operand that each term reads, by the term's number."""
        return {number: EinsumOperand(term.factors) for number, term in enumerate(self.terms)}

    @property
    def scalars(self) -> tuple[TensorValue, ...]:
        """The parameters that are given at the call."""
        terms = (*self.terms, *([self.scale] if self.scale else ()))
        return tuple(dict.fromkeys(value for term in terms for value in term.scalars))

    @property
    def formula(self) -> str:
        """The sum as text."""
        parts = [
            scaled(str(operand), term) + (f" in {shown_block(term.block)}" if term.block else "")
            for operand, term in zip(self.operands.values(), self.terms, strict=True)
        ]
        return readable(" + ".join([*parts, *([scaled("out", self.scale)] if self.scale else [])]))

    @property
    def gaps(self) -> tuple[str, ...]:
        """The reasons for copies: results with gaps."""
        type_ = self.output.type
        has_gaps = isinstance(type_, TensorMemref) and not type_.is_packed
        return (f"%{self.output.name} has gaps between its elements",) if has_gaps else ()


def is_added(term: ProductTerm, update: RecognisedUpdate) -> bool:
    """Whether a term is an array that lies as what is updated, or as the block of it."""
    own = [factor.transposed for factor in term.factors]
    return bool(term.block) or own == [transposed(update.root, update.letters)]


def batch_modes(factor: Factor) -> Iterator[str]:
    """Which mode of a parameter, or which group, the group id is the index of."""
    for mode, letter in zip(factor.modes, factor.letters, strict=True):
        if letter == GROUP_ID:
            yield f"{factor.root.name}.{mode}" if isinstance(factor.root.type, TensorMemref) else factor.root.name
