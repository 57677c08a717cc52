"""Candidate selection: for an einsum without a record a few different kernels are timed, and the fastest is taken."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from einsums import check_against_numpy, inputs

import feinsum as fe
from feinsum.build.device_lock import lock_device
from feinsum.candidates.diversity import equal_share, spread_choices
from feinsum.candidates.ladder import ConfigurationChoice, candidates
from feinsum.candidates.predicted import expected_s
from feinsum.candidates.shortlist import select_candidates
from feinsum.canonicalization import canonicalize_einsum
from feinsum.cli import cli
from feinsum.compile.executable import Executable
from feinsum.database import open_stores
from feinsum.devices import Device
from feinsum.generate.candidate_selection import CANDIDATES, VARIABLE, candidates_wanted
from feinsum.registry import find_space
from feinsum.space import Instance, TransformSpace
from feinsum.space.chain import STEPS, Link, write_chain
from feinsum.timing.candidate_timing import time_candidates
from feinsum.tune.autotune import autotune
from feinsum.validate.noise import noisy_sets

E = fe.einsum("ij,ej->ei", fe.array("A", (12, 20)), fe.array("u", ("E", 20)))
SIZES = {"E": 50_000}

ANSWERS, SELECTION, BUILDER = (
    import_module(f"feinsum.{name}")
    for name in ("generate.answers", "generate.candidate_selection", "build.kernel_builder")
)

Times = Callable[[Sequence[float]], list[Sequence[Executable]]]


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many candidates as users have, no matter how late they begin."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(SELECTION, "_BEGIN_S", {"cpu": math.inf})
    monkeypatch.setattr(SELECTION, "_PATIENCE_S", math.inf)
    monkeypatch.setattr("feinsum.candidates.ladder.SECONDS", math.inf)


@pytest.fixture
def clock(four: None, monkeypatch: pytest.MonkeyPatch) -> Times:
    """Says what kernels take, and returns what each later selection timed."""

    def say(times_s: Sequence[float]) -> list[Sequence[Executable]]:
        timed: list[Sequence[Executable]] = []

        def told(executables: Sequence[Executable], *_: Any, **__: Any) -> list[float]:
            timed.append(executables)
            return list(times_s[: len(executables)])

        monkeypatch.setattr("feinsum.timing.candidate_timing.time_candidates", told)
        return timed

    return say


def ladder(device: Device, store: str) -> list[Any]:
    """The candidates for E, the first of the ladder foremost."""
    canonical = canonicalize_einsum(E)
    here = Instance.of_canonical(canonical, canonical.renaming.lengths(E.resolve(SIZES)), device.profile)
    choices = candidates(here, open_stores(store), of_rung=1)
    return select_candidates(next(choices), choices)


def chosen(kernel: fe.Kernel) -> tuple[str, dict[str, Any]]:
    return kernel.space, dict(kernel.configuration)


def test_the_quickest_is_taken_and_told(cpu: Device, store: str, clock: Times) -> None:
    """Whatever was expected of it; it is right, and the explanation says what the others took."""
    expected = ladder(cpu, store)
    assert len(expected) == CANDIDATES
    timed = clock([4e-3, 3e-3, 1e-3, 2e-3])
    kernel = fe.generate(E, cpu, store, SIZES)
    assert [len(selection) for selection in timed] == [CANDIDATES]
    assert chosen(kernel) == (expected[2].space.name, dict(expected[2].configuration))
    others = ", ".join(f"{expected[k].space.name} {k_ms} ms" for k, k_ms in ((3, 2), (1, 3), (0, 4)))
    assert f"  selected  1 ms, the fastest of 4 candidates: {others}" in kernel.explain()
    arrays = inputs(E, {"E": 41})
    check_against_numpy(E, arrays, kernel(arrays))


def test_selections_on_one_device_run_one_at_a_time(tmp_path: Path) -> None:
    """Whoever comes second waits, but not for ever, and not for what is on another device or holds nothing any more."""
    with lock_device(tmp_path, "gpu:one", 0.0) as ours:
        assert ours
        with lock_device(tmp_path, "gpu:two", 0.0) as other:
            assert other
        began = time.monotonic()
        with lock_device(tmp_path, "gpu:one", 0.05) as late:
            assert not late
        assert time.monotonic() - began >= 0.05
        waiting = threading.Thread(target=lambda: found.append(_has_lock(tmp_path)))
        found: list[bool] = []
        waiting.start()
    waiting.join()
    assert found == [True]
    with lock_device(None, "gpu:one", 0.0) as nowhere:
        assert not nowhere
    (tmp_path / "a file").touch()
    with lock_device(tmp_path / "a file", "gpu:one", 0.0) as unwritable:
        assert not unwritable


def _has_lock(directory: Path) -> bool:
    with lock_device(directory, "gpu:one", 60.0) as ours:
        return ours


def test_the_first_stays_unless_another_is_clearly_quicker(cpu: Device, store: str, clock: Times) -> None:
    """A hundredth is noise, and the same kernel twice is worth more."""
    first = ladder(cpu, store)[0]
    clock([1.0e-3, 0.99e-3, 2e-3, 2e-3])
    assert chosen(fe.generate(E, cpu, store, SIZES)) == (first.space.name, dict(first.configuration))


def test_candidates_are_selected_once(cpu: Device, store: str, clock: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came of it is kept on disk, with its times, for processes to come."""
    timed = clock([4e-3, 3e-3, 1e-3, 2e-3])
    first = fe.generate(E, cpu, store, SIZES)
    monkeypatch.setattr(ANSWERS, "recall", lambda *_: None)  # as another process would find it
    second = fe.generate(E, cpu, store, SIZES)
    assert second is not first
    assert len(timed) == 1
    assert second.explain() == first.explain()


