"""Calls of kernels and contractions with arrays of every library, compared with the bare launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks import cases
from benchmarks.arrays.side import Side
from benchmarks.measure import Way
from feinsum.validate.reference import random_inputs

FEW = 64
"""The elements of arrays so small that only the caller's time counts."""


@dataclass(frozen=True)
class Problem:
    """An einsum with its kernel and operands.

    :ivar sizes: the lengths of long axes.
    """

    name: str
    e: fe.BatchedEinsum
    sizes: Mapping[str, int]
    side: Side

    @cached_property
    def kernel(self) -> fe.Kernel:
        return fe.generate(self.e, self.side.device, sizes=self.sizes)

    @cached_property
    def values(self) -> dict[str, Any]:
        """Random operands of numpy, by name."""
        return random_inputs(self.e, self.e.resolve(self.sizes), 21)

    @cached_property
    def text(self) -> str:
        return self.e.subscripts

    def error(self, result: Any) -> float:
        """The largest difference of a tensor of torch from what numpy computes."""
        expected = np.einsum(self.text, *self.values.values(), optimize=True)
        return float(abs(self.side.peers["torch"].fetch(result) - expected).max())

    @cached_property
    def arrays(self) -> dict[str, dict[str, Any]]:
        """The operands of each library that is installed, on this side."""
        found: dict[str, dict[str, Any]] = {}
        if not self.side.on_gpu:
            import pyopencl.array as cla
            from pyopencl.tools import ImmediateAllocator, MemoryPool

            queue = self.side.device.queue
            pool = MemoryPool(ImmediateAllocator(queue))
            # A result is taken from the allocator of the first operand.
            for name, allocator in (("pyopencl", None), ("pyopencl, memory pool", pool)):
                found[name] = {a: cla.to_device(queue, value, allocator=allocator) for a, value in self.values.items()}
            found["numpy"] = self.values
        for library, peer in self.side.peers.items():
            found[library] = {name: peer.adopt(value, self.side.name) for name, value in self.values.items()}
        return found

    def ways(self) -> dict[str, Way]:
        """The ways to call a kernel, first the one that others are compared with."""
        kernel, side, tensors = self.kernel, self.side, self.arrays["torch"]
        operands, room = list(tensors.values()), kernel(tensors)
        ways = {"raw launch": _raw_on_cuda(self, tensors, room) if side.on_gpu else _raw(self)}
        if not side.on_gpu:
            ways["kernel, pyopencl, out="] = _into_its_result(kernel, self.arrays["pyopencl"])
            ways["kernel, numpy, out="] = _into_its_result(kernel, self.values)
        ways |= {f"kernel, {library}": partial(kernel, arrays) for library, arrays in self.arrays.items()}
        return ways | {
            "kernel, torch, out=": partial(kernel, tensors, out=room),
            "contract, torch": partial(fe.contract, self.text, *operands, device=side.device),
            "feinsum.torch.einsum": partial(fe.torch.einsum, self.text, *operands),
            "torch.einsum": partial(side.peers["torch"].functions().einsum, self.text, *operands),
        }

    def ways_of_few(self) -> dict[str, Way]:
        """These ways and others for arrays so small that the caller's time counts, and the parts that are not feinsum's."""
        import torch

        side, tensors, ways = self.side, self.arrays["torch"], self.ways()
        operands, room = list(tensors.values()), self.kernel(tensors)
        expression = fe.contract_expression(self.text, *(one.shape for one in operands), device=side.device)
        empty = partial(torch.empty, room.shape, dtype=room.dtype, device=room.device)
        raw = ways["raw launch"]
        ways |= {
            "contract, torch, out=": partial(fe.contract, self.text, *operands, device=side.device, out=room),
            "expression, torch": partial(expression, *operands),
            "torch.empty": empty,
            "raw launch and torch.empty": lambda: (empty(), raw()),
        }
        if "cupy" in self.arrays:
            ways["kernel, cupy, out="] = _into_its_result(self.kernel, self.arrays["cupy"])
        if "jax" in self.arrays:
            import jax

            arrays = list(self.arrays["jax"].values())
            ways["DLPack, of JAX and back"] = lambda: ([torch.from_dlpack(x) for x in arrays], jax.dlpack.from_dlpack(room))
        return ways


def _into_its_result(kernel: fe.Kernel, arrays: Mapping[str, Any]) -> Way:
    return partial(kernel, arrays, out=kernel(arrays))


def problems(side: Side) -> Iterator[Problem]:
    """Einsums of large arrays; on a CPU also two whose time is that of their memory."""
    elements = 1_000_000 if side.on_gpu else 100_000
    faces = [fe.array("R", (20, 4, 10)), fe.array("F", (4, "E")), fe.array("v", (4, "E", 10))]
    yield Problem("DG gradient, order 3", cases.gradient(), {"E": elements}, side)
    yield Problem("face mass, order 3", fe.einsum("ifj,fe,fej->ei", *faces), {"E": elements}, side)
    if not side.on_gpu:
        squares = [fe.array(x, ("E", 8, 8), "float32") for x in "xy"]
        grids = [fe.array(x, (4000, 2000)) for x in "xy"]
        yield Problem("products of 8 x 8", fe.einsum("bij,bjk->bik", *squares), {"E": 1_000_000}, side)
        yield Problem("elementwise product", fe.einsum("ij,ij->ij", *grids), {}, side)


