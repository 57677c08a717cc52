"""How the long axes of an einsum are written."""

from __future__ import annotations

from collections.abc import Iterable

from feinsum.arrays import Axis
from feinsum.einsum import BatchedEinsum


def spelling(e: BatchedEinsum, groups: Iterable[str]) -> dict[str, Axis]:
    """The axis of every index, where the long axes of one of `groups` are written alike: by the first name among them."""
    axes = dict(e.index_sizes)
    for group in groups:
        name = next((axes[letter] for letter in group if isinstance(axes[letter], str)), axes[group[0]])
        axes.update(dict.fromkeys(group, name))
    return axes
