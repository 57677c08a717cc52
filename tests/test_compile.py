"""Programs as data, and executables built from them: what is stored is read back, and nothing hostile is."""

from __future__ import annotations

import copy
import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from einsums import check_against_numpy, inputs
from hypothesis import given
from hypothesis import strategies as st
from simulated_units import build_unoptimised

import feinsum as fe
from feinsum.compile.codegen import generate_program, to_extent
from feinsum.compile.executable import build_executable
from feinsum.compile.filling import enqueue_fill, enqueue_fill_kernel
from feinsum.compile.index_width import is_outgrown
from feinsum.compile.kernel_program import KernelArgument, KernelLaunch, KernelProgram, evaluate_extent
from feinsum.compile.realize import realize, transformed
from feinsum.devices import Device, build_program
from feinsum.devices.opencl import wake_compiler
from feinsum.registry import find_space
from feinsum.validate import Workload

CHAIN = fe.einsum(
    "ij,jk,kl->il", *(fe.array(name, shape) for name, shape in (("A", ("N", 9)), ("B", (9, 8)), ("C", (8, 7))))
)
STEPS = {"schedule": "pairwise", "lane": "last", "items": 16}

COPY = KernelProgram(
    "__kernel void move(__global double const *x, __global double *y, int n)"
    " { if (get_global_id(0) < n) y[get_global_id(0)] = x[get_global_id(0)]; }",
    (
        KernelArgument("x", "input", "float64", ("n",)),
        KernelArgument("y", "output", "float64", ("n",)),
        KernelArgument("n", "length", "int32", ()),
    ),
    (KernelLaunch("move", ("x", "y", "n"), (("//", ("+", "n", 15), 16),), (16,)),),
)


@pytest.fixture
def chain(cpu: Device) -> KernelProgram:
    """Two or three launches that share memory."""
    return realize(CHAIN, {"N": 1000}, find_space("generic"), STEPS, cpu.profile)


def test_a_program_says_what_it_takes(chain: KernelProgram) -> None:
    """Inputs and outputs under their names, scratch memory between launches, and a length for each long axis."""
    kinds = {a.name: a.kind for a in chain.arguments}
    assert {name: kinds[name] for name in ("A", "B", "C", "out", "N")} == {
        "A": "input",
        "B": "input",
        "C": "input",
        "out": "output",
        "N": "length",
    }
    assert "scratch" in kinds.values()
    assert len(chain.launches) == 2
    assert next(a for a in chain.arguments if a.name == "out").shape == ("N", 7)


def test_a_program_survives_json(chain: KernelProgram) -> None:
    """It is plain data, and equal after being stored."""
    for program in (chain, COPY):
        assert KernelProgram.from_json(json.loads(json.dumps(program.to_json()))) == program


def test_a_stored_program_computes_the_same(chain: KernelProgram, cpu: Device) -> None:
    """Built in another place, from JSON alone, at lengths that divide nothing."""
    executable = build_executable(cpu.context, KernelProgram.from_json(json.loads(json.dumps(chain.to_json()))))
    for length in (1, 37):
        arrays = inputs(CHAIN, {"N": length})
        buffers = {
            name: cl.Buffer(cpu.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values) for name, values in arrays.items()
        }
        buffers["out"] = cl.Buffer(cpu.context, cl.mem_flags.READ_WRITE, length * 7 * 8)
        scratch = executable.scratch(cpu.context, {"N": length})
        events = executable.enqueue(cpu.queue, buffers | scratch, {"N": length})
        assert len(events) == len(chain.launches)
        found = np.empty((length, 7))
        cl.enqueue_copy(cpu.queue, found, buffers["out"])
        check_against_numpy(CHAIN, arrays, found)


def test_machine_code_builds_again(cpu: Device) -> None:
    """The binary of one build serves another; one that the driver refuses falls back to the source."""
    binary = build_executable(cpu.context, COPY).binary
    assert binary
    for stored in (binary, b"not machine code"):
        executable = build_executable(cpu.context, COPY, stored)
        x, y = np.arange(37.0), np.zeros(37)
        buffers = {
            "x": cl.Buffer(cpu.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=x),
            "y": cl.Buffer(cpu.context, 0, x.nbytes),
        }
        executable.enqueue(cpu.queue, buffers, {"n": 37})
        cl.enqueue_copy(cpu.queue, y, buffers["y"])
        np.testing.assert_array_equal(x, y)


