"""The rules of the immediate language: each refuses a program that breaks it, where it breaks it, and by its name."""

from __future__ import annotations

import pytest
from immediate_programs import ADVICE, ERRORS, LENIENT, SAMPLE
from language_rules import assert_departure, assert_refused
from tensor_programs import Example

import feinsum as fe
from feinsum.errors import LanguageError
from feinsum.languages.immediate.rules import ADVICE as ADVICE_RULES
from feinsum.languages.immediate.rules import ALL, RULES, SCHEDULES
from feinsum.languages.immediate.rules import LENIENT as LENIENT_RULES


@pytest.mark.parametrize("example", ERRORS, ids=lambda example: example.rule)
def test_a_rule_refuses_what_breaks_it(example: Example) -> None:
    """Nothing else is wrong with the example, and the error is where the example is marked."""
    assert_refused(example, "immediate")


@pytest.mark.parametrize("example", LENIENT, ids=lambda example: example.rule)
def test_departures_of_the_document_itself(example: Example) -> None:
    """They are read with a warning, and refused by strict reading; what is printed has none."""
    assert_departure(example)


@pytest.mark.parametrize("example", ADVICE, ids=lambda example: example.rule)
def test_advice_is_a_warning(example: Example) -> None:
    """What is allowed and probably not meant passes even strict reading, and is told."""
    warnings = fe.program(example.text, "immediate", strict=True).diagnostics
    assert {w.rule for w in warnings} == {example.rule}
    first = warnings[0]
    assert (first.line, first.column, first.end_line, first.end_column) == example.place


def test_every_rule_has_an_example() -> None:
    """And none has two names."""
    assert {example.rule for example in ERRORS} == set(RULES)
    assert {example.rule for example in LENIENT} == set(LENIENT_RULES)
    assert {example.rule for example in ADVICE} == set(ADVICE_RULES)
    assert len(ALL) == len(RULES) + len(LENIENT_RULES) + len(ADVICE_RULES) + len(SCHEDULES)


def test_the_sample_of_the_document_in_strict_mode() -> None:
    """The error is at the type, leads to the alloca, and says what to write."""
    text = Example("", SAMPLE).text
    with pytest.raises(LanguageError) as caught:
        fe.program(text, strict=True)
    assert str(caught.value).splitlines() == [
        "<text>:9:45: error: %tmp0 is memref<f32x16x8>, not memref<f32x8x16> [lenient-type]",
        "         : memref<f32x16x8>, memref<f32x8x8> to memref<f32x8x16>",
        "                                                ^^^^^^^^^^^^^^^^",
        "<text>:7:3: note: %tmp0 is defined here",
        "note: write memref<f32x16x8>",
    ]


FIXES = {
    "integer-range", "constant-form", "name-redefined", "function-redefined", "type-void", "memref-length", "stride-count",
    "stride-order", "distance", "map-modifiers", "loop-everywhere", "operand-type", "alloca-type", "subview-type",
    "for-type", "for-range", "lenient-type",
}  # fmt: skip
"""The rules where it is known what to write instead."""


@pytest.mark.parametrize("example", [*ERRORS, LENIENT[0]], ids=lambda example: example.rule)
def test_a_refusal_says_what_to_do(example: Example) -> None:
    """In a note; and what is to be written in the place of what is marked breaks no rule there."""
    with pytest.raises(LanguageError) as caught:
        fe.program(example.text, "immediate", strict=True)
    texts = [note.message for note in caught.value.notes]
    assert texts or example.rule == "syntax", str(caught.value)
    fixes = [text.removeprefix("write ") for text in texts if text.startswith("write ")]
    assert (example.rule in FIXES) == bool(fixes)
    for fix in fixes:
        before, _, rest = example.marked.partition("⟦")
        mended = before + fix + rest.partition("⟧")[2]
        assert not fe.program(mended, "immediate", strict=True).diagnostics


def test_independent_errors_are_said_at_once() -> None:
    """What fits nowhere is left out, and what depends on a name that is unknown is not wrong again."""
    text = """define @f(%a: memref<f32x4>, %b: memref<f32x4>) {
  %c = aloca : memref<f32x4>
  axpby {i to i} 1.0, %a, 0.0, %c : memref<f32x4> to memref<f32x4>
  axpby {i i} 1.0, %a, 0.0, %b : memref<f32x4> to memref<f32x4>
  axpby {j to j} 1.0, %a, 0.0, %d : memref<f32x4> to memref<f32x4>
  sun {ij to i} 1.0, %a, 0.0, %b : memref<f32x4> to memref<f32x4>
  sum {ij to i} 1.0, %a, 0.0, %b : memref<f32x4> to memref<f32x4>
}
"""
    with pytest.raises(LanguageError) as caught:
        fe.program(text)
    found = [(d.line, d.rule) for d in caught.value.diagnostics]
    assert found == [(2, "syntax"), (4, "syntax"), (5, "name-undefined"), (6, "syntax"), (7, "map-order")]
    notes = [str(note) for d in caught.value.diagnostics for note in d.notes]
    assert notes[1].startswith("note: a map has the word 'to'")
    assert "note: did you mean 'sum'?" in notes
