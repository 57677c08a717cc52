"""Functions of sums as texts of epilogues (:meth:`feinsum.BatchedEinsum.then`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from feinsum.elementwise import COMPARISONS, EXPANDED, NAMED
from feinsum.languages.declarative.lowering.terms import Apply, Constant, Load, Reduce, Select, Term, TermVariable

_INFIX: Final = ("+", "-", "*", "/", *COMPARISONS)


@dataclass
class SumFunction:
    """The text of a function of a sum, and the arrays that it reads, by their names there."""

    total: Reduce
    letters: Mapping[TermVariable, str]
    arrays: dict[str, Load] = field(default_factory=dict)

    def text(self, term: Term) -> str | None:
        """A term as text; None where an epilogue has no words for it."""
        if term == self.total:
            return "v"
        match term:
            case Constant(value=bool()):
                return None
            case Constant(value=value):
                return f"({value!r})" if math.isfinite(value) else None
            case Load():
                return self._read(term)
            case Select(condition=condition, then=then, otherwise=otherwise):
                return self._call("where", condition, then, otherwise)
            case Apply(function="neg", arguments=(inner,)):
                text = self.text(inner)
                return text and f"(-{text})"
            case Apply(function=function, arguments=(first, second)) if function in _INFIX:
                a, b = self.text(first), self.text(second)
                return None if a is None or b is None else f"({a} {function} {b})"
            case Apply(function="min" | "max" as function, arguments=(first, second)):
                a, b = self.text(first), self.text(second)
                sign = "<" if function == "min" else ">"  # what is no number goes on, as in numpy
                return None if a is None or b is None else f"where({a} != {a} or {a} {sign} {b}, {a}, {b})"
            case Apply(function=function, arguments=arguments) if function in NAMED or function in EXPANDED:
                return self._call(function, *arguments)
        return None

    @property
    def read(self) -> tuple[tuple[str, str, str], ...]:
        """The names of what was read, the arrays that these are, and their indices as letters."""
        own: dict[Term, str] = {index: letter for index, letter in self.letters.items()}  # noqa: C416  for the types
        return tuple((n, load.array, "".join(own[i] for i in load.indices)) for n, load in self.arrays.items())

    def _call(self, function: str, *arguments: Term) -> str | None:
        texts = [self.text(argument) for argument in arguments]
        return None if None in texts else f"{function}({', '.join(filter(None, texts))})"

    def _read(self, load: Load) -> str | None:
        if load.dtype != self.total.dtype or len(set(load.indices)) < len(load.indices) or not load.indices:
            return None
        places = [self.letters.get(index) if isinstance(index, TermVariable) else None for index in load.indices]
        if None in places:
            return None
        name = next((n for n, known in self.arrays.items() if known == load), f"z{len(self.arrays)}")
        self.arrays[name] = load
        return f"{name}[{', '.join(filter(None, places))}]"
