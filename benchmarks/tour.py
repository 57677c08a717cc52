"""Renew the page of the first ten minutes: run its commands from top to bottom and write what they print on this machine.

The commands start from nothing, in a home directory of their own.  Run it on an idle machine: ``make tour``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

PAGE = Path(__file__).parents[1] / "doc" / "start" / "first-ten-minutes.rst"
BLOCK = re.compile(r"\.\. code-block:: console\n\n((?:   .*\n|\n)*   .*\n)")


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as home:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FEINSUM_", "XDG_"))}
        environment |= {"HOME": home, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

        def shown(match: re.Match[str]) -> str:
            commands = re.findall(r"^   \$ (.*)\n", match[1], re.MULTILINE)
            parts = [f"$ {command}\n{printed(command, environment).replace(home, '~')}" for command in commands]
            return ".. code-block:: console\n\n" + textwrap.indent("".join(parts), "   ")

        PAGE.write_text(BLOCK.sub(shown, text), encoding="utf-8")


def printed(command: str, environment: dict[str, str]) -> str:
    """The standard output of a command of the page."""
    print(command, file=sys.stderr, flush=True)
    return subprocess.run(shlex.split(command), env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
