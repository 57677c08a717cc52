"""Device arrays of one shape in one array: ``to[e, k, ...] = from_k[e, ...]``, by one launch for all of them.

A work-item moves one element of each, so that neighbours read neighbours; sizes are compiled in, as a division by an
unknown number takes longer than the element.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from feinsum.compile.strided import copy_strided
from feinsum.devices.opencl import build_program

_WORDS: Final = {4: "uint", 8: "ulong"}
WORK_ITEMS: Final = 256
NARROW: Final = (1 << 32) - WORK_ITEMS
"""Elements that 32 bits count, and the work-items behind the last one, too."""
Steps: TypeAlias = tuple[int, ...]
_lock = threading.Lock()


def stack_into(to: Any, axis: int, arrays: Sequence[Any], queue: Any, wait_for: Sequence[Any] = ()) -> None:
    """Write device arrays of any strides, of elements of 4 or 8 bytes, to a contiguous one.

    The launch waits for the events of all of them, too, and its own is then that of `to`.

    :param axis: that of `to` which counts them.
    """
    if not to.size:
        return
    size, count = to.dtype.itemsize, to.size // len(arrays)
    arrays = [aligned_array(one, queue) for one in arrays]
    inner = (*to.strides[:axis], *to.strides[axis + 1 :])
    shape, steps, _ = merged_axes(arrays[0].shape, (inner, *(one.strides for one in arrays)))
    own, *others = [[step // size for step in each] for each in steps]
    numbers: list[Any] = [to.base_data, to.offset // size, count, to.strides[axis] // size, *own]
    for one, each in zip(arrays, others, strict=True):
        numbers += [one.base_data, one.offset // size, *each]
    kernel = _stack_kernel(queue.context, _WORDS[size], "uint" if count < NARROW else "ulong", shape[1:], len(arrays))
    launch_elements(kernel, numbers, count, to, arrays, queue, wait_for)


def launch_elements(
    kernel: Any, numbers: Sequence[Any], count: int, to: Any, arrays: Sequence[Any], queue: Any, wait_for: Sequence[Any]
) -> None:
    """Launch a kernel of one work-item an element, behind the events of all arrays; its own is then that of `to`."""
    import pyopencl as cl

    events = [*wait_for, *to.events, *(event for one in arrays for event in one.events)]
    work_items = -(-count // WORK_ITEMS) * WORK_ITEMS
    with _lock:
        kernel.set_args(*numbers)
        done = cl.enqueue_nd_range_kernel(queue, kernel, (work_items,), (WORK_ITEMS,), wait_for=events or None)
    to.events[:] = [done]


def aligned_array(array: Any, queue: Any) -> Any:
    """An array, or a copy of one whose elements lie where no number of its type may."""
    fits = not any(n % array.dtype.itemsize for n in (array.offset, *array.strides))
    return array if fits else copy_strided(array, queue)


@lru_cache(maxsize=1024)
def merged_axes(
    shape: Steps, steps: tuple[Steps, ...], apart: frozenset[int] = frozenset()
) -> tuple[Steps, list[Steps], Steps]:
    """Fewer axes that run through the same elements: their lengths, their steps, and the last old axis in each.

    :param apart: axes that stay; others are left out where their length is 1, and merged where all arrays allow it.

    >>> merged_axes((5, 2, 3), ((6, 3, 1), (18, 3, 1)))
    ((5, 6), [(6, 1), (18, 1)], (0, 2))
    """
    lengths, axes = list[int](), list[int]()
    for axis, length in enumerate(shape):
        if length == 1 and axis not in apart:
            continue
        free = axes and not apart & {axes[-1], axis}
        if free and all(own[axes[-1]] == own[axis] * length for own in steps):
            lengths[-1], axes[-1] = lengths[-1] * length, axis
        else:
            lengths.append(length)
            axes.append(axis)
    if not axes:
        return (1,), [(0,)] * len(steps), ()
    return tuple(lengths), [tuple(own[axis] for axis in axes) for own in steps], tuple(axes)


@lru_cache(maxsize=256)
def _stack_kernel(context: Any, word: str, index: str, inner: Steps, count: int) -> Any:
    """The kernel for arrays whose inner axes are so long; the first may have any length."""
    import pyopencl as cl

    axes = range(1 + len(inner))
    names = ["__global {0} *to", "begin", "count", "apart", *(f"t{axis}" for axis in axes)]
    for k in range(count):
        names += [f"__global const {{0}} *from{k}", f"begin{k}", *(f"s{k}_{axis}" for axis in axes)]
    parameters = ", ".join(name.format(word) if "*" in name else f"const ulong {name}" for name in names)
    # all loads are under way before the first store, which the compiler cannot move behind them
    loads = [f"const {word} x{k} = from{k}[begin{k}{position_text(axes, f's{k}_')}];" for k in range(count)]
    stores = [f"to[at + {k} * apart] = x{k};" for k in range(count)]
    source = f"""
__kernel void stack({parameters})
{{
    {index} k = get_global_id(0);
    if (k >= count)
        return;
    {digits_text(inner)}
    const ulong at = begin{position_text(axes, "t")};
    {" ".join([*loads, *stores])}
}}
"""
    kernel = cl.Kernel(build_program(context, source), "stack")
    kernel.set_scalar_arg_dtypes([None if "*" in name else np.dtype(np.uint64) for name in names])
    return kernel


def digits_text(inner: Sequence[int]) -> str:
    """The text that takes k apart into an index for each axis.

    :param inner: the lengths of axes but the first.

    >>> digits_text((6,))
    'const ulong i1 = k % 6; k /= 6; const ulong i0 = k;'
    """
    lengths = reversed(list(enumerate(inner, 1)))
    return " ".join([*(f"const ulong i{axis} = k % {n}; k /= {n};" for axis, n in lengths), "const ulong i0 = k;"])


def position_text(axes: Sequence[int], steps: str) -> str:
    """The text of what indices add to a position.

    >>> position_text(range(2), "t")
    ' + i0 * t0 + i1 * t1'
    """
    return "".join(f" + i{axis} * {steps}{axis}" for axis in axes)
