"""Every registered transform space, picked up by itself: it matches its pattern, its kernels are right and stay the same.

The OpenCL code of the default configuration of each space, on a CPU and a GPU that do not depend on this machine, is kept
in ``tests/golden``.  After a change of a space that changes its kernels, raise its version and run::

    pytest tests/test_spaces.py --regenerate-golden
"""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice, permutations, product
from pathlib import Path

import pytest
from profiles import CPU, GPU
from simulated_units import UNOPTIMISED

import feinsum as fe
from benchmarks import cases
from feinsum.canonicalization import canonicalize_einsum
from feinsum.compile.realize import realize
from feinsum.devices import Device, DeviceProfile
from feinsum.registry import find_space, spaces
from feinsum.space import Configuration, TransformSpace
from feinsum.subscripts import Subscripts, parse_subscripts
from feinsum.tune.trial import Outcome, Trial
from feinsum.tune.worker import Worker

GOLDEN = Path(__file__).parent / "golden"
LENGTHS = (4, 3, 6, 5, 7, 2)
"""Of the indices of a pattern, in turn; small, and none divides all."""
SIMPLE = """
ij->j ij->i ijk->ik ijk-> ij,j->i ji,j->i i,i-> ij,ij->i i,ij,j-> bij,bj->bi ij,ij->ij i,j->ij i,ij,j->ij a,b,c->abc
ij->ji abc->cba abc->bac ij->ij ij,ji->ij ii-> ii->i eii->e eij,jj->ei aab->ab ii,i->i iij->j
"""
"""Beside the benchmark suite: sums of one operand, products without sums, permutations, diagonals."""
SEEDED = ("elementwise_product", "permutation", "trace")
"""Spaces whose conditions have stood in another order in some processes."""
COMPLEX = ("complex_steps",)
"""Spaces for complex numbers alone."""
SPACES = spaces()
BY_PATTERN = [s for s in SPACES if not callable(s.patterns)]


def by_name(s: TransformSpace) -> str:
    return s.name


def types(s: TransformSpace) -> tuple[str, str]:
    """The wider and the narrower type of the numbers that a space is for."""
    return ("complex128", "complex64") if s.name in COMPLEX else ("float64", "float32")


def described(
    indexing: Subscripts, *, long: str = "", rows: int = 1, dtype: str = "float64", scale: int = 1
) -> fe.BatchedEinsum:
    """An einsum with these subscripts whose rows share all operands but the last.

    :param long: the indices that are long axes.
    :param scale: what the other lengths are multiplied by.
    """
    axes = {x: f"N{x}" if x in long else scale * n for x, n in zip(indexing.indices, cycle(LENGTHS), strict=False)}

    def operand(k: int, row: int) -> fe.Array:
        name = f"a{k}" if k < len(indexing.inputs) - 1 else f"a{k}_{row}"
        return fe.array(name, [axes[x] for x in indexing.inputs[k]], dtype)

    return fe.batched_einsum(str(indexing), [[operand(k, row) for k in range(len(indexing.inputs))] for row in range(rows)])


def patterns(s: TransformSpace) -> list[Subscripts]:
    """The patterns of a space; of one with a predicate, subscripts that it accepts: of the benchmark suite, and others."""
    if not callable(s.patterns):
        return list(s.patterns)
    texts = dict.fromkeys(case["einsum"] for case in cases.CASES)
    indexings = [
        cases.describe(next(c for c in cases.CASES if c["einsum"] == text), "cpu", "float64").indexing for text in texts
    ]
    indexings += [parse_subscripts(text) for text in SIMPLE.split()]
    return [indexing for indexing in indexings if s.roles(described(indexing, dtype=types(s)[0])) is not None]


def sized(e: fe.BatchedEinsum, length: int = 50) -> dict[str, int]:
    return dict.fromkeys(e.long_axes, length)


