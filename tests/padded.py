"""Kernels of spaces whose arrays do not lie densely in memory, run in a process of their own, as a kernel may crash."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import loopy as lp
import numpy as np
import pyopencl as cl
from simulated_units import build_unoptimised

import feinsum as fe
from feinsum.compile.codegen import generate_program
from feinsum.compile.executable import build_executable
from feinsum.devices import DeviceProfile
from feinsum.effects import deprecations_paused
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.lower import generate_loopy
from feinsum.match import match_finished
from feinsum.registry import find_space
from feinsum.space import Configuration
from feinsum.validate import length_values

LAYOUTS = ("padded", "interleaved", "shifted")
"""Rows that end before the next begins, every second number, and an array that begins 3 numbers behind its buffer."""
SHIFT = 3


@dataclass(frozen=True)
class Case:
    """A kernel for an einsum, some of whose arrays lie in memory in another layout.

    :ivar space: the space whose configuration it is; None for what :func:`feinsum.transform` makes.
    :ivar update: whether outputs get ``2*v - 3*out`` of each sum v in place of v.
    :ivar optimised: whether it is built as for users; else see :data:`simulated_units.UNOPTIMISED`.
    """

    space: str | None
    einsum: BatchedEinsum
    sizes: Mapping[str, int]
    configuration: Configuration
    device: str
    layouts: Mapping[str, str]
    update: bool = False
    optimised: bool = True


def strides(shape: tuple[Any, ...], layout: str) -> tuple[Any, ...]:
    """The strides of an array, in numbers: ``(40, 1)`` for 33 columns that are padded, ``(66, 2)`` interleaved.

    A padded row has room for whole vectors of 8 numbers, and for at least one number more than it has.
    """
    step: Any = 2 if layout == "interleaved" else 1
    found: list[Any] = []
    for number, length in enumerate(reversed(shape)):
        found.insert(0, step)
        room = length if number or layout != "padded" else (length // 8 + 1) * 8
        step = step * room
    return tuple(found)


def laid_out(t_unit: lp.TranslationUnit, layouts: Mapping[str, str]) -> lp.TranslationUnit:
    """A kernel whose arrays have such layouts, as a user would declare them."""
    kernel = t_unit.default_entrypoint
    arguments = []
    for old in kernel.args:
        if (layout := layouts.get(old.name)) is None:
            arguments.append(old)
            continue
        own = strides(old.shape, layout)
        offset = SHIFT if layout == "shifted" else 0
        arguments.append(
            lp.GlobalArg(
                old.name,
                old.dtype,
                shape=old.shape,
                strides=own,
                offset=offset,
                is_input=old.is_input,
                is_output=old.is_output,
            )
        )
    return t_unit.with_kernel(kernel.copy(args=arguments))


def kernel_of(case: Case, profile: DeviceProfile) -> lp.TranslationUnit:
    """The transformed kernel of a case.

    :raises TransformError: if the space refuses the layouts.
    """
    e = case.einsum.then("2*v - 3*out") if case.update else case.einsum
    t_unit, lengths = laid_out(generate_loopy(e), case.layouts), case.einsum.resolve(case.sizes)
    by_name = {name: lengths[letter] for letter, name in case.einsum.length_names.items()}
    if case.space is None:
        return fe.transform(t_unit, profile.id, sizes=by_name)
    match, space = match_finished(t_unit), find_space(case.space)
    problem = space.problem(match.einsum, {axis: by_name[match.names[axis]] for axis in match.einsum.long_axes}, profile)
    return space.transform(t_unit, match, case.configuration, problem)


def error(case: Case) -> str | None:
    """What is wrong with what a kernel of a case writes; None if nothing is.

    :raises TransformError: if the space refuses the layouts.
    """
    device, e = fe.device(case.device), case.einsum
    lengths = e.resolve(case.sizes)
    with deprecations_paused:
        program = generate_program(kernel_of(case, device.profile))
        executable = build_executable(device.context, program) if case.optimised else build_unoptimised(device, program)
    rng = np.random.default_rng(0)
    values, buffers, views = {}, {}, {}
    shapes = {a.name: tuple(lengths[x] for x in at) for a, at in e.array_uses}
    dtypes = {a.name: a.dtype for a, _ in e.array_uses}
    for name, dtype in zip(e.output_names, e.dtypes, strict=True):
        shapes[name], dtypes[name] = tuple(lengths[x] for x in e.indexing.output), dtype
    for name, shape in shapes.items():
        memory, view = _memory(shape, dtypes[name], case.layouts.get(name, "dense"))
        if name not in e.output_names or case.update:
            numbers = rng.integers(-4, 5, shape) + (1j * rng.integers(-4, 5, shape) if dtypes[name].kind == "c" else 0)
            view[...] = values[name] = numbers.astype(dtypes[name])
        views[name] = memory, view
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers[name] = cl.Buffer(device.context, flags, hostbuf=memory)
    counts = length_values(e, lengths)
    executable.enqueue(device.queue, buffers | executable.scratch(device.context, counts), counts)
    for name, row in zip(e.output_names, e.args, strict=True):
        memory, view = views[name]
        before = memory.copy()
        cl.enqueue_copy(device.queue, memory, buffers[name])
        expected = np.einsum(str(e.indexing), *(values[operand[0].name] for operand in row), optimize=True)
        expected = 2 * expected - 3 * values[name] if case.update else expected
        if not np.array_equal(view, expected):  # all are whole numbers, and small
            return f"'{name}' is wrong in {np.sum(view != expected)} of {view.size} places"
        view[...] = 0
        before_view = _view(before, view.shape, case.layouts.get(name, "dense"))
        before_view[...] = 0
        if not np.array_equal(memory, before, equal_nan=True):
            return f"memory beside '{name}' was written to"
    return None


def _memory(shape: tuple[int, ...], dtype: Any, layout: str) -> tuple[Any, Any]:
    """Memory full of NaN, and an array of a layout in it."""
    size = SHIFT + 2 * 8 + sum((n - 1) * step for n, step in zip(shape, strides(shape, layout), strict=True)) + 1
    memory = np.full(size, np.nan, dtype)
    return memory, _view(memory, shape, layout)


def _view(memory: Any, shape: tuple[int, ...], layout: str) -> Any:
    start = memory[SHIFT if layout == "shifted" else 0 :]
    steps = [step * memory.itemsize for step in strides(shape, layout)]
    return np.lib.stride_tricks.as_strided(start, shape, steps)


def outcome(case: Case) -> str | None:
    """What :func:`error` finds, or why the space refuses, after "refused: "."""
    try:
        return error(case)
    except TransformError as refused:
        return f"refused: {refused}"


class Apart:
    """A process that cases run in; one that crashes is followed by another."""

    def __init__(self) -> None:
        self._pool = self._new()

    @staticmethod
    def _new() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def outcome(self, case: Case) -> str | None:
        """See :func:`outcome`; a crash has one too."""
        try:
            return self._pool.submit(outcome, case).result()
        except BrokenProcessPool:
            self._pool = self._new()
            return "the kernel ended its process"

    def close(self) -> None:
        self._pool.shutdown()
