"""Alignments of a program's arrays: multiples of their elements, or of the vectors that the program reads.

A driver lets a buffer of its own begin where any vector may.  Memory of somebody else's, as :mod:`feinsum.compile.hosted`
takes it, begins where an allocator put it: numpy's at a multiple of 16 bytes.
"""

from __future__ import annotations

import re

import numpy as np

from feinsum.compile.program import Program

_BYTES = {"char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2, "int": 4, "uint": 4, "float": 4}
_BYTES |= {"long": 8, "ulong": 8, "double": 8}
_POINTER = re.compile(
    rf"__global\s+(?:const\s+|volatile\s+)*({'|'.join(_BYTES)})(2|3|4|8|16)\s*(?:const\s*|volatile\s*)*\*"
    r"(\s*\)\s*\(*\s*&?\s*(\w+))?"
)
"""A pointer to vectors in global memory, and the name after it where it is a cast: ``(__global double8 *) (out + to)``."""


def required_alignments(program: Program) -> dict[str, int]:
    """The alignment that a program assumes of each of its arrays, in bytes.

    If the source has pointers to vectors without naming the arrays that they point to, all arrays get the largest
    alignment.
    """
    sizes = {a.name: np.dtype(a.dtype).itemsize for a in program.arguments if a.kind not in ("length", "scalar")}
    for scalar, lanes, cast, name in _POINTER.findall(program.source):
        nbytes = _BYTES[scalar] * (4 if lanes == "3" else int(lanes))
        for array in [name] if cast and name in sizes else sizes:
            sizes[array] = max(sizes[array], nbytes)
    return sizes
