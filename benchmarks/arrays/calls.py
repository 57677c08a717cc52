"""Calls of kernels and contractions with arrays of every library: what they take, copy, keep and wait for."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks import cases
from benchmarks.arrays.side import Side
from benchmarks.measure import Way

_FACES, _FACE_NODES = 4, 10
_KEPT_BYTES_PER_CALL = 16
"""Of memory that allocators keep for later, and that is no leak."""


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
        rng, lengths = np.random.default_rng(21), self.e.resolve(self.sizes)
        return {
            a.name: rng.uniform(-1, 1, [lengths[letter] for letter in letters])
            for a, letters in self.e.array_indices.items()
        }

    @cached_property
    def text(self) -> str:
        return self.e.subscripts

    def expected(self, scale: float = 1.0) -> Any:
        """The result by numpy, of operands of which the last is scaled."""
        *first, last = self.values.values()
        return np.einsum(self.text, *first, last * scale, optimize=True)

    def arrays(self) -> dict[str, dict[str, Any]]:
        """The operands of each library that is installed, on this side."""
        found: dict[str, dict[str, Any]] = {}
        if not self.side.on_gpu:
            import pyopencl.array as cla

            queue = self.side.device.queue
            found["pyopencl"] = {name: cla.to_device(queue, value) for name, value in self.values.items()}
            found["numpy"] = self.values
        for library, peer in self.side.peers.items():
            found[library] = {name: peer.adopt(value, self.side.name) for name, value in self.values.items()}
        return found

    def ways(self, tensors: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
        """The ways to call with tensors of torch."""
        operands, kernel, device = list(tensors.values()), self.kernel, self.side.device
        expression = fe.contract_expression(self.text, *(one.shape for one in operands), device=device)
        return {
            "kernel": lambda: kernel(tensors),
            "contract": lambda: fe.contract(self.text, *operands, device=device),
            "expression": lambda: expression(*operands),
            "feinsum.torch.einsum": lambda: fe.torch.einsum(self.text, *operands),
        }


def gradient(side: Side, elements: int) -> Problem:
    """The gradient of order 3."""
    return Problem("DG gradient, order 3", cases.gradient(), {"E": elements}, side)


def face_mass(side: Side, elements: int) -> Problem:
    """The face mass of order 3."""
    arrays = [
        fe.array("R", (20, _FACES, _FACE_NODES)), fe.array("F", (_FACES, "E")), fe.array("v", (_FACES, "E", _FACE_NODES))
    ]  # fmt: skip
    return Problem("face mass, order 3", fe.einsum("ifj,fe,fej->ei", *arrays), {"E": elements}, side)


def calls(side: Side) -> Iterator[dict[str, Any]]:
    """One kernel called in every way, beside its raw launch and the library's own einsum."""
    elements = 1_000_000 if side.on_gpu else 100_000
    for problem in (gradient(side, elements), face_mass(side, elements)):
        ways = _ways(problem)
        yield {
            "name": problem.name,
            "einsum": problem.text,
            "sizes": dict(problem.sizes),
            "kernel": {"space": problem.kernel.space, "rung": problem.kernel.rung},
            "error": float(max(abs(_numpy(ways["kernel, torch"]()) - problem.expected()).ravel())),
            "back to back": side.compare(ways, side.back_to_back),
            "apart": side.compare(ways, side.apart),
        }


def _ways(problem: Problem) -> dict[str, Way]:
    """The ways to call a kernel, first the one that others are compared with."""
    import torch

    kernel, libraries = problem.kernel, problem.arrays()
    tensors = libraries["torch"]
    room = kernel(tensors)
    ways: dict[str, Way] = {}
    if problem.side.on_gpu:
        ways["raw launch"] = _raw(problem, tensors, room)
    else:
        there = kernel(libraries["pyopencl"])
        ways["kernel, pyopencl, out="] = lambda: kernel(libraries["pyopencl"], out=there)
    for library, arrays in libraries.items():
        ways[f"kernel, {library}"] = lambda arrays=arrays: kernel(arrays)  # type: ignore[misc]
    text, operands = problem.text, list(tensors.values())
    ways |= {
        "kernel, torch, out=": lambda: kernel(tensors, out=room),
        "contract, torch": lambda: fe.contract(text, *operands, device=problem.side.device),
        "feinsum.torch.einsum": lambda: fe.torch.einsum(text, *operands),
        "torch.einsum": lambda: torch.einsum(text, *operands),
    }
    return ways


def _ways_of_few(problem: Problem) -> dict[str, Way]:
    """The same for arrays so small that the caller's time counts; and what of that is not ours."""
    import torch

    kernel, libraries, text = problem.kernel, problem.arrays(), problem.text
    tensors = libraries["torch"]
    operands, room = list(tensors.values()), kernel(tensors)
    ways = _ways(problem) | {
        "contract, torch, out=": lambda: fe.contract(text, *operands, device=problem.side.device, out=room),
        "expression, torch": problem.ways(tensors)["expression"],
        "torch.empty": lambda: torch.empty(room.shape, dtype=room.dtype, device=room.device),
    }
    if problem.side.on_gpu:
        raw = ways["raw launch"]
        ways["raw launch and torch.empty"] = lambda: (torch.empty(room.shape, dtype=room.dtype, device=room.device), raw())
        if "cupy" in libraries:
            given = libraries["cupy"]
            there = kernel(given)
            ways["kernel, cupy, out="] = lambda: kernel(given, out=there)
    if "jax" in libraries:
        import jax

        arrays = list(libraries["jax"].values())
        ways["DLPack, of JAX and back"] = lambda: ([torch.from_dlpack(one) for one in arrays], jax.dlpack.from_dlpack(room))
    return ways


