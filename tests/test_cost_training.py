"""Training of the cost model, on times that a formula gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from profiles import CPU, GPU

import feinsum as fe
from benchmarks import cost_model as command
from benchmarks import forest
from benchmarks.forest import _delays, rows_of, train
from benchmarks.landscapes import Evidence, Problem, read_landscapes, write_landscapes
from feinsum.cost.model import CostModel
from feinsum.registry import find_space
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome

GENERIC = find_space("generic")
MATRICES = fe.einsum("ij,jk->ik", fe.array("A", ("N", 4)), fe.array("B", (4, 4)))


def record_of(n: int, profile: fe.DeviceProfile, c: dict[str, Any], **changes: Any) -> fe.TuningRecord:
    """A record of a matrix product, quickest with 32 work-items along the longest axis."""
    e = fe.einsum("ij,jk->ik", fe.array("A", ("N", n)), fe.array("B", (n, n)))
    task = make_task(e, {"N": 1000 * n}, profile)
    t = 1e-6 * n * (1 + abs(c["items"] - 32)) * (1 if c["lane"] == "longest" else 3)
    return replace(task.record(task.trial(GENERIC, c), Outcome("ok", samples_s=(t,))), **changes)


def evidence_of(lengths: tuple[int, ...], *profiles: fe.DeviceProfile) -> Evidence:
    """All configurations of the generic space, at some lengths, on some devices."""
    evidence = Evidence({profile.id: profile for profile in profiles})
    for profile in profiles:
        for n in lengths:
            e = fe.einsum("ij,jk->ik", fe.array("A", ("N", n)), fe.array("B", (n, n)))
            problem = GENERIC.problem(e, {"N": 1000 * n}, profile)
            evidence.add_records(record_of(n, profile, dict(c)) for c in GENERIC.configurations(problem))
    return evidence


def test_what_was_learnt_at_some_lengths_holds_at_others() -> None:
    """The first pick of an einsum that was left out is the best, where the prior alone is wrong."""
    rows = rows_of(evidence_of((8, 16, 24, 32, 48, 64), CPU))
    before = command.losses(rows, command.predict(CostModel({}), rows))
    lost, factors = command.cross_validate(rows, lambda row: row.problem.einsum)
    assert len(lost) == 6
    assert max(lost.values()) < min(before.values())
    assert max(lost.values()) == pytest.approx(1)
    assert factors["cpu"] < 2.5


def test_a_few_candidates_lose_less_than_the_first() -> None:
    """Where the model has all in the wrong order, the first is the worst, and what enters besides differs from it."""
    rows = rows_of(evidence_of((8,), CPU))
    expected = sorted(((row, 1e-3 - row.time_s) for row in rows), key=lambda each: each[1])
    factors = command.quickest_of(expected, CPU)
    assert factors[0] == max(row.time_s for row in rows) / min(row.time_s for row in rows)
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] < factors[0]


def test_a_forest_as_data_predicts_what_scikit_learn_predicts() -> None:
    """Which is close to the times that it was trained with."""
    rows = rows_of(evidence_of(tuple(range(8, 72)), CPU))  # a leaf has ten rows at least
    model = CostModel.from_json(json.loads(json.dumps(train(rows, {"cpu": 1.5}).to_json())))
    for row, t in zip(rows, command.predict(model, rows), strict=True):
        assert t == pytest.approx(row.time_s, rel=0.5)


def test_a_space_that_is_late_as_a_whole_is_believed() -> None:
    """One time beyond all others was disturbed; where all of a space are, that is what it takes."""
    rows = rows_of(evidence_of((8, 16, 24, 32, 48, 64), CPU))
    errors = [0.0] * len(rows)
    last = [k for k, row in enumerate(rows) if row.problem == rows[-1].problem]
    errors[last[0]] = 3.0
    assert list(_delays(rows, errors)) == errors
    for k in last:
        errors[k] = 3.0 + (k == last[0])
    delays = _delays(rows, errors)
    assert delays[last[0]] == 1
    assert not any(delays[k] for k in last[1:])
    alone = [row for k, row in enumerate(rows) if k not in last[1:]]
    assert max(_delays(alone, [0.0] * (len(alone) - 1) + [3.0])) == 3


def test_a_kind_of_device_of_which_little_was_measured_has_no_forest() -> None:
    """Its predictions are those of the prior."""
    rows = rows_of(evidence_of((8, 16, 24, 32), CPU)) + rows_of(evidence_of((8,), GPU))
    model = train(rows)
    assert set(model.forests) == {"cpu"}
    gpu = [row for row in rows if row.kind == "gpu"]
    assert command.predict(model, gpu) == command.predict(CostModel({}), gpu)


def test_evidence_that_is_out_of_date_is_passed_over() -> None:
    """Spaces and configurations that are gone, devices of unknown profile, keys of another format, failures."""
    c = {"schedule": "fused", "lane": "last", "items": 64}
    evidence = Evidence({CPU.id: CPU})
    good = record_of(8, CPU, c)
    count = evidence.add_records(
        [
            good,
            replace(good, space="gone"),
            replace(good, configuration={**c, "items": 7}),
            replace(good, configuration={"other": 1}),
            replace(good, device="cpu:intel:gone:1cu"),
            replace(good, einsum_key="0|gone"),
            replace(good, status="wrong", samples_s=()),
        ]
    )
    assert count == 6
    (row,) = rows_of(evidence)
    assert (row.space, row.time_s, row.is_default) == ("generic", good.median_s, True)


def test_the_newest_version_of_a_space_counts() -> None:
    """Of each problem; of a configuration measured several times, the least time."""
    c = {"schedule": "fused", "lane": "last", "items": 64}
    old, new = (record_of(8, CPU, c, space_version=v, samples_s=(t,)) for v, t in ((1, 1.0), (2, 3.0)))
    again = replace(new, samples_s=(2.0,))
    for order in ([old, new, again], [again, new, old]):
        evidence = Evidence({CPU.id: CPU})
        evidence.add_records(order)
        (spaces,) = evidence.times_s.values()
        assert spaces == {("generic", 2): {tuple(sorted(c.items())): 2.0}}


def test_evidence_survives_its_files(tmp_path: Path) -> None:
    """One file a device, equal for equal evidence; times keep four digits."""
    evidence = evidence_of((8, 16), CPU, GPU)
    write_landscapes(evidence, tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = read_landscapes(tmp_path)
    assert again.profiles == evidence.profiles
    assert again.times_s.keys() == evidence.times_s.keys()
    for problem, spaces in evidence.times_s.items():
        for space, times_s in spaces.items():
            assert again.times_s[problem][space] == pytest.approx(times_s, rel=1e-3)
    write_landscapes(again, tmp_path)
    assert len(files) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_what_was_measured_before_a_parameter_existed_is_kept(tmp_path: Path) -> None:
    """Beside what has the parameter, of the same space and version."""
    problem, space = Problem(CPU.id, "key", ()), ("generic", 1)
    evidence = Evidence({CPU.id: CPU})
    for configuration in ({"items": 16}, {"items": 16, "wide": True}, {"items": 32, "wide": False}):
        evidence.add(problem, space, configuration, 1e-3)
    write_landscapes(evidence, tmp_path)
    assert read_landscapes(tmp_path).times_s == evidence.times_s


def test_the_command_trains_measures_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records are kept, the model is one that feinsum reads, and the page has the last results of each device."""
    evidence = evidence_of((8, 16, 24), CPU)
    monkeypatch.setattr(command, "read_landscapes", lambda: read_landscapes(tmp_path))
    monkeypatch.setattr(command, "write_landscapes", lambda found: write_landscapes(found, tmp_path))
    write_landscapes(evidence, tmp_path)
    with fe.Database(tmp_path / "more.sqlite") as store:
        store.add(record_of(32, CPU, {"schedule": "fused", "lane": "last", "items": 64}))
    page, results, out = tmp_path / "page.rst", tmp_path / "results", tmp_path / "model.json"
    about = {"command": "cost-model", "group": "one einsum", "date": "2026-11-24", "problems": 9, "first pick": 1.1}
    others = [{**about, "9 of 10 below": 2.0, "worst": 3.0, "machine": {"device": device}} for device in (CPU.id, GPU.id)]
    results.write_text("".join(json.dumps(row) + "\n" for row in others))
    where = {"--out": out, "--page": page, "--rows": results}
    command.main([str(tmp_path / "more.sqlite"), *(str(word) for pair in where.items() for word in pair)])
    assert set(CostModel.from_json(json.loads(out.read_text())).forests) == {"cpu"}
    assert len(read_landscapes(tmp_path).times_s) == 4
    text = page.read_text()
    assert f'"one einsum", "``{GPU.id}``", "9", "1.10"' in text, "what was not measured again stays"
    assert f'"one einsum", "``{CPU.id}``", "3"' in text
    assert f'"``{CPU.id}``", "9"' not in text
    assert "one einsum" in capsys.readouterr().out


