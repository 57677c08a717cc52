"""Epilogues in kernels: proved, called, looked up, tuned, timed and saved, on every CPU device.

``make fuzz FUZZ="--of epilogues --programs 1000"`` tries a thousand random ones.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest
from fuzzing import cases
from hypothesis import Phase, assume, given, note, settings
from hypothesis import strategies as st
from random_einsums import Described, described
from random_epilogues import epilogues
from test_fuzz import cpu_devices, some_point

import feinsum as fe
from feinsum.canonicalization import canonicalize_einsum, parse_key
from feinsum.compile.executable import Executable, build_executable
from feinsum.compile.realize import realize
from feinsum.devices import Device
from feinsum.epilogue.epilogue_values import evaluate_epilogue
from feinsum.registry import find_space
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome
from feinsum.validate import Rotation, Workload, proof
from feinsum.validate.finished import EpilogueInputs, finished_value

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:The recursion limit will not be reset")]

A, B = fe.array("A", ("N", 8)), fe.array("B", (8, 5))
MATRIX_PRODUCT = fe.einsum("ik,kj->ij", A, B)
UPDATE = MATRIX_PRODUCT.then("alpha*v + beta*out")
LAYER = MATRIX_PRODUCT.then("gelu(v + b[j])", b=fe.array("b", 5))
GATED = fe.batched_einsum("ik,kj->ij", [[A, B], [A, fe.array("G", (8, 5))]]).then("silu(v0)*v1 + beta*out")
GENERIC = find_space("generic")
FEW_OPERANDS = 6
"""Of more, all orders are searched for the one with the fewest operations, which takes longer than many kernels."""


@pytest.fixture(scope="module", params=cpu_devices(), ids=lambda device: device.profile.runtime)
def device(request: pytest.FixtureRequest) -> Device:
    return request.param


@settings(cases(5), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(case=described(), data=st.data(), seed=st.integers(0, 2**32 - 1), draw=st.sampled_from(["even", "zero", "uneven"]))
def test_any_epilogue_of_any_configuration_is_right(
    case: Described, data: st.DataObject, seed: int, draw: str, device: Device
) -> None:
    """Of any space, at several lengths, whatever outputs hold before; and its key describes it."""
    assume(0 not in case.einsum.resolve(case.lengths[0]).values())
    assume(case.einsum.n <= FEW_OPERANDS)
    e = data.draw(epilogues(case.einsum))
    note(str(e))
    task = make_task(e, case.lengths[0], device)
    own = task.subject.canonical.einsum
    assert parse_key(task.subject.canonical.key) == own
    space, configuration = some_point(task, seed)
    note(f"{space.name} {configuration}")
    program = realize(own, own.sizes_from(task.sizes), space, configuration, device.profile)
    executable = build_executable(device.context, program)
    for lengths in case.lengths:
        resolved = e.resolve(lengths)
        if 0 not in resolved.values():
            verdict = Workload(own, task.subject.canonical.renaming.lengths(resolved), device.queue, seed, draw).check(
                executable
            )
            assert verdict.ok, verdict.message


CALLED = [
    (UPDATE, {"alpha": 2, "beta": -0.5}),
    (UPDATE, {"alpha": 0.25, "beta": 0}),
    (LAYER, {}),
    (GATED, {"beta": -0.5}),
    (GATED, {"beta": 0}),
    (MATRIX_PRODUCT.then("where(out > 0, v, m[i, j]) - c", m=fe.array("m", ("N", 5)), c=fe.array("c", ())), {}),
]


def some_arrays(e: fe.BatchedEinsum, n: int, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    lengths = e.resolve({"N": n})
    return {a.name: rng.standard_normal([lengths[x] for x in at]) for a, at in e.array_indices.items()}


@pytest.mark.parametrize(("e", "scalars"), CALLED, ids=["update", "store", "layer", "gated", "zero", "choice"])
def test_a_kernel_is_called_with_arrays_and_numbers(
    e: fe.BatchedEinsum, scalars: Mapping[str, float], device: Device, store_of_module: str
) -> None:
    """Of numpy and on the device; outputs that are read are updated in place; nothing is summed at length 0."""
    kernel, rng = fe.generate(e, device, store_of_module), np.random.default_rng(1)
    for n in (1, 67, 1500):
        arrays, before = some_arrays(e, n, rng), rng.standard_normal((n, 5))
        if scalars.get("beta") == 0:
            before[:] = np.nan
        sums = [arrays["A"] @ arrays[row[1][0].name] for row in e.args]
        expected = evaluate_epilogue(e.epilogues[0], sums, before, arrays, scalars)  # type: ignore[arg-type]
        out = before.copy()
        assert kernel(arrays, **scalars, out=out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
        there = {name: cla.to_device(device.queue, x) for name, x in arrays.items()}
        wide = cla.to_device(device.queue, np.concatenate([np.zeros((1, 5)), before]))
        result = kernel(there, **scalars, out=wide[1:])
        np.testing.assert_allclose(result.get(), expected, rtol=1e-12, atol=1e-12)
    if not e.updates[0]:
        np.testing.assert_array_equal(kernel(arrays, **scalars), out)


@pytest.fixture(scope="module")
def store_of_module(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("epilogues") / "records.sqlite")


def test_a_sum_of_nothing_is_finished_all_the_same(device: Device, store_of_module: str) -> None:
    """It is zero, and no kernel runs."""
    e = fe.einsum("ik->i", fe.array("M", ("N", "K"))).then("beta*out + v + w[i]", w=fe.array("w", "N"))
    kernel = fe.generate(e, device, store_of_module)
    out = np.arange(3.0)
    kernel(M=np.zeros((3, 0)), w=np.ones(3), beta=2, out=out)
    np.testing.assert_array_equal(out, [1, 3, 5])
    two = fe.batched_einsum("ik->i", [[fe.array("M", ("N", "K"))], [fe.array("L", ("N", "K"))]]).then("exp(v0) + exp(v1)")
    found = fe.generate(two, device, store_of_module)(M=np.zeros((3, 0)), L=np.zeros((3, 0)))
    np.testing.assert_array_equal(found, [2, 2, 2])
    there = cla.to_device(device.queue, np.arange(3.0))
    kernel(M=cla.zeros(device.queue, (3, 0), float), w=cla.zeros(device.queue, 3, float), beta=2, out=there)
    np.testing.assert_array_equal(there.get(), [0, 2, 4])


REFUSED = [
    ({"alpha": 1}, "'beta' is missing, a number that the epilogue takes; the kernel takes A, B, alpha, beta"),
    ({"alpha": 1, "beta": 1j}, "'beta' is 1j, but the output it is for is float64"),
    ({"alpha": "x", "beta": 1}, "'alpha' is 'x'; it is a number, of type float64"),
    ({"alpha": np.ones(2), "beta": 1}, "'alpha' is array"),
    ({"alpha": 1, "beta": 1, "gamma": 1}, "'gamma' is no array of the kernel"),
]


@pytest.mark.parametrize(("numbers", "reason"), REFUSED)
def test_numbers_that_do_not_fit_are_refused(
    numbers: dict[str, Any], reason: str, cpu: Device, store_of_module: str
) -> None:
    """Before anything is launched, by name."""
    kernel = fe.generate(UPDATE, cpu, store_of_module)
    with pytest.raises(fe.FeinsumError, match=reason):
        kernel(A=np.ones((3, 8)), B=np.ones((8, 5)), out=np.ones((3, 5)), **numbers)


def test_an_update_needs_an_output(cpu: Device, store_of_module: str) -> None:
    """The error names the epilogue and the keyword."""
    kernel = fe.generate(UPDATE, cpu, store_of_module)
    with pytest.raises(fe.ValidationError, match=r"'alpha\*v \+ beta\*out' reads what the output holds; pass it as out="):
        kernel(A=np.ones((3, 8)), B=np.ones((8, 5)), alpha=1, beta=1)


def test_types_of_outputs_and_numbers(device: Device, store_of_module: str) -> None:
    """Complex numbers by value, and small integers that wrap around as numpy's do."""
    rng = np.random.default_rng(2)
    z = fe.array("z", ("N", 3), "complex64")
    e = fe.einsum("ij->i", z).then("alpha*v + conj(out)")
    values, out = (rng.standard_normal((20, 3)) + 1j).astype("complex64"), np.full(20, 1 + 2j, "complex64")
    found = fe.generate(e, device, store_of_module)(z=values, alpha=2j, out=out)
    np.testing.assert_allclose(found, 2j * values.sum(1) + (1 - 2j), rtol=1e-5)
    n = fe.array("n", ("N", 3), "int8")
    small = rng.integers(-100, 100, (20, 3)).astype("int8")
    found = fe.generate(fe.einsum("ij->i", n).then("where(3*v < 100, v - s, -v)"), device, store_of_module)(n=small, s=5)
    sums = small.sum(1, dtype="int8").astype("int32")
    np.testing.assert_array_equal(found, np.where(3 * sums < 100, sums - 5, -sums).astype("int8"))
    counts = fe.array("c", ("N", 3), "uint64")
    found = fe.generate(
        fe.einsum("ij->i", counts).then("where(b[i] < 2, v, 7)", b=fe.array("b", "N", "uint64")), device, store_of_module
    )(c=np.ones((20, 3), "uint64"), b=np.arange(20, dtype="uint64"))
    np.testing.assert_array_equal(found, np.where(np.arange(20) < 2, 3, 7))


