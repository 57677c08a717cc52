"""Arrays with gaps in them, as users' kernels have: every space uses them where they are, or refuses; never wrong numbers.

Kernels run in a process of their own, so that one which crashes fails its test and nothing else.  On another runtime:
``pytest tests/test_padded.py --cpu pocl``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from padded import LAYOUTS, Apart, Case, kernel_of, strides
from profiles import CPU, GPU
from test_spaces import (
    SPACES,
    by_name,
    presentations,
    presentations_for_golden,
    sized,
    some_configurations,
    without_reasons,
)

import feinsum as fe
from feinsum.canonicalization import canonicalize_einsum
from feinsum.compile.codegen import generate_program
from feinsum.devices import Device
from feinsum.effects import deprecations_paused
from feinsum.errors import TransformError
from feinsum.registry import find_space
from feinsum.space import TransformSpace

GOLDEN = Path(__file__).parent / "golden" / "padded"


@pytest.fixture(scope="module")
def process() -> Iterator[Apart]:
    """Where kernels run."""
    found = Apart()
    yield found
    found.close()


def product(rows: int, columns: int) -> fe.BatchedEinsum:
    """A product of matrices with a sum over 32, in canonical form."""
    A, B = fe.array("A", (rows, 32), "float64"), fe.array("B", (32, columns), "float64")
    return canonicalize_einsum(fe.einsum("ik,kj->ij", A, B)).einsum


def test_layouts() -> None:
    """Padded rows begin at multiples of 8 numbers and never touch; interleaved numbers are two apart."""
    assert [strides((5, 33), layout) for layout in LAYOUTS] == [(40, 1), (66, 2), (33, 1)]
    assert strides((5, 40), "padded") == (48, 1)


@pytest.mark.parametrize("columns", [33, 35, 38, 335, 500])
def test_the_last_of_overlapping_tiles_may_be_unaligned(columns: int, cpu: Device, process: Apart) -> None:
    """Padded rows are aligned, but the last tile of a row begins anywhere: a store past the caches there is a crash."""
    case = Case(None, product(64, columns), {}, {}, cpu.id, {"out": "padded"})
    assert process.outcome(case) is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["x0", "x1", "out"])
def test_transform_takes_arrays_where_they_are(name: str, layout: str, cpu: Device, process: Apart) -> None:
    """An operand or the result of a user's kernel has gaps; nothing is written into them."""
    case = Case(None, product(37, 45), {}, {}, cpu.id, {name: layout})
    assert process.outcome(case) is None


@pytest.mark.parametrize("s", SPACES, ids=by_name)
def test_a_space_takes_arrays_with_gaps_or_refuses_them(s: TransformSpace, cpu: Device, process: Apart) -> None:
    """One operand and one result have gaps, by every layout in turn; numbers are numpy's, and those between left alone.

    Six presentations are three layouts, each by the default configuration and by a random one, whose kernels are built
    unoptimised.  What a space cannot do it refuses by the name of the array, so that other spaces have their turn.
    """
    ran = 0
    for number, described in enumerate(presentations(s)):
        e = canonicalize_einsum(described).einsum
        for configuration in some_configurations(s, e, cpu.profile, 1)[number % 2 :][:1]:
            operand = e.args[0][0 if number // 2 % 2 else -1][0].name
            layout = LAYOUTS[number % len(LAYOUTS)]
            layouts = {operand: layout, e.output_names[0]: layout}
            outcome = process.outcome(Case(s.name, e, sized(e), configuration, cpu.id, layouts, optimised=number % 2 == 0))
            assert outcome is None or outcome.startswith("refused: "), f"{e} {layouts} {configuration}: {outcome}"
            assert outcome is None or any(f"'{name}'" in outcome for name in layouts), outcome
            ran += 1
    if not ran:
        pytest.skip(f"{s.name} has no configuration for {cpu}")


@pytest.mark.parametrize("s", SPACES, ids=by_name)
def test_a_space_updates_padded_results(s: TransformSpace, cpu: Device, process: Apart) -> None:
    """What is made of sums and of the present content goes where that is; the numbers between rows are left alone."""
    e = canonicalize_einsum(presentations(s)[0]).einsum
    ran = 0
    for number, configuration in enumerate(some_configurations(s, e, cpu.profile, 1)):
        layouts = {e.args[0][0][0].name: "padded", e.output_names[0]: "padded"}
        case = Case(s.name, e, sized(e), configuration, cpu.id, layouts, update=True, optimised=not number)
        outcome = process.outcome(case)
        assert outcome is None or outcome.startswith("refused: "), f"{e} {layouts} {configuration}: {outcome}"
        ran += 1
    if not ran:
        pytest.skip(f"{s.name} has no configuration for {cpu}")


@pytest.mark.parametrize("columns", [33, 335, 500])
def test_ragged_rows_are_updated_once(columns: int, cpu: Device, process: Apart) -> None:
    """The last tile of a row must not begin where the one before has been: that would be updated twice."""
    for layout in ("dense", "padded"):
        layouts = {} if layout == "dense" else {"out": layout}
        e, s = product(64, columns), find_space("vector_panels")
        (configuration,) = some_configurations(s, e, cpu.profile, 0)[:1]
        assert process.outcome(Case(s.name, e, {}, configuration, cpu.id, layouts, update=True)) is None


def golden_of(s: TransformSpace) -> str:
    """The code of the default configuration with a padded operand and a padded result, or why the space refuses these."""
    text = [f"// Generated by pytest tests/test_padded.py --regenerate-golden\n// {s.name}, version {s.version}\n"]
    for profile in (CPU, GPU):
        for described in presentations_for_golden(s):
            e = canonicalize_einsum(described).einsum
            for configuration in some_configurations(s, e, profile, 0)[:1]:
                layouts = {e.args[0][0][0].name: "padded", e.output_names[0]: "padded"}
                text.append(f"\n// {profile.name}: {e}, padded: {', '.join(layouts)}\n")
                case = Case(s.name, e, sized(e, 1000), configuration, profile.id, layouts)
                try:
                    with deprecations_paused:
                        text.append(f"{generate_program(kernel_of(case, profile)).source.strip()}\n")
                except TransformError as refused:
                    text.append(f"// refused: {refused}\n")
    return "".join(text)


@pytest.mark.parametrize("s", SPACES, ids=by_name)
def test_the_padded_kernels_of_a_version_stay_the_same(s: TransformSpace, request: pytest.FixtureRequest) -> None:
    """The code for a padded operand and a padded result equals the golden file."""
    path, found = GOLDEN / f"{s.name}.cl", golden_of(s)
    if request.config.getoption("--regenerate-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
        return
    assert path.exists(), "run pytest tests/test_padded.py --regenerate-golden"
    assert without_reasons(found) == without_reasons(path.read_text(encoding="utf-8"))
