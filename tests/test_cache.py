"""The disk cache and the memory of a process: what is generated again at no cost, and what makes it be made anew."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from einsums import check_against_numpy, inputs
from test_ladder import BEST, OTHER, E, add

import feinsum as fe
from feinsum import generate as generate_function
from feinsum.build import cache, fingerprint, freshness, kernel_builder
from feinsum.build.cache import DiskCache, kernel_cache
from feinsum.candidates.origin import Origin
from feinsum.canonicalization import canonicalize_einsum
from feinsum.devices import Device, opencl
from feinsum.generate import answers
from feinsum.registry import find_space

generating = sys.modules["feinsum.generate"]
AT = {"E": 1000}


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    """An empty cache, and a process that has generated nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(answers, "_held", type(answers._held)())
    return kernel_cache()


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process does not know; it may neither transform nor compile."""
    monkeypatch.setattr(answers, "_held", type(answers._held)())


def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where the ladder is climbed."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the ladder is climbed again")

    monkeypatch.setattr(generating, "_first_working_choice", refuse)


def right(kernel: fe.Kernel) -> None:
    arrays = inputs(E, {"E": 41})
    check_against_numpy(E, arrays, kernel(arrays))


SCRIPT = """
import json, sys
import feinsum as fe
import numpy as np
A, B, u = fe.array("A", (6, 5)), fe.array("B", (6, 5)), fe.array("u", ("E", 5))
kernel = fe.generate(fe.batched_einsum("ij,ej->ei", [[A, u], [B, u]]), "cpu", sys.argv[1], {"E": 1000})
found = kernel(A=np.ones((6, 5)), B=np.full((6, 5), 2.0), u=np.ones((3, 5)))
loaded = [name for name in ("loopy", "islpy", "pymbolic", "sqlalchemy", "igraph", "optuna") if name in sys.modules]
print(json.dumps({"loaded": loaded, "values": [x.sum() for x in found], "rung": kernel.rung, "space": kernel.space}))
"""


def in_new_process(store: str) -> dict[str, Any]:
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, store],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_second_process_loads_neither_loopy_nor_the_database(own_cache: DiskCache, store: str) -> None:
    """It runs the same kernel, out of the cache."""
    first, second = in_new_process(store), in_new_process(store)
    assert "loopy" in first.pop("loaded")
    assert second.pop("loaded") == []
    assert first == second
    assert first["values"] == [90.0, 180.0]


def test_the_same_kernel_is_returned_in_one_process(own_cache: DiskCache, store: str) -> None:
    """For an equal einsum, sizes and device; other sizes and other names of arrays are another kernel."""
    cpu = fe.device("cpu")  # as names are understood now, whatever drivers other tests had found
    kernel = fe.generate(E, cpu, store, AT)
    again = fe.batched_einsum(E.subscripts, [list(row) for row in E.args])
    assert fe.generate(again, "cpu", store, AT) is kernel
    assert fe.generate(E, cpu, store, {"E": 2000}) is not kernel
    assert fe.generate(E, cpu, store, AT) is kernel


def test_a_record_added_later_is_seen(
    own_cache: DiskCache, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same process and in a new one, whoever added it, as often as that happens."""
    assert fe.generate(E, cpu, store, AT).record is None
    for median_s, configuration in ((3e-3, OTHER), (2e-3, BEST), (1e-3, OTHER)):
        record = add(store, E, cpu, AT, configuration, median_s)
        kernel = fe.generate(E, cpu, store, AT)
        assert (kernel.rung, kernel.record) == ("exact", record)
        assert fe.generate(E, cpu, store, AT) is kernel
        forget(monkeypatch)
        assert fe.generate(E, cpu, store, AT).record == record
        right(kernel)


