"""Running: a program is made for the lengths and types that it is first called with, and kept for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from feinsum.compile.buffers import device_elements
from feinsum.compile.call_cache import CallCache, likeness
from feinsum.compile.sequence import device_array, host_array, new_device_array, queue_and_events, result_array
from feinsum.database import open_stores
from feinsum.errors import FeinsumError, ValidationError
from feinsum.kernel.kernel_arguments import check_context
from feinsum.kernel.kernel_calls import RepeatedCall
from feinsum.languages.calling.arguments import refuse_keywords, require_one_library
from feinsum.languages.calling.protocols import BuildRequest, ProgramCall
from feinsum.languages.calling.signature import one_or_all
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import numpy_type
from feinsum.languages.declarative.interpreting import execute_program as interpret
from feinsum.languages.declarative.lowering.steps import EinsumStep, TileStep, steps_in_order
from feinsum.languages.declarative.open_choices import choices_of
from feinsum.languages.declarative.running.alternatives import fastest_alternative
from feinsum.languages.declarative.running.builder import Made, Maker, check_results, describe_build_step
from feinsum.languages.declarative.running.contents import Contents, examine_arguments
from feinsum.languages.declarative.syntax import DeclarativeFunction
from feinsum.languages.source import SourceText
from feinsum.timing.races import Race

_TUNING_S = 60.0
"""For the choices of a program, where it is built with ``tune="missing"`` or ``"always"``."""
_MOST_EMULATED = 1 << 16
"""Elements of arrays up to which thread scopes are emulated before they run."""


class DeclarativeKernel:
    """A program on a device, see :class:`feinsum.languages.calling.protocols.ProgramRunner`; thread-safe."""

    sizes: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, function: DeclarativeFunction, source: SourceText, request: BuildRequest) -> None:
        self._function, self._text, self.device = function, source, request.device
        self.route = "general" if request.route == "general" else "einsum"
        self._maker = Maker(function, source, request)
        self._made: dict[Any, Made] = {}
        self._chosen: dict[Contents, dict[str, int]] = {}
        self._request = request
        self._records: list[str] = []
        self._races: list[tuple[syntax.Alternative, Race, int]] = []
        self._lock = threading.RLock()
        self._emulated = ""
        self._known = CallCache[tuple[tuple[str, ...], Contents]]()
        self._repeats = CallCache[tuple[Made, RepeatedCall, Sequence[str]]]()
        self._last: Made | None = None

    @property
    def source(self) -> str:
        """The OpenCL C source of the last call's kernels, save those of einsums."""
        return "\n".join(text.source for text in self._last.texts) if self._last else ""

    def ir(self, name: str | None = None) -> str:
        """The program in the language itself.

        :raises ValidationError: if a pass is named: there are none.
        """
        if name is not None:
            raise ValidationError(f"there is no pass {name!r}: declarative programs have none; leave the name out")
        from feinsum.languages.declarative.printing import show

        return show([self._function])

    def call(self, call: ProgramCall) -> Any:
        """Run it on arrays, all of numpy or all of pyopencl.

        :returns: what the program computes: an array, or a tuple of them in the order of the text.
        :raises ValidationError, ShapeError, DTypeError: if arguments are missing or do not fit, or there is a number of
            instances, which programs have not.
        :raises LanguageError: if something is not lowered, an index is not proved to be inside, or alternatives differ.
        """
        arguments, count, queue, wait_for, given = call
        if count is not None:
            refuse_keywords({"count": count})
        out = given if given is None or isinstance(given, tuple) else (given,)
        if (repeat := self._repeats.get(like := (tuple(arguments), likeness(arguments.values())))) is not None:
            made, launch, names = repeat
            self._last = made
            chosen, events = queue_and_events(self.device, queue, wait_for)
            if out is not None and not (len(out) == 1 and launch.takes(out[0])):
                check_results(made, out, arguments)
            return launch([arguments[name] for name in names], out and out[0], chosen, events)
        key = _call_kind(arguments)
        arrays, contents = self._examine(key, arguments)
        chosen, events = queue_and_events(self.device, queue, wait_for)
        if require_one_library(arrays.items()) == "pyopencl":
            check_context(arrays, chosen)
        with self._lock:
            tunes = self._choices(contents, arrays, arguments, chosen)
            made = self._last = self._make(contents, tunes)
            if out is not None:
                check_results(made, out, arrays)
            one = _operands_of_one(made, arrays)
            if like[1] is not None and one is not None and arrays.keys() == arguments.keys():
                kernel = made.actions[0][0]
                named = {name: arrays[source] for name, source in one.items()}
                order = [one[a.name] for a in kernel.einsum.arrays]
                self._repeats[like] = made, kernel.repeat(named), order
            return self._run(made, arrays, chosen, events, out=out)

    def _examine(self, key: Any, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Contents]:
        """The arrays among the arguments, and what the program is to be made for, which is looked at once for each kind."""
        if key is None:
            return examine_arguments(self._function, self._text, arguments)
        known = self._known.get(key)
        if known is None:
            arrays, contents = examine_arguments(self._function, self._text, arguments)
            self._known[key] = tuple(arrays), contents
            return arrays, contents
        names, contents = known
        return {name: arguments[name] for name in names}, contents

    def _choices(
        self, contents: Contents, arrays: Mapping[str, Any], arguments: Mapping[str, Any], queue: Any
    ) -> dict[str, int]:
        """The way to take of each alternative; the first time, ways are compared, and thread scopes emulated."""
        if contents in self._chosen:
            return self._chosen[contents]
        self._find_races(arrays, arguments, queue)
        chosen = self._recorded(contents)
        if chosen is None:
            chosen = {}
            for choice in choices_of(self._function):
                if isinstance(node := choice.node, syntax.Alternative):
                    ways = [self._make(contents, {**chosen, choice.key: k}) for k in range(len(node.ways))]
                    found = [self._run(made, arrays, queue, [], on_host=True) for made in ways]
                    results = [f if isinstance(f, tuple) else (f,) for f in found]
                    samplers = [self._sampler(made, arrays, queue) for made in ways]
                    winner, race = fastest_alternative(node, self._text, results, samplers)
                    chosen[choice.key] = winner
                    self._races.append((node, race, winner))
        self._chosen[contents] = chosen
        return chosen

    def _recorded(self, contents: Contents) -> dict[str, int] | None:
        """The choices that records make of everything that the program leaves open, after tuning if that is wanted."""
        if not choices_of(self._function):
            return None
        from feinsum.languages.declarative.tuning import look_up, program_subject
        from feinsum.tune.autotune import autotune

        try:
            own = program_subject(self._function, self._text, contents, self._text.name)
        except FeinsumError:  # a function among the arguments, or an empty array: nothing to tune
            return None
        database, wanted = self._request.database, self._request.tune
        known = look_up(own, open_stores(database, tolerant=True), self.device.profile)
        if wanted == "always" or (wanted == "missing" and (known is None or not known.exact)):
            autotune(own, self.device, database, own.sizes, timeout=_TUNING_S)
            known = look_up(own, open_stores(database, tolerant=True), self.device.profile)
        if known is None:
            return None
        shown = ", ".join(f"{name} = {value}" for name, value in known.configuration.items())
        self._records.append(f"{shown}, {known.words}")
        return own.taken(known.configuration)

    def _find_races(self, arrays: Mapping[str, Any], arguments: Mapping[str, Any], queue: Any) -> None:
        """Emulate thread scopes, where that does not take long.

        :raises LanguageError: if threads race.
        """
        if not any(
            isinstance(node, syntax.FormCall) and node.kind == "thread" for node in syntax.walk_nodes(self._function.body)
        ):
            return
        if sum(np.size(array) for array in arrays.values()) > _MOST_EMULATED:
            self._emulated = "thread scopes were not emulated, as the arrays are long: races in them are not found"
            return
        on_host = {
            n: value if isinstance(value, np.ndarray) else device_elements(value, queue) for n, value in arrays.items()
        }
        interpret(self._function, self._text, {**arguments, **on_host})
        self._emulated = "thread scopes were emulated at these lengths: no race was found"

    def _sampler(self, made: Made, arrays: Mapping[str, Any], queue: Any) -> Callable[[], float]:
        def sample() -> float:
            begin = time.perf_counter()
            self._run(made, arrays, queue, [])
            queue.finish()
            return time.perf_counter() - begin

        return sample

    def _make(self, contents: Contents, tunes: Mapping[str, int]) -> Made:
        key = (contents, tuple(sorted(tunes.items())))
        if key not in self._made:
            self._made[key] = self._maker.make(contents, tunes)
        return self._made[key]

    def _run(
        self,
        made: Made,
        arrays: Mapping[str, Any],
        queue: Any,
        events: list[Any],
        *,
        on_host: bool = False,
        out: tuple[Any, ...] | None = None,
    ) -> Any:
        if (operands := _operands_of_one(made, arrays)) is not None:
            named = {name: arrays[source] for name, source in operands.items()}
            return made.actions[0][0](named, out=out and out[0], queue=queue, wait_for=events)
        to_host = on_host or all(isinstance(value, np.ndarray) for value in arrays.values())
        held = {name: device_array(value, queue, *made.alignment) for name, value in arrays.items()}
        events = [*events, *(event for array in held.values() for event in array.events)]
        places = [result_array(array, queue, *made.alignment) for array in out or ()]
        for name, (array, _) in zip(made.results, places, strict=False):
            held[name] = array
            events = [*events, *array.events]
        for name, (shape, dtype) in made.arrays.items():
            if name in made.results and out is None:
                held[name] = new_device_array(shape, numpy_type(dtype), queue, for_host=to_host)
            elif name not in held:
                if name not in made.temporaries:
                    made.temporaries[name] = new_device_array(shape, numpy_type(dtype), queue)
                held[name] = made.temporaries[name]
        done = None
        for step, action, names in steps_in_order(made.steps, made.actions, {}):
            if isinstance(step, EinsumStep):
                kernel, stage, parts = action
                named = {name: held[names.get(source, source)] for name, source in stage.operands.items()}
                for name, part in parts.items():
                    if done is not None:  # what is copied of an array is copied when it has been made
                        named[name].add_event(done)
                    named[name] = named[name][part]
                result = kernel(named, out=held[names.get(step.array, step.array)], queue=queue, wait_for=events)
                events = result.events[-1:] or events
                done = result.events[-1] if result.events else None
                continue
            for index in action:
                buffers = [held[names.get(name, name)].base_data for name in made.texts[index].arrays]
                done = made.sequence.enqueue(index, queue, buffers, events)
                events = [done]
        for array, place in places:
            if place is not None:
                place.deliver(queue, done)
            elif done is not None:
                array.add_event(done)
        if out is not None:
            return one_or_all(out)
        found = []
        for name, shape in zip(made.results, made.result_shapes, strict=True):
            array = held[name]
            if done is not None and not to_host:
                array.add_event(done)
            if to_host:
                found.append(host_array(array, queue, done).reshape(shape))
            else:
                found.append(array if array.shape == shape else array.reshape(shape))
        return one_or_all(found)

    def explain(self) -> str:
        """The steps of the last call, and what was said of alternatives."""
        if self._last is None:
            return f"{self._function.name} on {self.device.id}: made when it is first called, for the lengths of that call"
        lines = [f"{self._function.name} on {self.device.id}, in {len(self._last.steps)} steps"]
        for count, (step, action) in enumerate(zip(self._last.steps, self._last.actions, strict=True)):
            arrays = [(e.array, e.shape) for e in step.equations]
            arrays += [(step.scope.array, step.scope.shape)] if isinstance(step, TileStep) else []
            names = ", ".join(f"{array}{list(shape)}" for array, shape in arrays)
            lines.append(f"step {count} makes {names}: {describe_build_step(step)}")
            if isinstance(step, EinsumStep):
                lines += [f"  {line}" for line in action[0].explain().splitlines()[1:]]
        lines += [self._emulated] if self._emulated else []
        lines += self._records
        for node, race, winner in self._races:
            lines.append(f"alternative of line {self._text.place(node.span).line}: {node.ways[winner].name}; {race}")
        return "\n".join(lines)


