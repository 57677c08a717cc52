"""What is one for the process is off while kernels are made, and is left as it was."""

from __future__ import annotations

import dataclasses
import gc
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import loopy as lp
import pytest
from loopy.codegen import control
from pymbolic.mapper import CachedMapper

import feinsum as fe
from feinsum.compile import detours
from feinsum.compile.detours import detours_paused
from feinsum.compile.realize import realize
from feinsum.devices import Device
from feinsum.effects import Pause, collector_paused
from feinsum.registry import find_space

pytestmark = pytest.mark.slow


def test_it_is_off_until_the_last_thread_has_left() -> None:
    """However the threads overlap, and also where one fails."""
    state = [True]
    pause = Pause(lambda: state[0], lambda on: state.__setitem__(0, on))
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with pause:
            entered.set()
            leave.wait(60)

    def failing() -> None:
        with pause:
            thread.start()
            assert entered.wait(60)
            raise ZeroDivisionError

    thread = threading.Thread(target=other)
    with pytest.raises(ZeroDivisionError):
        failing()
    assert state == [False]
    leave.set()
    thread.join()
    assert state == [True]


def test_what_is_off_stays_off() -> None:
    """As its user wants it."""
    gc.disable()
    try:
        with collector_paused:
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_kernels_leave_nothing_in_the_cache_of_loopy(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuning run would fill the disk; a user's own kernels are kept as before."""
    kept: list[object] = []
    monkeypatch.setattr("loopy.codegen.code_gen_cache.store_if_not_present", lambda *pair: kept.append(pair))
    e = fe.einsum("ij,j->i", fe.array("A", ("N", 7)), fe.array("x", 7))
    space = find_space("generic")
    realize(e, {"N": 100}, space, space.default(space.problem(e, {"N": 100}, cpu.profile)), cpu.profile)
    assert kept == []
    assert lp.CACHING_ENABLED
    lp.generate_code_v2(lp.make_kernel("{[i]: 0 <= i < 3}", "out[i] = 2 * i", name="own", lang_version=(2018, 2)))
    assert len(kept) == 1


@pytest.mark.parametrize("heeded", ["error", "ignore"])
def test_deprecations_of_dependencies_are_not_heeded(cpu: Device, heeded: str) -> None:
    """loopy's calls of islpy fail no kernel where warnings are errors; afterwards the filters are as they were."""
    e = fe.einsum("nj,ij->ni", fe.array("u", ("N", 7)), fe.array("A", (7, 7)))
    space = find_space("vector_panels")
    with warnings.catch_warnings():
        warnings.simplefilter(heeded)  # type: ignore[arg-type]
        before = list(warnings.filters)
        realize(e, {"N": 100}, space, space.default(space.problem(e, {"N": 100}, cpu.profile)), cpu.profile)
        assert list(warnings.filters) == before


def test_loopy_is_loaded_without_waiting_for_the_disk(tmp_path: Path) -> None:
    """SQLite hears that before it makes a cache of loopy; these work, and others are as they were."""
    script = """
import sqlite3
from feinsum.interrupts import load_module
connect, heard = sqlite3.connect, []
def traced(*arguments, **options):
    connection = connect(*arguments, **options)
    heard.append([])
    connection.set_trace_callback(heard[-1].append)
    return connection
sqlite3.connect = traced
load_module("loopy")
sqlite3.connect = connect
assert heard, "loopy has no caches any more"
print({statements[0] for statements in heard}, all("CREATE TABLE" in statements[1] for statements in heard))
from loopy.schedule import schedule_cache
from pytools.persistent_dict import WriteOncePersistentDict
other = WriteOncePersistentDict("other", container_dir=".", safe_sync=True)
print(len(schedule_cache), other.conn.execute("PRAGMA synchronous").fetchone())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["{'PRAGMA synchronous = OFF'} True", "0 (1,)"]


def test_keys_without_keywords_find_what_pymbolic_keyed() -> None:
    """A mapper that began with pymbolic's own keys goes on with the quick ones, also where there are keywords."""
    usual = CachedMapper.get_cache_key
    mapper = CachedMapper()
    for keywords in ({}, {"depth": 1}):
        with detours_paused():
            assert CachedMapper.get_cache_key is not usual
            quick, other = mapper.get_cache_key(1.0, "x", **keywords), mapper.get_cache_key(1, "x", **keywords)
        assert {usual(mapper, 1.0, "x", **keywords): "found"}.get(quick) == "found"
        assert quick != other
    assert CachedMapper.get_cache_key is usual


class Lookups(dict[str, Any]):
    """A dictionary that counts what is read of it."""

    count = 0

    def __getitem__(self, key: str) -> Any:
        self.count += 1
        return super().__getitem__(key)


def test_loopy_declares_the_class_of_its_loops_once(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many loops and kernels there are; the ``dataclass`` of others is Python's own."""
    monkeypatch.setattr(detours, "_declared", declared := Lookups())
    e, space = fe.einsum("ij,j->i", fe.array("A", (3, 4)), fe.array("x", 4)), find_space("generic")
    made = [realize(e, {}, space, space.default(space.problem(e, {}, cpu.profile)), cpu.profile) for _ in range(2)]
    assert made[0].source == made[1].source
    assert list(declared) == ["loopy.codegen.control.build_loop_nest.<locals>.ScheduleIndexInfo"]
    assert declared.count > 2
    assert control.dataclass is dataclasses.dataclass


def test_a_kernel_is_made_without_digests_of_it(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """They took a twelfth of the time; grids are the same, and remembered for the table that is asked about."""
    digest, taken = lp.LoopKernel.__hash__, []
    monkeypatch.setattr(lp.LoopKernel, "__hash__", lambda kernel: taken.append(kernel) or digest(kernel))
    e, space = fe.einsum("ij,j->i", fe.array("A", (3, 4)), fe.array("x", 4)), find_space("generic")
    realize(e, {}, space, space.default(space.problem(e, {}, cpu.profile)), cpu.profile)
    assert taken == []
    t_unit = lp.preprocess_program(fe.generate_loopy(e))
    kernel, table = t_unit.default_entrypoint, t_unit.callables_table
    asked = (frozenset(insn.id for insn in kernel.instructions), table)
    usual = kernel.get_grid_sizes_for_insn_ids_as_exprs(*asked, return_dict=True)
    assert taken
    with detours_paused():
        assert kernel.get_grid_sizes_for_insn_ids_as_exprs(*asked, return_dict=True) == usual
        once = kernel.get_grid_sizes_for_insn_ids_as_exprs(*asked)
        assert kernel.get_grid_sizes_for_insn_ids_as_exprs(*asked) is once
    assert once != usual
