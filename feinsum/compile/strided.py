"""Copies of strided device arrays, and updates: ``to[k] = from[begin + Σ_d i_d stride_d]``, i the digits of k."""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any

import numpy as np

from feinsum.devices.opencl import build_program

_WORDS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "ulong2"}
_NUMBERS = {"float32": "float", "float64": "double", "complex64": "float2", "complex128": "double2"} | {
    f"{sign}int{8 * size}": f"{sign}{name}"
    for size, name in ((1, "char"), (2, "short"), (4, "int"), (8, "long"))
    for sign in ("", "u")
}
_lock = threading.Lock()


def copy_strided(value: Any, queue: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """A C-contiguous copy of a device array of any strides and offset, in another type if one is given.

    A complex number becomes a real one by its real part.
    """
    import pyopencl as cl
    import pyopencl.array as cla

    size = value.dtype.itemsize
    if value.size and (word := math.gcd(size, value.offset, *value.strides)) < size:
        value = _in_words(value, queue, word)
    copy = cla.empty(queue, value.shape, value.dtype if dtype is None else dtype)
    if not value.size:
        return copy
    source = _copy_source(value.dtype, copy.dtype, len(value.shape))
    kernel = _copy_kernel(queue.context, source, len(value.shape))
    numbers = [value.offset // size, *value.shape, *(stride // size for stride in value.strides)]
    with _lock:
        kernel.set_args(copy.base_data, value.base_data, *numbers)
        copy.add_event(cl.enqueue_nd_range_kernel(queue, kernel, (value.size,), None, wait_for=value.events or None))
    return copy


def update_strided(target: Any, value: Any, queue: Any, alpha: float = 1.0, beta: float = 0.0) -> None:
    """``target = alpha value + beta target``, of a device array of any strides and offset, and a contiguous one.

    Both have the same shape and type, which is real.  With ``beta = 0`` the target is not read.
    """
    import pyopencl as cl

    if not target.size:
        return
    number, size = _NUMBERS[target.dtype.name], target.dtype.itemsize
    kernel = _update_kernel(queue.context, number, len(target.shape), alpha, beta)
    numbers = [target.offset // size, *target.shape, *(stride // size for stride in target.strides)]
    events = [*target.events, *value.events]
    with _lock:
        kernel.set_args(target.base_data, value.base_data, value.offset // size, *numbers)
        target.add_event(cl.enqueue_nd_range_kernel(queue, kernel, (target.size,), None, wait_for=events or None))


def _in_words(value: Any, queue: Any, word: int) -> Any:
    """A contiguous copy of an array whose elements lie where no number of its type may: in words that may lie there.

    :param word: the bytes of one.
    """
    import pyopencl.array as cla

    words = value.dtype.itemsize // word
    apart = cla.Array(
        queue,
        (*value.shape, words),
        np.dtype(f"uint{8 * word}"),
        strides=(*value.strides, word),
        data=value.base_data,
        offset=value.offset,
        events=value.events,
    )
    copy = copy_strided(apart, queue)
    return cla.Array(queue, value.shape, value.dtype, data=copy.base_data, events=copy.events)


@lru_cache(maxsize=256)
def _update_kernel(context: Any, number: str, axes: int, alpha: float, beta: float) -> Any:
    import pyopencl as cl

    whole = number not in ("float", "double")

    def constant(factor: float) -> str:
        return f"(({number})({int(factor) if whole else float(factor)!r}))"

    value = "from[first + get_global_id(0)]"
    value = value if alpha == 1 else f"{constant(alpha)} * {value}"
    if beta != 0:
        value += " + to[at]" if beta == 1 else f" + {constant(beta)} * to[at]"
    names = ["first", "begin", *(f"{name}{axis}" for name in ("n", "s") for axis in range(axes))]
    parameters = "".join(f", const long {name}" for name in names)
    digits = " ".join(f"at += k % n{axis} * s{axis}; k /= n{axis};" for axis in reversed(range(axes)))
    source = f"""
__kernel void update_strided(__global {number} *to, __global const {number} *from{parameters})
{{
    long k = get_global_id(0), at = begin;
    {digits}
    to[at] = {value};
}}
"""
    kernel = cl.Kernel(build_program(context, source), "update_strided")
    kernel.set_scalar_arg_dtypes([None, None, *[np.dtype(np.int64)] * (2 + 2 * axes)])
    return kernel


def _copy_source(given: np.dtype[Any], wanted: np.dtype[Any], axes: int) -> str:
    """The program that copies arrays of some number of axes; elements that keep their type are moved as words."""
    names = [f"{name}{axis}" for name in ("n", "s") for axis in range(axes)]
    parameters = "".join(f", const long {name}" for name in names)
    digits = " ".join(f"at += k % n{axis} * s{axis}; k /= n{axis};" for axis in reversed(range(axes)))
    if given == wanted:
        source = target = _WORDS[given.itemsize]
        value = "from[at]"
    else:
        source, target = _NUMBERS[given.name], _NUMBERS[wanted.name]
        value = f"convert_{target}(from[at]{'.x' if given.kind == 'c' != wanted.kind else ''})"
        if wanted.kind == "c" != given.kind:
            value = f"({target})(convert_{target.removesuffix('2')}(from[at]), 0)"
    return f"""
__kernel void copy_strided(__global {target} *to, __global const {source} *from, const long begin{parameters})
{{
    long k = get_global_id(0), at = begin;
    {digits}
    to[get_global_id(0)] = {value};
}}
"""


@lru_cache(maxsize=64)
def _copy_kernel(context: Any, source: str, axes: int) -> Any:
    import pyopencl as cl

    kernel = cl.Kernel(build_program(context, source), "copy_strided")
    kernel.set_scalar_arg_dtypes([None, None, *[np.dtype(np.int64)] * (1 + 2 * axes)])
    return kernel
