"""Signatures: the parameters of a function of any language, and the arguments of a call bound to them."""

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

    :ivar name: the name in errors.
    :ivar given: the argument as the caller passed it.
    :ivar arrays: the arrays that hold its memory; empty for a number.
    :ivar value: what the program computes with, or where the elements lie.
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
    :ivar results: the names of the arrays that it returns; empty if it writes parameters instead.
    :ivar sizes: the names of the lengths that the program leaves open.
    :ivar lengths: the names of lengths that may be passed along with the parameters.
    :ivar sigil: the prefix of names in errors, as in the language.
    """

    function: str
    parameters: Mapping[str, P]
    written: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    sigil: str = "%"

    def bind(self, arguments: Mapping[str, Any], take: Callable[[str, P, Any], Taken]) -> list[BoundArgument[P]]:
        """The arguments in the order of the parameters.

        :param take: checks and converts an argument, given the name in errors, the parameter and the argument.
        :raises ValidationError: if a name is missing or unknown, arrays are of two libraries, or an array that is written
            is read-only or shares memory.
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
        """Check that arguments have the names of parameters and, if `complete`, that each parameter has an argument.

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
        """Check that `sizes` names only lengths that the program leaves open.

        :raises ValidationError: naming the first other name.
        """
        if strange := [name for name in sizes if name not in self.sizes]:
            raise ValidationError(
                f"{self.function} leaves no size {strange[0]} open; there are {', '.join(self.sizes) or 'none'}"
            )

    def written_among(self, arguments: Mapping[str, Any]) -> Any:
        """The arguments that are written, which a call returns: one of them, or a tuple."""
        return one_or_all([arguments[name] for name in self.written])


def one_or_all(found: Sequence[Any]) -> Any:
    """The only item, or a tuple of all of them."""
    return found[0] if len(found) == 1 else tuple(found)
