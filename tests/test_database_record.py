"""A record holds what was tried and how long it took, refuses what makes no sense, and survives its text exactly."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from records import SIZES, make_record, records

from feinsum import DatabaseError
from feinsum.database import FrozenMapping, TuningRecord


@given(records())
def test_a_record_round_trips_exactly_through_its_line(record: TuningRecord) -> None:
    """The text of a record is one line of standard JSON from which the same record, with the same id, comes back."""
    line = record.to_json()
    assert "\n" not in line
    again = TuningRecord.from_json(line)
    assert again == record
    assert again.id == record.id
    assert again.to_json() == line
    assert TuningRecord.from_json(line.encode()).id == record.id
    assert pickle.loads(pickle.dumps(record)).id == record.id


def test_median_and_spread_come_from_the_samples() -> None:
    """The median ranks; the median absolute deviation says how far to trust it."""
    record = make_record(samples_s=(4.0, 1.0, 2.0, 9.0))
    assert record.median_s == 3.0
    assert record.spread_s == 1.5


def test_only_an_ok_record_is_ranked() -> None:
    """A wrong variant may have been timed, but it has no median."""
    record = make_record(status="wrong", samples_s=(1e-3,))
    assert record.median_s is None
    assert record.spread_s is None


def test_an_id_depends_on_the_content_alone() -> None:
    """The order of keys and the type of a mapping do not matter; a value, and its type, do."""
    assert make_record(sizes=dict(reversed(SIZES.items()))).id == make_record().id
    ids = {make_record(configuration={"k": value}).id for value in (1, 1.0, True, "1")}
    assert len(ids) == 4


def test_the_id_of_a_record_does_not_change_with_feinsum() -> None:
    """A store written today is merged with one written next year, so this id is for ever."""
    assert make_record().id == "7a1ce0000639bd228dbe8eb835c4ef81"


def test_a_configuration_can_be_looked_up() -> None:
    """Mappings of a record are immutable and hashable, whatever they were made from."""
    record = make_record(configuration={"b": 1, "a": 2})
    assert {record.configuration: 1}[FrozenMapping({"a": 2, "b": 1})] == 1
    assert record.configuration == {"a": 2, "b": 1}
    assert hash(record) == hash(make_record(configuration={"a": 2, "b": 1}))
    with pytest.raises(TypeError):
        record.configuration["a"] = 3  # type: ignore[index]


def test_numbers_of_numpy_become_plain_numbers() -> None:
    """A tuner may hand over what its sampler gave it."""
    record = make_record(configuration={"k": np.int32(4), "f": np.float64(0.5)}, samples_s=np.array([1e-3, 2e-3]))
    assert json.loads(record.to_json())["configuration"] == {"k": 4, "f": 0.5}
    assert record.samples_s == (1e-3, 2e-3)


def test_a_long_message_keeps_its_head_and_its_tail() -> None:
    """Compilers name the file first and the reason last."""
    message = make_record(status="compile-failed", message="head" + "x" * 10**6 + "tail").message
    assert len(message) <= 2000
    assert message.startswith("head")
    assert message.endswith("tail")


def test_control_characters_of_a_message_are_replaced() -> None:
    """A log printed later cannot steer the terminal; lines stay lines."""
    message = make_record(status="wrong", message="a\x1b[31m\x00\ud800\r\n\tb").message
    assert message == "a\ufffd[31m\ufffd\ufffd\n\tb"


REFUSED = [
    ({"status": "fine"}, "status of a record is 'fine'; it is one of ok, wrong"),
    ({"status": []}, "status of a record is []"),
    ({"samples_s": ()}, "samples_s of a record is empty"),
    ({"samples_s": (1e-3, math.nan)}, "samples_s[1] of a record is nan; it is a finite, positive"),
    ({"samples_s": (math.inf,)}, "samples_s[0] of a record is inf"),
    ({"samples_s": (0.0,)}, "samples_s[0] of a record is 0.0"),
    ({"samples_s": (-1e-3,)}, "samples_s[0] of a record is -0.001"),
    ({"samples_s": (True,)}, "samples_s[0] of a record is True"),
    ({"samples_s": (10**400,)}, "samples_s[0] of a record is 1000"),
    ({"samples_s": "123"}, "samples_s of a record is '123'"),
    ({"samples_s": (1e-3,) * 20000}, "samples_s of a record has 20000 entries"),
    ({"einsum_key": ""}, "einsum_key of a record is ''"),
    ({"einsum_key": b"ij->i"}, "einsum_key of a record is b'ij->i'"),
    ({"einsum_key": "k" * 10**6}, "einsum_key of a record has 1000000 characters"),
    ({"device": "cpu\n"}, "device of a record is 'cpu\\n'; control characters"),
    ({"device": "\ud800"}, "device of a record is '\\ud800'"),
    ({"driver": None}, "driver of a record is None"),
    ({"space_version": -1}, "space_version of a record is -1; it is from 0"),
    ({"space_version": True}, "space_version of a record is True; it is an integer"),
    ({"space_version": 1.0}, "space_version of a record is 1.0"),
    ({"flops": 2**63}, "flops of a record is 9223372036854775808; it is from 0 to 2**63 - 1"),
    ({"bytes": "8"}, "bytes of a record is '8'"),
    ({"seed": 0.5}, "seed of a record is 0.5"),
    ({"sizes": {"i": 0}}, "sizes['i'] of a record is 0; it is from 1"),
    ({"sizes": {1: 2}}, "a key in sizes of a record is 1"),
    ({"sizes": [("i", 1)]}, "sizes of a record is [('i', 1)]; it is a mapping"),
    ({"configuration": {"k": math.nan}}, "configuration['k'] of a record is nan"),
    ({"configuration": {"k": [1]}}, "configuration['k'] of a record is [1]"),
    ({"configuration": {"k": None}}, "configuration['k'] of a record is None"),
    ({"configuration": {str(k): k for k in range(1000)}}, "configuration of a record has 1000 items"),
    ({"versions": {"loopy": 2025}}, "versions['loopy'] of a record is 2025"),
    ({"message": 3}, "message of a record is 3"),
    ({"created": "2026-11-20 09:19"}, "created of a record is '2026-11-20 09:19'; it is a time like"),
    ({"created": "2026-13-20T09:19:00.123456Z"}, "created of a record is '2026-13-20T09:19:00.123456Z'"),
    ({"created": 1.7e9}, "created of a record is 1700000000.0"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_makes_no_sense_is_refused_by_name_and_value(changes: dict[str, object], message: str) -> None:
    """Every field is checked where a record is made."""
    with pytest.raises(DatabaseError) as error:
        make_record(**changes)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_importing_the_package_of_stores_is_light() -> None:
    """A login node describes and queries without waiting for SQLAlchemy, loopy or OpenCL."""
    code = "import sys, feinsum.database; print({'sqlalchemy', 'loopy', 'pyopencl', 'psycopg'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
