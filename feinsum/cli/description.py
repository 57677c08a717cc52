"""An einsum on the command line: ``"xre,rij,ej->xei" --shape J=3,3,E --shape D=3,20,20 --shape u=E,20 --size E=100000``.

Subscripts are numpy's.  The axes come from ``--shape NAME=AXES``, one an operand, or from ``--size INDEX=LENGTH``, where
``--long INDEX`` marks those whose length varies from call to call; ``--row NAMES`` once an output makes a batched einsum.
``--then 'alpha*v + b[j]'`` adds an epilogue to the sums (:mod:`feinsum.epilogue`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from feinsum.arrays import axes_in
from feinsum.einsum import Array, Axis, BatchedEinsum, array, batched_einsum
from feinsum.epilogue.text import read_at
from feinsum.subscripts import INDEX_LETTERS, parse_subscripts

DEFAULT_DTYPE = "float64"


@dataclass(frozen=True)
class Request:
    """The request of a command.

    :ivar einsum: the batched einsum.
    :ivar sizes: the lengths given for its long axes, by the names that :attr:`BatchedEinsum.long_axes` has.
    """

    einsum: BatchedEinsum
    sizes: Mapping[str, int]

    def require_sizes(self) -> None:
        """Check that every long axis has a length.

        :raises click.UsageError: naming the first that has none.
        """
        for name in self.einsum.long_axes:
            if name not in self.sizes:
                raise click.UsageError(f"the long axis '{name}' needs a length to measure at; give --size {name}=LENGTH")


def describe_arguments(
    subscripts: str,
    *,
    shapes: Iterable[str] = (),
    sizes: Iterable[str] = (),
    long: Iterable[str] = (),
    rows: Iterable[str] = (),
    dtypes: Iterable[str] = (),
    then: Sequence[str] = (),
) -> Request:
    """The einsum that the arguments of a command describe.

    :param shapes: ``NAME=AXIS,AXIS,...``; an axis is a length, the name of a long axis, or ``inf``.
    :param sizes: ``NAME=LENGTH,...`` for indices and for long axes.
    :param long: letters of indices, separated by commas.
    :param rows: names of operands, separated by commas, for one output each; ``a*b`` is an elementwise product.
    :param dtypes: ``TYPE`` for all arrays or ``NAME=TYPE`` for one.
    :param then: an epilogue of all outputs, or one for each; the arrays that it reads have the axes of the indices that
        they are read at, and the type of the output unless `dtypes` says another.
    :raises click.UsageError, FeinsumError: saying what is wrong, where, and what to write instead.

    >>> print(describe_arguments("ij,jk->ik", sizes=["i=4,j=5,k=6"]).einsum)
    ij,jk->ik [A B] A: float64[4, 5], B: float64[5, 6]
    >>> request = describe_arguments("ij,ej->ei", shapes=["D=35,35", "u=E,35"], sizes=["E=1000"], dtypes=["float32"])
    >>> print(request.einsum, dict(request.sizes))
    ij,ej->ei [D u] D: float32[35, 35], u: float32[E, 35] {'E': 1000}
    """
    if subscripts.endswith("-"):
        raise click.UsageError(f"the shell took what follows {subscripts!r} for a redirection; quote it, as in 'ij,jk->ik'")
    axes = _name_value_pairs("--shape", shapes, _parse_axes)
    lengths = read_lengths(sizes)
    marked = [letter.strip() for text in long for letter in text.split(",")]
    types = _name_value_pairs("--dtype", (text if "=" in text else f"={text}" for text in dtypes), lambda name, text: text)
    terms = subscripts.partition("->")[0].split(",")
    matrix = _array_names(subscripts, len(terms), tuple(axes), tuple(rows))
    arrays: dict[str, Array] = {}
    for row in matrix:
        for k, entry in enumerate(row):
            for name in entry:
                if name not in arrays:
                    shape = axes[name] if name in axes else _operand_shape(subscripts, k, lengths, marked)
                    arrays[name] = array(name, shape, types.get(name, types.get("", DEFAULT_DTYPE)))
    read = {name for text in then for name in read_at(text)}
    for option, names in (("--shape", axes), ("--dtype", types.keys() - read)):
        for name in names:
            if name and name not in arrays:
                raise click.UsageError(f"{option} names '{name}', but the operands are {', '.join(arrays)}")
    e = batched_einsum(subscripts, [[tuple(arrays[name] for name in entry) for entry in row] for row in matrix])
    if then:
        e = e.then(then[0] if len(then) == 1 else then, **_epilogue_arrays(e, then, types))
    for letter in marked:
        if isinstance(e.index_sizes.get(letter, 0), int):
            raise click.UsageError(f"--long names '{letter}', but the indices are {', '.join(e.indexing.indices)}")
    return Request(e, _lengths_of_long_axes(e, lengths))


def read_lengths(sizes: Iterable[str]) -> dict[str, int]:
    """The lengths that texts like ``M=10,N=20`` give.

    :raises click.UsageError: if one is no length, or is given twice.
    """
    return _name_value_pairs("--size", (part for text in sizes for part in text.split(",")), _parse_length)


def _epilogue_arrays(e: BatchedEinsum, then: Sequence[str], types: Mapping[str, str]) -> dict[str, Array]:
    """The arrays that epilogues read besides the operands."""
    known = {a.name for a in e.arrays}
    return {
        name: array(name, tuple(e.index_sizes[x] for x in letters), types.get(name, e.dtype))
        for text in then
        for name, letters in read_at(text).items()
        if name not in known and all(x in e.indexing.output for x in letters)
    }


def _name_value_pairs(option: str, texts: Iterable[str], convert: Callable[[str, str], Any]) -> dict[str, Any]:
    """The mapping that ``NAME=VALUE`` texts spell; no name may come twice."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            shape = f", as in {option} {'A=20,20' if option == '--shape' else 'i=20,j=20'}" if option != "--dtype" else ""
            raise click.UsageError(f"{option} is {text!r}; write {option} NAME=VALUE{shape}")
        if name in found:
            raise click.UsageError(f"{option} is given twice{f' for {name!r}' if name else ''}")
        found[name] = convert(name, value.strip())
    return found