def test_the_compiler_wakes_once_while_many_threads_build(cpu: Device, recwarn: pytest.WarningsRecorder) -> None:
    """What is built meanwhile waits its turn, and nobody is warned of anything."""
    waking = wake_compiler(cpu.context)
    with ThreadPoolExecutor(4) as threads:
        sources = [COPY.source + " " * k for k in range(8)]
        built = list(threads.map(lambda source: build_program(cpu.context, source), sources))
    assert [program.kernel_names for program in built] == ["move"] * 8
    assert waking.done()
    assert wake_compiler(cpu.context) is waking
    assert not recwarn.list


def test_a_forked_process_has_a_compiler_of_its_own() -> None:
    """The thread that compiles stays with the parent; a child that opens the device for itself builds."""
    script = """
import os
from feinsum.devices import opencl
opencl._compiler().submit(int).result()
child = os.fork()
if not child:
    import feinsum as fe
    device = fe.device("cpu")
    opencl.build_program(device.context, "__kernel void f(__global int *x) { x[0] = 1; }")
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=120)
    assert done.stdout == "7\n", done.stderr


def test_random_numbers_that_no_kernel_draws_change_no_code(cpu: Device) -> None:
    """The target of programs generates what PyOpenCL's does, complex arithmetic included."""
    for dtype in ("float32", "complex128", "int32"):
        e = fe.einsum("ij,jk->ik", fe.array("A", ("N", 9), dtype), fe.array("B", (9, 8), dtype))
        made: dict[str, Any] = {"e": e, "sizes": {"N": 100}, "space": find_space("generic"), "profile": cpu.profile}
        configuration = {**STEPS, "schedule": "fused"}
        assert realize(configuration=configuration, **made) == generate_program(
            transformed(configuration=configuration, **made)
        )


def test_a_launch_without_groups_is_none(cpu: Device) -> None:
    """Nothing is enqueued where there is nothing to do."""
    executable = build_executable(cpu.context, COPY)
    buffer = cl.Buffer(cpu.context, cl.mem_flags.READ_WRITE, 8)
    assert executable.enqueue(cpu.queue, {"x": buffer, "y": buffer}, {"n": 0}) == []


def test_source_that_does_not_compile_is_refused_with_the_log(cpu: Device) -> None:
    """The compiler's own words, not too many of them."""
    broken = KernelProgram(COPY.source.replace("x[get_global_id(0)]", "undeclared"), COPY.arguments, COPY.launches)
    with pytest.raises(fe.TransformError, match="the OpenCL compiler refuses the kernel: ") as error:
        build_executable(cpu.context, broken)
    assert "undeclared" in str(error.value)
    assert len(str(error.value)) < 2200
    missing = KernelProgram(COPY.source, COPY.arguments, (KernelLaunch("gone", ("x", "y", "n"), (1,), (1,)),))
    with pytest.raises(fe.TransformError, match="the OpenCL compiler refuses the kernel"):
        build_executable(cpu.context, missing)


def test_a_kernel_that_loopy_cannot_schedule_is_refused_with_the_reason(cpu: Device) -> None:
    """The message is loopy's."""
    import loopy as lp

    t_unit = fe.generate_loopy(fe.einsum("ij->ij", fe.array("A", (4, 5))))
    both = lp.tag_inames(t_unit, {"i": "l.0", "j": "l.0"})
    with pytest.raises(fe.TransformError, match="loopy generates no code: LoopyError: "):
        generate_program(both)


def test_what_is_proved_to_stay_within_its_arrays_is_not_proved_again(cpu: Device) -> None:
    """A kernel that reads beyond an array is refused unless the caller knows better; code is the same either way."""
    import loopy as lp

    arrays = [lp.GlobalArg(name, dtype="float64", shape=(8,)) for name in ("x", "y")]
    beyond = lp.make_kernel("{[i]: 0 <= i < 8}", "y[i] = x[i + 1]", arrays, lang_version=(2018, 2))
    with pytest.raises(fe.TransformError, match="out-of-bounds"):
        generate_program(beyond)
    assert "x[1 + i]" in generate_program(beyond, proved=True).source
    made: dict[str, Any] = {"e": CHAIN, "sizes": {"N": 10}, "space": find_space("generic"), "configuration": STEPS}
    assert realize(**made, profile=cpu.profile, proved=True) == realize(**made, profile=cpu.profile)


def test_configurations_outside_a_space_are_refused(cpu: Device) -> None:
    """Before anything is lowered, with the reason."""
    space = find_space("generic")
    with pytest.raises(fe.TransformError, match=r"space 'generic' refuses .*: items is 7, not one of \[64, 16,"):
        realize(CHAIN, {"N": 10}, space, STEPS | {"items": 7}, cpu.profile)
    with pytest.raises(fe.TransformError, match="its parameters are"):
        realize(CHAIN, {"N": 10}, space, {"items": 64}, cpu.profile)


