"""``feinsum check``, ``format`` and ``run``: programs in feinsum's languages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from feinsum.cli.completion import complete_one_of
from feinsum.cli.description import Request
from feinsum.cli.options import device_option, einsum_arguments, json_option
from feinsum.cli.output import print_json, say

if TYPE_CHECKING:
    from feinsum.languages.diagnostics import Diagnostic
    from feinsum.languages.trying import TryOutcome

file_argument = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
strict_option = click.option("--strict", is_flag=True, help="Refuse departures from the letter of the grammar.")


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
    shell_complete=complete_one_of(_languages),
    help="tensor, immediate or declarative; by default as the suffix or the first word says.",
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


@click.command()
@einsum_arguments
@click.option(
    "--order",
    type=click.Choice(["F", "C"]),
    default="F",
    help="Whether the first (F) or the last (C) index of an array is the fastest in memory; F unless given.",
)
def plan(request: Request, order: str) -> None:
    """Print an einsum as loops over matrix products, a program of the immediate language.

    The order of contraction has the fewest operations, and partial results the cheapest orders of indices.

    \b
    Examples:
      feinsum plan "ikm,mjn->ijnk" --size i=8,k=9,m=10,j=11,n=12
      feinsum plan "dkl,elq,edqp->ekp" --order C --size d=3,k=56,l=56,q=9,p=9 --long e
    """
    import feinsum as fe

    click.echo(str(fe.plan(request.einsum, request.sizes, order)), nl=False)


@click.command("format")
@file_argument
@language_option
@click.option("--in-place", is_flag=True, help="Write it back instead of printing it; comments are lost.")
def format_text(file: Path, language: str | None, in_place: bool) -> None:
    """Print a program in its canonical form, in which abbreviations are spelled out.

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


def _pairs_option(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Texts of the form NAME=VALUE, several of them in one where there are commas."""
    found = {}
    for text in (part for whole in given for part in whole.split(",")):
        name, separator, value = text.partition("=")
        if not (name and separator and value):
            raise click.BadParameter(f"'{text}' is not of the form NAME=VALUE")
        found[name] = value
    return found


def _lengths_option(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    pairs = _pairs_option(ctx, parameter, given)
    for name, value in pairs.items():
        if not value.isdigit():
            raise click.BadParameter(f"the size {name} is '{value}', which is no whole number")
    return {name: int(value) for name, value in pairs.items()}


def _argument_value(name: str, text: str) -> Any:
    """An array of a file, or a number."""
    import numpy as np

    if text.endswith(".npy"):
        return np.load(text)
    if text in ("true", "false"):
        return text == "true"
    for read in (int, float, complex):
        try:
            return read(text)
        except ValueError:
            continue
    raise click.BadParameter(f"'{text}' for {name} is neither a number nor a .npy file")


@click.command()
@file_argument
@click.option("--function", metavar="NAME", help="A function of the program; not needed if there is only one.")
@click.option(
    "--count", type=click.IntRange(min=0), metavar="N", help="Number of instances; unless given it follows from the sizes."
)
@click.option("--size", "sizes", multiple=True, metavar="NAME=N", callback=_lengths_option, help="An unknown size: D.2=64.")
@click.option(
    "--arg", "given", multiple=True, metavar="NAME=VALUE", callback=_pairs_option, help="A .npy file or a number."
)
@click.option(
    "--out", "wanted", multiple=True, metavar="NAME=FILE", callback=_pairs_option, help="Where to write an array."
)
@click.option(
    "--random", "seed", type=int, default=0, metavar="SEED", help="Seed of arguments that are not given; 0 unless given."
)
@click.option("--check", "compared", is_flag=True, help="Compare with the interpreter, as without --arg.")
@click.option("--time", "timed", is_flag=True, help="Call it for a while, and print the median.")
@click.option("--route", type=click.Choice(["auto", "einsum", "general"]), default="auto", help="auto unless given.")
@click.option("--source", is_flag=True, help="Print the OpenCL C source and nothing else.")
@click.option("--ir", "stage", metavar="PASS", help="Print the function behind a pass and nothing else.")
@device_option
@language_option
@json_option
def run(
    file: Path,
    function: str | None,
    count: int | None,
    sizes: dict[str, int],
    given: dict[str, str],
    wanted: dict[str, str],
    seed: int,
    compared: bool,
    timed: bool,
    route: str,
    source: bool,
    stage: str | None,
    device: str | None,
    language: str | None,
    as_json: bool,
) -> None:
    """Run a function of a program.

    Without --arg its arguments are random, and its results are compared with the interpreter's.

    \b
    Examples:
      feinsum run kernels.tc --function fused --count 1000 --time
      feinsum run kernels.tc --arg A=a.npy --arg alpha=2.0 --out D=d.npy
    """
    import numpy as np

    from feinsum.errors import ValidationError
    from feinsum.languages.building import build
    from feinsum.languages.program import program
    from feinsum.languages.trying import try_out

    read = program(file, language)
    if source or stage:
        built = build(read, function, device, route=route)
        say(built.ir(stage) if stage else built.source)
        return
    arguments = {name: _argument_value(name, text) for name, text in given.items()}
    trial = try_out(
        read, function, device=device, route=route, count=count, sizes=sizes, arguments=arguments, seed=seed,
        check=compared or not given, timed=timed,
    )  # fmt: skip
    for name, path in wanted.items():
        if name not in trial.results:
            raise ValidationError(f"@{trial.built.function} does not write %{name}; it writes {', '.join(trial.results)}")
        np.save(path, trial.results[name])
    if as_json:
        print_json(_trial_as_data(trial))
    else:
        _print_trial(trial)


def _trial_as_data(trial: TryOutcome) -> dict[str, Any]:
    shapes = {
        name: [list(one.shape) for one in value] if isinstance(value, list) else list(value.shape)
        for name, value in trial.results.items()
    }
    return {
        "function": trial.built.function,
        "device": trial.built.device.id,
        "route": trial.built.route,
        "written": shapes,
        "deviation": trial.deviation,
        "median_s": trial.median_s,
        "samples_s": list(trial.samples_s),
    }


_MOST_SHOWN = 64
"""Elements of an array that is printed."""


def _print_trial(trial: TryOutcome) -> None:
    import numpy as np

    from feinsum.report.figures import duration

    say(trial.built.explain())
    with np.printoptions(precision=6):
        for name, value in trial.results.items():
            shown = value if isinstance(value, list) else [value]
            for number, one in enumerate(shown[:2]):
                place = f"[{number}]" if isinstance(value, list) else ""
                say(f"%{name}{place}: {one.dtype} of {'x'.join(map(str, one.shape)) or 'one element'}")
                if one.size <= _MOST_SHOWN:
                    say(one)
    if trial.deviation is not None:
        say(
            f"compared with the interpreter: the largest difference is {trial.deviation:.2g}, relative to the largest value"
        )
    if trial.median_s is not None:
        say(f"median of {len(trial.samples_s)} calls: {duration(trial.median_s)}")
