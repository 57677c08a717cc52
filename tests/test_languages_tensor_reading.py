"""Reading and printing the tensor language: names, lines that fit nowhere, and a canonical text that is read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensor_programs import EVERY_INSTRUCTION, in_function

import feinsum as fe
from feinsum.errors import FeinsumError, LanguageError

SAMPLE = """
    func @fused_kernel(%alpha: f32,
                         %A: group<memref<f32x16x8>x?>,
                         %B: memref<f32x8x8>,
                         %C: memref<f32x8x16>,
                         %D: memref<f32x16x16x?>) {
      %0 = group_id : index
      %1 = load %A[%0]        : memref<f32x16x8>
      %2 = subview %D[:,:,%0] : memref<f32x16x16>
      %tmp0 = alloca : memref<f32x16x8>
      %zero = constant 0.0 : f32
      %one = constant 1.0 : f32
      gemm.n.t %one, %1, %B, %zero, %tmp0
      gemm.n.n %alpha, %tmp0, %C, %one, %2
    }
"""
"""The sample at the end of the reference."""

FIBONACCI = """
func @fibonacci(%out: memref<i64x2>) {
    %from = constant 2 -> i32
    %to = constant 6 -> i32
    %f0 = constant 0 -> i64
    %f1 = constant 1 -> i64
    %fn_1, %fn = for %n:i32=%from,%to init(%fn_2=%f0,%fn_1=%f1) -> (i64,i64) {
        %fn = arith.add %fn_2, %fn_1 : i64
        yield (%fn_1, %fn)
    }
}
"""
"""The sample of the section on loops, whose names are used inside and outside."""


CLIP = """
func @clip(%0: i32, %out: memref<i32>) {
    %1 = cmp.lt %0, 16 : i32
    %x = if %1 -> (i32) {
        yield (%0)
    } else {
        %c16 = constant 16 : i32
        yield (%c16)
    }
    store %x, %out[]
}
"""
"""The sample of the section on `if`, in which a number is an operand and a comparison an i32."""

VIEWS = """
expand %0[1 -> 2x8]         : memref<f32x32x2x8x8> ; memref<f32x32x16x8>
expand %0[1 -> 2x2x2x2]     : memref<f32x32x2x2x2x2x8> ; memref<f32x32x16x8>
expand %0[1 -> %1 x 2]      : memref<f32x32x?x2> ; memref<f32x32x?>
expand %0[1 -> 2 x %1]      : memref<f32x32x2x?> ; memref<f32x32x?>
expand %0[1 -> %1 x 2]      : memref<f32x32x?x2> ; memref<f32x32x16>
expand %0[1 -> %1 x %2 x 2] : memref<f32x32x?x?x2> ; memref<f32x32x16>
expand %0[1 -> %2 x 2 x %1] : memref<f32x32x?x2x?> ; memref<f32x32x16>
expand %0[1 -> %1 x %2]     : memref<f32x32x?x?> ; memref<f32x32x?>
expand %0[1 -> %1 x %2]     : memref<f32x32x?x?> ; memref<f32x32x16>
expand %0[0->4 x 8]         : memref<f32x4x8x7,strided<2,8,64>> ; memref<f32x32x7,strided<2,64>>
expand %0[0->4 x 8]         : memref<f32x4x8x7,strided<2,?,?>> ; memref<f32x32x7,strided<2,64>>
expand %0[0->%1 x 4]        : memref<f32x?x4x7,strided<2,?,?>> ; memref<f32x?x7,strided<2,?>>
expand %0[0->4 x %1]        : memref<f32x4x?x7,strided<2,8,?>> ; memref<f32x?x7,strided<2,?>>
expand %0[0->4 x %1]        : memref<f32x4x?x7,strided<2,?,?>> ; memref<f32x?x7,strided<2,?>>
fuse %0[0,1] : memref<f32x128,strided<1,?>> ; memref<f32x8x16,strided<1,?>> stride-count
fuse %0[0,1] : memref<f32x128> ; memref<f32x8x16,strided<1,10>> fuse-stride
fuse %0[1,3] : memref<f32x32x512x42> ; memref<f32x32x16x8x4x42>
fuse %0[1,3] : memref<f32x32x?x42,strided<1,32,?>> ; memref<f32x32x16x?x4x42,strided<1,16,?,?,?>> stride-order
fuse %0[1,2] : memref<f32x32x32x2,strided<1,48,1536>> ; memref<f32x32x16x2x2,strided<1,48,768,1536>>
fuse %0[1,2] : memref<f32x32x32x2,strided<1,?,?>> ; memref<f32x32x16x2x2,strided<1,48,768,1536>>
fuse %0[0,1] : memref<f32x?x32,strided<1,?>> ; memref<f32x8x?x32,strided<1,?,?>>
subview %0[4:8,8:4]   : memref<f32x8x4,strided<1,32>> ; memref<f32x32x16>
subview %0[4:8,8:4]   : memref<f32x8x4,strided<1,?>> ; memref<f32x32x16>
subview %0[2:4, %1]   : memref<f32x4> ; memref<f32x16x8>
subview %0[2:4, %1:0] : memref<f32x4> ; memref<f32x16x8>
subview %0[2:4, %1:1] : memref<f64x4x1,strided<1,16>> ; memref<f64x16x8>
subview %0[%1:4]      : memref<f32x4> ; memref<f32x16>
subview %0[%2:%2]     : memref<f32x?> ; memref<f32x16>
subview %0[2:4, %2:%2, 6:7] : memref<f32x4x?x7,strided<1,16,672> ; memref<f32x16x42x13> syntax
subview %0[2:4, %2:%2, 6:7] : memref<f32x4x?x7,strided<1,?,?>> ; memref<f32x16x42x13,strided<1,?,?>>
load %0[]             : f32 ; memref<f32>
load %0[5, %1]        : f32 ; memref<f32x10x?>
load %0[%1]           : memref<f32x42> ; group<memref<f32x42>x?>
load %0[%1]           : memref<f32x42> ; group<memref<f32x42>x?, offset: ?>
"""
"""The examples of views and loads in the reference, each with the type of its operand; four of them break its own rules."""


def rules(text: str, strict: bool = False) -> list[tuple[int, int, str]]:
    """Line, column and rule of each error."""
    with pytest.raises(LanguageError) as caught:
        fe.program(text, "tensor", strict)
    return [(d.line, d.column, d.rule) for d in caught.value.diagnostics]


@pytest.mark.parametrize("text", [SAMPLE, FIBONACCI, CLIP, EVERY_INSTRUCTION], ids=["sample", "fibonacci", "clip", "all"])
def test_what_is_printed_is_read_back(text: str) -> None:
    """``parse(print(p)) == p``, also by strict reading, and printing again changes nothing."""
    read = fe.program(text)
    again = fe.program(str(read), strict=True)
    assert again == read
    assert str(again) == str(read)


@pytest.mark.parametrize("line", VIEWS.strip().splitlines())
def test_examples_of_the_reference(line: str) -> None:
    """They are accepted save for what is named behind them, which contradicts the reference itself."""
    instruction, _, rest = line.partition(" ; ")
    type_, _, rule = rest.strip().rpartition("> ")
    parameters = f"%0: {type_ + '>' if type_ else rest.strip()}, %1: index, %2: index"
    text = in_function(parameters, f"%3 = {instruction.strip()}")
    if not type_:
        read = fe.program(text)
        assert fe.program(str(read), strict=True) == read
    else:
        assert rule in [found for _, _, found in rules(text)]


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("%A: memref<f32x5x6x7,strided<1,5,30>,global>", "%A: memref<f32x5x6x7>"),
        ("%A: memref<f32x?x4,strided<1,?>>", "%A: memref<f32x?x4>"),
        ("%A: memref<f32x4x?,strided<1,4>>", "%A: memref<f32x4x?>"),
        ("%A: memref<f32x4x?,strided<?,?>>", "%A: memref<f32x4x?,strided<?,?>>"),
        ("%A: memref<f32x0x4>", "%A: memref<f32x0x4>"),
        ("%A: group<memref<f32>x?, offset: 0>", "%A: group<memref<f32>x?>"),
        ("%A: group<memref<f32>x8, offset: ?>", "%A: group<memref<f32>x8,offset:?>"),
        ('%A: memref<f32> {"a b"="c","d"={}}', '%A: memref<f32> {"a b"="c", "d"={}}'),
        ('%A: memref<f32> {"e"=[true,{"alignment"=1}]}', '%A: memref<f32> {"e"=[true, {alignment=1}]}'),
        ("%A:memref<f32x?>{shape_gcd=[4],alignment=64}", "%A: memref<f32x?> {shape_gcd=[4], alignment=64}"),
    ],
)
def test_types_have_one_way_to_be_written(written: str, canonical: str) -> None:
    """A packed memref is the same type as one whose strides say so."""
    read, wanted = fe.program(in_function(written, "")), fe.program(in_function(canonical, ""))
    assert read == wanted
    assert str(read).splitlines()[0] == f"func @f({canonical}) {{"


@pytest.mark.parametrize(
    ("written", "type_", "canonical"),
    [
        ("+5", "i32", "5"),
        ("2.", "f32", "2.0"),
        (".5e1", "f64", "5.0"),
        ("1e3", "f16", "1000.0"),
        ("-0.0", "f32", "-0.0"),
        ("0x1.8p+1", "f32", "3.0"),
        ("0x8p3", "bf16", "64.0"),
        ("0X.8P+1", "f64", "1.0"),
        ("1E-3", "f64", "0.001"),
        ("-007", "i8", "-7"),
        ("0xA.8", "f64", "10.5"),
        ("3.14159265358979323846", "f64", "3.141592653589793"),
        ("[ 1.5 , -.5 ]", "c32", "[1.5,-0.5]"),
        ("9223372036854775807", "i64", "9223372036854775807"),
        ("-9223372036854775807", "index", "-9223372036854775807"),
        ("true", "bool", "true"),
    ],
)
def test_constants(written: str, type_: str, canonical: str) -> None:
    """Decimal and hexadecimal numbers keep their value, and are printed with the fewest digits that give it."""
    read = fe.program(in_function("", f"%a = constant {written} : {type_}"), strict=True)
    assert str(read).splitlines()[1].strip() == f"%a = constant {canonical} : {type_}"
    assert fe.program(str(read)) == read


def test_equality_is_of_more_than_names() -> None:
    """Constants of equal value and different kind differ, and so do flags."""
    one = in_function("", "%a = constant 1 : i32")
    assert fe.program(one) != fe.program(one.replace("1 :", "+2 :"))
    assert fe.program(one) != fe.program(one.replace("%a", "%b"))
    assert fe.program(one) == fe.program("  ; a comment\n" + one.replace(" = ", "=\n"))
    barrier = in_function("", "barrier.local")
    assert fe.program(barrier) != fe.program(barrier.replace("local", "global"))
    assert fe.program(in_function("", "%a = constant 0.0 : f32")) != fe.program(in_function("", "%a = constant -0.0 : f32"))


def test_results_can_be_seen_behind_their_instruction() -> None:
    """A name in a region does not get in the way of a result of the same name, nor of names in other regions."""
    function = fe.program(FIBONACCI).functions["fibonacci"]
    loop = function.body.operations[4]
    assert [value.name for value in loop.results] == ["fn_1", "fn"]
    inner = loop.regions[0].operations[0]
    assert inner.results[0].name == "fn"
    assert inner.results[0] is not loop.results[1]


def test_several_errors_are_told_at_once() -> None:
    """A line that fits nowhere is left out: what it defines is not reported as missing, and the rest is still checked."""
    text = in_function(
        "%a: f32, %A: memref<f32x4>",
        "axpy %a\n%x = load %A[] f32\n%y = arith.add %x, %a : f32\n%z = arith.add %a, %nothing : f32\n"
        "%w = arith.neg %z : f64\n%v = arith.neg %nothing : f32",
    )
    found = rules(text + "func @g() {\n%b = constant 1 : f32\n}")
    assert found == [
        (2, 1, "syntax"),
        (3, 16, "syntax"),
        (5, 20, "name-undefined"),
        (6, 6, "arith-operands"),
        (10, 6, "constant-type"),
    ]


def test_an_unfinished_line_is_the_one_that_is_left_out() -> None:
    """The next line's first word is where it is found out."""
    assert rules(in_function("%a: f32", "%x = arith.add %a,\n%y = arith.neg %a : f32")) == [(3, 4, "syntax")]
    assert rules(in_function("%a: f32", "%x = arith.add %a, %a :\n%y = arith.neg %x : f32")) == [(3, 1, "syntax")]