def _raw(problem: Problem, tensors: Mapping[str, Any], room: Any) -> Way:
    """The launches of a kernel and nothing else, their arguments set beforehand."""
    import torch
    from cuda.bindings import driver

    from feinsum.interop.cuda.reception import road_of

    number = room.device.index
    bound = road_of(problem.kernel).bind(problem.e.resolve(problem.sizes), number)
    scratch = [torch.empty(size, dtype=torch.uint8, device=room.device) for size in bound.scratch_bytes]
    stream = torch.cuda.current_stream(number).cuda_stream
    bound.enqueue([one.data_ptr() for one in (*tensors.values(), room, *scratch)], stream)  # sets the arguments
    handle = driver.CUstream(stream)
    launches = [launch for one in bound.launches for launch in one.prepared]

    def run(kept: Any = (bound, scratch, tensors, room)) -> None:
        for launch in launches:
            launch(handle)

    return run


def _recognition(side: Side) -> dict[str, bool]:
    """Which of what is not public of torch serves calls here."""
    if not side.on_gpu:
        return {}
    import torch

    from feinsum.interop.cuda.holders import holder
    from feinsum.interop.cuda.recognition import _trusted_guard

    make = holder("torch").maker((4, 4), np.dtype("float64"), torch.cuda.current_device())
    own = torch._C._dynamo.guards
    return {"guard": _trusted_guard() is not None, "empty": getattr(make, "func", None) is own._empty_strided_cuda}


def _numpy(value: Any) -> Any:
    return value.cpu().numpy() if hasattr(value, "cpu") else np.asarray(value)


def host(side: Side) -> Iterator[dict[str, Any]]:
    """How long the caller is busy with a call, of arrays so small that nothing else counts."""
    import torch

    small = gradient(side, 64)
    yield {
        "name": "DG gradient of 64 elements",
        "einsum": small.text,
        "quick": _recognition(side),
        "returned": side.compare(_ways_of_few(small), side.returned),
    }
    rng = np.random.default_rng(21)
    a, b = rng.normal(size=(64, 64)), rng.normal(size=(64, 64))
    x, y = side.tensor(a), side.tensor(b)
    u, v = x.clone().requires_grad_(), y.clone().requires_grad_()
    ones = torch.ones_like(x)

    def step(einsum: Callable[..., Any]) -> Way:
        return lambda: torch.autograd.grad(einsum("ij,jk->ik", u, v), (u, v), ones)

    ways: dict[str, Way] = {
        "contract, torch": lambda: fe.contract("ij,jk->ik", x, y, device=side.device),
        "feinsum.torch.einsum": lambda: fe.torch.einsum("ij,jk->ik", x, y),
        "torch.einsum": lambda: torch.einsum("ij,jk->ik", x, y),
        "feinsum.torch.einsum and derivatives": step(fe.torch.einsum),
        "torch.einsum and derivatives": step(torch.einsum),
    }
    if not side.on_gpu:
        ways |= {
            "contract, numpy": lambda: fe.contract("ij,jk->ik", a, b, device=side.device),
            "numpy.einsum": lambda: np.einsum("ij,jk->ik", a, b),
        }
    if "jax" in side.peers:
        ways |= _ways_of_jax(side, a, b)
    yield {"name": "products of 64 x 64", "einsum": "ij,jk->ik", "returned": side.compare(ways, side.returned)}


def _ways_of_jax(side: Side, a: Any, b: Any) -> dict[str, Way]:
    """The operator at once and compiled; until the result is there, for JAX may answer before it begins."""
    import jax

    c, d = (side.peers["jax"].adopt(value, side.name) for value in (a, b))
    ours = jax.jit(lambda x, y: fe.jax.einsum("ij,jk->ik", x, y))
    own = jax.jit(lambda x, y: jax.numpy.einsum("ij,jk->ik", x, y))
    return {
        "feinsum.jax.einsum": lambda: fe.jax.einsum("ij,jk->ik", c, d).block_until_ready(),
        "feinsum.jax.einsum, jit": lambda: ours(c, d).block_until_ready(),
        "jax.numpy.einsum, jit": lambda: own(c, d).block_until_ready(),
    }


