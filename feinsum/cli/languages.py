"""``feinsum check`` and ``feinsum format``: programs in feinsum's languages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from feinsum.cli.completion import one_of
from feinsum.cli.options import json_option
from feinsum.cli.output import print_json

if TYPE_CHECKING:
    from feinsum.languages.diagnostics import Diagnostic

file_argument = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
strict_option = click.option("--strict", is_flag=True, help="Refuse what departs from the letter of the grammar.")


def _languages() -> Iterable[str]:
    from feinsum.languages.program import LANGUAGES

    return LANGUAGES


def _language(ctx: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """The name of a language."""
    if name is not None and name not in _languages():
        raise click.BadParameter(f"there is no language '{name}'; give one of {', '.join(_languages())}")
    return name


language_option = click.option(
    "--language",
    metavar="NAME",
    callback=_language,
    shell_complete=one_of(_languages),
    help="tensor, immediate or declarative; by default what the suffix or the first word says.",
)


@click.command()
@file_argument
@language_option
@strict_option
@json_option
@click.pass_context
def check(ctx: click.Context, file: Path, language: str | None, strict: bool, as_json: bool) -> None:
    """Check a program: every error and warning with its line, column and rule.

    Exits with 1 if there are errors.

    \b
    Example:
      feinsum check kernels.tc --strict
    """
    from feinsum.errors import LanguageError
    from feinsum.languages.diagnostics import counted
    from feinsum.languages.program import program

    try:
        read = program(file, language, strict)
        found, functions, more = read.diagnostics, list(read.functions), 0
    except LanguageError as error:
        found, functions, more = error.diagnostics, [], error.more
    failed = any(diagnostic.severity == "error" for diagnostic in found)
    if as_json:
        print_json({"functions": functions, "diagnostics": [_as_data(diagnostic) for diagnostic in found], "more": more})
    else:
        for diagnostic in found:
            click.echo(str(diagnostic), err=failed)
        if more:
            click.echo(f"... and {more} more errors", err=True)
        if not failed:
            click.echo(f"{file}: {counted(len(functions), 'function')}, {counted(len(found), 'warning')}")
    if failed:
        ctx.exit(1)


def _as_data(diagnostic: Diagnostic) -> dict[str, Any]:
    return dataclasses.asdict(diagnostic)


@click.command("format")
@file_argument
@language_option
@click.option("--in-place", is_flag=True, help="Write it back instead of printing it; comments are lost.")
def format_text(file: Path, language: str | None, in_place: bool) -> None:
    """Print a program in its canonical form, in which what was written shorter is spelled out.

    \b
    Example:
      feinsum format kernels.tc
    """
    from feinsum.languages.program import program

    text = str(program(file, language))
    if in_place:
        file.write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
