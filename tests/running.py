"""Programs run on a device, without any of the machinery of `generate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl as cl
from simulated_units import build_unoptimised

import feinsum as fe
from feinsum.compile.kernel_program import KernelProgram
from feinsum.devices import Device
from feinsum.validate import length_values


def run(program: KernelProgram, device: Device, e: fe.BatchedEinsum, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    """What a program for `e` makes of arrays: one result, or a tuple of them; see :data:`simulated_units.UNOPTIMISED`."""
    lengths = {x: n for a, at in e.array_uses for x, n in zip(at, arrays[a.name].shape, strict=True)}
    executable = build_unoptimised(device, program)
    flags = cl.mem_flags.COPY_HOST_PTR
    buffers = {name: cl.Buffer(device.context, flags, hostbuf=np.array(values)) for name, values in arrays.items()}
    results = [np.empty([lengths[x] for x in e.indexing.output], dtype) for dtype in e.dtypes]
    for name, result in zip(e.output_names, results, strict=True):
        buffers[name] = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, result.nbytes)
    values = length_values(e, lengths)
    executable.enqueue(device.queue, buffers | executable.scratch(device.context, values), values)
    for name, result in zip(e.output_names, results, strict=True):
        cl.enqueue_copy(device.queue, result, buffers[name])
    return results[0] if e.b == 1 else tuple(results)
