"""Directives whose content writes itself: of commands, spaces, rooms, results and languages.

Each directive makes reStructuredText of what is registered or lies in a folder, so that what is new appears by itself.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from configparser import ConfigParser
from dataclasses import is_dataclass
from itertools import groupby
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from benchmarks.rows import Row, best_peer, fraction, geometric_mean, headline, read_rows, speed_up
from feinsum.parameters import described_fields

if TYPE_CHECKING:
    from feinsum.space import TransformSpace

ROOT = Path(__file__).parents[1]


class Written(SphinxDirective):
    """A directive whose content is the lines of :meth:`write`."""

    def write(self) -> Iterator[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        lines = [line for text in self.write() for line in text.splitlines() or [""]]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class Effects(Written):
    """What feinsum changes of the process."""

    def write(self) -> Iterator[str]:
        from feinsum.effects import EFFECTS

        for (until, why, of), effects in groupby(EFFECTS, lambda effect: (effect.until, effect.why, effect.of)):
            text = re.sub("`([^`]+)`", r"``\1``", f"Until {until}: {why}{f' ({of})' * bool(of)}.")
            yield from (", ".join(f"``{effect.place}``" for effect in effects), f"    {text}")


class Commands(Written):
    """Every command of the command line: what its help says, its options and its examples."""

    def write(self) -> Iterator[str]:
        from feinsum.cli import cli

        yield from _command(cli, ("feinsum",))


def _command(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    title = " ".join(path)
    yield from ("", f".. _command-{'-'.join(path)}:", "", title, ("-" if len(path) < 3 else "^") * len(title), "")
    context = click.Context(command, info_name=title)
    yield from (".. code-block:: text", "", f"   {' '.join(context.get_usage().split()[1:])}", "")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from _paragraph(paragraph)
    yield from (f".. program:: {title}", "")
    for option in command.params:
        if isinstance(option, click.Option):
            metavar = f" {option.make_metavar(context)}" if not option.is_flag else ""
            yield from (".. option:: " + ", ".join(name + metavar for name in option.opts), "", f"   {option.help}", "")
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _command(child, (*path, name))


def _paragraph(text: str) -> Iterator[str]:
    """A paragraph of help; one that click does not wrap is a heading and lines of code."""
    if not text.startswith("\b"):
        yield from (re.sub(r"(?<![\w`])--[a-z]+", r"``\g<0>``", text), "")
        return
    heading, *lines = text.splitlines()[1:]
    language = "console" if heading.startswith("Example") else "text"
    shown = inspect.cleandoc("\n".join(lines)).splitlines()
    yield from (heading, "", f".. code-block:: {language}", "")
    yield from (f"   {'$ ' if language == 'console' else ''}{line}" for line in shown)
    yield ""


class TransformSpaces(Written):
    """Every transform space that comes with feinsum, by file, with the source of the file."""

    def write(self) -> Iterator[str]:
        from feinsum.registry import spaces

        ours = [s for s in spaces() if s.function.__module__.startswith("feinsum.transforms.")]
        for name, group in groupby(sorted(ours, key=_module), _module):
            file = f"{name.removeprefix('feinsum.').replace('.', '/')}.py"
            self.env.note_dependency(str(ROOT / file))
            yield from ("", file, "-" * len(file), "", inspect.getdoc(sys.modules[name]) or "")
            for space in sorted(group, key=lambda s: inspect.getsourcelines(s.function)[1]):
                yield from _space(space)
            yield from (".. raw:: html", "", f"   <details><summary>Source of {file}</summary>", "")
            yield from (f".. literalinclude:: /../{file}", "", ".. raw:: html", "", "   </details>", "")


class Skeletons(Written):
    """Every skeleton: what its room says, its plan with what every field means, and its writer."""

    def write(self) -> Iterator[str]:
        rooms = sorted(path.parent.name for path in (ROOT / "feinsum" / "skeletons").glob("*/write.py"))
        for name in rooms:
            room = importlib.import_module(f"feinsum.skeletons.{name}")
            yield from ("", name, "-" * len(name), "", inspect.getdoc(room) or "", "")
            for exported in getattr(room, "__all__", ()):
                yield from _exported(room.__name__, exported, getattr(room, exported))


class KernelParameters(Written):
    """Every parameter of a space on a skeleton by the word that it belongs to, with the spaces that have it."""

    def write(self) -> Iterator[str]:
        from feinsum.registry import spaces

        found: dict[str, dict[tuple[str, str], list[str]]] = {}
        for space in spaces():
            for name, meanings in space.described.items():
                for meaning in meanings:
                    owners = found.setdefault(meaning.word, {}).setdefault((name, meaning.prose), [])
                    owners.append(f":ref:`{space.name} <space-{space.name}>`")
        for word in sorted(found):
            yield f":term:`{word}`"
            for (name, prose), owners in found[word].items():
                yield from (f"    ``{name}`` of {', '.join(owners)}.", f"        {prose}", "")


def _exported(room: str, name: str, value: Any) -> Iterator[str]:
    if inspect.isfunction(value):
        yield from (f".. autofunction:: {room}.{name}", "")
    elif is_dataclass(value):
        yield from (f".. autoclass:: {room}.{name}", "   :exclude-members: __init__, __new__", "")
        for field_name, meaning in described_fields(value).items():
            decides = f" ({', '.join(f'``{p}``' for p in meaning.names)})" if meaning.names else ""
            yield from (f"``{field_name}``, :term:`{meaning.word}`{decides}", f"    {meaning.prose}", "")


def _module(space: TransformSpace) -> str:
    return space.function.__module__


def _space(space: TransformSpace) -> Iterator[str]:
    yield from ("", f".. _space-{space.name}:", "", space.name, "^" * len(space.name), "")
    yield from (inspect.cleandoc(space.description), "")
    yield from (f"Matches {_matches(space)}.  Version {space.version}, rank {space.rank}.", "")
    for name, meanings in space.described.items():
        words = ", ".join(dict.fromkeys(f":term:`{meaning.word}`" for meaning in meanings))
        yield from (f"``{name}``, {words}", f"    {' '.join(meaning.prose for meaning in meanings)}", "")


def _matches(space: TransformSpace) -> str:
    if not callable(space.patterns):
        return ", ".join(f"``{pattern}``" for pattern in space.patterns) + (", axes in any order" if space.longest else "")
    if space.rank == 0:
        return "every einsum"
    said = " ".join((inspect.getdoc(space.patterns) or "").partition("\n\n")[0].split()).rstrip(".")
    return f"what ``{space.patterns.__name__}`` accepts" + (f": {said[0].lower()}{said[1:]}" if said else "")


class Rooms(Written):
    """The layers of ``setup.cfg``, topmost first, with what their modules say of themselves."""

    def write(self) -> Iterator[str]:
        settings = ConfigParser()
        settings.read(ROOT / "setup.cfg")
        for layer in settings["importlinter:contract:rooms"]["layers"].split("\n"):
            for name in re.findall(r"\w+", layer):
                text = inspect.getdoc(importlib.import_module(f"feinsum.{name}")) or ""
                yield from (f"``{name}``", f"    {' '.join(text.partition(chr(10) * 2)[0].split())}", "")


class Results(Written):
    """The results of a device in benchmarks/results: a summary, a plot, and the five slowest compared with the best peer.

    The content has a line for each of the five, ``case type: reason``; another set of cases is an error, so that a page
    never explains another run.  The option ``plot`` names the picture in the folder.
    """

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"plot": directives.unchanged_required}

    def write(self) -> Iterator[str]:
        folder = ROOT / "benchmarks" / "results" / self.arguments[0]
        files = {path: _compared(path.with_suffix(".jsonl")) for path in sorted(folder.glob("*.rst"))}
        for path in files:
            self.env.note_dependency(str(path))
        handicapped = any(row["side"] == "cpu" and row["date"] < _REPEALED for rows in files.values() for row in rows)
        yield from (
            _FIGURES + handicapped * _HANDICAP,
            "",
            ".. csv-table::",
            f"   :header: {_RESULTS}",
            "   :class: results",
            "",
        )
        yield from (f"   {_csv(_summary(path, rows))}" for path, rows in files.items() if rows)
        others = ", ".join(_report(path) for path, rows in files.items() if not rows)
        yield from ("", f"Reports with other figures: {others}." if others else "")
        place = f"/../benchmarks/results/{self.arguments[0]}"
        yield from ("", f".. image:: {place}/{self.options['plot']}", f"   :alt: {_PLOT}", "")
        slowest = sorted((row for rows in files.values() for row in rows), key=lambda row: speed_up(row) or inf)[:5]
        reasons = dict(line.split(": ", 1) for line in self.content if line)
        if {_named(row) for row in slowest} != set(reasons):
            raise self.error(f"the five slowest are now {', '.join(map(_named, slowest))}: explain these")
        yield from (
            ".. csv-table:: The five slowest compared with the best peer",
            f"   :header: {_SLOWEST}",
            "   :class: results",
            "",
        )
        for row in slowest:
            figures = (row["case"], f"``{row['einsum']}``", row["dtype"], _two(speed_up(row)), best_peer(row) or "")
            yield f"   {_csv((*figures, reasons[_named(row)]))}"


_FIGURES = (
    "*times* is the time of the best peer over ours and *roofline* our share of what the device can do, as geometric means;"
    " a peer was the best in as many results as the number after its name says."
)
_REPEALED = "2026-11-27"
"""From this day on engines start without the variables of :data:`benchmarks.HANDICAPS`."""
_HANDICAP = (
    f"  numpy and opt_einsum of reports from before {_REPEALED} may have run with settings that slow OpenBLAS down"
    " (:doc:`/explanation/measuring`)."
)
_RESULTS = '"report", "results", "measured", "times", "least", "below 0.9", "roofline", "peers"'
_SLOWEST = '"case", "einsum", "type", "times", "best peer", "why"'
_PLOT = "rate over operations per byte of feinsum and its peers, under the measured roofline"


def _compared(path: Path) -> list[Row]:
    """The rows of a file that compares engines; none of one in another format, and none where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return read_rows(path) if lines and "engines" in json.loads(lines[0]) else []


