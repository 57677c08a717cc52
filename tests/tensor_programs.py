"""Programs of the tensor language for tests: one for each rule it can break, and arguments for any function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from feinsum.languages.tensor.ir import TensorFunction
from feinsum.languages.tensor.numbers import dtype_of
from feinsum.languages.tensor.types import BF16, Boolean, PointerGroup, TensorMemref, TensorScalar


class Example(NamedTuple):
    """A program that breaks one rule; ⟦ and ⟧ are around what is wrong, and are not part of it."""

    rule: str
    marked: str

    @property
    def text(self) -> str:
        return self.marked.replace("⟦", "").replace("⟧", "")

    @property
    def place(self) -> tuple[int, int, int, int]:
        """The first and the last line and column between the marks."""
        first = self.marked.index("⟦")
        last = self.marked.replace("⟦", "").index("⟧") - 1
        return *_point(self.text, first), *_point(self.text, last)


def _point(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def in_function(parameters: str, body: str) -> str:
    """A function of one parameter a name, and a body."""
    return f"func @f({parameters}) {{\n{body}\n}}\n"


def _e(rule: str, parameters: str, body: str) -> Example:
    return Example(rule, in_function(parameters, body))


_AB = "%a: f32, %A: memref<f32x4x4>, %B: memref<f32x4x8>"
_SPMD = "parallel {{\n{}\n}}"


def _product(a: str, b: str, c: str, d: str) -> str:
    """A product of cooperative matrices of these types."""
    values = {t: "[1.0,0.0]" if t[11] == "c" else "1" if t[11] == "i" else "1.0" for t in (a, b, c)}
    constants = "\n".join(f"%{name} = constant {values[t]} : {t}" for name, t in zip("abc", (a, b, c), strict=True))
    return _SPMD.format(f"{constants}\n%d = ⟦cooperative_matrix_mul_add %a, %b, %c : {d}⟧")


_A, _B, _C = (f"coopmatrix<f32x4x4,matrix_{use}>" for use in ("a", "b", "acc"))

ERRORS = (
    _e("syntax", "%a: f32", "⟦frobnicate⟧ %a"),
    _e("syntax", "%a: f32", "%b = ⟦arith.power⟧ %a, %a : f32"),
    _e("syntax", "%a: f32", "%b = arith.add %a, %a ⟦f32⟧"),
    Example("syntax", "func @f(%A: memref<f32x4⟦)⟧ {\n}\n"),
    Example("syntax", "⟦%a⟧ = constant 1 : i32\nfunc @f() {}"),
    _e("integer-range", "", "%a = constant ⟦9223372036854775808⟧ : i64"),
    _e("integer-range", "", "%a = constant ⟦-9223372036854775808⟧ : i64"),
    _e("integer-range", "", f"%a = constant ⟦{'9' * 5000}⟧ : i64"),
    _e("float-range", "", "%a = constant ⟦1e400⟧ : f64"),
    _e("float-range", "", "%a = constant ⟦0x1p1024⟧ : f64"),
    _e("name-undefined", "%a: f32", "%b = arith.add %a, ⟦%c⟧ : f32"),
    _e("name-undefined", "%c: bool", "if %c {\n%x = constant 1 : i32\n}\n%y = arith.neg ⟦%x⟧ : i32"),
    _e("name-redefined", "%a: f32", "⟦%a⟧ = constant 1.0 : f32"),
    _e("name-redefined", "%a: f32, %c: bool", "if %c {\n⟦%a⟧ = constant 1 : i32\n}"),
    Example("name-redefined", "func @f(%a: f32, ⟦%a⟧: f32) {}"),
    Example("function-redefined", "func @f() {}\nfunc ⟦@f⟧() {}"),
    _e("modifiers", _AB, "⟦gemm.n %a, %A, %A, %a, %A⟧"),
    _e("modifiers", _AB, "⟦axpby.n.local %a, %A, %a, %A⟧"),
    _e("modifiers", "%a: f32, %A: memref<f32>", "⟦store.atomic.atomic_add %a, %A[]⟧"),
    _e("operand-count", _AB, "⟦gemm.n.n %a, %A, %A, %a⟧"),
    _e("operand-count", "%a: f32", "%b = ⟦arith.add %a : f32⟧"),
    _e("operand-count", "%a: index", "⟦for %i = %a⟧ {\n}"),
    _e("result-count", "%a: f32", "⟦arith.neg %a : f32⟧"),
    _e("result-count", "%a: f32", "%b, %c = ⟦arith.neg %a : f32⟧"),
    _e("result-count", _AB, "%b = ⟦axpby.n %a, %A, %a, %A⟧"),
    _e("immediate", _AB, "axpby.n ⟦2.0⟧, %A, %a, %A"),
    Example("type-void", "func @f(%a: ⟦void⟧) {}"),
    Example("memref-size", "func @f(%a: ⟦memref<f32x-1>⟧) {}"),
    Example("memref-size", "func @f(%a: ⟦group<memref<f32>x-1>⟧) {}"),
    Example("stride-count", "func @f(%a: ⟦memref<f32x4x4,strided<1>>⟧) {}"),
    Example("stride-order", "func @f(%a: ⟦memref<f32x4x4,strided<1,3>>⟧) {}"),
    Example("stride-order", "func @f(%a: ⟦memref<f32x4,strided<0>>⟧) {}"),
    Example("stride-order", "func @f(%a: ⟦memref<f32x4x?x4,strided<1,8,4>>⟧) {}"),
    _e("coopmatrix-size", "", "%a = constant 1.0 : ⟦coopmatrix<f32x0x4,matrix_a>⟧"),
    Example("parameter-type", "func @f(⟦%a: coopmatrix<f32x4x4,matrix_a>⟧) {}"),
    Example("parameter-type", "func @f(⟦%a: memref<f32x4,local>⟧) {}"),
    Example("parameter-attribute", "func @f(⟦%a: f32 {alignment=4}⟧) {}"),
    Example("attribute-type", "func @f(⟦%a: memref<f32x4> {alignment=true}⟧) {}"),
    Example("attribute-type", "func @f(⟦%a: memref<f32x4> {shape_gcd=4}⟧) {}"),
    Example("attribute-type", "func ⟦@f⟧() attributes{work_group_size=32} {}"),
    Example("attribute-type", "func ⟦@f⟧() attributes{subgroup_size=[16]} {}"),
    _e("attribute-type", "%a: index", "⟦for %i = %a, %a⟧ {\n} {unroll=1}"),
    Example("attribute-duplicate", "func @f(%a: memref<f32x4> {alignment=4, ⟦alignment=8⟧}) {}"),
    Example("alignment", "func @f(⟦%a: memref<f32x4> {alignment=6}⟧) {}"),
    _e("alignment", "", "%a = ⟦alloca {alignment=256} : memref<f32x4,local>⟧"),
    Example("gcd", "func @f(⟦%a: memref<f32x?> {shape_gcd=[4,4]}⟧) {}"),
    Example("gcd", "func @f(⟦%a: memref<f32x?> {shape_gcd=[0]}⟧) {}"),
    Example("gcd", "func @f(⟦%a: memref<f32x6x?> {shape_gcd=[4]}⟧) {}"),
    Example("gcd", "func @f(⟦%a: memref<f32x6x?> {stride_gcd=[1,4]}⟧) {}"),
    Example("subgroup-size", "func ⟦@f⟧() attributes{subgroup_size=0} {}"),
    Example("work-group-size", "func ⟦@f⟧() attributes{subgroup_size=16, work_group_size=[24,1]} {}"),
    Example("work-group-size", "func ⟦@f⟧() attributes{work_group_size=[16,0]} {}"),
    _e("nesting-depth", "%c: bool", "if %c {\n" * 64 + "⟦if %c⟧ {\n}\n" + "}\n" * 64),
    Example("nesting-depth", f'func @f(%a: memref<f32x4> {{⟦"x"={"[" * 70 + "]" * 70}⟧}}) {{}}'),
    _e("nesting-collective", _AB, _SPMD.format("⟦axpby.n %a, %A, %a, %A⟧")),
    _e("nesting-collective", "%a: index", "foreach (%i) = (%a), (%a) {\n⟦foreach (%j) = (%a), (%a)⟧ {\n}\n}"),
    _e("nesting-collective", "%c: bool", _SPMD.format("if %c {\n%a = ⟦alloca : memref<f32,local>⟧\n}")),
    _e("nesting-spmd", "", "%a = ⟦builtin.subgroup_local_id : i32⟧"),
    _e("nesting-spmd", "%a: f32, %c: bool", "if %c {\n%b = ⟦subgroup_add.reduce %a : f32⟧\n}"),
    _e("yield-place", "%a: f32", "⟦yield (%a)⟧"),
    _e("yield-place", "%a: f32", _SPMD.format("⟦yield (%a)⟧")),
    _e("yield-place", "%c: bool", "if %c {\n⟦yield ()⟧\n%a = constant 1 : i32\n}"),
    _e("yield-missing", "%c: bool, %a: f32", "%x = ⟦if %c -> (f32)⟧ {\n} else {\nyield (%a)\n}"),
    _e("yield-missing", "%i: index, %a: f32", "%x = ⟦for %j = %i, %i init(%b = %a) -> (f32)⟧ {\n}"),
    _e("yield-values", "%c: bool, %a: f32", "%x = if %c -> (f32) {\n⟦yield ()⟧\n} else {\nyield (%a)\n}"),
    _e(
        "yield-values",
        "%c: bool, %a: f32, %b: f64",
        "%x = if %c -> (f64) {\n⟦yield (%a)⟧\n} else {\nyield (%b)\n}",
    ),
    _e("yield-values", "%i: index, %a: f32", "for %j = %i, %i {\n⟦yield (%a)⟧\n}"),
    _e("if-condition", "%c: i32", "⟦if %c⟧ {\n}"),
    _e("if-else", "%c: bool, %a: f32", "%x = ⟦if %c -> (f32)⟧ {\nyield (%a)\n}"),
    _e("loop-type", "%a: f32", "⟦for %i: f32 = %a, %a⟧ {\n}"),
    _e("loop-type", "%a: i32", "⟦for %i = %a, %a⟧ {\n}"),
    _e("loop-type", "%a: index, %b: i32", "⟦for %i = %a, %a, %b⟧ {\n}"),
    _e("loop-type", "%a: i32", "⟦foreach (%i) = (%a), (%a)⟧ {\n}"),
    _e("loop-lists", "%a: index", "⟦foreach (%i, %j) = (%a, %a), (%a)⟧ {\n}"),
    _e("loop-carried", "%a: index, %x: f32", "%y = ⟦for %i = %a, %a init(%z = %x) -> (f64)⟧ {\nyield (%z)\n}"),
    _e("loop-carried", "%a: index, %x: f32", "%y, %w = ⟦for %i = %a, %a init(%z = %x) -> (f32, f32)⟧ {\nyield (%z)\n}"),
    _e(
        "loop-carried",
        "%a: index, %x: memref<f32>",
        "%y = ⟦for %i = %a, %a init(%z = %x) -> (memref<f32>)⟧ {\nyield (%z)\n}",
    ),
    _e("lifetime-alloca", "%A: memref<f32x4>", "⟦lifetime_stop %A⟧"),
    _e("lifetime-alloca", "%c: bool", "%A = alloca : memref<f32x4,local>\nif %c {\n⟦lifetime_stop %A⟧\n}"),
    _e(
        "lifetime-use",
        "%i: index",
        "%A = alloca : memref<f32x4,local>\n%B = subview %A[0:2] : memref<f32x2,local>\n"
        "lifetime_stop %A\n%x = ⟦load %B[%i] : f32⟧",
    ),
    _e("alloca-type", "", "%A = ⟦alloca : memref<f32x?,local>⟧"),
    _e("alloca-type", "", "%A = ⟦alloca : f32⟧"),
    _e("alloca-type", "", "%A = ⟦alloca : memref<f32x4,strided<1>,global>⟧"),
    _e("operand-memref", _AB, "⟦axpby.n %A, %A, %a, %A⟧"),
    _e("operand-memref", _AB, "⟦axpby.n %a, %a, %a, %A⟧"),
    _e("order", _AB + ", %x: memref<f32x4>", "⟦gemm.n.n %a, %A, %x, %a, %A⟧"),
    _e("order", _AB + ", %x: memref<f32x4>", "⟦axpby.n %a, %A, %a, %x⟧"),
    _e("order", _AB + ", %x: memref<f32>", "⟦sum.n %a, %A, %a, %x⟧"),
    _e("order", _AB + ", %x: memref<f32>", "⟦cumsum %a, %x, 0, %a, %x⟧"),
    _e("shape", _AB, "⟦gemm.n.t %a, %A, %B, %a, %A⟧"),
    _e("shape", _AB, "⟦gemm.n.n %a, %A, %A, %a, %B⟧"),
    _e("shape", _AB, "⟦axpby.t %a, %B, %a, %B⟧"),
    _e("shape", _AB, "⟦hadamard_product %a, %A, %B, %a, %B⟧"),
    _e("shape", _AB + ", %x: memref<f32x8>", "⟦gemv.t %a, %B, %x, %a, %x⟧"),
    _e("shape", _AB + ", %x: memref<f32x8>", "⟦ger %a, %x, %x, %a, %A⟧"),
    _e("shape", _AB + ", %x: memref<f32x4>", "⟦sum.t %a, %B, %a, %x⟧"),
    _e("shape", _AB, "⟦cumsum %a, %A, 0, %a, %B⟧"),
    _e("shape", "%a: f32, %x: memref<f32x?>, %y: memref<f32x4>", "⟦axpby.n %a, %x, %a, %y⟧"),
    _e("cumsum-mode", _AB, "⟦cumsum %a, %A, 2, %a, %A⟧"),
    _e("promotion-alpha", "%a: f64, %b: f32, %A: memref<f32x4>", "⟦axpby.n %a, %A, %b, %A⟧"),
    _e(
        "promotion-operands",
        "%a: f32, %x: memref<f16x4>, %y: memref<bf16x4>, %A: memref<f32x4x4>",
        "⟦ger %a, %x, %y, %a, %A⟧",
    ),
    _e("promotion-result", "%a: f32, %x: memref<f64x4>, %y: memref<f32x4>", "⟦axpby.n %a, %x, %a, %y⟧"),
    _e("promotion-beta", "%a: f32, %b: f64, %A: memref<f32x4>", "⟦axpby.n %a, %A, %b, %A⟧"),
    _e("atomic-beta", _AB, "⟦axpby.n.atomic %a, %A, %a, %A⟧"),
    _e("atomic-beta", _AB, "%b = constant 2.0 : f32\n⟦gemm.n.n.atomic %a, %A, %A, %b, %A⟧"),
    _e("arith-type", "%a: f32", "%b = ⟦arith.and %a, %a : f32⟧"),
    _e("arith-type", "%a: c32", "%b = ⟦arith.min %a, %a : c32⟧"),
    _e("arith-type", "%a: bool", "%b = ⟦arith.add %a, %a : bool⟧"),
    _e("arith-type", "%a: f32", "%b = ⟦arith.re %a : f32⟧"),
    _e(
        "arith-type",
        "",
        "%a = constant 1.0 : coopmatrix<f32x4x4,matrix_a>\n%b = ⟦arith.abs %a : coopmatrix<f32x4x4,matrix_a>⟧",
    ),
    _e("arith-operands", "%a: f32, %b: f64", "%c = ⟦arith.add %a, %b : f64⟧"),
    _e("arith-operands", "%a: c32", "%b = ⟦arith.abs %a : c32⟧"),
    _e("cast-type", "%a: bool", "%b = ⟦cast %a : i32⟧"),
    _e("cast-type", "", "%a = constant 1.0 : coopmatrix<f32x4x4,matrix_a>\n%b = ⟦cast %a : coopmatrix<f64x4x4,matrix_b>⟧"),
    _e("cast-complex", "%a: c32", "%b = ⟦cast %a : f32⟧"),
    _e("cmp-type", "%a: f32, %b: f64", "%c = ⟦cmp.eq %a, %b : bool⟧"),
    _e("cmp-type", "%a: c32", "%c = ⟦cmp.lt %a, %a : bool⟧"),
    _e("cmp-type", "%a: bool", "%c = ⟦cmp.eq %a, %a : bool⟧"),
    _e("cmp-result", "%a: f32", "%c = ⟦cmp.eq %a, %a : i32⟧"),
    _e("constant-type", "", "%a = ⟦constant 0 : f32⟧"),
    _e("constant-type", "", "%a = ⟦constant 1.0 : i32⟧"),
    _e("constant-type", "", "%a = ⟦constant 1.0 : c32⟧"),
    _e("constant-type", "", "%a = ⟦constant true : i8⟧"),
    _e("constant-type", "", "%a = ⟦constant 1 : memref<i32>⟧"),
    _e("builtin-type", "", "%a = ⟦builtin.group_id : i32⟧"),
    _e("builtin-type", "", "%a = ⟦builtin.num_subgroups : index⟧"),
    _e("math-type", "%a: i32", "%b = ⟦math.exp %a : i32⟧"),
    _e("math-type", "%a: f32", "%b = ⟦math.native_exp %a : f64⟧"),
    _e("index-type", "%i: i32, %A: memref<f32x4>", "%a = ⟦load %A[%i] : f32⟧"),
    _e("index-type", "%A: memref<f32x4>", "%a = ⟦size %A[0] : i32⟧"),
    _e("index-type", "%i: i32, %A: memref<f32x4>", "%a = ⟦subview %A[%i:2] : memref<f32x2>⟧"),
    _e("index-count", "%i: index, %A: memref<f32x4x4>", "%a = ⟦load %A[%i] : f32⟧"),
    _e("index-count", "%i: index, %A: group<memref<f32x4>x2>", "%a = ⟦load %A[%i, %i] : memref<f32x4>⟧"),
    _e("index-count", "%A: memref<f32x4x4>", "%a = ⟦subview %A[0:2] : memref<f32x2>⟧"),
    _e("load-operand", "%a: f32", "%b = ⟦load %a[] : f32⟧"),
    _e("load-operand", "%a: f32, %A: group<memref<f32>x2>", "⟦store %a, %A[]⟧"),
    _e("load-operand", "%a: f32", "%b = ⟦size %a[0] : index⟧"),
    _e("load-operand", "%A: group<memref<f32x4>x2>", "%b = ⟦subview %A[0:1] : memref<f32x1>⟧"),
    _e("load-type", "%A: memref<f32>", "%a = ⟦load %A[] : f64⟧"),
    _e("load-type", "%i: index, %A: group<memref<f32x4>x2>", "%a = ⟦load %A[%i] : memref<f32x8>⟧"),
    _e("store-type", "%a: f64, %A: memref<f32>", "⟦store %a, %A[]⟧"),
    _e("size-mode", "%A: memref<f32x4>", "%a = ⟦size %A[1] : index⟧"),
    _e("size-mode", "%A: group<memref<f32x4x4>x2>", "%a = ⟦size %A[1] : index⟧"),
    _e("view-element", "%A: memref<f32x4>", "%a = ⟦subview %A[0:2] : memref<f64x2>⟧"),
    _e("view-element", "%A: memref<f32x4>", "%a = ⟦subview %A[0:2] : memref<f32x2,local>⟧"),
    _e("view-mode", "%A: memref<f32x4>", "%a = ⟦expand %A[1 -> 2 x 2] : memref<f32x2x2>⟧"),
    _e("view-mode", "%A: memref<f32x4x4>", "%a = ⟦fuse %A[0, 2] : memref<f32x16>⟧"),
    _e("view-shape", "%A: memref<f32x4x4>", "%a = ⟦subview %A[0:2, 1] : memref<f32x2x1>⟧"),
    _e("view-shape", "%A: memref<f32x4x4>", "%a = ⟦fuse %A[0, 1] : memref<f32x8>⟧"),
    _e("view-shape", "%i: index, %A: memref<f32x4>", "%a = ⟦expand %A[0 -> 2 x %i] : memref<f32x2x2>⟧"),
    _e("view-stride", "%A: memref<f32x4x4>", "%a = ⟦subview %A[0:2, 0:2] : memref<f32x2x2>⟧"),
    _e("view-stride", "%A: memref<f32x8,strided<2>>", "%a = ⟦expand %A[0 -> 2 x 4] : memref<f32x2x4>⟧"),
    _e("expand-product", "%A: memref<f32x8>", "%a = ⟦expand %A[0 -> 2 x 3] : memref<f32x2x3>⟧"),
    _e("expand-product", "%i: index, %A: memref<f32x8>", "%a = ⟦expand %A[0 -> 3 x %i] : memref<f32x3x?>⟧"),
    _e("expand-product", "%A: memref<f32x?>", "%a = ⟦expand %A[0 -> 2 x 3] : memref<f32x2x3>⟧"),
    _e("fuse-stride", "%A: memref<f32x8x16,strided<1,10>>", "%a = ⟦fuse %A[0, 1] : memref<f32x128>⟧"),
    _e("subview-bounds", "%A: memref<f32x8>", "%a = ⟦subview %A[-1:4] : memref<f32x4>⟧"),
    _e(
        "matrix-type",
        "%i: index, %A: memref<f32x4>",
        _SPMD.format("%a = ⟦cooperative_matrix_load.n %A[%i, %i] : coopmatrix<f32x4x4,matrix_a>⟧"),
    ),
    _e("matrix-type", "%i: index, %A: memref<f32x4x4>", _SPMD.format("%a = ⟦cooperative_matrix_load.n %A[%i, %i] : f32⟧")),
    _e("matrix-type", "%i: index, %a: f32, %A: memref<f32x4x4>", _SPMD.format("⟦cooperative_matrix_store %a, %A[%i, %i]⟧")),
    _e(
        "matrix-component",
        "%i: index, %A: memref<f64x4x4>",
        _SPMD.format("%a = ⟦cooperative_matrix_load.n %A[%i, %i] : coopmatrix<f32x4x4,matrix_a>⟧"),
    ),
    _e(
        "matrix-component",
        "%s: f64",
        _SPMD.format(
            "%a = constant 1.0 : coopmatrix<f32x4x4,matrix_a>\n"
            "%b = ⟦cooperative_matrix_scale %s, %a : coopmatrix<f32x4x4,matrix_a>⟧"
        ),
    ),
    _e(
        "matrix-use",
        "",
        _SPMD.format(
            "%a = constant 1.0 : coopmatrix<f32x4x4,matrix_a>\n%c = constant 1.0 : coopmatrix<f32x4x4,matrix_acc>\n"
            "%d = ⟦cooperative_matrix_mul_add %a, %a, %c : coopmatrix<f32x4x4,matrix_acc>⟧"
        ),
    ),
    _e(
        "matrix-shape",
        "",
        _SPMD.format(
            "%a = constant 1.0 : coopmatrix<f32x4x4,matrix_a>\n%b = constant 1.0 : coopmatrix<f32x8x4,matrix_b>\n"
            "%c = constant 1.0 : coopmatrix<f32x4x4,matrix_acc>\n"
            "%d = ⟦cooperative_matrix_mul_add %a, %b, %c : coopmatrix<f32x4x4,matrix_acc>⟧"
        ),
    ),
    _e("matrix-shape", "", _product(_A, _B, _C.replace("4x4", "4x2"), _C)),
    _e("matrix-shape", "", _product(_A, _B, _C, _C.replace("4x4", "2x4"))),
    _e("matrix-type", "", _product(_A, _B, _C, "f32")),
    _e("promotion-operands", "", _product(_A.replace("f32", "f16"), _B.replace("f32", "bf16"), _C, _C)),
    _e("promotion-result", "", _product(_A, _B, _C.replace("f32", "f16"), _C)),
    _e("cast-complex", "", _product(_A, _B, _C.replace("f32", "c32"), _C)),
    _e("matrix-type", "%s: f32", _SPMD.format(f"%a = ⟦cooperative_matrix_scale %s, %s : {_A}⟧")),
    _e("matrix-type", "%s: f32", _SPMD.format(f"%a = constant 1.0 : {_A}\n%b = ⟦cooperative_matrix_scale %s, %a : {_B}⟧")),
    _e("index-type", "%i: i32, %A: memref<f32x4x4>", _SPMD.format(f"%a = ⟦cooperative_matrix_load.n %A[%i, %i] : {_A}⟧")),
    _e("index-count", "%i: index, %A: memref<f32x4x4>", _SPMD.format(f"%a = ⟦cooperative_matrix_load.n %A[%i] : {_A}⟧")),
    _e("modifiers", "%i: index, %A: memref<f32x4x4>", _SPMD.format(f"%a = ⟦cooperative_matrix_load %A[%i, %i] : {_A}⟧")),
    _e("syntax", _AB, "⟦cumsum %a, %A, %a, %a, %A⟧"),
    _e("loop-carried", "%c: bool, %A: memref<f32>", "%B = ⟦if %c -> (memref<f32>)⟧ {\nyield (%A)\n} else {\nyield (%A)\n}"),
    _e("expand-product", "%A: memref<f32x8>", "%a = ⟦expand %A[0 -> -2 x -4] : memref<f32x2x4>⟧"),
    _e("load-operand", "%a: f32", "%b = ⟦fuse %a[0, 1] : memref<f32x4>⟧"),
    _e("load-operand", "%a: f32", "%b = ⟦expand %a[0 -> 2 x 2] : memref<f32x2x2>⟧"),
    _e("subgroup-type", "%a: f32", _SPMD.format("%b = ⟦subgroup_add.reduce %a : f64⟧")),
    _e("subgroup-type", "%a: c32", _SPMD.format("%b = ⟦subgroup_max.reduce %a : c32⟧")),
    _e("subgroup-type", "%a: bool", _SPMD.format("%b = ⟦subgroup_add.reduce %a : bool⟧")),
    _e("subgroup-index", "%a: f32, %i: index", _SPMD.format("%b = ⟦subgroup_broadcast %a, %i : f32⟧")),
)
"""Programs that are refused, by the rule that refuses them."""

LENIENT = (
    _e("lenient-builtin", "", "%a = ⟦group_id⟧ : index"),
    _e("lenient-slice", "%i: index, %A: memref<f32x4x4>", "%a = subview %A[⟦:⟧, %i] : memref<f32x4>"),
    _e("lenient-slice", "%A: memref<f32x?>", "%a = subview %A[⟦:⟧] : memref<f32x?>"),
    _e("lenient-space", "", "%a = ⟦alloca : memref<f32x4>⟧"),
    _e("lenient-arrow", "", "%a = constant 1 ⟦->⟧ i32"),
    _e("lenient-immediate", "%a: i32", "%b = cmp.lt %a, ⟦16⟧ : bool"),
    _e("lenient-immediate", "%A: memref<f32x4>", "%b = load %A[⟦2⟧] : f32"),
    _e("lenient-cmp", "%a: i32", "%b = ⟦cmp.lt %a, %a : i32⟧"),
    _e("lenient-hadamard", "%a: f32, %A: memref<f32x4>", "⟦hadamard⟧ %a, %A, %A, %a, %A"),
    _e("lenient-order", "%A: memref<f32x4>", "%b = constant 1.0 : f32\n⟦axpby.atomic.n %b, %A, %b, %A⟧"),
    _e("lenient-returns", "%c: bool", "if %c -> ⟦()⟧ {\nyield ()\n}"),
)
"""Programs that strict reading refuses."""

ADVICE = (
    Example("attribute-unused", 'func @f(⟦%a: memref<f32x4> {"colour"="red"}⟧) {}'),
    _e("attribute-unused", "", "%a = ⟦alloca {unroll=true} : memref<f32x4,local>⟧"),
    _e("constant-range", "", "%a = ⟦constant 300 : i8⟧"),
    _e("promotion-inexact", "%a: i32, %x: memref<i32x4>, %b: c32, %y: memref<c32x4>", "⟦axpby.n %a, %x, %b, %y⟧"),
    _e("collective-atomic-add", "%a: f32, %A: memref<f32>", "⟦store.atomic_add %a, %A[]⟧"),
    _e("subview-outside", "%A: memref<f32x8>", "%a = ⟦subview %A[6:4] : memref<f32x4>⟧"),
    _e("barrier-varying", "%a: index", "foreach (%i) = (%a), (%a) {\n⟦barrier.local⟧\n}"),
    _e(
        "barrier-varying",
        "%a: i32",
        _SPMD.format("%i = builtin.subgroup_local_id : i32\n%c = cmp.lt %i, %a : bool\nif %c {\n⟦barrier.local⟧\n}"),
    ),
    _e("uniform", "%a: f32", _SPMD.format("%i = builtin.subgroup_local_id : i32\n%b = ⟦subgroup_broadcast %a, %i : f32⟧")),
)
"""Programs that are accepted with a warning."""

EVERY_INSTRUCTION = """
func @collective(%alpha: f32, %A: memref<f32x4x6> {alignment=64}, %x: memref<f32x6>, %y: memref<f32x4>,
                 %G: group<memref<f32x4x6,strided<1,?>>x?, offset: ?> {stride_gcd=[1,4]}, %s: memref<f32>)
        attributes{subgroup_size=4, work_group_size=[8,2]} {
    %one = constant 1.0 : f32
    %zero = constant 0.0 : f32
    %T = alloca {alignment=32} : memref<f32x6x4,local>
    axpby.t %alpha, %A, %zero, %T
    %P = alloca : memref<f32x4x4,local>
    gemm.n.n %one, %A, %T, %zero, %P
    gemm.t.t.atomic %one, %T, %A, %one, %P
    gemv.n %one, %A, %x, %zero, %y
    ger %one, %y, %x, %one, %A
    hadamard_product %one, %A, %A, %zero, %A
    cumsum %one, %A, 1, %zero, %A
    sum.n %one, %A, %zero, %y
    sum.n.atomic %one, %y, %one, %s
    lifetime_stop %T
    %lo = constant 0 : index
    %hi = size %A[1] : index
    foreach (%i, %j) = (%lo, %lo), (%hi, %hi) {
    }
    %gid = builtin.group_id : index
    %M = load %G[%gid] : memref<f32x4x6,strided<1,?>>
    parallel {
    }
}

