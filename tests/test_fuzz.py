"""Random einsums equal numpy's, on every CPU device: calls of `contract`, described einsums, and any configuration of them.

``make fuzz FUZZ="--of einsums --programs 1000 --seed 1"`` tries a thousand of each instead of 25, and others with another
seed.  ``FEINSUM_FUZZ=1000 pytest -s --hypothesis-verbosity=verbose --hypothesis-seed=1`` shows each before it runs, for
what kills the process.
"""

from __future__ import annotations

import logging
import math
import random
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pytest
from fuzzing import cases
from hypothesis import assume, given, note
from hypothesis import strategies as st
from random_einsums import Described, Equation, described, equations, lay_out, numbers

import feinsum as fe
from feinsum.compile.executable import build_executable
from feinsum.compile.realize import realize
from feinsum.devices import Device
from feinsum.registry import matching_spaces
from feinsum.space import TransformSpace
from feinsum.subscripts import INDEX_LETTERS
from feinsum.tune.task import Task, make_task
from feinsum.tune.trial import Outcome
from feinsum.validate import Workload

# loopy raises the limit for deep kernels and leaves it there; hypothesis, which raises it too, wonders.
pytestmark = pytest.mark.filterwarnings("ignore:The recursion limit will not be reset")

ATTEMPTS = 100
"""Random points of a space that are asked for one it accepts."""


def cpu_devices() -> list[Device]:
    return [device for device in fe.devices() if device.usable and device.profile.kind == "cpu"]


@pytest.fixture(scope="module", params=cpu_devices(), ids=lambda device: device.profile.runtime)
def device(request: pytest.FixtureRequest) -> Device:
    return request.param


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("fuzz") / "records.sqlite")


