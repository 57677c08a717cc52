"""The derivative of an einsum in one of its operands, which is an einsum again.

Of ``out[o] = Σ Π_i a_i[s_i]`` in the operand k, for the cotangent g of the result::

    da_k[u] = Σ g[o] Π_{i≠k} conj(a_i)[s_i]        u: the indices of s_k, each once

An index of s_k that stands nowhere else is only summed over, so the derivative is the same all along it; one that is
repeated in s_k has it on the diagonal; an axis of length one that goes with longer ones has the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feinsum.errors import ShapeError
from feinsum.subscripts import from_names, parse_symbols

Shape = Sequence[Any]
"""Lengths of axes: numbers, or symbols that a compiler computes with."""


@dataclass(frozen=True)
class Spelled:
    """An einsum without ellipsis and with its output.

    :ivar terms: the indices of each operand.
    :ivar lengths: of every index; axes of length one go with any.
    """

    terms: tuple[str, ...]
    output: str
    lengths: Mapping[str, Any]

    @property
    def text(self) -> str:
        """``ij,jk->ik``."""
        return f"{','.join(self.terms)}->{self.output}"

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the result."""
        return tuple(self.lengths[letter] for letter in self.output)


def spell(subscripts: str, shapes: Sequence[Shape]) -> Spelled:
    """Read subscripts for operands of these shapes.

    :raises SubscriptError, ShapeError: if they do not fit.
    """
    terms, output = parse_symbols(subscripts, tuple(map(len, shapes)))
    lengths: dict[str, Any] = {}
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for letter, length in zip(term, shape, strict=True):
            known = lengths.setdefault(letter, length)
            if length != known and known != 1 and length != 1:
                raise ShapeError(f"index '{letter}' is {known} in '{subscripts}' but {length} in operand {k}")
            if known == 1:
                lengths[letter] = length
    return Spelled(terms, output, lengths)


def from_interleaved_form(given: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts and operands of the form in which a list of indices follows each operand, and maybe one for the result.

    :raises SubscriptError: if one is no list of such.

    >>> from_interleaved_form(["a", [0, 1], "b", [1, 2], [0, 2]])
    ('ab,bc->ac', ('a', 'b'))
    """
    paired = len(given) // 2 * 2
    output = given[paired] if len(given) > paired else None
    return from_names(given[1:paired:2], output), tuple(given[:paired:2])


@dataclass(frozen=True)
class Derivative:
    """The einsum for the cotangent of an operand.

    :ivar subscripts: the einsum of the cotangent of the result and the other operands, in their order.
    :ivar indices: each index of the operand once, in order.
    :ivar summed: those of which the result of the einsum has an axis; the others are put in, as long as `shape` says.
    :ivar repeated: the axes of the operand, by number of the index in `indices`.
    """

    subscripts: str
    indices: str
    summed: str
    repeated: tuple[int, ...]
    shape: tuple[Any, ...]

    @property
    def new_axes(self) -> tuple[int, ...]:
        """The letters of `indices` that the result of the einsum lacks."""
        return tuple(k for k, letter in enumerate(self.indices) if letter not in self.summed)

    @property
    def on_diagonal(self) -> bool:
        """Whether an index is repeated."""
        return len(self.indices) < len(self.repeated)


def derivative(e: Spelled, k: int, shape: Shape) -> Derivative:
    """The derivative in operand `k`, which has this shape."""
    term = e.terms[k]
    others = [other for position, other in enumerate(e.terms) if position != k]
    indices = "".join(dict.fromkeys(term))
    own = dict(zip(term, shape, strict=True))
    elsewhere = set(e.output).union(*others)
    stretched = {letter for letter in indices if own[letter] == 1 and e.lengths[letter] != 1}
    summed = "".join(letter for letter in indices if letter in elsewhere and letter not in stretched)
    repeated = tuple(indices.index(letter) for letter in term)
    lengths = tuple(own[letter] for letter in indices)
    return Derivative(",".join([e.output, *others]) + f"->{summed}", indices, summed, repeated, lengths)


def derivative_steps(e: Spelled, path: Sequence[Sequence[int]]) -> list[tuple[tuple[int, ...], str]]:
    """The einsums of a path: which values each takes out of the pool, to whose end its result is added, and how.

    >>> derivative_steps(spell("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), [(1, 2), (0, 1)])
    [((1, 2), 'jk,kl->jl'), ((0, 1), 'ij,jl->il')]
    """
    pool, found = list(e.terms), []
    for positions in path:
        taken = [pool[k] for k in positions]
        pool = [term for k, term in enumerate(pool) if k not in positions]
        needed = set(e.output).union(*pool)
        result = "".join(x for x in dict.fromkeys("".join(taken)) if x in needed) if pool else e.output
        found.append((tuple(positions), f"{','.join(taken)}->{result}"))
        pool.append(result)
    return found


def batched_subscripts(subscripts: str, shapes: Sequence[Shape], at: Sequence[int | None]) -> str:
    """The einsum for a batch, whose axis is the first one of the result, as of every operand that has one.

    :param shapes: of the operands, with the axis of the batch.
    :param at: not None of the operands that have one.

    >>> batched_subscripts("ij,jk->ik", [(9, 2, 3), (3, 4)], [0, None])
    'aij,jk->aik'
    """
    e = spell(subscripts, [shape if axis is None else shape[1:] for shape, axis in zip(shapes, at, strict=True)])
    known = {*e.output, *"".join(e.terms)}
    letters = map(chr, (*range(ord("a"), ord("z") + 1), *range(ord("A"), ord("Z") + 1), *range(0xC0, 0x4000)))
    batch = next(letter for letter in letters if letter.isalpha() and letter not in known)
    terms = [term if axis is None else batch + term for term, axis in zip(e.terms, at, strict=True)]
    return f"{','.join(terms)}->{batch}{e.output}"


def matching_positions(have: Sequence[int], want: Sequence[int]) -> list[int]:
    """The position in `have` of each number of `want`; repeated numbers take their places one after the other.

    >>> matching_positions([0, 0, 1], [0, 1, 0])
    [0, 2, 1]
    """
    left: dict[int, list[int]] = {}
    for place, number in enumerate(have):
        left.setdefault(number, []).append(place)
    return [left[number].pop(0) for number in want]
