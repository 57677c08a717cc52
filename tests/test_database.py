"""The contract of a store, proved on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import io
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import postgres
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records import KEY, SIZES, make_record, records

from feinsum import DatabaseError
from feinsum.database import CuratedRecords, Database, FrozenMapping, TuningRecord, curate, schema, sql

BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
OTHER_SIZES = {**SIZES, "e": 2000}
A_FAILURE_OF_EACH_KIND = tuple(
    make_record(status=status, message="no", created=f"2026-11-2{k}T00:00:00.000000Z")
    for k, status in enumerate(("wrong", "compile-failed", "launch-failed", "timeout", "refused"))
)


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes up a new place for a store."""
    if request.param == "postgres":
        return postgres.new_database
    numbers = iter(range(1000))
    return lambda: str(tmp_path / f"{next(numbers)}.sqlite")


@pytest.fixture
def database(place: Callable[[], str]) -> Iterator[Database]:
    """A new and empty store."""
    with Database(place()) as opened:
        yield opened


def test_records_outlive_the_connection(place: Callable[[], str]) -> None:
    """What was added is there when the store is opened again, field for field."""
    where = place()
    added = [make_record(), *A_FAILURE_OF_EACH_KIND]
    with Database(where) as database:
        assert database.add(added) == 6
    with Database(where) as database:
        assert database.query(status=None) == added


def test_adding_twice_stores_once(database: Database) -> None:
    """A record is known by its content; the number of new ones is returned."""
    first, second = make_record(), make_record(median_s=2.0)
    assert database.add(first) == 1
    assert database.add([first, second, second]) == 1
    assert database.add([]) == 0
    assert len(database.query()) == 2


def test_a_record_takes_the_place_of_another(database: Database) -> None:
    """Of one that is wrong after all; the others stay, and to do it again changes nothing."""
    old, other = make_record(median_s=1.0), make_record(median_s=2.0)
    wrong = make_record(status="wrong", message="it skips its work")
    database.add([old, other])
    for _ in range(2):
        database.replace(old, wrong)
        assert database.query() == [other]
        assert database.query(status="wrong") == [wrong]


def test_an_addition_is_all_or_nothing(database: Database) -> None:
    """A value that is no record spoils the whole call, and nothing is half stored."""
    with pytest.raises(DatabaseError, match=r"3 is no TuningRecord"):
        database.add([make_record(), 3])  # type: ignore[list-item]
    assert database.query() == []


def test_query_returns_the_best_first(database: Database) -> None:
    """Ok records by median; failures after them, by date, and only if asked for."""
    quick, slow = make_record(median_s=1e-4), make_record(median_s=1e-3)
    database.add([slow, *reversed(A_FAILURE_OF_EACH_KIND), quick])
    assert database.query() == [quick, slow]
    assert database.query(limit=1) == [quick]
    assert database.query(status=None) == [quick, slow, *A_FAILURE_OF_EACH_KIND]
    assert database.query(status="timeout") == [A_FAILURE_OF_EACH_KIND[3]]
    with pytest.raises(DatabaseError, match=r"status is 'fine'; it is one of ok, wrong, .*, refused, or None for all"):
        database.query(status="fine")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("einsum_key", "ij->i"),
        ("pattern_key", "ij->i"),
        ("device", "nvidia-h200"),
        ("architecture", "hopper"),
        ("driver", "580"),
        ("space", "generic"),
        ("space_version", 3),
        ("protocol", 2),
    ],
)
def test_query_by_each_field(database: Database, field: str, value: object) -> None:
    """Each condition picks the records whose field has the value."""
    plain, other = make_record(), make_record(**{field: value})
    database.add([plain, other])
    assert database.query(**{field: value}) == [other]  # type: ignore[arg-type]
    assert database.query(**{field: getattr(plain, field)}) == [plain]  # type: ignore[arg-type]
    assert len(database.query()) == 2


