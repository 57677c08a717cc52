"""Programs of the immediate language that run: interpreted, raised and on devices, beside numpy and beside each other.

``make fuzz FUZZ="--of immediate --programs 1000"`` runs a thousand random programs with one kernel, and a thousand with
kernels of their own on both routes, where otherwise a few are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest
from array_kinds import made, shown
from fuzzing import EXAMPLES, cases
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from immediate_programs import SAMPLE, Example, Writer, arguments_for, in_function
from one_kernel import OneKernel
from simulated_units import UNOPTIMISED

import feinsum as fe
from feinsum.build import looping
from feinsum.build.kernel_builder import KernelJob
from feinsum.compile import executable
from feinsum.devices import build_program
from feinsum.errors import DTypeError, ShapeError, ValidationError
from feinsum.languages.calling import stage
from feinsum.languages.immediate.kernels import plan_function
from feinsum.registry import find_space
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome

SAMPLE_TEXT = Example("", SAMPLE).text


def copies(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments that can be written without touching these."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}


def results(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class NumpyKernel:
    """What stands for a kernel where raising and running are tested without compiling."""

    def __init__(self, e: fe.BatchedEinsum, *_: Any, **__: Any) -> None:
        self.einsum = e

    def divides(self, letter: str) -> str | None:
        assert letter in self.einsum.indexing.indices
        return None

    def __call__(self, arrays: Any, out: Any = None, queue: Any = None) -> Any:
        for a in self.einsum.arrays:
            wanted = tuple(s if isinstance(s, int) else n for s, n in zip(a.shape, arrays[a.name].shape, strict=True))
            assert arrays[a.name].shape == wanted
        value = np.einsum(self.einsum.subscripts, *(arrays[a.name] for a in self.einsum.arrays))
        if self.einsum.epilogues:
            number = self.einsum.dtype.type
            text = self.einsum.epilogues[0].text("ab")
            value = number(eval(text, {"v": value, "out": 0 if out is None else out.copy()}))
        if out is None:
            return np.array(value, order="C")
        assert out.flags.c_contiguous
        out[...] = value
        return out


@cases(80)
@given(st.data())
def test_raised_programs_mean_what_the_interpreter_says(data: st.DataObject) -> None:
    """Whatever is raised, folded, joined and gathered; numbers are small integers, so that results are equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "generate", NumpyKernel)
        program = fe.program(Writer(data.draw).function(), "immediate")
        assert fe.program(str(program), strict=True) == program
        assert str(fe.program(str(program))) == str(program)
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        arguments = arguments_for(program.function(), rng, data.draw(st.sampled_from([0, 1, 5])))
        wanted = copies(arguments)
        program.interpret(**wanted)
        for route in ("auto", "general"):
            given_ = copies(arguments)
            fe.build(program, route=route)(**given_)
            for name, value in wanted.items():
                np.testing.assert_array_equal(given_[name], value, err_msg=f"%{name} of\n{program}")


def run_like_the_interpreter(
    program: fe.Program, device: fe.Device, routes: Iterable[str], draw: Any, items: int = 5, library: str = "pyopencl"
) -> None:
    """Run a program with arrays of all kinds of a library, and compare them with what the interpreter leaves."""
    arguments = arguments_for(program.function(), np.random.default_rng(0), items)
    wanted = copies(arguments)
    program.interpret(**wanted)
    for route in routes:
        given_ = {name: made(draw, [library], value, device.queue) for name, value in arguments.items()}
        fe.build(program, device=device, route=route)(given_)
        for name, value in wanted.items():
            got = shown(given_[name]) if isinstance(value, np.ndarray) else given_[name]
            np.testing.assert_array_equal(got, value, err_msg=f"%{name} by route {route} of\n{program}")


