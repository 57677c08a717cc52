"""The rooms that all languages share: spans and excerpts, tables of grammars, and what is imported when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensor_programs import EVERY_INSTRUCTION

import feinsum as fe
from feinsum.errors import LanguageError
from feinsum.languages import scanning
from feinsum.languages.diagnostics import Findings
from feinsum.languages.scanning import UNKNOWN, Grammar, Token, UnexpectedTokenError
from feinsum.languages.source import SourcePosition, SourceText, Span

SUMS = """
start: "let" NAME "=" sum
sum: product ("+" product)*
product: NUMBER | NAME
NUMBER: /[0-9]+/
NAME: /[a-z]+/
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory in which tables are remembered."""
    monkeypatch.setattr(scanning, "cache_directory", lambda: tmp_path)
    return tmp_path / "grammars"


def value_of(grammar: Grammar, text: str) -> Any:
    actions = {
        "product": lambda parts, start, end: int(parts[0].text) if parts[0].kind == "NUMBER" else parts[0].text,
        "sum": lambda parts, start, end: (parts, start, end),
        "start": lambda parts, start, end: (parts[0].text, *parts[1]),
    }
    return grammar.parse(grammar.scan(text), actions)


def test_a_grammar_is_parsed_with_places(cache: Path) -> None:
    """Quoted words are dropped, comments ignored, and rules know where they begin and end."""
    text = "let y = ; a comment\n  1 + x+30"
    assert value_of(Grammar("sums", SUMS, "start"), text) == ("y", [1, "x", 30], text.index("1"), len(text))


def test_tables_are_remembered_as_data(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time no grammar is analysed; a file that is not whole, or of another grammar, is no help."""
    assert value_of(Grammar("sums", SUMS, "start"), "let y = 1")[1] == [1]
    (stored,) = cache.iterdir()
    assert set(json.loads(stored.read_text())) >= {"moves", "jumps", "productions"}

    def refuse(text: str, start: str) -> Any:
        raise AssertionError("analysed again")

    with monkeypatch.context() as patch:
        patch.setattr(scanning, "analyse", refuse)
        assert value_of(Grammar("sums", SUMS, "start"), "let y = 1 + 2")[1] == [1, 2]
        with pytest.raises(AssertionError, match="analysed again"):
            _ = Grammar("sums", SUMS.replace("+", "-"), "start").tables
    stored.write_text(stored.read_text()[:100])
    assert value_of(Grammar("sums", SUMS, "start"), "let y = 3")[1] == [3]
    assert json.loads(stored.read_text())["start"] == Grammar("sums", SUMS, "start").tables.start


def test_unexpected_tokens_say_what_would_fit(cache: Path) -> None:
    """Also at the end, and where a character belongs to no token."""
    grammar = Grammar("sums", SUMS, "start")
    for text, at, kind in (("let y = +", 8, "PLUS"), ("let y =", 7, "$END"), ("let y = 1 ? 2", 10, UNKNOWN)):
        with pytest.raises(UnexpectedTokenError) as caught:
            value_of(grammar, text)
        assert (caught.value.token.start, caught.value.token.kind) == (at, kind)
    assert caught.value.expected == {"PLUS", "$END"}


def test_places_count_from_one() -> None:
    """The last character of a span is its own; an empty span is a place too."""
    source = SourceText("ab\n\ncd\n")
    assert source.place(Span(1, 5)) == SourcePosition(1, 2, 3, 1)
    assert source.place(Span(7, 7)) == SourcePosition(4, 1, 4, 1)
    assert Token("NAME", "abc", 5).end == 8


def test_excerpts_keep_tabs_and_end_with_the_line() -> None:
    """So that carets stand below what is meant, whatever width a tab has."""
    source = SourceText("\tab\tcd\r\nef")
    assert source.excerpt(Span(4, 6)) == "\tab\tcd\n\t  \t^^"
    assert source.excerpt(Span(4, 10)) == "\tab\tcd\n\t  \t^^"
    assert source.excerpt(Span(9, 9)) == "ef\n ^"


def test_an_error_has_the_attributes_of_its_first_diagnostic() -> None:
    """It is a ValueError, as it is about a value that was given."""
    findings = Findings(SourceText("one\ntwo", "file.tc"))
    findings.warn("advice", Span(0, 3), "odd")
    findings.error("second", Span(4, 7), "worse", [findings.note("see here", Span(0, 1))])
    findings.error("first", Span(0, 3), "wrong")
    findings.error("first", Span(0, 3), "wrong")
    with pytest.raises(ValueError, match=r"file\.tc:1:1: error: wrong \[first\]") as caught:
        findings.raise_errors()
    error = caught.value
    assert isinstance(error, LanguageError)
    assert isinstance(error, fe.FeinsumError)
    assert (error.rule, error.line, error.column, error.end_line, error.end_column, error.notes) == (
        "first",
        1,
        1,
        1,
        3,
        (),
    )
    assert [d.rule for d in error.diagnostics] == ["first", "second"]
    assert str(error.diagnostics[1]).splitlines() == [
        "file.tc:2:1: error: worse [second]",
        "    two",
        "    ^^^",
        "file.tc:1:1: note: see here",
    ]
    assert [d.severity for d in findings.warnings] == ["warning"]


def test_lark_is_imported_for_new_grammars_only(tmp_path: Path) -> None:
    """`import feinsum` loads neither lark nor a language; the first program does, and the next process needs no lark."""
    script = (
        "import sys, feinsum\n"
        "def loaded(): return [n for n in ('lark', 'feinsum.languages', 'pyopencl', 'loopy') if n in sys.modules]\n"
        "print(loaded()); feinsum.program(sys.argv[1]); print(loaded())"
    )
    environment = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    for expected in (["lark", "feinsum.languages"], ["feinsum.languages"]):
        command = [sys.executable, "-c", script, EVERY_INSTRUCTION]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=120)
        assert done.stdout.splitlines() == ["[]", str(expected)]
