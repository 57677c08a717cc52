"""Functions of the tensor language that are einsums: which, why not, and computed by kernels of einsums."""

from __future__ import annotations

import gc
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest

import feinsum as fe
from feinsum.errors import FeinsumError, ShapeError, ValidationError
from feinsum.languages.tensor.recognising import UnrecognisedError, function_steps

HEAD = """func @f(%alpha: f64, %beta: f64, %K: memref<f64x5x7>, %A: memref<f64x3x3>, %x: memref<f64x3>, %y: memref<f64x7>,
        %G: group<memref<f64x7x3>x?>, %P: memref<f64x7x3x?>, %Q: memref<f64x5x3x?>, %R: memref<f64x5x?>,
        %S: memref<f64x?x?>, %T: memref<f64x?x?>, %V: memref<f64x7x3>) {
    %id = builtin.group_id : index
    %one = constant 1.0 : f64
    %zero = constant 0.0 : f64
    %g = load %G[%id] : memref<f64x7x3>
    %p = subview %P[0:7, 0:3, %id] : memref<f64x7x3>
    %q = subview %Q[0:5, 0:3, %id] : memref<f64x5x3>
    %r = subview %R[0:5, %id] : memref<f64x5>
"""
TEMPORARY = "%t = alloca : memref<f64x5x3,local>\ngemm.n.n %one, %K, %p, %zero, %t\n"

RECOGNISED = {
    "a product": ("gemm.n.n %one, %K, %p, %zero, %q", ["da,cbd->cba of %K, %P"]),
    "a chain with numbers": (
        TEMPORARY + "gemm.n.t %alpha, %t, %A, %beta, %q",
        ["da,ced,eb->cba of %K, %P, %A, then %alpha*v + %beta*out"],
    ),
    "a sum of chains": (
        TEMPORARY + "gemm.n.n %one, %K, %g, %one, %t\ngemm.n.n %one, %t, %A, %one, %q",
        ["da,ced,be->cba of %K, %P, %A, then v + out", "da,ced,be->cba of %K, %G, %A, then v + out"],
    ),
    "updates one after the other": (
        "gemm.n.n %one, %K, %p, %zero, %q\ngemm.n.n %one, %K, %g, %alpha, %q",
        ["da,cbd->cba of %K, %P, then %alpha*v", "da,cbd->cba of %K, %G, then v + out"],
    ),
    "vectors": (
        "%u = alloca : memref<f64x7,local>\ngemv.n %one, %p, %x, %zero, %u\ngemv.n %one, %K, %u, %zero, %r",
        ["ca,bdc,d->ba of %K, %P, %x"],
    ),
    "elementwise and outer products": (
        "%u = alloca : memref<f64x3,local>\nhadamard_product %one, %x, %x, %zero, %u\n"
        "%w = alloca : memref<f64x7x3,local>\nger %one, %y, %u, %zero, %w\nhadamard_product %one, %w, %g, %zero, %p",
        ["a,b,b,cba->cba of %y, %x, %x, %G"],
    ),
    "a sum of columns": (TEMPORARY + "sum.n %one, %t, %zero, %r", ["ca,bdc->ba of %K, %P"]),
    "blocks of what is read": (
        "%b = subview %K[0:5, 1:6] : memref<f64x5x6>\n%c = subview %b[0:5, 1:4] : memref<f64x5x4>\n"
        "%h = subview %g[1:4, 0:3] : memref<f64x4x3,strided<1,7>>\ngemm.n.n %one, %c, %h, %zero, %q",
        ["da,cbd->cba of %K[:, 2:4], %G[:, 1:4, :]"],
    ),
    "sizes that are unknown": (
        "%n = size %S[0] : index\n%m = size %S[1] : index\n%s = subview %S[0:%n, 0:%m] : memref<f64x?x?>\n"
        "axpby.t %one, %s, %zero, %T",
        ["ab->ba of %S"],
    ),
}

