"""Kernels of einsums with epilogues, run on whole numbers, of which results are exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl as cl

import feinsum as fe
from feinsum.compile.executable import Executable
from feinsum.einsum import BatchedEinsum
from feinsum.validate import length_values

UPDATE, CHOICE, TOGETHER = "2*v - 3*out", "where(v < 0, 0, v) + b[{}]", "v0*v1 - where(v1 < 0, v1, 3*out) + b[{}]"
"""Epilogues that are exact for whole numbers: one updates the output, one chooses, and reads an array, one has two rows."""


def with_epilogues(e: BatchedEinsum) -> BatchedEinsum:
    """The einsum whose rows have the one epilogue and the other in turn; the second reads an array at the last index."""
    last = e.indexing.output[-1:]
    choice = CHOICE.format(last) if last else CHOICE.replace("b[{}]", "b")
    texts = [(UPDATE, choice)[row % 2] for row in range(e.b)]
    shape = tuple(e.index_sizes[x] for x in last)
    return e.then(texts, **({"b": fe.array("b", shape, e.dtypes[0])} if e.b > 1 else {}))


def with_one_output(e: BatchedEinsum) -> BatchedEinsum:
    """The einsum of two rows of which one output is made, with an array along the last index."""
    last = e.indexing.output[-1:]
    return e.then(TOGETHER.format(last), b=fe.array("b", tuple(e.index_sizes[x] for x in last), e.dtypes[0]))


def expected(e: BatchedEinsum, row: int, values: Mapping[str, Any], before: Any) -> Any:
    """What numpy makes of it."""
    sums = [np.einsum(str(e.indexing), *(values[entry[0].name] for entry in own), optimize=True) for own in e.args]
    if e.combines:
        return sums[0] * sums[1] - np.where(sums[1] < 0, sums[1], 3 * before) + values["b"]
    v = sums[row]
    return 2 * v - 3 * before if row % 2 == 0 else np.where(v.real < 0, 0, v) + values["b"]


def check(device: fe.Device, e: BatchedEinsum, executable: Executable, sizes: Mapping[str, int]) -> None:
    """Run a kernel for an einsum of :func:`with_epilogues` or :func:`with_one_output`.

    Every output is as expected, and nothing else is written to.
    """
    lengths = e.resolve(sizes)
    rng = np.random.default_rng(0)
    shapes = {a.name: (tuple(lengths[x] for x in at), a.dtype) for a, at in e.array_uses}
    shape = tuple(lengths[x] for x in e.indexing.output)
    shapes |= {name: (shape, dtype) for name, dtype in zip(e.output_names, e.dtypes, strict=True)}
    values = {name: rng.integers(-4, 5, own).astype(dtype) for name, (own, dtype) in shapes.items()}
    flags, guard = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, 512
    memory = {name: np.pad(x.reshape(-1), guard, constant_values=77) for name, x in values.items()}
    whole = {name: cl.Buffer(device.context, flags, hostbuf=x) for name, x in memory.items()}
    inside = {
        name: buffer.get_sub_region(guard * values[name].itemsize, values[name].nbytes) for name, buffer in whole.items()
    }
    counts = length_values(e, lengths)
    executable.enqueue(device.queue, inside | executable.scratch(device.context, counts), counts)
    device.queue.finish()
    for row, name in enumerate(e.output_names):
        found = memory[name].copy()
        cl.enqueue_copy(device.queue, found, whole[name])
        assert (np.delete(found, slice(guard, -guard)) == 77).all(), f"memory beside '{name}' is written to"
        wanted = expected(e, row, values, values[name])
        wrong = np.argwhere(found[guard:-guard].reshape(wanted.shape) != wanted)
        assert not wrong.size, f"'{name}' is wrong in {len(wrong)} of {wanted.size} places, the first at {wrong[0]}"
