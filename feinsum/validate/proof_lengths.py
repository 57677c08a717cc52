"""The lengths at which kernels are proved: those in use, others that divide nothing, and some that are unforeseeable."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from feinsum.einsum import BatchedEinsum

_OTHER_LENGTHS = ((1,), (24, 12, 6, 2, 1), (67, 31, 13, 7, 3, 1))
"""Lengths of long axes besides the one in use: one, a multiple of most strips, and a prime; the first up to that in use."""
_MOST_DRAWN, _MOST_BYTES = 2000, 64 << 20
"""The longest axis that is drawn, and what all arrays may take then."""


def length_values(e: BatchedEinsum, lengths: Mapping[str, int]) -> dict[str, int]:
    """The value of each length argument of a kernel for `e`, from the length of every index."""
    return {name: lengths[letter] for letter, name in e.length_names.items()}


def odd_lengths(e: BatchedEinsum, lengths: Mapping[str, int]) -> list[dict[str, int]]:
    """Lengths other than those in use at which a kernel with long axes has to be right too, the most telling last."""
    if not e.long_axes:
        return []
    return [
        {
            letter: length if isinstance(e.index_sizes[letter], int) else next(n for n in others if n <= max(1, length))
            for letter, length in lengths.items()
        }
        for others in _OTHER_LENGTHS
    ]


def drawn_lengths(e: BatchedEinsum, lengths: Mapping[str, int], seed: int) -> list[dict[str, int]]:
    """Lengths other than those in use that depend on a seed: up to 2000, short ones as likely as long ones."""
    rng = np.random.default_rng([seed, 2])
    names = e.length_names
    drawn = {
        name: math.ceil(min(_MOST_DRAWN, lengths[letter]) ** rng.random()) if lengths[letter] else 0
        for letter, name in names.items()
    }

    def at() -> dict[str, int]:
        return {letter: drawn[names[letter]] if letter in names else length for letter, length in lengths.items()}

    while drawn and max(drawn.values()) > 1 and e.array_bytes(e.sizes_from(at())) > _MOST_BYTES:
        longest = max(drawn, key=lambda name: drawn[name])
        drawn[longest] = -(-drawn[longest] // 2)
    return [at()] if drawn else []
