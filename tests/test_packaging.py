"""Packaging: what is installed is what is in the checkout, it is found wherever it is, and importing it is light."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import yaml
from distributions import ROOT, SETTINGS, Distributions, build, tracked
from setuptools import find_packages

import feinsum as fe

pytestmark = pytest.mark.slow

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
    assert set(SETTINGS["options"]["packages"]) == found


def test_a_checkout_on_the_path() -> None:
    """A checkout that nobody installed works with PYTHONPATH alone."""
    where, names = found_on(ROOT)
    assert where == str(ROOT)
    assert "generic" in names


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """What would be uploaded."""
    return build(tmp_path_factory.mktemp("release"))


def test_an_sdist(release: Distributions) -> None:
    """It holds what git tracks, pages and changes among it, but for the settings of git and of CI."""
    made = {"PKG-INFO", *(f"feinsum.egg-info/{path.name}" for path in (release.source / "feinsum.egg-info").iterdir())}
    held = {path.relative_to(release.source).as_posix() for path in release.source.rglob("*") if path.is_file()}
    assert {"CHANGELOG.md", "doc/index.rst", "packaging/recipe.yaml", "tests/test_packaging.py"} <= held
    assert held - made == {name for name in tracked() if not name.startswith((".ci/", ".git"))}


def test_a_wheel(release: Distributions, tmp_path: Path) -> None:
    """A wheel holds every module, the curated records and the type marker, and works without the checkout."""
    with zipfile.ZipFile(release.wheel) as archive:
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
    released = re.findall(r"^## ([0-9.]+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert released[0] == (fe.__version__, *re.findall(r"^date-released: (\S+)$", cited, re.MULTILINE))
    assert re.findall(r"^version: (\S+)$", cited, re.MULTILINE) == [fe.__version__]
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_of_the_first_pages_lead_somewhere(page: Path) -> None:
    """Pages move; a checkout and the sdist hold every file that these name."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def conda_name(requirement: str) -> str:
    """A requirement of setup.cfg as conda writes it: `igraph>=1.0,<1.1` -> `python-igraph >=1.0,<1.1`."""
    name, bounds = re.fullmatch(r"([A-Za-z_]+)(.*)", requirement).groups()  # type: ignore[union-attr]
    series = bounds.removeprefix("==") if bounds.endswith(".*") else bounds
    return f"{ {'igraph': 'python-igraph'}.get(name, name) } {series}"  # igraph is the library in C


def test_the_recipe_of_conda() -> None:
    """Its version, its Python and what it requires are those of setup.cfg."""
    recipe = yaml.safe_load((ROOT / "packaging" / "recipe.yaml").read_text(encoding="utf-8"))
    least = recipe["context"]["python_min"]
    assert recipe["context"]["version"] == fe.__version__
    assert SETTINGS["options"]["python_requires"] == f">={least}"
    python, *required = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert required == [conda_name(one) for one in SETTINGS["options"]["install_requires"]]
    assert recipe["build"]["python"]["entry_points"] == SETTINGS["options"]["entry_points"]["console_scripts"]


def test_a_snapshot_of_loopy_brings_its_own_versions() -> None:
    """The script that tests with it requires what feinsum does but for these, and names tests that are there."""
    script = runpy.run_path(str(ROOT / "packaging" / "loopy_snapshot.py"))
    required = set(script["requirements"]())
    decided = {one for one in SETTINGS["options"]["install_requires"] if one not in required}
    assert {re.split("[=><]", one)[0] for one in decided} == set(script["OF_LOOPY"])
    assert required > {*SETTINGS["options"]["install_requires"]} - decided
    assert [name for name in script["TESTS"] if not (ROOT / "tests" / name).exists()] == []


def test_nothing_else_of_a_checkout_is_part_of_the_package() -> None:
    """Of what lies beside the package, transforms and curated records are parts of it; tests and benchmarks are not."""
    script = "import importlib.util as u; print(*(u.find_spec(f'feinsum.{n}') is not None for n in ('tuning_db', 'tests')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert done.stdout.split() == ["True", "False"]
