"""Compiled functions of the tensor language against the interpreter, on the CPU device.

``make fuzz FUZZ="--of tensor --programs 1000"`` runs a thousand random programs by sub-groups of one and of four.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from array_kinds import made
from fuzzing import cases
from hypothesis import assume, given
from hypothesis import strategies as st
from random_tensor_programs import exact_programs
from tensor_programs import arguments_for
from tensor_updates import SOME, UPDATES, arguments_of, compare, numbers_of, updates

import feinsum as fe
from feinsum.devices.vendors.nvidia import NVIDIA
from feinsum.languages.calling.protocols import ProgramCall
from feinsum.languages.tensor.interpreting.machine import KernelInterpreter
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.running.kernel_route import GeneralKernel
from feinsum.languages.tensor.types import BF16, F16, SCALARS, Coopmatrix, TensorScalar

TARGETS = {
    "one": Target(1, (1, 1), 32, 16),
    "eight": Target(4, (8, 1)),
    "thirty-two": Target(32, (32, 1)),
    "many": Target(32, (128, 2)),
}
_EXACT = {F16: 2**11, BF16: 2**8}


@pytest.mark.parametrize("type_", list(SCALARS))
def test_updates_of_every_type_by_one_work_item(cpu: fe.Device, type_: str) -> None:
    """All linear algebra, transposed or not, for sizes that no vector divides; β is a parameter."""
    text = updates(type_, "packed", "parameter", False, SOME)
    compare(cpu, text, arguments_of(text, beta=3), TARGETS["one"])


@pytest.mark.parametrize(
    ("target", "type_", "layout", "beta", "local"),
    [
        ("one", "f32", "dynamic", "1", False),
        ("one", "f64", "padded", "2", True),
        ("one", "f32", "dynamic", "parameter", False),
        ("one", "f16", "dynamic", "1", False),
        ("eight", "f32", "packed", "1", True),
        ("eight", "c32", "dynamic", "2", False),
        ("eight", "f16", "padded", "parameter", False),
        ("thirty-two", "f64", "packed", "0", True),
        ("thirty-two", "i16", "dynamic", "1", False),
        ("many", "f32", "dynamic", "parameter", False),
    ],
)
def test_updates_by_work_groups(cpu: fe.Device, target: str, type_: str, layout: str, beta: str, local: bool) -> None:
    """Static and unknown sizes, gaps between elements, operands in global and in local memory, every β."""
    text = updates(type_, layout, beta, local, SOME if layout == "dynamic" else tuple(UPDATES))
    compare(cpu, text, arguments_of(text, beta=3), TARGETS[target])


@pytest.mark.parametrize("beta", ["0", "parameter"])
def test_a_result_is_not_read_where_beta_is_zero(cpu: fe.Device, beta: str) -> None:
    """It may hold anything, whether the text or the call says so."""
    text = updates("f32", "packed", beta, local=False)
    arguments = arguments_of(text, beta=0.0, hole=True)
    compare(cpu, text, arguments, TARGETS["one"])


@pytest.mark.parametrize("rows", [4, 5, 7, 8, 9])
def test_vectors_of_rows_overlap_where_they_would_not_be_full(cpu: fe.Device, rows: int) -> None:
    """Every row is right, of a matrix that is updated, of one in other vectors, and where what is stored is added once."""
    parameters = f"%A: memref<f32x{rows}x3>, %B: memref<f32x3x3>, %C: memref<f64x{rows}x3>, %D: memref<f64x{rows}x3>"
    a, b, c = (
        f"coopmatrix<{t}x{n}x3,matrix_{use}>" for t, n, use in (("f32", rows, "a"), ("f32", 3, "b"), ("f64", rows, "acc"))
    )
    text = f"""func @f({parameters}) {{
        %0 = constant 0 : index  %one = constant 1.0 : f64  %two = constant 2.0 : f64  %half = constant 0.5 : f32
        gemm.n.n %half, %A, %B, %two, %C
        gemm.n.n.atomic %half, %A, %B, %one, %D
        parallel {{
            %a = cooperative_matrix_load.n %A[%0, %0] : {a}
            %b = cooperative_matrix_load.t %B[%0, %0] : {b}
            %c = cooperative_matrix_load.n %C[%0, %0] : {c}
            %d = cooperative_matrix_mul_add %a, %b, %c : {c}
            cooperative_matrix_store.atomic_add %d, %D[%0, %0]
        }}
    }}"""
    compare(cpu, text, lambda: arguments_for(fe.program(text).function(), np.random.default_rng(1), 3), TARGETS["one"])


class TooLargeError(Exception):
    """A number that its type may have rounded."""


def check_exact(machine: KernelInterpreter, operation: Any, *results: Any) -> None:
    """What :meth:`KernelInterpreter.give` does, for numbers that are whole and exact."""
    for value, found in zip(operation.results, results, strict=True):
        type_ = value.type.component if isinstance(value.type, Coopmatrix) else value.type
        if isinstance(type_, TensorScalar) and not type_.is_integer:
            parts = np.stack([np.real(found), np.imag(found)])
            if not (np.abs(parts) <= _EXACT.get(type_, 2**24)).all():
                raise TooLargeError
    machine.values.update(zip(operation.results, results, strict=True))


def whole_arguments(function: Any, seed: int) -> dict[str, Any]:
    """Arguments of small whole numbers."""
    found = arguments_for(function, np.random.default_rng(seed), 3)
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            found[name] = np.round(value).item() if isinstance(value, (float, complex, np.inexact)) else value
        elif value.dtype == np.uint16:
            bits = np.round(numbers_of(value)).astype(np.float32).view(np.uint32) >> 16
            found[name] = np.asarray(bits.astype(np.uint16))
        elif value.dtype.kind in "fc":
            found[name] = np.asarray(np.round(value))
    return found


@pytest.mark.parametrize("target", ["one", "eight"])
@cases(12)
@given(text=exact_programs(), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_random_programs_give_what_the_interpreter_gives(
    cpu: fe.Device, target: str, text: str, seed: int, data: st.DataObject
) -> None:
    """Every bit of it, for numbers that need no rounding."""
    program, chosen = fe.program(text), TARGETS[target]
    function = program.function()
    wanted = whole_arguments(function, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KernelInterpreter, "give", check_exact)
        try:
            program.interpret(subgroup_size=chosen.subgroup_size, work_group_size=chosen.work_group_size, count=1, **wanted)
        except TooLargeError:
            assume(False)
    for value in wanted.values():
        found = numbers_of(value)
        assume(found.dtype.kind not in "fc" or bool((np.abs([found.real, found.imag]) <= 2**8).all()))
    given_ones = {n: made(data.draw, ["numpy"], value, None) for n, value in whole_arguments(function, seed).items()}
    kernel = GeneralKernel(function, program.source, cpu, target=chosen)
    kernel.call(ProgramCall(given_ones, 1))
    for name, value in wanted.items():
        np.testing.assert_array_equal(numbers_of(given_ones[name]), numbers_of(value), name)


def test_loops_end_where_another_step_leaves_64_bits(cpu: fe.Device) -> None:
    """For all work-items, and for those of which some have ended before."""
    text = """func @f(%from: i64, %to: i64, %step: i64, %n: memref<i64x4>) {
        %0 = constant 0 : i64  %1 = constant 1 : i64
        %all = for %i: i64 = %from, %to, %step init(%k = %0) -> (i64) { %m = arith.add %k, %1 : i64  yield (%m) }
        parallel {
            %item = builtin.subgroup_local_id : i32  %at = cast %item : index  %later = cast %item : i64
            %begin = arith.add %from, %later : i64
            %own = for %i: i64 = %begin, %to, %step init(%k = %all) -> (i64) {
                %sum = subgroup_add.reduce %1 : i64
                %m = arith.add %k, %sum : i64
                yield (%m)
            }
            store %own, %n[%at]
        }
    }"""
    end = 2**63 - 1
    compare(cpu, text, lambda: {"from": end - 8, "to": end, "step": 5, "n": np.zeros(4, np.int64)}, TARGETS["eight"])


@pytest.mark.parametrize(("type_", "way"), [("f32", "n"), ("f64", "t")])
def test_columns_are_loaded_in_vectors_where_they_are_aligned(cpu: fe.Device, type_: str, way: str) -> None:
    """As on NVIDIA devices, whose other instructions this function has not."""
    shape = "20x12" if way == "n" else "12x20"
    text = f"""func @f(%A: memref<{type_}x36x20>, %B: memref<{type_}x{shape}x3>, %C: memref<{type_}x36x12>) {{
        %one = constant 1.0 : {type_}
        %two = constant 2 : index
        %b = subview %B[0:{shape.partition("x")[0]}, 0:{shape.partition("x")[2]}, %two] : memref<{type_}x{shape}>
        gemm.n.{way} %one, %A, %b, %one, %C
    }}"""
    rng = np.random.default_rng(1)

    def arguments() -> dict[str, Any]:
        extents = tuple(map(int, shape.split("x")))
        made = {"A": (36, 20), "B": (*extents, 3), "C": (36, 12)}
        return {
            k: np.asarray(np.round(4 * rng.random(s)), "float32" if type_ == "f32" else "float64", "F")
            for k, s in made.items()
        }

    given = arguments()
    kernel = compare(
        cpu, text, lambda: {k: v.copy(order="F") for k, v in given.items()}, Target(16, (32, 1), shuffles=NVIDIA.shuffles)
    )
    assert ("const float4 *" in kernel.source) == (way == "n")
