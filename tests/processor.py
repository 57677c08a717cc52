"""What tests take of processors, which does not depend on what else the machine does."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HEAD = "# Seconds of processors by test, all its cases, and by fixture of a module; written by pytest --processor-times\n"
_LEAST_S = 0.5
"""Below which a test is not listed."""


def seconds_used() -> float:
    """What this process and its children took until now, also those that have ended."""
    return sum(os.times()[:4]) + sum(_seconds_of(child) for child in _children(os.getpid()))


def _children(process: int) -> Iterator[int]:
    """The living descendants of a process, as Linux lists them: psutil would look at every process there is."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            for child in Path(f"/proc/{process}/task/{thread}/children").read_text().split():
                yield int(child)
                yield from _children(int(child))


def _seconds_of(process: int) -> float:
    """User and system time of a process and of its children that have ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def read_times(path: Path) -> dict[str, float]:
    """Seconds by test: ``tests/test_spaces.py::test_the_kernels_of_a_space_are_right`` -> 110.2."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines if line[:1] != "#")}


def _is_there(name: str) -> bool:
    """Whether the file of a test or fixture exists, and has its name."""
    file, _, own = name.partition("::")
    path = Path(file)
    return path.exists() and re.split(r"\W", own)[-1] in path.read_text(encoding="utf-8")


class TimesOfTests:
    """Measures every test, and apart from it every fixture of a module, in all processes, and writes what they took."""

    def __init__(self, path: Path) -> None:
        self._path, self._seconds, self._began = path, Counter[str](), 0.0
        self._shared: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        self._began, self._shared = seconds_used(), {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[Any]:
        began = seconds_used()
        try:
            return (yield)
        finally:
            if fixturedef.scope == "module":
                name = f"{request.node.nodeid}::{fixturedef.argname}"
                self._shared[name] = seconds_used() - began

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "teardown":
            own = seconds_used() - self._began - sum(self._shared.values())
            item.user_properties.append(("processor_s", {item.nodeid.partition("[")[0]: own, **self._shared}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds.update(dict(report.user_properties).get("processor_s", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep what is known of tests that were not run; those that are gone are forgotten."""
        if hasattr(session.config, "workerinput"):
            return
        known = {name: s for name, s in read_times(self._path).items() if _is_there(name)}
        lines = [f"{s:.1f} {name}\n" for name, s in sorted({**known, **self._seconds}.items()) if s >= _LEAST_S]
        self._path.write_text(HEAD + "".join(lines), encoding="utf-8")
