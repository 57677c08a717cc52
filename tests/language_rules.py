"""What the rules of any of the languages have to show: an example is refused where it is marked, or read leniently."""

from __future__ import annotations

import pytest
from tensor_programs import Example

import feinsum as fe
from feinsum.errors import LanguageError


def assert_refused(example: Example, language: str) -> None:
    """An example breaks its rule and no other one, and the error is where it is marked."""
    with pytest.raises(LanguageError) as caught:
        fe.program(example.text, language)
    error = caught.value
    assert [d.rule for d in error.diagnostics] == [example.rule], str(error)
    assert (error.line, error.column, error.end_line, error.end_column) == example.place, str(error)


def assert_departure(example: Example) -> None:
    """An example is read with a warning, and refused by strict reading; what is printed of it has no warning."""
    read = fe.program(example.text)
    (warning,) = read.diagnostics
    assert (warning.severity, warning.rule) == ("warning", example.rule)
    assert (warning.line, warning.column, warning.end_line, warning.end_column) == example.place
    with pytest.raises(LanguageError) as caught:
        fe.program(example.text, strict=True)
    assert caught.value.rule == example.rule
    assert not fe.program(str(read), strict=True).diagnostics