REFUSED = {
    "cumsum is no einsum": "⟦cumsum %one, %V, 0, %zero, %V⟧",
    "foreach is no einsum": "%i = constant 0 : index\n⟦foreach (%j) = (%i), (%i)⟧ {\nstore %one, %y[%j]\n}",
    "%V is read and written": "⟦axpby.n %one, %V, %one, %V⟧",
    "a part of %Q is written": "%b = subview %K[0:4, 0:7] : memref<f64x4x7,strided<1,5>>\n"
    "%c = subview %Q[0:4, 0:3, %id] : memref<f64x4x3,strided<1,5>>\n⟦gemm.n.n %one, %b, %p, %zero, %c⟧",
    "a part of %t is read, which is local memory": TEMPORARY
    + "%b = subview %t[1:4, 0:3] : memref<f64x4x3,strided<1,5>,local>\n%u = alloca : memref<f64x4x3,local>\n"
    "⟦axpby.n %one, %b, %zero, %u⟧",
    "a part of a mode whose place or size depends on the call": "%n = size %S[0] : index\n"
    "%b = ⟦subview %S[%n:4, 0:4] : memref<f64x4x4,strided<1,?>>⟧\naxpby.n %one, %b, %one, %b",
    "it is 25 einsums, more than 16": TEMPORARY
    + "gemm.n.n %one, %K, %g, %one, %t\n" * 4
    + "⟦hadamard_product %one, %t, %t, %zero, %q⟧",
    "%t is read before all of it was written": "%t = alloca : memref<f64x7x3,local>\n⟦axpby.n %one, %t, %zero, %p⟧",
    "%P is read after it was written": "axpby.n %one, %g, %zero, %p\n⟦gemm.n.n %one, %K, %p, %zero, %q⟧",
    "every instance writes all of %V": "⟦axpby.n %one, %p, %zero, %V⟧",
    "%P has the group id that its factors have not": "⟦axpby.n %one, %V, %zero, %p⟧",
    "the update is atomic": "⟦axpby.n.atomic %one, %g, %one, %p⟧",
    "arith.mul is no einsum": "%b = ⟦arith.mul %alpha, %beta : f64⟧\naxpby.n %b, %g, %zero, %p",
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_what_is_recognised(name: str) -> None:
    """Every update is an einsum for each of its terms, its axes reversed, the group id a long one."""
    body, formulas = RECOGNISED[name]
    assert [found.formula for found in function_steps(plain(body))] == formulas


def plain(body: str) -> Any:
    text = HEAD + body + "\n}"
    return fe.program(text).function()


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_recognised(why: str) -> None:
    """The reason, and the instruction."""
    marked = HEAD + REFUSED[why] + "\n}"
    text = marked.replace("⟦", "").replace("⟧", "")
    with pytest.raises(UnrecognisedError) as caught:
        function_steps(fe.program(text).function())
    assert str(caught.value) == why
    first, last = marked.index("⟦"), marked.index("⟧") - 1
    assert text[slice(*caught.value.span)] == text[first:last]


def test_types_without_kernels_of_einsums_are_not_recognised() -> None:
    """For which none were measured."""
    ints = "func @f(%a: i32, %x: memref<i32x4>, %y: memref<i32x4>) { axpby.n %a, %x, %a, %y }"
    with pytest.raises(UnrecognisedError, match="%x is of i32"):
        function_steps(fe.program(ints).function())


GAPS = """func @gaps(%K: memref<f64x5x7,strided<1,8>>, %P: memref<f64x7x3x?>, %Q: memref<f64x4x3x?,strided<1,6,?>>) {
    %id = builtin.group_id : index
    %one = constant 1.0 : f64
    %two = constant 2.0 : f64
    %k = subview %K[1:4, 2:3] : memref<f64x4x3,strided<1,8>>
    %p = subview %P[3:3, 0:3, %id] : memref<f64x3x3,strided<1,7>>
    %q = subview %Q[0:4, 0:3, %id] : memref<f64x4x3,strided<1,6>>
    gemm.n.n %one, %k, %p, %two, %q
}"""


@pytest.mark.parametrize("library", ["numpy", "pyopencl"])
def test_blocks_and_gaps_are_copied(cpu: fe.Device, library: str) -> None:
    """Those of numpy; where a result on the device has gaps, the general route is taken. Explanations name them."""
    rng = np.random.default_rng(5)
    K, P, Q = rng.random((7, 8)).T[:5], rng.random((11, 3, 7)).T, rng.random((11, 3, 6)).T[:4]
    wanted = np.einsum("mk,kne->mne", K[1:5, 2:5], P[3:6]) + 2 * Q
    kernel = fe.build(fe.program(GAPS), device=cpu, route="einsum" if library == "numpy" else "auto")
    if library == "numpy":
        np.testing.assert_allclose(kernel(K=K, P=P, Q=Q), wanted)
        assert kernel.explain().splitlines()[-4:] == [
            "copied at every call: %K[1:4, 2:3] is a block",
            "copied at every call: %P[3:3, :, :] is a block",
            "copied at every call: %K has gaps between its elements",
            "copied at every call: %Q has gaps between its elements",
        ]
        return
    place = {name: cla.to_device(cpu.queue, value) for name, value in (("K", K.base.T), ("P", P), ("Q", Q.base.T))}
    kernel(K=place["K"][:5], P=place["P"], Q=place["Q"][:4])
    np.testing.assert_allclose(place["Q"].get()[:4], wanted)
    assert kernel.route == "general"
    assert "of the first call an array on the device has gaps" in kernel.explain()


CHAIN = """func @chain(%K: memref<f64x5x7>, %A: memref<f64x3x4>, %P: memref<f64x7x3x?>, %Q: memref<f64x5x4x?>) {
    %id = builtin.group_id : index
    %p = subview %P[0:7, 0:3, %id] : memref<f64x7x3>
    %q = subview %Q[0:5, 0:4, %id] : memref<f64x5x4>
    %one = constant 1.0 : f64
    %zero = constant 0.0 : f64
    %t = alloca : memref<f64x5x3,local>
    gemm.n.n %one, %K, %p, %zero, %t
    gemm.n.n %one, %t, %A, %zero, %q
}"""


UPDATED = CHAIN.replace("func @chain(", "func @chain(%alpha: f64, %beta: f64, %R: memref<f64x5x4x?>, ").replace(
    "gemm.n.n %one, %t, %A, %zero, %q",
    """gemm.n.n %alpha, %t, %A, %beta, %q
    %r = subview %R[0:5, 0:4, %id] : memref<f64x5x4>
    axpby.n %alpha, %r, %one, %q""",
)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_sums_of_chains_go_through_epilogues(cpu: fe.Device, beta: float) -> None:
    """One einsum a term, the first of which sees what was there; where β is 0 that is nothing."""
    program = fe.program(UPDATED)
    kernel = fe.build(program, device=cpu, route="einsum")
    assert [found.epilogue for found in function_steps(program.function())] == [
        "p_alpha*v + p_beta*out",
        "p_alpha*v + out",
    ]
    more = {"alpha": 2.0, "beta": beta, "R": np.asfortranarray(np.random.default_rng(3).random((5, 4, 11)))}
    given, expected = arguments() | more, arguments() | more
    if not beta:
        given["Q"][...] = expected["Q"][...] = np.nan
    kernel(**given)
    program.interpret(**expected)
    np.testing.assert_allclose(given["Q"], expected["Q"], rtol=1e-12)


def arguments(order: str = "F", elements: int = 11) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"K": (5, 7), "A": (3, 4), "P": (7, 3, elements), "Q": (5, 4, elements)}
    return {name: np.asarray(rng.standard_normal(shape), order=order) for name, shape in shapes.items()}  # type: ignore[call-overload]