def broken(e: fe.BatchedEinsum, told: fe.BatchedEinsum, cpu: Device) -> Executable:
    """A kernel for `told` that passes for one of `e`, which has the same arguments."""
    problem = GENERIC.problem(told, {"N": 67}, cpu.profile)
    return build_executable(cpu.context, realize(told, {"N": 67}, GENERIC, GENERIC.default(problem), cpu.profile))


WRONG = [
    ("alpha*v + beta*out", "alpha*v + (beta + 0*v)*out"),  # 0 times what is no number
    ("v + out", "v + 1.0001*out"),
    ("v + out", "v + 0*v*out"),
    ("tanh(v)", "tanh(1.00001*v)"),
    ("where(v < 0, v, 2*v)", "2*v"),
]


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_numbers_without_a_sign_wrap_around_at_their_own_width(dtype: str, device: Device) -> None:
    """Beside constants and numbers of the call, too: what is compared is the difference modulo 2**32, or 2**64."""
    x, y = fe.array("x", ("N",), dtype), fe.array("y", ("N",), dtype)
    e = fe.einsum("n,n->n", x, y).then("where(t*out + (3 - z[n]) < v, v - t, t - out) - v", z=fe.array("z", ("N",), dtype))
    values = {name: np.arange(40, dtype=dtype) % span for name, span in (("x", 7), ("y", 5), ("z", 9))}
    present, t = np.arange(40, dtype=dtype) % 3, np.dtype(dtype).type(1)
    found = fe.generate(e, device)(**values, t=t, out=present.copy())
    v = values["x"] * values["y"]
    assert (found == np.where(present + (3 * t - values["z"]) < v, v - t, t - present) - v).all()


