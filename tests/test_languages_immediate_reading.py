"""Reading and printing the immediate language: the snippets of its document, numbers, maps and command lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from immediate_programs import SAMPLE, Example, in_function

import feinsum as fe
from feinsum.cli import cli
from feinsum.errors import LanguageError
from feinsum.languages.immediate.maps import IndexMap, read_map
from feinsum.languages.immediate.syntax import ImmediateUpdate


def the_map(text: str) -> IndexMap:
    def refuse(*wrong: object) -> None:
        raise AssertionError(wrong)

    return read_map(text, 0, refuse)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("{ji to ij}", "{ji to ij}"),
        ("{i[k]m, m(jn) to i(jn)[k]}", "{i[k]m, m(jn) to i(jn)[k]}"),
        ("{i[k]m,m(jn)to i(jn)[k]}", "{i[k]m, m(jn) to i(jn)[k]}"),
        ("{_, to to ot}", "{_, to to ot}"),
        ("{to to ot}", "{to to ot}"),
        ("{(i)j ; a comment\n to ij}", "{ij to ij}"),
        ("{[i][j], [ji] to i j}".replace("[ji]", "[j][i]"), "{[i][j], [j][i] to ij}"),
    ],
)
def test_index_maps(text: str, canonical: str) -> None:
    """As the document writes them, with the word 'to' among indices t and o, and as they are printed."""
    assert str(the_map(text)) == canonical
    assert the_map(canonical) == the_map(text)


def test_classes_of_the_documents_example() -> None:
    """C[i,j,n,k] = sum_m A[i,k,m] B[m,j,n]."""
    found = the_map("{i[k]m, m(jn) to i(jn)[k]}")
    assert {x: found.letter_class(x) for x in "ijnkm"} == {"i": "m", "k": "m", "j": "n", "n": "n", "m": "k"}
    assert (found.loops, found.groups) == ("k", ("jn",))


def scaled(constant: str) -> str:
    """A function that multiplies a number by a constant."""
    update = f"axpby {{_ to _}} {constant}, %a, 0.0, %b : memref<f64> to memref<f64>"
    return in_function("%a: memref<f64>, %b: memref<f64>", update)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.0", 1.0),
        ("-.5", -0.5),
        ("+2.", 2.0),
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        ("0x1p3", 8.0),
        ("-0x.8p1", -1.0),
        ("0xA.", 10.0),
    ],
)
def test_constants(text: str, value: float) -> None:
    """Decimal and hexadecimal, as the document's grammar has them."""
    program = fe.program(
        in_function(
            "%a: memref<f32>, %b: memref<f32>", f"axpby {{_ to _}} {text}, %a, 0.0, %b : memref<f32> to memref<f32>"
        )
    )
    (update,) = program.function().body
    assert isinstance(update, ImmediateUpdate)
    assert update.alpha == value
    assert fe.program(str(program)) == program


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_constant_reads_back(value: float) -> None:
    """The fewest digits that give it back."""
    text = in_function(
        "%a: memref<f64>, %b: memref<f64>", f"axpby {{_ to _}} {value!r}, %a, 0.0, %b : memref<f64> to memref<f64>"
    )
    program = fe.program(text)
    assert program.function().body[0].alpha == value
    assert fe.program(str(program)) == program


def test_types_are_normalized() -> None:
    """Packed strides are no strides; the document's identity of types."""
    text = "define @f(%A: memref<f32x5x6x7,strided<1,5,30>>, %B: group<memref<i8x2,strided<3>>,distance<7>>) { }"
    program = fe.program(text)
    assert program == fe.program("define @f(%A: memref<f32x5x6x7>, %B: group<memref<i8x2,strided<3>>,distance<7>>) { }")
    assert str(program) == "define @f(%A: memref<f32x5x6x7>, %B: group<memref<i8x2,strided<3>>,distance<7>>) {\n}\n"


def test_copy_with_a_transpose() -> None:
    """The document's B[i,j] = A[j,i]."""
    text = in_function(
        "%A: memref<f32x3x5>, %B: memref<f32x5x3>",
        "axpby {ji to ij}, 1.0, %A, 0.0, %B : memref<f32x3x5> to memref<f32x5x3>",
    )
    A, B = np.arange(15, dtype=np.float32).reshape(3, 5), np.zeros((5, 3), np.float32)
    np.testing.assert_array_equal(fe.program(text).interpret(A=A, B=B), A.T)


def test_commands(tmp_path: Path) -> None:
    """`check` and `format` know the suffix, and strictness."""
    file = tmp_path / "sample.imm"
    file.write_text(Example("", SAMPLE).text)
    checked = CliRunner().invoke(cli, ["check", str(file)])
    assert checked.exit_code == 0
    assert "1 function, 1 warning" in checked.output
    strict = CliRunner().invoke(cli, ["check", "--strict", str(file)])
    assert strict.exit_code == 1
    assert f"{file}:9:45: error" in strict.output
    formatted = CliRunner().invoke(cli, ["format", str(file)])
    assert fe.program(formatted.output, strict=True) == fe.program(file)
    ran = CliRunner().invoke(cli, ["run", str(file), "--size", "E=7"])
    assert ran.exit_code == 0
    assert "%D: float32 of 7x16x16" in ran.output
    assert "compared with the interpreter: the largest difference is" in ran.output


def test_a_text_without_functions_says_so() -> None:
    """As does one that ends too early."""
    with pytest.raises(LanguageError, match="begins with 'define'"):
        fe.program("log", language="immediate")
    with pytest.raises(LanguageError, match="a '}' is missing"):
        fe.program("define @f() {")


ADDS = "a number before the result says how much of it stays: `log {ik, kj to ij} 1.0, %a, %b, 1.0, %c` adds to %c"


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("%t = alloca", "its types are missing, as in `: memref<f32x16x8>`"),
        ("%t = get_work_item %B", "its types are missing, as in `: group<memref<f32x16x8>,pointers>`"),
        (
            "log {ik, kj to ij} 1.0, %A, %A, 0.0, %C",
            "its types are missing, as in `: memref<f32x16x8>, memref<f32x8x8> to memref<f32x16x8>`",
        ),
        ("axpby {ij to ij} 1.0, %A, 0.0, %C", "its types are missing, as in `: memref<f32x16x8> to memref<f32x16x8>`"),
        (
            "%C += %A",
            ADDS,
        ),
    ],
)
def test_what_is_missing_is_named(body: str, note: str) -> None:
    """At the end of a function and before another instruction, and nothing else is said."""
    head = "define @f(%A: memref<f32x4x4>, %B: group<memref<f32x4x4>,pointers>, %C: memref<f32x4x4>) {"
    for rest in ("", "\n%u = alloca : memref<f32x4x4>"):
        with pytest.raises(LanguageError) as caught:
            fe.program(f"{head}\n{body}{rest}\n}}")
        (told,) = caught.value.diagnostics
        assert [n.message for n in told.notes] == [note]
