"""Curated records are files of JSON Lines, read with the working store as if they were one."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import feinsum.tuning_db
import pytest
from plugins import install, installing
from profiles import CPU
from records import KEY, SIZES, make_record

from feinsum import DatabaseError
from feinsum._checkout import ROOT
from feinsum.canonicalization import parse_key
from feinsum.database import CuratedRecords, Database, Stores, TuningRecord, curate, open_stores
from feinsum.database.curated import file_name
from feinsum.registry import find_space
from feinsum.space import Instance

H200 = "NVIDIA H200 (CUDA 580)"


@pytest.fixture
def records() -> list[TuningRecord]:
    """Several problems, devices, drivers, spaces and failures."""
    many = [
        make_record(median_s=t * 1e-3, device=device, sizes={**SIZES, "e": e}, space_version=t % 3, driver=f"{t % 2}")
        for t in range(1, 8)
        for e in (1000, 2000)
        for device in ("cpu", H200)
    ]
    return [
        *many,
        make_record(status="wrong", device="cpu", samples_s=(1e-9,)),
        make_record(einsum_key="ij->i", device="cpu"),
    ]


def test_curated_records_answer_like_a_database(records: list[TuningRecord], tmp_path: Path) -> None:
    """One contract: every question has the same answer from files as from SQLite."""
    curate(records, tmp_path)
    curated = CuratedRecords(tmp_path)
    with Database(tmp_path / "store.sqlite") as database:
        database.add(records)
        for where in (
            {},
            {"limit": 3},
            {"status": None},
            {"status": "wrong"},
            {"device": "cpu"},
            {"device": "absent"},
            {"einsum_key": KEY, "sizes": SIZES, "device": H200},
            {"pattern_key": "xre,rij,ej->xei", "driver": "1"},
            {"spaces": [("dg_gradient", 1), ("dg_gradient", 2)], "architecture": "zen5"},
        ):
            assert curated.query(**where) == database.query(**where), where  # type: ignore[arg-type]
        assert curated.winners() == database.winners()
        assert curated.winners(device=H200, spaces=[("dg_gradient", 2)]) == database.winners(
            device=H200, spaces=[("dg_gradient", 2)]
        )
        for device in ("cpu", H200, "absent"):
            for spaces in (None, [("dg_gradient", 2)], []):
                for driver in (None, "1"):
                    found = curated.best(KEY, SIZES, device, spaces=spaces, driver=driver)
                    assert found == database.best(KEY, SIZES, device, spaces=spaces, driver=driver)


def test_each_device_has_its_file_and_only_that_is_read(
    records: list[TuningRecord], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A look-up for one device does not wait for the files of the others."""
    paths = curate(records, tmp_path)
    assert [path.name for path in paths] == ["cpu.jsonl", "nvidia-h200-cuda-580.jsonl"]
    (tmp_path / "cpu.jsonl").write_text("a line that would be warned of")
    best = min((r for r in records if r.device == H200 and r.sizes == SIZES), key=lambda r: r.median_s or 0)
    assert CuratedRecords(tmp_path).best(KEY, SIZES, H200) == best
    assert caplog.text == ""


def test_curating_adds_to_what_is_there(tmp_path: Path) -> None:
    """A file is the sorted union of old and new lines, so that a review shows what was added."""
    first, second = make_record(median_s=2.0), make_record(median_s=1.0)
    curate([first], tmp_path)
    [path] = curate([second, second], tmp_path)
    assert path.read_text(encoding="utf-8").splitlines() == sorted([first.to_json(), second.to_json()])


def test_a_bad_line_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bad record is a miss and never an exception."""
    [path] = curate([make_record()], tmp_path)
    path.write_text("nonsense\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert CuratedRecords(tmp_path).best(KEY, SIZES, make_record().device) == make_record()
    assert "line 1 of the curated records amd-epyc-intel.jsonl: no JSON" in caplog.text


def test_a_line_is_parsed_when_its_key_is_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A look-up does not wait for records of other einsums, however their lines are written."""
    mine, other = make_record(), make_record(einsum_key="1|ab->a|a=2 b=3||[float64]")
    escaped = other.to_json().replace(">", "\\u003e")
    broken = '{"einsum_key":"a line that would be warned of"}'
    [path] = curate([mine], tmp_path)
    path.write_text("\n".join([broken, escaped, mine.to_json()]), encoding="utf-8")
    curated = CuratedRecords(tmp_path)
    assert curated.best(KEY, SIZES, mine.device) == mine
    assert curated.best(other.einsum_key, SIZES, mine.device) == other
    assert caplog.text == ""
    assert sorted(curated.query(), key=lambda r: r.einsum_key) == sorted([mine, other], key=lambda r: r.einsum_key)
    assert "line 1 of the curated records amd-epyc-intel.jsonl: " in caplog.text


