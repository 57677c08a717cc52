"""Validation: whatever a kernel can do wrong is seen, and what roundoff alone does is not called wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import feinsum as fe
from feinsum.arrays import DTYPES
from feinsum.compile.executable import build_executable
from feinsum.compile.kernel_program import KernelArgument, KernelLaunch, KernelProgram
from feinsum.compile.realize import realize
from feinsum.devices import Device
from feinsum.registry import find_space
from feinsum.validate import Workload, odd_lengths, proof
from feinsum.validate.draws import infinite_inputs, uneven_inputs
from feinsum.validate.proof_lengths import drawn_lengths
from feinsum.validate.reference import Reference, hides_terms, random_inputs, references, whole_inputs

pytestmark = pytest.mark.slow

MATVEC = fe.einsum("ij,j->i", fe.array("A", ("N", 50)), fe.array("x", 50))


@dataclass
class Writes:
    """An executable that writes what it is told to.

    :ivar outputs: the values of each output, or None where nothing is written.
    :ivar spoil: names of inputs that it overwrites.
    """

    outputs: Mapping[str, np.ndarray[Any, Any] | None]
    spoil: tuple[str, ...] = ()

    def scratch(self, context: Any, lengths: Any) -> dict[str, Any]:
        return {}

    def enqueue(self, queue: Any, buffers: Mapping[str, Any], lengths: Any) -> None:
        for name, values in self.outputs.items():
            if values is not None:
                cl.enqueue_copy(queue, buffers[name], np.ascontiguousarray(values))
        for name in self.spoil:
            cl.enqueue_fill_buffer(queue, buffers[name], np.uint8(0x33), 0, buffers[name].size)


def right(workload: Workload) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs as numpy computes them in a wider type, rounded once."""
    e, inputs = workload.einsum, workload._inputs
    found = {}
    for row, name, dtype in zip(e.args, e.output_names, e.dtypes, strict=True):
        wide = {"f": np.longdouble, "c": np.clongdouble}.get(dtype.kind, dtype)
        operands = [np.prod([inputs[a.name].astype(wide) for a in entry], axis=0) for entry in row]
        found[name] = np.einsum(e.subscripts, *operands).astype(dtype)
    return found


def workload(cpu: Device, e: fe.BatchedEinsum = MATVEC) -> Workload:
    return Workload(e, e.resolve(dict.fromkeys(e.long_axes, 30)), cpu.queue)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_right_values_are_accepted(dtype: np.dtype[Any], cpu: Device) -> None:
    """Of every type, for several outputs; the worst error is far below its bound."""
    A, x = fe.array("A", ("N", 50), dtype), fe.array("x", 50, dtype)
    w = workload(cpu, fe.batched_einsum("ij,j->i", [[A, x], [(A, fe.array("B", ("N", 50), dtype)), x]]))
    verdict = w.check(Writes(right(w)))
    assert verdict.ok
    assert verdict.message == ""
    assert verdict.worst < 0.1
    assert not verdict.escaped


def test_an_error_above_the_bound_is_seen_and_one_below_is_not(cpu: Device) -> None:
    """The bound of each entry is where acceptance ends."""
    w = workload(cpu)
    (reference,) = w.references
    for factor, accepted in ((0.99, True), (-0.99, True), (1.01, False), (-1.01, False)):
        values = right(w)["out"]
        values[17] = reference.expected[17] + factor * reference.bound[17]
        verdict = w.check(Writes({"out": values}))
        assert verdict.ok is accepted
        if accepted:
            assert verdict.worst == pytest.approx(0.99, rel=0.01)
        else:
            assert verdict.message.startswith(f"'out'[17] is {values[17]} instead of ")
            assert "1 of 30 entries compared are wrong, at lengths i=30 j=50" in verdict.message


