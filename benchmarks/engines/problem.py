"""A problem on disk: the einsum, its inputs and what is expected, for engines that know nothing of feinsum.

Every engine reads the same numbers, and its outputs are compared with one reference in higher precision.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import feinsum as fe

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Problem:
    """A batched einsum with its inputs.

    :ivar directory: where the arrays are.
    :ivar rows: the names of the operands of each output.
    :ivar axes: of each index, its length or the name of its long axis.
    :ivar lengths: the length of each index.
    :ivar path: the cheapest order of pairwise contractions, as numpy and opt_einsum write it.
    :ivar side: ``"cpu"`` or ``"gpu"``.
    :ivar device: the id of the OpenCL device.
    :ivar copies: how many sets of inputs to rotate through, so that no cache holds them.
    """

    directory: str
    subscripts: str
    rows: tuple[tuple[str, ...], ...]
    axes: dict[str, int | str]
    lengths: dict[str, int]
    dtype: str
    path: tuple[tuple[int, ...], ...]
    side: str
    device: str
    copies: int

    @property
    def terms(self) -> list[str]:
        """The indices of each operand."""
        return self.subscripts.partition("->")[0].split(",")

    @property
    def output(self) -> str:
        """The indices of every output."""
        return self.subscripts.partition("->")[2]

    @property
    def moves_only(self) -> bool:
        """Whether it is the operand with its axes in another order."""
        return len(self.terms) == 1 and sorted(self.terms[0]) == sorted(self.output)

    def inputs(self) -> dict[str, Values]:
        """The inputs by name, freshly read."""
        return {name: np.load(self._file(name)) for name in dict.fromkeys(name for row in self.rows for name in row)}

    def error(self, outputs: list[Values]) -> float:
        """The largest error of these outputs as a fraction of what rounding allows; above 1 they are wrong."""
        at = np.ix_(*(np.load(self._file(f"at.{k}")) for k in range(len(self.output)))) if self.output else ()
        worst = 0.0
        for i, values in enumerate(outputs):
            expected, bound = np.load(self._file(f"expected.{i}")), np.load(self._file(f"bound.{i}"))
            error = abs(np.asarray(values)[at].astype(expected.dtype) - expected)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(error == 0, 0, error / bound)
            worst = max(worst, float(np.nan_to_num(ratio, nan=np.inf).max(initial=0)))
        return worst

    def _file(self, name: str) -> Path:
        return Path(self.directory) / f"{name}.npy"


def read_problem(directory: str) -> Problem:
    """The problem that :func:`write_problem` left in a directory."""
    data = json.loads((Path(directory) / "problem.json").read_text(encoding="utf-8"))
    tuples = {name: tuple(map(tuple, data[name])) for name in ("rows", "path")}
    return Problem(directory=directory, **{**data, **tuples})


def write_problem(
    directory: str, e: fe.BatchedEinsum, sizes: dict[str, int], *, side: str, device: fe.Device, seed: int = 0
) -> Problem:
    """Draw inputs for an einsum of one element type, compute the references, and write both to an empty directory."""
    from feinsum.flops import contraction_path
    from feinsum.timing import buffer_sets_needed
    from feinsum.validate.reference import random_inputs, references

    lengths = e.resolve(sizes)
    inputs = random_inputs(e, lengths, seed)
    profile = device.profile
    most = profile.global_memory_bytes // 16
    problem = Problem(
        directory=directory,
        subscripts=e.subscripts,
        rows=tuple(tuple(a.name for (a,) in row) for row in e.args),
        axes=dict(e.index_sizes),
        lengths=lengths,
        dtype=e.dtype.name,
        path=contraction_path(e, lengths),
        side=side,
        device=profile.id,
        copies=buffer_sets_needed(e.min_bytes(sizes), e.array_bytes(sizes), profile.cache_bytes, most),
    )
    arrays = dict(inputs)
    for i, reference in enumerate(references(e, lengths, inputs, seed)):
        arrays |= {f"at.{k}": positions for k, positions in enumerate(reference.at)}
        arrays |= {f"expected.{i}": reference.expected, f"bound.{i}": reference.bound}
    for name, values in arrays.items():
        np.save(problem._file(name), values)
    data = {name: value for name, value in asdict(problem).items() if name != "directory"}
    (Path(directory) / "problem.json").write_text(json.dumps(data), encoding="utf-8")
    return problem