def test_both_stores_are_read_together(tmp_path: Path) -> None:
    """The quicker of the two wins, and a record in both is one."""
    slow, middle, quick = (make_record(median_s=t) for t in (3.0, 2.0, 1.0))
    curate([slow, middle], tmp_path)
    with Database(tmp_path / "store.sqlite") as database:
        stores = open_stores(database, CuratedRecords(tmp_path))
        assert stores.best(KEY, SIZES, slow.device) == middle
        database.add([slow, quick])
        assert stores.best(KEY, SIZES, slow.device) == quick
        assert stores.best(KEY, SIZES, slow.device, spaces=iter([("dg_gradient", 2)])) == quick
        assert stores.best(KEY, SIZES, "absent") is None
        assert stores.query() == [quick, middle, slow]
        assert stores.query(limit=2) == [quick, middle]
        assert stores.winners() == [quick]


def test_a_store_is_opened_once_in_a_process(tmp_path: Path) -> None:
    """The second look-up does not open the file again, unless it was closed or replaced meanwhile."""
    path = tmp_path / "store.sqlite"
    first = open_stores(path).working
    assert first is not None
    assert open_stores(str(path)).working is first
    path.unlink()
    second = open_stores(path).working
    assert second is not None
    assert second is not first
    second.add(make_record())
    second.close()
    assert open_stores(path).best(KEY, SIZES, make_record().device) == make_record()


def test_only_a_store_that_somebody_named_must_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home directory that cannot be used leaves the curated records; a wrong name is the user's mistake."""
    (tmp_path / "feinsum").write_text("no directory")
    monkeypatch.delenv("FEINSUM_DATABASE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    stores = open_stores()
    assert stores == Stores(None, stores.curated)
    assert stores.best(KEY, SIZES, "absent") is None
    assert stores.query(device="absent") == []
    assert stores.winners(device="absent") == []
    monkeypatch.setenv("FEINSUM_DATABASE", str(tmp_path / "feinsum" / "store.sqlite"))
    with pytest.raises(DatabaseError, match=r"cannot create .*store\.sqlite: "):
        open_stores()


def test_the_curated_records_of_feinsum_are_sound() -> None:
    """Every line is a record, stands in the file of its device, once and in order."""
    for path in Path(feinsum.tuning_db.__path__[0]).glob("*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [TuningRecord.from_json(line) for line in lines]
        assert {file_name(record.device) for record in found} == {path.name}
        assert [record.to_json() for record in found] == lines == sorted(set(lines))


def test_the_curated_records_of_feinsum_are_configurations() -> None:
    """Their spaces accept them on their devices: a record that is refused is lost, whatever is offered these days."""
    known = {profile.id: profile for profile in CuratedRecords().profiles()}
    refused, accepted = [], 0
    for path in Path(feinsum.tuning_db.__path__[0]).glob("*.jsonl"):
        for record in map(TuningRecord.from_json, path.read_text(encoding="utf-8").splitlines()):
            here = Instance(parse_key(record.einsum_key), dict(record.sizes), known[record.device])
            s = find_space(record.space)
            reason = s.refusal(here.problem(s), record.configuration)
            accepted += reason is None
            refused += [f"{record.id}: {reason}"] * (reason is not None)
    assert not refused
    assert accepted > 700


def test_a_package_ships_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its entry point names a package; one that is none is left out with a warning."""
    record = make_record(device=CPU.id)
    with installing(tmp_path, ROOT):
        install(tmp_path, "shipped", "", "shipped_records", group="feinsum.records")
        install(tmp_path, "broken", "", "nowhere.records", group="feinsum.records")
        curate([record], tmp_path / "shipped_records", [CPU])
        curated = CuratedRecords()
        assert curated.best(KEY, SIZES, record.device) == record
        assert record in curated.query(device=None)
        assert CPU in curated.profiles()
        assert "the records of 'nowhere.records' cannot be found: ModuleNotFoundError" in caplog.text
        alone = "from feinsum.generate.answers import _record_folders as f; print(*f())"
        for _ in range(2):  # of all packages, and as it was remembered
            told = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True)
            assert told.stdout.split() == [str(tmp_path / "shipped_records")]
    assert CuratedRecords().best(KEY, SIZES, record.device) is None


def test_a_damaged_file_of_profiles_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is no profile is left out with a warning."""
    (tmp_path / "profiles.json").write_text(f'[{{"id": 1}}, {CPU.to_json()}]')
    assert CuratedRecords(tmp_path).profiles() == [CPU]
    (tmp_path / "profiles.json").write_text("[")
    assert CuratedRecords(tmp_path).profiles() == []
    assert len(caplog.records) == 2