def test_at_most_twenty_errors_are_shown() -> None:
    """The others are counted."""
    text = in_function("", "\n".join(f"%{k} = constant 1 : f32" for k in range(25)))
    with pytest.raises(LanguageError) as caught:
        fe.program(text)
    assert len(caught.value.diagnostics) == 20
    assert str(caught.value).endswith("... and 5 more errors")


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("axby %a", "did you mean 'axpby'?"),
        ("%b = arith.neg %a", "the type of the result is missing: put ': T' behind the operands"),
        ("%b = alloca : memref<f32x4,local", "a type ends with '>'"),
        ("for %i = %a, %a init(%b = 1.0) -> (f32) {", "an operand is a name: put `%c = constant 1.0 : T` before"),
        ("if %a {", "a '}' is missing"),
        ("%b = add %a, %a : f32", "did you mean 'arith.add'?"),
        ("%b = exp %a : f32", "did you mean 'math.exp'?"),
        ("%a += %a", "a name is defined once: `%y = arith.add %x, %z : f32`"),
    ],
)
def test_the_usual_slips_have_hints(body: str, note: str) -> None:
    """What many write by mistake is answered with what is right."""
    with pytest.raises(LanguageError) as caught:
        fe.program(in_function("%a: f32", body))
    assert note in [n.message for n in caught.value.notes]


