"""One OpenCL program for every einsum: a work-item sums one number, by tables of lengths and strides.

It stands for kernels of `generate` where what is tested is what comes before and behind them, on device arrays: a build of
each would take a second, and thousands of random programs have as many einsums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from simulated_units import UNOPTIMISED

import feinsum as fe
from feinsum.devices.opencl import build_program

MOST_OPERANDS = 9
"""Those of a raised einsum, and ones in place of items."""

_SOURCE = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
kernel void einsum(global const int *table, %(operands)s, global T *out, T alpha, T beta, int use_out)
{
    global const T *operands[] = { %(names)s };
    int operand_count = table[0], kept = table[1], all = table[2];
    global const int *lengths = table + 3, *offsets = lengths + all, *strides = offsets + operand_count + 1;
    int at[64], rest = get_global_id(0);
    for (int k = kept - 1; k >= 0; --k) { at[k] = rest %% lengths[k]; rest /= lengths[k]; }
    int terms = 1, place = offsets[operand_count];
    for (int k = kept; k < all; ++k) terms *= lengths[k];
    for (int k = 0; k < kept; ++k) place += at[k] * strides[operand_count * all + k];
    T sum = 0;
    for (int term = 0; term < terms; ++term) {
        rest = term;
        for (int k = all - 1; k >= kept; --k) { at[k] = rest %% lengths[k]; rest /= lengths[k]; }
        T factor = 1;
        for (int n = 0; n < operand_count; ++n) {
            int where = offsets[n];
            for (int k = 0; k < all; ++k) where += at[k] * strides[n * all + k];
            factor *= operands[n][where];
        }
        sum += factor;
    }
    out[place] = use_out ? alpha * sum + beta * out[place] : alpha * sum;
}
"""


@lru_cache
def _kernel(context: cl.Context, name: str) -> cl.Kernel:
    operands = [f"a{k}" for k in range(MOST_OPERANDS)]
    source = _SOURCE % {"operands": ", ".join(f"global const T *{a}" for a in operands), "names": ", ".join(operands)}
    return cl.Kernel(build_program(context, f"#define T {name}\n{source}", UNOPTIMISED), "einsum")


class OneKernel:
    """An einsum as `generate` gives it, for device arrays."""

    def __init__(self, e: fe.BatchedEinsum, device: fe.Device, *_: Any, **__: Any) -> None:
        self.einsum, self._device = e, device
        text = e.epilogues[0].text("ab") if e.epilogues else "v"
        self._beta = eval(text, {"v": 0, "out": 1})
        self._alpha = eval(text, {"v": 1, "out": 0})
        self._uses_out = "out" in text

    def divides(self, letter: str) -> str | None:
        assert letter in self.einsum.indexing.indices
        return None

    def bind(self, lengths: Mapping[str, int]) -> OneKernel:
        """For contiguous arrays of these lengths."""
        terms = (*self.einsum.indexing.inputs, self.einsum.indexing.output)
        self._bound = [(tuple(lengths[x] for x in term), _packed([lengths[x] for x in term]), 0) for term in terms]
        return self

    def enqueue(self, queue: Any, buffers: Sequence[Any], wait_for: Any) -> Any:
        """As :meth:`feinsum.kernel.kernel_calls.BoundKernel.enqueue`."""
        return self._launch(queue, buffers, self._bound, wait_for)

    def __call__(self, arrays: Mapping[str, cla.Array], out: Any = None, queue: Any = None) -> Any:
        given = [arrays[a.name] for a in self.einsum.arrays]
        lengths = {
            x: n
            for term, a in zip(self.einsum.indexing.inputs, given, strict=True)
            for x, n in zip(term, a.shape, strict=True)
        }
        queue = queue or given[0].queue
        if out is None:
            shape = tuple(lengths[x] for x in self.einsum.indexing.output)
            out = cla.empty(queue, shape, self.einsum.dtype)
        every = [*given, out]
        item = self.einsum.dtype.itemsize
        layouts = [(a.shape, tuple(s // item for s in a.strides), a.offset // item) for a in every]
        events = [event for a in every for event in a.events]
        out.add_event(self._launch(queue, [a.base_data for a in every], layouts, events))
        return out

    def _launch(self, queue: Any, buffers: Sequence[Any], layouts: Sequence[Any], wait_for: Any) -> Any:
        indexing = self.einsum.indexing
        letters = [*indexing.output, *indexing.summed]
        terms = (*indexing.inputs, indexing.output)
        lengths = {
            x: n for term, (shape, _, _) in zip(terms, layouts, strict=True) for x, n in zip(term, shape, strict=True)
        }
        strides = [
            sum(s for y, s in zip(term, own, strict=True) if y == x)
            for term, (_, own, _) in zip(terms, layouts, strict=True)
            for x in letters
        ]
        table = [len(terms) - 1, len(indexing.output), len(letters), *(lengths[x] for x in letters)]
        table += [*(offset for *_, offset in layouts), *strides]
        on_device = cla.to_device(queue, np.array(table, np.int32))
        inputs = list(itertools.islice(itertools.cycle(buffers[:-1]), MOST_OPERANDS))
        number = self.einsum.dtype.type
        name = {"float64": "double", "float32": "float", "int32": "int"}[self.einsum.dtype.name]
        kernel = _kernel(queue.context, name)
        kernel.set_args(
            on_device.data,
            *inputs,
            buffers[-1],
            number(self._alpha),
            number(self._beta),
            np.int32(self._uses_out),
        )
        size = math.prod(lengths[x] for x in indexing.output)
        done = cl.enqueue_nd_range_kernel(queue, kernel, (size,), None, wait_for=wait_for or None)
        done.wait()  # then the table may go
        return done


def _packed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
