"""Making: a program at given lengths becomes steps, and these kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from feinsum.compile.sequence import KernelSequence
from feinsum.devices import Device
from feinsum.errors import DeviceError, ValidationError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.emitting.kernels import KernelText, Spread, flat_kernel
from feinsum.languages.declarative.emitting.rows import row_kernel
from feinsum.languages.declarative.emitting.scans import scan_kernels, scan_sizes
from feinsum.languages.declarative.emitting.threads import thread_kernel
from feinsum.languages.declarative.emitting.types import numpy_type
from feinsum.languages.declarative.lowering.folding import integer
from feinsum.languages.declarative.lowering.normal import normalize
from feinsum.languages.declarative.lowering.steps import (
    EinsumStep,
    FlatStep,
    RowStep,
    ScanStep,
    Step,
    ThreadStep,
    partition,
)
from feinsum.languages.declarative.lowering.terms import Constant, Load
from feinsum.languages.declarative.lowering.unfolding import Unfolder
from feinsum.languages.declarative.lowering.unfolding_base import Tensor, number
from feinsum.languages.declarative.running.contents import Contents
from feinsum.languages.declarative.syntax import Function
from feinsum.languages.source import Source

_LONG_AXIS: Final = 1024
"""Lengths from here on are long axes of einsums, so that one kernel serves all of them."""
_MOST_ELEMENTS: Final = 2**31


@dataclass
class Made:
    """A program made for some lengths: its steps and how each is run.

    :ivar arrays: lengths and type of every array.
    :ivar actions: a kernel of :func:`feinsum.generate` and its operands, or numbers of kernels in `sequence`.
    """

    steps: list[Step]
    results: tuple[str, ...]
    result_shapes: tuple[tuple[int, ...], ...]
    arrays: dict[str, tuple[tuple[int, ...], str]]
    actions: list[Any]
    texts: list[KernelText]
    sequence: KernelSequence
    temporaries: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Maker:
    """Makes a program for a device.

    :ivar einsums: whether sums of products go to :func:`feinsum.generate`, which `request` says how to call.
    """

    function: Function
    source: Source
    device: Device
    einsums: bool
    request: Mapping[str, Any]

    def make(self, contents: Contents, tunes: Mapping[str, int]) -> Made:
        """A program for some lengths.

        :param tunes: which way of each alternative to take.
        """
        unfolder = Unfolder(self.source, tunes)
        arrays: dict[str, tuple[tuple[int, ...], str]] = {}
        for name, shape, dtype in contents.shapes:
            arrays[name] = (shape, dtype)
            unfolder.names[name] = Tensor(shape, dtype, _loading(name, dtype))
            type_ = next(p.type for p in self.function.parameters if p.name == name)
            if isinstance(type_, syntax.TensorType):
                unfolder.types.setdefault(type_.dtype or "dtype", dtype)
        for name, value in contents.lengths:
            unfolder.names[name] = number(integer(value))
        for name, (word, value) in contents.numbers:
            unfolder.names[name] = number(_constant(word, value, unfolder.types))
        for name, function in contents.functions:
            unfolder.names[name] = _function_of(function)
        names = unfolder.program(self.function)
        inlined = normalize(unfolder.equations, names, unfolder.fresh)
        steps = partition(inlined, names, einsums=self.einsums)
        for step in steps:
            for equation in step.equations:
                arrays[equation.array] = (equation.shape, equation.dtype)
            if isinstance(step, ThreadStep):
                self._require_threads(step.scope.thread.extent)
                arrays |= {m.array: (m.shape, m.dtype) for m in step.scope.memory if m.kind == "shared"}
        self._require_small(arrays)
        return self._build(steps, names, arrays)

    def _require_threads(self, threads: int) -> None:
        most = self.device.profile.max_work_group_size
        if threads > most:
            raise DeviceError(
                f"a thread scope has {threads} threads; {self.device.profile.name} has {most} in a work-group"
            )

    def _require_small(self, arrays: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
        for name, (shape, dtype) in arrays.items():
            if np.prod(shape, dtype=np.float64) >= _MOST_ELEMENTS:
                raise ValidationError(
                    f"array {name} has the shape {list(shape)}: 2^31 elements and more are not indexed here"
                )
            if dtype == "f64" and not self.device.profile.fp64:
                raise DeviceError(f"{self.device.profile.name} has no f64, the type of {name}")

    def _build(self, steps: list[Step], results: tuple[str, ...], arrays: dict[str, tuple[tuple[int, ...], str]]) -> Made:
        actions: list[Any] = []
        texts: list[KernelText] = []
        spread = self.spread()
        for count, step in enumerate(steps):
            name = f"step{count}"
            if isinstance(step, EinsumStep):
                actions.append((self._einsum_kernel(step, arrays), step))
                continue
            if isinstance(step, ThreadStep):
                made = [thread_kernel(name, step.scope, arrays, spread)]
            elif isinstance(step, ScanStep):
                made = scan_kernels(name, step, arrays, spread)
                rows, blocks, _ = scan_sizes(step, spread)
                arrays[f"{name}_totals"] = ((rows, blocks), step.equation.dtype)
            elif isinstance(step, RowStep):
                made = [row_kernel(name, step, arrays, spread)]
            else:
                made = [flat_kernel(name, step, arrays, spread)]
            actions.append(tuple(range(len(texts), len(texts) + len(made))))
            texts += made
        shapes = tuple(arrays[name][0] for name in results)
        return Made(steps, results, shapes, arrays, actions, texts, KernelSequence(self.device, texts))

    def spread(self) -> Spread:
        """How the device likes work spread."""
        profile = self.device.profile
        if profile.kind == "cpu":
            return Spread(1, profile.compute_units, tree=False, vector_bytes=64)
        return Spread(256, profile.compute_units, tree=True)

    def _einsum_kernel(self, step: EinsumStep, arrays: Mapping[str, tuple[tuple[int, ...], str]]) -> Any:
        """The kernel of :func:`feinsum.generate` for an einsum."""
        from feinsum.arrays import array
        from feinsum.einsum import einsum
        from feinsum.generate import generate

        inputs, _ = step.subscripts.split("->")
        sizes: dict[str, int] = {}

        def described(name: str, letters: str, source: str) -> Any:
            shape, dtype = arrays[source]
            long = {letter: length for letter, length in zip(letters, shape, strict=True) if length >= _LONG_AXIS}
            sizes.update({f"n_{letter}": length for letter, length in long.items()})
            axes = [f"n_{x}" if x in long else length for x, length in zip(letters, shape, strict=True)]
            return array(name, tuple(axes), numpy_type(dtype))

        taken = enumerate(zip(inputs.split(","), step.operands, strict=True))
        e = einsum(step.subscripts, *(described(f"x{k}", letters, name) for k, (letters, name) in taken))
        if step.epilogue:
            e = e.then(step.epilogue, **{name: described(name, letters, source) for name, source, letters in step.read})
        return generate(e, self.device, self.request.get("database"), sizes, self.request.get("tune", "never"))


def describe(step: Step) -> str:
    """A step in words."""
    match step:
        case EinsumStep(subscripts=subscripts):
            return f"einsum {subscripts}{f', then {step.epilogue}' if step.epilogue else ''}"
        case RowStep():
            return f"one kernel for {step.rows} rows, a work-group for each"
        case FlatStep():
            return "a work-item for each element"
        case ThreadStep(scope=scope):
            return f"a thread scope, one work-group of {scope.thread.extent}"
    return "a running reduction, in three launches"


def _loading(name: str, dtype: str) -> Any:
    return lambda *indices: Load(dtype, name, indices)


def _constant(word: str, value: Any, types: Mapping[str, str]) -> Any:
    return Constant(types.get(word, word), value)


def _function_of(argument: Any) -> Function:
    """A program in place of a function."""
    found = argument
    if hasattr(argument, "function") and hasattr(argument, "language"):
        found = argument.function()
    if not isinstance(found, Function):
        raise ValidationError("a function that is an argument is a program here, as feinsum.program makes it")
    return found
