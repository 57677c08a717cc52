"""Random cases by the thousand: hypothesis says how many ran and were wrong, and a batch that says nothing has failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fuzzing
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.statistics import collector, describe_statistics


def said_of(wrong_from: int) -> str:
    """What the statistics of hypothesis say of a test of even numbers that is wrong from one on."""
    found: list[str] = []

    def note(statistics: Any) -> None:
        found.append(describe_statistics({**statistics, "nodeid": "tests/test_it.py::test_it[intel]"}))

    @settings(fuzzing.cases(9), derandomize=True, print_blob=False)
    @given(st.integers(0, 40))
    def test(number: int) -> None:
        assume(number % 2 == 0)
        assert number < wrong_from

    with collector.with_value(note):
        try:
            test()
        except AssertionError:
            found[-1] += "\n"
    return "\n\n".join(["preamble", *found])


def test_cases_are_counted_as_hypothesis_tells_them() -> None:
    """Those that are given up are none, and what is tried to shrink a wrong one is not counted."""
    ran, wrong = fuzzing.counted(said_of(wrong_from=50))
    assert (ran.total(), wrong.total()) == (fuzzing.EXAMPLES or 9, 0)
    ran, wrong = fuzzing.counted(said_of(wrong_from=10) + said_of(wrong_from=50))
    assert 0 < wrong["tests/test_it.py::test_it[intel]"] < ran["tests/test_it.py::test_it[intel]"] <= 2 * 9 + 10


@pytest.mark.parametrize(("program", "status"), [("true", 0), ("false", 1)])
def test_a_batch_of_which_nothing_is_known_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str, status: int
) -> None:
    """As where the compiler ends the process."""
    monkeypatch.setattr(fuzzing.sys, "executable", f"/bin/{program}")
    assert not fuzzing.fuzz("tensor", "pocl", 5, 7, 100, tmp_path)
    told = capsys.readouterr().out
    assert f"tensor on pocl, seed 7: 0 ran, 0 wrong; pytest ended with {status}, see {tmp_path}" in told
