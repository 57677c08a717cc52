"""Tuning of programs: tuned numbers and alternatives are the parameters of a space that a program has for itself.

The key of a program is its normal form (:mod:`.program_names`), so its records are found again whatever its names.  A
worker process reads the program from the key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from feinsum.compile.kernel_program import KernelArgument, KernelLaunch, KernelProgram
from feinsum.database import best_known
from feinsum.errors import FeinsumError, TransformError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.emitting.kernels import join_sources
from feinsum.languages.declarative.forms import numpy_type
from feinsum.languages.declarative.interpreting import execute_program
from feinsum.languages.declarative.interpreting.machine import ExpressionInterpreter
from feinsum.languages.declarative.interpreting.values import IndexedValue
from feinsum.languages.declarative.lowering.steps import steps_in_order
from feinsum.languages.declarative.lowering.terms import Apply, Constant, Iterate, Reduce, Term, subterms
from feinsum.languages.declarative.open_choices import OpenChoice, choices_of, numbers_for
from feinsum.languages.declarative.program_names import normal_text
from feinsum.languages.declarative.running.builder import Lowered, lower_program
from feinsum.languages.declarative.running.contents import Contents, examine_arguments
from feinsum.languages.declarative.running.samples import declarative_samples, shape_arguments
from feinsum.languages.declarative.syntax import DeclarativeFunction
from feinsum.languages.source import SourceText
from feinsum.space import Configuration, TransformSpace
from feinsum.validate.case import Case
from feinsum.validate.reference import Reference

if TYPE_CHECKING:
    from feinsum.database import Stores
    from feinsum.devices import Device, DeviceProfile
    from feinsum.space import Instance

MARK: Final = "p1|"
"""The prefix of the keys of programs."""
SPACE: Final = "program"
VERSION: Final = 1
"""The version of the kernels of programs; raised whenever these change, so that older records are ignored."""
_LINE: Final = "\\n"
"""A new line in a key, which is printable."""
_INTERPRETED: Final = 20_000_000
"""Operations up to which the interpreter says what is right; beyond, the kernels that have no tiles and no rows do."""
_BOUND: Final = {"f32": 1e-3, "f64": 1e-9}
"""The largest error of results, relative to the largest of them: sums may run in any order."""


@dataclass(frozen=True, eq=False)
class ProgramSubject:
    """A program at given lengths.

    :ivar contents: what it is made for.
    :ivar sizes: the lengths, and other integers that are given at the call, by their names in the key.
    :ivar key: its normal form.
    """

    function: DeclarativeFunction
    source: SourceText
    contents: Contents
    key: str
    sizes: Mapping[str, int]
    name: str = "program"
    letters: Mapping[str, str] = field(default_factory=dict)

    @property
    def pattern_key(self) -> str:
        return self.key

    @property
    def pattern_sizes(self) -> Mapping[str, int]:
        return self.sizes

    @cached_property
    def _plain(self) -> Lowered:
        """The program with the first of all choices, element by element, for which no device matters."""
        return lower_program(self.function, self.source, self.contents, {}, None, einsums=False, plain=True)

    @cached_property
    def flops(self) -> int:
        steps = [step for step, _, _ in steps_in_order(self._plain.steps, self._plain.kernels, {})]
        return sum(prod(e.shape) * _operations(e.body) for step in steps for e in step.equations)

    @cached_property
    def bytes(self) -> int:
        arrays, given = self._plain.arrays, [name for name, _, _ in self.contents.shapes]
        return sum(prod(arrays[n][0]) * numpy_type(arrays[n][1]).itemsize for n in {*given, *self._plain.results})

    @property
    def dtype(self) -> Any:
        return numpy_type(self._plain.arrays[self._plain.results[0]][1])

    def command(self, sizes: Mapping[str, int], *options: str) -> str:
        lengths = [f"--size {name}={length}" for name, length in sizes.items()]
        return " ".join(["feinsum", "tune", self.name, *lengths, *options])

    def __str__(self) -> str:
        results = ", ".join(self.function.results)
        return f"{results} of a program with {', '.join(c.name for c in self.choices) or 'nothing'} to choose"

    @cached_property
    def choices(self) -> tuple[OpenChoice, ...]:
        """The choices that the program leaves open."""
        return choices_of(self.function)

    def subject(self, sizes: Mapping[str, int] | None) -> ProgramSubject:
        """This subject itself, as its lengths are known."""
        return self

    def spaces(self) -> Sequence[TransformSpace]:
        """The one space of its own."""
        return [_choice_space(self.parameters)] if self.choices else []

    @cached_property
    def parameters(self) -> Mapping[str, tuple[int | str, ...]]:
        """The values of every choice, the one that is taken without a record first."""
        lengths = ExpressionInterpreter(self.source, {})
        for name, value in self.contents.lengths:
            lengths.names[name] = IndexedValue(np.asarray(value), 0, "int")
        return {c.name: c.ways or _choice_numbers(c, lengths) for c in self.choices}

    def problem(self, space: TransformSpace, profile: DeviceProfile) -> Any:
        return None

    def instance(self, profile: DeviceProfile) -> Instance | None:
        return None

    def taken(self, configuration: Configuration) -> dict[str, int]:
        """A configuration as unfolding takes it."""
        return {
            c.key: c.ways.index(str(configuration[c.name])) if c.ways else int(configuration[c.name]) for c in self.choices
        }

    def program(self, space: str, version: int, configuration: Configuration, profile: DeviceProfile) -> KernelProgram:
        if version != VERSION:
            raise TransformError(f"space '{space}' has version {VERSION}, not {version}")
        return program_of(_lowered(self, self.taken(configuration), profile), [n for n, _, _ in self.contents.shapes])

    def proof(self, device: Device, seed: int) -> Sequence[Case]:
        return [ProgramCase(self, device, seed + 1), ProgramCase(self, device, seed)]


def program_subject(
    function: DeclarativeFunction, source: SourceText, contents: Contents, name: str = "program"
) -> ProgramSubject:
    """The subject that a program is when it is called with such arguments.

    :raises FeinsumError: if a length is zero, or a function is among the arguments: then it cannot be tuned.
    """
    if contents.functions:
        raise FeinsumError(f"{contents.functions[0][0]} is a function; programs that take one are not tuned")
    if empty := [name for name, shape, _ in contents.shapes if 0 in shape]:
        raise FeinsumError(f"{empty[0]} is empty, so there is nothing to tune")
    types: dict[str, str] = {}
    declared = {p.name: p.type for p in function.parameters}
    for array, _, dtype in contents.shapes:
        own = getattr(declared[array], "dtype", None)
        types.setdefault(own or array, dtype)
        types.setdefault(own or "dtype", dtype)
    text, names = normal_text(function, types)
    integers = {number: value for number, (word, value) in contents.numbers if word == "int"}
    sizes = {names.get(n, n): int(value) for n, value in {**dict(contents.lengths), **integers}.items()}
    key = f"{MARK}{text.replace(chr(10), _LINE)}"
    return ProgramSubject(function, source, contents, key, dict(sorted(sizes.items())), name)


def subject_at(function: DeclarativeFunction, source: SourceText, sizes: Mapping[str, int], name: str) -> ProgramSubject:
    """The subject that a program is at these lengths; type variables are float32.

    :raises ValidationError: if there is no such length.
    """
    _, contents = examine_arguments(function, source, shape_arguments(function, sizes))
    return program_subject(function, source, contents, name)


def subject_of(key: str, sizes: Mapping[str, int]) -> ProgramSubject:
    """The subject of a key, for :func:`feinsum.tune.subject.subject_of`.

    :raises LanguageError: if the key is not that of a program.
    """
    from feinsum.languages.declarative import read

    source = SourceText(key.removeprefix(MARK).replace(_LINE, "\n"))
    (function,), _ = read(source, strict=False)
    return subject_at(function, source, sizes, "program")


def program_of(lowered: Lowered, inputs: Sequence[str]) -> KernelProgram:
    """Kernels of steps as one program, whose results are called alike whatever was chosen."""
    kinds = dict.fromkeys(inputs, "input") | dict.fromkeys(lowered.results, "output")
    names = {name: name for name in lowered.arrays} | dict(
        zip(lowered.results, _lowered_result_names(lowered), strict=True)
    )
    launched = [
        (lowered.texts[number], [called.get(name, name) for name in lowered.texts[number].arrays])
        for _, numbers, called in steps_in_order(lowered.steps, lowered.kernels, {})
        for number in numbers
    ]
    used = {name for _, arrays in launched for name in arrays}
    arguments = tuple(
        KernelArgument(names[name], kinds.get(name, "scratch"), _stored_dtype(dtype), shape)
        for name, (shape, dtype) in lowered.arrays.items()
        if name in used or name in kinds
    )
    launches = tuple(
        KernelLaunch(text.name, tuple(names[name] for name in arrays), (text.groups,), (text.work_items,))
        for text, arrays in launched
    )
    return KernelProgram(join_sources(lowered.texts), arguments, launches)


def _lowered_result_names(lowered: Lowered) -> list[str]:
    return [f"result {count}" for count in range(len(lowered.results))]


def _stored_dtype(dtype: str) -> str:
    return "uint8" if dtype == "bool" else numpy_type(dtype).name


def _lowered(subject: ProgramSubject, taken: Mapping[str, int], profile: DeviceProfile) -> Lowered:
    """The program with all of its sums, none of which is left to :func:`feinsum.generate`."""
    return lower_program(subject.function, subject.source, subject.contents, taken, profile, einsums=False)


def _choice_space(parameters: Mapping[str, tuple[int | str, ...]]) -> TransformSpace:
    """The space of a program: a point for all that it leaves open.  Building tells which of them cannot be made."""
    return TransformSpace(
        name=SPACE,
        version=VERSION,
        patterns=lambda e: False,
        function=_no_kernel,
        choices=lambda problem: dict(parameters),
        constraint=lambda problem, configuration: None,
        rank=1,
    )


def _no_kernel(*_: Any, **__: Any) -> Any:
    raise TransformError("the space of a program transforms no kernel")


def _choice_numbers(choice: OpenChoice, lengths: ExpressionInterpreter) -> tuple[int, ...]:
    assert isinstance(choice.node, syntax.DeclarativeCall)
    given = [lengths.integer(item) for item in getattr(choice.node.arguments[-1].value, "items", ())]
    return tuple(dict.fromkeys(given)) or numbers_for(lengths.integer(choice.node.arguments[0].value))


def _operations(term: Term) -> int:
    """Floating-point operations of a term; of a loop whose rounds depend on data, those of one."""
    if isinstance(term, Iterate) and isinstance(term.count, Constant):
        rounds = int(term.count.value)
        return sum(map(_operations, term.first)) + rounds * sum(map(_operations, term.following))
    own = 1 if isinstance(term, Apply) and term.function != "cast" and term.dtype in ("f32", "f64") else 0
    below = sum(_operations(child) for child in subterms(term))
    return prod(v.extent for v in term.variables) * (below + 1) if isinstance(term, Reduce) else own + below


class ProgramCase(Case):
    """Random arguments of a program, and what the interpreter makes of them; or its plainest kernel, where that takes long.

    :param seed: of the arguments.
    """

    def __init__(self, subject: ProgramSubject, device: Device, seed: int) -> None:
        self._subject, self._device, self._seed = subject, device, seed
        lengths = {**dict(subject.contents.lengths), **{n: v for n, (word, v) in subject.contents.numbers if word == "int"}}
        numbers = {n: value for n, (_, value) in subject.contents.numbers}
        arguments = declarative_samples(subject.function, lengths, seed, numbers)
        typed = {n: np.asarray(arguments[n]).astype(numpy_type(dtype)) for n, _, dtype in subject.contents.shapes}
        self._arguments = {**arguments, **typed}
        plain = subject._plain
        results = {
            name: (plain.arrays[own][0], np.dtype(_stored_dtype(plain.arrays[own][1])))
            for name, own in zip(_lowered_result_names(plain), plain.results, strict=True)
        }
        super().__init__(device.queue, typed, results, {}, "even")

    def another(self) -> ProgramCase:
        """The same arguments with other numbers."""
        return ProgramCase(self._subject, self._device, self._seed + 1)

    @cached_property
    def references(self) -> list[Reference]:
        """The reference of each result."""
        # The interpreter refuses alternatives of which a way is wrong; here the first is right.
        interpreted = self._subject.flops <= _INTERPRETED and not any(c.ways for c in self._subject.choices)
        found = self._interpreted() if interpreted else self._computed()
        return [_reference(value) for value in found]

    def _interpreted(self) -> list[np.ndarray[Any, Any]]:
        with np.errstate(all="ignore"):
            found = execute_program(self._subject.function, self._subject.source, self._arguments)
        return list(found) if isinstance(found, tuple) else [found]

    def _computed(self) -> list[np.ndarray[Any, Any]]:
        """The results of kernels in which every element is computed for itself."""
        from feinsum.compile.executable import build_executable

        subject = self._subject
        lowered = lower_program(
            subject.function, subject.source, subject.contents, {}, self._device.profile, einsums=False, plain=True
        )
        executable = build_executable(self._device.context, program_of(lowered, list(self._inputs)))
        buffers = {**self.upload(), **self.outputs(), **executable.scratch(self._device.context, {})}
        executable.enqueue(self.queue, buffers, {})
        return [self.fetch(name, buffers[name]) for name in self._results]

    @property
    def parameters(self) -> dict[str, Any]:
        """None: kernels are made for these lengths."""
        return {}

    @property
    def nbytes(self) -> int:
        """Bytes of one set of inputs and outputs."""
        return self._subject.bytes

    @property
    def used_bytes(self) -> int:
        """Bytes that a run must move at least."""
        return self._subject.bytes

    @property
    def place(self) -> str:
        """The lengths in words."""
        return " ".join(f"{name}={length}" for name, length in self._subject.contents.lengths)

    def is_finite(self, name: str) -> bool:
        """Whether all of an output is finite."""
        reference = self.references[list(self._results).index(name)]
        return bool(np.isfinite(reference.expected).all())


def _reference(value: np.ndarray[Any, Any]) -> Reference:
    """All elements of a result, with the bound of all."""
    found = np.asarray(value)
    wide = found.astype(np.float64) if found.dtype.kind == "f" else found.astype(np.int64)
    finite = np.abs(wide[np.isfinite(wide)])
    relative = _BOUND.get(f"f{8 * found.dtype.itemsize}", 0.0) if found.dtype.kind == "f" else 0.0
    bound = np.full(found.shape, relative * float(finite.max(initial=0)))
    return Reference(tuple(map(np.arange, found.shape)), wide, bound)


@dataclass(frozen=True)
class RecordedChoices:
    """The choices that records make for a program.

    :ivar words: whose record it is, for :meth:`feinsum.languages.building.Built.explain`.
    :ivar exact: whether it is one of these very lengths.
    """

    configuration: Configuration
    words: str
    exact: bool


def look_up(subject: ProgramSubject, stores: Stores, profile: DeviceProfile) -> RecordedChoices | None:
    """The best configuration that is known at the lengths of a program, or else at the nearest ones."""
    spaces = ((SPACE, VERSION),)
    found = best_known(stores, subject.key, subject.sizes, profile.id, profile.driver, spaces)
    words, exact = "by its record", found is not None
    if found is None:
        others = stores.winners(einsum_key=subject.key, device=profile.id, driver=profile.driver, spaces=spaces)
        found = min(others, key=lambda r: _length_distance(r.sizes, subject.sizes), default=None)
        if found is not None:
            words = f"by the record of {' '.join(f'{name}={length}' for name, length in found.sizes.items())}"
    if found is None or set(found.configuration) != set(subject.parameters):
        return None
    time = "" if found.median_s is None else f", {1e3 * found.median_s:.4g} ms"
    said = f"; {found.message}" if found.message else ""  # the verdict of the final
    return RecordedChoices(found.configuration, f"{words}{time}{said}", exact)


def _length_distance(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """The distance of lengths, by their factors."""
    return sum(abs(math.log(a[name] / b[name])) if name in a else math.inf for name in b)
