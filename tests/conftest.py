"""What all tests share: a session that touches nothing of the user, and the CPU device.

Golden files are written anew by ``pytest tests/test_spaces.py --regenerate-golden``; on another CPU device than the best
tests run by ``pytest tests/test_contract.py --cpu pocl``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from feinsum.devices import Device

sys.path.insert(0, str(Path(__file__).parents[1]))  # where `benchmarks` is, whose cases are tested here

_session = pytest.MonkeyPatch()
_home = Path(tempfile.mkdtemp(prefix="feinsum-tests-"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate-golden", action="store_true", help="write the generated code of every space to tests/golden"
    )
    parser.addoption("--cpu", default="cpu", help="the CPU device for tests on one device, as `feinsum --device` takes it")


def pytest_configure(config: pytest.Config) -> None:
    """Give the session a home of its own, before loopy and pyopencl look for their caches, and no preferences."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        _session.setenv(name, str(_home / name.lower()))
        (_home / name.lower()).mkdir(exist_ok=True)
    for name in ("FEINSUM_DATABASE", "FEINSUM_DEVICE"):
        _session.delenv(name, raising=False)


def pytest_unconfigure(config: pytest.Config) -> None:
    _session.undo()
    shutil.rmtree(_home, ignore_errors=True)


@pytest.fixture(scope="session")
def cpu(request: pytest.FixtureRequest) -> Device:
    """The best CPU device of this machine, or the one that was asked for."""
    import feinsum as fe

    return fe.device(request.config.getoption("--cpu"))


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The place of a database that does not exist yet."""
    return str(tmp_path / "records.sqlite")