def test_query_by_sizes_and_by_spaces(database: Database) -> None:
    """Sizes are those of a key; a record's space is its name and its version."""
    plain, large = make_record(), make_record(sizes=OTHER_SIZES)
    old, other = make_record(space_version=1), make_record(space="generic", space_version=2)
    database.add([plain, large, old, other])
    assert database.query(einsum_key=KEY, sizes=OTHER_SIZES) == [large]
    assert database.query(spaces=[("dg_gradient", 1), ("generic", 2)]) == sorted([old, other], key=lambda r: r.id)
    assert database.query(spaces=[]) == []
    with pytest.raises(DatabaseError, match=r"sizes are given without einsum_key"):
        database.query(sizes=SIZES)


def test_best_is_the_quickest_ok_record_of_the_problem(database: Database) -> None:
    """Other sizes, other devices and failures do not count, however quick."""
    best = make_record(median_s=1e-3)
    database.add(
        [
            make_record(median_s=2e-3),
            best,
            make_record(median_s=1e-6, sizes=OTHER_SIZES),
            make_record(median_s=1e-6, device="other"),
            make_record(median_s=1e-6, einsum_key="ij->i"),
            make_record(status="wrong", samples_s=(1e-6,)),
        ]
    )
    assert database.best(KEY, SIZES, best.device) == best
    assert database.best(KEY, dict(reversed(SIZES.items())), best.device) == best
    assert database.best(KEY, {**SIZES, "e": 3000}, best.device) is None
    assert database.best("no such key", SIZES, best.device) is None


def test_best_ignores_spaces_that_are_not_current(database: Database) -> None:
    """A record of an old version of a space, or of a space that is gone, describes a kernel that is no longer made."""
    old, new = make_record(median_s=1e-6, space_version=1), make_record(median_s=1e-3, space_version=2)
    gone = make_record(median_s=1e-7, space="gone", space_version=2)
    database.add([old, new, gone])
    assert database.best(KEY, SIZES, new.device) == gone
    assert database.best(KEY, SIZES, new.device, spaces=[("generic", 1), ("dg_gradient", 2)]) == new
    assert database.best(KEY, SIZES, new.device, spaces=[("generic", 1)]) is None
    assert database.best(KEY, SIZES, new.device, spaces=[]) is None


def test_best_of_one_driver_and_one_protocol(database: Database) -> None:
    """Times of another driver, or taken in another way, may be left out."""
    old = make_record(median_s=1e-6, driver="old", protocol=2)
    new = make_record(median_s=1e-3, driver="new", protocol=3)
    database.add([old, new])
    assert database.best(KEY, SIZES, new.device) == old
    assert database.best(KEY, SIZES, new.device, driver="new") == new
    assert database.best(KEY, SIZES, new.device, protocol=3) == new
    assert database.best(KEY, SIZES, new.device, driver="new", protocol=2, spaces=[("dg_gradient", 2)]) is None


def test_winners_are_one_for_each_problem_device_and_driver(database: Database) -> None:
    """From these a look-up takes the nearest sizes, and a cost model its anchors."""
    small = [make_record(median_s=t) for t in (1e-3, 2e-3, 3e-3)]
    large = [make_record(median_s=t, sizes=OTHER_SIZES) for t in (4e-3, 5e-3)]
    elsewhere = make_record(median_s=6e-3, device="other")
    older = make_record(median_s=1e-4, driver="older")
    database.add([*small, *large, elsewhere, older, make_record(status="wrong", samples_s=(1e-9,))])
    assert database.winners() == [older, small[0], large[0], elsewhere]
    assert database.winners(pattern_key=small[0].pattern_key, device=small[0].device, driver=small[0].driver) == [
        small[0],
        large[0],
    ]


