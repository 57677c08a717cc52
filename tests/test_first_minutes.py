"""The page of the first ten minutes: its Python examples give what they show, its commands print what it promises."""

from __future__ import annotations

import doctest
import re
import shlex
from itertools import zip_longest

import pytest
from pages import BLOCK, DOC, blocks, commands
from profiles import CPU, GPU

import feinsum as fe
from feinsum.cli import main
from feinsum.kernel.kernel import _MEANING
from feinsum.registry import find_space

pytestmark = pytest.mark.slow

PAGE = DOC / "start" / "first-ten-minutes.rst"
TEXT = PAGE.read_text(encoding="utf-8")
CONSOLE = list(blocks(PAGE))


def words(text: str) -> list[str]:
    """The words of a line without what differs between machines: figures, and on which device."""
    return re.findall(r"[A-Za-zµ_/]+", text.partition(" on ")[0])


def test_the_first_ten_minutes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    """Followed from top to bottom, commands succeed with the headings shown, and examples print what is shown."""
    monkeypatch.setenv("FEINSUM_DATABASE", store)
    monkeypatch.setenv("COLUMNS", "400")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    names: dict[str, object] = {}
    for prose, block in zip_longest(BLOCK.split(TEXT)[:: BLOCK.groups + 1], CONSOLE):
        example = doctest.DocTestParser().get_doctest(prose, names, PAGE.name, str(PAGE), 0)
        with capsys.disabled():
            runner.run(example, clear_globs=False)
        names = example.globs
        for command, shown in commands(block) if block else ():
            _run(command, shown, capsys)
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries > 20


def _run(line: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a ``feinsum`` command; the first line shown is its heading, which has to come again."""
    command, *arguments = shlex.split(line)
    assert command == "feinsum"
    if "tune" in arguments:
        arguments += ["--trials", "2", "--workers", "1"]
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(arguments)
    printed = capsys.readouterr().out
    assert end.value.code == 0, line
    assert shown.strip(), f"the page shows no output of {line}"
    assert words(shown.splitlines()[0]) == words(printed.splitlines()[0]), line
    assert determined(shown) == determined(printed), f"{line} prints something else by now: make tour"


def determined(text: str) -> dict[str, str]:
    """What is printed that neither machine nor measurement changes, by its label: what is said of the einsum itself."""
    return dict(re.findall(r"^ *(einsum|key|lengths|flops|bytes|flops per byte|spaces)  +(.*)$", text, re.MULTILINE))


def test_what_is_shown_of_spaces_and_rungs_is_there() -> None:
    """By these names, in these versions, with these parameters; figures may be old, names may not: else ``make tour``."""
    shown = "".join(block.text for block in CONSOLE)
    spaces = re.findall(r"([a-z_]+)(?:@| \(version )(\d+)\)?: (\w+=.*)$", shown, re.MULTILINE)
    assert {name for name, _, _ in spaces} >= {"vector_panels", "dg_gradient_mma"}
    configurations = [(name, configuration) for name, _, configuration in spaces]
    candidates = re.findall(r"^ +(?:candidates  )? *([a-z ]+): ([a-z_]+) (\w+=.*?)(?: \(.*)?$", shown, re.MULTILINE)
    rungs = [rung for rung, _, _ in candidates] + re.findall(r"^  rung      ([a-z ]+):", shown, re.MULTILINE)
    assert "exact" in rungs
    assert set(rungs) <= set(_MEANING)
    configurations += [(name, text) for _, name, text in candidates if not text.startswith("steps=")]
    for name, version, _ in spaces:
        assert find_space(name).version == int(version), f"{name}: make tour"
    J, D, u = fe.array("J", (3, 3, "E")), fe.array("D", (3, 20, 20)), fe.array("u", ("E", 20))
    gradient = fe.canonicalize_einsum(fe.einsum("xre,rij,ej->xei", J, D, u)).einsum
    for name, text in configurations:
        space = find_space(name)
        problem = space.problem(gradient, dict.fromkeys(gradient.long_axes, 100_000), GPU if "mma" in name else CPU)
        names, known = set(re.findall(r"(\w+)=", text)), set(space.choices(problem))
        assert known - set(space.implied) <= names <= known, f"{name}: make tour"


def test_every_command_is_shown() -> None:
    """The page mentions every command."""
    from feinsum.cli import cli

    for name in cli.commands:
        assert f"feinsum {name}" in TEXT
