"""Making: a program at given lengths becomes steps, and these kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from feinsum.compile.buffers import library_of
from feinsum.compile.sequence import KernelSequence
from feinsum.devices import DeviceProfile
from feinsum.einsum import Array, array, einsum
from feinsum.errors import DeviceError, ValidationError
from feinsum.kernel.kernel_arguments import check_output
from feinsum.languages.calling.overlap import check_apart
from feinsum.languages.calling.protocols import BuildRequest
from feinsum.languages.calling.stage import EinsumStage
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.emitting.kernels import KernelText, Spread, flat_kernel
from feinsum.languages.declarative.emitting.rows import row_kernel
from feinsum.languages.declarative.emitting.scans import scan_kernels, scan_sizes
from feinsum.languages.declarative.emitting.threads import thread_kernel
from feinsum.languages.declarative.emitting.tiles import tile_bytes, tile_kernel
from feinsum.languages.declarative.forms import numpy_type
from feinsum.languages.declarative.lowering.folding import constant_index
from feinsum.languages.declarative.lowering.normal import normalize_equations
from feinsum.languages.declarative.lowering.steps import (
    EinsumStep,
    FlatStep,
    LoopStep,
    RowStep,
    ScanStep,
    Step,
    ThreadStep,
    TileStep,
    flattened,
    partition,
)
from feinsum.languages.declarative.lowering.terms import Constant, Load
from feinsum.languages.declarative.lowering.unfolding import Inlined, Unfolder
from feinsum.languages.declarative.lowering.unfolding_base import TensorExpression, number_tensor
from feinsum.languages.declarative.running.contents import Contents
from feinsum.languages.declarative.syntax import DeclarativeFunction
from feinsum.languages.program import Program
from feinsum.languages.source import SourceText

if TYPE_CHECKING:
    from feinsum.kernel.kernel import Kernel

_MOST_ELEMENTS: Final = 2**31
Shapes: TypeAlias = Mapping[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class Lowered:
    """A program at given lengths as steps and the texts of kernels, for which no device is asked.

    :ivar results: the names of arrays that are returned.
    :ivar arrays: lengths and type of every array.
    :ivar kernels: of each step the numbers of its kernels in `texts`; none of an einsum, those of each step of a loop.
    """

    steps: tuple[Step, ...]
    results: tuple[str, ...]
    arrays: Mapping[str, tuple[tuple[int, ...], str]]
    kernels: tuple[Any, ...]
    texts: tuple[KernelText, ...]


@dataclass
class Made:
    """A program made for some lengths: its steps and how each is run.

    :ivar arrays: lengths and type of every array.
    :ivar actions: a kernel of :func:`feinsum.generate`, its einsum and parts of operands; or numbers in `sequence`.
    """

    steps: tuple[Step, ...]
    results: tuple[str, ...]
    result_shapes: tuple[tuple[int, ...], ...]
    arrays: Mapping[str, tuple[tuple[int, ...], str]]
    actions: list[Any]
    texts: tuple[KernelText, ...]
    sequence: KernelSequence
    temporaries: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def room(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """Lengths and type of each result."""
        return tuple((self.arrays[name][0], np.dtype(numpy_type(self.arrays[name][1]))) for name in self.results)

    @cached_property
    def alignment(self) -> tuple[int, ...]:
        """For :func:`feinsum.compile.sequence.device_array`: without einsums kernels take arrays from anywhere."""
        return () if any(isinstance(step, EinsumStep) for step in flattened(self.steps)) else (1,)


@dataclass(frozen=True, eq=False)
class Maker:
    """Makes a program for a device; sums of products go to :func:`feinsum.generate` save on the general route."""

    function: DeclarativeFunction
    source: SourceText
    request: BuildRequest

    def make(self, contents: Contents, tunes: Mapping[str, int]) -> Made:
        """A program for some lengths.

        :param tunes: tuned numbers, and which way of each alternative to take.
        """
        device, einsums = self.request.device, self.request.route != "general"
        lowered = lower_program(self.function, self.source, contents, tunes, device.profile, einsums=einsums)
        actions = self._actions(lowered.steps, lowered.kernels, lowered.arrays)
        shapes = tuple(lowered.arrays[name][0] for name in lowered.results)
        sequence = KernelSequence(device, lowered.texts)
        return Made(lowered.steps, lowered.results, shapes, lowered.arrays, actions, lowered.texts, sequence)

    def _actions(self, steps: Sequence[Step], kernels: Sequence[Any], arrays: Shapes) -> list[Any]:
        """How each step is run: the kernel of an einsum, the numbers of other kernels, and those of a loop's steps."""
        found: list[Any] = []
        for step, own in zip(steps, kernels, strict=True):
            if isinstance(step, LoopStep):
                found.append(self._actions(step.steps, own, arrays))
            else:
                found.append(self._einsum(step, arrays) if isinstance(step, EinsumStep) else own)
        return found

    def _einsum(self, step: EinsumStep, arrays: Shapes) -> tuple[Kernel, EinsumStage[str], Mapping[str, Any]]:
        """The kernel of an einsum, this with its operands, and the parts that are taken of longer arrays."""
        inputs = step.subscripts.partition("->")[0].split(",")

        def described(name: str, letters: str, source: str) -> Array:
            return array(name, tuple(f"n_{x}" for x in letters), numpy_type(arrays[source][1]))

        own = {f"x{k}": (letters, source) for k, (letters, source) in enumerate(zip(inputs, step.operands, strict=True))}
        read = {name: (letters, source) for name, source, letters in step.read}
        e = einsum(step.subscripts, *(described(name, *one) for name, one in own.items()))
        if step.epilogue:
            e = e.then(step.epilogue, **{name: described(name, *one) for name, one in read.items()})
        stage = EinsumStage(e, {name: source for name, (_, source) in (own | read).items()})
        shapes = {name: tuple(step.lengths[x] for x in letters) for name, (letters, _) in (own | read).items()}
        parts = {n: tuple(map(slice, shape)) for n, shape in shapes.items() if shape != arrays[stage.operands[n]][0]}
        return stage.kernel_at(self.request, step.lengths), stage, parts


