"""Trying: run a function on given or random arguments, and compare it with its interpreter."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.building import Built, build
from feinsum.languages.program import LANGUAGES, Program

_LEAST_S = 0.2
_LEAST_CALLS, _MOST_CALLS = 5, 1000
_SLACK = 256
"""The most roundings of one operation by which a result may differ from the interpreter's, which rounds once."""


@dataclass(frozen=True)
class TryOutcome:
    """The outcome of trying a function.

    :ivar built: the built function that ran.
    :ivar results: the arrays that were written, by parameter.
    :ivar deviation: the largest difference from the interpreter over the largest number; None if not compared.
    :ivar samples_s: seconds of calls, each with the arrays on the host; empty if none were timed.
    """

    built: Built
    results: Mapping[str, Any] = field(default_factory=dict)
    deviation: float | None = None
    samples_s: tuple[float, ...] = ()

    @property
    def median_s(self) -> float | None:
        return statistics.median(self.samples_s) if self.samples_s else None


def try_out(
    program: Program,
    function: str | None = None,
    *,
    device: Any = None,
    route: str = "auto",
    count: int | None = None,
    sizes: Mapping[str, int] | None = None,
    arguments: Mapping[str, Any] | None = None,
    seed: int = 0,
    check: bool = False,
    timed: bool = False,
) -> TryOutcome:
    """Run a function once, and again to time it.

    :param arguments: arrays and numbers; arguments not among them are random.
    :param seed: the seed of random arguments.
    :param check: compare with the interpreter.
    :raises ValidationError: if the results are wrong.
    """
    found = program.function(function)
    language = LANGUAGES[program.language].load()
    given = language.sample_arguments(found, sizes or {}, seed, count, arguments or {})
    built = build(program, found.name, device, route=route)
    expected = copy.deepcopy(given) if check else None
    before = copy.deepcopy(given) if timed else None
    results = built(given, count=count)
    own = language.signature(found)
    names = own.results or own.written
    made = dict(zip(names, results if len(names) > 1 else (results,), strict=True)) if names else {}
    deviation = None
    if expected is not None:
        wanted = program.interpret(found.name, count=count, **built.sizes, **expected)
        pairs = zip(made.items(), wanted if len(names) > 1 else (wanted,), strict=True) if names else ()
        deviation = max((_deviation(name, found, other) for (name, found), other in pairs), default=0.0)
    return TryOutcome(built, made, deviation, _timed(built, before, count) if before is not None else ())


def _timed(built: Built, arguments: Mapping[str, Any], count: int | None) -> tuple[float, ...]:
    samples: list[float] = []
    while len(samples) < _LEAST_CALLS or (sum(samples) < _LEAST_S and len(samples) < _MOST_CALLS):
        start = time.perf_counter()
        built(arguments, count=count)
        samples.append(time.perf_counter() - start)
    return tuple(samples)


def _deviation(name: str, found: Any, expected: Any) -> float:
    """The largest difference over the largest number.

    :raises ValidationError: if it is more than rounding explains.
    """
    worst = 0.0
    for one, other in zip(*((value if isinstance(value, list) else [value]) for value in (found, expected)), strict=True):
        a, b, epsilon = _comparable(one), _comparable(other), _epsilon(one.dtype)
        if not a.size:
            continue
        there = np.isfinite(b)
        if (np.isfinite(a) != there).any():
            raise ValidationError(f"%{name} is not finite where the interpreter's is, or the other way round")
        largest = float(np.abs(b[there]).max(initial=0))
        difference = float(np.abs(a[there] - b[there]).max(initial=0))
        if difference > _SLACK * epsilon * max(largest, 1e-30) and difference:
            raise ValidationError(
                f"%{name} differs by {difference:.3g} from the interpreter's, whose largest is {largest:.3g}"
            )
        worst = max(worst, difference / largest if largest else 0.0)
    return worst


def _comparable(array: Any) -> Any:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _epsilon(dtype: np.dtype[Any]) -> float:
    if dtype == np.uint16 or dtype.name == "bfloat16":
        return 2.0**-8
    return 0.0 if dtype.kind in "biu" else float(np.finfo(dtype).eps)