@contextmanager
def no_kernel_passed_over() -> Iterator[None]:
    """Fail where the first choice of the ladder is no kernel, or a wrong one, and the next is taken in silence."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("feinsum")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert not found


@dataclass(frozen=True)
class Expected:
    """What numpy makes of operands; `bound` is how far a result of type `dtype` may be off by roundoff.

    Where numbers are whole, every order of evaluation is exact.
    """

    values: np.ndarray[Any, Any]
    bound: Any
    dtype: np.dtype[Any]

    @staticmethod
    def of(text: str, operands: Sequence[np.ndarray[Any, Any]], dtype: np.dtype[Any], whole: bool) -> Expected:
        real = dtype if dtype.kind in "iub" else np.dtype("float64")
        wide = [x.astype("complex128" if x.dtype.kind == "c" else real) for x in operands]
        values = np.asarray(np.einsum(text, *wide))
        if whole or dtype.kind in "iub":
            return Expected(values, 0, dtype)
        terms, limits = summed_points(text, operands), np.finfo(dtype)
        roundoff = limits.eps * (min(terms, 4 * terms**0.5) + 2 * len(operands) + 2)
        return Expected(values, roundoff * np.einsum(text, *map(np.abs, wide)) + limits.smallest_subnormal, dtype)

    def check(self, found: Any) -> None:
        """Type, shape and values."""
        assert (found.shape, found.dtype) == (self.values.shape, self.dtype)
        wrong = ~(np.abs(found - self.values) <= self.bound) if self.dtype.kind != "b" else found != self.values
        at = np.argwhere(wrong)[:1]
        assert not wrong.any(), (
            f"{wrong.sum()} of {wrong.size} wrong; {at}: {found[wrong][:1]}, not {self.values[wrong][:1]}"
        )


def summed_points(text: str, operands: Sequence[np.ndarray[Any, Any]]) -> int:
    """How many products are summed for one entry of a result."""
    inputs, explicit, output = text.partition("->")
    lengths: dict[str, int] = {}
    for term, x in zip(inputs.split(","), operands, strict=True):
        head, _, tail = term.partition("...")
        for letter, n in [*zip(head, x.shape, strict=False), *zip(tail[::-1], x.shape[::-1], strict=False)]:
            lengths[letter] = max(n, lengths.get(letter, 0))
    kept = output if explicit else [x for x in lengths if inputs.count(x) == 1]
    return math.prod(n for x, n in lengths.items() if x not in kept)


@cases(25)
@given(equation=equations(), seed=st.integers(0, 2**32 - 1))
def test_contract_equals_numpy(equation: Equation, seed: int, device: Device, database: str) -> None:
    """Whatever the grammar, lengths, types, strides, arrays that stand in several places, and keywords."""
    rng = np.random.default_rng(seed)
    queue = device.queue if equation.library == "pyopencl" else None
    how = {"device": device, "database": database, **equation.keywords}
    for shapes in equation.shapes:
        drawn = [numbers(rng, shape, dtype, equation.whole) for shape, dtype in zip(shapes, equation.dtypes, strict=True)]
        drawn = [drawn[k] for k in equation.same]
        placed = [lay_out(x, layout, queue) for x, layout in zip(drawn, equation.layouts, strict=True)]
        placed = [placed[k] for k in equation.same]
        operands = placed if queue is None else drawn
        dtype = np.dtype(equation.keywords.get("dtype", np.result_type(*(x.dtype for x in operands))))
        expected = Expected.of(equation.text, operands, dtype, equation.whole)
        out = room_for(equation, expected.values.shape, dtype, queue)
        with no_kernel_passed_over():
            found = evaluate(equation, placed, out, how)
        assert out is None or found is out
        result = np.asarray(found if queue is None else found.get())
        if equation.out == "wider":
            result = (result if dtype.kind == "c" else result.real).astype(dtype)
        expected.check(result)


def room_for(equation: Equation, shape: tuple[int, ...], dtype: np.dtype[Any], queue: Any) -> Any:
    """The array for the result, if there is one."""
    if equation.out is None:
        return None
    return lay_out(np.full(shape, 1, "complex128" if equation.out == "wider" else dtype), equation.out, queue)


def evaluate(equation: Equation, operands: Sequence[Any], out: Any, how: Mapping[str, Any]) -> Any:
    """The result of an equation in its form."""
    if equation.form == "text":
        return fe.contract(equation.text, *operands, out=out, **how)
    inputs, explicit, output = equation.text.partition("->")
    if equation.form == "interleaved":
        pairs = [part for x, term in zip(operands, inputs.split(","), strict=True) for part in (x, listed(term))]
        return fe.contract(*pairs, *([listed(output)] if explicit else []), out=out, **how)
    shapes = [x if k in equation.constants else x.shape for k, x in enumerate(operands)]
    expression = fe.contract_expression(equation.text, *shapes, constants=equation.constants, **how)
    free = [x for k, x in enumerate(operands) if k not in equation.constants]
    expression(*free)
    return expression(*free, out=out)


def listed(term: str) -> list[Any]:
    """The indices of a term as the interleaved form has them."""
    head, dots, tail = term.partition("...")
    return [*map(INDEX_LETTERS.index, head), *([...] if dots else []), *map(INDEX_LETTERS.index, tail)]


@cases(25)
@given(case=described(), seed=st.integers(0, 2**32 - 1))
def test_described_einsums_equal_numpy(case: Described, seed: int, device: Device, database: str) -> None:
    """One kernel for several lengths of its long axes, in rows that share arrays, with or without a record."""
    e, rng = case.einsum, np.random.default_rng(seed)
    is_recorded = case.recorded is not None and 0 not in e.resolve(case.lengths[case.recorded]).values()
    if is_recorded:
        task = make_task(e, case.lengths[case.recorded], device)
        record = task.record(task.trial(*some_point(task, seed)), Outcome("ok", samples_s=(1e-9,)))
        with fe.Database(database) as store:
            store.add(record)
    with no_kernel_passed_over():
        kernel = fe.generate(e, device, database, sizes=case.lengths[0])
    assert kernel.rung == "exact" or not is_recorded or case.recorded != 0
    for lengths in case.lengths:
        found, arrays = call_kernel(case, kernel, lengths, rng)
        for row, dtype, result in zip(e.args, e.dtypes, found, strict=True):
            # Products of floats are rounded no more often than `Expected` allows for.
            entries = [reduce(np.multiply, [widened(arrays[a.name], dtype) for a in entry]) for entry in row]
            Expected.of(e.subscripts, entries, dtype, case.whole).check(result)


def widened(x: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return x.astype(dtype if dtype.kind in "iu" else "complex128" if x.dtype.kind == "c" else "float64")


def call_kernel(
    case: Described, kernel: fe.Kernel, lengths: Mapping[str, int], rng: np.random.Generator
) -> tuple[list[np.ndarray[Any, Any]], dict[str, np.ndarray[Any, Any]]]:
    """The results of a kernel at some lengths, and the arrays that it was given."""
    e, resolved = case.einsum, case.einsum.resolve(lengths)
    queue = kernel.device.queue if case.library == "pyopencl" else None
    arrays = {
        a.name: numbers(rng, [resolved[x] for x in letters], a.dtype.name, case.whole)
        for a, letters in e.array_indices.items()
    }
    placed = {name: lay_out(x, layout, queue) for (name, x), layout in zip(arrays.items(), case.layouts, strict=True)}
    shape = [resolved[x] for x in e.indexing.output]
    rooms = tuple(lay_out(np.full(shape, 1, dtype), "C", queue) for dtype in e.dtypes)
    found = kernel(placed, out=None if not case.out else rooms if e.b > 1 else rooms[0])
    results = found if e.b > 1 else (found,)
    return [np.asarray(x if queue is None else x.get()) for x in results], arrays


def some_point(task: Task, seed: int) -> tuple[TransformSpace, dict[str, Any]]:
    """A random space for an einsum, and a random configuration of it; the generic space has one for every einsum."""
    rng = random.Random(seed)
    *candidates, generic = matching_spaces(task.subject.canonical.einsum)
    for space in [*rng.sample(candidates, len(candidates)), generic]:
        problem = task.problem(space)
        parameters = space.parameters(problem)
        for _ in range(ATTEMPTS):
            configuration = {name: rng.choice(values) for name, values in parameters.items()}
            if space.refusal(problem, configuration) is None:
                return space, configuration
    raise AssertionError(f"no space has a configuration for {task.subject.canonical.einsum}")


@cases(25)
@given(case=described(), seed=st.integers(0, 2**32 - 1), wide=st.booleans())
def test_any_configuration_is_right(case: Described, seed: int, wide: bool, device: Device) -> None:
    """Of any space, at several lengths, with indices of 32 or 64 bits: every entry is written, and nothing beyond."""
    assume(0 not in case.einsum.resolve(case.lengths[0]).values())
    task = make_task(case.einsum, case.lengths[0], device)
    e = task.subject.canonical.einsum
    space, configuration = some_point(task, seed)
    note(f"{space.name} {configuration}")
    executable = build_executable(
        device.context, realize(e, e.sizes_from(task.sizes), space, configuration, device.profile, wide=wide)
    )
    for lengths in case.lengths:
        resolved = case.einsum.resolve(lengths)
        if 0 not in resolved.values():
            verdict = Workload(e, task.subject.canonical.renaming.lengths(resolved), device.queue, seed).check(executable)
            assert verdict.ok, verdict.message


class LimitError(Exception):
    """A time limit of the caller."""


# What a handler raises between open() and the with statement leaves a file to the collector, in any program of Python.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@cases(6)
@given(case=described(), after_s=st.floats(1e-3, 0.6), kind=st.sampled_from([LimitError, TimeoutError, ValueError]))
def test_a_limit_of_the_caller_reaches_it(
    case: Described, after_s: float, kind: type[Exception], device: Device, database: str
) -> None:
    """Whatever is done when a signal handler raises it, and whatever class it has; the next call works."""
    rung: list[Exception] = []
    caught = None

    def ring(*_: object) -> None:
        rung.append(kind())
        raise rung[0]

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        fe.generate(case.einsum, device, database, sizes=case.lengths[0])
        signal.setitimer(signal.ITIMER_REAL, 0)
    except kind as error:
        caught = error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught is (rung[0] if rung else None)
    with no_kernel_passed_over():
        fe.generate(case.einsum, device, database, sizes=case.lengths[0])


@cases(4)
@given(several=st.lists(described(), min_size=2, max_size=3))
def test_threads_lose_no_candidate_to_warnings(several: list[Described], device: Device, database: str) -> None:
    """Each thread makes a kernel; warnings are errors, and each puts back the filters that it found, in any order."""

    def make(case: Described) -> fe.Kernel:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return fe.generate(case.einsum, device, database, sizes=case.lengths[0])

    with warnings.catch_warnings(), ThreadPoolExecutor(len(several)) as pool, no_kernel_passed_over():
        warnings.simplefilter("error")
        assert all(list(pool.map(make, several)))
