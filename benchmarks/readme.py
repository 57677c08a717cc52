"""Bring the README up to date: run its commands from top to bottom and write down what they print on this machine.

The commands start from nothing, in a home directory of their own.  Run it on an idle machine: ``make readme``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import ROOT

README = ROOT / "README.md"


def main() -> None:
    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as home:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FEINSUM_", "XDG_"))}
        environment |= {"HOME": home, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

        def shown(match: re.Match[str]) -> str:
            commands = re.findall(r"^\$ (.*(?:\\\n.*)*)\n", match[1], re.MULTILINE)
            parts = [f"$ {command}\n{printed(command, environment).replace(home, '~')}" for command in commands]
            return "```console\n" + "".join(parts) + "```"

        README.write_text(re.sub(r"```console\n(.*?)```", shown, text, flags=re.DOTALL), encoding="utf-8")


def printed(command: str, environment: dict[str, str]) -> str:
    """The standard output of a command of the README; make is only mentioned there."""
    if not command.startswith("feinsum "):
        return ""
    print(command, file=sys.stderr, flush=True)
    arguments = shlex.split(command.replace("\\\n", " "), comments=True)
    return subprocess.run(arguments, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
