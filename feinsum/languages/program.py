"""Programs: text in one of feinsum's languages, read and checked; `program(text)` is where every language begins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from feinsum.errors import FeinsumError
from feinsum.languages.calling.protocols import Language
from feinsum.languages.diagnostics import Diagnostic, recursion_guard
from feinsum.languages.source import SourceText

if TYPE_CHECKING:
    from feinsum.languages import declarative, immediate, tensor

    _complete: tuple[Language, ...] = (tensor, declarative, immediate)  # each package offers what a language has to


@dataclass(frozen=True)
class KnownLanguage:
    """A language: how its texts are recognised, and the package that reads them, imported when it is needed."""

    name: str
    suffixes: tuple[str, ...]
    beginning: str
    """A regular expression for what texts begin with."""
    package: str

    def load(self) -> Language:
        """The package that implements it."""
        return cast("Language", import_module(self.package))


_BLANK: Final = r"(?:\s|(?:;|//|#)[^\n]*(?:\n|\Z))*"
"""Blanks and comments, also those of other languages, which the language then refuses by name."""
LANGUAGES: Final = {
    language.name: language
    for language in (
        KnownLanguage("tensor", (".tc", ".ir"), rf"{_BLANK}func\b", "feinsum.languages.tensor"),
        KnownLanguage("declarative", (".decl",), rf"{_BLANK}[A-Za-z_]\w*\s*[:=]", "feinsum.languages.declarative"),
        KnownLanguage("immediate", (".imm",), rf"{_BLANK}define\b", "feinsum.languages.immediate"),
    )
}


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A program that was read and checked.

    :ivar language: the name of its language.
    :ivar functions: its functions by name, in the order of the text.
    :ivar diagnostics: warnings, in the order of the text.
    :ivar source: the text as it was given, and its name.
    """

    language: str
    functions: Mapping[str, Any]
    diagnostics: tuple[Diagnostic, ...] = ()
    source: SourceText = field(default_factory=lambda: SourceText(""))

    def __str__(self) -> str:
        """The canonical text, from which :func:`program` makes an equal program."""
        with recursion_guard(self.source):
            return LANGUAGES[self.language].load().show(tuple(self.functions.values()))

    def __repr__(self) -> str:
        return f"Program(language={self.language!r}, functions={list(self.functions)}, warnings={len(self.diagnostics)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        mine, others = tuple(self.functions.values()), tuple(other.functions.values())
        return self.language == other.language and mine == others

    def __hash__(self) -> int:
        return hash((self.language, *self.functions))

    def function(self, name: str | None = None) -> Any:
        """A function by name, or the only one.

        :raises FeinsumError: if there is none of that name, or several and no name was given.
        """
        known = ", ".join(self.functions) or "none"
        if name is None:
            if len(self.functions) != 1:
                raise FeinsumError(f"the program has {len(self.functions)} functions ({known}); say which one is meant")
            (found,) = self.functions.values()
            return found
        if name not in self.functions:
            raise FeinsumError(f"the program has no function {name!r}; it has {known}")
        return self.functions[name]

    def subject(self, sizes: Mapping[str, int] | None) -> Any:
        """The subject that :func:`feinsum.autotune` tunes: the program at these lengths; see
        :class:`feinsum.tune.subject.Tunable`.

        :raises FeinsumError: if its language has nothing to tune.
        """
        subject_at = LANGUAGES[self.language].load().subject_at
        if subject_at is None:
            raise FeinsumError(
                f"programs of the {self.language} language have no numbers to tune; their einsums have spaces"
            )
        return subject_at(self.function(), self.source, dict(sizes or {}), self.source.name)

    def interpret(
        self,
        function: str | None = None,
        /,
        *others: Any,
        count: int | None = None,
        subgroup_size: int | None = None,
        work_group_size: tuple[int, int] | None = None,
        **arguments: Any,
    ) -> Any:
        """Execute a function with numpy, one instance after the other: slowly, and with every index and promise checked.

        :param count: the number of instances; by default what unknown sizes of the parameters that the group id is an index
            of say, or 1.
        :param subgroup_size: work-items of a sub-group, where the function does not say.
        :param work_group_size: work-items of a work-group in two dimensions, where the function does not say.
        :param arguments: a value for each parameter; arrays of the host of any library, with the shapes of their memrefs; a
            group is a list of them.
        :returns: the arrays that were written, which are changed in place: one of them, or a tuple in order of declaration.
        :raises ValidationError, ShapeError, DTypeError: naming the argument that does not fit, as where it is built.
        :raises LanguageError: if the program does what its language leaves undefined.
        """
        from feinsum.languages.calling.adapter import call_with_foreign_arrays, refuse_device_arrays
        from feinsum.languages.calling.arguments import check_count, refuse_positions

        if others or not (function is None or isinstance(function, str)):
            refuse_positions([p.name for p in self.function(function if isinstance(function, str) else None).parameters])
        if count is not None:
            check_count(count)
        language, found = LANGUAGES[self.language].load(), self.function(function)
        sizes = {"subgroup_size": subgroup_size, "work_group_size": work_group_size}

        def run(given: Mapping[str, Any], out: Any) -> Any:
            with recursion_guard(self.source):
                return language.interpret(found, self.source, given, count, sizes)

        refuse_device_arrays(arguments)
        return call_with_foreign_arrays(run, arguments, None, language.signature(found).written)[0]


