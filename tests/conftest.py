"""What all tests share: a session that touches nothing of the user, the CPU device, and how long each test takes.

Golden files are written anew by ``pytest tests/test_spaces.py --regenerate-golden``; on another CPU device than the best
tests run by ``pytest tests/test_contract.py --cpu pocl``.  ``pytest --processor-times`` writes what every test took.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processor import TimesOfTests, read_times

if TYPE_CHECKING:
    from feinsum.devices import Device

sys.path.insert(0, str(Path(__file__).parents[1]))  # where `benchmarks` is, whose cases are tested here

TIMES = Path(__file__).parent / "processor_times.txt"
"""Seconds by test: which are slow, and which files begin first where several processes share them."""
SLOW_S = 0.7
"""Seconds of processors that all cases of a test take together, from which on it is left out by ``make quick``."""
LEARN = "import sys, feinsum; feinsum.device(sys.argv[1]).peaks"
"""What has a device probed and measured, and both remembered; where there is none, tests say so."""

_session = pytest.MonkeyPatch()
_home = Path(tempfile.mkdtemp(prefix="feinsum-tests-"))
_HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate-golden", action="store_true", help="write the generated code of every space to tests/golden"
    )
    parser.addoption("--processor-times", action="store_true", help="write what every test took of processors")
    parser.addoption("--cpu", default="cpu", help="the CPU device for tests on one device, as `feinsum --device` takes it")


def pytest_configure(config: pytest.Config) -> None:
    """Give the session a home of its own, before loopy and pyopencl look for their caches, and no preferences.

    Where several processes share the tests, each has a home.  What is known of the devices is asked of them once, before
    the others begin: they would measure peaks while all cores are busy, and tests choose kernels by these.
    """
    of_all = {name: Path(os.environ[name], "feinsum") for name in _HOMES if name in os.environ}
    for name in _HOMES:
        _session.setenv(name, str(_home / name.lower()))
        (_home / name.lower()).mkdir(exist_ok=True)
    # Hundreds of processes import feinsum, a third of which would go into compiling it where no bytecode is to be written.
    for name in ("FEINSUM_DATABASE", "FEINSUM_DEVICE", "PYTHONDONTWRITEBYTECODE"):
        _session.delenv(name, raising=False)
    _session.setenv("FEINSUM_SELECT", "off")  # what it takes depends on the machine; its own tests turn it on

    gc.set_threshold(100_000, 20, 20)  # loopy's objects live on; looking through them took a sixth of the time

    if hasattr(config, "workerinput"):
        for name, known in of_all.items():
            if known.is_dir():
                shutil.copytree(known, _home / name.lower() / "feinsum")
    elif config.getoption("numprocesses", default=None):
        subprocess.run([sys.executable, "-c", LEARN, config.getoption("--cpu")], capture_output=True, check=False)
    if config.getoption("--processor-times"):
        config.pluginmanager.register(TimesOfTests(TIMES))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, by itself or by a fixture, and have the longest files begin first: each is run by one process."""
    times = read_times(TIMES)
    for item in items:
        file = item.nodeid.partition("::")[0]
        names = [item.nodeid.partition("[")[0], *(f"{file}::{name}" for name in getattr(item, "fixturenames", ()))]
        if max(times.get(name, 0.0) for name in names) >= SLOW_S:
            item.add_marker("slow")
    files: Counter[str] = Counter()
    for name, seconds in times.items():
        files[name.partition("::")[0]] += seconds
    items.sort(key=lambda item: -files[item.nodeid.partition("::")[0]])


def pytest_unconfigure(config: pytest.Config) -> None:
    _session.undo()
    shutil.rmtree(_home, ignore_errors=True)


@pytest.fixture(scope="session")
def cpu(request: pytest.FixtureRequest) -> Device:
    """The best CPU device of this machine, or the one that was asked for."""
    import feinsum as fe

    return fe.device(request.config.getoption("--cpu"))


@pytest.fixture(scope="session")
def simulator() -> Device:
    """A CPU device that can simulate a sub-group of 32 with shuffles, see :mod:`simulated_units`."""
    import feinsum as fe
    from feinsum.skeletons.instructions.matrix_units import SUB_GROUP

    try:
        device = fe.device("intel")
    except fe.DeviceError:
        pytest.skip("no OpenCL runtime of Intel")
    profile = device.profile
    if SUB_GROUP not in profile.sub_group_sizes or "cl_khr_subgroup_shuffle" not in profile.extensions or not profile.fp64:
        pytest.skip(f"{device} has no sub-groups of {SUB_GROUP} with shuffles")
    return device


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The place of a database that does not exist yet."""
    return str(tmp_path / "records.sqlite")


@pytest.fixture(autouse=True)
def wide_searches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of few trials count as those of wide searches, unless a test is marked `narrow`."""
    if "narrow" not in request.keywords:
        monkeypatch.setattr("feinsum.candidates.searches.PastSearch.is_wide", lambda *_: True)


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning runs of this process time their variants for a tenth as long: tests ask what they do, not how fast it is."""
    monkeypatch.setattr("feinsum.tune.runner._SECONDS", 0.015)
    monkeypatch.setattr("feinsum.tune.budget._FINAL_S", (0.05, 0.5))