@settings(cases(25), phases=[Phase.generate])
@given(data=st.data())
def test_random_programs_with_one_kernel(cpu: fe.Device, data: st.DataObject) -> None:
    """All that is done with device arrays but the kernels of `generate`, in whose place there is one that is built once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "generate", OneKernel)
        program = fe.program(Writer(data.draw).function(), "immediate")
        run_like_the_interpreter(program, cpu, ("auto", "general"), data.draw, data.draw(st.sampled_from([1, 5])))


@settings(cases(3), phases=[Phase.generate])
@given(data=st.data())
def test_random_programs_on_a_device(cpu: fe.Device, data: st.DataObject) -> None:
    """The same with the kernels of `generate`; few, for each of them is compiled.

    Of many they are compiled without optimisation and not proved, as the interpreter does that.
    """
    with pytest.MonkeyPatch.context() as patch:
        if EXAMPLES:
            patch.setattr(executable, "build_program", lambda context, source: build_program(context, source, UNOPTIMISED))
            patch.setattr(KernelJob, "check", lambda *_: None)
            patch.setattr(looping, "_SECONDS", 0.1)
        program = fe.program(Writer(data.draw).function(), "immediate")
        library = data.draw(st.sampled_from(["numpy", "torch", "DLPack", "pyopencl"]))
        routes = ("auto", "general") if EXAMPLES else ("auto",)
        run_like_the_interpreter(program, cpu, routes, data.draw, library=library)


def test_the_sample_of_the_document(cpu: fe.Device) -> None:
    """Corrected, it is D := 5 A B C + D; two instructions are raised to one kernel, items may be anywhere."""
    program = fe.program(SAMPLE_TEXT)
    rng = np.random.default_rng(0)
    A, D = rng.standard_normal((13, 16, 8), np.float32), rng.standard_normal((13, 16, 16), np.float32)
    B, C = rng.standard_normal((8, 8), np.float32), rng.standard_normal((8, 16), np.float32)
    wanted = 5 * A.astype(float) @ B @ C + D
    bound = 30 * np.finfo(np.float32).eps * (5 * abs(A) @ abs(B) @ abs(C) + abs(D))
    pool = np.zeros(13 * 200, np.float32)
    offsets = rng.permutation(13) * 200 + 3
    for k, offset in enumerate(offsets):
        pool[offset : offset + 128] = A[k].ravel("F")
    kernel = fe.build(program, device=cpu)
    assert kernel.ir() == "C := 5.0 {ia, ak, kj to ij} + C\n"
    assert "no kernel yet: it is made at the first call" in kernel.explain()
    for items in (A, list(A), (pool, offsets), np.asfortranarray(A)):
        for run in (program.interpret, kernel):
            mine = D.copy()
            assert run(A=items, B=B, C=C, D=mine) is mine
            assert (abs(mine - wanted) <= bound).all()
    assert "raised    from 2 instructions" in kernel.explain()
    assert "no kernel yet" not in kernel.explain()
    assert "Zia,ak,kj->Zij then 5*v + out" in kernel.explain()
    assert "in a launch of their own" not in kernel.explain()


PADDED = in_function(
    "%A: group<memref<f32x3x5,strided<1,8>>,distance<40>>, %B: memref<f32x5x4>,"
    "%C: group<memref<f32x7x4>,distance<28>>, %o: i64",
    """%a = get_work_item %A, i64 %o : group<memref<f32x3x5,strided<1,8>>,distance<40>>
    %c = get_work_item %C : group<memref<f32x7x4>,distance<28>>
    %v = subview %c[2:5, :] : memref<f32x7x4> to memref<f32x3x4,strided<1,7>>
    log {ik, kj to ij} -1.0, %a, %B, 0.5, %v
        : memref<f32x3x5,strided<1,8>>, memref<f32x5x4> to memref<f32x3x4,strided<1,7>>""",
)


@pytest.mark.parametrize("library", ["numpy", "pyopencl"])
def test_padding_and_subviews_are_left_alone(cpu: fe.Device, library: str) -> None:
    """Gaps in inputs are not read, and what is around a result is not written; an offset moves items."""
    program = fe.program(PADDED)
    rng = np.random.default_rng(1)
    pool = np.full((9, 40), np.nan, np.float32)
    A = np.lib.stride_tricks.as_strided(pool, (9, 3, 5), (160, 4, 32))
    A[...] = rng.integers(-4, 5, A.shape)
    B = rng.integers(-4, 5, (5, 4)).astype(np.float32)
    C = rng.integers(-4, 5, (6, 7, 4)).astype(np.float32)
    wanted = C.copy()
    wanted[:, 2:5] = 0.5 * C[:, 2:5] - A[3:9] @ B
    kernel = fe.build(program, device=cpu)
    if library == "numpy":
        got = kernel(A=A, B=B, C=C, o=3)
    else:
        queue = cpu.queue
        flat = cla.to_device(queue, pool)
        strided = cla.Array(queue, A.shape, A.dtype, strides=A.strides, data=flat.base_data)
        got = kernel(A=strided, B=cla.to_device(queue, B), C=cla.to_device(queue, C), o=3).get()
    np.testing.assert_array_equal(got, wanted)


def test_nothing_is_read_that_has_a_factor_of_zero(cpu: fe.Device) -> None:
    """NaN in C with beta = 0, and in A with alpha = 0, leaves no trace."""
    text = in_function(
        "%a: memref<f64x3>, %b: memref<f64x3>, %c: memref<f64x3>",
        """axpby {i to i} 2.0, %a, 0.0, %b : memref<f64x3> to memref<f64x3>
        axpby {i to i} 0.0, %b, -1.0, %c : memref<f64x3> to memref<f64x3>""",
    )
    for make in (lambda p: p.interpret, lambda p: fe.build(p, device=cpu)):
        a, b, c = np.ones(3), np.full(3, np.nan), np.ones(3)
        make(fe.program(text))(a=a, b=b, c=c)
        assert b.tolist() == [2, 2, 2]
        assert c.tolist() == [-1, -1, -1]


def contractions(text: str) -> list[str]:
    plan = plan_function(fe.program(text).function())
    return [f"{c.alpha:g} {c.text} {c.beta:g}" for c in plan.contractions()]


_G = "group<memref<f64x3x4>,distance<12>>"
_T = "memref<f64x3x4>"
_TWO = f"""%0 = get_work_item %A : {_G}
%1 = get_work_item %D : {_G}
%t = alloca : {_T}
axpby {{ij to ij}} 2.0, %0, 0.0, %t : {_T} to {_T}
%s
axpby {{ij to ij}} 3.0, %t, 1.0, %1 : {_T} to {_T}"""


def test_what_keeps_instructions_apart() -> None:
    """A barrier, a second reader, and what overwrites an operand in between."""
    parameters = f"%A: {_G}, %D: {_G}, %B: {_T}"
    assert contractions(in_function(parameters, _TWO.replace("%s", ""))) == ["6 {ij to ij} 1"]
    assert len(contractions(in_function(parameters, _TWO.replace("%s", "barrier")))) == 2
    again = f"axpby {{ij to ij}} 1.0, %t, 1.0, %1 : {_T} to {_T}"
    assert len(contractions(in_function(parameters, _TWO.replace("%s", again)))) == 3
    overwritten = f"axpby {{ij to ij}} 1.0, %B, 0.0, %0 : {_T} to {_T}"
    assert len(contractions(in_function(parameters, _TWO.replace("%s", overwritten)))) == 3


def test_loops_become_indices() -> None:
    """Over what is independent, and over what is summed; not where the result of a trip is read by the next one."""
    views = "%a = subview %A[:, i8 %k] : memref<f64x3x4> to memref<f64x3>"
    one = in_function(
        f"%A: {_T}, %B: {_T}",
        f"""for i8 %k = 1 to 4 {{ {views} %b = subview %B[:, i8 %k] : {_T} to memref<f64x3>
        axpby {{i to i}} 1.0, %a, 0.5, %b : memref<f64x3> to memref<f64x3> }}""",
    )
    assert contractions(one) == ["1 {ia to ia} 0.5"]
    total = in_function(
        f"%A: {_T}, %b: memref<f64x3>",
        f"for i8 %k = 0 to 4 {{ {views} axpby {{i to i}} 1.0, %a, 1.0, %b : memref<f64x3> to memref<f64x3> }}",
    )
    assert contractions(total) == ["1 {ia to i} 1"]
    kept = plan_function(fe.program(total.replace(" 1.0, %b", " 0.5, %b")).function())
    assert type(kept.units[0]).__name__ == "PlannedLoop"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"A": None}, "needs an argument for %A"),
        ({"X": np.zeros(1)}, "has no parameter %X"),
        ({"B": np.zeros((8, 8))}, "holds f32"),
        ({"B": np.zeros((8, 7), np.float32)}, "not 8x8"),
        ({"D": [np.zeros((16, 16), np.float32)]}, "axis of items in front"),
        ({"A": (np.zeros(100, np.float32), [0])}, "of 128 elements, in a pool of 100"),
        ({"count": 3}, "has 2 items"),
    ],
)
def test_arguments_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    """They are named before anything runs."""
    program = fe.program(SAMPLE_TEXT)
    arguments = arguments_for(program.function(), np.random.default_rng(0), 2) | change
    arguments = {name: value for name, value in arguments.items() if value is not None}
    with pytest.raises((ValidationError, ShapeError, DTypeError), match=words) as caught:
        program.interpret(**arguments)
    with pytest.raises(caught.type, match=words):
        fe.build(program)(**arguments)


def test_written_memory_is_nobody_elses() -> None:
    """Arguments, and items of a pool, that overlap are refused where one is written."""
    text = in_function(
        "%A: group<memref<f32x4>,pointers>, %b: memref<f32x4>",
        "%0 = get_work_item %A : group<memref<f32x4>,pointers>\n"
        "axpby {i to i} 1.0, %b, 0.0, %0 : memref<f32x4> to memref<f32x4>",
    )
    program, memory = fe.program(text), np.zeros(12, np.float32)
    with pytest.raises(ValidationError, match="overlap"):
        program.interpret(A=(memory, [0, 4, 0]), b=np.ones(4, np.float32))
    with pytest.raises(ValidationError, match="share memory"):
        program.interpret(A=[memory[4:8], memory[6:10]], b=np.ones(4, np.float32))
    with pytest.raises(ValidationError, match="share memory"):
        program.interpret(A=[memory[4:8]], b=memory[:8:2])
    program.interpret(A=(memory, [8, 0, 4]), b=np.ones(4, np.float32))
    assert memory.tolist() == [1.0] * 12


def test_what_only_some_terms_have_on_device_arrays(cpu: fe.Device) -> None:
    """A result of items whose operands are the same for all of them, and a result that is only scaled."""
    group = "group<memref<f32x3>,distance<3>>"
    text = in_function(
        f"%C: {group}, %D: {group}, %b: memref<f32x3>",
        f"""%c = get_work_item %C : {group}
        %d = get_work_item %D : {group}
        axpby {{i to i}} 2.0, %b, 1.0, %c : memref<f32x3> to memref<f32x3>
        axpby {{i to i}} 0.0, %b, -1.0, %d : memref<f32x3> to memref<f32x3>""",
    )
    queue, b, C = cpu.queue, np.arange(3, dtype=np.float32), np.ones((5, 3), np.float32)
    c, d = fe.build(fe.program(text), device=cpu)(
        C=cla.to_device(queue, C), D=cla.to_device(queue, C), b=cla.to_device(queue, b)
    )
    np.testing.assert_array_equal(c.get(), C + 2 * b)
    np.testing.assert_array_equal(d.get(), -C)


EXAMPLE = """define @example(%A: memref<f64x8x9x10>, %B: memref<f64x10x2x3>, %C: memref<f64x8x2x3x9>) {
    log {MAP} 1.0, %A, %B, 0.0, %C
        : memref<f64x8x9x10>, memref<f64x10x2x3> to memref<f64x8x2x3x9>
}"""


@pytest.mark.parametrize(
    ("index_map", "joined", "looped"),
    [
        ("i[k]m, m(jn) to i(jn)[k]", {"(jn)"}, {"[k]"}),
        ("[i]km, m(jn) to [i](jn)k", {"(jn)"}, {"[i]"}),
        ("[i][k][m], [m][j][n] to [i][j][n][k]", set(), {"[i]", "[k]", "[m]", "[j]", "[n]"}),
    ],
)
def test_marks_are_obeyed_or_it_is_said_why(cpu: fe.Device, index_map: str, joined: set[str], looped: set[str]) -> None:
    """A looped index has one value at a time in the kernel that is taken; elsewhere line and reason are told.

    Which kernels are expected to cost too much depends on the processor; to loop over everything does on all of them.
    """
    A, B, C = np.arange(720.0).reshape(8, 9, 10), np.arange(60.0).reshape(10, 2, 3), np.zeros((8, 2, 3, 9))
    kernel = fe.build(fe.program(EXAMPLE.replace("MAP", index_map)), device=cpu)
    np.testing.assert_allclose(kernel(A=A, B=B, C=C), np.einsum("ikm,mjn->ijnk", A, B))
    lines = [line.split() for line in kernel.explain().splitlines()]
    obeyed = {line[1] for line in lines if line[0] == "obeyed"}
    refused = {line[1]: line for line in lines if line[0] == "ignored"}
    assert joined <= obeyed
    assert obeyed | refused.keys() == joined | looped
    assert not obeyed & refused.keys()
    assert refused or len(looped) == 1
    assert all(line[2:5] == ["of", "line", "2:"] and len(line) > 5 for line in refused.values())


def test_indices_stay_apart_if_that_was_measured(cpu: fe.Device, tmp_path: Path) -> None:
    """Joined they are an einsum of which there is no record; the reason is told."""
    m = np.arange(720.0).reshape(8, 9, 10), np.arange(60.0).reshape(10, 2, 3), np.zeros((8, 2, 3, 9))
    given = dict(zip("ABC", (np.asfortranarray(x) for x in m), strict=True))
    program = fe.program(EXAMPLE.replace("MAP", "ikm, m(jn) to i(jn)k"))
    database = str(tmp_path / "records.sqlite")
    a, b = fe.array("A", (10, 9, 8)), fe.array("B", (3, 2, 10))
    task = make_task(fe.einsum("mki,njm->knji", a, b), {}, cpu, seed=0)
    with fe.Database(database) as store:
        for known, wanted in ((False, "obeyed    (jn)"), (True, "was measured with these indices apart")):
            if known:
                generic = find_space("generic")
                here = generic.problem(task.instance.einsum, task.instance.sizes, cpu.profile)
                store.add(task.record(task.trial(generic, generic.default(here)), Outcome("ok", samples_s=(1e-6,) * 5)))
            kernel = fe.build(program, device=cpu, database=database)
            np.testing.assert_allclose(kernel(**given), np.einsum("ikm,mjn->ijnk", *m[:2]))
            assert wanted in kernel.explain()


def test_marks_restrict_the_kernel(cpu: fe.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """`generate` takes one that loops over an index, unless that is expected to take twice as long."""
    A, B = fe.array("A", (40, 50)), fe.array("B", (50, 60))
    e = fe.einsum("ij,jk->ik", A, B)
    kernel = fe.generate(e, cpu, looped="i")
    assert kernel.divides("i") is None
    assert kernel.divides("k")
    a, b = np.ones((40, 50)), np.ones((50, 60))
    np.testing.assert_array_equal(kernel(A=a, B=b), a @ b)
    monkeypatch.setattr(looping, "TOLERATED", 1000.0)
    turned = fe.einsum("ij,jk->ki", A, B)
    assert fe.generate(turned, cpu, looped="i").divides("i") is None
    monkeypatch.setattr(looping, "TOLERATED", 0.0)
    assert fe.generate(turned, cpu, looped="ik").divides("i")
    with pytest.raises(ValidationError, match="no index 'x'"):
        fe.generate(e, cpu, looped="x")
    with pytest.raises(ValidationError, match="no index 'x'"):
        kernel.divides("x")


def test_marks_of_several_instructions_in_one_kernel(cpu: fe.Device) -> None:
    """They have no kernel of their own; what the kernel of all does is told, and each launch by itself obeys."""
    program = fe.program(SAMPLE_TEXT.replace("{ik, kj to ij} 5.0", "{[i]k, kj to [i]j} 5.0"))
    arguments = arguments_for(program.function(), np.random.default_rng(0), 9)
    for route in ("auto", "general"):
        kernel = fe.build(program, device=cpu, route=route)
        kernel(**copies(arguments))
        (line,) = [x for x in kernel.explain().splitlines() if "[i] of line 10" in x]
        assert line.split()[0] == "obeyed" or (route == "auto" and "route='general'" in line)


def test_repeated_calls_are_looked_at_where_it_matters(cpu: fe.Device) -> None:
    """Device arrays like earlier ones are launched at once; those that share memory, or have other shapes, are checked."""
    group = "group<memref<f32x3>,distance<3>>"
    text = in_function(
        f"%C: {group}, %A: {group}, %b: memref<f32x3>",
        f"""%c = get_work_item %C : {group}
        %a = get_work_item %A : {group}
        product {{i, i to i}} 2.0, %a, %b, 1.0, %c : memref<f32x3>, memref<f32x3> to memref<f32x3>""",
    )
    rng, queue = np.random.default_rng(0), cpu.queue
    kernel = fe.build(fe.program(text), device=cpu)

    def arrays(items: int) -> dict[str, Any]:
        shapes = {"C": (items, 3), "A": (items, 3), "b": (3,)}
        return {name: rng.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes.items()}

    for items in (5, 5, 6, 5):
        values = arrays(items)
        given_ = {name: cla.to_device(queue, value) for name, value in values.items()}
        for times in (1, 2):
            assert kernel(given_) is given_["C"]
            np.testing.assert_array_equal(given_["C"].get(), values["C"] + times * 2 * values["A"] * values["b"])
    assert len(kernel._runner._repeated._known) == 2
    with pytest.raises(ValidationError, match="share memory"):
        kernel(given_ | {"A": given_["C"]})
    part = cla.Array(queue, (5, 3), np.float32, data=given_["C"].base_data.get_sub_region(0, 60))
    with pytest.raises(ValidationError, match="share memory"):
        kernel(given_ | {"A": part})
    with pytest.raises(ValidationError, match="has no parameter %X"):
        kernel(given_ | {"X": given_["A"]})
    before = given_["C"].get()
    kernel(given_, count=2)
    np.testing.assert_array_equal(given_["C"].get()[2:], before[2:])