def _report(path: Path) -> str:
    return f":download:`{path.stem} </../{path.relative_to(ROOT)}>`"


def _summary(path: Path, rows: Sequence[Row]) -> tuple[str, ...]:
    known = [times for row in rows if (times := speed_up(row)) is not None]
    return (
        _report(path),
        str(len(rows)),
        max(row["date"] for row in rows)[:10],
        _two(geometric_mean(known)),
        _two(min(known)),
        str(sum(times < 0.9 for times in known)),
        _two(geometric_mean(map(fraction, rows))),
        headline(rows).removeprefix("best of "),
    )


def _named(row: Row) -> str:
    return f"{row['case']} {row['dtype']}"


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _csv(cells: Iterable[str]) -> str:
    return ", ".join(f'"{cell}"' for cell in cells)


class TensorInstructions(Written):
    """Instructions of the tensor language, those named as arguments: how each is written and what it does."""

    required_arguments = 1
    final_argument_whitespace = True

    def write(self) -> Iterator[str]:
        from feinsum.languages.tensor.definitions import DEFINITIONS

        for name in self.arguments[0].split():
            definition = DEFINITIONS[name]
            yield from (f".. _tensor-{name.replace('.', '-')}:", "", f"``{definition.form}``")
            formula = re.sub(r"([*|`_])", r"\\\1", definition.formula)
            yield from (f"    {definition.kind}: {formula}", "")


