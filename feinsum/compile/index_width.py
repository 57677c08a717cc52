"""The width of a kernel's index integers: 32 bits, or 64 where an array has 2³¹ elements or more.

Arrays that a space keeps in global memory between launches count like those of the einsum, though they are known only when
the kernel is: ``ab,bcd,ac->ad`` in steps has a partial result ``acd`` that may be longer than operands and output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from feinsum.compile.kernel_program import Extent, KernelProgram, evaluate_extent
from feinsum.einsum import BatchedEinsum

_BEYOND = 2**24
"""The distance beyond the end of an axis at which the last work-group may compute positions that it then skips."""


def index_dtype(e: BatchedEinsum, lengths: Mapping[str, int]) -> str:
    """``int64`` where an array or an output has 2³¹ elements or more, or nearly so many; else ``int32``."""
    shapes = (*e.array_indices.values(), e.indexing.output)
    return "int64" if any(_is_large(lengths[x] for x in letters) for letters in shapes) else "int32"


def has_large(shapes: Iterable[Iterable[Extent]], values: Mapping[str, int]) -> bool:
    """Whether one of some shapes has 2³¹ elements or more, or nearly so many.

    :param values: the lengths that the shapes are written in.
    """
    return any(_is_large(evaluate_extent(extent, values) for extent in shape) for shape in shapes)


def is_outgrown(program: KernelProgram, values: Mapping[str, int]) -> bool:
    """Whether a program with 32-bit indices has an array that is too large for them.

    :param values: a value for each of its lengths.
    """
    if not any(a.kind == "length" and a.dtype == "int32" for a in program.arguments):
        return False  # it was made for these lengths, or indexes with 64 bits
    # Where complex numbers are read as pairs of reals, there are twice as many.
    return has_large(((*a.shape, 2 if a.dtype.startswith("complex") else 1) for a in program.arguments), values)


def _is_large(extents: Iterable[int]) -> bool:
    return math.prod(extents) >= 2**31 - _BEYOND
