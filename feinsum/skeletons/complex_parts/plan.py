"""Plans of complex parts: the einsums of reals that the steps of a contraction of complex numbers become.

A complex number is a row of two reals, or the matrix that such a row is multiplied with::

    (a + ib)(c + id)  =  [a b] [ c d]          out[i, k, p] = Σ_jq A[i, j, q] B[j, q, k, p]
                               [-d c]

so a product of complex matrices is one of real matrices, with two numbers for one of A and four for one of B, in which the
two parts of a result are neighbours.  It takes the four products of reals that the definition asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from feinsum.contraction import ContractionSchedule
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.parameters import described
from feinsum.subscripts import Subscripts

PARTS = 2
"""Reals of a complex number."""
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True)
class ComplexParts:
    """The plan of contractions of complex numbers in reals, each a launch, between launches that copy."""

    order: ContractionSchedule = described(
        """The contractions, of one operand or two each.  Of two, the one with the last index of the result is copied as
        matrices, so that lanes run along their rows.""",
        word="contraction order",
    )
    width: int = described(
        "The complex numbers of a vector that a launch copies at once as matrices; 1: one by one.", word="vector width"
    )

    def __post_init__(self) -> None:
        if self.width not in _WIDTHS:
            raise TransformError(f"a vector of {self.width} complex numbers; copies have vectors of {_WIDTHS}")
        for number, step in enumerate(self.order.steps):
            if len(step.operands) > 2:
                raise TransformError(f"step {number} '{step.indexing}' has more than two operands; contract them in pairs")

    def local_bytes(self) -> int:
        """None: launches hand rows and matrices over in global memory."""
        return 0

    def registers(self) -> int:
        """Vector registers of a copy: numbers, and the same times i; contractions have plans of their own."""
        return 2


def of_complex(e: BatchedEinsum) -> bool:
    """Whether operands and outputs are complex numbers of one kind."""
    kinds = {dtype.name for dtype in (*e.dtypes, *(a.dtype for a in e.arrays))}
    return len(kinds) == 1 and kinds <= {"complex64", "complex128"}


def rows_einsum(indexing: Subscripts, parts: str) -> Subscripts:
    """The real einsum of a step: rows times matrices, or rows alone.

    Rows keep the order of their axes; those of matrices stand as they are read.

    :param parts: two letters that the step has not; the first one is for the parts of the result.

    >>> from feinsum.subscripts import Subscripts
    >>> rows_einsum(Subscripts(("ji", "kj"), "ik"), "pq").inputs
    ('jiq', 'jqkp')
    """
    part, inner = parts[0], parts[1]
    output, summed = indexing.output, indexing.summed
    if len(indexing.inputs) == 1:
        return Subscripts((indexing.inputs[0] + part,), output + part)
    right = matrix_of(indexing)
    matrix, row = indexing.inputs[right], indexing.inputs[1 - right]
    common = "".join(x for x in output if x in matrix and x in row)
    kept = "".join(x for x in output if x in matrix and x not in row)
    own = "".join(x for x in summed if x in matrix)
    terms = (row + inner, common + own + inner + kept + part)
    return Subscripts(terms if right else terms[::-1], output + part)


def matrix_of(indexing: Subscripts) -> int:
    """The operand to be turned into matrices: the one with the last index of the result, or else the second."""
    last = indexing.output[-1:]
    return 0 if last and last in indexing.inputs[0] and last not in indexing.inputs[1] else 1
