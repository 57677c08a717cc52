"""The key, a text that determines a canonical form:

    1|bc,ac->ab|a=inf b=35 c=35|A0=float64|500*[A0,float64]

The parts are the version of the format, the indexing expression, the axis of each index, the types of the arrays that
several rows share, and the rows with their multiplicities.  ``N0``, ``N1``, ... is a long axis of several indices and
``inf`` one of a single index.  In a row, ``float64`` is an array that stands nowhere else, ``float64#0`` one that stands in
several operands of this row only, and ``A0*float64`` the product of two arrays.  What epilogues make of the sums follows,
if there are any: see :mod:`feinsum.canonicalization.canonical_epilogues`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from feinsum.arrays import DTYPES, Array, Axis
from feinsum.canonicalization.canonical_epilogues import MARK, read_suffix
from feinsum.einsum import BatchedEinsum
from feinsum.errors import DTypeError, ShapeError, SubscriptError
from feinsum.subscripts import Subscripts

FORMAT = "1"
"""The version of the format; another text for the same canonical form is another version."""

MAX_MEMBERS = 2**16
"""The most places of arrays in a matrix that a key may describe, since 20 letters can ask for all memory there is;
a matrix of 500 rows and 8 operands has 4000."""

_NUMBER = "(?:0|[1-9][0-9]{0,99})"
_AXIS = re.compile(rf"([a-zA-Z])=(?:(inf)|(N{_NUMBER})|({_NUMBER}))")
_SHARED = re.compile(rf"(A{_NUMBER})=([a-z0-9]+)")
_ROW = re.compile(r"(?:([1-9][0-9]{0,7})\*)?\[([^\[\]]*)\]")
_MEMBER = re.compile(rf"(?:A{_NUMBER}|([a-z0-9]+)(?:#{_NUMBER})?)")
_DTYPES = {dtype.name: dtype for dtype in DTYPES}

Row = tuple[tuple[str, ...], ...]
"""For each operand, its arrays: ``A0`` is shared by rows, ``float64`` and ``float64#0`` are arrays of this row."""


@dataclass(frozen=True)
class KeyForm:
    """The content of a key.

    :ivar axes: the axis of each index, in order of letter; one that several indices have in common is named ``N0``, ...
    :ivar shared: the types of ``A0``, ``A1``, ..., the arrays that several rows share.
    :ivar rows: each distinct row with its multiplicity.
    """

    indexing: Subscripts
    axes: tuple[tuple[str, Axis], ...]
    shared: tuple[str, ...]
    rows: tuple[tuple[int, Row], ...]

    @property
    def key(self) -> str:
        """The form as text."""
        axes = " ".join(f"{letter}={axis}" for letter, axis in self.axes)
        shared = " ".join(f"A{k}={dtype}" for k, dtype in enumerate(self.shared))
        rows = " ".join(f"{f'{times}*' if times > 1 else ''}[{','.join(map('*'.join, row))}]" for times, row in self.rows)
        return f"{FORMAT}|{self.indexing}|{axes}|{shared}|{rows}"

    def expand(self) -> BatchedEinsum:
        """The canonical einsum; the arrays of single rows are ``x0``, ``x1``, ... in order of appearance.

        :raises ShapeError, SubscriptError: if an array is asked to stand where its axes do not fit.
        """
        axes = dict(self.axes)
        arrays: dict[str, Array] = {}
        matrix = []
        for names in self._names():
            for entry, letters in zip(names, self.indexing.inputs, strict=True):
                for name, dtype in entry:
                    if name not in arrays:
                        arrays[name] = Array(name, tuple(axes[letter] for letter in letters), _DTYPES[dtype])
            matrix.append(tuple(tuple(arrays[name] for name, _ in sorted(entry)) for entry in names))
        einsum = BatchedEinsum(self.indexing, tuple(matrix))
        for letter, axis in einsum.index_sizes.items():
            if axis != axes[letter]:
                raise ShapeError(f"index '{letter}' is {axes[letter]} in the key but {axis} by the arrays that stand there")
        return einsum

    def _names(self) -> Iterator[tuple[tuple[tuple[str, str], ...], ...]]:
        """The rows of the matrix with the name and type of every array."""
        count = itertools.count()
        for times, row in self.rows:
            for _ in range(times):
                own: dict[str, str] = {}
                names = []
                for entry in row:
                    terms = []
                    for member in entry:
                        dtype, mark, _ = member.partition("#")
                        if member[0] == "A":
                            terms.append((member, self.shared[int(member[1:])]))
                        elif mark:
                            terms.append((own.get(member) or own.setdefault(member, f"x{next(count)}"), dtype))
                        else:
                            terms.append((f"x{next(count)}", dtype))
                    names.append(tuple(terms))
                yield tuple(names)