def presentations(s: TransformSpace) -> list[fe.BatchedEinsum]:
    """Six einsums for a space: its patterns in turn, without and with a long index, one and several rows, two types."""
    indexings = cycle(islice(patterns(s), 4))
    wide, narrow = types(s)
    found = []
    for kind, rows, dtype, scale in (
        ("fixed", 3, wide, 1),
        ("first output", 1, wide, 3),
        ("last output", 2, narrow, 3),
        ("first output", 2, narrow, 2),
        ("first summed", 1, wide, 3),
        ("fixed", 1, narrow, 4),
    ):
        indexing = next(indexings)
        letters = indexing.summed if kind == "first summed" else indexing.output
        long = "" if kind == "fixed" else letters[-1:] if kind == "last output" else letters[:1]
        found.append(described(indexing, long=long, rows=rows, dtype=dtype, scale=scale))
    return found


@pytest.mark.parametrize("s", SPACES, ids=by_name)
def test_a_space_is_documented(s: TransformSpace) -> None:
    """A docstring says how the work is divided; its values are plain data that JSON can hold."""
    assert s.description
    assert s.version >= 1
    for indexing in patterns(s)[:3]:
        for profile in (CPU, GPU):
            for values in s.parameters(s.problem(described(indexing, dtype=types(s)[0]), None, profile)).values():
                assert values
                assert {type(value) for value in values} <= {int, float, str, bool}


@pytest.mark.parametrize("s", SPACES, ids=by_name)
def test_a_space_matches_its_own_pattern(s: TransformSpace) -> None:
    """In any letters and order of operands; one of subscripts also with any axes, types and rows."""
    rng = random.Random(0)
    assert patterns(s)
    for indexing in patterns(s):
        letters = rng.sample("abcdefghijklmnopqrstuvwxyz", len(indexing.indices))
        renamed = indexing.rename(dict(zip(indexing.indices, letters, strict=True)))
        shuffled = Subscripts(tuple(rng.sample(renamed.inputs, len(renamed.inputs))), renamed.output)
        others = [] if callable(s.patterns) else [described(shuffled, long=shuffled.indices, rows=2, dtype="complex64")]
        for e in (described(shuffled, dtype=types(s)[0]), *others):
            assert s.roles(e) is not None
            problem = s.problem(e, sized(e), CPU)
            assert set(problem.sizes) == set(problem.einsum.indexing.indices)


def neighbours(indexing: Subscripts) -> Iterator[Subscripts]:
    """Subscripts that differ a little: transposed, summed, traced, with an operand more or fewer."""
    inputs, output = indexing.inputs, indexing.output
    yield Subscripts((*inputs, inputs[0]), output)
    yield Subscripts((*inputs, ""), output)
    yield Subscripts(inputs, output[::-1])
    yield Subscripts(inputs, output[1:])
    yield Subscripts(inputs, output[:-1])
    if indexing.summed:
        yield Subscripts(inputs, output + indexing.summed[0])
        yield Subscripts(inputs, indexing.summed[0] + output)
    for k, term in enumerate(inputs):
        changed = [term[::-1], term[1:] + term[:1], term + "Z", term[:-1], term + term[:1]]
        changed += [term.replace(a, b) for a in term for b in indexing.indices if a != b]
        for other in changed:
            terms = (*inputs[:k], other, *inputs[k + 1 :])
            if set(output) <= set("".join(terms)):
                yield Subscripts(terms, output)
    if len(inputs) > 1 and set(output) <= set("".join(inputs[1:])):
        yield Subscripts(inputs[1:], output)


def shape_of(indexing: Subscripts) -> str:
    """Equal for subscripts that differ in letters and order of operands alone, by way of canonical forms."""
    row = [fe.array(f"a{k}", (math.inf,) * len(term)) for k, term in enumerate(indexing.inputs)]
    return canonicalize_einsum(fe.batched_einsum(str(indexing), [row])).key


def layouts(indexing: Subscripts) -> Iterator[Subscripts]:
    """The axes of each operand and of the output in every order."""
    for *inputs, output in product(*(permutations(term) for term in (*indexing.inputs, indexing.output))):
        yield Subscripts(tuple("".join(term) for term in inputs), "".join(output))


@pytest.mark.parametrize("s", BY_PATTERN, ids=by_name)
def test_near_misses_do_not_match(s: TransformSpace) -> None:
    """An einsum matches a pattern if and only if it is one of them in other letters or another order of operands.

    Of some spaces axes may stand in any order, too.
    """
    known = {shape_of(other) for own in patterns(s) for other in (layouts(own) if s.longest else (own,))}
    misses = 0
    for indexing in patterns(s):
        for other in neighbours(indexing):
            expected = shape_of(other) in known
            misses += not expected
            row = [fe.array(f"a{k}", (9,) * len(term)) for k, term in enumerate(other.inputs)]
            assert (s.roles(fe.batched_einsum(str(other), [row])) is not None) == expected, str(other)
    assert misses > 5


