"""Contractions of two tensors as products of matrices: the letters of rows, columns, batch and sums, and their fused
order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import fused, side_by_side
from feinsum.space import Problem

_COLUMNS, _TERMS = 512, 192
"""About as many columns as a block has, and terms as are packed at a time; chosen by hand."""


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
class FusedMatrices:
    """A contraction as a product of matrices.

    :ivar problem: with one index for letters that are side by side in every array.
    :ivar joined: these letters.
    """

    problem: Problem
    joined: tuple[str, ...]

    @classmethod
    def of(cls, p: Problem) -> FusedMatrices:
        """The product that a problem is."""
        plain = all(len(entry) == 1 for row in p.einsum.args for entry in row)  # products of arrays have no joined index
        groups = side_by_side(p.einsum) if plain else ()
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
        """The letters of each fused index, the fastest of the output first; a letter of unknown length last."""
        indexing = self.problem.einsum.indexing
        first, second = (indexing.inputs[k] for k in self.operands)
        output = indexing.output[::-1]
        found = {
            "rows": [x for x in output if x not in second],
            "columns": [x for x in output if x not in first],
            "batch": [x for x in output if x in first and x in second],
            "sums": [x for x in second[::-1] if x not in output],
        }
        found["rows"].sort(key=lambda x: x != first[-1])
        found["columns"].sort(key=lambda x: (x != output[0], x != second[-1]))
        found["sums"].sort(key=lambda x: (x != second[-1], x != first[-1]))
        return {name: "".join(sorted(own, key=self.problem.is_long)) for name, own in found.items()}

    @cached_property
    def runs(self) -> dict[str, int]:
        """Runs of the two letters along which arrays lie in memory, of one fused index: about a line of each.

        None where a block has whole lines of the second letter anyway, as the first is short.
        """
        indexing = self.problem.einsum.indexing
        first, second = (indexing.inputs[k] for k in self.operands)
        found: dict[str, int] = {}
        for name, quick, covered in (
            ("columns", (indexing.output[-1], second[-1]), _COLUMNS),
            ("sums", (second[-1], first[-1]), _TERMS),
        ):
            both = len(set(quick)) == 2 and set(quick) <= set(self.letters[name])
            if both and self.problem.sizes[quick[0]] * self.line > covered:
                parts = {x: self._run(x) for x in quick}
                found |= parts if all(parts.values()) else {}
        return found

    @property
    def line(self) -> int:
        """Numbers of a line of the cache."""
        return max(1, self.problem.device.line_bytes // self.problem.itemsize)

    def _run(self, letter: str) -> int:
        """The divisor of a length that is nearest to the numbers of a line; 0 if there is none near."""
        near = [n for n in self.problem.divisors(letter) if self.line // 2 <= n <= 2 * self.line]
        return min(near, key=lambda n: abs(n - self.line), default=0)

    def count(self, name: str) -> int:
        """The length of a fused index."""
        return self.problem.count(self.letters[name])
