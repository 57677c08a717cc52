"""Random programs of the tensor language: printed and read back, interpreted beside numpy, and broken at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tensor_programs import programs
from tensor_programs import EVERY_INSTRUCTION, arguments_for

import feinsum as fe
from feinsum.errors import LanguageError
from feinsum.languages.tensor.types import SCALARS, TensorScalar

LIGHT = settings(max_examples=40, deadline=None)


@LIGHT
@given(programs())
def test_random_programs_are_printed_and_read_back(text: str) -> None:
    """What is right is read without errors, even by strict reading, and its canonical text is the same program."""
    read = fe.program(text, strict=True)
    again = fe.program(str(read), strict=True)
    assert again == read
    assert str(again) == str(read)


@LIGHT
@given(programs(), st.integers(0, 2**32 - 1))
def test_random_programs_run_the_same_way_twice(text: str, seed: int) -> None:
    """The program, and the one that was printed and read back, leave the same in memory, bit by bit."""
    outcomes = []
    first = fe.program(text)
    for program in (first, fe.program(str(first))):
        function = program.function()
        arguments = arguments_for(function, np.random.default_rng(seed), 3)
        outcome = program.interpret(count=2, subgroup_size=4, work_group_size=(8, 1), **arguments)
        outcomes.append([np.asarray(array).tobytes() for array in (outcome if isinstance(outcome, tuple) else (outcome,))])
    assert outcomes[0] == outcomes[1]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_is_done_to_a_text_gives_language_errors(data: st.DataObject) -> None:
    """Characters and lines are dropped, doubled and swapped: the errors are in the text, and no other is raised."""
    lines = EVERY_INSTRUCTION.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.integers(0, 4)):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, data.draw(st.sampled_from(lines)))
            case 2:
                words = lines[at].split(" ")
                words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.sampled_from(lines)).split(" ")[-1]
                lines[at] = " ".join(words)
            case 3:
                cut = data.draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:cut] + data.draw(
                    st.sampled_from(["", "}", "{", "%", "x", "?", "1e999", "\x00", "é"])
                )
            case _:
                lines[at] = lines[at].replace(
                    *data.draw(st.sampled_from([("f32", "i8"), ("%A", "%x"), ("4", "0"), (".n", "")]))
                )
        lines = lines or [""]
    text = "\n".join(lines)
    try:
        fe.program(text, "tensor")
    except LanguageError as error:
        for diagnostic in error.diagnostics:
            assert 1 <= diagnostic.line <= len(lines) + 1
            assert 1 <= diagnostic.column <= max(map(len, lines)) + 1
            assert (diagnostic.line, diagnostic.column) <= (diagnostic.end_line, diagnostic.end_column)


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, dict[str, Any], Any]:
    """A batch of chains of products, its arguments, and what numpy makes of them: sums of α op(A) op(B) op(C) + β D."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    type_ = SCALARS[draw(st.sampled_from(["f32", "f64", "c32", "c64", "i32"]))]
    m, n, k, q, elements = (draw(st.integers(1, 5)) for _ in range(5))
    turned = [draw(st.booleans()) for _ in range(3)]
    unknown = draw(st.booleans())
    padding = draw(st.integers(0, 2))
    shapes = [(m, k), (k, q), (q, n)]
    arrays = [_random(type_, shape[::-1] if turn else shape, rng) for shape, turn in zip(shapes, turned, strict=True)]
    batch = [_random(type_, arrays[0].shape, rng) for _ in range(elements)]
    D = _random(type_, (m, n, elements), rng)
    alpha, beta = _random(type_, (), rng)[()], _random(type_, (), rng)[()]
    rows, columns = arrays[0].shape
    stride = f",strided<1,{rows + padding}>" if padding else ""
    one = "1" if type_.is_integer else "[1.0,0.0]" if type_.is_complex else "1.0"
    b = [f"memref<{type_}x{'x'.join(map(str, array.shape))}>" for array in arrays]
    signs = [".t" if turn else ".n" for turn in turned]
    modes = f"{m}x{n}x?" if unknown else f"{m}x{n}x{elements}"
    text = f"""
    func @chain(%alpha: {type_}, %beta: {type_}, %A: group<memref<{type_}x{rows}x{columns}{stride}>x?>,
                %B: {b[1]}, %C: {b[2]}, %D: memref<{type_}x{modes}>) {{
        %id = builtin.group_id : index
        %a = load %A[%id] : memref<{type_}x{rows}x{columns}{stride}>
        %d = subview %D[0:{m}, 0:{n}, %id] : memref<{type_}x{m}x{n}>
        %T = alloca : memref<{type_}x{m}x{q},local>
        %one = constant {one} : {type_}
        %zero = arith.sub %one, %one : {type_}
        gemm{signs[0]}{signs[1]} %one, %a, %B, %zero, %T
        gemm.n{signs[2]} %alpha, %T, %C, %beta, %d
    }}"""
    letters = ["ki" if turned[0] else "ik", "qk" if turned[1] else "kq", "jq" if turned[2] else "qj"]
    wide = np.dtype("int64" if type_.is_integer else "complex128" if type_.is_complex else "float64")
    operands = [np.array(batch).astype(wide), arrays[1].astype(wide), arrays[2].astype(wide)]
    product = np.einsum(f"e{letters[0]},{letters[1]},{letters[2]}->ije", *operands)
    expected = wide.type(alpha) * product + wide.type(beta) * D.astype(wide)
    return text, {"alpha": alpha, "beta": beta, "A": batch, "B": arrays[1], "C": arrays[2], "D": D}, expected


def _random(type_: TensorScalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    values = rng.integers(-5, 6, shape) if type_.is_integer else rng.standard_normal(shape)
    if type_.is_complex:
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values).astype({"f32": "f4", "f64": "f8", "c32": "c8", "c64": "c16", "i32": "i4"}[type_.name])


@LIGHT
@given(chains())
def test_chains_of_products_are_einsums(chain: tuple[str, dict[str, Any], Any]) -> None:
    """Transposed or not, padded or not, of known or unknown sizes, the batch in a group and in a mode."""
    text, arguments, expected = chain
    tolerance = 1e-4 if arguments["D"].dtype in (np.float32, np.complex64) else 1e-12
    result = fe.program(text).interpret(**arguments)
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * 100)