@pytest.mark.parametrize("s", SPACES, ids=by_name)
def test_configurations_are_refused_with_a_reason(s: TransformSpace) -> None:
    """On devices that are too small for anything, and wherever else the constraint says no."""
    tiny = replace(
        GPU, max_work_group_size=1, max_work_item_sizes=(1, 1, 1), local_memory_bytes=0, static_local_memory_bytes=0
    )
    for indexing in patterns(s)[:3]:
        for profile in (CPU, GPU, tiny):
            problem = s.problem(described(indexing, scale=8, dtype=types(s)[0]), None, profile)
            parameters = s.parameters(problem)
            rng = random.Random(0)
            for _ in range(50):
                reason = s.refusal(problem, {name: rng.choice(values) for name, values in parameters.items()})
                assert reason is None or (isinstance(reason, str) and reason.strip() == reason != "")
            accepted = list(islice(s.configurations(problem), 20))
            assert all(s.refusal(problem, configuration) is None for configuration in accepted)
            if not accepted:
                with pytest.raises(fe.TransformError, match=f"space '{s.name}' has no configuration for"):
                    s.default(problem)


def test_pocl_gets_no_barriers_in_branches() -> None:
    """PoCL 3.1 makes kernels of them that write out of bounds, crash or hang."""
    s, e = find_space("matrix_product"), described(parse_subscripts("ik,kj->ij"), long="j")
    configuration = {"lanes": 16, "rows": 4, "columns": 1, "depth": 4, "local": "A"}
    assert s.refusal(s.problem(e, sized(e), replace(CPU, id="cpu:intel:some:2cu")), configuration) is None
    reason = s.refusal(s.problem(e, sized(e), replace(CPU, id="cpu:pocl:some:2cu")), configuration)
    assert reason == "PoCL 3.1 miscompiles barriers in branches, as where tiles end"


def some_configurations(
    s: TransformSpace, e: fe.BatchedEinsum, profile: DeviceProfile, count: int
) -> list[dict[str, object]]:
    """The default configuration, and random ones, as many at least; none if the device or the problem has none."""
    problem = s.problem(e, sized(e), profile)
    parameters, rng = s.parameters(problem), random.Random(str(e))
    found: list[Configuration] = list(islice(s.configurations(problem), 1))
    for _ in range(1000 if found else 0):
        configuration = {name: rng.choice(values) for name, values in parameters.items()}
        if configuration not in found and s.refusal(problem, configuration) is None:
            found.append(configuration)
        if len(found) > count:
            break
    return found


@pytest.fixture(scope="module")
def workers(cpu: Device) -> Iterator[tuple[Worker, Worker, Worker]]:
    """Processes that build as for users, build unoptimised, and prove: a kernel that crashes fails its test alone."""
    with closing(Worker("build", cpu.id)) as builder, closing(Worker("build", cpu.id)) as quick:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYOPENCL_BUILD_OPTIONS", " ".join(UNOPTIMISED))
            quick.start()
        with closing(Worker("measure", cpu.id)) as prover:
            yield builder, quick, prover


@pytest.mark.parametrize("s", SPACES, ids=by_name)
def test_the_kernels_of_a_space_are_right(s: TransformSpace, cpu: Device, workers: tuple[Worker, Worker, Worker]) -> None:
    """The default and random configurations, for one and several rows, two types, fixed and long axes.

    The default is built as for users; of a random one it is proved what its code says, see
    :data:`simulated_units.UNOPTIMISED`.
    """
    *builders, prover = workers
    proved = 0
    for e in presentations(s):
        c = canonicalize_einsum(e)
        sizes = c.renaming.lengths(e.resolve(sized(e)))
        configurations = some_configurations(s, c.einsum, cpu.profile, 1)
        for builder, configuration in zip(builders, configurations, strict=False):
            trial = Trial(c.key, sizes, cpu.id, s.name, s.version, configuration)
            built = builder.build(trial, 60)
            outcome = built if isinstance(built, Outcome) else prover.prove(trial, built, 60)
            assert outcome is None, f"{e} {configuration}: {outcome.status}, {outcome.message}"
            proved += 1
    if not proved:
        pytest.skip(f"{s.name} has no configuration for {cpu}")


