"""Following a page of doc/: its files are written, its commands run, and what they print is compared with what it shows."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOC = Path(__file__).parents[1] / "doc"
PAGES = [page for page in sorted(DOC.rglob("*.rst")) if page.stem != "first-ten-minutes"]
"""All but one, whose examples need the records of its commands: test_first_minutes.py."""
CHECKOUT = ("feinsum", "transforms", "tuning_db", "benchmarks", "tests", "pyproject.toml", "setup.cfg")
BLOCK = re.compile(r"\.\. code-block:: (\w+)\n((?:   :.*\n)*)\n((?:   .*\n|\n)+)")


class Block(NamedTuple):
    """A code block: its language, the name of the file that it is the content of (or nothing), and its text."""

    language: str
    file: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The code blocks of a page, in order."""
    for language, options, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        caption = re.search(r":caption: (\S+)", options)
        yield Block(language, caption[1] if caption else "", textwrap.dedent(text).strip() + "\n")


def copy_checkout(directory: Path) -> None:
    """What pages write to, in a directory of its own."""
    for name in CHECKOUT:
        source = DOC.parent / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, directory / name)


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what it is shown to print."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.replace("\\\n", " ").partition("\n")
        yield command, shown


def follow(page: Path, directory: Path, checkout: Path = DOC.parent) -> int:
    """Follow a page from top to bottom in `directory`; the number of commands that were run.

    Of what a command prints the first line has to be that shown, but for digits.  `tune` is held to two trials
    and one process that builds.

    :param checkout: the feinsum that the commands are of.
    """
    ran = 0
    for block in blocks(page):
        if block.file:
            (directory / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command, shown in commands(block):
                printed = run(command, directory, checkout)
                assert not shown.strip() or same_heading(shown, printed), f"{command}\nprints\n{printed}"
                ran += 1
    return ran


def run(command: str, directory: Path, checkout: Path) -> str:
    """What a command prints; it has to succeed."""
    if command.startswith("feinsum tune"):
        command += " --trials 2 --workers 1"
    for name in ("feinsum", "python"):
        if command.startswith(f"{name} "):
            command = f"{sys.executable}{' -m feinsum' if name == 'feinsum' else ''}{command.removeprefix(name)}"
    path = os.pathsep.join(filter(None, (str(checkout), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def same_heading(shown: str, printed: str) -> bool:
    """Whether the first lines have the same words; three dots stand for anything."""
    want, got = (" ".join(re.findall(r"[A-Za-zµ_/>]+|\.\.\.", text.splitlines()[0])) for text in (shown, printed + "\n"))
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)
