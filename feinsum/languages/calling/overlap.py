"""Overlap: an array that a program writes shares no memory with any other that it reads or writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from feinsum.compile.buffers import is_part, share_memory
from feinsum.errors import ValidationError

Piece: TypeAlias = tuple[str, Any, bool]
"""The name of an argument, one of its arrays, and whether that is written."""


def check_apart(pieces: Sequence[Piece]) -> None:
    """Check that written arrays are writable and share no memory with others.

    :param pieces: all arrays of a call, of one library.
    :raises ValidationError: naming the arguments that are read-only or share memory.
    """
    arrays = [piece[1] for piece in pieces]
    if arrays and not isinstance(arrays[0], np.ndarray) and have_own_buffers(arrays):
        return
    pieces = [piece for piece in pieces if piece[1].size]
    written = [piece for piece in pieces if piece[2]]
    on_host = bool(pieces) and isinstance(pieces[0][1], np.ndarray)
    if on_host:
        for name, array, _ in written:
            if not array.flags.writeable:
                raise ValidationError(f"{name} is written, but its argument is read-only")
    if not written:
        return
    for (name, array, _), (other, another, _) in _overlap_candidates(pieces) if on_host else _shared_buffer_pairs(pieces):
        if np.shares_memory(array, another) if on_host else share_memory(array, another):
            names = " and ".join(sorted({name, other}))
            raise ValidationError(f"arguments of {names} share memory that is written; pass a copy of one of them")


def have_own_buffers(arrays: Sequence[Any]) -> bool:
    """Whether each of some device arrays, none of them empty, has a whole buffer to itself."""
    buffers = [array.base_data for array in arrays]
    if None in buffers or len({buffer.int_ptr for buffer in buffers}) < len(buffers):
        return False
    return not any(map(is_part, buffers))


def _shared_buffer_pairs(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Piece]]:
    """Pairs of a written device array and another that may share its buffer."""
    for a, b in combinations(pieces, 2):
        one, other = a[1].base_data, b[1].base_data
        if (a[2] or b[2]) and (one is other or is_part(one) or is_part(other) or one == other):
            yield a, b


def _overlap_candidates(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Piece]]:
    """Pairs of a written array and another that may overlap it; in order of address only neighbours need comparing."""
    extents = sorted((*_addresses(piece[1]), k) for k, piece in enumerate(pieces))
    open_ones: list[tuple[int, int]] = []
    for begin, end, k in extents:
        open_ones = [(until, other) for until, other in open_ones if until > begin]
        for _, j in open_ones:
            if pieces[k][2] or pieces[j][2]:
                yield pieces[k], pieces[j]
        open_ones.append((end, k))


def _addresses(array: Any) -> tuple[int, int]:
    """The first byte of an array, and the one after its last."""
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    first = array.ctypes.data + sum(min(step, 0) for step in reach)
    return first, array.ctypes.data + sum(max(step, 0) for step in reach) + array.itemsize