@pytest.mark.parametrize(
    ("text", "v", "expected", "any_will_do"),
    [
        ("log(tanh(v) + 1)", -20.0, -np.inf, True),  # a device's tanh is -1, or a rounding above it
        ("1/(tanh(v) + 1)", -20.0, np.inf, True),
        ("sqrt(v)", -1e-30, np.nan, True),  # the sum may be zero
        ("sqrt(v)", -1.0, np.nan, False),
        ("2*sqrt(v) + 1", -1.0, np.nan, False),
        ("log(v)", 0.0, -np.inf, True),
        ("exp(v)", 1000.0, np.inf, False),
        ("exp(v) + 1", 1000.0, np.inf, False),
        ("exp(v)", 2.0, np.exp(2.0), False),
    ],
)
def test_where_anything_may_come_of_rounding(text: str, v: float, expected: float, any_will_do: bool) -> None:
    """The bound of an infinite value is infinite where a correct kernel may have a number there."""
    e = MATRIX_PRODUCT.then(text)
    at, sums, bounds = (np.arange(1), np.arange(1)), np.full((1, 1), v), np.full((1, 1), 1e-15)
    assert e.epilogues[0] is not None
    found, bound = finished_value(e.epilogues[0], np.dtype("float64"), [sums], [bounds], at, EpilogueInputs(None, {}, {}))
    np.testing.assert_array_equal(found, np.full((1, 1), expected))
    assert np.isinf(bound).all() == any_will_do


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_a_wrong_epilogue_is_seen(right: str, wrong: str, cpu: Device) -> None:
    """By the proof, whatever is wrong with it; the right one passes."""
    e = MATRIX_PRODUCT.then(right)
    bench = [w for w in proof(e, e.resolve({"N": 13}), cpu.queue, 1) if w.draw in ("even", "zero")][-3:]
    assert all(w.check(broken(e, e, cpu)).ok for w in bench)
    told = MATRIX_PRODUCT.then(wrong)
    assert not all(w.check(broken(e, told, cpu)).ok for w in bench)


