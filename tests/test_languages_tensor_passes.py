"""The passes of the tensor language: text before and after, and every stage interpreted."""

from __future__ import annotations

import numpy as np
import pytest
from tensor_programs import arguments_for, in_function

import feinsum as fe
from feinsum.languages.tensor.lowering import PIPELINE, stages
from feinsum.languages.tensor.lowering.linear_algebra import lower_linear_algebra
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.passes import PASSES
from feinsum.languages.tensor.printing import show_function

XY = "%x: memref<f32x8>, %y: memref<f32x8>, %n: index"
ONES = "%1 = constant 1.0 : f32\n%0 = constant 0.0 : f32\n"

CASES = {
    "sizes and arithmetic": (
        ("constants",),
        "%A: memref<f32x4x?>, %out: memref<index>",
        "%n = size %A[0] : index\n%m = arith.mul %n, %n : index\n%k = size %A[1] : index\n"
        "%one = constant 1 : index\n%l = arith.mul %k, %one : index\n%s = arith.add %m, %l : index\nstore %s, %out[]",
        "%n = constant 4 : index\n%m = constant 16 : index\n%k = size %A[1] : index\n"
        "%one = constant 1 : index\n%s = arith.add %m, %k : index\nstore %s, %out[]",
    ),
    "branches and loops that are decided": (
        ("constants",),
        "%a: i32, %out: memref<i32>",
        "%t = constant true : bool\n"
        "%r = if %t -> (i32) {\n%b = arith.add %a, %a : i32\nyield (%b)\n} else {\nyield (%a)\n}\n"
        "%hi = constant 3 : i32\n%s = for %i: i32 = %hi, %hi init(%c = %r) -> (i32) {\nyield (%a)\n}\nstore %s, %out[]",
        "%t = constant true : bool\n%b = arith.add %a, %a : i32\n%hi = constant 3 : i32\nstore %b, %out[]",
    ),
    "numbers are rounded, and those that no text can say are left": (
        ("constants",),
        "%o: memref<f32>, %p: memref<f32>, %q: memref<i8>",
        "%a = constant 1e30 : f32\n%b = arith.mul %a, %a : f32\nstore %b, %o[]\n%c = constant 0.1 : f32\n"
        "%d = arith.add %c, %c : f32\nstore %d, %p[]\n%e = constant 100 : i8\n%f = arith.add %e, %e : i8\nstore %f, %q[]",
        "%a = constant 1e30 : f32\n%b = arith.mul %a, %a : f32\nstore %b, %o[]\n%c = constant 0.1 : f32\n"
        "%d = constant 0.20000000298023224 : f32\nstore %d, %p[]\n%e = constant 100 : i8\n"
        "%f = constant -56 : i8\nstore %f, %q[]",
    ),
    "what nobody uses": (
        ("dead-code",),
        XY,
        ONES + "%v = load %x[%n] : f32\n%w = arith.neg %v : f32\n%T = alloca : memref<f32x8,local>\n"
        "%U = subview %T[0:4] : memref<f32x4,local>\nlifetime_stop %T\nfor %i = %n, %n {\n%u = load %x[%i] : f32\n}\n"
        "axpby.n %1, %x, %0, %y",
        ONES + "axpby.n %1, %x, %0, %y",
    ),
    "lifetimes end behind the last use of a part": (
        ("lifetimes",),
        XY,
        ONES + "%T = alloca : memref<f32x8,local>\naxpby.n %1, %x, %0, %T\n%U = subview %T[0:8] : memref<f32x8,local>\n"
        "axpby.n %1, %U, %0, %y\naxpby.n %1, %x, %0, %y",
        ONES + "%T = alloca : memref<f32x8,local>\naxpby.n %1, %x, %0, %T\n%U = subview %T[0:8] : memref<f32x8,local>\n"
        "axpby.n %1, %U, %0, %y\nlifetime_stop %T\naxpby.n %1, %x, %0, %y",
    ),
    "memory is used again": (
        ("storage",),
        XY,
        "%A = alloca : memref<f32x8,local>\n%B = alloca : memref<f32x40,local>\n%C = alloca : memref<f64x8,local>\n"
        "lifetime_stop %A\n%D = alloca : memref<f32x32,local>\n%E = alloca : memref<f32x8,local>",
        '%A = alloca {"offset"=0} : memref<f32x8,local>\n%B = alloca {"offset"=32} : memref<f32x40,local>\n'
        '%C = alloca {"offset"=0} : memref<f64x8,local>\nlifetime_stop %A\n'
        '%D = alloca {"offset"=0} : memref<f32x32,local>\n%E = alloca {"offset"=96} : memref<f32x8,local>',
    ),
    "what was written is read, what was read is written": (
        ("storage", "barriers"),
        XY + ", %z: memref<f32x8>",
        ONES + "%T = alloca : memref<f32x8,local>\naxpby.n %1, %x, %0, %T\naxpby.n %1, %T, %0, %y\naxpby.n %1, %x, %0, %z\n"
        "axpby.n %1, %z, %0, %x",
        ONES
        + '%T = alloca {"offset"=0} : memref<f32x8,local>\naxpby.n %1, %x, %0, %T\nbarrier.local\naxpby.n %1, %T, %0, %y\n'
        "axpby.n %1, %x, %0, %z\nbarrier.global\naxpby.n %1, %z, %0, %x",
    ),
    "memory of an alloca that has ended": (
        ("lifetimes", "storage", "barriers"),
        XY,
        ONES + "%T = alloca : memref<f32x8,local>\naxpby.n %1, %T, %0, %x\n%U = alloca : memref<f32x8,local>\n"
        "axpby.n %1, %y, %0, %U",
        ONES + '%T = alloca {"offset"=0} : memref<f32x8,local>\naxpby.n %1, %T, %0, %x\nlifetime_stop %T\n'
        '%U = alloca {"offset"=0} : memref<f32x8,local>\nbarrier.local\naxpby.n %1, %y, %0, %U\nlifetime_stop %U',
    ),
    "round a loop": (
        ("barriers",),
        XY,
        ONES + "for %i = %n, %n {\naxpby.n %1, %x, %0, %y\n}\naxpby.n %1, %y, %0, %x",
        ONES + "for %i = %n, %n {\nbarrier.global\naxpby.n %1, %x, %0, %y\n}\nbarrier.global\naxpby.n %1, %y, %0, %x",
    ),
    "a barrier of the program is enough": (
        ("barriers",),
        XY,
        ONES + "axpby.n %1, %x, %0, %y\nbarrier.global\nparallel {\n%v = load %y[%n] : f32\nstore %v, %x[%n]\n}",
        ONES + "axpby.n %1, %x, %0, %y\nbarrier.global\nparallel {\n%v = load %y[%n] : f32\nstore %v, %x[%n]\n}",
    ),
}
"""What passes make of the body of a function."""