def is_key(text: str) -> bool:
    """Whether the key of a record is that of an einsum; others are of programs."""
    return text.startswith(f"{FORMAT}|")


def parse_key(key: str) -> BatchedEinsum:
    """The canonical einsum that `key` describes.

    The text is data: it is read by its grammar and can do nothing else.

    :raises SubscriptError: if the text is no key of this format, or describes a matrix of more than 2**16 places.
    :raises ShapeError: if its axes contradict its indices or arrays.
    :raises DTypeError: if it names an unknown type.

    >>> print(parse_key("1|ac,cb->ab|a=inf b=8 c=4||[float64,float32]"))
    ac,cb->ab [x0 x1] x0: float64[∞, 4], x1: float32[4, 8]
    """
    parts = key.split("|") if isinstance(key, str) else []
    if len(parts) == 7 and parts[5].startswith(MARK):
        return read_suffix(parse_key("|".join(parts[:5])), parts[5].removeprefix(MARK), parts[6])
    if len(parts) != 5 or parts[0] != FORMAT:
        raise SubscriptError(
            f"{_shortened(key)} is no key of format {FORMAT}, which reads '{FORMAT}|subscripts|axes|arrays|rows';"
            " make keys by canonicalize_einsum"
        )
    left, arrow, right = parts[1].partition("->")
    if not arrow:
        raise SubscriptError(f"{_shortened(parts[1])} in the key are no subscripts with an output")
    indexing = Subscripts(tuple(left.split(",")), right)
    shared = _read_shared(parts[3])
    rows = _read_rows(parts[4], indexing, len(shared))
    return KeyForm(indexing, _read_axes(parts[2], indexing), shared, rows).expand()


def _read_axes(text: str, indexing: Subscripts) -> tuple[tuple[str, Axis], ...]:
    axes: dict[str, Axis] = {}
    for term in _split_text(text, " "):
        found = _AXIS.fullmatch(term)
        if not found or found[1] in axes:
            raise ShapeError(
                f"{_shortened(term)} in the key is no axis, or one given twice; an axis reads a=35, a=inf or a=N0"
            )
        axes[found[1]] = math.inf if found[2] else found[3] or int(found[4])
    if set(axes) != set(indexing.indices):
        raise ShapeError(f"the key has axes for {_shortened(''.join(axes))} but the indices of '{indexing}'")
    return tuple(axes.items())


def _read_shared(text: str) -> tuple[str, ...]:
    dtypes = []
    for k, term in enumerate(_split_text(text, " ")):
        found = _SHARED.fullmatch(term)
        if not found or found[1] != f"A{k}":
            raise ShapeError(f"{_shortened(term)} in the key does not describe array 'A{k}'; that reads A{k}=float64")
        dtypes.append(_known_dtype(found[2]))
    return tuple(dtypes)


def _read_rows(text: str, indexing: Subscripts, shared: int) -> tuple[tuple[int, Row], ...]:
    rows = []
    members = 0
    named: set[str] = set()
    for term in text.split(" "):
        found = _ROW.fullmatch(term)
        if not found:
            raise SubscriptError(f"{_shortened(term)} in the key is no row; a row reads [A0,float64] or 500*[A0,float64]")
        row = tuple(tuple(entry.split("*")) for entry in found[2].split(","))
        if len(row) != len(indexing.inputs):
            raise SubscriptError(f"{_shortened(term)} in the key has {len(row)} operands but '{indexing}' has others")
        times = int(found[1] or 1)
        members += times * sum(map(len, row))
        if members > MAX_MEMBERS:
            raise SubscriptError(f"the key describes a matrix of more than {MAX_MEMBERS} places for arrays")
        named.update(_read_member(member, shared) for entry in row for member in entry)
        rows.append((times, row))
    idle = [f"A{k}" for k in range(shared) if f"A{k}" not in named]
    if idle:
        raise ShapeError(f"the key describes array '{idle[0]}', which stands in no row")
    return tuple(rows)


def _read_member(member: str, shared: int) -> str:
    found = _MEMBER.fullmatch(member)
    if not found:
        raise SubscriptError(f"{_shortened(member)} in the key is no array; an array reads A0, float64 or float64#0")
    if found[1]:
        _known_dtype(found[1])
    elif int(member[1:]) >= shared:
        raise ShapeError(f"array {_shortened(member)} stands in a row of the key but has no type there")
    return member


def _known_dtype(dtype: str) -> str:
    if dtype not in _DTYPES:
        raise DTypeError(f"{_shortened(dtype)} in the key is no type of arrays; those are {', '.join(_DTYPES)}")
    return dtype


def _split_text(text: str, separator: str) -> Sequence[str]:
    return text.split(separator) if text else []


def _shortened(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