@pytest.mark.parametrize("order", ["F", "C"])
def test_the_einsum_route_gives_what_the_interpreter_gives(cpu: fe.Device, order: str) -> None:
    """Wherever the arrays lie; those of the caller are updated."""
    program = fe.program(CHAIN)
    kernel = fe.build(program, device=cpu, route="einsum")
    given, expected = arguments(order), arguments(order)
    assert kernel(**given) is given["Q"]
    program.interpret(**expected)
    np.testing.assert_allclose(given["Q"], expected["Q"], rtol=1e-12)
    assert kernel.route == "einsum"
    assert "%Q by line 9: da,ced,be->cba of %K, %P, %A" in kernel.explain()
    with pytest.raises(ValidationError, match="%Q has 11 instances, which an einsum takes all"):
        kernel(count=10, **given)


def terms(*lines: str) -> str:
    """A function of lines that may use K_d, A_d and P to update Q."""
    matrices = ", ".join(f"%K{d}: memref<f64x5x5>, %A{d}: memref<f64x3x3x?>" for d in range(3))
    views = "\n".join(f"%a{d} = subview %A{d}[0:3, 0:3, %id] : memref<f64x3x3>" for d in range(3))
    batches = "%P: memref<f64x5x3x?>, %Q: memref<f64x5x3x?>"
    head = f"""func @terms(%alpha: f64, %beta: f64, {matrices}, %S: memref<f64x5x5x3>, {batches}) {{
    %id = builtin.group_id : index  %one = constant 1.0 : f64  %zero = constant 0.0 : f64
    %p = subview %P[0:5, 0:3, %id] : memref<f64x5x3>
    %q = subview %Q[0:5, 0:3, %id] : memref<f64x5x3>
    %s = alloca : memref<f64x5x3,local>
    """
    return "\n".join([head, views, *lines, "}"])


