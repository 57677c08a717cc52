"""Kernels in files: saved, loaded without loopy, and refused where a file is no kernel or a device cannot run it."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einsums import check_against_numpy, inputs
from test_generate import SEVERAL
from test_ladder import BEST, E, add

import feinsum as fe
from feinsum.build import cache
from feinsum.devices import Device

pytestmark = pytest.mark.slow

INF = float("inf")
SAVED = {
    "batch": E,
    "anonymous long axes": fe.einsum("ij,ji->", fe.array("A", (INF, INF)), fe.array("A", (INF, INF))),
    "empty axis": fe.einsum("ij,j->i", fe.array("A", ("N", 0)), fe.array("x", 0)),
    **{name: e for name, (e, _) in list(SEVERAL.items())[:4]},
}


@pytest.mark.parametrize("e", SAVED.values(), ids=SAVED)
def test_a_saved_kernel_is_the_same_when_loaded(e: fe.BatchedEinsum, cpu: Device, store: str, tmp_path: Path) -> None:
    """Whatever the einsum: its results, its source, where it comes from and what it says of itself."""
    kernel = fe.generate(e, cpu, store)
    kernel.save(tmp_path / "kernel.feinsum")
    loaded = fe.load(tmp_path / "kernel.feinsum")
    assert_equal(loaded, kernel)


@pytest.mark.parametrize("e", SAVED.values(), ids=SAVED)
def test_a_pickled_kernel_is_the_same_when_restored(e: fe.BatchedEinsum, cpu: Device, store: str) -> None:
    """On the same device, as long as it is there; a copy is the kernel itself, which nobody can change."""
    kernel = fe.generate(e, cpu, store)
    restored = pickle.loads(pickle.dumps(kernel))
    assert restored.device is cpu
    assert_equal(restored, kernel)
    assert copy.copy(kernel) is kernel
    assert copy.deepcopy([kernel])[0] is kernel


@pytest.mark.parametrize("library", [True, False])
def test_an_expression_can_be_pickled_and_copied(cpu: Device, library: bool) -> None:
    """Before it was called and afterwards, with its constants and keywords; it is planned anew where it is restored."""
    b = np.ones((5, 6))
    expression = fe.contract_expression("ij,jk->ik", (4, 5), b, device=cpu, order="F", library=library)
    for _ in range(2):
        for restored in (pickle.loads(pickle.dumps(expression)), copy.copy(expression), copy.deepcopy(expression)):
            found = restored(np.ones((4, 5)))
            assert (found == 5).all()
            assert found.flags.f_contiguous
            assert explanation(restored) == explanation(expression)


def assert_equal(loaded: fe.Kernel, kernel: fe.Kernel) -> None:
    """Assert that two kernels are the same in all that can be seen of them."""
    e = kernel.einsum
    assert loaded.einsum == e
    assert (loaded.source, loaded.rung, loaded.space) == (kernel.source, kernel.rung, kernel.space)
    assert explanation(loaded) == explanation(kernel)
    assert str(loaded.t_unit) == str(kernel.t_unit)
    arrays = inputs(e, dict.fromkeys(e.long_axes, 7))
    check_against_numpy(e, arrays, loaded(arrays))


def explanation(kernel: fe.Kernel | fe.ContractExpression) -> str:
    """What a kernel says of itself, but for its share of the peaks: another process may measure these meanwhile."""
    return re.sub(r"\d+% of what the device can do", "a share of what the device can do", kernel.explain())


def test_a_kernel_is_proved_as_it_is_loaded(cpu: Device, store: str, tmp_path: Path) -> None:
    """A file whose source was changed is refused, unless its user wants no proof."""
    kernel = fe.generate(E, cpu, store)
    kernel.save(tmp_path / "k")
    entry = cache.decode((tmp_path / "k").read_bytes())
    assert entry is not None
    program = dict(entry.data["program"])
    stored = re.sub(r"= ([^=;]*);(\s*\}*\s*)$", r"= 2 * (\1);\2", program["source"])
    program["source"] = stored if stored != program["source"] else program["source"].replace(" * ", " + ")
    changed(tmp_path / "k", driver="another", program=program)
    with pytest.raises(fe.ValidationError, match="k holds a kernel that is wrong: "):
        fe.load(tmp_path / "k", cpu)
    fe.load(tmp_path / "k", cpu, prove=False)


def test_the_record_is_saved_too(cpu: Device, store: str, tmp_path: Path) -> None:
    """So that the kernel can say what it promises."""
    record = add(store, E, cpu, {"E": 1000}, BEST)
    fe.generate(E, cpu, store, {"E": 1000}).save(tmp_path / "k")
    loaded = fe.load(tmp_path / "k", cpu)
    assert (loaded.rung, loaded.record, loaded.configuration) == ("exact", record, BEST)


SCRIPT = """
import json, sys
import numpy as np
import feinsum as fe