def test_configurations_tried_lets_a_run_go_on(database: Database) -> None:
    """Every configuration once, with the best that came of it; what another driver or space did does not count."""
    one, two = {"elements": 1}, {"elements": 2}
    kept = [make_record(configuration=one, median_s=1e-3), make_record(configuration=two, status="timeout")]
    database.add(
        [
            *kept,
            make_record(configuration=one, median_s=2e-3),
            make_record(configuration=one, status="launch-failed"),
            make_record(configuration={"elements": 3}, driver="other"),
            make_record(configuration={"elements": 4}, space_version=1),
            make_record(configuration={"elements": 5}, sizes=OTHER_SIZES),
        ]
    )
    tried = database.configurations_tried(KEY, SIZES, kept[0].device, "dg_gradient", 2, kept[0].driver)
    assert tried == {FrozenMapping(one): kept[0], FrozenMapping(two): kept[1]}
    assert database.configurations_tried(KEY, SIZES, kept[0].device, "dg_gradient", 2, kept[0].driver, protocol=9) == {}


def test_a_very_long_key_is_stored_and_found(database: Database) -> None:
    """Batches of many outputs have long keys, longer than an index of PostgreSQL takes."""
    long = make_record(einsum_key="k" * 60_000, pattern_key="é∞" * 10_000)
    database.add(long)
    assert database.best(long.einsum_key, SIZES, long.device) == long
    assert database.query(pattern_key=long.pattern_key) == [long]


