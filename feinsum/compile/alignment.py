"""Alignments of a program's arrays: multiples of their elements, or of the vectors that the program reads.

A driver aligns its own buffers for every vector type.  Memory of the caller, which :mod:`feinsum.compile.host_buffers`
takes, begins where an allocator put it: numpy's large arrays begin 16 bytes past a cache line, after the header of glibc's
malloc.
:func:`loosened` is the program for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from feinsum.compile.kernel_program import KernelProgram

_BYTES = {"char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2, "int": 4, "uint": 4, "float": 4}
_BYTES |= {"long": 8, "ulong": 8, "double": 8}
_POINTER = re.compile(
    rf"__global\s+(?:const\s+|volatile\s+)*({'|'.join(_BYTES)})(2|3|4|8|16)\s*(?:const\s*|volatile\s*)*\*"
    r"(\s*\)\s*\(*\s*&?\s*(\w+))?"
)
"""A pointer to vectors in global memory, and the name after it where it is a cast: ``(__global double8 *) (out + to)``."""
_STORE = re.compile(r"(__builtin_nontemporal_store\()(.*?), (\(__global (feinsum_\w+) \*\))")


def required_alignments(program: KernelProgram) -> dict[str, int]:
    """The alignment that a program assumes of each of its arrays, in bytes.

    If the source has pointers to vectors without naming the arrays that they point to, all arrays get the largest
    alignment.
    """
    sizes = {a.name: np.dtype(a.dtype).itemsize for a in program.arguments if a.kind not in ("length", "scalar")}
    for scalar, lanes, cast, name in _POINTER.findall(program.source):
        nbytes = _vector_bytes(scalar, lanes)
        for array in [name] if cast and name in sizes else sizes:
            sizes[array] = max(sizes[array], nbytes)
    return sizes


def _vector_bytes(scalar: str, lanes: str) -> int:
    """The size of a vector; OpenCL stores three lanes as four."""
    return _BYTES[scalar] * (4 if lanes == "3" else int(lanes))


def common_alignment(arrays: Iterable[np.ndarray[Any, Any]]) -> int:
    """The largest power of two, at most 16, that divides the addresses of all arrays.

    Compilers split a store past the cache into pieces of 16 bytes where its address is a multiple of 16 only, which costs
    nothing: a Zen 3 writes 102 MB of 8x8 products in 9.8 ms at every alignment from 8 bytes up, and in 13 ms at 4 bytes.
    """
    addresses = [16, *(array.ctypes.data for array in arrays)]
    return min(address & -address for address in addresses)


def loosened(program: KernelProgram, alignment: int) -> KernelProgram:
    """The same program for arrays that begin at multiples of `alignment` bytes.

    Pointers to longer vectors become pointers to vectors that are declared with this alignment.  The value of a store past
    the caches is made one of these, too: clang 15 (in PoCL 3.1) takes the alignment of the store from it.
    """
    declared: dict[str, str] = {}

    def declare(found: re.Match[str]) -> str:
        scalar, lanes = found[1], found[2]
        if _vector_bytes(scalar, lanes) <= alignment:
            return found[0]
        name = f"feinsum_{scalar}{lanes}_at_{alignment}"
        declared[name] = f"typedef {scalar}{lanes} {name} __attribute__((aligned({alignment})));\n"
        return found[0].replace(f"{scalar}{lanes}", name, 1)

    source = _STORE.sub(r"\1(\4) (\2), \3", _POINTER.sub(declare, program.source))
    return replace(program, source="".join(declared.values()) + source)