def calls(side: Side) -> Iterator[dict[str, Any]]:
    """One kernel called in every way, compared with its raw launch and the library's own einsum."""
    for problem in problems(side):
        ways = problem.ways()
        yield {
            "name": problem.name,
            "einsum": problem.text,
            "dtype": problem.e.dtype.name,
            "sizes": dict(problem.sizes),
            "kernel": {"space": problem.kernel.space, "rung": problem.kernel.rung},
            "error": problem.error(ways["kernel, torch"]()),
            "back to back": side.compare(ways, side.back_to_back),
            "apart": side.compare(ways, side.apart),
        }


def _raw_on_cuda(problem: Problem, tensors: Mapping[str, Any], room: Any) -> Way:
    """The launches of a kernel and nothing else, their arguments set beforehand."""
    import torch
    from cuda.bindings import driver

    from feinsum.interop.cuda.cuda_adapter import launcher_of

    number = room.device.index
    bound = launcher_of(problem.kernel).bind(problem.e.resolve(problem.sizes), number)
    scratch = [torch.empty(size, dtype=torch.uint8, device=room.device) for size in bound.scratch_bytes]
    stream = torch.cuda.current_stream(number).cuda_stream
    bound.enqueue([one.data_ptr() for one in (*tensors.values(), room, *scratch)], stream)  # sets the arguments
    handle = driver.CUstream(stream)
    launches = [launch for one in bound.launches for launch in one.prepared]

    def run(kept: Any = (bound, scratch, tensors, room)) -> None:
        for launch in launches:
            launch(handle)

    return run


def _raw(problem: Problem) -> Way:
    """The raw launch by pyopencl alone."""
    import pyopencl as cl
    import pyopencl.array as cla

    from feinsum.compile.executable import build_executable
    from feinsum.compile.kernel_program import evaluate_extent
    from feinsum.devices import build_program
    from feinsum.validate import length_values

    context, queue, plan = problem.side.device.context, problem.side.device.queue, problem.kernel.program
    canonical, lengths = fe.canonicalize_einsum(problem.e), problem.e.resolve(problem.sizes)
    values = length_values(canonical.einsum, canonical.renaming.lengths(lengths))
    out = cla.empty(queue, tuple(lengths[x] for x in problem.e.indexing.output), problem.e.dtype)
    arrays = problem.arrays["pyopencl"]
    buffers = {canonical.renaming.arrays[name]: value.base_data for name, value in arrays.items()}
    buffers |= {canonical.einsum.output_names[0]: out.base_data, **build_executable(context, plan).scratch(context, values)}
    program, dtypes = build_program(context, problem.kernel.source), {a.name: np.dtype(a.dtype) for a in plan.arguments}
    launches = []
    for launch in plan.launches:
        kernel = cl.Kernel(program, launch.kernel)
        kernel.set_args(*(buffers[x] if x in buffers else dtypes[x].type(values[x]) for x in launch.arguments))
        groups = [evaluate_extent(extent, values) for extent in launch.groups]
        local = [*launch.group_size, *[1] * (len(groups) - len(launch.group_size))]
        launches.append((kernel, [n * size for n, size in zip(groups, local, strict=True)], local))

    def run(kept: Any = (buffers, out)) -> None:
        for kernel, items, local in launches:
            cl.enqueue_nd_range_kernel(queue, kernel, items, local)

    return run


def host(side: Side) -> Iterator[dict[str, Any]]:
    """How long the caller is busy with a call, of arrays so small that nothing else counts."""
    small = Problem(f"DG gradient of {FEW} elements", cases.gradient(), {"E": FEW}, side)
    returned = side.compare(small.ways_of_few(), side.returned)
    yield {"name": small.name, "einsum": small.text, "returned": returned}
    a, b = np.random.default_rng(21).normal(size=(2, FEW, FEW))
    returned = side.compare(_ways_of_products(side, a, b), side.returned)
    yield {"name": f"products of {FEW} x {FEW}", "einsum": "ij,jk->ik", "returned": returned}


def _ways_of_products(side: Side, a: Any, b: Any) -> dict[str, Way]:
    """Each library's own einsum and ours, and both with derivatives."""
    import torch

    text, on = "ij,jk->ik", {"device": side.device}
    x, y = side.tensor(a), side.tensor(b)
    u, v, ones = x.clone().requires_grad_(), y.clone().requires_grad_(), torch.ones_like(x)

    def step(einsum: Callable[..., Any]) -> Way:
        return lambda: torch.autograd.grad(einsum(text, u, v), (u, v), ones)

    ways: dict[str, Way] = {
        "contract, torch": partial(fe.contract, text, x, y, **on),
        "feinsum.torch.einsum": partial(fe.torch.einsum, text, x, y),
        "torch.einsum": partial(torch.einsum, text, x, y),
        "feinsum.torch.einsum and derivatives": step(fe.torch.einsum),
        "torch.einsum and derivatives": step(torch.einsum),
    }
    if not side.on_gpu:
        ways |= {"contract, numpy": partial(fe.contract, text, a, b, **on), "numpy.einsum": partial(np.einsum, text, a, b)}
    if "jax" in side.peers:
        import jax

        c, d = (side.peers["jax"].adopt(value, side.name) for value in (a, b))
        functions = {
            "feinsum.jax.einsum": partial(fe.jax.einsum, text),
            "feinsum.jax.einsum, jit": jax.jit(partial(fe.jax.einsum, text)),
            "jax.numpy.einsum, jit": jax.jit(partial(jax.numpy.einsum, text)),
        }
        # until the result is there, as JAX may answer before it begins
        ways |= {name: lambda f=f: f(c, d).block_until_ready() for name, f in functions.items()}  # type: ignore[misc]
    return ways