kernel = fe.load(sys.argv[1])
one, two = kernel(A=np.ones((6, 5)), B=np.full((6, 5), 2.0), u=np.ones((3, 5)))
print(json.dumps([one.sum(), two.sum(), [name for name in ("loopy", "sqlalchemy") if name in sys.modules]]))
"""


def test_loading_takes_neither_loopy_nor_records(cpu: Device, store: str, tmp_path: Path) -> None:
    """In a process of its own."""
    fe.generate(E, cpu, store).save(tmp_path / "k")
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "k")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [90.0, 180.0, []]


def changed(path: Path, **changes: Any) -> Path:
    """The file with some of its data changed, and the hash right."""
    entry = cache.decode(path.read_bytes())
    assert entry is not None
    path.write_bytes(cache.encode({**entry.data, **changes}, entry.binary))
    return path


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "format": ({"format": "feinsum kernel 99"}, "holds no kernel; write one with Kernel.save"),
    "einsum": ({"einsum": {"subscripts": "ij"}}, "holds no kernel that can be used"),
    "names": ({"key": "another", "version": "9.9"}, "feinsum 9.9 gave its arrays other names; generate it again"),
    "program": ({"program": {"source": ""}}, "not a stored program"),
    "origin": ({"origin": {"rung": "best"}}, "not the stored origin of a kernel"),
    "lengths": ({"lengths": [1, 2]}, "holds no kernel that can be used"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSALS.values(), ids=REFUSALS)
def test_files_that_hold_no_kernel_are_refused(
    changes: dict[str, Any], message: str, cpu: Device, store: str, tmp_path: Path
) -> None:
    """With the name of the file and what is wrong."""
    fe.generate(E, cpu, store).save(tmp_path / "k")
    with pytest.raises(fe.ValidationError) as error:
        fe.load(changed(tmp_path / "k", **changes), cpu)
    assert str(tmp_path / "k") in str(error.value)
    assert message in str(error.value)
    (tmp_path / "k").write_text("no kernel")
    with pytest.raises(fe.ValidationError, match=r"holds no kernel; write one with Kernel\.save"):
        fe.load(tmp_path / "k", cpu)


def test_a_kernel_of_another_driver_is_compiled_from_source(cpu: Device, store: str, tmp_path: Path) -> None:
    """Its machine code is not handed to this one."""
    fe.generate(E, cpu, store).save(tmp_path / "k")
    loaded = fe.load(changed(tmp_path / "k", driver="another"), cpu)
    arrays = inputs(E, {"E": 9})
    check_against_numpy(E, arrays, loaded(arrays))


def test_a_device_with_small_work_groups_is_refused(cpu: Device, store: str, tmp_path: Path) -> None:
    """Before anything is compiled."""
    fe.generate(E, cpu, store).save(tmp_path / "k")
    small = Device(replace(cpu.profile, max_work_group_size=0))
    with pytest.raises(fe.DeviceError, match=r"the kernel has work-groups of \d+, .* at most 0"):
        fe.load(tmp_path / "k", small)


def test_a_kernel_of_another_version_of_its_space_has_no_t_unit(cpu: Device, store: str, tmp_path: Path) -> None:
    """It runs, but what made it is gone."""
    kernel = fe.generate(E, cpu, store)
    kernel.save(tmp_path / "k")
    origin = {"rung": "generic", "space": "generic", "version": 99, "configuration": {}, "record": None}
    loaded = fe.load(changed(tmp_path / "k", origin=origin), cpu)
    arrays = inputs(E, {"E": 9})
    check_against_numpy(E, arrays, loaded(arrays))
    with pytest.raises(fe.TransformError, match="made by version 99 of space 'generic', which now has version"):
        _ = loaded.t_unit