def test_a_row_that_is_no_record_is_a_miss(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A row spoilt in the store is passed over with a warning; the next best record is found."""
    good = [make_record(median_s=t) for t in (1e-4, 1e-3, 1e-2)]
    database.add(good)
    engine = database._live()
    with engine.connect() as connection, connection.begin():
        spoil = sa.text("UPDATE feinsum_records SET body = :body WHERE id = :id")
        connection.execute(spoil, {"body": '{"device": NaN}', "id": good[0].id})
        connection.execute(spoil, {"body": make_record(device="other").to_json(), "id": good[1].id})
    with caplog.at_level(logging.WARNING):
        assert database.best(KEY, SIZES, good[0].device) == good[2]
        assert database.query(device=good[0].device) == [good[2]]
        assert database.winners(device=good[0].device) == []
    assert "holds a row that is no record: no JSON that a record may hold: NaN is no number" in caplog.text


def test_stats_count_the_records(database: Database) -> None:
    """By status, device and space with its version."""
    database.add([make_record(), *A_FAILURE_OF_EACH_KIND, make_record(sizes=OTHER_SIZES, device="other", space_version=1)])
    stats = database.stats()
    assert (stats.records, stats.einsums, stats.problems) == (7, 1, 2)
    assert stats.by_status == {"ok": 2, "compile-failed": 1, "launch-failed": 1, "refused": 1, "timeout": 1, "wrong": 1}
    assert stats.by_device == {"amd-epyc (intel)": 6, "other": 1}
    assert stats.by_space == {"dg_gradient@1": 1, "dg_gradient@2": 6}
    assert "7 records of 1 einsums" in str(stats)


def test_stats_tell_ages_and_what_is_behind(database: Database, tmp_path: Path) -> None:
    """By the months of devices, and by the present versions of spaces; curated records are counted alike."""
    old, new = "2025-12-31T23:59:59.000000Z", "2026-11-20T09:19:00.000000Z"
    many = [
        make_record(created=old, space_version=1),
        make_record(created=new),
        make_record(created=new, device="other", space="gone"),
    ]
    database.add(many)
    stats = database.stats()
    assert stats.by_month == {"2025-12": 1, "2026-11": 2}
    assert stats.months == {many[0].device: ("2025-12", "2026-11"), "other": ("2026-11", "2026-11")}
    behind = {
        "dg_gradient@1": "version 2 of the space makes other kernels; tune again",
        "gone@2": "there is no such space here",
    }
    assert stats.verdicts({"dg_gradient": 2}) == behind
    assert stats.verdicts({"dg_gradient": 1, "gone": 2}) == {
        "dg_gradient@2": "made by a newer feinsum; here the space has version 1"
    }
    told = stats.told({"dg_gradient": 2}).splitlines()
    assert f"device {many[0].device}: 2, made in 2025-12 to 2026-11" in told
    assert "device other: 1, made in 2026-11" in told
    assert f"space dg_gradient@1: 1, {behind['dg_gradient@1']}" in told
    assert "space dg_gradient@2: 1" in told
    curate(many, tmp_path)
    assert replace(CuratedRecords(tmp_path).stats(), location=stats.location) == stats


def export(database: Database) -> str:
    """The whole store as text."""
    file = io.StringIO()
    database.export_jsonl(file)
    return file.getvalue()


def test_an_export_is_sorted_and_comes_back_whole(database: Database, place: Callable[[], str], tmp_path: Path) -> None:
    """The same records make the same file, whatever the order in which they came and the backend that held them."""
    many = [make_record(median_s=k * 1e-4, space=name) for k in range(1, 5) for name in ("Zeta", "alpha", "äther", "_")]
    many += A_FAILURE_OF_EACH_KIND
    database.add(many)
    path = tmp_path / "records.jsonl"
    assert database.export_jsonl(path) == len(many)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(record.to_json() for record in many)
    assert database.export_jsonl(tmp_path / "ok.jsonl", status="ok", space="Zeta") == 4
    with Database(place()) as other:
        report = other.import_jsonl(path)
        assert (report.added, report.known, report.refused) == (len(many), 0, ())
        assert other.import_jsonl(path).known == len(many)
        assert export(other) == path.read_text(encoding="utf-8")


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(left=st.lists(records(), max_size=4), right=st.lists(records(), max_size=4), both=st.lists(records(), max_size=2))
def test_merging_is_commutative_and_idempotent(
    place: Callable[[], str], left: list[TuningRecord], right: list[TuningRecord], both: list[TuningRecord]
) -> None:
    """Merging is the union of sets: A + B = B + A, and A + B + B = A + B."""
    with Database(place()) as a, Database(place()) as b:
        a.add(left + both)
        b.add(both + right)
        before = export(a)
        report = a.merge(b)
        assert report.added + report.known == len({record.id for record in both + right})
        b.add(TuningRecord.from_json(line) for line in before.splitlines())
        merged = export(a)
        assert export(b) == merged
        assert a.merge(b).added == 0
        assert a.merge(a).added == 0
        assert export(a) == merged
        assert merged.splitlines() == sorted({record.to_json() for record in left + right + both})


def test_merging_from_a_path_a_file_and_another_backend(database: Database, tmp_path: Path) -> None:
    """Shards come as SQLite files or as JSON Lines; a path that is not there is no empty store."""
    with Database(tmp_path / "shard.sqlite") as shard:
        shard.add([make_record(), make_record(median_s=1.0)])
        shard.export_jsonl(tmp_path / "shard.jsonl", space="dg_gradient")
    assert database.merge(tmp_path / "shard.sqlite").added == 2
    assert database.merge(tmp_path / "shard.jsonl").known == 2
    with Database(tmp_path / "back.sqlite") as back:
        assert back.merge(database).added == 2
    with pytest.raises(DatabaseError, match=r"there is no store at .*absent\.sqlite"):
        database.merge(tmp_path / "absent.sqlite")
    assert not (tmp_path / "absent.sqlite").exists()


def test_threads_share_a_store(database: Database) -> None:
    """Threads that add and look up at once lose nothing and see no error."""
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for j in range(10):
                record = make_record(device=f"device {k}", median_s=1.0 / (j + 1))
                database.add(record)
                assert database.best(KEY, SIZES, record.device) == record
        except BaseException as error:  # handed to the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert database.stats().records == 80


def test_a_closed_store_says_so(database: Database) -> None:
    """Closing twice is fine; using a closed store is an error with a name."""
    database.add(make_record())
    database.close()
    database.close()
    for use in (
        database.query,
        database.stats,
        lambda: database.add(make_record()),
        lambda: database.best(KEY, SIZES, "d"),
    ):
        with pytest.raises(DatabaseError, match=r"has been closed"):
            use()


def test_a_store_travels_to_another_process(database: Database) -> None:
    """Pickling carries the place, not the connection, so a scheduler may send a store along."""
    database.add(make_record())
    with pickle.loads(pickle.dumps(database)) as again:
        assert again.query() == database.query()


def test_reading_a_file_needs_no_sqlalchemy(tmp_path: Path) -> None:
    """A process that looks for records in a file of SQLite does not wait for SQLAlchemy, which takes longer to load."""
    record = make_record()
    with Database(tmp_path / "store.sqlite") as database:
        database.add(record)
    code = f"""
import sys
from feinsum.database import open_stores
store = open_stores({str(tmp_path / "store.sqlite")!r}).working
print([store.best({KEY!r}, {SIZES!r}, {record.device!r}).id, store.winners()[0].id, store.query()[0].id])
print(store.stats().records, "sqlalchemy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [str([record.id] * 3), "1 False"]


def test_a_newer_schema_is_refused(database: Database) -> None:
    """An older feinsum does not touch what it does not know."""
    with database._live().connect() as connection, connection.begin():
        connection.execute(sa.text("UPDATE feinsum_schema SET version = 99"))
    with pytest.raises(DatabaseError, match=r"has version 99 of the schema, but this feinsum knows versions up to 1"):
        pickle.loads(pickle.dumps(database))


ADD_A_COLUMN = (
    "ALTER TABLE feinsum_records ADD COLUMN note TEXT",
    "UPDATE feinsum_records SET note = 'from version 1'",
)


def notes(database: Database) -> list[str]:
    """The column that the second version of the schema has in these tests."""
    with database._live().connect() as connection:
        return list(connection.execute(sa.text("SELECT note FROM feinsum_records")).scalars())


def test_an_older_store_is_migrated(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening it takes the steps that are missing, once; the records stay."""
    database.add(make_record())
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ADD_A_COLUMN))
    for _ in range(2):
        with pickle.loads(pickle.dumps(database)) as again:
            assert notes(again) == ["from version 1"]
            assert again.query() == [make_record()]
            assert again.stats().schema_version == 2


def test_a_migration_that_fails_changes_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """All the steps are one transaction: a store is of one version or of the other."""
    database.add(make_record())
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, (*ADD_A_COLUMN, "no statement")))
        with pytest.raises(DatabaseError, match=r"syntax error"):
            pickle.loads(pickle.dumps(database))
    with pickle.loads(pickle.dumps(database)) as again:
        assert again.query() == [make_record()]
        with pytest.raises(sa.exc.DBAPIError, match=r"note"):
            notes(again)


def test_the_tables_are_those_the_code_knows(database: Database) -> None:
    """The migrations end in the columns that the statements name; failures have no median, and all else is there."""
    found = sa.inspect(database._live()).get_columns("feinsum_records")
    assert {column["name"] for column in found} == set(sql.COLUMNS)
    assert [column["name"] for column in found if column["nullable"]] == ["median_s"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*os.fork.* was called.*JAX:RuntimeWarning")  # where another test loaded it
def test_a_store_survives_a_fork(database: Database) -> None:
    """A child opens connections of its own and leaves its parent's alone."""
    first, second, third = (make_record(median_s=t) for t in (3.0, 2.0, 1.0))
    database.add(first)
    assert database.best(KEY, SIZES, first.device) == first
    child = os.fork()
    if child == 0:
        status = 1
        try:
            database.add(second)
            status = 0 if database.best(KEY, SIZES, first.device) == second else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    database.add(third)
    assert database.query() == [third, second, first]
