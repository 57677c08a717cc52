"""Contractions of two tensors as products of matrices: which letters are rows, columns, batch and sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import fused, side_by_side
from feinsum.space import Problem


def is_packable(e: BatchedEinsum) -> bool:
    """Whether an einsum of real numbers is a product of matrices in fused indices, of which one operand has the last of
    the output: with rows, columns and sums, and no index twice in an operand."""
    if e.n != 2 or not e.indexing.output or any(len(set(term)) < len(term) for term in e.indexing.inputs):
        return False
    if any(dtype not in ("float32", "float64") for dtype in (*e.dtypes, *(a.dtype for a in e.arrays))):
        return False
    (a, b), output = (set(x) for x in e.indexing.inputs), e.indexing.output
    lanes = output[-1] not in a & b
    return lanes and bool(a - b and b - a and a & b - set(output)) and a ^ b <= set(output)


@dataclass(frozen=True)
class MatrixProduct:
    """A contraction as a product of matrices.

    :ivar problem: with one index for letters that are side by side in every array.
    :ivar joined: these letters.
    """

    problem: Problem
    joined: tuple[str, ...]

    @classmethod
    def of(cls, p: Problem) -> MatrixProduct:
        """The product that a problem is."""
        groups = side_by_side(p.einsum)
        e, sizes = p.einsum, dict(p.sizes)
        for letters in groups:
            e, sizes[letters[-1]] = fused(e, letters), p.count(letters)
        return cls(Problem(e, {x: sizes[x] for x in e.indexing.indices}, p.device), groups)

    @cached_property
    def operands(self) -> tuple[int, int]:
        """The operand with the rows, and that with the columns, along which the output lies in memory."""
        columns = int(self.problem.einsum.indexing.output[-1] in self.problem.einsum.indexing.inputs[1])
        return 1 - columns, columns

    @cached_property
    def letters(self) -> dict[str, str]:
        """The letters of each fused index, the quickest of the output first; a letter of unknown length last."""
        indexing = self.problem.einsum.indexing
        first, second = (indexing.inputs[k] for k in self.operands)
        output = indexing.output[::-1]
        found = {
            "rows": [x for x in output if x not in second],
            "columns": [x for x in output if x not in first],
            "batch": [x for x in output if x in first and x in second],
            "sums": [x for x in second[::-1] if x not in output],
        }
        return {name: "".join(sorted(own, key=self.problem.is_long)) for name, own in found.items()}

    def count(self, name: str) -> int:
        """The length of a fused index."""
        return self.problem.count(self.letters[name])
