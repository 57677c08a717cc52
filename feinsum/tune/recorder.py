"""Keeping records where a store fails: a record that could not be written goes to a file of JSON Lines."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from feinsum.database import Database, TuningRecord, jsonl
from feinsum.devices.json_store import cache_directory, locked
from feinsum.errors import DatabaseError

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def noting_others(location: str) -> Iterator[None]:
    """Around a run of the tuner; a warning names the process of another on this machine that records in the same store."""
    path = cache_directory() / "tuning" / blake2b(location.encode(), digest_size=8).hexdigest()
    with locked(path, 0.0, 0.0) as ours:
        # Nothing can be locked on some systems and disks; then it is unknown.
        other = ""
        with contextlib.suppress(OSError):
            if ours:
                path.write_text(f"{os.getpid()}\n", encoding="utf-8")
            else:
                other = path.read_text(encoding="utf-8").strip()
        if other:
            logger.warning(
                "another run, process %s, records in %s at the same time: each may disturb the times of the other, and try"
                " what the other tries",
                other,
                location,
            )
        yield


def require_writable(store: Database) -> None:
    """Check a store before anything is measured for it.

    :raises DatabaseError: if nothing can be added to it.
    """
    if not store.writable:
        raise DatabaseError(f"{store.location} is read-only; make it writable, or name another store")


def keep_record(store: Database, record: TuningRecord) -> None:
    """Add a record to a store.

    :raises DatabaseError: if the store fails; it says where the record is now.
    """
    try:
        store.add(record)
    except DatabaseError as error:
        raise DatabaseError(f"{error}; the last record is in {_save_record(store, record)}") from error


def refute(store: Database, record: TuningRecord, message: str, seed: int) -> None:
    """Take the rank of a configuration that was found wrong: each record of it that says ``ok`` is one that says so.

    :param seed: that of the proof.
    :raises DatabaseError: if the store fails.
    """
    for known in store.query(
        einsum_key=record.einsum_key,
        sizes=record.sizes,
        device=record.device,
        driver=record.driver,
        space=record.space,
        space_version=record.space_version,
    ):
        if known.configuration == record.configuration:
            store.replace(known, refuted(known, message, seed))


def refuted(record: TuningRecord, message: str, seed: int) -> TuningRecord:
    """The record of a configuration that was found wrong after all."""
    return replace(record, status="wrong", message=message, samples_s=(), seed=seed)


def _save_record(store: Database, record: TuningRecord) -> str:
    """Write a record to a file of its own beside the store, or where there is room; at last to the standard error."""
    for directory in _pending_directories(store):
        path = directory / f"feinsum-unsaved-{os.getpid()}-{record.id[:8]}.jsonl"
        try:
            jsonl.write_lines([record.to_json()], path)
        except DatabaseError:
            continue
        return f"{path}: feinsum db import {path}"
    sys.stderr.write(record.to_json() + "\n")
    return "the line above"


def _pending_directories(store: Database) -> Iterator[Path]:
    if "://" not in store.location:
        yield Path(store.location).parent
    yield Path.cwd()
    yield Path(tempfile.gettempdir())
