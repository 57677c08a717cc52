"""The gate against getting slower says so beyond the noise alone.  No test asserts a time."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gate
from benchmarks.engines.process import FailedError
from benchmarks.gate import HEADINGS, Finding, mean_of
from benchmarks.rows import read_rows


def noisy(ratio: float, noise: float = 0.1, count: int = 30, seed: int = 0) -> list[tuple[float, float]]:
    """Pairs whose speed drifts by a factor of ten while the ratio of both sides stays."""
    rng = random.Random(seed)
    drifts = [10 ** (k / count) for k in range(count)]
    return [(drift, drift * ratio * rng.uniform(1 - noise, 1 + noise)) for drift in drifts]


@pytest.mark.parametrize(("ratio", "slower"), [(0.8, False), (1.0, False), (1.04, False), (1.25, True)])
def test_only_what_is_slower_beyond_the_bound_is_told(ratio: float, slower: bool) -> None:
    """Pairs cancel drift; noise of a tenth on each sample and a ratio below the bound are no reason to fail."""
    finding = Finding("x", noisy(ratio), 0.05)
    assert finding.is_slower == slower
    assert len(finding.cells()) == len(HEADINGS)
    assert ("SLOWER" in finding.cells()) == slower


def test_a_few_pairs_decide_nothing() -> None:
    """Four pairs cannot bound a median at 90%, whatever their ratio is."""
    assert not Finding("x", noisy(3.0, count=4), 0.05).is_slower
    assert Finding("x", noisy(3.0, count=5), 0.05).is_slower


def test_the_mean_sees_what_no_single_kernel_shows() -> None:
    """Twelve kernels that are each slower by less than their bound are slower together."""
    findings = [Finding(str(k), noisy(1.04, 0.05, seed=k), 0.05) for k in range(12)]
    assert not any(finding.is_slower for finding in findings)
    assert mean_of(findings, 0.02).is_slower


@pytest.mark.parametrize(("broken", "slower"), [({0}, False), ({1}, True), ({0, 1}, False)])
def test_a_kernel_that_only_this_checkout_lacks_fails_the_gate(broken: set[int], slower: bool) -> None:
    """What the base cannot do either is skipped, with its reason."""

    def ask(k: int) -> dict[str, Any]:
        if k in broken:
            raise FailedError("no such kernel")
        return {"seconds": 1.0}

    finding = gate.paired("x", 0.05, 6, ask)
    assert finding.is_slower == slower
    assert "no such kernel" in finding.cells()[-1]


def test_sides_alternate_in_both_orders() -> None:
    """Each pair has both sides one after the other, and neither is always the first."""
    asked: list[int] = []

    def ask(k: int) -> dict[str, Any]:
        asked.append(k)
        return {"seconds": 1.0 + k}

    assert gate.paired("x", 0.05, 4, ask).pairs == [(1.0, 2.0)] * 4
    assert asked[2:] == [0, 1, 1, 0] * 2


def test_every_strategy_has_a_kernel() -> None:
    """The twelve are of all spaces that serve the short and the wide list on a Zen 5, save for the generic one."""
    results = Path(__file__).parents[1] / "benchmarks" / "results" / "zen5"
    rows = read_rows(results / "suite.jsonl") + read_rows(results / "wide.jsonl")
    spaces = {(row["case"], row["dtype"]): row["engines"]["feinsum"].get("space") for row in rows}
    names = [case["name"] for case in gate.kernel_cases()]
    assert len(set(names)) == 12
    assert {spaces[name, "float64"] for name in names} == set(spaces.values()) - {"generic"}


def test_unknown_revisions_are_refused(tmp_path: Path) -> None:
    """With what git says of them; nothing is measured."""
    with pytest.raises(gate.GateError, match="'nowhere' is no revision to compare with"):
        gate.released("nowhere", tmp_path / "base")


@pytest.mark.parametrize("slower", [True, False])
def test_the_exit_code_is_that_of_the_verdict(
    slower: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cpu: object
) -> None:
    """1 where something is slower beyond the noise, else 0; the table names it."""

    def found(sides: object, options: Namespace) -> Iterator[Finding]:
        yield Finding("import feinsum", noisy(2.0 if slower else 1.0), 0.1)

    for name in ("checkout", "released"):
        monkeypatch.setattr(gate, name, lambda *_: tmp_path)
    monkeypatch.setattr(gate, "compared", found)
    monkeypatch.setattr("sys.argv", ["gate", "--base", "HEAD"])
    with pytest.raises(SystemExit) as error:
        gate.main()
    assert error.value.code == int(slower)
    assert f"slower beyond the noise: {'import feinsum' if slower else 'nothing'}" in capsys.readouterr().out


@pytest.mark.slow
def test_both_sides_are_the_feinsum_of_their_own_folders(tmp_path: Path) -> None:
    """A revision and this checkout, with the strategies of each, whatever feinsum is installed; each can call a kernel."""
    case = {
        "einsum": "ij,jk->ik", "family": "small", "arg_rows": [["a", "b"]], "cpu": {"sizes": {"i": 9, "j": 4, "k": 4}}
    }  # fmt: skip
    for side in (gate.released("HEAD", tmp_path / "base"), gate.checkout(tmp_path / "this")):
        with gate.process_of(side, tmp_path / f"{side.name}-caches") as process:
            answer = process.ask(120.0, "kernel", device="cpu", dtype="float32", case=case, side="cpu")
            assert Path(answer["feinsum"]).is_relative_to(side)
            assert Path(answer["transforms"]).is_relative_to(side)
            assert process.ask(120.0, "sample")["seconds"] > 0
            assert process.ask(120.0, "call", device="cpu", what="contract", count=2)["seconds"] > 0
