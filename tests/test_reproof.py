"""Records are proved again: what is wrong loses its rank, and what was proved is not proved twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plugins import install, installing
from rogues import SOURCE

import feinsum as fe
from feinsum.cli import cli
from feinsum.database import TuningRecord, jsonl
from feinsum.devices import Device
from feinsum.registry import find_space
from feinsum.tune.reproof import Progress, prove_again
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome

E = fe.einsum("abc,c->ba", fe.array("A", (40, "N", 30)), fe.array("x", 30))
SIZES = {"N": 50}


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package of rogues, installed for this process and its workers."""
    directory = tmp_path_factory.mktemp("site")
    install(directory, "rogues_package", SOURCE)
    with installing(directory):
        yield


def believed(cpu: Device, *ways: str, sizes: dict[str, int] = SIZES) -> list[TuningRecord]:
    """Records that say ``ok``, the first the quickest, as a proof that saw less had made them."""
    task, space = make_task(E, sizes, cpu, 0), find_space("rogue")
    return [
        task.record(task.trial(space, {"way": way}), Outcome("ok", samples_s=(1e-9 * (1 + k),)))
        for k, way in enumerate(ways)
    ]


def tried_before(cpu: Device, *, all_but: tuple[str, ...]) -> list[TuningRecord]:
    """Records that leave some ways to a run, whatever the cost model expects of the others."""
    task, space = make_task(E, SIZES, cpu, 0), find_space("rogue")
    ways = space.parameters(space.problem(E, SIZES, cpu.profile))["way"]
    return [task.record(task.trial(space, {"way": way}), Outcome("launch-failed")) for way in ways if way not in all_but]


def statuses(path: Path) -> dict[Any, str]:
    found = [entry for _, entry in jsonl.read_records(path) if isinstance(entry, TuningRecord)]
    return {record.configuration["way"]: record.status for record in found}


def run(*arguments: str) -> tuple[int, str]:
    from click.testing import CliRunner

    result = CliRunner().invoke(cli, ["db", "prove", *arguments, "--workers", "1"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_records_are_as_good_as_todays_proof(cpu: Device) -> None:
    """What is right stays as it is; what is wrong says what is wrong with it, and with what seed that was found."""
    records = believed(cpu, "skips what is written", "good", "refused")
    elsewhere = replace(records[0], device="gpu:elsewhere")
    found = {r.record.configuration["way"]: r for r in prove_again([*records, elsewhere], cpu, workers=2, seed=5)}
    assert {way: (r.outcome.status, r.decided) for way, r in found.items()} == {
        "skips what is written": ("wrong", True),
        "good": ("ok", True),
        "refused": ("refused", False),
    }
    assert found["good"].result == records[1]
    result = found["skips what is written"].result
    assert (result.status, result.seed, result.samples_s, result.created) == ("wrong", 5, (), records[0].created)
    assert " instead of " in result.message


def test_a_file_goes_on_where_it_stopped(cpu: Device, tmp_path: Path) -> None:
    """Also after it was stopped in the middle of a line; when all is proved, it takes the place of the source."""
    source, target = tmp_path / "records.jsonl", tmp_path / "proved.jsonl"
    elsewhere = replace(believed(cpu, "wrong", sizes={"N": 60})[0], device="gpu:elsewhere")
    records = [*believed(cpu, "overwrites an input", "good", "reads past an input"), elsewhere]
    jsonl.write_lines(sorted(r.to_json() for r in records), source)
    before = source.read_text()
    code, output = run(str(source), str(target), "--device", cpu.id, "--timeout", "0")
    assert code == 1
    assert "none; 3 are left for another call" in output
    assert target.read_text() == ""

    progress = Progress(records, target)
    progress.note(next(prove_again(records, cpu, workers=1)))
    assert statuses(target) == {"overwrites an input": "wrong"}
    with open(target, "a") as file:
        file.write('{"architecture":"x86')
    code, output = run(str(source), str(target), "--device", cpu.id)
    assert f"2 records of {cpu.id} to prove" in output
    assert f"1 ok, 1 wrong; {target} can take the place of {source}" in output
    assert "wrong, seed " in output
    assert code == 1  # as a record is wrong
    assert source.read_text() == before
    expected = {"overwrites an input": "wrong", "good": "ok", "reads past an input": "wrong", "wrong": "ok"}
    assert statuses(target) == expected
    assert target.read_text().splitlines() == sorted(target.read_text().splitlines())
    assert run(str(source), str(target), "--device", cpu.id)[0] == 0


def test_what_cannot_be_proved_keeps_its_rank_and_is_tried_again(cpu: Device, tmp_path: Path) -> None:
    """It may be right elsewhere; it is said, and is no success."""
    source, target = tmp_path / "records.jsonl", tmp_path / "proved.jsonl"
    jsonl.write_lines((r.to_json() for r in believed(cpu, "refused")), source)
    for _ in range(2):
        code, output = run(str(source), str(target), "--device", cpu.id)
        assert code == 1
        assert "too small for this" in output
        assert "1 refused; 1 are left for another call" in output


def test_wrong_records_of_a_store_lose_their_rank_at_once(cpu: Device, store: str, tmp_path: Path) -> None:
    """The quickest was wrong; `generate` takes the next."""
    with fe.Database(store) as database:
        database.add(believed(cpu, "skips what is written", "good"))
        assert database.query()[0].configuration["way"] == "skips what is written"
        code, _ = run(store, str(tmp_path / "proved.jsonl"), "--device", cpu.id)
        assert code == 1
        assert [r.configuration["way"] for r in database.query()] == ["good"]
        assert [r.configuration["way"] for r in database.query(status="wrong")] == ["skips what is written"]
    assert fe.generate(E, cpu, store, SIZES).configuration == {"way": "good"}


def test_a_final_takes_the_rank_of_what_it_finds_wrong(cpu: Device, store: str) -> None:
    """Such as records of an older proof, however quick; what it names is right, and so is what it reports."""
    with fe.Database(store) as database:
        wrong = ("skips what is written", "overwrites an input")
        database.add(believed(cpu, *wrong, sizes=SIZES))
        database.add(tried_before(cpu, all_but=(*wrong, "slow", "good")))
        run = fe.autotune(E, cpu, database, SIZES, "rogue", trials=2, sampler="exhaustive", workers=1, progress=False)
        assert run.best is not None
        assert run.best.configuration["way"] in ("slow", "good")
        assert {r.configuration["way"] for r in database.query(status="wrong")} >= {
            "skips what is written",
            "overwrites an input",
        }
        assert {r.configuration["way"] for r in database.query()} <= {"slow", "good"}
