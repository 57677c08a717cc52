"""Updates in place by every space of a CPU: what is stored stays within the output, and every entry is stored once.

Intel's compiler 2026.2 drops the bound of a loop whose store reads nothing but the output, as it does where the sum is left
out.  ``FEINSUM_FUZZ=20 pytest tests/test_updates_in_place.py`` tries twenty configurations of each of all presentations.
"""

from __future__ import annotations

import pytest
from fuzzing import EXAMPLES
from test_fuzz import cpu_devices
from test_spaces import SPACES, by_name, presentations, sized, some_configurations, types

import feinsum as fe
from feinsum.compile.executable import build_executable
from feinsum.compile.realize import realize
from feinsum.devices import Device
from feinsum.einsum import BatchedEinsum
from feinsum.space import TransformSpace
from feinsum.validate import Workload

pytestmark = pytest.mark.slow

TEXTS = ("2*out", "out + v", "alpha*v + beta*out", "0*v - out")
"""The first reads nothing but the output, and a compiler may see that the last one does."""
RAGGED = (13, 50, 67)
"""Lengths of long axes, which no tile divides."""


@pytest.fixture(scope="module", params=cpu_devices(), ids=lambda device: device.profile.runtime)
def device(request: pytest.FixtureRequest) -> Device:
    return request.param


@pytest.mark.parametrize("s", SPACES, ids=by_name)
def test_updates_stay_within_their_outputs(s: TransformSpace, device: Device) -> None:
    """By every epilogue in turn; what lies before and behind outputs is looked at."""
    ran, texts = 0, iter(range(1 << 30))
    for bare in presentations(s) if EXAMPLES else presentations(s)[1:2]:
        for configuration in some_configurations(s, bare, device.profile, max(EXAMPLES, 1)):
            e = bare.then(TEXTS[next(texts) % len(TEXTS)])
            executable = build_executable(device.context, realize(e, sized(e), s, configuration, device.profile))
            for length in RAGGED if e.long_axes else (0,):
                verdict = Workload(e, e.resolve(sized(e, length)), device.queue).check(executable)
                assert verdict.ok, f"{e} at {length}, {configuration}: {verdict.message}"
                ran += 1
    if not ran:
        pytest.skip(f"{s.name} has no configuration for {device}")


def _whole(e: BatchedEinsum) -> BatchedEinsum:
    """The einsum with whole numbers, of which zero times anything is zero for a compiler."""
    return fe.batched_einsum(str(e.indexing), [[fe.array(a.name, a.shape, "int32") for (a,) in row] for row in e.args])


@pytest.mark.parametrize("s", [s for s in SPACES if types(s)[0][0] != "c"], ids=by_name)
def test_what_is_left_of_a_sum_of_whole_numbers(s: TransformSpace, device: Device) -> None:
    """Where the compiler leaves the sum out, loops of stores still end where the output does."""
    ran = 0
    for bare in presentations(s) if EXAMPLES else presentations(s)[1:2]:
        e = _whole(bare)
        if s.roles(e) is None:
            continue
        for configuration in some_configurations(s, e, device.profile, EXAMPLES):
            own = e.then("0*v + 2*out")
            executable = build_executable(device.context, realize(own, sized(own), s, configuration, device.profile))
            for length in RAGGED if own.long_axes else (0,):
                verdict = Workload(own, own.resolve(sized(own, length)), device.queue).check(executable)
                assert verdict.ok, f"{own} at {length}, {configuration}: {verdict.message}"
                ran += 1
    if not ran:
        pytest.skip(f"{s.name} has no configuration for whole numbers on {device}")