def test_the_evidence_that_is_kept_is_of_use() -> None:
    """Every file has a profile of its device, and rows that present spaces accept: among its first problem's."""
    evidence = read_landscapes()
    assert {problem.device for problem in evidence.times_s} <= set(evidence.profiles)
    assert isinstance(next(iter(evidence.times_s)), Problem)
    first = {problem.device: problem for problem in reversed(evidence.times_s)}
    few = replace(evidence, times_s={problem: evidence.times_s[problem] for problem in first.values()})
    devices = {row.problem.device for row in rows_of(few)}
    assert devices == set(evidence.profiles)


def test_winners_that_help_are_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was the quickest of one problem, where it is expected to be quicker for others than what a search finds."""
    configurations = list(GENERIC.configurations(GENERIC.problem(MATRICES, {"N": 1000}, GPU)))
    far, near, *_ = configurations[::-1]
    evidence = Evidence({GPU.id: GPU})
    for n in (4, 6, 8):
        for c, time_s in ((far, 1.0 if n == 4 else 3.0), (near, 2.0)):
            sizes = (("a", 1000 * n), ("b", n), ("c", n))
            problem = Problem(GPU.id, f"1|ac,cb->ab|a=inf b={n} c={n}||[float64,float64]", sizes)
            evidence.add(problem, (GENERIC.name, GENERIC.version), c, time_s)
    shares = {frozenset(far.items()): 0.79, frozenset(near.items()): 0.8}

    def expected(here: Any, s: Any, model: Any, winners: set[Any]) -> list[tuple[Any, float]]:
        return [(winner, shares[frozenset(winner)]) for winner in winners]

    monkeypatch.setattr(forest, "top_predictions", lambda *_, **__: [SimpleNamespace(expected_s=1.0)])
    monkeypatch.setattr(forest, "_expected", expected)
    # three times a fifth is worthwhile, and then another hundredth is not
    assert forest.starts_of(evidence, CostModel({}), "gpu") == {GENERIC.name: [far]}
    shares[frozenset(far.items())] = shares[frozenset(near.items())] = 0.9
    assert forest.starts_of(evidence, CostModel({}), "gpu") == {}
    assert forest.starts_of(evidence, CostModel({}), "cpu") == {}
