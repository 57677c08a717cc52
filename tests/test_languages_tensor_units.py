"""Products of the tensor language on matrix units, which a CPU simulates, against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from profiles import GPU
from simulated_units import UNOPTIMISED, simulate
from tensor_programs import arguments_for
from tensor_updates import compare

import feinsum as fe
from feinsum.compile import text_kernel
from feinsum.devices.opencl import build_program
from feinsum.languages.calling.protocols import ProgramCall
from feinsum.languages.tensor.emitting import Emitted, emit
from feinsum.languages.tensor.lowering import lower_function
from feinsum.languages.tensor.lowering.target import Target, choose_target
from feinsum.languages.tensor.running.kernel_route import GeneralKernel

NAMES = (*GPU.matrix_units, "f16-mma-m16n8k16", "bf16-mma-m16n8k16")
UNITS = Target(32, (64, 1), units=NAMES)
DEVICE = replace(GPU, instructions=(*GPU.instructions, *NAMES[-2:]))


@pytest.fixture
def simulating(simulator: fe.Device, monkeypatch: pytest.MonkeyPatch) -> fe.Device:
    """A CPU whose kernels are built with units that it simulates."""
    monkeypatch.setattr(
        text_kernel, "build_program", lambda context, source, options: build_program(context, simulate(source), UNOPTIMISED)
    )
    return simulator


def random_arguments(text: str, size: int = 3) -> Callable[[], dict[str, Any]]:
    return lambda: arguments_for(fe.program(text).function(), np.random.default_rng(3), size)


def product(types: tuple[str, str, str], sizes: tuple[int, int, int], turned: str = "n.n", beta: str = "1.0") -> str:
    """C := 0.5 op(A) op(B) + beta C."""
    (a, b, c), (m, n, k) = types, sizes
    left = f"{m}x{k}" if turned[0] == "n" else f"{k}x{m}"
    right = f"{k}x{n}" if turned[2] == "n" else f"{n}x{k}"
    return f"""func @product(%A: memref<{a}x{left}>, %B: memref<{b}x{right}>, %C: memref<{c}x{m}x{n}>) {{
        %alpha = constant 0.5 : {a}  %beta = constant {beta} : {c}
        gemm.{turned} %alpha, %A, %B, %beta, %C
    }}"""


def units_of(text: str, target: Target = UNITS) -> tuple[str, ...]:
    """The units that the kernel of a function uses."""
    return emitted(text, target).units


def emitted(text: str, target: Target) -> Emitted:
    return emit(lower_function(fe.program(text).function(), target), target)


@pytest.mark.parametrize(
    ("types", "sizes", "turned", "unit"),
    [
        (("f64", "f64", "f64"), (32, 9, 39), "n.n", "fp64-mma-m16n8k16"),
        (("f64", "f64", "f64"), (19, 13, 6), "t.n", "fp64-mma-m16n8k8"),
        (("f32", "f64", "f64"), (33, 8, 4), "n.t", "fp64-mma-m16n8k4"),
        (("f32", "f32", "f64"), (17, 12, 11), "t.t", "fp64-mma-m16n8k8"),
        (("f32", "f32", "f32"), (20, 11, 45), "n.n", "tf32-mma-m16n8k8"),
        (("f16", "f16", "f32"), (32, 8, 16), "n.n", "f16-mma-m16n8k16"),
        (("f16", "f16", "f16"), (20, 8, 35), "n.t", "f16-mma-m16n8k16"),
        (("bf16", "bf16", "f32"), (21, 9, 20), "t.n", "bf16-mma-m16n8k16"),
    ],
)
def test_products_by_matrix_units(
    simulating: fe.Device, types: tuple[str, str, str], sizes: tuple[int, int, int], turned: str, unit: str
) -> None:
    """Every type, sizes that fill no fragment, transposed or not."""
    text = product(types, sizes, turned)
    kernel = compare(simulating, text, random_arguments(text), UNITS)
    assert f"products on matrix units: {unit}" in kernel.explain()


@pytest.mark.parametrize("sizes", [(19, 9, 37), (3, 2, 1), (16, 8, 0)])
def test_sizes_that_nobody_knows(simulating: fe.Device, sizes: tuple[int, int, int]) -> None:
    """Tiles that end inside a fragment or a step are filled with zeros, whatever lies beyond."""
    text = """func @product(%A: memref<f64x?x?>, %B: memref<f64x?x?>, %C: memref<f64x?x?>) attributes{subgroup_size=32} {
        %alpha = constant 0.5 : f64  %beta = constant 1.0 : f64
        gemm.n.n %alpha, %A, %B, %beta, %C
    }"""
    m, n, k = sizes
    rng = np.random.default_rng(0)
    numbers = {name: rng.standard_normal(shape[::-1]).T for name, shape in {"A": (m, k), "B": (k, n), "C": (m, n)}.items()}

    def arguments() -> dict[str, Any]:
        # what must not be read is not a number
        return {name: _surrounded(value) for name, value in numbers.items()}

    kernel = compare(simulating, text, arguments, UNITS)
    assert kernel.emitted.units == ("fp64-mma-m16n8k16",)


def _surrounded(array: np.ndarray) -> np.ndarray:
    whole = np.full((array.size + 512,), np.nan)
    part = whole[256 : 256 + array.size].reshape(array.shape, order="F")
    part[...] = array
    return part


BY_HAND = """func @by_hand(%A: memref<f64x28x?>, %B: memref<f64x?x9>, %C: memref<f32x28x9>) attributes{subgroup_size=32} {
    %0 = constant 0 : index  %step = constant 6 : index  %end = size %A[1] : index  %two = constant 2.0 : f64
    parallel {
        %zero = constant 0.0 : coopmatrix<f64x28x9,matrix_acc>
        %sum = for %k = %0, %end, %step init(%before = %zero) -> (coopmatrix<f64x28x9,matrix_acc>) {
            %a = cooperative_matrix_load.n.cols_checked %A[%0, %k] : coopmatrix<f64x28x6,matrix_a>
            %b = cooperative_matrix_load.n.rows_checked %B[%k, %0] : coopmatrix<f64x6x9,matrix_b>
            %c = cooperative_matrix_mul_add %a, %b, %before : coopmatrix<f64x28x9,matrix_acc>
            yield (%c)
        }
        %group = builtin.subgroup_id : i32  %first = constant 0 : i32
        %is_first = cmp.eq %group, %first : bool
        %large = if %is_first -> (coopmatrix<f64x28x9,matrix_acc>) {
            %scaled = cooperative_matrix_scale %two, %sum : coopmatrix<f64x28x9,matrix_acc>
            yield (%scaled)
        } else {
            %twice = arith.add %sum, %sum : coopmatrix<f64x28x9,matrix_acc>
            yield (%twice)
        }
        %narrow = cast %large : coopmatrix<f32x28x9,matrix_acc>
        if %is_first {
            cooperative_matrix_store.atomic_add %narrow, %C[%0, %0]
        }
    }
}"""


def test_matrices_that_a_program_has_itself(simulating: fe.Device) -> None:
    """Loops that carry them, branches, casts, scaling, arithmetic, and checked and atomic access."""
    kernel = compare(simulating, BY_HAND, random_arguments(BY_HAND, 17), UNITS)
    assert kernel.emitted.units == ("fp64-mma-m16n8k8",)


F64 = product(("f64", "f64", "f64"), (32, 16, 32))
INTEGERS = """func @product(%A: memref<i32x32x64>, %B: memref<i32x64x16>, %C: memref<i32x32x16>) {
    %alpha = constant 2 : i32  %beta = constant 1 : i32
    gemm.n.n %alpha, %A, %B, %beta, %C
}"""
OF_SUMS = BY_HAND.replace("mul_add %a,", "mul_add %e,").replace(
    "%c = coop", "%e = arith.add %a, %a : coopmatrix<f64x28x6,matrix_a>  %c = coop"
)
DIVERGING = (
    BY_HAND.replace("subgroup_id", "subgroup_local_id")
    .replace("matrix_scale %two, %sum", "matrix_mul_add %x, %y, %sum")
    .replace(
        "%zero = constant",
        "%x = cooperative_matrix_load.n %A[%0, %0] : coopmatrix<f64x28x8,matrix_a>"
        "  %y = cooperative_matrix_load.n %B[%0, %0] : coopmatrix<f64x8x9,matrix_b>  %zero = constant",
    )
)


@pytest.mark.parametrize(
    ("why", "text", "target"),
    [
        ("no unit takes integers", INTEGERS, UNITS),
        ("sums are too short to be split", product(("f32", "f32", "f32"), (32, 16, 16)), UNITS),
        ("one column of eight", product(("f64", "f64", "f64"), (32, 1, 32)), UNITS),
        ("the device has none", F64, replace(UNITS, units=())),
        ("sub-groups are smaller", F64, Target(16, (32, 1), units=NAMES)),
        ("a factor is made of arithmetic", OF_SUMS, UNITS),
        ("not all of a sub-group multiply", DIVERGING, UNITS),
    ],
)
def test_what_units_do_not_compute(why: str, text: str, target: Target) -> None:
    """Work-items multiply by themselves then."""
    assert units_of(text, target) == (), why


def test_a_device_with_units_is_given_them() -> None:
    """The kernel for an NVIDIA device has the statements of its units, and sub-groups that have all a tile."""
    text = product(("f64", "f64", "f64"), (56, 9, 56))
    target = choose_target(fe.program(text).function(), DEVICE)
    made = emitted(text, target)
    assert (target.subgroup_size, target.subgroups) == (32, 2)
    assert "fp64-mma-m16n8k16" in made.units
    assert "mma.sync.aligned.m16n8k16.row.col.f64" in made.source
    text = product(("f16", "f16", "f32"), (64, 64, 64))
    target = choose_target(fe.program(text).function(), DEVICE)
    assert (target.subgroup_size, target.subgroups) == (32, 4)
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in emitted(text, target).source


@pytest.mark.parametrize(
    ("types", "sizes", "wanted"),
    [
        ("f64", (56, 9, 9), (32, 2)),
        ("f64", (56, 40, 56), (32, 3)),
        ("f64", (128, 128, 8), (32, 8)),
        ("f64", (16, 16, 16), (32, 2)),
        ("f32", (16, 16, 16), (16, 4)),
        ("f64", (8, 8, 8), (8, 4)),
    ],
)
def test_sub_groups_of_an_instance(types: str, sizes: tuple[int, int, int], wanted: tuple[int, int]) -> None:
    """One takes four tiles of its rows by eight columns; those of few rows are smaller where no unit multiplies them."""
    target = choose_target(fe.program(product((types, types, types), sizes)).function(), DEVICE)
    assert (target.subgroup_size, target.subgroups) == wanted


def test_results_are_rounded_once(simulating: fe.Device) -> None:
    """A product of whole numbers in half precision is exact, as sums are of single precision."""
    text = product(("f16", "f16", "f16"), (32, 8, 64), beta="0.0")
    rng = np.random.default_rng(1)
    a, b = (np.asarray(rng.integers(-4, 5, shape).astype(np.float16), order="F") for shape in ((32, 64), (64, 8)))
    c = np.full((32, 8), np.nan, np.float16, order="F")
    program = fe.program(text)
    GeneralKernel(program.function(), program.source, simulating, target=UNITS).call(
        ProgramCall({"A": a, "B": b, "C": c}, 1)
    )
    np.testing.assert_array_equal(c, (0.5 * (a.astype(float) @ b.astype(float))).astype(np.float16))