def lower_program(
    function: DeclarativeFunction,
    source: SourceText,
    contents: Contents,
    tunes: Mapping[str, int],
    profile: DeviceProfile | None,
    *,
    einsums: bool,
    plain: bool = False,
) -> Lowered:
    """A program for some lengths, as kernels for a kind of device.

    :param tunes: tuned numbers, and which way of each alternative to take.
    :param profile: of the device; None where nothing is going to run.
    :param einsums: whether sums of products are left to :func:`feinsum.generate`.
    :param plain: whether every element is computed for itself, without rows and stages.
    :raises LanguageError: if something is not lowered, or an index is not proved to be inside.
    :raises DeviceError: if the device is too small for it.
    """
    unfolder = Unfolder(source, tunes)
    unfolder.tiles = not plain
    arrays: dict[str, tuple[tuple[int, ...], str]] = {}
    for name, shape, dtype in contents.shapes:
        arrays[name] = (shape, dtype)
        unfolder.names[name] = TensorExpression(shape, dtype, _loading(name, dtype))
        type_ = next(p.type for p in function.parameters if p.name == name)
        if isinstance(type_, syntax.TensorType):
            unfolder.types.setdefault(type_.dtype or "dtype", dtype)
    for name, value in contents.lengths:
        unfolder.names[name] = number_tensor(constant_index(value))
    for name, (word, value) in contents.numbers:
        unfolder.names[name] = number_tensor(_constant_of_word(word, value, unfolder.types))
    for name, argument in contents.functions:
        unfolder.names[name] = _function_of(argument)
        type_ = next(p.type for p in function.parameters if p.name == name)
        if isinstance(type_, syntax.FunctionType):
            unfolder.signatures[name] = type_
    names = unfolder.program(function)
    inlined = normalize_equations(unfolder.equations, names, unfolder.fresh)
    steps = partition(inlined, names, einsums=einsums, plain=plain)
    for step in flattened(steps):
        for equation in step.equations:
            arrays[equation.array] = (equation.shape, equation.dtype)
        if isinstance(step, LoopStep):
            arrays |= {state.carried: (state.shape, state.dtype) for state in step.scope.states}
        if isinstance(step, TileStep):
            arrays[step.scope.array] = (step.scope.shape, step.scope.dtype)
            if profile is not None:
                _require_local(tile_bytes(step.scope), profile)
        if isinstance(step, ThreadStep):
            if profile is not None:
                _require_threads(step.scope.thread.extent, profile)
            arrays |= {m.array: (m.shape, m.dtype) for m in step.scope.memory if m.kind == "shared"}
    if profile is not None:
        _require_small(arrays, profile)
    spread = Spread(1, 1, tree=False) if profile is None else spread_of(profile)
    texts: list[KernelText] = []
    kernels = [_step_numbers(f"step{count}", step, arrays, spread, texts) for count, step in enumerate(steps)]
    return Lowered(tuple(steps), names, arrays, tuple(kernels), tuple(texts))


