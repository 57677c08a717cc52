"""Sums of device arrays, of which some are added to blocks: ``to = scale to + Σ_k c_k from_k``, by one launch.

A work-item computes one element of the result; bounds of blocks are compiled in, as sizes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from feinsum.compile.stacks import (
    NARROW,
    aligned_array,
    digits_text,
    launch_elements,
    merged_axes,
    position_text,
)
from feinsum.devices.opencl import build_program

Bounds: TypeAlias = tuple[tuple[int, int] | None, ...]
"""For each axis the first index of a block, and the one behind its last; None for all of the axis."""
_TYPES: Final = {"float32": "float", "float64": "double"}


@dataclass(frozen=True, eq=False)
class Summand:
    """An array, what it is multiplied by, and the block of the result to which it is added."""

    array: Any
    factor: Any
    bounds: Bounds


def add_blocks(to: Any, scale: Any, summands: Sequence[Summand], queue: Any, wait_for: Sequence[Any] = ()) -> None:
    """Add device arrays of any strides, of float32 or float64, to one; where `scale` is 0, what it holds is not read.

    The launch waits for the events of all of them, too, and its own is then that of `to`.
    """
    if not to.size:
        return
    size = to.dtype.itemsize
    arrays = [aligned_array(one.array, queue) for one in summands]
    apart = frozenset(axis for one in summands for axis, bounds in enumerate(one.bounds) if bounds is not None)
    shape, steps, axes = merged_axes(to.shape, tuple(one.strides for one in (to, *arrays)), apart)
    own, *others = [[step // size for step in each] for each in steps]
    numbers: list[Any] = [to.base_data, to.offset // size, to.size, to.dtype.type(scale), *own]
    for one, array, each in zip(summands, arrays, others, strict=True):
        numbers += [array.base_data, array.offset // size, to.dtype.type(one.factor), *each]
    blocks = tuple(tuple(one.bounds[axis] for axis in axes) for one in summands)
    index = "uint" if to.size < NARROW else "ulong"
    kernel = _block_sum_kernel(queue.context, to.dtype.name, index, shape[1:], blocks)
    launch_elements(kernel, numbers, to.size, to, arrays, queue, wait_for)


@lru_cache(maxsize=256)
def _block_sum_kernel(context: Any, dtype: str, index: str, inner: tuple[int, ...], blocks: tuple[Bounds, ...]) -> Any:
    """The kernel for results whose inner axes are so long; the first may have any length."""
    import pyopencl as cl

    number, axes, whole = _TYPES[dtype], range(1 + len(inner)), np.dtype(np.uint64)
    arguments = [("__global {} *to", None), ("const ulong begin", whole), ("const ulong count", whole)]
    arguments += [("const {} scale", np.dtype(dtype)), *((f"const ulong t{axis}", whole) for axis in axes)]
    for k in range(len(blocks)):
        arguments += [(f"__global const {{}} *from{k}", None), (f"const ulong begin{k}", whole)]
        arguments += [(f"const {{}} c{k}", np.dtype(dtype)), *((f"const ulong s{k}_{axis}", whole) for axis in axes)]
    source = f"""
__kernel void add_blocks({", ".join(text.format(number) for text, _ in arguments)})
{{
    {index} k = get_global_id(0);
    if (k >= count)
        return;
    {digits_text(inner)}
    const ulong at = begin{position_text(axes, "t")};
    {number} sum = scale != 0 ? scale * to[at] : 0;
    {" ".join(_addition(k, bounds) for k, bounds in enumerate(blocks))}
    to[at] = sum;
}}
"""
    kernel = cl.Kernel(build_program(context, source), "add_blocks")
    kernel.set_scalar_arg_dtypes([dtype for _, dtype in arguments])
    return kernel


def _addition(k: int, bounds: Bounds) -> str:
    """The text that adds an element of the array number k, where it has one.

    >>> _addition(1, (None, (3, 5)))
    'if (i1 >= 3 && i1 < 5) sum += c1 * from1[begin1 + i0 * s1_0 + (i1 - 3) * s1_1];'
    """
    inside = [f"i{axis} >= {part[0]} && i{axis} < {part[1]}" for axis, part in enumerate(bounds) if part is not None]
    indices = [f"(i{axis} - {part[0]})" if part is not None else f"i{axis}" for axis, part in enumerate(bounds)]
    position = "".join(f" + {index} * s{k}_{axis}" for axis, index in enumerate(indices))
    condition = f"if ({' && '.join(inside)}) " if inside else ""
    return f"{condition}sum += c{k} * from{k}[begin{k}{position}];"
