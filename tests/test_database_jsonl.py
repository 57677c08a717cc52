"""Files of JSON Lines are data from anywhere: what is no record is refused with its line, and the rest is read."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import make_record

from feinsum import DatabaseError
from feinsum.database import Database, TuningRecord, jsonl

GOOD = make_record().to_json()
FIELDS = json.loads(GOOD)


def with_fields(**changes: Any) -> str:
    """The good line with some fields changed."""
    return json.dumps({**FIELDS, **changes})


HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "truncated": (GOOD[:100], "no JSON: Unterminated string"),
    "half an object": (GOOD[:-1], "no JSON: Expecting ',' delimiter"),
    "two on a line": (GOOD + GOOD, "no JSON: Extra data at character"),
    "no object": ("[1, 2]", "no record: [1, 2] is no object"),
    "a number": ("3", "no record: 3 is no object"),
    "deep lists": ("[" * 500_000, "no record: lists or objects are nested too deeply"),
    "deep objects": ('{"a":' * 150_000, "no record: lists or objects are nested too deeply"),
    "a deep field": (GOOD.replace('"zen5"', "[" * 400 + "]" * 400), "architecture of a record is [[[[[["),
    "a huge integer": (GOOD.replace("800000", "9" * 5000), "no JSON that a record may hold: Exceeds the limit"),
    "a large integer": (with_fields(bytes=10**30), "bytes of a record is 1000000000000000000000000000000; it is from 0"),
    "a huge float": (GOOD.replace("0.001,", "1e999,"), "samples_s[1] of a record is inf"),
    "NaN": (GOOD.replace("0.001,", "NaN,"), "no JSON that a record may hold: NaN is no number"),
    "minus infinity": (GOOD.replace("0.001,", "-Infinity,"), "no JSON that a record may hold: -Infinity is no number"),
    "a repeated key": (GOOD[:-1] + ',"device":"cpu"}', "no JSON that a record may hold: key 'device' occurs twice"),
    "a repeated size": (GOOD.replace('{"e":', '{"e":1,"e":'), "no JSON that a record may hold: key 'e' occurs twice"),
    "a missing field": (json.dumps({k: v for k, v in FIELDS.items() if k != "driver"}), "field 'driver' is missing"),
    "no date": (json.dumps({k: v for k, v in FIELDS.items() if k != "created"}), "field 'created' is missing"),
    "an unknown field": (with_fields(code="import os"), "unknown field 'code'; a newer feinsum may have written it"),
    "a field of an object": (with_fields(__class__="x"), "unknown field '__class__'"),
    "a wrong type": (with_fields(sizes=[3]), "sizes of a record is [3]; it is a mapping"),
    "a truth value": (with_fields(space_version=True), "space_version of a record is True; it is an integer"),
    "null": (with_fields(device=None), "device of a record is None"),
    "an unknown status": (with_fields(status="splendid"), "status of a record is 'splendid'"),
    "no UTF-8": (GOOD.encode().replace(b"zen5", b"zen\xff"), "no UTF-8: byte 21 is 0xff"),
    "UTF-16": (GOOD.encode("utf-16"), "no UTF-8: byte 1 is 0xff"),
    "a surrogate": (GOOD.replace("zen5", "\\ud800"), "architecture of a record is '\\ud800'; control characters"),
    "an escape code": (GOOD.replace("zen5", "\\u001b[2J"), "architecture of a record is '\\x1b[2J'; control characters"),
    "a NUL": (GOOD.replace("zen5", "\\u0000"), "architecture of a record is '\\x00'"),
    "a pickle": (b"\x80\x04\x95\x11\x00\x00", "no UTF-8: byte 1 is 0x80"),
    "too long": (with_fields(message="x" * (1 << 20)), "longer than 1048576 bytes"),
    "far too long": (b'{"message":"' + b"x" * (5 << 20) + b'"}', "longer than 1048576 bytes"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_line_is_refused_with_its_number_and_the_rest_is_imported(kind: str, tmp_path: Path) -> None:
    """The reason is one short line of ASCII, whatever the line held."""
    line, reason = HOSTILE[kind]
    other = make_record(median_s=1.0)
    path = tmp_path / "records.jsonl"
    raw = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(b"\n".join([GOOD.encode(), raw, b"", other.to_json().encode() + b"\r"]))
    with Database(tmp_path / "store.sqlite") as database:
        report = database.import_jsonl(path)
        assert database.query() == [make_record(), other]
    assert (report.added, report.known, len(report.refused)) == (2, 0, 1)
    assert report.refused[0].line == 2
    assert report.refused[0].reason.startswith(reason)
    assert report.refused[0].reason.isprintable()
    assert len(report.refused[0].reason) < 200
    assert str(report) == f"2 records added, 0 known before, 1 lines refused\nline 2: {report.refused[0].reason}"


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_line_at_all_is_an_exception(line: bytes | str) -> None:
    """Whatever a line holds, it is a record or a refusal."""
    refused = jsonl.parse_line(7, line)
    assert isinstance(refused, jsonl.RefusedLine)
    assert refused.line == 7


@given(st.data())
def test_a_damaged_line_is_a_record_or_refused(data: st.DataObject) -> None:
    """A line with some bytes overwritten, as by a broken disk, never stops an import."""
    damaged = bytearray(GOOD.encode())
    for at in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[at] = data.draw(st.integers(0, 255))
    assert isinstance(jsonl.parse_line(1, bytes(damaged)), (TuningRecord, jsonl.RefusedLine))


def test_a_line_of_a_hundred_megabytes_takes_no_such_memory(tmp_path: Path) -> None:
    """A long line is skipped in pieces."""
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"x" * 10**6)
        file.write(b"\n" + GOOD.encode())
    code = (
        "import resource, sys; from feinsum.database import jsonl\n"
        "list(jsonl.read_records('/dev/null')); before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print([type(entry).__name__ for _, entry in jsonl.read_records(sys.argv[1])],\n"
        "      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['RefusedLine', 'TuningRecord'] True"


def test_files_open_for_text_and_for_bytes_are_read() -> None:
    """Standard input comes as either."""
    for file in (io.StringIO(GOOD + "\n\n" + GOOD), io.BytesIO(GOOD.encode() + b"\n \n" + GOOD.encode())):
        assert list(jsonl.read_records(file)) == [(1, make_record()), (3, make_record())]


def test_a_file_that_is_not_there_or_cannot_be_written(tmp_path: Path) -> None:
    """One line that names the file."""
    with Database(tmp_path / "store.sqlite") as database:
        with pytest.raises(DatabaseError, match=r"cannot read .*absent.jsonl: No such file"):
            database.import_jsonl(tmp_path / "absent.jsonl")
        with pytest.raises(DatabaseError, match=r"cannot write .*records.jsonl: No such file"):
            database.export_jsonl(tmp_path / "absent" / "records.jsonl")


def test_an_export_goes_through_pipes_and_links(tmp_path: Path) -> None:
    """What is no regular file is written to, not replaced by one."""
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(file)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with Database(tmp_path / "store.sqlite") as database:
        database.add(make_record())
        assert database.export_jsonl(pipe) == database.export_jsonl(link) == 1
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert os.read(reader, 1 << 16).decode() == file.read_text(encoding="utf-8") == make_record().to_json() + "\n"
    os.close(reader)


def test_an_export_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """With the disk full in the middle, the export of yesterday is still whole and nothing lies about."""
    path = tmp_path / "records.jsonl"
    with Database(tmp_path / "store.sqlite") as database:
        database.add(make_record(median_s=k) for k in range(1, 1000))
        path.write_text("yesterday")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            with pytest.raises(DatabaseError, match=r"cannot write .*records.jsonl: File too large"):
                database.export_jsonl(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "yesterday"
    assert [name for name in os.listdir(tmp_path) if name.startswith("records")] == ["records.jsonl"]