def golden_of(s: TransformSpace) -> str:
    """Version, and the default configuration with its code for one einsum on each of two devices that has one."""
    text = [f"// Generated by pytest tests/test_spaces.py --regenerate-golden\n// {s.name}, version {s.version}\n"]
    for profile in (CPU, GPU):
        for e in presentations_for_golden(s):
            problem = s.problem(e, sized(e, 1000), profile)
            configuration = next(iter(s.configurations(problem)), None)
            if configuration is None:
                continue
            program = realize(e, sized(e, 1000), s, configuration, profile)
            settings = " ".join(f"{name}={value}" for name, value in configuration.items())
            launches = "".join(
                f"// {x.kernel}{x.arguments}: groups {x.groups} of {x.group_size}\n" for x in program.launches
            )
            text.append(f"\n// {profile.name}: {e}\n// {settings}\n{launches}{program.source.strip()}\n")
    return "".join(text)


def presentations_for_golden(s: TransformSpace) -> list[fe.BatchedEinsum]:
    """The first pattern, with its first output index that may be long, in two rows."""
    indexing = patterns(s)[0]
    options = [described(indexing, long=x, rows=2, scale=2, dtype=types(s)[0]) for x in (*indexing.output, "")]
    usable = [e for e in options if any(some_configurations(s, e, profile, 0) for profile in (CPU, GPU))]
    return usable[:1]


def without_reasons(code: str) -> str:
    """Code without the comments of barriers, in which loopy names any one of the instructions that need it."""
    return re.sub(r"/\* for .* depends on .* \*/", "", code)


@pytest.mark.parametrize("s", SPACES, ids=by_name)
def test_the_kernels_of_a_version_stay_the_same(s: TransformSpace, request: pytest.FixtureRequest) -> None:
    """The generated code equals the golden file; another version has another file."""
    path = GOLDEN / f"{s.name}.cl"
    found = golden_of(s)
    if request.config.getoption("--regenerate-golden"):
        path.write_text(found, encoding="utf-8")
        return
    again = "run pytest tests/test_spaces.py --regenerate-golden"
    assert path.exists(), f"space '{s.name}' has no golden file; {again}"
    stored = path.read_text(encoding="utf-8")
    assert f"// {s.name}, version {s.version}\n" in stored, f"space '{s.name}' has a new version; {again}"
    assert without_reasons(found) == without_reasons(stored), (
        f"space '{s.name}' makes other kernels under the same version; raise it, then {again}"
    )


IN_STEPS = {"vector_panels": 3, "reduction": 1, "elementwise_product": 1, "permutation": 1}
EMBEDDED = {
    "contraction_steps": (3, IN_STEPS),
    "complex_steps": (1, IN_STEPS),
    "block_contraction_chain": (1, {"block_contraction": 1}),
}
"""Spaces that make kernels with those of others, their versions, and the versions of these."""


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_space_changes_its_version_with_those_that_it_embeds(name: str) -> None:
    """Records name the space alone: where one that it embeds has a new version, raise its own too and write both here."""
    version, embedded = EMBEDDED[name]
    found = {other: find_space(other).version for other in embedded}
    assert found == embedded, f"raise the version of '{name}', whose kernels are made by {sorted(found)}"
    assert find_space(name).version == version


def test_the_code_does_not_depend_on_the_hash_seed() -> None:
    """Processes that order the names of a set in other ways generate the same code."""
    script = (
        "import test_spaces as t\nfor s in t.SPACES:\n    if s.name in t.SEEDED: print(t.without_reasons(t.golden_of(s)))"
    )
    path = os.pathsep.join([str(GOLDEN.parent), str(GOLDEN.parent.parent)])
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "037"
    }
    assert len(printed) == 1
    assert printed.pop().count("// Generated by") == len(SEEDED)


def test_no_golden_file_is_left_over() -> None:
    """Each belongs to a space that is there."""
    assert {path.stem for path in GOLDEN.glob("*.cl")} == {s.name for s in SPACES}