@pytest.mark.parametrize("language", ["tensor", "immediate"])
@pytest.mark.parametrize("comment", ["//", "#"])
def test_a_comment_of_another_language_is_named(language: str, comment: str) -> None:
    """Before a function, in it, and behind an instruction; the rest is read."""
    head = {"tensor": "func @f(%a: f32) {", "immediate": "define @f(%a: memref<f32x4>) {"}[language]
    instruction = {"tensor": "%b = arith.neg %a : f32", "immediate": "%b = alloca : memref<f32x4>"}[language]
    for text, line in (
        (f"{comment} add\n{head}\n}}", 1),
        (f"{head}\n{comment} add, as in C\n{instruction}\n}}", 2),
        (f"{head}\n{instruction} {comment} add\n}}", 2),
    ):
        with pytest.raises(LanguageError) as caught:
            fe.program(text)
        (told,) = caught.value.diagnostics
        assert (told.line, told.message) == (line, f"no comment begins with '{comment}' here; it begins with ';'")


def test_attributes_in_the_old_way_have_a_hint() -> None:
    """Earlier versions of the language wrote sizes as words of their own."""
    with pytest.raises(LanguageError, match=r"attributes\{subgroup_size=16\}"):
        fe.program("func @f() subgroup_size(16) {\n}")