def test_wide_kernels_index_with_64_bits(cpu: Device) -> None:
    """On demand, or where the lengths expected need it."""
    space = find_space("generic")
    for sizes, wide, dtype in (({"N": 10}, False, "int32"), ({"N": 10}, True, "int64"), ({"N": 2**31}, False, "int64")):
        program = generate_program(transformed(CHAIN, sizes, space, STEPS, cpu.profile, wide=wide))
        assert {a.dtype for a in program.arguments if a.kind == "length"} == {dtype}


@pytest.mark.parametrize(
    ("name", "configuration"),
    [
        ("generic", STEPS),
        ("contraction_steps", {"split": "none", "vectors": 2, "together": 2, "turn": False}),
    ],
)
def test_what_launches_share_decides_about_indices_too(name: str, configuration: dict[str, Any], cpu: Device) -> None:
    """A partial result may be much longer than operands and output: that of ``ab,bcd->acd`` has 63 N entries.

    Tiles have the fewest accumulators that there may be on this processor: how many that is depends on its registers.
    """
    e = fe.einsum("ab,bcd,ac->ad", fe.array("x", ("N", 7)), fe.array("y", (7, 9, 7)), fe.array("z", ("N", 9)))
    short, long = 1 << 20, 40 << 20
    choices = find_space(name).parameters(find_space(name).problem(e, {"N": short}, cpu.profile))
    configuration = {parameter: configuration.get(parameter, values[-1]) for parameter, values in choices.items()}
    for length, dtype, cast in ((short, "int32", "(int)"), (long, "int64", "(long)")):
        program = realize(e, {"N": length}, find_space(name), configuration, cpu.profile)
        (shared,) = (a for a in program.arguments if a.kind == "scratch")
        assert math.prod(evaluate_extent(x, {"N": length}) for x in shared.shape) == 63 * length
        assert {a.dtype for a in program.arguments if a.kind == "length"} == {dtype}
        assert f"#define gid(N) ({cast} get_group_id(N))" in program.source
        assert is_outgrown(program, {"N": long}) == (length == short)
        assert not is_outgrown(program, {"N": short})


def test_wide_kernels_limit_positions_to_numbers(cpu: Device) -> None:
    """OpenCL C knows no ``min`` of a long and an int, so that these are written as longs."""
    e = fe.einsum("ab,bcd,ac->ad", fe.array("x", ("N", 7)), fe.array("y", (7, 9, 7)), fe.array("z", ("N", 9)))
    space, lengths = find_space("contraction_steps"), {"a": 67, "b": 7, "c": 9, "d": 7}
    configuration = {**space.default(space.problem(e, {"N": 67}, cpu.profile)), "together": 4}
    program = realize(e, {"N": 67}, space, configuration, cpu.profile, wide=True)
    assert re.search(r"min\([^,;]*, \d+l\)", program.source)
    verdict = Workload(e, lengths, cpu.queue).check(build_executable(cpu.context, program))
    assert verdict.ok, verdict.message