def test_a_record_of_another_einsum_changes_nothing(
    own_cache: DiskCache, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a slower one of this: the answer is looked up again, and stays."""
    add(store, E, cpu, AT, BEST, 1e-3)
    kernel = fe.generate(E, cpu, store, AT)
    no_work(monkeypatch)
    other = fe.einsum("ij->ji", fe.array("A", (3, 4)))
    add(store, other, cpu, {})
    assert fe.generate(E, cpu, store, AT) is kernel
    forget(monkeypatch)
    assert fe.generate(E, cpu, store, AT).record == kernel.record
    with fe.Database(store) as database:
        assert database.stats().records == 2


def test_a_store_is_told_from_its_former_self(store: str, cpu: Device) -> None:
    """By the files at a glance, and by the number of its last record."""
    place = freshness.StoreHandle(store)
    seen = [(place.glance(), place.count())]
    for sizes in (10, 20, 30):
        add(store, E, cpu, {"E": sizes})
        seen.append((place.glance(), place.count()))
        assert (place.glance(), place.count()) == seen[-1]
    assert len(set(seen)) == len({count for _, count in seen}) == 4
    assert seen[0][1] == "empty"
    Path(store).write_bytes(b"no database, but long enough to be taken for one" * 20)
    assert place.count() is None
    assert freshness.StoreHandle("postgresql://me@nowhere/records").glance() is None
    assert freshness.StoreHandle("postgresql://me@nowhere/records").count() is None


def test_a_store_in_the_place_of_another_is_told_from_it(store: str, cpu: Device, tmp_path: Path) -> None:
    """On the disk too, with as many records."""
    seen = []
    for sizes in (10, 20):
        other = str(tmp_path / f"{sizes}.sqlite")
        add(other, E, cpu, {"E": sizes})
        with open(store, "ab") as file:
            file.truncate(0)
            file.write(Path(other).read_bytes())
        seen.append((os.stat(store).st_ino, freshness.StoreHandle(store).count()))
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] != seen[1][1]
    assert seen[0][1] not in ("empty", None)


def test_a_store_that_was_replaced_is_read_anew(own_cache: DiskCache, cpu: Device, store: str) -> None:
    """Not its predecessor's answer."""
    add(store, E, cpu, AT, BEST)
    assert fe.generate(E, cpu, store, AT).rung == "exact"
    for suffix in ("", "-wal", "-shm"):
        Path(store + suffix).unlink(missing_ok=True)
    assert fe.generate(E, cpu, store, AT).record is None
    record = add(store, E, cpu, AT, OTHER)
    assert fe.generate(E, cpu, store, AT).record == record


def job(cpu: Device, **changes: Any) -> kernel_builder.KernelJob:
    canonical = canonicalize_einsum(changes.get("e", E))
    profile = replace(cpu.profile, **changes.get("profile", {}))
    lengths = {letter: 1000 if axis == float("inf") else axis for letter, axis in canonical.einsum.index_sizes.items()}
    return kernel_builder.KernelJob(canonical, changes.get("lengths", lengths), Device(profile))


CHANGES: dict[str, dict[str, Any]] = {
    "einsum": {"e": fe.einsum("ij,ej->ei", fe.array("A", (6, 5)), fe.array("u", ("E", 5)))},
    "lengths": {"lengths": {"a": 1001, "b": 6, "c": 5}},
    "device": {"profile": {"id": "cpu:intel:another:2cu"}},
    "driver": {"profile": {"driver": "a newer one"}},
    "limits": {"profile": {"max_work_group_size": 7}},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_everything_that_matters_is_part_of_the_key(changes: dict[str, Any], cpu: Device) -> None:
    """Einsum, lengths expected, and all that is known of the device."""
    origin, space = Origin("exact", "generic", 1, BEST), find_space("generic")
    assert job(cpu).key(origin, space, False) == job(cpu).key(origin, space, False)
    assert job(cpu, **changes).key(origin, space, False) != job(cpu).key(origin, space, False)


def test_what_is_made_is_part_of_the_key(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space, version, function, configuration, width of indices, and the code with its libraries."""
    origin, space = Origin("exact", "generic", 1, BEST), find_space("generic")
    keys = [
        job(cpu).key(origin, space, False),
        job(cpu).key(origin, space, True),
        job(cpu).key(replace(origin, space="another"), space, False),
        job(cpu).key(replace(origin, version=2), space, False),
        job(cpu).key(replace(origin, configuration=OTHER), space, False),
        job(cpu).key(origin, replace(space, function=lambda t_unit, match, problem: t_unit), False),
    ]
    monkeypatch.setattr(kernel_builder, "code_fingerprint", lambda: "edited")
    keys.append(job(cpu).key(origin, space, False))
    assert len(set(keys)) == len(keys)


def test_the_code_that_makes_kernels_is_all_of_it() -> None:
    """Rooms within rooms count, and what is known of devices; what only shows or stores results does not."""
    root = Path(fe.__file__).parents[1]
    sources = {Path(path).relative_to(root).as_posix() for path in fingerprint._sources()}
    made_by = {
        "feinsum/devices/vendors/nvidia/mma.py",
        "feinsum/rewrites/vectors/memory_rows.py",
        "transforms/warp_tiles/plans.py",
        "feinsum/einsum.py",
    }
    assert made_by <= sources
    assert {path.relative_to(root).as_posix() for path in (root / "transforms").rglob("*.py")} <= sources
    assert not any(path.startswith(("feinsum/cli/", "feinsum/report/", "feinsum/database/")) for path in sources)


def test_code_is_told_from_edited_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files, the versions of its libraries, and what is installed beside it."""
    space = tmp_path / "space.py"
    space.write_text("version = 1\n")
    sources, site = [*fingerprint._sources(), str(space)], tmp_path / "site-packages"
    assert any(name.endswith("generic.py") for name in sources)
    assert any(name.endswith("ladder.py") for name in sources)
    site.mkdir()
    monkeypatch.setattr(fingerprint, "_sources", lambda: sources)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])

    def now() -> str:
        return fingerprint.code_fingerprint.__wrapped__()

    seen = [now(), now()]
    space.write_text("version = 2\n")
    seen.append(now())
    os.utime(site, (1, 1))
    seen.append(now())
    monkeypatch.setattr(fingerprint, "version", lambda name: "0.0")
    seen.append(now())
    assert seen[0] == seen[1]
    assert len(set(seen)) == 4


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "one bit": lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
    "no JSON": lambda content: cache.encode({}, b"").replace(b"{}", b"{"),
    "another kind of JSON": lambda content: cache.encode([1, 2], b""),  # type: ignore[arg-type]
    "an empty object": lambda content: cache.encode({}, b""),
    "another program": lambda content: cache.encode({"program": {"source": 7}, "checked": True}, b""),
    "another binary": lambda content: cache.encode(dict(cache.decode(content).data), b"nothing a driver takes"),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("kind", ["program", "answer"])
def test_a_damaged_entry_is_made_anew(
    kind: str,
    damage: Callable[[bytes], bytes],
    own_cache: DiskCache,
    cpu: Device,
    store: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Silently; the next process reads it again.

    On a busy machine the clock may end the search of the cost model, and another kernel be found: here it does not.
    """
    monkeypatch.setattr("feinsum.candidates.ladder.SECONDS", math.inf)
    kernel = fe.generate(E, cpu, store, AT)
    (path,) = own_cache.directory.glob(f"{kind}-*")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    forget(monkeypatch)
    again = fe.generate(E, cpu, store, AT)
    right(again)
    assert (again.rung, again.source) == (kernel.rung, kernel.source)
    forget(monkeypatch)
    if damage is not DAMAGE["another binary"]:  # the program is sound, so it is compiled from source each time
        no_work(monkeypatch)
    right(fe.generate(E, cpu, store, AT))


def test_a_kernel_is_checked_once_for_all_processes(
    own_cache: DiskCache, cpu: Device, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the first rung; what was built unchecked, for an exact record, is checked when a lower rung needs it."""
    from feinsum import validate

    checked: dict[int, Any] = {}  # each once, at however many lengths it is checked
    original = validate.Workload.check
    monkeypatch.setattr(validate.Workload, "check", lambda self, x: original(self, checked.setdefault(id(x), x)))
    fe.generate(E, cpu, store, AT)
    assert len(checked) == 1
    for other in ("a", "b"):
        forget(monkeypatch)
        fe.generate(E, cpu, str(tmp_path / other), AT)
    assert len(checked) == 1
    unchecked = {"E": 3000}
    add(store, E, cpu, unchecked, OTHER)
    assert fe.generate(E, cpu, store, unchecked).rung == "exact"
    assert len(checked) == 1
    add(str(tmp_path / "c"), E, cpu, {"E": 9999}, OTHER)
    assert fe.generate(E, cpu, str(tmp_path / "c"), unchecked).rung == "lengths"
    assert len(checked) == 2
    forget(monkeypatch)
    fe.generate(E, cpu, str(tmp_path / "c"), unchecked)
    assert len(checked) == 2


def test_a_compiler_that_fails_once_does_not_outrank_what_was_measured(
    own_cache: DiskCache, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory was short, say: another kernel is taken, and the next process has that of the record again."""
    add(store, E, cpu, AT, BEST)
    failures = [cl.MemoryError("clBuildProgram", cl.status_code.OUT_OF_HOST_MEMORY)]
    build = opencl._build_quietly

    def fail_once(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return build(*arguments, **options)

    monkeypatch.setattr(opencl, "_build_quietly", fail_once)
    kernel = fe.generate(E, cpu, store, AT)
    right(kernel)
    assert kernel.rung != "exact"
    assert not failures
    assert fe.generate(E, cpu, store, AT) is kernel
    forget(monkeypatch)
    again = fe.generate(E, cpu, store, AT)
    right(again)
    assert again.rung == "exact"
    forget(monkeypatch)
    no_work(monkeypatch)
    assert fe.generate(E, cpu, store, AT).rung == "exact"


def test_answers_of_other_packages_are_not_stored(
    own_cache: DiskCache, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sources are unknown to us, so the next process asks them again."""
    from feinsum import registry

    def theirs(t_unit: Any, match: Any, p: Any, **configuration: Any) -> Any:
        return find_space("generic").function(t_unit, match, p, **configuration)

    foreign = replace(find_space("generic"), name="foreign", rank=9, function=theirs)
    spaces = (foreign, *registry.spaces())
    monkeypatch.setattr(registry, "spaces", lambda: spaces)
    assert fe.generate(E, cpu, store, AT).space == "foreign"
    assert not list(own_cache.directory.glob("answer-*"))
    assert list(own_cache.directory.glob("program-*"))


def test_entries_not_used_for_longest_are_removed(tmp_path: Path) -> None:
    """When there are too many bytes; reading an entry is using it."""
    store = DiskCache(tmp_path, 10_000)
    for k in range(8):
        store.put(f"k{k}", {"k": k}, bytes(1000))
        os.utime(tmp_path / f"k{k}", (k, k))
    assert store.get("k0") is not None
    store.put("big", {}, bytes(4000))
    left = {path.name for path in tmp_path.iterdir()}
    assert {"k0", "big", "k7"} <= left
    assert {"k1", "k2"} & left == set()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000
    store.put("too big", {}, bytes(20_000))
    assert store.get("too big") is None
    assert store.get("big") is not None


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    """After an hour; a file that is being written is not."""
    (tmp_path / "old.tmp").write_bytes(b"half")
    (tmp_path / "new.tmp").write_bytes(b"half")
    os.utime(tmp_path / "old.tmp", (time.time() - 7200,) * 2)
    DiskCache(tmp_path, 10_000).put("k", {})
    assert {path.name for path in tmp_path.iterdir()} == {"new.tmp", "k"}


def test_the_bound_is_set_by_the_environment(
    own_cache: DiskCache, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In bytes; zero turns the cache off; what is no number is named in the log."""
    assert own_cache.limit_bytes == 256 << 20
    monkeypatch.setenv("FEINSUM_CACHE_BYTES", "1000000")
    assert kernel_cache().limit_bytes == 1_000_000
    monkeypatch.setenv("FEINSUM_CACHE_BYTES", "1 GB")
    assert kernel_cache().limit_bytes == 256 << 20
    assert "FEINSUM_CACHE_BYTES='1 GB' is not a number of bytes" in caplog.text
    monkeypatch.setenv("FEINSUM_CACHE_BYTES", "0")
    right(fe.generate(E, cpu, store, AT))
    assert not own_cache.directory.exists()


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    """Where its directory is a file, say."""
    (tmp_path / "file").write_text("")
    store = DiskCache(tmp_path / "file", 10_000)
    store.put("k", {"a": 1})
    assert store.get("k") is None


WRITER = """
import sys
from pathlib import Path
from feinsum.build.cache import DiskCache
store = DiskCache(Path(sys.argv[1]), 400_000)
for k in range(300):
    found = store.get(f"k{k % 7}")
    assert found is None or found.binary == bytes([found.data["fill"]]) * 20_000, found.data
    store.put(f"k{k % 7}", {"fill": int(sys.argv[2])}, bytes([int(sys.argv[2])]) * 20_000)
"""


def test_many_processes_share_a_cache(tmp_path: Path) -> None:
    """Everyone reads whole entries or none, while all write and remove the same ones."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", WRITER, str(tmp_path / "shared")]
    env = {**os.environ, "PYTHONPATH": path}
    processes = [subprocess.Popen([*command, str(k)], env=env, stderr=subprocess.PIPE, text=True) for k in range(3)]
    for process in processes:
        _, said = process.communicate()
        assert process.returncode == 0, said
    assert {path.suffix for path in (tmp_path / "shared").iterdir()} == {""}


def test_threads_may_ask_for_the_same_kernel(own_cache: DiskCache, cpu: Device, store: str) -> None:
    """All get a right one."""
    found: list[fe.Kernel] = []
    threads = [threading.Thread(target=lambda: found.append(generate_function(E, cpu, store, AT))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for kernel in found:
        right(kernel)


def test_sizes_that_are_none_are_refused_as_before(own_cache: DiskCache, cpu: Device, store: str) -> None:
    """Being equal to a length, or no key of a dictionary, does not get them past the check."""
    fe.generate(E, cpu, store, {"E": 1})
    for wrong in (True, [1], 1.5):
        with pytest.raises(fe.ShapeError, match=r"sizes\['E'\] is .*; a length is a non-negative integer"):
            fe.generate(E, cpu, store, {"E": wrong})  # type: ignore[dict-item]
    assert fe.generate(E, cpu, store, {"E": np.int64(1)}).einsum == E
