"""Compiled functions of the tensor language against the interpreter, on the CPU device.

Heavy runs set ``FEINSUM_TEST_EXAMPLES`` to thousands.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_tensor_programs import exact_programs
from tensor_programs import arguments_for, numbers

import feinsum as fe
from feinsum.languages.tensor.interpreting.machine import Machine
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.running.kernel import GeneralKernel
from feinsum.languages.tensor.types import BF16, F16, SCALARS, Coopmatrix, Memref, Scalar

EXAMPLES = int(os.environ.get("FEINSUM_TEST_EXAMPLES", "12"))
TARGETS = {
    "one": Target(1, (1, 1), 32, 16),
    "eight": Target(4, (8, 1)),
    "thirty-two": Target(32, (32, 1)),
    "many": Target(32, (128, 2)),
}
_EXACT = {F16: 2**11, BF16: 2**8}
M, N, K = 7, 11, 13
"""Sizes that divide nothing, and each other's vectors least of all."""


def compare(cpu: fe.Device, text: str, arguments: Any, target: Target | None = None, count: int = 1) -> GeneralKernel:
    """Run a function on a device and by the interpreter; results differ by rounding at most."""
    program = fe.program(text)
    function = program.function()
    given, expected = arguments(), arguments()
    kernel = GeneralKernel(function, program.source, cpu, target=target)
    kernel.call(given, count, None, None)
    sizes = {} if target is None else {"subgroup_size": target.subgroup_size, "work_group_size": target.work_group_size}
    program.interpret(count=count, **sizes, **expected)
    for name, value in expected.items():
        found, wanted = numbers_of(given[name]), numbers_of(value)
        bits = np.asarray(value).dtype == np.uint16
        epsilon = 2.0**-8 if bits else np.finfo(wanted.dtype).eps if wanted.dtype.kind in "fc" else 0
        scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=64 * epsilon * scale, err_msg=name)
    return kernel


UPDATES = {
    "axpby.n": ("a", "mn", "mn"),
    "axpby.t": ("a", "nm", "mn"),
    "axpby.n of vectors": ("a", "n", "n"),
    "axpby.n of numbers": ("a", "", ""),
    "gemm.n.n": ("ab", "mk", "kn", "mn"),
    "gemm.t.n": ("ab", "km", "kn", "mn"),
    "gemm.n.t": ("ab", "mk", "nk", "mn"),
    "gemm.t.t": ("ab", "km", "nk", "mn"),
    "gemv.n": ("ab", "mk", "k", "m"),
    "gemv.t": ("ab", "km", "k", "m"),
    "ger": ("ab", "m", "n", "mn"),
    "hadamard_product": ("ab", "mn", "mn", "mn"),
    "hadamard_product of vectors": ("ab", "n", "n", "n"),
    "cumsum 0": ("a", "mnk", "mnk"),
    "cumsum 2": ("a", "mnk", "mnk"),
    "cumsum 0 of vectors": ("a", "k", "k"),
    "sum.n": ("a", "mk", "m"),
    "sum.t": ("a", "km", "m"),
    "sum.n of vectors": ("a", "k", ""),
}
"""Every update with the modes of its operands and of its result."""
SOME = ("axpby.t", "gemm.n.t", "gemm.t.n", "ger", "hadamard_product", "cumsum 2", "sum.n", "sum.n of vectors")
LENGTHS = {"m": M, "n": N, "k": K}


def memref_of(type_: str, modes: str, layout: str) -> str:
    """The type of a parameter: packed and static, with unknown sizes, or with gaps."""
    sizes = [str(LENGTHS[mode]) if layout != "dynamic" else "?" for mode in modes]
    if layout != "padded" or not modes:
        return f"memref<{'x'.join([type_, *sizes])}>"
    strides, stride = [], 2
    for mode in modes:
        strides.append(str(stride))
        stride = stride * LENGTHS[mode] + 3
    return f"memref<{'x'.join([type_, *sizes])},strided<{','.join(strides)}>>"


def updates(type_: str, layout: str, beta: str, local: bool, chosen: Sequence[str] = tuple(UPDATES)) -> str:
    """A function of updates, one after the other, on arrays of their own."""
    parameters, body = [f"%alpha: {type_}"], []
    numeral = {"i": "{}", "c": "[{}.0,0.0]"}.get(type_[0], "{}.0")
    if beta == "parameter":
        parameters.append(f"%beta: {type_}")
    else:
        body.append(f"%beta = constant {numeral.format(beta)} : {type_}")
    body += [f"%one = constant {numeral.format(1)} : {type_}", f"%zero = constant {numeral.format(0)} : {type_}"]
    for number, (name, (_, *modes)) in enumerate(UPDATES.items()):
        if name not in chosen:
            continue
        names = [f"%{letter}{number}" for letter in "ABC"[: len(modes) - 1]] + [f"%R{number}"]
        parameters += [f"{x}: {memref_of(type_, own, layout)}" for x, own in zip(names, modes, strict=True)]
        used = list(names)
        if local and len(modes[0]) < 3:
            for position, own in enumerate(modes[:-1]):
                used[position] = f"%T{number}_{position}"
                inner = memref_of(type_, own, "packed").replace(">", ",local>")
                body += [
                    f"{used[position]} = alloca : {inner}",
                    f"axpby.n %one, {names[position]}, %zero, {used[position]}",
                ]
        word, *rest = name.partition(" of ")[0].split(" ")
        body.append(f"{word} %alpha, {', '.join([*used[:-1], *rest])}, %beta, {used[-1]}")
    return f"func @updates({', '.join(parameters)}) {{\n" + "\n".join(body) + "\n}"