def term(d: int, last: str = "gemm.n.n %alpha, %s, %a{d}, {beta}, %q", K: str = "%K{d}") -> str:
    beta = "%one" if d else "%beta"
    return f"gemm.n.n %one, {K.format(d=d)}, %p, %zero, %s\n{last.format(d=d, beta=beta)}"


VOLUME = terms(*(term(d) for d in range(3)))
"""Three terms that are one product when K and A are stacked."""
SLICES = terms(*(f"%k{d} = subview %S[0:5, 0:5, {d}] : memref<f64x5x5>\n{term(d, K='%k{d}')}" for d in range(3)))
"""The same, of which K is three slices of one array."""


def arguments_of_terms(elements: int = 11) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    shapes: dict[str, tuple[int, ...]] = {"S": (5, 5, 3), "P": (5, 3, elements), "Q": (5, 3, elements)}
    shapes |= {f"K{d}": (5, 5) for d in range(3)} | {f"A{d}": (3, 3, elements) for d in range(3)}
    return {name: rng.standard_normal(shape[::-1]).T for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("text", "K"),
    [(VOLUME, "(%K0, %K1, %K2)"), (SLICES, "(%S[:, :, 0], %S[:, :, 1], %S[:, :, 2])")],
    ids=["volume", "slices"],
)
@pytest.mark.parametrize("library", ["numpy", "pyopencl"])
def test_terms_of_one_form_are_one_product(cpu: fe.Device, text: str, K: str, library: str) -> None:
    """What differs is stacked anew in every call; a result that is not read may hold anything."""
    program = fe.program(text)
    kernel = fe.build(program, device=cpu, route="einsum")
    numbers = arguments_of_terms()
    numbers["Q"][...] = np.nan
    held = {name: to_library(cpu, value, library) for name, value in numbers.items()}
    for beta, changed in ((0.0, "A1"), (1.0, "K2"), (1.0, "S"), (-0.5, "A0"), (0.0, "P")):
        program.interpret(**numbers, alpha=1.5, beta=beta)
        kernel(**held, alpha=1.5, beta=beta)
        np.testing.assert_allclose(numbers_of(held["Q"]), numbers["Q"], rtol=1e-12, atol=1e-12)
        assert np.isfinite(numbers["Q"]).all()
        numbers[changed] *= 2
        held[changed].set(numbers[changed]) if library == "pyopencl" else np.copyto(held[changed], numbers[changed])
    lines = kernel.explain().splitlines()
    assert lines[1].endswith(f"fda,ced,cfbe->cba of {K}, %P, (%A0, %A1, %A2), then %alpha*v + %beta*out")
    assert lines[-2:] == [f"copied at every call: {K} is stacked", "copied at every call: (%A0, %A1, %A2) is stacked"]


def to_library(device: fe.Device, value: Any, library: str) -> Any:
    return cla.to_device(device.queue, value) if library == "pyopencl" else value.copy(order="F")


