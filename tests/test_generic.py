"""The generic space: which schedule it tries first, and that each computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from profiles import CPU
from running import run

import feinsum as fe
from feinsum.compile.executable import build_executable
from feinsum.compile.realize import realize
from feinsum.devices import Device
from feinsum.registry import find_space
from feinsum.validate import Workload

GENERIC = find_space("generic")
LENGTHS = {"i": 9, "j": 8, "k": 7, "l": 70}


def described(text: str) -> fe.BatchedEinsum:
    terms = text.split("->")[0].split(",")
    return fe.einsum(text, *(fe.array(f"x{k}", [LENGTHS[x] for x in term]) for k, term in enumerate(terms)))


@pytest.mark.parametrize(
    ("text", "schedules"),
    [
        ("ij,jk->ik", ["fused"]),
        ("ij,jk->k", ["sums first", "fused"]),
        ("ij,jk->", ["sums first", "fused"]),
        ("iij,jk->k", ["sums first", "fused"]),
        ("ij->i", ["fused"]),
        ("ij,jk,kl->il", ["pairwise", "fused"]),
        ("ij,j,ik->j", ["sums first", "fused", "pairwise"]),
    ],
)
def test_the_first_schedule_saves_work(text: str, schedules: list[str], cpu: Device) -> None:
    """What one operand alone has is summed over before the product; each schedule has the values of numpy."""
    e = described(text)
    problem = GENERIC.problem(e, None, CPU)
    assert list(GENERIC.parameters(problem)["schedule"]) == schedules
    arrays = {a.name: np.random.default_rng(0).normal(size=a.shape) for a in e.arrays}
    for schedule in schedules:
        configuration = GENERIC.default(problem) | {"schedule": schedule}
        found = run(realize(e, {}, GENERIC, configuration, CPU), cpu, e, arrays)
        np.testing.assert_allclose(found, np.einsum(text, *arrays.values()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("text", ["ba->ab", "ab->ab"])
def test_copies_of_complex_numbers_stay_within_their_array(text: str, dtype: str, cpu: Device) -> None:
    """Where the last group has work-items too many, whose condition Intel's compiler forgot."""
    e = fe.einsum(text, fe.array("x", (np.inf, np.inf), dtype))
    sizes = dict.fromkeys(e.long_axes, 100)
    for items in (16, 32):
        program = realize(e, sizes, GENERIC, {"schedule": "fused", "lane": "longest", "items": items}, cpu.profile)
        executable = build_executable(cpu.context, program)
        for length in (17, 24, 67):
            verdict = Workload(e, dict.fromkeys(e.index_sizes, length), cpu.queue).check(executable)
            assert verdict.ok, verdict.message
