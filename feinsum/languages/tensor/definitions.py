"""The instructions of the tensor language: a row for each, which readers, printers, checks and documentation share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from feinsum.languages.tensor.ir import Kind


@dataclass(frozen=True)
class Definition:
    """The definition of an instruction.

    :ivar form: how it is written; what is in brackets may be left out.
    :ivar formula: what it does.
    :ivar roles: names of its operands, as the reference calls them.
    :ivar reads: the operands whose memory it reads; `writes` those whose memory it changes.
    :ivar transposes: how many modifiers ``.n`` or ``.t`` it has.
    :ivar flags: the other modifiers it can have, at most one of each group.
    :ivar types: of arithmetic, the families of types that it is for.
    """

    name: str
    kind: Kind
    form: str
    formula: str
    roles: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    transposes: int = 0
    flags: tuple[tuple[str, ...], ...] = ()
    types: tuple[str, ...] = ()


_ATOMIC: Final = (("atomic",),)
_STORES: Final = ("atomic", "atomic_add")
_NUMBERS: Final = "integers floating complex coopmatrices"
_CHECKED: Final = ("rows_checked", "cols_checked", "both_checked")


def _define_update(name: str, form: str, formula: str, roles: str, transposes: int = 0) -> Definition:
    """An instruction of linear algebra, whose last operand is the result; it is read too, unless beta is 0."""
    names = tuple(roles.split())
    memrefs = tuple(role for role in names if role not in ("alpha", "beta", "n"))
    return Definition(name, "collective", form, formula, names, memrefs, memrefs[-1:], transposes, _ATOMIC)


def _arithmetic(name: str, roles: str, formula: str, types: str) -> Definition:
    form = f"arith.{name} {', '.join(f'%{role}' for role in roles.split())} : T"
    return Definition(f"arith.{name}", "mixed", form, formula, tuple(roles.split()), types=tuple(types.split()))


def _define_scan(name: str, formula: str) -> Definition:
    return Definition(
        f"subgroup_{name}", "spmd", f"subgroup_{name}.{{exclusive_scan|inclusive_scan|reduce}} %a : T", formula, ("a",)
    )


_ALL: Final = (
    Definition("alloca", "collective", "alloca [{alignment=n}] : memref<...,local>", "memory until the block ends"),
    _define_update("axpby", "axpby.{n|t}[.atomic] %alpha, %A, %beta, %B", "B := α op(A) + β B", "alpha A beta B", 1),
    _define_update(
        "cumsum", "cumsum[.atomic] %alpha, %A, n, %beta, %B",
        "B[.., j, ..] := α Σ_{i ≤ j} A[.., i, ..] + β B[.., j, ..], mode n counted from 0", "alpha A beta B",
    ),
    Definition(
        "foreach", "collective", "foreach (%i, ...)[: int] = (%from, ...), (%to, ...) {...}",
        "the region for each of [from, to) × ..., in any order",
    ),
    _define_update(
        "gemm", "gemm.{n|t}.{n|t}[.atomic] %alpha, %A, %B, %beta, %C", "C := α op(A) op(B) + β C", "alpha A B beta C", 2,
    ),
    _define_update("gemv", "gemv.{n|t}[.atomic] %alpha, %A, %b, %beta, %c", "c := α op(A) b + β c", "alpha A b beta c", 1),
    _define_update("ger", "ger[.atomic] %alpha, %a, %b, %beta, %C", "C := α a bᵀ + β C", "alpha a b beta C"),
    _define_update(
        "hadamard_product", "hadamard_product[.atomic] %alpha, %A, %B, %beta, %C",
        "C[i, j] := α A[i, j] B[i, j] + β C[i, j]", "alpha A B beta C",
    ),
    Definition("parallel", "collective", "parallel {...}", "the region by every work-item"),
    _define_update("sum", "sum.{n|t}[.atomic] %alpha, %A, %beta, %b", "b := α op(A) 1 + β b", "alpha A beta b", 1),
    Definition("lifetime_stop", "collective", "lifetime_stop %a", "ends the memory of an alloca", ("a",)),
    _arithmetic("add", "a b", "a + b", _NUMBERS),
    _arithmetic("sub", "a b", "a - b", _NUMBERS),
    _arithmetic("mul", "a b", "a b", _NUMBERS),
    _arithmetic("div", "a b", "a / b; of integers, without the fraction", _NUMBERS),
    _arithmetic("rem", "a b", "a - b trunc(a / b)", "integers floating"),
    _arithmetic("shl", "a b", "a 2^b", "integers"),
    _arithmetic("shr", "a b", "floor(a / 2^b)", "integers"),
    _arithmetic("and", "a b", "a ∧ b, bit by bit", "bool integers"),
    _arithmetic("or", "a b", "a ∨ b, bit by bit", "bool integers"),
    _arithmetic("xor", "a b", "a ⊕ b, bit by bit", "bool integers"),
    _arithmetic("min", "a b", "the smaller of a and b", "integers floating"),
    _arithmetic("max", "a b", "the larger of a and b", "integers floating"),
    _arithmetic("abs", "a", "|a|", "integers floating complex"),
    _arithmetic("neg", "a", "-a", _NUMBERS),
    _arithmetic("not", "a", "¬a, bit by bit", "bool integers"),
    _arithmetic("conj", "a", "the complex conjugate of a", "complex"),
    _arithmetic("im", "a", "the imaginary part of a", "complex"),
    _arithmetic("re", "a", "the real part of a", "complex"),
    Definition("barrier", "mixed", "barrier[.global][.local]", "every work-item waits for the others", (),
               flags=(("global",), ("local",))),
    Definition(
        "builtin", "mixed",
        "builtin.{group_id|group_size} : index, builtin.{num_subgroups|subgroup_size|subgroup_id|subgroup_local_id} : i32",
        "where this work-item is",
    ),
    Definition("cast", "mixed", "cast %a : T", "a as a number of type T", ("a",)),
    Definition("cmp", "mixed", "cmp.{eq|ne|gt|ge|lt|le} %a, %b : bool", "whether a = b, a ≠ b, a > b, ...", ("a", "b")),
    Definition("constant", "mixed", "constant c : T", "c, or a coopmatrix all of c"),
    Definition("expand", "mixed", "expand %A[i -> n0 x n1 x ...] : memref", "A with mode i seen as several", ("A",)),
    Definition("fuse", "mixed", "fuse %A[i, j] : memref", "A with modes i to j seen as one", ("A",)),
    Definition("subview", "mixed", "subview %A[offset[:size], ...] : memref", "a block of A, or a slice", ("A",)),
    Definition("for", "mixed", "for %i[: int] = %from, %to[, %step] [init(%p = %v, ...) -> (T, ...)] {...} [{unroll=b}]",
               "the region for from, from + step, ... below to; yields are the next p"),
    Definition("if", "mixed", "if %c [-> (T, ...)] {...} [else {...}]", "one of two regions", ("condition",)),
    Definition("yield", "mixed", "yield (%v, ...)", "the values of the region"),
    Definition("load", "mixed", "load %A[%i, ...] : T", "A[i, ...], or the i-th memref of a group", ("A",), ("A",)),
    Definition("store", "mixed", "store[.atomic|.atomic_add] %v, %A[%i, ...]", "A[i, ...] := v, or += v",
               ("v", "A"), (), ("A",), flags=(_STORES,)),
    Definition("math", "mixed", "math.{exp|native_exp} %a : T", "e^a", ("a",)),
    Definition("size", "mixed", "size %A[i] : index", "the size of mode i", ("A",)),
    Definition("cooperative_matrix_load", "spmd",
               "cooperative_matrix_load.{n|t}[.rows_checked|.cols_checked|.both_checked] %M[%x, %y] : coopmatrix",
               "A[i, j] := M[x + i, y + j], or of .t M[x + j, y + i]", ("M", "x", "y"), ("M",), (), 1, (_CHECKED,)),
    Definition("cooperative_matrix_mul_add", "spmd", "cooperative_matrix_mul_add %A, %B, %C : coopmatrix", "A B + C",
               ("A", "B", "C")),
    Definition("cooperative_matrix_scale", "spmd", "cooperative_matrix_scale %s, %A : coopmatrix", "s A", ("s", "A")),
    Definition("cooperative_matrix_store", "spmd",
               "cooperative_matrix_store[.rows_checked|.cols_checked|.both_checked][.atomic|.atomic_add] %A, %M[%x, %y]",
               "M[x + i, y + j] := A[i, j], or += it", ("A", "M", "x", "y"), (), ("M",), 0, (_CHECKED, _STORES)),
    Definition("subgroup_broadcast", "spmd", "subgroup_broadcast %a, %i : T", "a of work-item i of the sub-group",
               ("a", "i")),
    _define_scan("add", "running sums, or the sum, of a over the sub-group"),
    _define_scan("max", "running maxima, or the maximum, of a over the sub-group"),
    _define_scan("min", "running minima, or the minimum, of a over the sub-group"),
)  # fmt: skip

DEFINITIONS: Final = {definition.name: definition for definition in _ALL}

ARITHMETIC: Final = tuple(name for name in DEFINITIONS if name.startswith("arith."))
LINEAR_ALGEBRA: Final = tuple(name for name, definition in DEFINITIONS.items() if "alpha" in definition.roles)

BUILTINS: Final = {
    "group_id": "index",
    "group_size": "index",
    "num_subgroups": "i32",
    "subgroup_size": "i32",
    "subgroup_id": "i32",
    "subgroup_local_id": "i32",
}
"""The types of builtins."""
SPMD_BUILTINS: Final = ("subgroup_id", "subgroup_local_id")
MODIFIERS_OF_FAMILY: Final = {
    "cmp": ("condition", ("eq", "ne", "gt", "ge", "lt", "le")),
    "math": ("function", ("exp", "native_exp")),
    **dict.fromkeys(
        ("subgroup_add", "subgroup_max", "subgroup_min"), ("scan", ("exclusive_scan", "inclusive_scan", "reduce"))
    ),
}
"""Instructions whose name goes on behind a dot: the attribute that holds the rest, and what it can be."""
DEFAULT_ALIGNMENT: Final = 128
"""The alignment in bytes that OpenCL promises of every buffer; an alloca can ask for no more."""


def kind_of(name: str, attributes: object = None) -> Kind:
    """The kind of an instruction; builtins of single work-items are SPMD."""
    if name == "builtin" and isinstance(attributes, dict) and attributes.get("builtin") in SPMD_BUILTINS:
        return "spmd"
    return DEFINITIONS[name].kind