def test_names_that_are_nearly_right() -> None:
    """A name that is not there leads to the nearest one."""
    with pytest.raises(LanguageError) as caught:
        fe.program(in_function("%alpha: f32", "%b = arith.neg %alhpa : f32"))
    (note,) = caught.value.notes
    assert (note.message, note.line, note.column) == ("there is %alpha", 1, 9)


def test_a_keyword_is_recognised_within_a_word() -> None:
    """As the words of types run into each other, it is the next token that is wrong."""
    assert rules("func @axpby(%B: memreff32x8x8>)") == [(1, 23, "syntax")]


def test_names_may_be_words_of_the_language() -> None:
    """Names have their sign in front; ``%1x2`` is a name, ``x`` and a number."""
    text = "func @if(%memref: memref<f32x8>, %1: index, %x: index) {\n%f32 = expand %memref[0->%1x2] : memref<f32x?x2>\n}"
    assert fe.program(text).functions["if"].body.operations[0].results[0].name == "f32"


def test_loops_of_other_types_say_so() -> None:
    """The type of loop variables is written where it is not index; equal programs can stand in a set."""
    text = "func @f(%a: i8) {\n    foreach (%i, %j): i8 = (%a, %a), (%a, %a) {\n    }\n}\n"
    assert str(fe.program(text)) == text
    assert len({fe.program(text), fe.program(text + ";")}) == 1
    assert fe.program(text) != text
    assert fe.program(text).functions["f"] != text


def test_functions_of_a_program() -> None:
    """They are found by name, in order; an only one needs none."""
    program = fe.program("func @b() {}\nfunc @0() {}")
    assert list(program.functions) == ["b", "0"]
    assert program.function("0").name == "0"
    with pytest.raises(FeinsumError, match="2 functions"):
        program.function()
    with pytest.raises(FeinsumError, match="no function 'c'; it has b, 0"):
        program.function("c")
    assert fe.program("", "tensor").functions == {}


def test_paths_and_languages(tmp_path: Path) -> None:
    """The suffix, or the first word, says which language a text is in; a path is in front of positions."""
    for suffix in ("tc", "ir"):
        path = tmp_path / f"kernels.{suffix}"
        path.write_text("func @f() {\n%a = constant 1 : f32\n}\n", encoding="utf-8")
        for given in (path, str(path)):
            with pytest.raises(LanguageError, match=rf"kernels\.{suffix}:2:6: error: "):
                fe.program(given)
    unknown = tmp_path / "kernels.txt"
    unknown.write_text("func @f() {}", encoding="utf-8")
    assert fe.program(unknown).language == "tensor"
    unknown.write_text("subroutine f() {}", encoding="utf-8")
    with pytest.raises(FeinsumError, match=r"first word of .*kernels\.txt tells its language; give language=.*--language"):
        fe.program(unknown)
    with pytest.raises(FeinsumError, match="first word of <text> tells its language"):
        fe.program("subroutine f() {}")
    with pytest.raises(FeinsumError, match="there is no language 'fortran'; known are tensor"):
        fe.program("func @f() {}", "fortran")
    (tmp_path / "binary.tc").write_bytes(b"\xff\xfe")
    with pytest.raises(FeinsumError, match="no text in UTF-8"):
        fe.program(tmp_path / "binary.tc")


def test_strange_characters_are_errors() -> None:
    """Whatever stands in a text, reading it says what is wrong, and where."""
    assert rules("func @f() {\n  $\n}") == [(2, 3, "syntax")]
    assert rules('func @f(%a: memref<f32x4> {"x\n"=1}) {}')[0] == (1, 28, "syntax")
    assert rules("func") == [(1, 5, "syntax")]
    assert rules("\x00") == [(1, 1, "syntax")]
    assert rules("func @f() {") == [(1, 12, "syntax")]
