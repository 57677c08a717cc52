"""What languages share about calls: protocols, samples, lengths that kernels know, and calls like earlier ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feinsum as fe
from feinsum.compile.call_cache import CallCache, likeness
from feinsum.errors import FeinsumError, ValidationError
from feinsum.languages.calling.protocols import CHOICES, INSTANCES, BuildRequest, Language, ProgramRunner
from feinsum.languages.calling.samples import random_numbers
from feinsum.languages.calling.stage import LONG_AXIS, EinsumStage
from feinsum.languages.program import LANGUAGES

TEXTS = {
    "tensor": "func @f(%x: memref<f32x?>) { %a = constant 2.0 : f32 axpby.n %a, %x, %a, %x }",
    "declarative": "x: Tensor<N; f32>\ny = compute (shape = [N]) |i| 4 * x[i]",
    "immediate": "define @f(%x: memref<f32x3>, %y: memref<f32x3>) {\n"
    "axpby {i to i} 2.0, %x, 0.0, %y : memref<f32x3> to memref<f32x3>\n}",
}


def members(protocol: Any) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_language_offers_all_of_the_protocols(name: str, cpu: fe.Device) -> None:
    """So nothing has to ask whether it does."""
    assert members(Language) <= set(dir(LANGUAGES[name].load()))
    program = fe.program(TEXTS[name], name)
    for route in ("auto", "general"):
        runner = fe.build(program, device=cpu, route=route)._runner
        assert members(ProgramRunner) <= set(dir(runner))


@pytest.mark.parametrize("name", LANGUAGES)
def test_samples_are_named_as_arguments_are(name: str) -> None:
    """What is given is taken, and no other name."""
    program, language, x = fe.program(TEXTS[name], name), LANGUAGES[name].load(), np.ones(3, np.float32)
    assert language.sample_arguments(program.function(), {}, 0, None, {"x": x})["x"] is x
    one, other = (language.sample_arguments(program.function(), {}, seed, None, {})["x"] for seed in (1, 2))
    assert one.dtype == other.dtype == np.float32
    assert (one != other).any()
    with pytest.raises(ValidationError, match="has no parameter"):
        language.sample_arguments(program.function(), {}, 0, None, {"z": x})
    with pytest.raises(ValidationError, match="leaves no size Q open"):
        language.sample_arguments(program.function(), {"Q": 3}, 0, None, {})


def test_groups_have_lengths_of_their_own_in_samples_alone(cpu: fe.Device) -> None:
    """An einsum has one number of instances."""
    group = "group<memref<f32x3>,distance<3>>"
    text = f"""define @f(%x: {group}, %y: {group}) {{
        %a = get_work_item %x : {group}
        %b = get_work_item %y : {group}
        axpby {{i to i}} 2.0, %a, 0.0, %b : memref<f32x3> to memref<f32x3>
    }}"""
    program = fe.program(text)
    found = LANGUAGES["immediate"].load().sample_arguments(program.function(), {"E": 7, "y": 9}, 0, None, {})
    assert [len(found[name]) for name in "xy"] == [7, 9]
    fe.build(program, device=cpu, sizes={"E": 7})
    with pytest.raises(ValidationError, match="leaves no size y open; there are E"):
        fe.build(program, device=cpu, sizes={"y": 9})


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float32", "complex128"])
def test_random_numbers_have_both_signs_where_there_are_two(dtype: str) -> None:
    """And the type that was asked for."""
    found = random_numbers(np.random.default_rng(0), dtype, (100,))
    assert found.dtype == dtype
    assert len(set(found.tolist())) > 1
    if found.dtype.kind in "ifc":
        for part in (found.real, found.imag) if found.dtype.kind == "c" else (found,):
            assert part.min() < 0 < part.max()


@pytest.mark.parametrize("name", CHOICES)
def test_a_request_has_one_of_the_values_that_there_are(name: str, cpu: fe.Device) -> None:
    """The error lists them."""
    for value in CHOICES[name]:
        BuildRequest(cpu, **{name: value})
    with pytest.raises(FeinsumError, match=f"{name} is 'fast'; it is .* or {CHOICES[name][-1]!r}"):
        BuildRequest(cpu, **{name: "fast"})


def test_kernels_know_lengths_of_sums_and_short_ones_of_results(cpu: fe.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of instances they never know, and what the program says they always do."""
    made: list[tuple[fe.BatchedEinsum, Any]] = []

    def record(e: fe.BatchedEinsum, device: Any, database: Any, sizes: Any, tune: str, looped: str) -> None:
        made.append((e, dict(sizes)))

    monkeypatch.setattr("feinsum.languages.calling.stage.generate", record)
    A, B = fe.array("A", (INSTANCES, "n_i", "n_k")), fe.array("B", ("n_k", "n_j", LONG_AXIS + 3))
    e = fe.einsum("eik,kjl->eijl", A, B).then("2*v + b[j]", b=fe.array("b", ("n_j",)))
    stage, request = EinsumStage(e, {"A": "one", "B": "other", "b": "third"}), BuildRequest(cpu)
    assert set(stage.open) == {"i", "j", "k"}
    stage.kernel(request, {"n_i": 9, "Q.1": 4})
    lengths = {"e": 7, "i": LONG_AXIS, "k": LONG_AXIS + 1, "j": LONG_AXIS - 1, "l": LONG_AXIS + 3}
    stage.kernel_at(request, lengths)
    assert made[0] == (e, {"n_i": 9})
    known = {"e": INSTANCES, "i": "n_i", "k": LONG_AXIS + 1, "j": LONG_AXIS - 1, "l": LONG_AXIS + 3}
    assert made[1][0].index_sizes == known
    assert made[1][1] == {INSTANCES: 7, "n_i": LONG_AXIS}


def test_a_cache_of_calls_begins_again_when_it_is_full() -> None:
    """It does not grow with the calls of a process."""
    cache = CallCache[int](2)
    for number in range(5):
        cache[number] = number
        assert cache[number] == number
        assert len(cache) <= 2
    assert list(cache) == [4]


def test_calls_are_alike_whose_arrays_are() -> None:
    """In class, shape, strides and type; other things are like nothing."""
    x = np.zeros((3, 4), np.float32)
    assert likeness([x, x]) == likeness([x.copy(), np.ones((3, 4), np.float32)])
    for other in (x.T, np.asfortranarray(x), x[:, :3], x.astype(np.float64), np.float32(0)):
        assert likeness([x]) != likeness([other])
    assert likeness([x, 1.0]) is None
