"""Run tests of this checkout with a loopy given by path, in an environment of its own.

``python3.12 packaging/loopy_snapshot.py ~/src/loopy [arguments of pytest]``

The path is a source tree, with its submodules, or a wheel.  The snapshot brings the versions of islpy and pymbolic that it
wants; what else feinsum requires is as in setup.cfg.  Unless arguments name files of tests, those run that read or rewrite
kernels of loopy.
The exit status is that of pytest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OF_LOOPY = ("loopy", "islpy", "pymbolic", "pytools", "cgen", "constantdict")
"""Requirements whose versions are the snapshot's choice."""
TOOLS = ("hypothesis>=6", "psutil>=5.9", "pytest>=8", "pytest-xdist==3.8.*", "setuptools>=77")
TESTS = (
    *(
        "test_lower.py",
        "test_match_roundtrip.py",
        "test_match_find.py",
        "test_match_forms.py",
        "test_match_array_programs.py",
    ),
    *("test_rewrites.py", "test_rewrites_vectors.py", "test_transform.py", "test_generic.py", "test_generate.py"),
)


def requirements() -> list[str]:
    """What feinsum requires, with a driver for CPUs, but for loopy and what loopy decides."""
    settings = ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = settings["options"]["install_requires"] + settings["options.extras_require"]["cpu"]
    return [line for line in lines.split("\n") if line and not line.startswith((*OF_LOOPY, "#"))]


def main() -> int:
    """Make the environment, and run pytest in it."""
    parser = argparse.ArgumentParser(
        description="Run tests of this checkout with a loopy given by path; other arguments go to pytest.",
        allow_abbrev=False,
    )
    parser.add_argument("loopy", type=Path, help="a source tree of loopy, or a wheel")
    parser.add_argument("--environment", type=Path, help="keep the environment in this directory, and use it again")
    options, arguments = parser.parse_known_args()
    if not options.loopy.exists():
        parser.error(f"{options.loopy} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        where = options.environment or Path(folder)
        python = where / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", where], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--force-reinstall", "--no-deps", options.loopy.resolve()], check=True)
        subprocess.run([*pip, options.loopy.resolve(), *requirements(), *TOOLS], check=True)
        named = any((ROOT / one.partition("::")[0]).exists() for one in arguments)
        tests = [*arguments, *(f"tests/{name}" for name in TESTS if not named)]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [python, "-m", "pytest", *tests], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
