"""Profiles: names that are the same for the same hardware, and data that survives a file."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feinsum.devices import DeviceProfile
from feinsum.devices.host import Processor
from feinsum.devices.naming import cpu_model, device_id, gpu_model, runtime_name
from feinsum.devices.profile import KINDS, unknown_profile
from feinsum.errors import DeviceError

MASKED = Processor("x86_64", "AuthenticAMD", "AMD EPYC", 26, 2, frozenset(["avx", "avx2", "avx512f"]), 2**25)
"""A processor whose number a hypervisor hides."""

NUMBERED = replace(MASKED, brand="AMD EPYC 9654 96-Core Processor", family=25, model=17)
XEON = Processor(
    "x86_64", "GenuineIntel", "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", 6, 79, frozenset(["avx", "avx2"]), 0
)
ARM = Processor("aarch64", "", "", None, None, frozenset(["fp", "asimd"]), 0)


@pytest.mark.parametrize(
    ("name", "processor", "model"),
    [
        ("AMD EPYC", MASKED, "amd-epyc-f26m2"),
        ("pthread-AMD EPYC", MASKED, "amd-epyc-f26m2"),
        ("pthread-skylake-avx512-AMD EPYC", MASKED, "amd-epyc-f26m2"),
        ("cpu-znver4-AMD EPYC 9654 96-Core Processor", NUMBERED, "amd-epyc-9654"),
        ("AMD EPYC 9654 96-Core Processor", NUMBERED, "amd-epyc-9654"),
        ("Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", XEON, "intel-xeon-e5-2690-v4"),
        ("pthread-cortex-a72", ARM, "cortex-a72"),
    ],
)
def test_one_processor_has_one_name_under_every_runtime(name: str, processor: Processor, model: str) -> None:
    """What the driver puts around the maker's name is not part of it."""
    assert cpu_model(name, processor) == model


def test_processors_of_different_generations_behind_one_masked_name_differ() -> None:
    """Lumping them together would hand the kernels of one to the other."""
    assert cpu_model("AMD EPYC", MASKED) != cpu_model("AMD EPYC", replace(MASKED, family=25))


@pytest.mark.parametrize(
    ("processor", "architecture", "vector_bytes"),
    [
        (MASKED, "x86-64-amd-f26-avx512", 64),
        (XEON, "x86-64-intel-f6-avx2", 32),
        (replace(XEON, flags=frozenset()), "x86-64-intel-f6-sse", 16),
        (ARM, "aarch64", 16),
    ],
)
def test_the_architecture_is_what_processors_of_a_family_share(
    processor: Processor, architecture: str, vector_bytes: int
) -> None:
    """Maker, family and the width of vectors, not the model."""
    assert (processor.architecture, processor.vector_bytes) == (architecture, vector_bytes)


@pytest.mark.parametrize(
    ("target", "architecture", "vector_registers", "model"),
    [
        ("core-avx2", "x86-64-amd-f26-avx2", 16, "amd-epyc-f26m2-core-avx2"),
        ("corei7-avx", "x86-64-amd-f26-avx", 16, "amd-epyc-f26m2-corei7-avx"),
        ("corei7", "x86-64-amd-f26-sse", 16, "amd-epyc-f26m2-corei7"),
        ("skx", "x86-64-amd-f26-avx512", 32, "amd-epyc-f26m2"),
        ("", "x86-64-amd-f26-avx512", 32, "amd-epyc-f26m2"),
    ],
)
def test_a_processor_is_what_is_compiled_for_it(target: str, architecture: str, vector_registers: int, model: str) -> None:
    """Kernels for an older instruction set have its registers, and records of their own under another name."""
    processor = MASKED.compiled_for(target)
    assert (processor.architecture, processor.vector_registers) == (architecture, vector_registers)
    assert cpu_model("AMD EPYC", processor) == model


def test_a_target_that_takes_nothing_away_makes_no_other_device() -> None:
    """A processor with AVX2 compiled for AVX2 is itself."""
    assert XEON.compiled_for("core-avx2") is XEON


