"""Proofs that a device works as it claims: small kernels whose results are known.

They may crash the driver or hang, so they run in a process of their own (:mod:`feinsum.devices.probe_worker`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.devices.opencl import build_program
from feinsum.devices.vendors import known_vendors
from feinsum.devices.vendors.trials import copied_source, product_source, shuffled_source
from feinsum.devices.vendors.units import MatrixUnit
from feinsum.errors import DeviceError

if TYPE_CHECKING:
    import pyopencl as cl

_LARGEST_STATIC_LOCAL_BYTES = 512 * 1024
"""Above what any device has."""

_REVERSE = """
kernel void reverse_groups(global const {T} *x, global {T} *y, {T} scale)
{{
  __local {T} tile[{size}];
  int k = get_local_id(0);
  tile[k] = x[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  y[get_global_id(0)] = scale * tile[{size} - 1 - k] + (({T}) get_group_id(0));
}}
"""


def why_unusable(device: cl.Device) -> str:
    """Empty if the device builds and runs kernels with the right results, in float32 and what else it claims."""
    import pyopencl as cl

    size, groups = min(16, device.max_work_group_size), 8
    for name, dtype in _floating_point_types(device):
        pragma = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable" if name == "double" else ""
        x = np.arange(size * groups, dtype=dtype)
        try:
            (y,) = _run_check(
                device, pragma + _REVERSE.format(T=name, size=size), [x], [np.zeros_like(x), dtype.type(3)], size
            )
        except cl.Error as error:
            return f"a kernel of {dtype} fails: {most_telling_line(error)}"
        expected = 3 * x.reshape(groups, size)[:, ::-1] + np.arange(groups, dtype=dtype)[:, None]
        if not np.array_equal(y, expected.reshape(-1)):
            return f"a kernel of {dtype} gives wrong results"
    return ""


def static_local_memory_bytes(device: cl.Device) -> int:
    """The largest ``__local`` array that builds and works, to 1 KiB; at least what the driver reports.

    Drivers may report 48 KiB, which holds for ``__local`` arguments; arrays of the kernel's own may be larger.
    """
    reported = int(device.local_mem_size)
    low, high = reported // 1024, _LARGEST_STATIC_LOCAL_BYTES // 1024 + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _static_local_works(device, middle * 1024) else (low, middle)
    return max(low * 1024, reported)


def feature_works(device: cl.Device, name: str) -> bool:
    """Whether the driver builds the matrix unit or instruction `name` of a vendor, and what it computes is right."""
    import pyopencl as cl

    try:
        unit = known_vendors.matrix_units().get(name)
        return _exchanges(device, name) if unit is None else _product_is_right(device, unit)
    except cl.Error:
        return False


def _product_is_right(device: cl.Device, unit: MatrixUnit) -> bool:
    random = np.random.default_rng(0)
    # Small integers are exact in every format, so that the result has to be equal.
    shapes = (unit.m, unit.k), (unit.k, unit.n), (unit.m, unit.n)
    a, b, d = (random.integers(-8, 9, shape).astype(unit.number) for shape in shapes)
    (result,) = _run_check(device, product_source(unit), [a, b], [d], unit.lanes, unit.lanes)
    return np.array_equal(result, d + a @ b)


def _exchanges(device: cl.Device, name: str) -> bool:
    """Whether neighbouring lanes exchange numbers by the asynchronous copies, or the shuffles, of a name."""
    for vendor in known_vendors.VENDORS:
        lanes, source = vendor.sub_group_sizes[0], ""
        if vendor.copies is not None and vendor.copies.name == name:
            source = copied_source(vendor.copies, lanes)
        elif vendor.shuffles is not None and vendor.shuffles.name == name:
            source = shuffled_source(vendor.shuffles, lanes)
        if source:
            x = np.random.default_rng(0).standard_normal((lanes, 4), dtype=np.float32)
            (y,) = _run_check(device, source, [x], [np.zeros_like(x)], lanes, lanes)
            return np.array_equal(y, x[np.arange(lanes) ^ 1])
    raise DeviceError(f"no vendor has an instruction {name!r}")


def most_telling_line(error: Exception, limit: int = 200) -> str:
    """The line of an error message that says most: the first of the compiler's errors, else the first of all."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    line = next((line for line in lines if "error:" in line.lower()), lines[0])
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _floating_point_types(device: cl.Device) -> Iterator[tuple[str, np.dtype[Any]]]:
    yield "float", np.dtype(np.float32)
    if device.double_fp_config:
        yield "double", np.dtype(np.float64)


def _static_local_works(device: cl.Device, size: int) -> bool:
    import pyopencl as cl

    source = f"""
    kernel void touch(global const int *x, global int *y)
    {{
      __local int tile[{size // 4}];
      for (int k = get_local_id(0); k < {size // 4}; k += 64)
        tile[k] = x[k % 64] + k;
      barrier(CLK_LOCAL_MEM_FENCE);
      int sum = 0;
      for (int k = 63 - (int) get_local_id(0); k < {size // 4}; k += 64)
        sum ^= tile[k];
      y[get_local_id(0)] = sum;
    }}"""
    x = np.arange(64, dtype=np.int32)
    k = np.arange(size // 4, dtype=np.int32).reshape(-1, 64)
    expected = np.bitwise_xor.reduce(x + k, axis=0)[::-1]
    try:
        (y,) = _run_check(device, source, [x], [np.zeros_like(x)], 64)
    except cl.Error:
        return False
    return np.array_equal(y, expected)


def _run_check(
    device: cl.Device, source: str, inputs: list[np.ndarray[Any, Any]], rest: list[Any], local: int, total: int = 0
) -> list[np.ndarray[Any, Any]]:
    """Run the only kernel of `source` on arrays `inputs` and then `rest`; the arrays of `rest` with their new content.

    A context of its own, as a kernel that failed may have spoilt the last one.
    """
    import pyopencl as cl

    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    arguments: list[Any] = [cl.Buffer(context, flags, hostbuf=array) for array in inputs]
    outputs = []
    for value in rest:
        if isinstance(value, np.ndarray):
            outputs.append((cl.Buffer(context, flags, hostbuf=value), np.empty_like(value)))
            arguments.append(outputs[-1][0])
        else:
            arguments.append(value)
    (kernel,) = build_program(context, source).all_kernels()
    kernel(queue, (total or inputs[0].size,), (local,), *arguments)
    for buffer, array in outputs:
        cl.enqueue_copy(queue, array, buffer)
    queue.finish()
    return [array for _, array in outputs]
