"""The sdist and the wheel of this checkout, the interpreters of this machine, and environments to install a wheel in."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest
from setuptools.config.setupcfg import read_configuration

ROOT = Path(__file__).parents[1]
SETTINGS = read_configuration(ROOT / "setup.cfg")
VERSIONS = re.findall(r"Python :: (3\.\d+)", " ".join(SETTINGS["metadata"]["classifiers"]))
"""The versions of Python that feinsum is said to run on."""
_OFFLINE = re.compile("NewConnectionError|Failed to establish|ConnectTimeout|ReadTimeout|NameResolutionError|ProxyError")


class Distributions(NamedTuple):
    """What a release uploads: `source` is the directory that the sdist unpacks to, `wheel` was made from it."""

    source: Path
    wheel: Path


def tracked() -> list[str]:
    """The files of the checkout that git tracks, or would once they are added."""
    if not (ROOT / ".git").exists():
        pytest.skip("the tests do not run in a checkout of git")
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], ROOT).split("\0")
    return [name for name in listed if name and (ROOT / name).is_file()]


def build(into: Path) -> Distributions:
    """Make the sdist of what git tracks, and the wheel of the sdist; nothing is downloaded."""
    clone, out = into / "clone", into / "dist"
    for name in tracked():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    out.mkdir()
    run([sys.executable, "-c", f"import setuptools.build_meta as b; b.build_sdist({str(out)!r})"], clone)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(into / "unpacked", filter="data")
    (source,) = (into / "unpacked").iterdir()
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*wheel, "--wheel-dir", str(out), str(sdist)], into)
    (built,) = out.glob("*.whl")
    return Distributions(source, built)


def interpreter(version: str) -> str:
    """The command of a Python of this version, `3.12` say; the test is skipped where there is none."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)  # HOME is the session's
    kept = sorted((home / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for command in (*([sys.executable] * (version == own)), f"python{version}", *map(str, kept)):
        found = shutil.which(command)  # a shim of pyenv is found, and need not run
        if found and subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return found
    pytest.skip(f"no Python {version} on this machine")


def environment(version: str, folder: Path) -> Path:
    """Make a virtual environment in `folder`, which :func:`pip` fills from outside; its interpreter."""
    run([interpreter(version), "-m", "venv", "--without-pip", str(folder)], folder.parent)
    return folder / "bin" / "python"


def pip(python: Path) -> list[str]:
    """The command of pip for an environment that has none."""
    return [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]


def install(python: Path, *requirements: str) -> None:
    """Install by pip all at once, so that the requirements have to agree; the test is skipped without a package index."""
    command = [*pip(python), "install", "--quiet", "--no-compile", "--retries", "1", "--timeout", "30", *requirements]
    done = subprocess.run(command, capture_output=True, text=True, env=plain(), check=False)
    if done.returncode and _OFFLINE.search(done.stderr):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr


def plain() -> dict[str, str]:
    """The environment variables without those that would let another installation show through."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(command: list[str], where: Path, **variables: str) -> str:
    """What a command prints in a directory; it has to succeed."""
    done = subprocess.run(
        command, cwd=where, env=plain() | variables, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