class LanguageRules(Written):
    """The rules of a language by id: those that are always kept, those of strict reading, or the advice."""

    required_arguments = 1
    language = ""

    def write(self) -> Iterator[str]:
        rules = importlib.import_module(f"feinsum.languages.{self.language}.rules")
        for name, text in vars(rules)[self.arguments[0]].items():
            yield from (f"``{name}``", f"    {text}", "")


class TensorRules(LanguageRules):
    """Those of the tensor language."""

    language = "tensor"


class ImmediateRules(LanguageRules):
    """Those of the immediate language."""

    language = "immediate"


class DeclarativeRules(LanguageRules):
    """Those of the declarative language."""

    language = "declarative"


class DeclarativeForms(Written):
    """The forms of the declarative language: how each is written and what it is."""

    def write(self) -> Iterator[str]:
        from feinsum.languages.declarative.forms import FORMS

        for kind in FORMS.values():
            yield from (f"``{kind.text}``", f"    {kind.meaning}", "")


class ElementwiseFunctions(Written):
    """Every function that epilogues or programs of the declarative language call by name."""

    def write(self) -> Iterator[str]:
        from feinsum.elementwise import EXPANDED, NAMED
        from feinsum.languages.declarative.forms import FUNCTIONS

        kinds = {"i": "integers", "u": "unsigned integers", "f": "reals", "c": "complex numbers"}
        yield from (".. list-table::", "   :header-rows: 1", "")
        yield from _cells("function", "in epilogues, of", "in programs", "error")
        for name in sorted({*NAMED, *EXPANDED, *FUNCTIONS}):
            letters, text = EXPANDED.get(name, ("", ""))
            row = FUNCTIONS.get(name) or NAMED.get(name)
            epilogue = ", ".join(kinds[k] for k in NAMED[name].kinds) if name in NAMED else f"``{text}``" if text else "no"
            call = f"``{name}({', '.join(letters or 'xyz'[: row.arity if row else 1])})``"
            yield from _cells(call, epilogue, "yes" if name in FUNCTIONS else "no", f"{row.ulps:g}" if row else "")


def _cells(first: str, *others: str) -> Iterator[str]:
    """A row of a list-table."""
    yield f"   * - {first}"
    yield from (f"     - {text}" for text in others)


def setup(app: Sphinx) -> dict[str, Any]:
    for name, directive in {
        "commands": Commands,
        "effects": Effects,
        "kernel-parameters": KernelParameters,
        "skeletons": Skeletons,
        "transform-spaces": TransformSpaces,
        "rooms": Rooms,
        "results": Results,
        "tensor-instructions": TensorInstructions,
        "tensor-rules": TensorRules,
        "immediate-rules": ImmediateRules,
        "declarative-rules": DeclarativeRules,
        "declarative-forms": DeclarativeForms,
        "elementwise-functions": ElementwiseFunctions,
    }.items():
        app.add_directive(name, directive)
    return {"parallel_read_safe": True}