def test_one_output_of_the_wrong_rows_is_seen(cpu: Device) -> None:
    """By the proof; one with the rows in their places passes, and says how many launches it takes."""
    x, w, u = fe.array("x", ("N", 8)), fe.array("w", (8, 5)), fe.array("u", (8, 5))
    e, swapped = (fe.batched_einsum("ik,kj->ij", [[x, a], [x, b]]).then("silu(v0)*v1") for a, b in ((w, u), (u, w)))
    bench = [workload for workload in proof(e, e.resolve({"N": 13}), cpu.queue, 1) if workload.draw == "even"][-2:]
    assert all(workload.check(broken(e, e, cpu)).ok for workload in bench)
    assert not all(workload.check(broken(e, swapped, cpu)).ok for workload in bench)


def test_updates_are_timed_and_compared(cpu: Device) -> None:
    """Also those that would outgrow all numbers; a kernel that is wrong when it is timed is seen."""
    growing = MATRIX_PRODUCT.then("2*out + v")
    assert fe.timeit(growing, cpu, space="generic", sizes={"N": 67}, seconds=0.02).median_s > 0
    workload = Workload(growing, growing.resolve({"N": 67}), cpu.queue)
    assert 0 < (workload.runs_until_large or 0) < 100
    assert Workload(UPDATE, UPDATE.resolve({"N": 67}), cpu.queue).runs_until_large is None
    rotation = Rotation([workload, workload.another()], 3)
    for told, ok in ((growing, True), (MATRIX_PRODUCT.then("2*out + 1.001*v"), False)):
        executable = broken(growing, told, cpu)
        rotation.begin(executable)
        for turn in range(40):
            executable.enqueue(cpu.queue, rotation[turn % len(rotation)], workload.parameters)
        cpu.queue.finish()
        assert rotation.check(executable).ok == ok


def test_a_record_of_the_bare_einsum_speaks_for_the_epilogue(cpu: Device, store: str) -> None:
    """Below an exact one, with the bytes that the epilogue adds; `explain` says so."""
    sizes = {"N": 1000}
    for e, seconds in ((MATRIX_PRODUCT, 1e-3), (LAYER, 3e-3)):
        task = make_task(e, sizes, cpu)
        configuration = GENERIC.default(task.problem(GENERIC)) | {"items": 32 if e is LAYER else 16}
        with fe.Database(store) as records:
            records.add(task.record(task.trial(GENERIC, configuration), Outcome("ok", samples_s=(seconds,))))
        kernel = fe.generate(LAYER, cpu, store, sizes)
        assert kernel.record is not None
        assert kernel.rung == ("exact" if e is LAYER else "pattern")
        assert kernel.configuration["items"] == configuration["items"]
        assert ("it is of the bare einsum" in kernel.explain()) == (e is MATRIX_PRODUCT)
        assert "then 0.5*(v + b[j])*(erf(" in kernel.explain()
    assert fe.generate(MATRIX_PRODUCT, cpu, store, sizes).configuration["items"] == 16


def test_an_epilogue_is_tuned_in_worker_processes(cpu: Device, store: str) -> None:
    """And then known; records have the key of the einsum with its epilogue."""
    ones = {"A": np.ones((4, 8)), "B": np.ones((8, 5)), "G": -np.ones((8, 5))}
    for e, numbers, expected in ((UPDATE, {"alpha": 1, "beta": 3}, 11.0), (GATED, {"beta": 3}, 3 - 64 / (1 + np.exp(-8)))):
        report = fe.autotune(e, cpu, store, {"N": 67}, space="generic", trials=2, workers=1, progress=False)
        assert [r.status for r in report.records] == ["ok", "ok"]
        assert {r.einsum_key for r in report.records} == {canonicalize_einsum(e).key}
        kernel = fe.generate(e, cpu, store, {"N": 67})
        assert kernel.rung == "exact"
        again = pickle.loads(pickle.dumps(kernel))
        assert again.einsum == e
        out = np.ones((4, 5))
        again({a.name: ones[a.name] for a in e.arrays}, **numbers, out=out)
        np.testing.assert_allclose(out, np.full((4, 5), expected), rtol=1e-14)
