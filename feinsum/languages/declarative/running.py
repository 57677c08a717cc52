"""Running: a program is made for the lengths and types of the arrays that it is first called with, and kept for them.

Ways of an alternative are compared at the first call: that all compute the same, and in a race which is the fastest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from feinsum.compile.sequence import KernelSequence, device_array, host_array, new_device_array, queue_and_events
from feinsum.devices import Device
from feinsum.errors import DeviceError, FeinsumError, LanguageError, ValidationError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.emitting.kernels import KernelText, Spread, flat_kernel, row_kernel, scan_kernels
from feinsum.languages.declarative.emitting.types import numpy_type
from feinsum.languages.declarative.interpreting import bind
from feinsum.languages.declarative.interpreting.threads import Threads
from feinsum.languages.declarative.interpreting.values import Value
from feinsum.languages.declarative.lowering.normal import normalize
from feinsum.languages.declarative.lowering.steps import EinsumStep, FlatStep, RowStep, ScanStep, Step, partition
from feinsum.languages.declarative.lowering.terms import Load
from feinsum.languages.declarative.lowering.unfolding import Tensor, Unfolder, integer, number
from feinsum.languages.declarative.syntax import Function
from feinsum.languages.diagnostics import Findings
from feinsum.languages.source import Source
from feinsum.timing.races import Race, run_race

_LONG_AXIS: Final = 1024
"""Lengths from here on are long axes of einsums, so that one kernel serves all of them."""
_MOST_ELEMENTS: Final = 2**31
_RACE_S: Final = 5.0
_DIFFER: Final = {"f32": 1e-3, "f64": 1e-9}
"""How far apart ways of an alternative may be, relatively to the largest of their elements."""


@dataclass(frozen=True)
class Contents:
    """What a program is made for: lengths and types of arrays, values of numbers, functions."""

    shapes: tuple[tuple[str, tuple[int, ...], str], ...]
    lengths: tuple[tuple[str, int], ...]
    numbers: tuple[tuple[str, Any], ...]
    functions: tuple[tuple[str, Any], ...]


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


class DeclarativeKernel:
    """A program on a device; see :class:`feinsum.languages.building.Built`."""

    def __init__(self, function: Function, source: Source, device: Device, request: Mapping[str, Any]) -> None:
        self._function, self._text, self.device, self._request = function, source, device, request
        self._made: dict[Contents, Made] = {}
        self._chosen: dict[Contents, dict[str, int]] = {}
        self._races: list[tuple[syntax.Alternative, Race, int]] = []
        self._lock = threading.RLock()
        self.route = "general" if request.get("route") == "general" else "einsum"
        self._last: Made | None = None

    @property
    def source(self) -> str:
        """The OpenCL C source of the last call's kernels, save those of einsums."""
        return "\n".join(text.source for text in self._last.texts) if self._last else ""

    def ir(self, name: str | None = None) -> str:
        """The program in the language itself."""
        from feinsum.languages.declarative.printing import show

        return show([self._function])

    def call(self, arguments: Mapping[str, Any], count: int | None, queue: Any, wait_for: Any) -> Any:
        """Run it."""
        arrays, contents = self._examine(arguments)
        chosen, events = queue_and_events(self.device, queue, wait_for)
        with self._lock:
            tunes = self._choices(contents, arrays, chosen)
            made = self._last = self._make(contents, tunes)
            return self._run(made, arrays, chosen, events)

    def _examine(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Contents]:
        """The arrays among the arguments, and what the program is to be made for."""
        machine = _Names(self._text, {})
        types = {p.name: p.type for p in self._function.parameters}
        plain = {n: _like(v) if isinstance(types.get(n), syntax.TensorType) else v for n, v in arguments.items()}
        bind(machine, self._function, plain)
        arrays = {n: v for n, v in arguments.items() if isinstance(types.get(n), syntax.TensorType)}
        shapes, numbers, functions = [], [], []
        for name, type_ in types.items():
            if isinstance(type_, syntax.TensorType):
                shapes.append((name, tuple(plain[name].shape), _type_name(plain[name].dtype)))
            elif isinstance(type_, syntax.FunctionType):
                functions.append((name, arguments[name]))
            else:
                numbers.append((name, (type_.name, np.asarray(arguments[name]).item())))
        known = {n: int(v.data) for n, v in machine.names.items() if isinstance(v, Value) and v.weak == "int"}
        lengths = tuple(sorted((n, v) for n, v in known.items() if n not in types))
        return arrays, Contents(tuple(shapes), lengths, tuple(numbers), tuple(functions))

    # alternatives

    def _choices(self, contents: Contents, arrays: Mapping[str, Any], queue: Any) -> dict[str, int]:
        """Which way of each alternative to take; the first time they are compared."""
        if contents in self._chosen:
            return self._chosen[contents]
        chosen: dict[str, int] = {}
        for node in syntax.walk(self._function.body):
            if isinstance(node, syntax.Alternative):
                chosen[_key(node)] = self._compare(node, contents, chosen, arrays, queue)
        self._chosen[contents] = chosen
        return chosen

    def _compare(
        self, node: syntax.Alternative, contents: Contents, chosen: dict[str, int], arrays: Mapping[str, Any], queue: Any
    ) -> int:
        ways = {way.name: self._make(contents, {**chosen, _key(node): k}) for k, way in enumerate(node.ways)}
        first: Any = None
        for way, made in zip(node.ways, ways.values(), strict=True):
            found = self._run(made, arrays, queue, [], on_host=True)
            found = found if isinstance(found, tuple) else (found,)
            first = first or found
            self._require_same(node.ways[0], way, first, found)

        def sampler(made: Made) -> Any:
            def sample() -> float:
                begin = time.perf_counter()
                self._run(made, arrays, queue, [])
                queue.finish()
                return time.perf_counter() - begin

            return sample

        race = run_race({name: sampler(made) for name, made in ways.items()}, seconds=_RACE_S)
        winner = list(ways).index(race.leader or node.ways[0].name)
        self._races.append((node, race, winner))
        return winner

    def _require_same(self, one: syntax.Let, way: syntax.Let, first: Sequence[Any], found: Sequence[Any]) -> None:
        for a, b in zip(first, found, strict=True):
            bound = _DIFFER.get(_type_name(a.dtype), 0.0) * float(np.max(np.abs(a), initial=0)) if a.dtype.kind == "f" else 0
            differ = ~np.isclose(a, b, rtol=0, atol=bound, equal_nan=True) if a.dtype.kind == "f" else a != b
            if np.any(differ):
                place = tuple(int(k) for k in np.argwhere(differ)[0])
                values = f"{np.asarray(a)[place]} by {one.name}, {np.asarray(b)[place]} by {way.name}"
                findings = Findings(self._text)
                findings.error("run-alternative", way.span, f"element {list(place)} is {values}")
                findings.raise_errors()

    # making

    def _make(self, contents: Contents, tunes: Mapping[str, int]) -> Made:
        key = Contents(contents.shapes, contents.lengths, (*contents.numbers, *sorted(tunes.items())), contents.functions)
        if key not in self._made:
            self._made[key] = self._lower(contents, tunes)
        return self._made[key]

    def _lower(self, contents: Contents, tunes: Mapping[str, int]) -> Made:
        unfolder = Unfolder(self._text, tunes)
        arrays: dict[str, tuple[tuple[int, ...], str]] = {}
        for name, shape, dtype in contents.shapes:
            arrays[name] = (shape, dtype)
            unfolder.names[name] = Tensor(shape, dtype, _loading(name, dtype))
            type_ = next(p.type for p in self._function.parameters if p.name == name)
            if isinstance(type_, syntax.TensorType):
                unfolder.types.setdefault(type_.dtype or "dtype", dtype)
        for name, value in contents.lengths:
            unfolder.names[name] = number(integer(value))
        for name, (word, value) in contents.numbers:
            unfolder.names[name] = number(_constant(word, value, unfolder.types))
        for name, function in contents.functions:
            unfolder.names[name] = _function_of(function)
        names = unfolder.program(self._function)
        inlined = normalize(unfolder.equations, names, unfolder.fresh)
        steps = partition(inlined, names, einsums=self.route == "einsum")
        for step in steps:
            for equation in step.equations:
                arrays[equation.array] = (equation.shape, equation.dtype)
        self._require_small(arrays)
        return self._build(steps, names, arrays)

    def _require_small(self, arrays: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
        for name, (shape, dtype) in arrays.items():
            if np.prod(shape, dtype=np.float64) >= _MOST_ELEMENTS:
                raise ValidationError(f"array {name} has the shape {list(shape)}: 2^31 elements and more are not indexed here")
            if dtype == "f64" and not self.device.profile.fp64:
                raise DeviceError(f"{self.device.profile.name} has no f64, the type of {name}")

    def _build(self, steps: list[Step], results: tuple[str, ...], arrays: dict[str, tuple[tuple[int, ...], str]]) -> Made:
        actions: list[Any] = []
        texts: list[KernelText] = []
        spread = self._spread()
        for count, step in enumerate(steps):
            name = f"step{count}"
            if isinstance(step, EinsumStep):
                actions.append((self._einsum_kernel(step, arrays), step))
                continue
            if isinstance(step, ScanStep):
                made = scan_kernels(name, step, arrays, spread)
                rows, blocks = _blocks(made[0], step, spread)
                arrays[f"{name}_totals"] = ((rows, blocks), step.equation.dtype)
            elif isinstance(step, RowStep):
                made = [row_kernel(name, step, arrays, spread)]
            else:
                made = [flat_kernel(name, step, arrays, spread)]
            actions.append(tuple(range(len(texts), len(texts) + len(made))))
            texts += made
        shapes = tuple(arrays[name][0] for name in results)
        return Made(steps, results, shapes, arrays, actions, texts, KernelSequence(self.device, texts))

    def _spread(self) -> Spread:
        profile = self.device.profile
        if profile.kind == "cpu":
            return Spread(16, profile.compute_units, tree=False)
        return Spread(256, profile.compute_units, tree=True)

    def _einsum_kernel(self, step: EinsumStep, arrays: Mapping[str, tuple[tuple[int, ...], str]]) -> Any:
        """The kernel of :func:`feinsum.generate` for an einsum."""
        from feinsum.arrays import array
        from feinsum.einsum import einsum
        from feinsum.generate import generate

        inputs, _ = step.subscripts.split("->")
        sizes: dict[str, int] = {}
        operands = []
        for position, (letters, name) in enumerate(zip(inputs.split(","), step.operands, strict=True)):
            shape, dtype = arrays[name]
            axes: list[int | str] = []
            for letter, length in zip(letters, shape, strict=True):
                axes.append(f"n_{letter}" if length >= _LONG_AXIS else length)
                if length >= _LONG_AXIS:
                    sizes[f"n_{letter}"] = length
            operands.append(array(f"x{position}", tuple(axes), numpy_type(dtype)))
        e = einsum(step.subscripts, *operands)
        return generate(e, self.device, self._request.get("database"), sizes, self._request.get("tune", "never"))

    # running

    def _run(self, made: Made, arrays: Mapping[str, Any], queue: Any, events: list[Any], *, on_host: bool = False) -> Any:
        to_host = on_host or not arrays or all(isinstance(value, (np.ndarray, list)) for value in arrays.values())
        held = {name: device_array(value, queue) for name, value in arrays.items()}
        events = [*events, *(event for array in held.values() for event in array.events)]
        for name, (shape, dtype) in made.arrays.items():
            if name in made.results:
                held[name] = new_device_array(shape, numpy_type(dtype), queue, for_host=to_host)
            elif name not in held:
                if name not in made.temporaries:
                    made.temporaries[name] = new_device_array(shape, numpy_type(dtype), queue)
                held[name] = made.temporaries[name]
        done = None
        for step, action in zip(made.steps, made.actions, strict=True):
            if isinstance(step, EinsumStep):
                done = self._run_einsum(action[0], step, held, queue, events)
                events = [done] if done is not None else events
                continue
            for index in action:
                buffers = [held[name].base_data for name in made.texts[index].arrays]
                done = made.sequence.enqueue(index, queue, buffers, events)
                events = [done]
        found = []
        for name, shape in zip(made.results, made.result_shapes, strict=True):
            array = held[name]
            if done is not None and not to_host:
                array.add_event(done)
            found.append(host_array(array, queue, done).reshape(shape) if to_host else array.reshape(shape))
        return found[0] if len(found) == 1 else tuple(found)

    def _run_einsum(self, kernel: Any, step: EinsumStep, held: Mapping[str, Any], queue: Any, events: list[Any]) -> Any:
        named = {f"x{position}": held[name] for position, name in enumerate(step.operands)}
        out = kernel(named, out=held[step.array], queue=queue, wait_for=events)
        return out.events[-1] if out.events else None

    def explain(self) -> str:
        """The steps of the last call, and what was said of alternatives."""
        if self._last is None:
            return f"{self._function.name} on {self.device.id}: made when it is first called, for the lengths it is called with"
        lines = [f"{self._function.name} on {self.device.id}, in {len(self._last.steps)} steps"]
        for count, (step, action) in enumerate(zip(self._last.steps, self._last.actions, strict=True)):
            names = ", ".join(f"{e.array}{list(e.shape)}" for e in step.equations)
            lines.append(f"step {count} makes {names}: {_describe(step)}")
            if isinstance(step, EinsumStep):
                lines += [f"  {line}" for line in action[0].explain().splitlines()[1:]]
        for node, race, winner in self._races:
            lines.append(f"alternative of line {self._text.place(node.span).line}: {node.ways[winner].name}; {race}")
        return "\n".join(lines)


class _Names(Threads):
    """Names and lengths, without statements."""

    def __init__(self, source: Source, tunes: Mapping[str, int]) -> None:
        super().__init__(source, tunes)
        self.empty: set[str] = set()


def build(function: Function, source: Source, device: Device, **request: Any) -> DeclarativeKernel:
    """What :func:`feinsum.build` makes of a program.

    :raises FeinsumError: if the request is for what this language does not have.
    """
    if request.get("check"):
        raise FeinsumError("check='bounds' is not needed: indices of the declarative language are proved before a kernel runs")
    return DeclarativeKernel(function, source, device, request)


def _describe(step: Step) -> str:
    match step:
        case EinsumStep(subscripts=subscripts):
            return f"einsum {subscripts}"
        case RowStep():
            return f"one kernel for {step.rows} rows, a work-group for each"
        case FlatStep():
            return "a work-item for each element"
    return "a running reduction, in three launches"


def _key(node: syntax.Alternative) -> str:
    return f"alternative {node.span.start}"


def _like(value: Any) -> Any:
    """What stands for an array where only its shape and type matter."""
    if isinstance(value, (list, int, float)):
        return np.asarray(value)
    return np.broadcast_to(np.zeros((), value.dtype), value.shape) if hasattr(value, "dtype") else np.asarray(value)


def _type_name(dtype: Any) -> str:
    from feinsum.languages.declarative.forms import SCALARS

    for name, known in SCALARS.items():
        if known == dtype and name != "int":
            return name
    raise ValidationError(f"arrays of {dtype} are none of this language: {', '.join(SCALARS)}")


def _loading(name: str, dtype: str) -> Any:
    return lambda *indices: Load(dtype, name, indices)


def _constant(word: str, value: Any, types: Mapping[str, str]) -> Any:
    from feinsum.languages.declarative.lowering.terms import Constant

    return Constant(types.get(word, word), value)


def _function_of(argument: Any) -> Function:
    """A program in place of a function."""
    found = argument
    if hasattr(argument, "function") and hasattr(argument, "language"):
        found = argument.function()
    if not isinstance(found, Function):
        raise ValidationError("a function that is an argument is a program here, as feinsum.program makes it")
    return found


def _blocks(first: KernelText, step: ScanStep, spread: Spread) -> tuple[int, int]:
    from feinsum.languages.declarative.emitting.kernels import scan_sizes

    rows, blocks, _ = scan_sizes(step, spread)
    return rows, blocks


__all__ = ["DeclarativeKernel", "LanguageError", "build"]