@pytest.mark.parametrize("name", CASES)
def test_what_a_pass_makes_of_a_text(name: str) -> None:
    """The canonical text behind it is the one that is written here."""
    passes, parameters, before, after = CASES[name]
    function = fe.program(in_function(parameters, before)).function()
    for one in passes:
        function = PASSES[one](function)
    assert show_function(function) == str(fe.program(in_function(parameters, after)))


LOWERED = """
func @lowered(%al: f32, %be: f32, %A: memref<f32x7x13>, %B: memref<f32x13x?>, %C: memref<f32x7x?>, %x: memref<f32x13>,
              %y: memref<f32x7>, %s: memref<f32>, %h: memref<f16x7x13>) {
    %1 = constant 1.0 : f32
    %0 = constant 0.0 : f32
    %oneh = constant 1.0 : f16
    %T = alloca : memref<f32x7x13,local>
    axpby.n %1, %A, %0, %T
    gemm.n.n %al, %T, %B, %be, %C
    gemv.n %1, %T, %x, %be, %y
    lifetime_stop %T
    ger %1, %y, %x, %be, %A
    hadamard_product %1, %A, %A, %be, %A
    cumsum %al, %A, 1, %be, %A
    sum.n %1, %y, %be, %s
    sum.t %1, %A, %1, %x
    axpby.n %oneh, %h, %oneh, %h
}
"""


@pytest.mark.parametrize("target", [Target(1, (1, 1), 16, 16), Target(4, (8, 1))], ids=["one", "eight"])
def test_every_stage_does_the_same(target: Target) -> None:
    """Each is a program that is read again, and interpreted."""
    program = fe.program(LOWERED)
    function = program.function()
    expected = arguments_for(function, np.random.default_rng(3), 5)
    program.interpret(**expected)
    found = []
    for name, stage in stages(function, target):
        found.append(name)
        arguments = arguments_for(function, np.random.default_rng(3), 5)
        again = fe.program(show_function(stage))
        again.interpret(subgroup_size=target.subgroup_size, work_group_size=target.work_group_size, **arguments)
        for parameter, value in expected.items():
            np.testing.assert_allclose(arguments[parameter], value, rtol=2e-5, atol=2e-4, err_msg=f"{name}: {parameter}")
    assert found == list(PIPELINE)
    names = {operation.name for operation in stage.body.walk()}
    assert not names & {"axpby", "cumsum", "gemm", "gemv", "ger", "hadamard_product", "sum"}


@pytest.mark.parametrize(
    ("target", "columns", "copied"),
    [(Target(1, (1, 1), 32, 16), 9, True), (Target(1, (1, 1), 32, 16), 8, False), (Target(4, (8, 1)), 9, False)],
    ids=["one", "few columns", "eight"],
)
def test_a_transposed_factor_is_copied_where_it_is_read_often(target: Target, columns: int, copied: bool) -> None:
    """By one work-item with vectors, whose rows would be gathered for each tile of columns."""
    parameters = f"%1: f32, %A: memref<f32x13x20>, %B: memref<f32x13x{columns}>, %C: memref<f32x20x{columns}>"
    function = fe.program(in_function(parameters, "gemm.t.n %1, %A, %B, %1, %C")).function()
    lowered = lower_linear_algebra(function, target)
    operations = [operation for operation in lowered.body.operations if operation.name != "constant"]
    names = ["alloca", "foreach", "gemm", "lifetime_stop"] if copied else ["gemm"]
    assert [operation.name for operation in operations] == names
    assert operations[2 if copied else 0].attributes["transposes"] == ("n" if copied else "t", "n")
