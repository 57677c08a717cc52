"""Signatures: the parameters of a function of any language, and the arguments of a call as its parameters take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from feinsum.errors import ValidationError
from feinsum.languages.calling.arguments import require_one_library
from feinsum.languages.calling.overlap import check_apart

P = TypeVar("P")
Taken: TypeAlias = tuple[Sequence[Any], Any]
"""The arrays that hold the memory of an argument, and what a program computes with."""


class BoundArgument(NamedTuple, Generic[P]):
    """A parameter with its argument.

    :ivar name: as errors show it.
    :ivar given: what the caller passed.
    :ivar arrays: the arrays that hold its memory; none of a number.
    :ivar value: what the program computes with, or where its elements lie.
    """

    parameter: P
    name: str
    given: Any
    arrays: Sequence[Any]
    value: Any
    is_written: bool


@dataclass(frozen=True)
class Signature(Generic[P]):
    """The parameters and results of a function.

    :ivar function: its name in errors.
    :ivar parameters: by the names of their arguments, in order.
    :ivar written: the names of those that it writes, in order.
    :ivar results: the names of what it makes; none where it writes parameters instead.
    :ivar sizes: the names of the lengths that the program leaves open.
    :ivar lengths: names other than those of parameters that may be among the arguments: lengths.
    :ivar sigil: what stands before names in errors, as in the language.
    """

    function: str
    parameters: Mapping[str, P]
    written: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    sigil: str = "%"

    def bind(self, arguments: Mapping[str, Any], take: Callable[[str, P, Any], Taken]) -> list[BoundArgument[P]]:
        """The arguments in order of the parameters.

        :param take: what a parameter takes, by its name in errors, itself and its argument; raises what does not fit.
        :raises ValidationError: if a name is missing or unknown, arrays are of two libraries, or what is written cannot be
            or shares memory.
        """
        if arguments.keys() != self.parameters.keys():
            self.check_names(arguments)
        bound, pieces = [], []
        for key, parameter in self.parameters.items():
            name, given, is_written = self.sigil + key, arguments[key], key in self.written
            arrays, value = take(name, parameter, given)
            bound.append(BoundArgument(parameter, name, given, arrays, value, is_written))
            pieces += [(name, array, is_written) for array in arrays]
        require_one_library(pieces)
        check_apart(pieces)
        return bound

    def check_names(self, arguments: Iterable[str], *, complete: bool = True) -> None:
        """Check that arguments have names of parameters, and that each parameter has one if they are `complete`.

        :raises ValidationError: naming the first that is missing or unknown.
        """
        given, names = list(arguments), [*self.parameters, *self.lengths]
        known = ", ".join(self.sigil + name for name in names) or "none"
        if complete and (missing := [name for name in self.parameters if name not in given]):
            raise ValidationError(
                f"{self.function} needs an argument for {self.sigil}{missing[0]}; its parameters are {known}"
            )
        if strange := [name for name in given if name not in names]:
            raise ValidationError(f"{self.function} has no parameter {self.sigil}{strange[0]}; its parameters are {known}")

    def check_sizes(self, sizes: Iterable[str]) -> None:
        """Check that lengths are given of what the program leaves open.

        :raises ValidationError: naming the first of something else.
        """
        if strange := [name for name in sizes if name not in self.sizes]:
            raise ValidationError(
                f"{self.function} leaves no size {strange[0]} open; there are {', '.join(self.sizes) or 'none'}"
            )

    def written_among(self, arguments: Mapping[str, Any]) -> Any:
        """What a call gives back: the arguments that are written, one of them or a tuple."""
        return one_or_all([arguments[name] for name in self.written])


def one_or_all(found: Sequence[Any]) -> Any:
    """What a call returns of what it has: the only thing, or a tuple."""
    return found[0] if len(found) == 1 else tuple(found)