WRONG: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "one entry": lambda out: out.__setitem__((3, 4), out[3, 4] + 1e-9),
    "two entries exchanged": lambda out: out.__setitem__((0, [0, 1]), out[0, [1, 0]]),
    "sign": lambda out: np.negative(out, out=out),
    "first entry": lambda out: out.__setitem__((0, 0), 0),
    "last entry": lambda out: out.__setitem__((-1, -1), 0),
    "rows moved by one": lambda out: out.__setitem__(slice(None), np.roll(out, 1, axis=0)),
    "less precise arithmetic": lambda out: out.__setitem__(slice(None), out.astype(np.float32)),
    "all zeros": lambda out: out.fill(0),
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=WRONG)
def test_wrong_values_are_seen(spoil: Callable[[np.ndarray[Any, Any]], Any], cpu: Device) -> None:
    """Any of them, anywhere; the message names output, entry, value and lengths."""
    w = workload(cpu, fe.einsum("ik,kj->ij", fe.array("A", (7, 11)), fe.array("B", (11, 9))))
    values = right(w)
    spoil(values["out"])
    verdict = w.check(Writes(values))
    assert not verdict.ok
    assert verdict.worst == np.inf
    assert verdict.message.startswith("'out'[")
    assert "(allowed error " in verdict.message
    assert "at lengths i=7 j=9 k=11" in verdict.message


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int32", "uint32", "int64", "uint64"])
def test_what_was_not_written_is_seen(dtype: str, cpu: Device) -> None:
    """Nothing written at all, or all but one entry: outputs begin as poison."""
    w = workload(cpu, fe.einsum("i,i->i", fe.array("x", 40, dtype), fe.array("y", 40, dtype)))
    verdict = w.check(Writes({"out": None}))
    assert verdict.message.startswith("'out' has 40 entries not written or not finite, the first at [0], at lengths i=40")
    values = right(w)["out"]
    assert w.check(Writes({"out": values})).ok  # leaves the right values in memory that is used again
    missing = KernelProgram(
        "__kernel void f(__global uint *out, __global uint const *from)"
        " { int i = get_global_id(0); if (i / WORDS != 23) out[i] = from[i]; }".replace(
            "WORDS", str(values.dtype.itemsize // 4)
        ),
        (KernelArgument("out", "output", "uint32", (40,)), KernelArgument("from", "input", "uint32", (40,))),
        (KernelLaunch("f", ("out", "from"), (10 * values.dtype.itemsize,), (1,)),),
    )
    w.inputs["from"] = cl.Buffer(cpu.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
    verdict = w.check(build_executable(cpu.context, missing))
    assert "'out' has 1 entries not written or not finite, the first at [23]" in verdict.message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_seen(value: float, cpu: Device) -> None:
    """Also where the reference has no entry, in a result too large to be compared as a whole."""
    e = fe.einsum("ik,jk->ij", fe.array("A", (3000, 40)), fe.array("B", (3000, 40)))
    w = workload(cpu, e)
    (reference,) = w.references
    left_out = min(set(range(3000)) - set(map(int, reference.at[0])))
    values = np.einsum("ik,jk->ij", w._inputs["A"], w._inputs["B"])
    assert w.check(Writes({"out": values})).ok
    values[left_out, 5] = value
    verdict = w.check(Writes({"out": values}))
    assert f"'out' has 1 entries not written or not finite, the first at [{left_out}, 5]" in verdict.message


def test_the_wrong_output_is_named(cpu: Device) -> None:
    """Each is compared with its own reference."""
    A, x, y = fe.array("A", (6, 5)), fe.array("x", 5), fe.array("y", 5)
    w = workload(cpu, fe.batched_einsum("ij,j->i", [[A, x], [A, y]]))
    values = right(w)
    assert w.check(Writes({"out_0": values["out_0"], "out_1": values["out_0"]})).message.startswith("'out_1'[")
    assert w.check(Writes({"out_0": values["out_1"], "out_1": values["out_1"]})).message.startswith("'out_0'[")


@pytest.mark.parametrize("at", [-8192, -1, 30, 30 + 8191])
def test_writes_beyond_an_output_are_seen(at: int, cpu: Device) -> None:
    """In front of it and behind it, even if the values are right."""
    w = workload(cpu)
    values = right(w)["out"]
    program = KernelProgram(
        "__kernel void f(__global double *out, __global double const *from)"
        f" {{ int i = get_global_id(0); out[i] = from[i]; if (i == 0) out[{at}] = 1; }}",
        (KernelArgument("out", "output", "float64", (30,)), KernelArgument("from", "input", "float64", (30,))),
        (KernelLaunch("f", ("out", "from"), (30,), (1,)),),
    )
    w.inputs["from"] = cl.Buffer(cpu.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
    verdict = w.check(build_executable(cpu.context, program))
    assert verdict.message == "'out' is written out of bounds at lengths i=30 j=50"
    assert verdict.escaped


def test_memory_between_launches_is_poisoned(cpu: Device) -> None:
    """A kernel that reads what no launch wrote is seen, whatever was there before."""
    program = KernelProgram(
        "__kernel void f(__global double *out, __global double *partial)"
        " { out[get_global_id(0)] = partial[get_global_id(0)]; }",
        (KernelArgument("out", "output", "float64", (30,)), KernelArgument("partial", "scratch", "float64", (30,))),
        (KernelLaunch("f", ("out", "partial"), (30,), (1,)),),
    )
    verdict = workload(cpu).check(build_executable(cpu.context, program))
    assert verdict.message.startswith("'out' has 30 entries not written or not finite")


@pytest.mark.parametrize("at", [-8192, -1, 50, 50 + 8191])
def test_reads_beyond_an_input_are_seen(at: int, cpu: Device) -> None:
    """In front of it and behind it, where they change a result, be it by no more than zero times what is there."""
    program = KernelProgram(
        "__kernel void f(__global double *out, __global double const *A, __global double const *x)"
        " { int i = get_global_id(0); double s = 0; for (int j = 0; j < 50; ++j) s += A[50 * i + j] * x[j];"
        f" out[i] = s + 0 * x[{at}]; }}",
        tuple(
            KernelArgument(name, kind, "float64", shape)
            for name, kind, shape in (("out", "output", (30,)), ("A", "input", (30, 50)), ("x", "input", (50,)))
        ),
        (KernelLaunch("f", ("out", "A", "x"), (30,), (1,)),),
    )
    verdict = workload(cpu).check(build_executable(cpu.context, program))
    assert verdict.message.startswith("'out' has 30 entries not written or not finite")


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64"])
def test_reads_beyond_an_input_of_integers_are_seen(dtype: str, cpu: Device) -> None:
    """What is there is no small number."""
    w = workload(cpu, fe.einsum("i->i", fe.array("x", 30, dtype)))
    kind = {"int8": "char", "int32": "int", "uint64": "ulong"}[dtype]
    program = KernelProgram(
        f"__kernel void f(__global {kind} *out, __global {kind} const *x)"
        " { int i = get_global_id(0); out[i] = x[i] + (i == 29) * x[i + 1]; }",
        (KernelArgument("out", "output", dtype, (30,)), KernelArgument("x", "input", dtype, (30,))),
        (KernelLaunch("f", ("out", "x"), (30,), (1,)),),
    )
    assert w.check(build_executable(cpu.context, program)).message.startswith("'out'[29] is ")


@pytest.mark.parametrize(("name", "at"), [("x", 0), ("x", 49), ("A", 1499), ("x", -1), ("A", 1500)])
def test_a_kernel_that_writes_to_an_input_is_wrong(name: str, at: int, cpu: Device) -> None:
    """Though its results are right; what it wrote is undone, and a miss of the input has escaped."""
    w = workload(cpu)
    good = build_executable(cpu.context, realize(MATVEC, {"N": 30}, find_space("generic"), generic(), cpu.profile))
    length = {"x": 50, "A": 1500}[name]

    @dataclass
    class Spoiling:
        scratch = staticmethod(good.scratch)

        def enqueue(self, queue: Any, buffers: Mapping[str, Any], lengths: Any) -> None:
            good.enqueue(queue, buffers, lengths)
            whole = w._guarded_inputs[name].whole
            cl.enqueue_copy(queue, whole, np.float64([0.125]), dst_offset=(64 << 10) + 8 * at)

    verdict = w.check(Spoiling())
    escaped = not 0 <= at < length
    how = "out of bounds" if escaped else "though it is an input"
    assert verdict.message == f"'{name}' is written {how} at lengths i=30 j=50"
    assert verdict.escaped is escaped
    assert w.check(good).ok


def test_what_an_output_holds_before_says_nothing(cpu: Device) -> None:
    """It is no number at one time, and at another a number that nobody foresees."""
    found = {}
    for draw in ("even", "uneven", "infinite", "whole"):
        w = Workload(MATVEC, MATVEC.resolve({"N": 30}), cpu.queue, draw=draw)
        seen = []

        @dataclass
        class Looking:
            def scratch(self, context: Any, lengths: Any) -> dict[str, Any]:
                return {}

            def enqueue(self, queue: Any, buffers: Mapping[str, Any], lengths: Any) -> None:
                values = np.empty(30)
                cl.enqueue_copy(queue, values, buffers["out"])
                seen.append(values[0])  # noqa: B023 (called at once)

        for _ in range(20):
            assert not w.check(Looking()).ok
        found[draw] = seen
    assert np.isnan(found.pop("even")).all()
    for seen in found.values():
        assert np.isfinite(seen).all()
        assert len(set(seen)) > 3


def test_an_infinity_stays_where_it_belongs(cpu: Device) -> None:
    """Multiplied by zero it makes entries wrong that do not depend on it; those that do are what IEEE 754 says."""
    w = Workload(MATVEC, MATVEC.resolve({"N": 30}), cpu.queue, seed=1, draw="infinite")
    with np.errstate(invalid="ignore"):
        values = right(w)["out"]
    touched = ~np.isfinite(values)
    assert touched.any()
    assert w.check(Writes({"out": values})).ok
    assert not w.check(Writes({"out": np.where(touched, np.nan, values)})).ok
    assert not w.check(Writes({"out": np.where(touched, -values, values)})).ok
    assert not w.check(Writes({"out": np.where(touched, 0, values)})).ok
    one = Workload(fe.einsum("i->i", fe.array("x", 30)), {"i": 30}, cpu.queue, draw="infinite")
    values = right(one)["out"]
    assert (~np.isfinite(values)).sum() == 1
    assert one.check(Writes({"out": values})).ok
    leaking = np.where(np.roll(~np.isfinite(values), 1), np.nan, values)
    assert " is nan instead of " in one.check(Writes({"out": leaking})).message


def test_an_infinity_may_become_nan_where_the_order_of_sums_decides(cpu: Device) -> None:
    """(b + b') inf is infinite where b inf + b' inf is NaN: in chains, and where one operand alone has a summed index."""
    for subscripts, shapes in (("ij,jk,k->i", ((4, 5), (5, 6), 6)), ("ij,ik->i", ((4, 5), (4, 6)))):
        e = fe.einsum(subscripts, *(fe.array(f"a{k}", shape) for k, shape in enumerate(shapes)))
        w = Workload(e, e.resolve(), cpu.queue, draw="infinite")
        with np.errstate(invalid="ignore"):
            values = right(w)["out"]
        touched = ~np.isfinite(values)
        assert touched.any()
        assert w.check(Writes({"out": np.where(touched, np.nan, values)})).ok
        assert w.check(Writes({"out": np.where(touched, np.inf, values)})).ok


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinite_inputs_hold_what_ieee_754_decides(dtype: str) -> None:
    """Beside the infinity stands NaN, the other infinity or the largest number, in either operand."""
    e = fe.einsum("ij,jk->ik", fe.array("A", (8, 9), dtype), fe.array("B", (9, 7), dtype))
    most = np.finfo(dtype).max
    seen = set()
    for seed in range(60):
        for name, values in infinite_inputs(e, e.resolve(), seed).items():
            seen |= {(name, str(x)) for x in values[~(abs(values) < most)]}
    assert seen == {(name, str(np.dtype(dtype).type(x))) for name in "AB" for x in (np.inf, -np.inf, np.nan, most)}


def test_uneven_numbers_are_large_small_and_zero() -> None:
    """Of every type that has fractions; integers are as before, with more zeros."""
    e = fe.einsum("i,i,i->", *(fe.array(f"a{k}", 3000, t) for k, t in enumerate(("float32", "complex128", "uint8"))))
    for name, values in uneven_inputs(e, {"i": 3000}, 0).items():
        assert 0.2 < (values == 0).mean() < 0.5, name
        if values.dtype.kind in "fc":
            assert abs(values).max() > 60
            assert abs(values[values != 0]).min() < 0.01
    assert uneven_inputs(e, {"i": 3000}, 0)["a0"].tolist() == uneven_inputs(e, {"i": 3000}, 0)["a0"].tolist()


def test_some_lengths_are_drawn_for_the_run() -> None:
    """From one to those in use, and of all orders; equal axes stay equal, and arrays small."""
    lengths = MATVEC.resolve({"N": 10**6})
    drawn = [drawn_lengths(MATVEC, lengths, seed) for seed in range(200)]
    found = [at["i"] for (at,) in drawn]
    assert all(at["j"] == 50 for (at,) in drawn)
    assert min(found) < 5
    assert 1000 < max(found) <= 2000
    assert len(set(found)) > 80
    assert drawn[7] == drawn_lengths(MATVEC, lengths, 7)
    assert all(at["i"] <= 3 for seed in range(50) for at in drawn_lengths(MATVEC, MATVEC.resolve({"N": 3}), seed))
    assert drawn_lengths(fe.einsum("i", fe.array("x", 1000)), {"i": 1000}, 0) == []
    square = fe.einsum("ij,jk->ik", fe.array("A", ("N", "N")), fe.array("B", ("N", math.inf)))
    for seed in range(20):
        (at,) = drawn_lengths(square, square.resolve({"N": 10**5, "k": 10**5}), seed)
        assert at["i"] == at["j"]
        assert square.array_bytes(square.sizes_from(at)) <= 64 << 20


def test_all_that_a_kernel_is_proved_for(cpu: Device) -> None:
    """Lengths of one, of a multiple, of a prime, and drawn; three draws of inputs at each; at last what is timed."""
    found = proof(MATVEC, MATVEC.resolve({"N": 1000}), cpu.queue, 5)
    (drawn,) = drawn_lengths(MATVEC, MATVEC.resolve({"N": 1000}), 5)
    others = [(n, draw) for n in (1, 24, 67, drawn["i"]) for draw in ("even", "uneven", "infinite")]
    assert [(w.lengths["i"], w.draw) for w in found] == [*others, (1000, "even")]
    fixed = fe.einsum("ij,j->i", fe.array("A", (9, 20000), "float32"), fe.array("x", 20000, "float32"))
    assert [w.draw for w in proof(fixed, fixed.resolve(), cpu.queue, 5)] == ["uneven", "infinite", "whole", "even"]


def test_a_wrong_kernel_does_not_make_the_next_one_wrong(cpu: Device) -> None:
    """What it wrote to the inputs is undone."""
    w = workload(cpu)
    good = build_executable(cpu.context, realize(MATVEC, {"N": 30}, find_space("generic"), generic(), cpu.profile))
    assert not w.check(Writes({"out": np.zeros(30)}, spoil=("x",))).ok
    assert w.check(good).ok


def generic() -> dict[str, Any]:
    return {"schedule": "fused", "lane": "last", "items": 16}


@pytest.mark.parametrize("length", [1000, 30000])
def test_correct_float32_is_accepted_at_long_contractions(length: int, cpu: Device) -> None:
    """One sum after the other, far from the last bits, and still well within the bound."""
    e = fe.einsum("ij,j->i", fe.array("A", (64, length), "float32"), fe.array("x", length, "float32"))
    executable = build_executable(cpu.context, realize(e, {}, find_space("generic"), generic(), cpu.profile))
    for seed in range(3):
        w = Workload(e, e.resolve(), cpu.queue, seed)
        verdict = w.check(executable)
        assert verdict.ok, verdict.message
        assert 0 < verdict.worst < 0.5


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_term_left_out_of_a_long_sum_is_seen(dtype: str, cpu: Device) -> None:
    """Although it is less than what roundoff may do to such a sum: with whole numbers there is no roundoff."""
    e = fe.einsum("ij,j->i", fe.array("A", (40, 20000), dtype), fe.array("x", 20000, dtype))
    executable = build_executable(cpu.context, realize(e, {}, find_space("generic"), generic(), cpu.profile))
    [*_, w, _] = proof(e, e.resolve(), cpu.queue, 0)
    assert w.check(executable).ok
    short = KernelProgram(
        executable.program.source.replace("19999", "19998"), executable.program.arguments, executable.program.launches
    )
    assert short.source != executable.program.source
    verdict = w.check(build_executable(cpu.context, short))
    assert "(allowed error 0.00e+00)" in verdict.message


@pytest.mark.parametrize(
    ("length", "dtype", "hides"),
    [(500, "float32", False), (2000, "float32", True), (2000, "float64", False), (2000, "int32", False)],
)
def test_terms_hide_in_long_sums_of_few_digits(length: int, dtype: str, hides: bool) -> None:
    """Only there are whole numbers tried; then every sum of their products is exact."""
    e = fe.einsum(
        "ij,j,j->i", fe.array("A", (4, length), dtype), fe.array("x", length, dtype), fe.array("y", length, "int8")
    )
    assert hides_terms(e, e.resolve()) is hides
    inputs = whole_inputs(e, e.resolve(), 0)
    for values in inputs.values():
        assert (values == np.round(values)).all()
        assert values.min() < 0 < values.max()
    exact = np.einsum("ij,j,j->i", *(values.astype(np.int64) for values in inputs.values()))
    found = np.einsum("ij,j,j->i", *(inputs[name] for name in "Axy"))
    np.testing.assert_array_equal(found, exact)


def test_whole_numbers_are_of_no_use_where_they_are_not_exact() -> None:
    """A sum of more terms than a float32 counts."""
    e = fe.einsum("i->", fe.array("x", 2**25, "float32"))
    assert not hides_terms(e, e.resolve())


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_references_are_exact_to_their_bounds(dtype: str) -> None:
    """Against sums of fractions: the reference itself is off by a small part of the bound."""
    e = fe.einsum("ij,jk,k->i", *(fe.array(name, shape, dtype) for name, shape in (("A", (3, 5)), ("B", (5, 7)), ("x", 7))))
    inputs = random_inputs(e, e.resolve(), 3)
    (reference,) = references(e, e.resolve(), inputs, 3)

    def exact(part: str) -> list[Fraction]:
        """The real or imaginary part of each entry."""
        found = []
        for i in range(3):
            total = [Fraction(0), Fraction(0)]
            for j in range(5):
                for k in range(7):
                    value = [Fraction(1), Fraction(0)]
                    for factor in (inputs["A"][i, j], inputs["B"][j, k], inputs["x"][k]):
                        re, im = Fraction(float(factor.real)), Fraction(float(factor.imag))
                        value = [value[0] * re - value[1] * im, value[0] * im + value[1] * re]
                    total = [total[0] + value[0], total[1] + value[1]]
            found.append(total[part == "imag"])
        return found

    for part in ("real", "imag"):
        for found, value, bound in zip(getattr(reference.expected, part), exact(part), reference.bound, strict=True):
            assert abs(Fraction(*found.as_integer_ratio()) - value) < Fraction(float(bound)) / 2


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_errors_in_float64_are_those_in_extended_precision(dtype: str) -> None:
    """Errors far below the roundoff of what is expected are told apart, as long as none exceeds its bound."""
    rng = np.random.default_rng(0)
    wide = np.clongdouble if np.dtype(dtype).kind == "c" else np.longdouble
    found = rng.normal(size=(300, 400)).astype(dtype)
    expected = found.astype(wide) + rng.normal(size=found.shape).astype(np.longdouble) * 1e-18
    error = abs(found - expected)
    of = Reference(tuple(map(np.arange, found.shape)), expected, (error + 1e-25) * rng.uniform(1, 3, found.shape))
    assert of.worst(found) == pytest.approx(float((error / of.bound).max()), rel=1e-6)
    for spoilt in (1, np.nan, np.inf):
        wrong = found.copy()
        wrong[-1, -1] += spoilt
        assert of.worst(wrong) is None
    assert replace(of, bound=(error + 1e-25) * np.where(np.arange(400) == 399, 0.999, 1.001)).worst(found) is None


def test_float64_does_not_tell_what_it_does_not_hold() -> None:
    """Infinite or unknown results, bounds above its range or below it; the bound of what is exact is zero."""
    at, one = (np.arange(1),), np.ones(1)
    for expected, bound in (
        (np.array([np.inf]), one),
        (one, np.array([np.inf])),
        (one, np.array([np.longdouble("1e-4900")])),
        (np.array([3]), np.zeros(1)),
    ):
        assert Reference(at, expected, bound).worst(expected) is None
    assert Reference(at, one, np.zeros(1)).worst(one) == 0
    assert Reference(at, one, np.zeros(1)).worst(one + 1e-15) is None


def test_large_results_are_compared_at_a_block_of_entries() -> None:
    """A random one which has the first and the last position along each axis."""
    e = fe.einsum("ik,jk->ij", fe.array("A", (3000, 40)), fe.array("B", (3000, 40)))
    inputs = random_inputs(e, e.resolve(), 0)
    (reference,) = references(e, e.resolve(), inputs, 0)
    rows, columns = reference.at
    assert reference.expected.shape == (len(rows), len(columns))
    assert 10_000 < reference.expected.size < 1_000_000
    for positions in (rows, columns):
        assert positions[0] == 0
        assert positions[-1] == 2999
        assert (np.diff(positions) > 0).all()
    (other,) = references(e, e.resolve(), inputs, 1)
    assert list(other.at[0]) != list(rows)
    np.testing.assert_allclose(reference.expected.astype(float), inputs["A"][rows] @ inputs["B"][columns].T)


def test_inputs_are_random_of_mixed_sign_and_repeatable() -> None:
    """The same seed gives the same data; integers are too small for their sums to overflow soon."""
    e = fe.einsum(
        "i,i,i,i->", *(fe.array(f"a{k}", 1000, t) for k, t in enumerate(("float32", "complex128", "int8", "uint8")))
    )
    one, again, other = (random_inputs(e, e.resolve(), seed) for seed in (1, 1, 2))
    for a in e.arrays:
        assert one[a.name].dtype == a.dtype
        assert (one[a.name] == again[a.name]).all()
        assert (one[a.name] != other[a.name]).any()
        assert abs(one[a.name]).max() <= 3
        if a.dtype.kind != "u":
            assert one[a.name].real.min() < 0 < one[a.name].real.max()


def test_long_axes_are_also_checked_at_odd_lengths() -> None:
    """One and a prime, which divide nothing, but no longer than those in use."""
    for length, others in ((1000, (1, 24, 67)), (66, (1, 24, 31)), (20, (1, 12, 13)), (2, (1, 2, 1))):
        assert odd_lengths(MATVEC, MATVEC.resolve({"N": length})) == [{"i": n, "j": 50} for n in others]
    assert odd_lengths(fe.einsum("i", fe.array("x", 1000)), {"i": 1000}) == []


def test_sets_of_buffers_count_what_no_index_reaches(cpu: Device) -> None:
    """A diagonal is some kilobytes, its matrix takes megabytes: no more sets are made than there is memory for."""
    e = fe.einsum("ii->i", fe.array("A", (500, 500)))
    w = Workload(e, e.resolve(), cpu.queue)
    assert w.nbytes == 500 * 500 * 8 + 500 * 8
    small = replace(cpu.profile, cache_bytes=1 << 30, global_memory_bytes=4 * 5 * w.nbytes)
    assert w.sets_to_rotate(small) == 5


def test_empty_workloads_are_right(cpu: Device) -> None:
    """Nothing to compare: nothing is wrong, whether outputs or sums are empty."""
    e = fe.einsum("ij,j->i", fe.array("A", ("N", "M")), fe.array("x", "M"))
    for sizes in ({"N": 0, "M": 3}, {"N": 3, "M": 0}):
        w = Workload(e, e.resolve(sizes), cpu.queue)
        assert w.check(Writes({"out": np.zeros(sizes["N"])} if sizes["N"] else {})).ok
    assert not w.check(Writes({"out": np.ones(3)})).ok
