"""The values of epilogues on numpy arrays, in the type of the output: where nothing is summed, no kernel runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feinsum.elementwise import FUNCTIONS
from feinsum.epilogue import Epilogue, computed_in, tree


def evaluate_epilogue(
    epilogue: Epilogue,
    sums: np.ndarray[Any, Any] | Sequence[np.ndarray[Any, Any]],
    present: np.ndarray[Any, Any] | None,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    scalars: Mapping[str, Any],
) -> np.ndarray[Any, Any]:
    """The entries to store, for sums of the type of the output.

    :param sums: those of the row, or of each row of which one output is made.
    :param present: the content of the output before; None if it is not read.
    """
    rows = (sums,) if isinstance(sums, np.ndarray) else tuple(sums)
    stored, rank = rows[0].dtype, rows[0].ndim
    dtype = computed_in(stored)

    def rec(node: tree.Node) -> Any:
        match node:
            case tree.Sum():
                return rows[node.row or 0].astype(dtype)
            case tree.Present():
                return np.asarray(present).astype(dtype)
            case tree.Read():
                return _along_output_axes(np.asarray(arrays[node.array.name]), node.axes, rank).astype(dtype)
            case tree.EpilogueScalar():
                return dtype.type(scalars[node.name])
            case tree.EpilogueNumber():
                return dtype.type(node.value)
        factor = tree.vanishing_factor(node)
        if factor is not None and rec(factor) == 0:
            return dtype.type(0)
        return FUNCTIONS[node.function].evaluate(*map(rec, node.arguments))

    with np.errstate(all="ignore"):
        return np.broadcast_to(np.asarray(rec(epilogue.expression)).astype(stored), rows[0].shape)


def _along_output_axes(values: np.ndarray[Any, Any], axes: tuple[int, ...], rank: int) -> np.ndarray[Any, Any]:
    """An array, or a diagonal of it, with an axis for each of the output's."""
    letters = [chr(ord("a") + k) for k in range(rank)]
    kept = sorted(set(axes))
    subscripts = f"{''.join(letters[k] for k in axes)}->{''.join(letters[k] for k in kept)}"
    found = np.einsum(subscripts, values) if axes else values
    return found.reshape([found.shape[kept.index(k)] if k in kept else 1 for k in range(rank)])
