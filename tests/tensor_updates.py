"""Functions with every update of the tensor language, and comparisons of a device with the interpreter; needs no pytest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensor_programs import numbers

import feinsum as fe
from feinsum.languages.calling.protocols import ProgramCall
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.running.kernel_route import GeneralKernel
from feinsum.languages.tensor.types import TensorMemref, TensorScalar

M, N, K = 7, 11, 13
"""Sizes that divide nothing, and each other's vectors least of all."""


def compare(device: fe.Device, text: str, arguments: Any, target: Target | None = None, count: int = 1) -> GeneralKernel:
    """Run a function on a device and by the interpreter; results differ by rounding at most."""
    program = fe.program(text)
    function = program.function()
    given, expected = arguments(), arguments()
    kernel = GeneralKernel(function, program.source, device, target=target)
    kernel.call(ProgramCall(given, count))
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
            if isinstance(type_, TensorMemref):
                modes = _modes(parameter.name)
                array = np.asarray(numbers(type_.element, tuple(LENGTHS[mode] for mode in modes), rng), order="F")
                found[parameter.name] = np.full_like(array, np.nan) if hole and parameter.name[0] == "R" else array
            else:
                assert isinstance(type_, TensorScalar)
                found[parameter.name] = beta if parameter.name == "beta" and beta is not None else 2
        return found

    return make


def _modes(name: str) -> str:
    _, *modes = list(UPDATES.values())[int(name[1:])]
    return modes["ABC".index(name[0])] if name[0] != "R" else modes[-1]


def numbers_of(array: Any) -> Any:
    """The elements of an argument, real and imaginary parts one after the other."""
    array = np.asarray(array)
    if array.dtype == np.uint16:
        array = np.asarray((array.astype(np.uint32) << 16).view(np.float32))
    return np.asarray(array)
