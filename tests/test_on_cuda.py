"""Calls on a CUDA device: they wait for nothing, keep nothing, and compute where their arrays are; skipped without one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

import feinsum as fe

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch has no CUDA device", allow_module_level=True)

TEXT = "xre,rij,ej->xei"
KEPT_BYTES_PER_CALL = 16
"""Memory that allocators keep for later, which is not a leak."""
WAYS = ("kernel", "contract", "expression", "feinsum.torch.einsum")


@pytest.fixture(scope="module")
def kernel() -> fe.Kernel:
    """The gradient of order 3."""
    arrays = [fe.array("J", (3, 3, "E")), fe.array("D", (3, 20, 20)), fe.array("u", ("E", 20))]
    return fe.generate(fe.einsum(TEXT, *arrays), fe.device("gpu"), sizes={"E": 100_000})


def operands(elements: int, number: int = 0) -> dict[str, Any]:
    """Random tensors on a device, in the order of the subscripts."""
    rng = np.random.default_rng(21)
    shapes = {"J": (3, 3, elements), "D": (3, 20, 20), "u": (elements, 20)}
    return {name: torch.from_numpy(rng.uniform(-1, 1, shape)).cuda(number) for name, shape in shapes.items()}


def ways(kernel: fe.Kernel, tensors: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """The ways to call with tensors of torch, and a derivative in the first of them."""
    given = list(tensors.values())
    learnt = [one.clone().requires_grad_() for one in given]
    expression = fe.contract_expression(TEXT, *(one.shape for one in given), device=kernel.device)

    def derivative() -> Any:
        with torch.no_grad():
            learnt[-1].copy_(given[-1])
        result = fe.torch.einsum(TEXT, *learnt)
        return torch.autograd.grad(result, learnt[0], torch.ones_like(result))[0]

    return {
        "kernel": partial(kernel, tensors),
        "contract": partial(fe.contract, TEXT, *given, device=kernel.device),
        "expression": partial(expression, *given),
        "feinsum.torch.einsum": partial(fe.torch.einsum, TEXT, *given),
        "derivative": derivative,
    }


@pytest.mark.parametrize("name", [*WAYS, "derivative"])
def test_a_call_waits_for_nothing_but_its_stream(name: str, kernel: fe.Kernel) -> None:
    """On a stream that sleeps and then doubles an operand, a call returns at once, holds up no other stream, and reads
    what comes before it."""
    tensors = operands(100_000)
    way, scaled, others = ways(kernel, tensors)[name], tensors["u"], operands(100_000)
    own, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(own):
        expected = 2 * way()
    with torch.cuda.stream(other):
        kernel(others)  # so that no memory is asked of the driver while the other stream sleeps
    torch.cuda.synchronize()
    with torch.cuda.stream(own):
        torch.cuda._sleep(400_000_000)  # cycles: a fifth of a second
        scaled.mul_(2)
        found = way()
    assert not own.query()
    with torch.cuda.stream(other):
        kernel(others)
    other.synchronize()
    assert not own.query()
    own.synchronize()
    torch.testing.assert_close(found, expected)


def test_a_launch_is_captured(kernel: fe.Kernel) -> None:
    """A CUDA graph replays it with another content of an operand."""
    tensors = operands(1000)
    expected = 3 * kernel(tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = kernel(tensors)
    tensors["u"].mul_(3)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(result, expected)


def test_a_call_takes_no_memory_but_its_result(kernel: fe.Kernel) -> None:
    """Operands are not copied."""
    tensors = operands(100_000)
    kernel(tensors)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = kernel(tensors)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before - result.nbytes < 0.1 * tensors["u"].nbytes
    assert "copied" not in kernel.explain()


@pytest.mark.parametrize("name", [*WAYS, "derivative"])
def test_calls_keep_no_memory(name: str, kernel: fe.Kernel) -> None:
    """Of the device none, of the host what allocators keep."""
    psutil = pytest.importorskip("psutil")
    way = ways(kernel, operands(64))[name]

    def held(times: int) -> tuple[int, int]:
        for _ in range(times):
            way()
        torch.cuda.synchronize()
        gc.collect()
        return psutil.Process().memory_info().rss, torch.cuda.memory_allocated()

    (host, device), (host_after, device_after) = held(500), held(5000)
    assert device_after <= device
    assert host_after - host <= KEPT_BYTES_PER_CALL * 5000


@pytest.mark.parametrize("text", ["ij,jk->ik", "ii,ij->j", "i,j,k->ki", "ij->", "ijk,kl,jm->mil"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives_are_those_of_differences(text: str, dtype: str) -> None:
    """As on the host, where random einsums are tried as well."""
    terms = text.partition("->")[0].split(",")
    given = [torch.randn((3,) * len(t), dtype=getattr(torch, dtype), device="cuda", requires_grad=True) for t in terms]
    assert torch.autograd.gradcheck(partial(fe.torch.einsum, text), given)


two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")


@two_devices
def test_results_are_where_operands_are(kernel: fe.Kernel) -> None:
    """Calls alternate between two equal devices, derivatives among them; the current device stays."""
    for turn in range(6):
        number = turn % 2
        tensors = {name: value * (turn + 1) for name, value in operands(1000, number).items()}
        learnt = [one.clone().requires_grad_() for one in tensors.values()]
        expected = torch.einsum(TEXT, *tensors.values())
        for one in (kernel(tensors), fe.contract(TEXT, *tensors.values()), fe.torch.einsum(TEXT, *learnt)):
            assert one.device.index == number
            torch.testing.assert_close(one.detach(), expected)
        ours, theirs = (torch.autograd.grad(f(TEXT, *learnt).sum(), learnt) for f in (fe.torch.einsum, torch.einsum))
        assert {one.device.index for one in ours} == {number}
        torch.testing.assert_close(ours, theirs)
        assert torch.cuda.current_device() == 0


@two_devices
def test_arrays_in_two_places_are_refused(kernel: fe.Kernel) -> None:
    mixed = {name: value.cuda(k % 2) for k, (name, value) in enumerate(operands(10).items())}
    with pytest.raises(fe.ValidationError, match=r"two places .*; bring all to one"):
        kernel(mixed)
