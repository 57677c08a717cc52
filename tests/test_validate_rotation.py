"""What is timed is compared: work that is skipped, or that spoils the inputs of the next run, is seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import feinsum as fe
from feinsum.compile.executable import build_executable
from feinsum.compile.realize import realize
from feinsum.devices import Device
from feinsum.registry import find_space
from feinsum.timing import time_executable
from feinsum.validate import Rotation, Workload
from feinsum.validate.guarded import digests

MATVEC = fe.einsum("ij,j->i", fe.array("A", ("N", 50)), fe.array("x", 50))


@dataclass
class Real:
    """A kernel that is right; by itself, and with what others have it do before each run."""

    executable: Any

    def scratch(self, context: Any, lengths: Any) -> dict[str, Any]:
        return dict(self.executable.scratch(context, lengths))

    def enqueue(self, queue: Any, buffers: Mapping[str, Any], lengths: Any) -> list[Any]:
        return list(self.executable.enqueue(queue, buffers, lengths))


@dataclass
class Remembers(Real):
    """Skips a run whose output it has seen before."""

    seen: set[int] = field(default_factory=set)

    def enqueue(self, queue: Any, buffers: Mapping[str, Any], lengths: Any) -> list[Any]:
        if buffers["out"].int_ptr in self.seen:
            return [cl.enqueue_marker(queue)]
        self.seen.add(buffers["out"].int_ptr)
        return super().enqueue(queue, buffers, lengths)


@dataclass
class Looks(Real):
    """Skips a run whose output begins with what it is going to be."""

    def enqueue(self, queue: Any, buffers: Mapping[str, Any], lengths: Any) -> list[Any]:
        out, A, x = (np.empty(n) for n in (1, 50, 50))
        for values, name in ((out, "out"), (A, "A"), (x, "x")):
            cl.enqueue_copy(queue, values, buffers[name])
        if abs(out[0] - A @ x) < 1e-9:
            return [cl.enqueue_marker(queue)]
        return super().enqueue(queue, buffers, lengths)


@dataclass
class Spoils(Real):
    """Writes to an input in its twentieth run."""

    runs: int = 0

    def enqueue(self, queue: Any, buffers: Mapping[str, Any], lengths: Any) -> list[Any]:
        events = super().enqueue(queue, buffers, lengths)
        self.runs += 1
        if self.runs == 20:
            cl.enqueue_fill_buffer(queue, buffers["x"], np.uint8(0x33), 8, 1)
        return events


@pytest.fixture(scope="module")
def right(cpu: Device) -> Any:
    configuration = {"schedule": "fused", "lane": "last", "items": 16}
    return build_executable(cpu.context, realize(MATVEC, {"N": 30}, find_space("generic"), configuration, cpu.profile))


@pytest.fixture(params=[1, 2, 5], ids=lambda count: f"{count} sets")
def rotation(request: pytest.FixtureRequest, cpu: Device) -> Rotation:
    """Of one workload, where there is no room for another, or of two."""
    w = Workload(MATVEC, MATVEC.resolve({"N": 30}), cpu.queue)
    profile = replace(cpu.profile, cache_bytes=3 * w.nbytes, global_memory_bytes=4 * request.param * w.nbytes)
    return Rotation.make(w, profile)


def judge(rotation: Rotation, executable: Any, cpu: Device) -> Any:
    """The verdict on an executable after it was timed."""
    rotation.begin(executable)
    time_executable(executable, cpu.queue, rotation, {"N": 30}, seconds=1.0)  # ends early where runs are steady
    return rotation.check(executable)


def test_what_does_its_work_is_right(rotation: Rotation, right: Any, cpu: Device) -> None:
    """However many sets there are, and whatever was timed before."""
    for _ in range(2):
        verdict = judge(rotation, Real(right), cpu)
        assert verdict.ok, verdict.message
        assert 0 < verdict.worst < 1


def test_skipped_work_is_seen(rotation: Rotation, right: Any, cpu: Device) -> None:
    """By whatever a kernel remembers what it did; the next one is not blamed for it."""
    verdict = judge(rotation, Remembers(right), cpu)
    assert "while it is timed, 'out'[0] is " in verdict.message
    assert judge(rotation, Real(right), cpu).ok


@pytest.mark.parametrize("runs", range(1, 8))
def test_skipped_work_is_seen_after_any_number_of_runs(runs: int, rotation: Rotation, right: Any, cpu: Device) -> None:
    """Also where the last run of each output wanted the result that the first one left there."""
    executable = Remembers(right)
    rotation.begin(executable)
    for turn in range(runs):
        executable.enqueue(cpu.queue, rotation[turn % len(rotation)], {"N": 30})
    cpu.queue.finish()
    assert not rotation.check(executable).ok


def test_a_result_is_never_found_where_it_is_to_be_written(cpu: Device, right: Any) -> None:
    """So that who looks for it has to do the work."""
    w = Workload(MATVEC, MATVEC.resolve({"N": 30}), cpu.queue)
    for count in (1, 3):
        rotation = Rotation([w, w.another()], count)
        verdict = judge(rotation, Looks(right), cpu)
        assert verdict.ok
        turns = [rotation[k % len(rotation)] for k in range(3 * len(rotation))]
        last: dict[int, int] = {}
        for turn in turns:
            inputs, output = turn["A"].int_ptr, turn["out"].int_ptr
            kind = [b["A"].int_ptr for b in rotation._inputs].index(inputs) % 2
            assert last.get(output) != kind
            last[output] = kind


def test_an_input_that_is_overwritten_is_seen(rotation: Rotation, right: Any, cpu: Device) -> None:
    """Also late, and by a byte; the next executable finds its inputs as they should be."""
    verdict = judge(rotation, Spoils(right), cpu)
    assert verdict.message.startswith("while it is timed, ")
    assert judge(rotation, Real(right), cpu).ok


def test_sets_are_enough_to_defeat_the_cache(cpu: Device) -> None:
    """And no more than there is memory for; two draws of inputs where two sets fit into it."""
    w = Workload(MATVEC, MATVEC.resolve({"N": 30}), cpu.queue)
    for sets, room, outputs, workloads in ((1, 1, 1, 1), (1, 9, 1, 2), (2, 2, 1, 2), (4, 9, 5, 2), (4, 4, 3, 2)):
        profile = replace(cpu.profile, cache_bytes=sets * w.nbytes // 2, global_memory_bytes=4 * room * w.nbytes)
        rotation = Rotation.make(w, profile)
        assert (len(rotation._outputs), len(rotation._workloads)) == (outputs, workloads), (sets, room)


def test_digests_of_many_buffers_are_those_of_each(cpu: Device) -> None:
    """Of any size, more than are made at once; a byte that is changed changes the digest of its buffer alone."""
    rng = np.random.default_rng(0)
    contents = [rng.integers(0, 256, 1 + 7 * k, np.uint8) for k in range(70)]
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(cpu.context, flags, hostbuf=values) for values in contents]
    found = digests(cpu.queue, buffers)
    assert found == [own for buffer in buffers for own in digests(cpu.queue, [buffer])]
    assert len(set(found)) == len(buffers)
    for place in (0, 3, 33, 69):
        contents[place][-1] ^= 1
        changed = [*buffers]
        changed[place] = cl.Buffer(cpu.context, flags, hostbuf=contents[place])
        again = digests(cpu.queue, changed)
        assert [k for k in range(70) if again[k] != found[k]] == [place]
    assert digests(cpu.queue, []) == []
