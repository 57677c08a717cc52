"""Many new kernels are made side by side, each once, and whatever becomes of the builders all are there in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feinsum as fe
from feinsum.devices import Device
from feinsum.generate import answers, many_kernels
from feinsum.generate.many_kernels import generate_all

TEXTS = ["ab->ba", "ab,b->a", "ab,ba->", "ab->a", "ba,a->b", "ij,j->i"]


def wanted() -> list[tuple[fe.BatchedEinsum, dict[str, int]]]:
    """Einsums of long axes; the second, fifth and last are one kernel or two."""
    found = []
    for text in TEXTS:
        terms = text.partition("->")[0].split(",")
        arrays = [fe.array(f"a{k}", (float("inf"),) * len(term)) for k, term in enumerate(terms)]
        e = fe.einsum(text, *arrays)
        found.append((e, dict.fromkeys(e.index_sizes, 32)))
    return found


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, of which this process knows nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(answers, "_held", type(answers._held)())
    return tmp_path / "cache" / "feinsum" / "kernels"


def check(kernels: list[fe.Kernel]) -> None:
    for text, kernel in zip(TEXTS, kernels, strict=True):
        rng = np.random.default_rng(0)
        arrays = {a.name: rng.uniform(-1, 1, (7,) * len(a.shape)) for a in kernel.einsum.arrays}
        np.testing.assert_allclose(kernel(arrays), np.einsum(text, *arrays.values()), atol=1e-12)


def test_each_kernel_is_made_once(cold: Path, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here or by a builder, however often and in whatever letters it is wanted."""
    monkeypatch.setattr(many_kernels, "processors_allowed", lambda: 3)
    built: list[Any] = []
    original = many_kernels._build_together
    monkeypatch.setattr(many_kernels, "_build_together", lambda new, *more: built.append(new) or original(new, *more))
    check(generate_all([*wanted()], cpu, store))
    [new] = built
    assert len(new) == len({fe.canonicalize_einsum(e).key for e, _ in wanted()}) == 4
    assert len([entry for entry in cold.iterdir() if entry.name.startswith("program-")]) == 4
    check(generate_all([*wanted()], cpu, store))
    assert len(built) == 1


@pytest.mark.parametrize("program", ["/bin/false", "/bin/cat"], ids=["dies", "answers nonsense"])
def test_builders_that_fail_are_done_without(
    program: str, cold: Path, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they were given is made here."""
    monkeypatch.setattr(many_kernels, "processors_allowed", lambda: 3)
    monkeypatch.setattr(many_kernels.sys, "executable", program)
    check(generate_all(wanted(), cpu, store))


def test_few_kernels_and_one_processor_need_no_builder(
    cold: Path, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a cache that is off, as builders hand over what they make there."""
    monkeypatch.setattr(many_kernels, "_build_together", None)
    monkeypatch.setattr(many_kernels, "processors_allowed", lambda: 1)
    generate_all(wanted(), cpu, store)
    monkeypatch.setattr(many_kernels, "processors_allowed", lambda: 8)
    monkeypatch.setenv("FEINSUM_CACHE_BYTES", "0")
    generate_all(wanted(), cpu, store)
    monkeypatch.delenv("FEINSUM_CACHE_BYTES")
    generate_all(wanted()[:3], cpu, store)
