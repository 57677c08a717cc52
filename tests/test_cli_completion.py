"""Completion: what shells offer, asked of the shells themselves, with the line that the documentation gives."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOC

from feinsum.registry import spaces
from feinsum.search import SAMPLERS

PAGE = (DOC / "reference" / "command-line.rst").read_text(encoding="utf-8")
ACTIVATE = dict(re.findall(r"^   (bash|zsh|fish) +(.*)$", PAGE, re.MULTILINE))
"""The line that the page gives for each shell."""
BASH = r"""
set -e
%s
COMP_WORDS=(%s)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
complete=$(complete -p feinsum | grep -o '_[a-z_]*completion')
$complete feinsum
printf '%%s\n' "${COMPREPLY[@]}"
"""
LINES = [
    ("tu", ["tune"]),
    ("db ", ["curate", "export", "import", "merge", "prove", "stats"]),
    ("db st", ["stats"]),
    ("tune 'ij,jk->ik' --sam", ["--sampler"]),
    ("tune 'ij,jk->ik' --sampler ", sorted(SAMPLERS)),
    ("tune 'ij,jk->ik' --space gen", [s.name for s in spaces() if s.name.startswith("gen")]),
    ("query 'ij,jk->ik' --status co", ["compile-failed"]),
    ("bench 'ij,jk->ik' --device ", ["cpu", "gpu"]),
    ("generate 'ij,jk->ik' --tune m", ["missing"]),
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where the command `feinsum` is found."""
    command = tmp_path / "feinsum"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m feinsum "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(DOC.parent)}


def ask(shell: str, script: str, environment: dict[str, str]) -> list[str]:
    """The lines that a script prints."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = [shell, *(["--norc", "--noprofile"] if shell == "bash" else []), "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.split()


@pytest.mark.parametrize(("typed", "offered"), LINES, ids=[typed for typed, _ in LINES])
def test_bash_completes(typed: str, offered: list[str], environment: dict[str, str]) -> None:
    """Commands, options and the values of options that have names."""
    words = shlex.join(f"feinsum {typed}".split(" "))  # as bash has them: quotes are part of a word
    assert sorted(ask("bash", BASH % (ACTIVATE["bash"], words), environment)) == sorted(offered)


def test_fish_completes(environment: dict[str, str]) -> None:
    """fish can be asked directly."""
    assert ask("fish", f"{ACTIVATE['fish']}; complete -C 'feinsum tu' | string split -f1 \\t", environment)[0] == "tune"


def test_zsh_takes_the_definition(environment: dict[str, str]) -> None:
    """zsh completes only interactively, so that it is asked whether it knows a function for the command."""
    script = f"autoload -U compinit && compinit -u -D; {ACTIVATE['zsh']}; print $_comps[feinsum]"
    assert ask("zsh", script, environment) == ["_feinsum_completion"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_line(shell: str, environment: dict[str, str]) -> None:
    """The page gives it, and click knows the shell."""
    assert f"_FEINSUM_COMPLETE={shell}_source" in ACTIVATE[shell]
    asked = {**environment, "_FEINSUM_COMPLETE": f"{shell}_source"}
    assert "feinsum" in " ".join(ask("sh", "feinsum", asked))
