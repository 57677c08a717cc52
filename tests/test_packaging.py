"""Packaging: what is installed is what is in the checkout, it is found wherever it is, and importing it is light."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from setuptools import find_packages
from setuptools.config.setupcfg import read_configuration

import feinsum as fe

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]

_IMPORT = """
import importlib, pathlib, sys, feinsum
for name in sys.argv[1:]:
    importlib.import_module(name)
from feinsum.registry import spaces
print(pathlib.Path(feinsum.__file__).parents[1])
print(*(space.name for space in spaces()))
"""


def modules() -> list[str]:
    """The name of every module of the checkout."""
    paths = [
        *relative(ROOT / "feinsum", "*.py", under="feinsum"),
        *relative(ROOT / "transforms", "*.py", under="feinsum/transforms"),
    ]
    names = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths]
    return sorted([*names, "feinsum.tuning_db"])


def found_on(path: Path) -> tuple[str, list[str]]:
    """Import every module with `path` in front and no editable installation; where it was found, and its spaces."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", _IMPORT, *modules()],  # -S: site would bring the editable installation
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(path), sysconfig.get_path("purelib")])},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    where, names = done.stdout.splitlines()
    return where, names.split()


def test_import_is_light() -> None:
    """Importing feinsum loads no heavy library: it works quickly, and on a login node without OpenCL."""
    script = "import sys, feinsum; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    heavy = {"loopy", "islpy", "pymbolic", "pyopencl", "sqlalchemy", "optuna", "rich", "click", "igraph", "opt_einsum"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("name", fe.__all__)
def test_public_names_exist(name: str) -> None:
    """Every public name can be had, those too that are loaded when first asked for, and says what it is."""
    value = getattr(fe, name)
    assert name == "__version__" or value.__doc__


def test_every_package_is_listed() -> None:
    """``setup.cfg`` lists every package of the checkout, and no other."""
    beside = find_packages(str(ROOT), include=["transforms", "transforms.*", "tuning_db"])
    found = {*find_packages(str(ROOT), include=["feinsum", "feinsum.*"]), *(f"feinsum.{name}" for name in beside)}
    assert set(read_configuration(ROOT / "setup.cfg")["options"]["packages"]) == found


def test_a_checkout_on_the_path() -> None:
    """A checkout that nobody installed works with PYTHONPATH alone."""
    where, names = found_on(ROOT)
    assert where == str(ROOT)
    assert "generic" in names


def test_a_wheel(tmp_path: Path) -> None:
    """A wheel holds every module, the curated records and the type marker, and works without the checkout."""
    source, out = tmp_path / "source", tmp_path / "out"
    for name in ("feinsum", "transforms", "tuning_db"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(source)], check=True, timeout=120)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    wanted = relative(ROOT / "feinsum", "*.py", "*.js", "py.typed", under="feinsum")
    wanted |= relative(ROOT / "transforms", "*.py", under="feinsum/transforms")
    wanted |= relative(ROOT / "tuning_db", "*.py", "*.json", "*.jsonl", under="feinsum/tuning_db")
    assert relative(tmp_path / "site" / "feinsum", "*", under="feinsum") == wanted
    where, names = found_on(tmp_path / "site")
    assert where == str(tmp_path / "site")
    assert names == found_on(ROOT)[1]


def relative(root: Path, *patterns: str, under: str) -> set[str]:
    """The files below `root` that match, as paths below `under`."""
    found = {path for pattern in patterns for path in root.rglob(pattern) if path.is_file()}
    return {f"{under}/{path.relative_to(root)}" for path in found if path.suffix != ".pyc"}


def test_one_version() -> None:
    """The version, the change log and the citation file agree, and the licence is the one that is named."""
    released = re.findall(r"^## \[?([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert released[0] == cited[1] == fe.__version__
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")


def test_nothing_else_of_a_checkout_is_part_of_the_package() -> None:
    """Of what lies beside the package, transforms and curated records are parts of it; tests and benchmarks are not."""
    script = "import importlib.util as u; print(*(u.find_spec(f'feinsum.{n}') is not None for n in ('tuning_db', 'tests')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert done.stdout.split() == ["True", "False"]
