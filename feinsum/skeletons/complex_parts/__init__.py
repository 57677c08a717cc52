"""Complex parts: contractions of complex numbers as contractions of pairs of reals, which vectors can multiply."""

from feinsum.skeletons.complex_parts.plan import PARTS, ComplexParts, matrix_of, of_complex
from feinsum.skeletons.complex_parts.write import write

__all__ = ["PARTS", "ComplexParts", "matrix_of", "of_complex", "write"]