func @views(%A: memref<f64x4x6x2>, %n: index, %B: memref<f64x?x3,strided<2,?>,global>) {
    %e = expand %A[1 -> 2 x 3] : memref<f64x4x2x3x2>
    %d = expand %B[0 -> %n x 2] : memref<f64x?x2x3,strided<2,?,?>>
    %f = fuse %A[0, 2] : memref<f64x48>
    %s = subview %A[1:2, %n:%n, 0] : memref<f64x2x?,strided<1,4>>
    %p = subview %A[%n, 0:6, 1:1] : memref<f64x6x1,strided<4,24>>
    %v = load %s[%n, %n] : f64
    store %v, %s[%n, %n]
    store.atomic %v, %A[%n, %n, %n]
}

func @scalars(%a: i32, %x: f16, %z: c64, %b: bool) {
    %0 = arith.add %a, %a : i32
    %1 = arith.sub %a, %0 : i32
    %2 = arith.mul %a, %0 : i32
    %3 = arith.div %x, %x : f16
    %4 = arith.rem %x, %x : f16
    %5 = arith.shl %a, %a : i32
    %6 = arith.shr %a, %a : i32
    %7 = arith.and %b, %b : bool
    %8 = arith.or %a, %a : i32
    %9 = arith.xor %a, %a : i32
    %10 = arith.min %a, %a : i32
    %11 = arith.max %x, %x : f16
    %12 = arith.abs %z : f64
    %13 = arith.neg %z : c64
    %14 = arith.not %b : bool
    %15 = arith.conj %z : c64
    %16 = arith.im %z : f64
    %17 = arith.re %z : f64
    %18 = cast %a : bf16
    %19 = cmp.ne %z, %z : bool
    %20 = constant [0.5,-1e-3] : c32
    %21 = math.exp %z : c64
    %22 = math.native_exp %x : f16
    barrier.global.local
    %from = constant 1 : i8
    %f, %g = for %i: i8 = %from, %from, %from init(%p = %a, %q = %b) -> (i32, bool) {
        yield (%p, %q)
    } {unroll=true}
    %c = if %b -> (f16) {
        yield (%x)
    } else {
        %h = constant 0x1.8p+1 : f16
        yield (%h)
    }
    if %b {
    }
}