def _parse_length(name: str, text: str) -> int:
    try:
        length = int(text)
    except ValueError:
        length = _parse_whole(text)
    if length < 0:
        message = f"--size {name}={text}: a length is a whole number such as 20, 100_000 or 1e6"
        several = "; each index has one of its own: --size i=20,j=20" if axes_in(text) else ""
        raise click.UsageError(message + several)
    return length


def _parse_whole(text: str) -> int:
    """A whole number in the notation of floating-point numbers; -1 for anything else.

    >>> _parse_whole("1e6"), _parse_whole("2.5e3"), _parse_whole("2.5"), _parse_whole("inf"), _parse_whole("many")
    (1000000, 2500, -1, -1, -1)
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        return -1
    return int(value) if value.is_finite() and value < 2**63 and value == int(value) else -1


def _parse_axes(name: str, text: str) -> tuple[Axis, ...]:
    """``3,20,E`` as a shape; nothing is the shape of a scalar."""
    words = [word.strip() for word in text.strip("()").split(",")] if text.strip("()") else []
    if words and not words[-1]:
        words.pop()  # as in (20,)
    if any(map(axes_in, words)):
        axes = ",".join(axis for word in words for axis in axes_in(word) or [word])
        raise click.UsageError(f"--shape {name}={text}: axes are separated by commas; write --shape {name}={axes}")
    return tuple(_axis_word(word) for word in words)


def _axis_word(word: str) -> Axis:
    try:
        return math.inf if word == "inf" else int(word)
    except ValueError:
        return length if (length := _parse_whole(word)) >= 0 else word


def _array_names(
    subscripts: str, count: int, shaped: tuple[str, ...], rows: tuple[str, ...]
) -> Sequence[Sequence[tuple[str, ...]]]:
    """The names of the arrays of every operand of every output."""
    if rows:
        return [[tuple(name.strip() for name in entry.split("*")) for entry in row.split(",")] for row in rows]
    if shaped and len(shaped) != count:
        raise click.UsageError(
            f"'{subscripts}' has {count} operands, but the number of --shape is {len(shaped)};"
            " give one for each operand, in order, or name the operands with --row"
        )
    return [[(name,) for name in shaped or _default_names(count)]]


def _default_names(count: int) -> list[str]:
    """``A``, ``B``, ``C``, ..."""
    capitals = INDEX_LETTERS[26:]
    return [capitals[k] if k < len(capitals) else f"{capitals[k % 26]}{k // 26}" for k in range(count)]


def _operand_shape(subscripts: str, operand: int, lengths: Mapping[str, int], long: Sequence[str]) -> tuple[Axis, ...]:
    """The axes of an operand, from the lengths of its indices."""
    if "..." in subscripts:
        raise click.UsageError(f"'{subscripts}' has an ellipsis; give --shape NAME=AXES for every operand")
    inputs = parse_subscripts(subscripts).inputs
    shape: list[Axis] = []
    for letter in inputs[operand] if operand < len(inputs) else ():
        if letter not in lengths and letter not in long:
            raise click.UsageError(
                f"index '{letter}' of '{subscripts}' has no length; give --size {letter}=LENGTH,"
                f" and --long {letter} if it varies from call to call"
            )
        shape.append(math.inf if letter in long else lengths[letter])
    return tuple(shape)


def _lengths_of_long_axes(e: BatchedEinsum, lengths: Mapping[str, int]) -> dict[str, int]:
    """`lengths` by name of long axis; those of fixed axes are only checked."""
    names = {letter: axis if isinstance(axis, str) else letter for letter, axis in e.index_sizes.items()}
    found: dict[str, int] = {}
    for key, length in lengths.items():
        axis = e.index_sizes.get(key)
        if key in e.long_axes:
            found[key] = length
        elif axis is None:
            there = ", ".join(dict.fromkeys((*names, *e.long_axes)))
            raise click.UsageError(f"--size names '{key}', but the indices and long axes are {there}")
        elif isinstance(axis, int) and axis != length:
            raise click.UsageError(f"--size {key}={length}, but index '{key}' is {axis} in --shape; drop one of them")
        elif not isinstance(axis, int):
            found.setdefault(names[key], length)
    return found