def _step_numbers(name: str, step: Step, arrays: Any, spread: Spread, texts: list[KernelText]) -> tuple[Any, ...]:
    """The numbers of a step's kernels, which are added to the texts; of a loop those of each of its steps."""
    if isinstance(step, LoopStep):
        return tuple(_step_numbers(f"{name}_{k}", one, arrays, spread, texts) for k, one in enumerate(step.steps))
    texts += (made := _kernels(name, step, arrays, spread))
    return tuple(range(len(texts) - len(made), len(texts)))


def _kernels(name: str, step: Step, arrays: dict[str, tuple[tuple[int, ...], str]], spread: Spread) -> Sequence[KernelText]:
    """The kernels of a step; the arrays that they share besides those of equations are added."""
    if isinstance(step, EinsumStep) or any(0 in equation.shape for equation in step.equations):
        return ()
    if isinstance(step, ThreadStep):
        return (thread_kernel(name, step.scope, arrays, spread),)
    if isinstance(step, ScanStep):
        made = scan_kernels(name, step, arrays, spread)
        rows, blocks, _ = scan_sizes(step, spread)
        arrays[f"{name}_totals"] = ((rows, blocks), step.equation.dtype)
        return made
    if isinstance(step, TileStep):
        return (tile_kernel(name, step.scope, arrays, spread),)
    if isinstance(step, RowStep):
        return (row_kernel(name, step, arrays, spread),)
    assert isinstance(step, FlatStep)
    return (flat_kernel(name, step, arrays, spread),)


def _require_threads(threads: int, profile: DeviceProfile) -> None:
    most = profile.max_work_group_size
    if threads > most:
        raise DeviceError(f"a thread scope has {threads} threads; {profile.name} has {most} in a work-group")


def _require_local(size: int, profile: DeviceProfile) -> None:
    most = profile.static_local_memory_bytes
    if size > most:
        raise DeviceError(f"tiles take {size} bytes of local memory; a work-group of {profile.name} has {most}")


def _require_small(arrays: Mapping[str, tuple[tuple[int, ...], str]], profile: DeviceProfile) -> None:
    for name, (shape, dtype) in arrays.items():
        if np.prod(shape, dtype=np.float64) >= _MOST_ELEMENTS:
            raise ValidationError(f"array {name} has the shape {list(shape)}: 2^31 elements and more are not indexed here")
        if dtype == "f64" and not profile.fp64:
            raise DeviceError(f"{profile.name} has no f64, the type of {name}")


def spread_of(profile: DeviceProfile) -> Spread:
    """The preferred spread of work on a device."""
    if profile.kind == "cpu":
        return Spread(1, profile.compute_units, tree=False, vector_bytes=64, cache_bytes=profile.cache_bytes)
    return Spread(256, profile.compute_units, tree=True)


def check_results(made: Made, out: Sequence[Any], arrays: Mapping[str, Any]) -> None:
    """Refuse arrays into which the results do not go.

    :param arrays: what the program reads.
    :raises ValidationError, ShapeError, DTypeError: naming the first that does not fit.
    """
    if len(out) != len(made.results):
        raise ValidationError(f"out has {len(out)} arrays; the program computes {len(made.results)}")
    library = library_of(next(iter(arrays.values()), out[0])) or "numpy"
    for (shape, dtype), one in zip(made.room, out, strict=True):
        check_output("out", one, shape, dtype, library)
    check_apart([*((name, one, False) for name, one in arrays.items()), *(("out", one, True) for one in out)])


def describe_build_step(step: Step) -> str:
    """A step in words."""
    match step:
        case EinsumStep(subscripts=subscripts):
            return f"einsum {subscripts}{f', then {step.epilogue}' if step.epilogue else ''}"
        case RowStep():
            return f"one kernel for {step.rows} rows, a work-group for each"
        case LoopStep(scope=scope, steps=steps):
            return f"{scope.count} rounds of {'; '.join(map(describe_build_step, steps))}"
        case FlatStep():
            return "a work-item for each element"
        case TileStep(scope=scope):
            tile = "x".join(str(v.extent) for v in scope.variables)
            return f"a work-group for each tile of {tile}"
        case ThreadStep(scope=scope):
            return f"a thread scope, one work-group of {scope.thread.extent}"
    return "a running reduction, in three launches"


def _loading(name: str, dtype: str) -> Any:
    return lambda *indices: Load(dtype, name, indices)


def _constant_of_word(word: str, value: Any, types: Mapping[str, str]) -> Any:
    return Constant(types.get(word, word), value)


def _function_of(argument: Any) -> Inlined:
    """A program in place of a function."""
    found = argument.function() if isinstance(argument, Program) else None
    if not isinstance(found, DeclarativeFunction):
        raise ValidationError("a function that is an argument is a program here, as feinsum.program makes it")
    return Inlined(found, argument.source)