def numbers_of(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get()


@pytest.mark.parametrize("library", ["numpy", "pyopencl"])
def test_terms_are_stacked_from_arrays_in_any_order(cpu: fe.Device, library: str) -> None:
    """For other numbers of instances, too, which arrays of the device bring to other memory."""
    program = fe.program(VOLUME)
    kernel = fe.build(program, device=cpu, route="einsum")
    for elements in (4, 7, 1, 0):
        numbers = arguments_of_terms(elements)
        held = {name: to_library(cpu, value, library) for name, value in numbers.items()}
        held["A1"] = to_library(cpu, np.ascontiguousarray(numbers["A1"]), library)
        if library == "pyopencl":
            held["A2"] = cla.to_device(cpu.queue, np.stack([numbers["A2"].T] * 2))[1].T
        program.interpret(**numbers, alpha=1.0, beta=2.0)
        kernel(**held, alpha=1.0, beta=2.0)
        np.testing.assert_allclose(numbers_of(held["Q"]), numbers["Q"], rtol=1e-12, atol=1e-12)
    with pytest.raises(ValidationError, match=r"%A\d has \d instances|count is"):
        kernel(**{**held, "A2": to_library(cpu, arguments_of_terms(3)["A2"], library)}, alpha=1.0, beta=0.0)


APART = {
    "a factor is transposed": [term(0), term(1), term(2, "gemm.n.t %alpha, %s, %a{d}, {beta}, %q")],
    "a number differs": [term(0), term(1), term(2, "gemm.n.n %one, %s, %a{d}, {beta}, %q")],
    "a shape differs": [
        "%k = subview %K2[0:5, 0:4] : memref<f64x5x4>\n%b = subview %p[0:4, 0:3] : memref<f64x4x3,strided<1,5>>",
        *(term(0), term(1), "gemm.n.n %one, %k, %b, %zero, %s\ngemm.n.n %alpha, %s, %a2, %one, %q"),
    ],
}


@pytest.mark.parametrize("why", APART)
def test_terms_of_other_forms_stay_apart(why: str) -> None:
    """The first two are stacked, the third is added."""
    first, second = function_steps(fe.program(terms(*APART[why])).function())
    assert [str(one) for one in first.operands.values()] == ["(%K0, %K1)", "%P", "(%A0, %A1)"]
    assert first.epilogue == "p_alpha*v + p_beta*out"
    assert "%A2" in map(str, second.operands.values())
    assert second.epilogue.endswith("v + out")


def test_terms_are_stacked_where_that_moves_less() -> None:
    """Than to read and write the result again: not where the copies are as large as that."""
    sums = "\n".join(f"axpby.n %one, %a{d}, {'%one' if d else '%zero'}, %r" for d in range(3))
    text = VOLUME.replace("%P: ", "%R: memref<f64x3x3x?>, %P: ")
    text = text[: text.index("gemm")] + "%r = subview %R[0:3, 0:3, %id] : memref<f64x3x3>\n" + sums + "\n}"
    made = [found.formula for found in function_steps(fe.program(text).function())]
    assert made == ["cba->cba of %A0", "cba->cba of %A1, then v + out", "cba->cba of %A2, then v + out"]


def test_temporaries_take_a_part_of_the_memory(cpu: fe.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they would take more, the general route is taken."""
    program = fe.program(VOLUME)
    given, expected = arguments_of_terms(), arguments_of_terms()
    program.interpret(**expected, alpha=1.0, beta=1.0)
    monkeypatch.setattr("feinsum.languages.tensor.running.einsums._SHARE", cpu.profile.global_memory_bytes)
    with pytest.raises(ValidationError, match="temporaries of 2976 bytes take more than"):
        fe.build(program, device=cpu, route="einsum")(**given, alpha=1.0, beta=1.0)
    fe.build(program, device=cpu)(**given, alpha=1.0, beta=1.0)
    np.testing.assert_allclose(given["Q"], expected["Q"], rtol=1e-12, atol=1e-12)


SUMS = terms(
    "%t = alloca : memref<f64x5x3,local>\n%u = alloca : memref<f64x4x3,local>",
    *(f"gemm.n.n %one, %K{d}, %p, %zero, %s\ngemm.n.n %alpha, %s, %a{d}, {'%one' if d else '%zero'}, %t" for d in range(3)),
    "axpby.n %alpha, %p, %beta, %q\naxpby.n %one, %t, %one, %q",
    "%k = subview %K0[0:4, 0:5] : memref<f64x4x5,strided<1,5>>\ngemm.n.n %one, %k, %t, %zero, %u",
    "%b = subview %q[1:4, 0:3] : memref<f64x4x3,strided<1,5>>\naxpby.n %alpha, %u, %one, %b",
    "%c = subview %p[0:2, 0:3] : memref<f64x2x3,strided<1,5>>\n%d = subview %q[3:2, 0:3] : memref<f64x2x3,strided<1,5>>",
    "axpby.n %beta, %c, %one, %d",
)
"""Local memory that two instructions read, and parts of the result that are added to."""


@pytest.mark.parametrize("library", ["numpy", "pyopencl"])
def test_local_memory_is_an_array_of_all_instances(cpu: fe.Device, library: str) -> None:
    """Where it is a sum that several instructions read; what is added to blocks goes into one combination."""
    program = fe.program(SUMS)
    kernel = fe.build(program, device=cpu, route="einsum")
    numbers = arguments_of_terms()
    numbers["Q"][...] = np.nan
    held = {name: to_library(cpu, value, library) for name, value in numbers.items()}
    for beta, changed in ((0.0, "A1"), (1.0, "P"), (-0.5, "K0"), (0.0, "K2")):
        program.interpret(**numbers, alpha=1.5, beta=beta)
        kernel(**held, alpha=1.5, beta=beta)
        np.testing.assert_allclose(numbers_of(held["Q"]), numbers["Q"], rtol=1e-11, atol=1e-11)
        numbers[changed] *= 2
        held[changed].set(numbers[changed]) if library == "pyopencl" else np.copyto(held[changed], numbers[changed])
    formulas = [one.formula for one in function_steps(program.function())]
    assert formulas == [
        "fda,ced,cfbe->cba of (%K0, %K1, %K2), %P, (%A0, %A1, %A2), then %alpha*v",
        "da,cbd->cba of %K0[0:4, :], %t",
        "%alpha*%P + %t + %alpha*%u in [1:4, :, :] + %beta*%P[0:2, :, :] in [3:2, :, :] + %beta*out",
    ]
    assert "%t is an array of all instances" in kernel.explain()


PRODUCT_AND_BLOCK = terms(
    "gemm.n.n %one, %K0, %p, %beta, %q",
    "%c = subview %p[0:2, 0:3] : memref<f64x2x3,strided<1,5>>\n%d = subview %q[3:2, 0:3] : memref<f64x2x3,strided<1,5>>",
    "axpby.n %one, %c, %one, %d\naxpby.n %alpha, %p, %alpha, %q",
)
BLOCK_ALONE = terms(
    "%x = subview %A0[0:3, 0:3, %id] : memref<f64x3x3>\n%y = subview %q[1:3, 0:3] : memref<f64x3x3,strided<1,5>>",
    "axpby.n %beta, %x, %one, %y",
)


@pytest.mark.parametrize("text", [PRODUCT_AND_BLOCK, BLOCK_ALONE], ids=["product", "alone"])
@pytest.mark.parametrize("library", ["numpy", "pyopencl"])
def test_blocks_are_added_to_what_is_there(cpu: fe.Device, text: str, library: str) -> None:
    """After products, and multiplied with the rest by what comes behind."""
    program = fe.program(text)
    numbers = arguments_of_terms()
    held = {name: to_library(cpu, value, library) for name, value in numbers.items()}
    program.interpret(**numbers, alpha=1.5, beta=0.5)
    fe.build(program, device=cpu, route="einsum")(**held, alpha=1.5, beta=0.5)
    np.testing.assert_allclose(numbers_of(held["Q"]), numbers["Q"], rtol=1e-12, atol=1e-12)


AGAIN = terms(
    "%t = alloca : memref<f64x5x3,local>\n%x = subview %A0[0:3, 0:3, %id] : memref<f64x3x3>",
    "gemm.n.n %one, %K0, %p, %zero, %t\ngemm.n.n %one, %K1, %p, %one, %t",
    "hadamard_product %alpha, %t, %t, %zero, %t\ngemm.n.n %one, %K2, %p, %one, %t",
    "%t_2 = subview %q[1:3, 0:3] : memref<f64x3x3,strided<1,5>>\naxpby.n %beta, %x, %one, %t_2",
    "axpby.n %one, %t, %one, %q\naxpby.n %beta, %t, %one, %q",
)
"""Local memory that is kept twice, with what it held in between."""
THIN = terms(
    "%t = alloca : memref<f64x2x3,local>\n%u = alloca : memref<f64x2x3,local>",
    *(f"%r{d} = subview %K{d}[0:2, 0:5] : memref<f64x2x5,strided<1,5>>" for d in range(3)),
    *(f"%c{d} = subview %K{d}[0:5, 1:2] : memref<f64x5x2,strided<1,5>>" for d in range(2)),
    "gemm.n.n %alpha, %r0, %p, %zero, %t\ngemm.n.n %one, %r1, %p, %one, %t",
    "gemm.n.n %one, %r1, %p, %zero, %u\ngemm.n.n %one, %r2, %p, %one, %u",
    "gemm.n.n %one, %c0, %t, %one, %q\ngemm.n.n %one, %c1, %u, %one, %q",
    "%b = subview %q[0:2, 0:3] : memref<f64x2x3,strided<1,5>>\naxpby.n %one, %t, %one, %b\naxpby.n %one, %u, %one, %b",
)
"""Local memory of two names that is stacked."""


@pytest.mark.parametrize(
    ("text", "kept", "last"),
    [
        (AGAIN, ["t", "t_3"], "%beta*%A0 in [1:3, :, :] + %t_3 + %beta*%t_3 + out"),
        (THIN, ["t", "u"], "%t in [0:2, :, :] + %u in [0:2, :, :] + out"),
    ],
    ids=["again", "thin"],
)
@pytest.mark.parametrize("library", ["numpy", "pyopencl"])
def test_local_memory_is_kept(cpu: fe.Device, text: str, kept: list[str], last: str, library: str) -> None:
    """By a name that no other value has, as often as it is written anew; it may be stacked, too."""
    program = fe.program(text)
    made = function_steps(program.function())
    assert list(dict.fromkeys(one.output.name for one in made)) == [*kept, "Q"]
    assert made[-1].formula == last
    assert text == AGAIN or "(%t, %u)" in made[-2].formula
    numbers = arguments_of_terms()
    held = {name: to_library(cpu, value, library) for name, value in numbers.items()}
    kernel = fe.build(program, device=cpu, route="einsum")
    for _ in range(2):
        program.interpret(**numbers, alpha=1.5, beta=0.5)
        kernel(**held, alpha=1.5, beta=0.5)
        np.testing.assert_allclose(numbers_of(held["Q"]), numbers["Q"], rtol=1e-10, atol=1e-10)


OPEN = """func @open(%P: memref<f64x4x3x?>, %Q: memref<f64x?x3x?>) {
    %id = builtin.group_id : index  %one = constant 1.0 : f64  %n = size %Q[0] : index
    %p = subview %P[0:4, 0:3, %id] : memref<f64x4x3>
    %q = subview %Q[0:%n, 0:3, %id] : memref<f64x?x3>
    %b = subview %q[1:4, 0:3] : memref<f64x4x3,strided<1,?>>
    axpby.n %one, %p, %one, %b
}"""


@pytest.mark.parametrize("library", ["numpy", "pyopencl"])
def test_blocks_have_to_fit(cpu: fe.Device, library: str) -> None:
    """Into an array whose size the program leaves open."""
    kernel = fe.build(fe.program(OPEN), device=cpu, route="einsum")
    for rows in (5, 6):
        P, Q = np.ones((2, 3, 4)).T, np.ones((2, 3, rows)).T
        held = {"P": to_library(cpu, P, library), "Q": to_library(cpu, Q, library)}
        kernel(**held)
        Q[1:5] += P
        np.testing.assert_array_equal(numbers_of(held["Q"]), Q)
    held["Q"] = to_library(cpu, np.ones((2, 3, 4)).T, library)
    with pytest.raises(
        ShapeError, match=r"%P has the shape \(4, 3, 2\), and is added to a part of %Q, of shape \(4, 3, 2\)"
    ):
        kernel(**held)


def test_auto_races_both_routes_once(cpu: fe.Device) -> None:
    """On copies, and says how sure it is; what does not suit an einsum goes the general route."""
    kernel = fe.build(fe.program(CHAIN), device=cpu)
    assert kernel.route in ("auto", "einsum")
    given, expected = arguments(), arguments()
    kernel(**given)
    fe.program(CHAIN).interpret(**expected)
    np.testing.assert_allclose(given["Q"], expected["Q"], rtol=1e-12)
    assert kernel.route in ("general", "einsum")
    given["Q"][...] = 7
    kernel(count=10, **given)
    np.testing.assert_allclose(given["Q"][..., :10], expected["Q"][..., :10], rtol=1e-12)
    assert (given["Q"][..., 10] == 7).all()
    why = kernel.explain().splitlines()[-1]
    assert why.startswith(f"route: {kernel.route}, as both were raced on the arrays of the first call: {kernel.route} ")
    assert re.search(r"times as fast|tie|undecided", why)


def test_a_route_that_cannot_be_is_refused(cpu: fe.Device) -> None:
    """With the reason; `auto` goes the other one, and says so."""
    text = "func @f(%x: memref<f64x4>) {\n%one = constant 1.0 : f64\ncumsum %one, %x, 0, %one, %x\n}"
    with pytest.raises(FeinsumError, match="line 3 is no einsum: cumsum is no einsum"):
        fe.build(fe.program(text), device=cpu, route="einsum")
    assert "route: general, as line 3 is no einsum" in fe.build(fe.program(text), device=cpu).explain()
    with pytest.raises(FeinsumError, match="route is 'fast'"):
        fe.build(fe.program(text), device=cpu, route="fast")


def test_views_of_arrays_on_the_device_are_kept_while_these_are(cpu: fe.Device) -> None:
    """Calls with the same array, with one in its place, and with what does not fit; a view does not outlive its array."""
    import pyopencl.array as cla

    text = """func @add(%A: memref<f64x3x2x?>, %B: memref<f64x2x4>, %C: memref<f64x3x4x?>) {
        %id = builtin.group_id : index  %one = constant 1.0 : f64
        %a = subview %A[0:3, 0:2, %id] : memref<f64x3x2>  %c = subview %C[0:3, 0:4, %id] : memref<f64x3x4>
        gemm.n.n %one, %a, %B, %one, %c
    }"""
    kernel = fe.build(fe.program(text), device=cpu, route="einsum")
    rng = np.random.default_rng(0)
    numbers = {name: rng.random(shape[::-1]).T for name, shape in {"A": (3, 2, 5), "B": (2, 4), "C": (3, 4, 5)}.items()}
    held = {name: cla.to_device(cpu.queue, value) for name, value in numbers.items()}
    product = np.einsum("ike,kj->ije", numbers["A"], numbers["B"])
    for times in (1, 2):
        kernel(**held)
        np.testing.assert_allclose(held["C"].get(), numbers["C"] + times * product)
    held["B"] = cla.to_device(cpu.queue, 2 * numbers["B"])
    held["C"].set(numbers["C"])
    kernel(**held)
    np.testing.assert_allclose(held["C"].get(), numbers["C"] + 2 * product)
    for fault in ({"count": 4}, {"C": None}, {"C": held["C"][:, :, :4]}):
        with pytest.raises(FeinsumError):
            kernel(**{**held, **fault})
    views = kernel._runner._transposed._known
    assert len(views) == 3
    cpu.queue.finish()
    held.clear()
    gc.collect()
    assert not views


@dataclass
class SimulatedKernel:
    """An update ``v + out`` by numpy, in place of a kernel of :func:`feinsum.generate`."""

    einsum: fe.BatchedEinsum
    sizes: Mapping[str, int]
    space: str = "simulated"
    rung: str = "generic"

    def __call__(self, inputs: Mapping[str, Any], out: Any, **_: Any) -> None:
        operands = [inputs[array.name] for array in self.einsum.arrays]
        for array, own in zip(self.einsum.arrays, operands, strict=True):
            assert all(isinstance(n, str) or n == m for n, m in zip(array.shape, own.shape, strict=True))
        out += np.einsum(str(self.einsum.indexing), *operands)


def test_sizes_that_a_program_leaves_open_are_compiled_in(cpu: fe.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a call, not the number of instances; beyond so many sets of sizes there is a kernel for all."""
    made: list[SimulatedKernel] = []

    def simulate_kernel(
        e: fe.BatchedEinsum, device: Any, database: Any, sizes: Any, tune: str, looped: str
    ) -> SimulatedKernel:
        made.append(SimulatedKernel(e, sizes))
        return made[-1]

    monkeypatch.setattr("feinsum.languages.tensor.running.einsums._MOST_LENGTHS", 2)
    monkeypatch.setattr("feinsum.languages.calling.stage.generate", simulate_kernel)
    sizes = [f"%r{x} = size %{x}[0] : index %c{x} = size %{x}[1] : index" for x in "ABC"]
    views = [f"%{x.lower()} = subview %{x}[0:%r{x}, 0:%c{x}, %id] : memref<f64x?x?,strided<1,?>>" for x in "ABC"]
    parameters = ", ".join(f"%{x}: memref<f64x?x?x?>" for x in "ABC")
    lines = [
        "%one = constant 1.0 : f64",
        "%id = builtin.group_id : index",
        *sizes,
        *views,
        "gemm.n.n %one, %a, %b, %one, %c",
    ]
    text = "\n".join([f"func @product({parameters}) {{", *lines, "}"])
    kernel = fe.build(fe.program(text), device=cpu, route="einsum")
    assert {type(n) for n in made[0].einsum.index_sizes.values()} == {str}
    rng = np.random.default_rng(0)
    for rows, inner, columns, count in ((3, 2, 4, 5), (3, 2, 4, 6), (1, 2, 40_000, 1), (6, 6, 6, 2)):
        shapes = {"A": (rows, inner, count), "B": (inner, columns, count), "C": (rows, columns, count)}
        given = {name: rng.integers(-4, 5, shape[::-1]).astype(float).T for name, shape in shapes.items()}
        expected = given["C"] + np.einsum("ike,kje->ije", given["A"], given["B"])
        np.testing.assert_array_equal(kernel(**given), expected)
    compiled = [[n for n in one.einsum.index_sizes.values() if isinstance(n, int)] for one in made]
    assert list(map(sorted, compiled)) == [[], [2, 3, 4], [1, 2]]
    assert [len(one.sizes) for one in made] == [0, 1, 2], "those of the axes that are long"
    assert made[1].sizes == {"E": 5}
    assert kernel.explain().count("simulated by generic for ") == 2