def copies(side: Side) -> Iterator[dict[str, Any]]:
    """The memory that a call takes at most besides its result, beside the size of the operands."""
    problem = gradient(side, 1_000_000 if side.on_gpu else 100_000)
    kernel, operands = problem.kernel, sum(value.nbytes for value in problem.values.values())
    taken, told = {}, {}
    for library, arrays in problem.arrays().items():
        if library in ("pyopencl", *(("cupy", "jax") if side.on_gpu else ())):
            continue  # whose memory nobody here counts
        result = kernel(arrays)
        del result
        taken[library] = _most_bytes(side, lambda arrays=arrays: kernel(arrays))  # type: ignore[misc]
        told[library] = "copied" in kernel.explain()
    yield {"name": problem.name, "operands_bytes": operands, "besides_bytes": taken, "says_copied": told}


def _most_bytes(side: Side, way: Callable[[], Any]) -> int:
    """The most memory that was taken during a call, less what its result has."""
    side.wait()
    if side.on_gpu:
        import torch

        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = way()
        side.wait()
        most = torch.cuda.max_memory_allocated() - before
    else:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the most that there was
        before = _status("VmRSS")
        result = way()
        most = _status("VmHWM") - before
    return int(most - result.nbytes)


def _status(name: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def leaks(side: Side, repeat: int) -> Iterator[dict[str, Any]]:
    """The memory of host and device that is taken after many calls and was not before."""
    import torch

    problem = gradient(side, 64)
    tensors, text = problem.arrays()["torch"], problem.text
    operands = list(tensors.values())
    learnt = [one.clone().requires_grad_() for one in operands]
    ones = torch.ones_like(fe.torch.einsum(text, *operands))
    ways = problem.ways(tensors)
    ways["feinsum.torch.einsum and derivatives"] = lambda: torch.autograd.grad(fe.torch.einsum(text, *learnt), learnt, ones)
    for name, way in ways.items():
        _repeat(side, way, repeat // 10)
        before = _held(side)
        _repeat(side, way, repeat)
        kept = [after - first for after, first in zip(_held(side), before, strict=True)]
        is_leak = kept[0] > _KEPT_BYTES_PER_CALL * repeat or kept[1] > 0
        yield {"name": name, "calls": repeat, "host_bytes": kept[0], "device_bytes": kept[1], "leaks": is_leak}


def _repeat(side: Side, way: Way, times: int) -> None:
    for _ in range(times):
        way()
    side.wait()
    gc.collect()


def _held(side: Side) -> tuple[int, int]:
    """Bytes that this process has of the host, and by torch of the device."""
    if not side.on_gpu:
        return _status("VmRSS"), 0
    import torch

    return _status("VmRSS"), int(torch.cuda.memory_allocated())


def streams(side: Side) -> Iterator[dict[str, Any]]:
    """That calls return while their stream is busy, hold up no other stream, and read what comes before."""
    if not side.on_gpu:
        return
    import torch

    problem = gradient(side, 100_000)
    tensors, text, kernel = problem.arrays()["torch"], problem.text, problem.kernel
    last = list(tensors)[-1]
    learnt = [one.clone().requires_grad_() for one in tensors.values()]

    def gradient_of_first() -> Any:
        """The derivative in the first operand, in which the last, that is scaled, is a factor."""
        with torch.no_grad():
            learnt[-1].copy_(tensors[last])
        result = fe.torch.einsum(text, *learnt)
        return torch.autograd.grad(result, learnt[0], torch.ones_like(result))[0]

    for name, way in (problem.ways(tensors) | {"derivatives": gradient_of_first}).items():
        yield {"name": name, **_unhindered(way, tensors[last], kernel, tensors)}
    yield {"name": "CUDA graph", **_captured(kernel, tensors, last)}


def _unhindered(way: Callable[[], Any], scaled: Any, kernel: fe.Kernel, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """A call on a stream that sleeps and then doubles an operand; nobody may wait for it but who asks."""
    import torch

    own, beside = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(own):
        expected = 2 * way()
    others = {name: one.clone() for name, one in tensors.items()}
    with torch.cuda.stream(beside):
        torch.cuda.synchronize()
        kernel(others)  # so that no memory is asked of the driver while the other stream sleeps
    torch.cuda.synchronize()
    start = time.perf_counter()
    with torch.cuda.stream(own):
        torch.cuda._sleep(400_000_000)  # cycles: a fifth of a second
        scaled.mul_(2)
        found = way()
    returned_s, asleep = time.perf_counter() - start, not own.query()
    with torch.cuda.stream(beside):
        kernel(others)
    beside.synchronize()
    hinders_nobody = not own.query()
    own.synchronize()
    slept_s = time.perf_counter() - start
    right = bool(torch.allclose(found, expected))
    scaled.div_(2)
    torch.cuda.synchronize()
    return {
        "returned_s": returned_s, "slept_s": slept_s, "returns_at_once": asleep, "hinders_nobody": hinders_nobody,
        "in_order": right,
    }  # fmt: skip


def _captured(kernel: fe.Kernel, tensors: Mapping[str, Any], last: str) -> dict[str, Any]:
    """A graph of a launch, replayed with another content of an operand."""
    import torch

    expected = 3 * kernel(tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = kernel(tensors)
    tensors[last].mul_(3)
    graph.replay()
    torch.cuda.synchronize()
    right = bool(torch.allclose(result, expected))
    tensors[last].div_(3)
    return {"in_order": right}