func @sub_groups(%A: memref<f32x16x16>, %k: i32, %x: index) {
    parallel {
        %i = builtin.subgroup_local_id : i32
        %n = builtin.num_subgroups : i32
        %0 = subgroup_broadcast %i, %k : i32
        %1 = subgroup_add.exclusive_scan %i : i32
        %2 = subgroup_max.inclusive_scan %i : i32
        %3 = subgroup_min.reduce %i : i32
        %a = cooperative_matrix_load.n %A[%x, %x] : coopmatrix<f32x4x8,matrix_a>
        %b = cooperative_matrix_load.t.both_checked %A[%x, %x] : coopmatrix<f32x8x2,matrix_b>
        %c = constant 0.0 : coopmatrix<f32x4x2,matrix_acc>
        %d = cooperative_matrix_mul_add %a, %b, %c : coopmatrix<f32x4x2,matrix_acc>
        %two = constant 2.0 : f32
        %e = cooperative_matrix_scale %two, %d : coopmatrix<f32x4x2,matrix_acc>
        cooperative_matrix_store.rows_checked.atomic_add %e, %A[%x, %x]
        cooperative_matrix_store %d, %A[%x, %x]
    }
}
"""
"""A program with all 52 instructions."""


def arguments_for(function: TensorFunction, rng: np.random.Generator, size: int = 8) -> dict[str, Any]:
    """Random arguments of small numbers for every parameter; unknown sizes become `size`, indices less."""
    return {
        parameter.name: _argument(parameter.type, attributes, rng, size)
        for parameter, attributes in zip(function.parameters, function.parameter_attributes, strict=True)
    }


def _argument(type_: Any, attributes: Mapping[str, Any], rng: np.random.Generator, size: int) -> Any:
    if isinstance(type_, Boolean):
        return bool(rng.integers(2))
    if isinstance(type_, TensorScalar):
        return float(rng.integers(-64, 64) / 16) if type_ == BF16 else numbers(type_, (), rng)[()]
    if isinstance(type_, PointerGroup):
        count = size if type_.size is None else type_.size
        return [_argument(type_.memref, attributes, rng, size) for _ in range(count)]
    assert isinstance(type_, TensorMemref)
    divisors = [*attributes.get("shape_gcd", ()), *[1] * type_.order]
    shape = tuple(-(-size // d) * d if extent is None else extent for extent, d in zip(type_.shape, divisors, strict=False))
    return numbers(type_.element, shape, rng)


def numbers(type_: TensorScalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Small numbers of both signs, indices 0 or 1; bf16 as their bits."""
    if type_ == BF16:
        values = np.asarray(rng.integers(-64, 64, shape) / 16, np.float32)
        return np.asarray(values.view(np.uint32) >> 16).astype(np.uint16)
    if type_.is_integer:
        low = 0 if type_.name == "index" else -4
        return rng.integers(low, 2 if low == 0 else 5, shape).astype(dtype_of(type_))
    values = rng.standard_normal(shape)
    if type_.is_complex:
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values).astype(dtype_of(type_))