def program(text_or_path: str | PathLike[str], language: str | None = None, strict: bool = False) -> Program:
    """Read and check a program.

    >>> p = program("func @double(%x: memref<f32x8>) { %two = constant 2.0 : f32  %z = constant 0.0 : f32 axpby.n %two,%x,%z,%x }")
    >>> p.language, list(p.functions)
    ('tensor', ['double'])
    >>> print(p, end="")
    func @double(%x: memref<f32x8>) {
        %two = constant 2.0 : f32
        %z = constant 0.0 : f32
        axpby.n %two, %x, %z, %x
    }

    :param text_or_path: the text, or the path of a file; a string is a path if it ends with the suffix of a language.
    :param language: ``"tensor"``, ``"immediate"`` or ``"declarative"``; by default what the suffix or the first word says.
    :param strict: refuse what departs from the letter of the grammar, which otherwise is accepted with a warning.
    :raises LanguageError: with every error of the text.
    :raises FeinsumError: if neither the suffix nor the first word tells the language.
    """  # noqa: E501
    source, suffix = _source_text(text_or_path)
    chosen = _choose_language(source, suffix, language)
    with recursion_guard(source):
        functions, warnings = chosen.load().read(source, strict)
    return Program(chosen.name, MappingProxyType({f.name: f for f in functions}), warnings, source)


def _source_text(text_or_path: str | PathLike[str]) -> tuple[SourceText, str]:
    suffixes = tuple(suffix for language in LANGUAGES.values() for suffix in language.suffixes)
    if isinstance(text_or_path, str) and ("\n" in text_or_path or not text_or_path.endswith(suffixes)):
        return SourceText(text_or_path), ""
    path = Path(fspath(text_or_path))
    try:
        return SourceText(path.read_text(encoding="utf-8-sig"), str(text_or_path)), path.suffix
    except UnicodeDecodeError as error:
        raise FeinsumError(f"{path} is no text in UTF-8: {error}") from error


def _choose_language(source: SourceText, suffix: str, name: str | None) -> KnownLanguage:
    known = ", ".join(LANGUAGES)
    if name is not None:
        if name not in LANGUAGES:
            raise FeinsumError(f"there is no language {name!r}; known are {known}")
        return LANGUAGES[name]
    languages = LANGUAGES.values()
    by_suffix = (language for language in languages if suffix in language.suffixes)
    by_beginning = (language for language in languages if re.match(language.beginning, source.text))
    found = next(by_suffix, None) or next(by_beginning, None)
    if found is None:
        raise FeinsumError(
            f"neither the suffix nor the first word of {source.name} tells its language;"
            f" give language=, on the command line --language, one of {known}"
        )
    return found