@pytest.mark.parametrize(("told", "cores", "counted"), [(480, 2, 64), (480, 128, 480), (32, 2, 32), (0, 2, 0)])
def test_a_few_cores_count_on_a_share_of_the_cache_of_a_socket(told: int, cores: int, counted: int) -> None:
    """In MiB; a virtual machine is told of all of it."""
    processor = replace(XEON, last_level_cache_bytes=told << 20)
    assert processor.last_level_cache_of(cores) == counted << 20


@pytest.mark.parametrize(
    ("platform", "name", "units", "expected"),
    [
        ("NVIDIA CUDA", "NVIDIA H200", 132, "gpu:nvidia:h200:132cu"),
        ("NVIDIA CUDA", "Tesla V100-SXM2-16GB", 80, "gpu:nvidia:tesla-v100-sxm2-16gb:80cu"),
        ("AMD Accelerated Parallel Processing", "AMD Instinct MI250X", 110, "gpu:amd:instinct-mi250x:110cu"),
        ("Intel(R) OpenCL Graphics", "Intel(R) Arc(TM) A770 Graphics", 512, "gpu:intel:arc-a770-graphics:512cu"),
        ("Portable Computing Language", "NVIDIA H200", 132, "gpu:pocl:nvidia-h200:132cu"),
        ("Some New Runtime", "Chip 9", 1, "gpu:some-new-runtime:chip-9:1cu"),
    ],
)
def test_ids_of_gpus_are_short_words(platform: str, name: str, units: int, expected: str) -> None:
    """Kind, runtime, model and compute units."""
    assert device_id("gpu", runtime_name(platform), gpu_model(name), units) == expected


words = st.text(st.characters(codec="utf-8"), max_size=20)
counts = st.integers(0, 2**63 - 1)
profiles = st.builds(
    DeviceProfile,
    id=st.builds("{}:{}:{}".format, words, words, words),
    kind=st.sampled_from(KINDS),
    compute_capability=st.none() | st.tuples(counts, counts),
    registers_per_compute_unit=st.none() | counts,
    matrix_units=st.lists(words).map(tuple),
)


@given(profiles)
def test_profiles_survive_json(profile: DeviceProfile) -> None:
    """Whatever the names and numbers are."""
    assert DeviceProfile.from_json(profile.to_json()) == profile
    assert hash(DeviceProfile.from_dict(json.loads(json.dumps(profile.to_dict())))) == hash(profile)


def test_fields_of_a_newer_version_are_ignored() -> None:
    """Records of a newer feinsum can still be read."""
    profile = unknown_profile("/lib/libx.so")
    assert DeviceProfile.from_dict({**profile.to_dict(), "colour": "green"}) == profile


def test_a_missing_field_is_named() -> None:
    """The error says which one and what to do."""
    data = unknown_profile("/lib/libx.so").to_dict()
    del data["simd_bytes"]
    with pytest.raises(DeviceError, match="without 'simd_bytes'; probe the device again"):
        DeviceProfile.from_dict(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("compute_units", "2"),
        ("compute_units", True),
        ("compute_units", 2.0),
        ("fp64", 1),
        ("name", None),
        ("sub_group_sizes", [8, "16"]),
        ("sub_group_sizes", "8"),
        ("compute_capability", [9, 0.5]),
        ("kind", "toaster"),
        ("id", "cpu"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(field: str, value: Any) -> None:
    """Nothing is converted by guessing."""
    with pytest.raises(DeviceError, match=field):
        DeviceProfile.from_dict({**unknown_profile("/lib/libx.so").to_dict(), field: value})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "[" * 100_000])
def test_text_that_is_no_profile_is_refused(text: str) -> None:
    """With feinsum's own exception, whatever the text is."""
    with pytest.raises(DeviceError, match="device profile"):
        DeviceProfile.from_json(text)


def test_every_field_is_described() -> None:
    """A field whose name does not say all has its line in the docstring."""
    plain = {"name", "vendor", "opencl_version", "fp64", "fp16", "compute_units"}
    limits = {f.name for f in fields(DeviceProfile) if f.name.startswith(("max_", "global_", "cacheline"))}
    undocumented = [
        f.name
        for f in fields(DeviceProfile)
        if f.name not in plain | limits and f":param {f.name}:" not in (DeviceProfile.__doc__ or "")
    ]
    assert undocumented == []
