"""Deep, long and large programs of all languages: they are accepted, or refused where they stand, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import feinsum as fe
from feinsum.errors import LanguageError

A = "A: Tensor<N; f32>\ny = compute (shape = [N]) |i| "
MATRICES = "define @f(%A: memref<f32x4>, %B: memref<f32x4>) {\n"
COPY = "%A, 0.0, %B : memref<f32x4> to memref<f32x4>"
TEXTS: dict[str, Callable[[int], str]] = {
    "sum": lambda n: A + " + ".join(["A[i]"] * n),
    "parentheses": lambda n: A + "(" * n + "A[i]" + ")" * n,
    "sum in parentheses": lambda n: A + "(1 + " * n + "A[i]" + ")" * n,
    "signs": lambda n: A + "-" * n + "A[i]",
    "negations": lambda n: A + "if " + "not " * n + "A[i] > 0 then 1 else 0",
    "calls": lambda n: A + "exp(" * n + "A[i]" + ")" * n,
    "choices": lambda n: A + "if A[i] > 0 then " * n + "A[i]" + " else 0" * n,
    "blocks": lambda n: A + "if A[i] > 0 { " * n + "A[i]" + " } else { 0 }" * n,
    "other choices": lambda n: A + "if A[i] > 0 { 1 } else " * n + "{ 0 }",
    "forms": lambda n: "y = " + "".join(f"compute (shape = [1]) |i{k}| " for k in range(n)) + "1.0",
    "lists": lambda n: "y = " + "[" * n + "1.0" + "]" * n,
    "types": lambda n: "f: " + "(f32) -> " * n + "f32\nx: f32\ny = x",
    "extents": lambda n: "A: Tensor<N" + " + 1" * n + "; f32>\ny = A[0]",
    "digits": lambda n: A + "A[i] * " + "9" * n,
    "digits of an extent": lambda n: "A: Tensor<" + "9" * n + "; f32>\ny = A[0]",
    "digits of an exponent": lambda n: A + "A[i] * 1e" + "9" * n,
    "loops": lambda n: "func @f(%a: index) {" + "".join(f"for %i{k}=%a,%a {{" for k in range(n)) + "}" * (n + 1),
    "loops that carry": lambda n: (
        "func @f(%a: index) {"
        + "".join(f"%x{k} = for %i{k}=%a,%a init(%s{k}=%a) -> (index) {{" for k in range(n))
        + "}" * (n + 1)
    ),
    "branches": lambda n: "func @f(%a: index) { %c = cmp.eq %a, %a : bool " + "if %c {" * n + "}" * (n + 1),
    "dictionaries": lambda n: "func @f(%a: memref<f32x4> {alignment = " + "{alignment = " * n + "1" + "}" * n + "}) { }",
    "digits of a constant": lambda n: "func @f(%a: index) { %c = constant " + "9" * n + " : i64 }",
    "immediate loops": lambda n: MATRICES + "".join(f"for i32 %i{k} = 0 to 1 {{\n" for k in range(n)) + "}\n" * (n + 1),
    "digits of a bound": lambda n: MATRICES + "for i32 %i = 0 to " + "9" * n + " { }\n}",
    "digits of a factor": lambda n: MATRICES + "axpby {i to i} " + "9" * n + ".0, " + COPY + "\n}",
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("size", [65, 400, 5000])
def test_programs_of_any_depth_are_read_or_refused(kind: str, size: int) -> None:
    """Users do not meet Python's limits of recursion and digits; what is read can be printed and read again."""
    try:
        program = fe.program(TEXTS[kind](size))
    except LanguageError as error:
        assert error.diagnostics[0].line >= 1  # noqa: PT017  it may be accepted, too
        return
    assert fe.program(str(program)) == program


def test_usual_depths_are_accepted() -> None:
    """The limit is far from what is written by hand."""
    for kind in ("sum", "parentheses", "signs", "calls", "choices"):
        fe.program(TEXTS[kind](30))


def test_names_that_make_a_value_deep_are_refused() -> None:
    """Each line is short, and their composition is not."""
    lines = "".join(f"t{k + 1} = t{k} * A[i]\n" for k in range(600))
    program = fe.program(f"{A}{{ t0 = A[i]\n{lines}t600 }}")
    with pytest.raises(LanguageError, match="composed too deeply"):
        fe.build(program)(A=np.ones(1, np.float32))
