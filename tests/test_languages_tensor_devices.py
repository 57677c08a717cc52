"""Compiled functions of the tensor language against the interpreter, on the CPU device."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_tensor_programs import exact_programs
from tensor_programs import arguments_for

import feinsum as fe
from feinsum.languages.tensor.interpreting.machine import Machine
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.running.kernel import GeneralKernel
from feinsum.languages.tensor.types import BF16, F16, Coopmatrix, Scalar

EXAMPLES = int(os.environ.get("FEINSUM_TEST_EXAMPLES", "12"))
TARGETS = {"one": Target(1, (1, 1), 32, 16), "eight": Target(4, (8, 1))}
_EXACT = {F16: 2**11, BF16: 2**8}


class TooLargeError(Exception):
    """A number that its type may have rounded."""


def check_exact(machine: Machine, operation: Any, *results: Any) -> None:
    """What :meth:`Machine.give` does, for numbers that are whole and exact."""
    for value, found in zip(operation.results, results, strict=True):
        type_ = value.type.component if isinstance(value.type, Coopmatrix) else value.type
        if isinstance(type_, Scalar) and not type_.is_integer:
            numbers = np.asarray(found)
            parts = np.stack([numbers.real, numbers.imag])
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


@pytest.mark.parametrize("target", TARGETS)
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
        numbers = numbers_of(value)
        assume(numbers.dtype.kind not in "fc" or bool((np.abs([numbers.real, numbers.imag]) <= 2**8).all()))
    found = whole_arguments(function, seed)
    kernel = GeneralKernel(function, program.source, cpu, target=chosen)
    kernel.call(found, 1, None, None)
    for name, value in wanted.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value), name)
