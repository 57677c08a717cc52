"""The rules of the tensor language: each refuses a program that breaks it, where it breaks it, and by its name."""

from __future__ import annotations

import pytest
from language_rules import assert_departure, assert_refused
from tensor_programs import ADVICE, ERRORS, EVERY_INSTRUCTION, LENIENT, Example, in_function

import feinsum as fe
from feinsum.errors import LanguageError
from feinsum.languages.tensor.checking import CHECKS
from feinsum.languages.tensor.definitions import DEFINITIONS
from feinsum.languages.tensor.interpreting import INSTRUCTIONS
from feinsum.languages.tensor.printing import show_operation
from feinsum.languages.tensor.rules import ADVICE as ADVICE_RULES
from feinsum.languages.tensor.rules import ALL, RULES
from feinsum.languages.tensor.rules import LENIENT as LENIENT_RULES
from feinsum.languages.tensor.types import SCALARS, promotable, promote

MATRIX = """
i8    1  1  1  1  1  1  1  1  1  1
i16   .  1  1  1  .  .  1  1  1  1
i32   .  .  1  1  .  .  .  1  1  1
i64   .  .  .  1  .  .  .  .  .  .
bf16  .  .  .  .  1  .  1  1  1  1
f16   .  .  .  .  .  1  1  1  1  1
f32   .  .  .  .  .  .  1  1  1  1
f64   .  .  .  .  .  .  .  1  .  1
c32   .  .  .  .  .  .  .  .  1  1
c64   .  .  .  .  .  .  .  .  .  1
"""
"""The relation matrix of the reference: a row is promotable to the columns with a 1."""
TABLE = {row.split()[0]: row.split()[1:] for row in MATRIX.strip().splitlines()}


@pytest.mark.parametrize("example", ERRORS, ids=lambda example: example.rule)
def test_a_rule_refuses_what_breaks_it(example: Example) -> None:
    """Nothing else is wrong with the example, and the error is where the example is marked."""
    assert_refused(example, "tensor")


@pytest.mark.parametrize("example", LENIENT, ids=lambda example: example.rule)
def test_departures_of_the_reference_itself(example: Example) -> None:
    """They are read with a warning, and refused by strict reading; what is printed has none."""
    assert_departure(example)


@pytest.mark.parametrize("example", ADVICE, ids=lambda example: example.rule)
def test_advice_is_a_warning(example: Example) -> None:
    """What is allowed and probably not meant passes even strict reading, and is told."""
    (warning,) = fe.program(example.text, strict=True).diagnostics
    assert (warning.severity, warning.rule) == ("warning", example.rule)
    assert (warning.line, warning.column, warning.end_line, warning.end_column) == example.place


def test_every_rule_has_an_example() -> None:
    """Rules of what happens as a program runs have theirs with the interpreter."""
    static = {rule for rule in RULES if not rule.startswith("run-")}
    assert {example.rule for example in ERRORS} == static
    assert {example.rule for example in LENIENT} == set(LENIENT_RULES)
    assert {example.rule for example in ADVICE} == set(ADVICE_RULES)
    assert len(ALL) == len(RULES) + len(LENIENT_RULES) + len(ADVICE_RULES)


def test_every_instruction_is_whole() -> None:
    """Each can be read, printed, checked and interpreted."""
    assert set(CHECKS) == set(DEFINITIONS)
    assert all({*d.reads, *d.writes} <= {*d.roles} for d in DEFINITIONS.values())
    assert set(INSTRUCTIONS) == set(DEFINITIONS) - {"yield"}  # which ends the region that executes it
    program = fe.program(EVERY_INSTRUCTION, strict=True)
    operations = [op for function in program.functions.values() for op in function.body.walk()]
    assert {operation.name for operation in operations} == set(DEFINITIONS)
    assert all(show_operation(operation) for operation in operations)


@pytest.mark.parametrize("narrow", TABLE)
@pytest.mark.parametrize("wide", TABLE)
def test_promotions(narrow: str, wide: str) -> None:
    """All of the 10 x 10, as the matrix has them: in α ≼ A, A ≼ B and β ≼ B."""
    allowed = TABLE[narrow][list(TABLE).index(wide)] == "1"
    a, b = SCALARS[narrow], SCALARS[wide]
    assert promotable(a, b) is allowed
    common = b if allowed else a if promotable(b, a) else None
    assert promote(a, b) == common
    parameters = f"%a: {narrow}, %A: memref<{narrow}x4>, %b: {narrow}, %B: memref<{wide}x4>"
    text = in_function(parameters, "axpby.n %a, %A, %b, %B")
    if allowed:
        fe.program(text)
    else:
        with pytest.raises(LanguageError) as caught:
            fe.program(text)
        assert [d.rule for d in caught.value.diagnostics] == ["promotion-result", "promotion-beta"]


def test_index_goes_with_i64() -> None:
    """The matrix leaves it out: narrower integers are promotable to it, and it to nothing else."""
    index = SCALARS["index"]
    assert [name for name, type_ in SCALARS.items() if promotable(type_, index)] == ["i8", "i16", "i32", "index"]
    assert [name for name, type_ in SCALARS.items() if promotable(index, type_)] == ["index"]


def test_errors_name_the_definition_of_operands() -> None:
    """A note leads to where a type comes from."""
    text = "func @f(%A: memref<f32x4>) {\n    %x = load %A[] : f32\n}\n"
    with pytest.raises(LanguageError) as caught:
        fe.program(text)
    (note,) = caught.value.notes
    assert (note.line, note.column, note.message) == (1, 9, "%A: memref<f32x4>")
    assert str(caught.value).splitlines() == [
        "<text>:2:10: error: 0 indices for %A, which has 1 mode [index-count]",
        "        %x = load %A[] : f32",
        "             ^^^^^^^^^^^^^^^",
        "<text>:1:9: note: %A: memref<f32x4>",
    ]
