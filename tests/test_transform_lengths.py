"""Lengths of every integer type: transformed kernels compute what they did, and write nothing past their arrays."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest
from fuzzing import cases
from hypothesis import given, note
from hypothesis import strategies as st
from kernels import make_kernel
from numpy.testing import assert_allclose
from test_fuzz import some_point

import feinsum as fe
from feinsum.devices import Device
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome

# loopy raises the limit for deep kernels and leaves it there; hypothesis, which raises it too, wonders.
pytestmark = pytest.mark.filterwarnings("ignore:The recursion limit will not be reset")

TYPES = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")]
GUARD = 2048
"""Rows behind those of a kernel: more than any work-group has."""
D = np.random.default_rng(0).normal(size=(4, 4))


def typed(t_unit: lp.TranslationUnit, dtype: str) -> lp.TranslationUnit:
    """The kernel with `n` of a type."""
    kernel = t_unit.default_entrypoint
    arguments = [a.copy(dtype=np.dtype(dtype)) if a.name == "n" else a for a in kernel.args]
    return lp.remove_unused_arguments(t_unit.with_kernel(kernel.copy(args=arguments)))


def call(t_unit: lp.TranslationUnit, device: Device, **arguments: Any) -> Any:
    """What loopy's own host code makes of a kernel."""
    with lp.CacheMode(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyopencl warns of any text in the log of a successful build
        return lp.set_options(t_unit, return_dict=True).executor(device.context)(device.queue, **arguments)


def check_rows(t_unit: lp.TranslationUnit, n: int, dtype: str, device: Device) -> None:
    """Run a kernel of ``y[e] = D u[e]`` on the first n rows of arrays that have more."""
    import pyopencl.array as cla

    u, y = np.random.default_rng(n).normal(size=(n + GUARD, 4)), np.full((n + GUARD, 4), -7.0)
    on_device = {name: cla.to_device(device.queue, x) for name, x in (("D", D), ("u", u), ("y", y))}
    call(t_unit, device, **{name: x if name == "D" else x[:n] for name, x in on_device.items()}, n=np.dtype(dtype).type(n))
    found = on_device["y"].get()
    assert_allclose(found[:n], u[:n] @ D.T, rtol=1e-12, atol=1e-12)
    assert (found[n:] == -7).all(), f"rows past the end were written, the first {np.argmax(found[n:] != -7)} behind it"


def einsum(dtype: str) -> lp.TranslationUnit:
    return typed(make_kernel("y[e, i] = sum(j, D_(i, j)*u_(e, j))"), dtype)


def looped(dtype: str) -> lp.TranslationUnit:
    """A kernel of one row in a loop over n that :func:`feinsum.add_loop` adds."""
    arrays: dict[str, tuple[Any, ...]] = {"u": (4,), "y": (4,)}
    one = make_kernel("y[i] = sum(j, D[i, j]*u[j])", "{[i, j]: 0 <= i, j < 4}", rules="", arrays=arrays)
    kernel = one.default_entrypoint
    kept = [a for a in kernel.args if a.name in ("D", "u", "y")]
    one = one.with_kernel(kernel.copy(args=[*kept, lp.ValueArg("n", np.dtype(dtype))]))
    return fe.add_loop(one, "e", "n", ["u", "y"])


MOVES: dict[str, Callable[[str, Device, str], lp.TranslationUnit]] = {
    "transform": lambda dtype, device, store: fe.transform(einsum(dtype), device, database=store),
    "add_loop": lambda dtype, device, store: looped(dtype),
    "add_loop, transform": lambda dtype, device, store: fe.transform(
        fe.extract_operands(looped(dtype)), device, database=store
    ),
    "spread_loops on a CPU": lambda dtype, device, store: fe.spread_loops(einsum(dtype), "cpu"),
    "spread_loops on a GPU": lambda dtype, device, store: fe.spread_loops(einsum(dtype), "gpu"),
}


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "records.sqlite")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("move", MOVES)
def test_lengths_of_any_type_keep_moves_within_their_arrays(
    move: str, dtype: str, cpu: Device, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """``n - 1 - 64*g >= 0`` is always true of unsigned numbers, and ``n + 63`` overflows in narrow ones."""
    transformed = MOVES[move](dtype, cpu, store)
    assert not caplog.records
    for n in (1, min(np.iinfo(dtype).max, 1001)):
        check_rows(transformed, int(n), dtype, cpu)


@cases(4)
@given(dtype=st.sampled_from(TYPES), length=st.integers(1, 2**16), seed=st.integers(0, 2**32 - 1))
def test_lengths_of_any_type_keep_any_configuration_within_its_arrays(
    dtype: str, length: int, seed: int, cpu: Device, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever space splits the loop, at lengths up to the largest that the type has."""
    n = min(length, int(np.iinfo(dtype).max))
    t_unit = einsum(dtype)
    match = fe.match_einsum(t_unit)
    (long,) = match.axes
    task = make_task(match.einsum, {long: n}, cpu)
    space, configuration = some_point(task, seed)
    note(f"{space.name} {configuration}")
    with fe.Database(str(tmp_path_factory.mktemp("lengths") / "records.sqlite")) as store:
        store.add(task.record(task.trial(space, configuration), Outcome("ok", samples_s=(1e-9,))))
        check_rows(fe.transform(t_unit, cpu, database=store, sizes={"n": n}), n, dtype, cpu)


def test_lengths_as_values_keep_their_type(cpu: Device, store: str) -> None:
    """Only bounds and indices are signed: ``n*n`` wraps around as the caller's type does."""
    text = "z[e, i] = n*n\ny[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=sums}"
    t_unit = typed(make_kernel(text, dtypes={"z": "uint64"}), "uint32")
    signed = fe.transform(t_unit, cpu, insn_match="id:sums", database=store, sizes={"n": 10_000})
    assert signed.default_entrypoint.arg_dict["n"].dtype.numpy_dtype == np.int32
    n, u = 70_000, np.ones((70_000, 4))
    _, found = call(signed, cpu, D=D, u=u, n=n)
    assert (found["z"] == n * n % 2**32).all()


def test_lengths_that_do_not_fit_are_refused(cpu: Device, store: str) -> None:
    """An unsigned length of 32 bits is signed in the kernel, which never takes 2**31 for a negative number."""
    import pyopencl.array as cla

    arrays = {name: cla.zeros(cpu.queue, (4, 4), "float64") for name in ("D", "u", "y")}
    unchecked = lp.set_options(MOVES["transform"]("uint32", cpu, store), skip_arg_checks=True)
    with pytest.raises((struct.error, OverflowError, RuntimeError)):
        call(unchecked, cpu, **arrays, n=np.uint32(2**31))