def arguments_of(text: str, seed: int = 5, beta: float | None = None, hole: bool = False) -> Any:
    """Makes random arguments; `hole` puts what is not a number where the results will be."""
    function = fe.program(text).function()

    def make() -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        found: dict[str, Any] = {}
        for parameter in function.parameters:
            type_ = parameter.type
            if isinstance(type_, Memref):
                modes = _modes(parameter.name)
                array = np.asarray(numbers(type_.element, tuple(LENGTHS[mode] for mode in modes), rng), order="F")
                found[parameter.name] = np.full_like(array, np.nan) if hole and parameter.name[0] == "R" else array
            else:
                assert isinstance(type_, Scalar)
                found[parameter.name] = beta if parameter.name == "beta" and beta is not None else 2
        return found

    return make


def _modes(name: str) -> str:
    _, *modes = list(UPDATES.values())[int(name[1:])]
    return modes["ABC".index(name[0])] if name[0] != "R" else modes[-1]


@pytest.mark.parametrize("type_", list(SCALARS))
def test_updates_of_every_type_by_one_work_item(cpu: fe.Device, type_: str) -> None:
    """All linear algebra, transposed or not, for sizes that no vector divides; β is a parameter."""
    text = updates(type_, "packed", "parameter", False, SOME)
    compare(cpu, text, arguments_of(text, beta=3), TARGETS["one"])


@pytest.mark.parametrize(
    ("target", "type_", "layout", "beta", "local"),
    [
        ("one", "f32", "dynamic", "1", False),
        ("one", "f64", "padded", "2", True),
        ("eight", "f32", "packed", "1", True),
        ("eight", "c32", "dynamic", "2", False),
        ("eight", "f16", "padded", "parameter", False),
        ("thirty-two", "f64", "packed", "0", True),
        ("thirty-two", "i16", "dynamic", "1", False),
        ("many", "f32", "dynamic", "parameter", False),
    ],
)
def test_updates_by_work_groups(cpu: fe.Device, target: str, type_: str, layout: str, beta: str, local: bool) -> None:
    """Static and unknown sizes, gaps between elements, operands in global and in local memory, every β."""
    text = updates(type_, layout, beta, local, SOME if layout == "dynamic" else tuple(UPDATES))
    compare(cpu, text, arguments_of(text, beta=3), TARGETS[target])


@pytest.mark.parametrize("beta", ["0", "parameter"])
def test_a_result_is_not_read_where_beta_is_zero(cpu: fe.Device, beta: str) -> None:
    """It may hold anything, whether the text or the call says so."""
    text = updates("f32", "packed", beta, local=False)
    arguments = arguments_of(text, beta=0.0, hole=True)
    compare(cpu, text, arguments, TARGETS["one"])


class TooLargeError(Exception):
    """A number that its type may have rounded."""


def check_exact(machine: Machine, operation: Any, *results: Any) -> None:
    """What :meth:`Machine.give` does, for numbers that are whole and exact."""
    for value, found in zip(operation.results, results, strict=True):
        type_ = value.type.component if isinstance(value.type, Coopmatrix) else value.type
        if isinstance(type_, Scalar) and not type_.is_integer:
            parts = np.stack([np.real(found), np.imag(found)])
            if not (np.abs(parts) <= _EXACT.get(type_, 2**24)).all():
                raise TooLargeError
    machine.values.update(zip(operation.results, results, strict=True))


def whole_arguments(function: Any, seed: int) -> dict[str, Any]:
    """Arguments of small whole numbers."""
    found = arguments_for(function, np.random.default_rng(seed), 3)
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            found[name] = np.round(value).item() if isinstance(value, (float, complex, np.inexact)) else value
        elif value.dtype == np.uint16:
            bits = np.round(numbers_of(value)).astype(np.float32).view(np.uint32) >> 16
            found[name] = np.asarray(bits.astype(np.uint16))
        elif value.dtype.kind in "fc":
            found[name] = np.asarray(np.round(value))
    return found


def numbers_of(array: Any) -> Any:
    """The elements of an argument, real and imaginary parts one after the other."""
    array = np.asarray(array)
    if array.dtype == np.uint16:
        array = np.asarray((array.astype(np.uint32) << 16).view(np.float32))
    return np.asarray(array)


@pytest.mark.parametrize("target", ["one", "eight"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(text=exact_programs(), seed=st.integers(0, 2**32 - 1))
def test_random_programs_give_what_the_interpreter_gives(cpu: fe.Device, target: str, text: str, seed: int) -> None:
    """Every bit of it, for numbers that need no rounding; ``FEINSUM_TEST_EXAMPLES`` says how many programs."""
    program, chosen = fe.program(text), TARGETS[target]
    function = program.function()
    wanted = whole_arguments(function, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "give", check_exact)
        try:
            program.interpret(subgroup_size=chosen.subgroup_size, work_group_size=chosen.work_group_size, count=1, **wanted)
        except TooLargeError:
            assume(False)
    for value in wanted.values():
        found = numbers_of(value)
        assume(found.dtype.kind not in "fc" or bool((np.abs([found.real, found.imag]) <= 2**8).all()))
    given_ones = whole_arguments(function, seed)
    kernel = GeneralKernel(function, program.source, cpu, target=chosen)
    kernel.call(given_ones, 1, None, None)
    for name, value in wanted.items():
        np.testing.assert_array_equal(numbers_of(given_ones[name]), numbers_of(value), name)