def test_what_does_not_work_takes_no_part(
    cpu: Device, store: str, clock: Times, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that fails, and one that is wrong; the log says so."""
    fails, wrong, right, _ = ladder(cpu, store)
    original = TransformSpace.apply

    def apply(space: TransformSpace, t_unit: Any, match: Any, problem: Any, configuration: Any) -> Any:
        if (space.name, configuration) == (fails.space.name, fails.configuration):
            raise KeyError("a bug")
        return original(space, t_unit, match, problem, configuration)

    def proved(executable: Executable, proofs: Any) -> None:
        tried.append(executable)
        if len(tried) == 1:
            raise fe.ValidationError("'out' is wrong")

    tried: list[Executable] = []
    monkeypatch.setattr(BUILDER, "prove_executable", proved)
    monkeypatch.setattr(TransformSpace, "apply", apply)
    timed = clock([1e-3, 2e-3])
    kernel = fe.generate(E, cpu, store, SIZES)
    assert [len(selection) for selection in timed] == [2]
    assert chosen(kernel) == (right.space.name, dict(right.configuration))
    assert f"{fails.space.name} {dict(fails.configuration)} is passed over" in caplog.text
    assert f"{wrong.space.name} {dict(wrong.configuration)} is passed over: 'out' is wrong" in caplog.text


def test_where_no_candidate_works_the_ladder_continues(
    cpu: Device, store: str, four: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Selection leaves out no rung."""
    monkeypatch.setattr(SELECTION, "_built", lambda *_: [])
    kernel = fe.generate(E, cpu, store, SIZES)
    assert kernel.rung == "cost model"
    assert "selected" not in kernel.explain()


def test_there_is_no_selection_for_what_takes_no_time(cpu: Device, store: str, clock: Times) -> None:
    """A call takes longer than any of the kernels."""
    timed = clock([4e-3, 3e-3, 1e-3, 2e-3])
    fe.generate(fe.einsum("ij,ej->ei", fe.array("A", (2, 2)), fe.array("u", (2, 2))), cpu, store)
    assert not timed


def test_there_is_no_selection_with_many_loops(cpu: Device, store: str, clock: Times) -> None:
    """Each source takes longer than a selection; compilers are told not to unroll short loops level by level."""
    timed = clock([4e-3, 3e-3, 1e-3, 2e-3])
    reverse = fe.einsum("abcdefghijklmnop->ponmlkjihgfedcba", fe.array("x", (2,) * 16))
    kernel = fe.generate(reverse, cpu, store)
    assert not timed
    assert kernel.source.count("opencl_unroll_hint(1)") >= 12
    arrays = inputs(reverse, {})
    check_against_numpy(reverse, arrays, kernel(arrays))


def test_there_is_no_selection_where_arrays_have_no_room(
    cpu: Device, store: str, clock: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their lengths are compiled in, so none can be cut."""
    monkeypatch.setattr(SELECTION, "_MOST_BYTES", {"cpu": 1 << 20})
    timed = clock([4e-3, 3e-3, 1e-3, 2e-3])
    fe.generate(fe.einsum("ij,ej->ei", fe.array("A", (12, 20)), fe.array("u", (50_000, 20))), cpu, store)
    assert not timed


def test_long_axes_are_cut(cpu: Device, store: str, clock: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    """To what is tried in little time; the kernel is for the lengths expected all the same."""
    lengths: list[int] = []
    made = noisy_sets

    def spy(e: fe.BatchedEinsum, at: dict[str, int], *arguments: Any) -> Any:
        lengths.append(max(at.values()))
        return made(e, at, *arguments)

    monkeypatch.setattr("feinsum.validate.noise.noisy_sets", spy)
    clock([4e-3, 3e-3, 1e-3, 2e-3])
    kernel = fe.generate(E, cpu, store, {"E": 10**7})
    assert kernel.expected["e"] == 10**7
    (tried,) = lengths
    assert 10**6 < tried < 10**7


def test_an_exact_record_is_taken_as_it_is(cpu: Device, store: str, clock: Times) -> None:
    """Its search was wide, and measured more than a selection does."""
    autotune(E, cpu, store, SIZES, trials=1, progress=False)
    timed = clock([4e-3, 3e-3, 1e-3, 2e-3])
    assert fe.generate(E, cpu, store, SIZES).rung == "exact"
    assert not timed


def test_the_environment_says_how_many(
    cpu: Device, store: str, clock: Times, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``off`` and 1 take the first guess; another word is reported, and does not count."""
    timed = clock([4e-3, 3e-3, 1e-3, 2e-3])
    monkeypatch.setenv(VARIABLE, "1")
    fe.generate(E, cpu, store, SIZES)
    assert not timed
    monkeypatch.setenv(VARIABLE, "2")
    fe.generate(E, cpu, store, {"E": 60_000})
    assert [len(selection) for selection in timed] == [2]
    monkeypatch.setenv(VARIABLE, "many")
    assert candidates_wanted() == CANDIDATES
    assert "FEINSUM_SELECT='many' is not 'now', 'off' or a number of candidates; using 'now'" in caplog.text
    monkeypatch.setenv(VARIABLE, "off")
    assert candidates_wanted() == 1
    monkeypatch.setenv(VARIABLE, "now")
    assert candidates_wanted() == CANDIDATES


def test_the_former_variable_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a warning that names the new one, which comes first."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("FEINSUM_HEAT", "3")
    with pytest.warns(DeprecationWarning, match="release 0.4 ignores it; set FEINSUM_SELECT"):
        assert candidates_wanted() == 3
    assert "set FEINSUM_SELECT" in CliRunner().invoke(cli, ["spaces"]).stderr
    monkeypatch.setenv(VARIABLE, "off")
    assert candidates_wanted() == 1


def test_kernels_alternate_over_all_sets(cpu: Device, store: str, four: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A selection among real kernels: each has a time, and one that cannot be launched has lost; none that other processes
    stop."""
    monkeypatch.setattr("feinsum.timing.candidate_timing._HOST_S", 60.0)
    kernel = fe.generate(E, cpu, store, SIZES)
    canonical = canonicalize_einsum(E)
    lengths = canonical.renaming.lengths(E.resolve({"E": 500}))
    sets = noisy_sets(canonical.einsum, lengths, cpu.queue, cpu.profile, 1 << 20)
    assert len(sets) > 1
    parameters = {name: lengths[letter] for letter, name in canonical.einsum.length_names.items()}
    works = kernel._executable

    class Broken(Executable):
        def __init__(self) -> None:
            self.__dict__.update(vars(works))

        def enqueue(self, *_: Any, **__: Any) -> list[Any]:
            import pyopencl as cl

            raise cl.RuntimeError("no such work-group")

    times = time_candidates([works, Broken(), works], cpu.queue, sets, parameters, seconds=0.01)
    assert times[1] == math.inf
    assert all(0 < t < math.inf for t in (times[0], times[2]))


def test_no_run_finds_in_the_caches_what_the_one_before_it_read(cpu: Device, store: str, four: None) -> None:
    """Runs take sets of inputs in turns whosever they are; all results go to the same memory."""
    works = fe.generate(E, cpu, store, SIZES)._executable
    canonical = canonicalize_einsum(E)
    lengths = canonical.renaming.lengths(E.resolve({"E": 500}))
    sets = noisy_sets(canonical.einsum, lengths, cpu.queue, cpu.profile, 1 << 20)
    taken: list[int] = []

    class Noted(Executable):
        def __init__(self) -> None:
            self.__dict__.update(vars(works))

        def enqueue(self, queue: Any, buffers: Any, *rest: Any, **how: Any) -> list[Any]:
            taken.append(next(k for k, each in enumerate(sets) if each.items() <= buffers.items()))
            return works.enqueue(queue, buffers, *rest, **how)

    parameters = {name: lengths[letter] for letter, name in canonical.einsum.length_names.items()}
    time_candidates([Noted(), Noted()], cpu.queue, sets, parameters, seconds=0.01)
    assert taken == [k % len(sets) for k in range(len(taken))]
    names = canonical.einsum.output_names
    assert all(len({id(each[name]) for each in sets}) == (1 if name in names else len(sets)) for name in sets[0])


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "int32", "uint8"])
def test_noise_is_numbers_of_mixed_sign(dtype: str, cpu: Device) -> None:
    """All of an array, of whatever length, finite and of the type's sign."""
    import pyopencl as cl

    e = fe.einsum("ij,j->i", fe.array("A", (701, 307), dtype), fe.array("x", (307,), dtype))
    (buffers,) = noisy_sets(e, e.resolve(), cpu.queue, cpu.profile, 0)
    assert set(buffers) == {"A", "x", *e.output_names}
    for name, count in (("A", 701 * 307), ("x", 307), ("out", 701)):
        values = np.empty(count, dtype)
        cl.enqueue_copy(cpu.queue, values, buffers[name])
        assert np.isfinite(values).all()
        assert len(np.unique(values)) > 2
        assert dtype == "uint8" or (values.real.min() < 0 < values.real.max())


def test_the_default_of_the_first_ones_space_enters() -> None:
    """It does not depend on what the cost model is wrong about; what is expected to take twice as long stays out."""

    def choice(number: int, expected_s: float, rung: str = "cost model", name: str = "generic") -> ConfigurationChoice:
        return ConfigurationChoice(rung, find_space(name), {"number": number}, None, expected_s)

    guesses = [choice(number, 1.0 + number / 100) for number in range(6)]
    default = choice(9, 1.9, "default")
    others = choice(8, 1.5, "default", "reduction")
    found = select_candidates(guesses[0], [*guesses[1:], others, default])
    assert len(found) == CANDIDATES
    assert found[2] is default
    assert default not in select_candidates(guesses[0], [*guesses[1:], replace(default, expected_s=2.1)])
    assert select_candidates(default, guesses)[0] is default
    assert select_candidates(guesses[0], [default]) == [guesses[0], default]


def test_one_of_another_space_enters() -> None:
    """Last, where all others are of one; not what is expected to take three times as long, nor the generic space."""

    def choice(number: int, expected_s: float, name: str, rung: str = "cost model") -> ConfigurationChoice:
        return ConfigurationChoice(rung, find_space(name), {"number": number}, None, expected_s)

    guesses = [choice(number, 1.0 + number / 100, "vector_panels") for number in range(6)]
    slow, other = choice(8, 2.9, "reduction", "default"), choice(9, 2.5, "permutation", "default")
    found = select_candidates(guesses[0], [*guesses[1:], slow, other])
    assert len(found) == CANDIDATES
    assert found[-1] is other
    assert {found_one.space.name for found_one in found[:-1]} == {"vector_panels"}
    assert select_candidates(guesses[0], [*guesses[1:], replace(other, expected_s=3.1)]) == select_candidates(
        guesses[0], guesses[1:]
    )
    assert select_candidates(guesses[0], [choice(7, 2.5, "generic", "generic")]) == [guesses[0]]
    assert select_candidates(guesses[0], [*guesses[1:], other], 1) == [guesses[0]]


def test_the_ladder_says_what_is_expected_of_defaults(cpu: Device, store: str) -> None:
    """As the search began there."""
    canonical = canonicalize_einsum(E)
    here = Instance.of_canonical(canonical, canonical.renaming.lengths(E.resolve(SIZES)), cpu.profile)
    defaults = [choice for choice in candidates(here, open_stores(store)) if choice.rung in ("default", "generic")]
    assert {choice.rung for choice in defaults} == {"default", "generic"}
    assert all(choice.expected_s == expected_s(here, choice.space, choice.configuration) for choice in defaults)


def test_spread_takes_what_is_quick_and_differs() -> None:
    """A copy of the first is worth less than another space that is expected to take longer."""
    times = {"first": 1.0, "its twin": 1.05, "its cousin": 1.2, "another": 1.4, "a slow one": 9.0}
    likes = {
        "first": ("tiles", {"depth": 8, "width": 4, "unit": "a"}),
        "its twin": ("tiles", {"depth": 8, "width": 4, "unit": "b"}),
        "its cousin": ("tiles", {"depth": 16, "width": 2, "unit": "b"}),
        "another": ("panels", {"depth": 8}),
        "a slow one": ("generic", {}),
    }
    found = spread_choices(list(times), 4, times.__getitem__, likes.__getitem__)
    assert found == ["first", "its cousin", "its twin", "another"]
    assert spread_choices([], 4, times.__getitem__, likes.__getitem__) == []


def test_chains_are_alike_whose_steps_are() -> None:
    """Their text alone would differ in one letter as in all."""
    own = Link((0, 1), "ab", "generic", 1, {"items": 64, "lane": "a"})
    other = Link((2, 0), "ac", "generic", 1, {"items": 64, "lane": "a"})
    chains = [
        [own, other],
        [replace(own, output="ba"), other],
        [replace(own, space="tiles"), replace(other, operands=(0, 2))],
    ]
    told = [("steps of a kind", {STEPS: write_chain(links)}) for links in chains]
    assert 1 > equal_share(told[0], told[1]) > equal_share(told[1], told[2]) > 0.5
    assert equal_share(told[0], ("steps of a kind", {STEPS: write_chain([own])})) == 0.5