def build_declarative(function: DeclarativeFunction, source: SourceText, request: BuildRequest) -> DeclarativeKernel:
    """The result of :func:`feinsum.build` for a program.

    :raises ValidationError: if the request is for what this language does not have.
    """
    refuse_keywords({"sizes": request.sizes or None}, "lengths are those of each call")
    refuse_keywords({"check": request.check}, "indices are proved before a kernel runs")
    return DeclarativeKernel(function, source, request)


def _call_kind(arguments: Mapping[str, Any]) -> Any:
    """The kind of a call: equal for calls that the same kernels serve; None where an argument is no key, as a list is."""
    key = tuple((name, _argument_kind(value)) for name, value in arguments.items())
    try:
        hash(key)
    except (TypeError, ValueError):  # the latter of a memoryview that can be written
        return None
    return key


def _operands_of_one(made: Made, arrays: Mapping[str, Any]) -> Mapping[str, str] | None:
    """The operands of the kernel, if a program is one einsum of its arguments and nothing else; otherwise None."""
    if len(made.steps) != 1 or not isinstance(made.steps[0], EinsumStep):
        return None
    operands: Mapping[str, str] = made.actions[0][1].operands
    return operands if set(operands.values()) <= arrays.keys() and not made.actions[0][2] else None


def _argument_kind(value: Any) -> Any:
    """The kind of an argument: of an array its shape and type, of a number its class and value, of anything else itself."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if not shape or dtype is None:
        if isinstance(value, (int, float, complex, np.generic)):  # 1 equals True and 1.0, and 0.0 equals -0.0
            return value.__class__, value or repr(value)
        return [] if isinstance(value, tuple) else value  # a tuple is an array to be made, as a list is
    return (shape, dtype)
