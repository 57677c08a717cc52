"""Whether outputs that are updated time after time grow beyond what numbers hold, as those of ``2*out + v`` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feinsum.einsum import BatchedEinsum
from feinsum.epilogue.epilogue_values import evaluate_epilogue
from feinsum.validate.reference import Reference

_RUNS, _LARGE, _STEEP = 200, 1e6, 4.0
"""Updates that are tried; how many times larger what an output holds may become; and how much in the second half of them:
what grows by equal amounts doubles then."""

Values = Mapping[str, np.ndarray[Any, Any]]


def growth(
    e: BatchedEinsum, references: Sequence[Reference], inputs: Values, present: Values, scalars: Mapping[str, Any]
) -> int | None:
    """After how many updates an output is too large to be updated on and on; None if it stays small enough.

    It is tried with sums of ordinary size, since those of a run differ from those of the next.

    :param references: of the outputs, whose positions are looked at.
    """
    runs = [
        _of_row(e, row, of, inputs, present[name], scalars)
        for row, (name, of) in enumerate(zip(e.output_names, references, strict=True))
        if name in present and e.dtypes[row].kind in "fc"
    ]
    return min((count for count in runs if count is not None), default=None)


def _of_row(
    e: BatchedEinsum, row: int, of: Reference, inputs: Values, present: np.ndarray[Any, Any], scalars: Mapping[str, Any]
) -> int | None:
    own, dtype = e.epilogues[row], e.dtypes[row]
    if own is None or not present.size:
        return None
    few = tuple(axis[:4] for axis in of.at)
    content = present[np.ix_(*few)] if few else present
    arrays = {}
    for read in own.reads:
        values = inputs[read.array.name]
        arrays[read.array.name] = values[np.ix_(*(few[k] for k in read.axes))] if read.axes else values
    rng = np.random.default_rng(row)
    sums = [np.asarray(4 * rng.random(content.shape) - 2, dtype) for _ in (e.args if e.combines else (row,))]
    start = 1.0 + float(abs(content).max(initial=0.0))
    sizes = []
    for count in range(1, _RUNS + 1):
        content = evaluate_epilogue(own, sums, content, arrays, scalars)
        size = float(abs(content).max(initial=0.0))
        if not size <= _LARGE * start:
            return max(1, count // 2)
        sizes.append(1.0 + size)
    return _RUNS // 2 if sizes[-1] > _STEEP * sizes[len(sizes) // 2] else None
