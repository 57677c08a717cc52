"""A release as users get it: its wheel, installed outside the checkout, runs the tutorial and works with its neighbours.

Each environment is a new one, and what the wheel requires is downloaded; the OpenCL drivers are those of this environment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from distributions import VERSIONS, Distributions, build, environment, install, pip, run

import feinsum as fe
from feinsum.devices.icd import find_libraries

pytestmark = pytest.mark.slow
NEIGHBOURS = ("cotengra", "fenics-ufl", "firedrake-fiat", "pytato")
"""What users install with feinsum.  TSFC itself is part of firedrake, which needs PETSc; FIAT has its elements and GEM."""

_TUTORIAL = """
import doctest, pathlib, sys, warnings
from importlib import metadata
import feinsum
sys.path.append(sys.argv[1] + "/tests")
import pages
assert pathlib.Path(feinsum.__file__).is_relative_to(sys.prefix), feinsum.__file__
assert metadata.version("feinsum") == feinsum.__version__
warnings.simplefilter("ignore")  # pyopencl warns of any text in the log of a successful build
(page,) = pages.DOC.rglob("tutorial-einsum.rst")
failures, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
here = pathlib.Path.cwd()
print(failures, tried > 20, pages.follow(page, here, here) > 2)
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """What would be uploaded."""
    return build(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def installed(release: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The interpreter of an environment in which pip installed the wheel, by the version of Python."""

    @cache
    def found(version: str) -> Path:
        python = environment(version, tmp_path_factory.mktemp("python") / "environment")
        install(python, str(release.wheel))
        return python

    return found


@pytest.fixture
def drivers(tmp_path: Path) -> str:
    """A directory that names the OpenCL drivers of the environment that runs the tests."""
    where = tmp_path / "vendors"
    where.mkdir()
    for k, library in enumerate(find_libraries()):
        (where / f"{k}.icd").write_text(library, encoding="utf-8")
    return str(where)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tutorial_runs_where_the_wheel_is_installed(
    version: str, release: Distributions, installed: Callable[[str], Path], drivers: str, tmp_path: Path
) -> None:
    """On every Python that setup.cfg names: the examples, the commands, and the script `feinsum`."""
    python = installed(version)
    here = tmp_path / "here"
    here.mkdir()
    assert run([str(python.with_name("feinsum")), "--version"], here).split()[-1] == fe.__version__
    assert run([str(python), "-c", _TUTORIAL, str(release.source)], here, OCL_ICD_VENDORS=drivers) == "0 True True\n"


def test_neighbours_are_installed_and_used_together(
    release: Distributions, installed: Callable[[str], Path], drivers: str, tmp_path: Path
) -> None:
    """One resolution by pip has all of them, with the loopy that we require; each then computes with feinsum.

    It is the last that an environment is used for: the tutorial ran there with what the wheel requires alone.
    """
    python = installed(VERSIONS[0])
    install(python, str(release.wheel), *NEIGHBOURS)
    run([*pip(python), "check"], tmp_path)
    program = Path(__file__).with_name("neighbours.py")
    assert run([str(python), "-W", "ignore", str(program)], tmp_path, OCL_ICD_VENDORS=drivers).split() == sorted(NEIGHBOURS)