@pytest.mark.parametrize("space", ["vector_panels", "contraction_steps"])
@pytest.mark.parametrize("narrow", [0, 1, 2])
def test_operands_of_float32_are_converted_as_they_are_loaded(cpu: Device, space: str, narrow: int) -> None:
    """Whether lanes run along them or not: results are of float64, and as exact."""
    shapes = (3, 3, "E"), (3, 10, 10), ("E", 10)
    e = fe.einsum(
        "xre,rij,ej->xei", *(fe.array(f"a{k}", s, "float32" if k == narrow else "float64") for k, s in enumerate(shapes))
    )
    s = find_space(space)
    problem = s.problem(e, {"E": 1000}, cpu.profile)
    rng = random.Random(narrow)
    configurations = [{name: rng.choice(values) for name, values in s.parameters(problem).items()} for _ in range(40)]
    for configuration in [c for c in configurations if s.refusal(problem, c) is None][:3]:
        executable = build_unoptimised(cpu, realize(e, {"E": 1000}, s, configuration, cpu.profile))
        verdict = Workload(e, e.resolve({"E": 67}), cpu.queue).check(executable)
        assert verdict.ok, verdict.message


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda data: None,
    "text": lambda data: "import os",
    "list": lambda data: [],
    "no source": lambda data: data | {"source": None},
    "no arguments": lambda data: {k: v for k, v in data.items() if k != "arguments"},
    "arguments that are no list": lambda data: data | {"arguments": 7},
    "argument without a shape": lambda data: data | {"arguments": [["x", "input", "float64"]]},
    "unknown kind": lambda data: data | {"arguments": [["x", "file", "float64", []]]},
    "unknown type": lambda data: data | {"arguments": [["x", "input", "object", []]]},
    "type that numpy would build": lambda data: data | {"arguments": [["x", "input", "f8,f8", []]]},
    "two of one name": lambda data: data | {"arguments": [*data["arguments"], data["arguments"][0]]},
    "name that is no text": lambda data: data | {"arguments": [[["x"], "input", "float64", []]]},
    "shape of an unknown length": lambda data: data | {"arguments": [["x", "input", "float64", ["m"]]]},
    "shape with an operator that is none": lambda data: data | {"arguments": [["x", "input", "float64", [["eval", "n"]]]]},
    "shape that is a truth value": lambda data: data | {"arguments": [["x", "input", "float64", [True]]]},
    "shape that is a fraction": lambda data: data | {"arguments": [["x", "input", "float64", [0.5]]]},
    "no launches": lambda data: data | {"launches": []},
    "launch of no kernel": lambda data: data | {"launches": [[None, [], [1], [1]]]},
    "unknown argument": lambda data: data | {"launches": [["move", ["z"], [1], [1]]]},
    "no groups": lambda data: data | {"launches": [["move", ["x"], [], [1]]]},
    "four axes": lambda data: data | {"launches": [["move", ["x"], [1] * 4, [1]]]},
    "groups of an unknown length": lambda data: data | {"launches": [["move", ["x"], ["m"], [1]]]},
    "groups with too few operands": lambda data: data | {"launches": [["move", ["x"], [["*", "n"]], [1]]]},
    "groups divided by zero": lambda data: data | {"launches": [["move", ["x"], [["//", "n", 0]], [1]]]},
    "groups without end": lambda data: data | {"launches": [["move", ["x"], [10**30], [1]]]},
    "groups too deep": lambda data: data | {"launches": [["move", ["x"], [nested(100_000)], [1]]]},
    "group of size zero": lambda data: data | {"launches": [["move", ["x"], [1], [0]]]},
    "group of unknown size": lambda data: data | {"launches": [["move", ["x"], [1], ["n"]]]},
    "operator that cannot be looked up": lambda data: data | {"launches": [["move", ["x"], [[[], 1]], [1]]]},
}


def nested(depth: int) -> Any:
    extent: Any = "n"
    for _ in range(depth):
        extent = ["+", extent]
    return extent


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_program_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    """Stored data is data: whatever does not have the form of a program raises one error."""
    with pytest.raises(fe.ValidationError, match=r"not a stored program: ."):
        KernelProgram.from_json(change(copy.deepcopy(COPY.to_json())))


EXTENTS = st.recursive(
    st.integers(-9, 9) | st.sampled_from(["n", "m"]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "min", "max"]), inner, inner, inner),
        st.tuples(st.sampled_from(["*"]), inner, inner),
        st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(1, 9)),
    ),
)


@given(EXTENTS, st.integers(0, 100), st.integers(0, 100))
def test_lengths_are_computed_as_python_would(extent: Any, n: int, m: int) -> None:
    """A length as data has the value of the same expression in Python."""

    def text(x: Any) -> str:
        if not isinstance(x, tuple):
            return str(x)
        operator, *operands = x
        if operator in ("min", "max"):
            return f"{operator}({', '.join(map(text, operands))})"
        return f"({f' {operator} '.join(map(text, operands))})"

    assert evaluate_extent(extent, {"n": n, "m": m}) == eval(text(extent), {"n": n, "m": m, "min": min, "max": max})


def test_lengths_of_loopy_become_data() -> None:
    """Sums, products, quotients, remainders, minima and maxima of parameters; anything else is refused."""
    from pymbolic import parse

    values = {"n": 37, "m": 5}
    for text in ("(n + 15) // 16", "3*n*m + -1*m", "n % m", "n", "4"):
        assert evaluate_extent(to_extent(parse(text)), values) == eval(text, values)
    with pytest.raises(fe.TransformError, match=r"'n\*\*2' is no length that a launch can compute"):
        to_extent(parse("n**2"))


@pytest.mark.parametrize("fill", [enqueue_fill, enqueue_fill_kernel])
def test_a_part_of_a_buffer_is_filled_and_nothing_else(cpu: Device, fill: Callable[..., Any]) -> None:
    """Bytes are set from where it says, as many as it says, by the driver and by a kernel of ours."""
    queue = cl.CommandQueue(cpu.context)
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 5000)
    fill(queue, buffer, 7, 0, 5000)
    fill(queue, buffer, 255, 1001, 2000).wait()
    found = np.empty(5000, np.uint8)
    cl.enqueue_copy(queue, found, buffer)
    assert (found[1001:3001] == 255).all()
    assert (found[:1001] == 7).all()
    assert (found[3001:] == 7).all()
