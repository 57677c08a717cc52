"""Batched einsums: ``R_i[out] = Σ Π_j A_ij[E_j]``, an indexing expression E over an m x n matrix A of sets of arrays.

Row i of the matrix computes output i; the entry at column j is the set of arrays whose elementwise product is operand j
(the definition of a batched einsum, doc/design).  An axis is a length, the name of a *long axis* (a length known only
when the kernel is called), or ``math.inf`` (a long axis without a name).
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from feinsum.errors import DTypeError, ShapeError, SubscriptError
from feinsum.subscripts import INDEX_LETTERS, Subscripts, from_interleaved, parse_subscripts

Axis = int | str | float
"""A length, the name of a long axis, or ``math.inf``."""

DTYPES = tuple(
    np.dtype(name)
    for name in "float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
)
"""The element types of arrays: the numpy types that OpenCL C computes with."""

_RESERVED = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool half uchar
    ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t kernel global local constant private generic pipe uniform
    read_only write_only read_write image1d_t image2d_t image3d_t sampler_t event_t main complex imaginary NULL true false
    """.split()
)


@dataclass(frozen=True)
class Array:
    """The name, shape and element type of an array; no data.  Made by :func:`array`."""

    name: str
    shape: tuple[Axis, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(format_axis(axis) for axis in self.shape)}]"


def array(name: str, shape: Axis | Iterable[Axis], dtype: Any = "float64") -> Array:
    """Describe an array.

    :param name: an identifier of C; the keyword by which a kernel takes the array.
    :param shape: one entry an axis: its length, the name of a long axis, or ``math.inf``.
    :param dtype: float32, float64, complex64, complex128 or an integer type, in any spelling numpy takes.
    :raises ShapeError: if the name is none, or an axis is negative or not a length.
    :raises DTypeError: if OpenCL has no such number (float16 and bool among them).

    >>> print(array("u", ("E", 35), "float32"))
    u: float32[E, 35]
    """
    if not is_identifier(name):
        raise ShapeError(
            f"{name!r} cannot name an array; use an identifier of C that is no keyword and does not begin with '_'"
        )
    axes: tuple[Any, ...] = tuple(shape) if isinstance(shape, Iterable) and not isinstance(shape, str) else (shape,)
    return Array(name, tuple(_axis(axis, k, name) for k, axis in enumerate(axes)), _dtype(dtype, name))


def is_identifier(name: object) -> bool:
    """Whether `name` may name an array or a long axis: an identifier of C, no keyword, with a letter in front."""
    return (
        isinstance(name, str)
        and name.isidentifier()
        and name.isascii()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
        and name not in _RESERVED
    )


def format_axis(axis: Axis) -> str:
    """``35``, ``E`` or ``∞``."""
    return "∞" if axis == math.inf else str(axis)


def _axis(axis: Any, k: int, name: str) -> Axis:
    if isinstance(axis, str):
        if not is_identifier(axis):
            raise ShapeError(
                f"axis {k} of '{name}' is {axis!r}; a long axis is named by an identifier of C that is no keyword"
            )
        return axis
    if axis == math.inf:
        return math.inf
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise ShapeError(f"axis {k} of '{name}' is {axis!r}; an axis is a length, the name of a long axis or math.inf")
    if axis.__index__() < 0:
        raise ShapeError(f"axis {k} of '{name}' is {axis}; a length is not negative")
    return int(axis.__index__())


def _dtype(dtype: Any, name: str) -> np.dtype[Any]:
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise DTypeError(f"{dtype!r}, the type of '{name}', is not a data type: {error}") from None
    result = result.newbyteorder("=")
    if result not in DTYPES:
        hint = "; convert it to float32, whose range holds it" if result == np.float16 else ""
        raise DTypeError(f"'{name}' is {result}; arrays are {', '.join(map(str, DTYPES))}{hint}")
    return result


@dataclass(frozen=True)
class BatchedEinsum:
    """A batched einsum: one indexing expression applied to every row of a matrix of sets of arrays.

    Made by :func:`einsum` or :func:`batched_einsum`.  Equality is literal; see :func:`feinsum.is_isomorphic` for
    equality up to names and order.

    :ivar indexing: the indexing expression.
    :ivar args: ``args[i][j]`` holds the arrays whose elementwise product is operand j of output i, in order of name.
    """

    indexing: Subscripts
    args: tuple[tuple[tuple[Array, ...], ...], ...]

    def __post_init__(self) -> None:
        if not self.args:
            raise ShapeError("a batched einsum needs at least one row of operands")
        for i, row in enumerate(self.args):
            if len(row) != self.n:
                raise SubscriptError(f"row {i} has {len(row)} operands but '{self.subscripts}' has {self.n}")
        _check_names(self)
        _ = self.index_sizes

    @property
    def subscripts(self) -> str:
        """The indexing expression as text, with explicit output: ``"xre,rij,ej->xei"``."""
        return str(self.indexing)

    @property
    def b(self) -> int:
        """The number of outputs, m in the definition."""
        return len(self.args)

    @property
    def n(self) -> int:
        """The number of operands."""
        return len(self.indexing.inputs)

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """Every input array once, in order of appearance."""
        return tuple(dict.fromkeys(a for row in self.args for entry in row for a in entry))

    @cached_property
    def index_sizes(self) -> Mapping[str, Axis]:
        """The length of each index; a long axis by its name or ``math.inf``."""
        sizes: dict[str, Axis] = {}
        first: dict[str, str] = {}
        for i, row in enumerate(self.args):
            for k, (entry, axes) in enumerate(zip(row, self.indexing.inputs, strict=True)):
                for a in entry:
                    where = f"operand {k} ('{a.name}')" if self.b == 1 else f"operand {k} of row {i} ('{a.name}')"
                    if len(a.shape) != len(axes):
                        raise ShapeError(f"{where} has {len(a.shape)} axes but its subscripts '{axes}' name {len(axes)}")
                    for letter, axis in zip(axes, a.shape, strict=True):
                        known = sizes.setdefault(letter, axis)
                        here = first.setdefault(letter, where)
                        if (
                            known != axis
                            and math.inf in (known, axis)
                            and not isinstance(known, int)
                            and not isinstance(axis, int)
                        ):
                            sizes[letter] = axis if known == math.inf else known
                        elif known != axis:
                            raise ShapeError(
                                f"index '{letter}' is {format_axis(known)} in {here} but {format_axis(axis)} in {where}"
                                f" of '{self.subscripts}'; make the lengths equal"
                            )
        return {letter: sizes[letter] for letter in self.indexing.indices}

    @cached_property
    def long_axes(self) -> tuple[str, ...]:
        """The names of the long axes, in order of index; an axis of ``math.inf`` goes by the letter of its index."""
        return tuple(
            dict.fromkeys(
                letter if axis == math.inf else str(axis)
                for letter, axis in self.index_sizes.items()
                if not isinstance(axis, int)
            )
        )

    @property
    def shape(self) -> tuple[Axis, ...]:
        """The shape of every output."""
        return tuple(self.index_sizes[letter] for letter in self.indexing.output)

    @cached_property
    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        """The element type of each output, the :func:`numpy.result_type` of the arrays in its row."""
        return tuple(np.result_type(*(a.dtype for entry in row for a in entry)) for row in self.args)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of the outputs together, the :func:`numpy.result_type` of :attr:`dtypes`."""
        return np.result_type(*self.dtypes)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """A name for each output: ``out``, or ``out_0``, ``out_1``, ..., with underscores where an array has that name."""
        stem = "out"
        while True:
            names = (stem,) if self.b == 1 else tuple(f"{stem}_{i}" for i in range(self.b))
            if not {a.name for a in self.arrays} & set(names):
                return names
            stem += "_"

    @cached_property
    def length_names(self) -> Mapping[str, str]:
        """The name of the value argument of a kernel that holds the length of each index with a long axis.

        That is the name of the axis, or ``n_e`` for an anonymous long axis of index e, with underscores where taken.
        """
        taken = {a.name for a in self.arrays} | set(self.output_names) | set(map(str, self.index_sizes.values()))
        names: dict[str, str] = {}
        for letter, axis in self.index_sizes.items():
            if isinstance(axis, float):
                axis = f"n_{letter}"
                while axis in taken:
                    axis += "_"
                taken.add(axis)
            if isinstance(axis, str):
                names[letter] = axis
        return names

    def resolve(self, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
        """The length of every index, with those of long axes taken from `sizes`.

        :param sizes: lengths by name of long axis, or by index letter where no axis has that name.
        :raises ShapeError: if a long axis has no length, a key is neither, or a length contradicts a fixed axis.
        """
        given = dict(sizes or {})
        named = {axis for axis in self.index_sizes.values() if isinstance(axis, str)}
        for key, length in given.items():
            if key not in named and key not in self.index_sizes:
                raise ShapeError(f"sizes has {key!r}, which is neither a long axis nor an index of '{self.subscripts}'")
            if isinstance(length, bool) or not hasattr(length, "__index__") or length < 0:
                raise ShapeError(f"sizes[{key!r}] is {length!r}; a length is a non-negative integer")
        lengths: dict[str, int] = {}
        for letter, axis in self.index_sizes.items():
            name = axis if isinstance(axis, str) else letter
            key = letter if name not in given and letter not in named else name
            if isinstance(axis, int) and int(given.get(key, axis)) != axis:
                raise ShapeError(f"sizes[{key!r}] is {given[key]} but index '{letter}' of '{self.subscripts}' is {axis}")
            if not isinstance(axis, int) and key not in given:
                raise ShapeError(
                    f"the long axis '{name}' of '{self.subscripts}' has no length; pass sizes={{'{name}': ...}}"
                )
            lengths[letter] = axis if isinstance(axis, int) else int(given[key])
        return lengths

    def sizes_from(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """The inverse of :meth:`resolve`: lengths by long axis from the length of every index."""
        axes = self.index_sizes.items()
        return {x if isinstance(x, str) else at: lengths[at] for at, x in axes if not isinstance(x, int)}

    def with_sizes(self, sizes: Mapping[str, Axis]) -> BatchedEinsum:
        """The same einsum with the axes of the indices in `sizes` replaced."""
        axes = {**self.index_sizes, **sizes}
        return BatchedEinsum(
            self.indexing,
            tuple(
                tuple(
                    tuple(Array(a.name, tuple(axes[letter] for letter in letters), a.dtype) for a in entry)
                    for entry, letters in zip(row, self.indexing.inputs, strict=True)
                )
                for row in self.args
            ),
        )

    def flops(self, sizes: Mapping[str, int] | None = None, method: str = "shared") -> int:
        """The floating-point operations of one evaluation; an addition and a multiplication count one each.

        :param sizes: the lengths of long axes.
        :param method: ``"shared"``: along the cheapest order of pairwise contractions, a partial result that several
            outputs need counted once (what a roofline is drawn with); ``"pairwise"``: each output by itself;
            ``"naive"``: one loop nest per output.

        Complex numbers count as the operations on reals they take: four times as many.
        """
        from feinsum.flops import count_flops

        return count_flops(self, self.resolve(sizes), method)

    def min_bytes(self, sizes: Mapping[str, int] | None = None) -> int:
        """The bytes that must move at least: every array read once, every output written once."""
        lengths = self.resolve(sizes)
        total = 0
        for a, letters in self.array_indices.items():
            total += a.dtype.itemsize * math.prod(lengths[letter] for letter in letters)
        return total + sum(dt.itemsize for dt in self.dtypes) * math.prod(
            lengths[letter] for letter in self.indexing.output
        )

    @cached_property
    def array_indices(self) -> Mapping[Array, str]:
        """Each input array with the indices of the first operand it stands in."""
        found: dict[Array, str] = {}
        for row in self.args:
            for entry, letters in zip(row, self.indexing.inputs, strict=True):
                for a in entry:
                    found.setdefault(a, letters)
        return found

    def __str__(self) -> str:
        """The rows of names and the arrays: ``xre,rij,ej->xei [J D u] J: float64[3, 3, E] ...``."""
        rows = "; ".join(" ".join("*".join(a.name for a in entry) for entry in row) for row in self.args)
        return f"{self.subscripts} [{rows}] {', '.join(map(str, self.arrays))}"


def _check_names(e: BatchedEinsum) -> None:
    """Refuse two arrays of one name, one array twice in an entry, and an array named like a long axis."""
    known: dict[str, Array] = {}
    for i, row in enumerate(e.args):
        for k, entry in enumerate(row):
            if not entry:
                raise SubscriptError(f"operand {k} of row {i} of '{e.subscripts}' names no array")
            for a in entry:
                other = known.setdefault(a.name, a)
                if other.dtype != a.dtype:
                    raise DTypeError(
                        f"'{a.name}' is {other.dtype} in one place and {a.dtype} in another; rename one of the arrays"
                    )
                if other.shape != a.shape:
                    raise ShapeError(f"two arrays are named '{a.name}': {other} and {a}; rename one of them")
            names = [a.name for a in entry]
            if len(set(names)) < len(names):
                raise SubscriptError(
                    f"operand {k} of row {i} of '{e.subscripts}' names an array twice: {names};"
                    " an operand is a set of arrays, so write a square as two operands"
                )
    axes = {axis for a in known.values() for axis in a.shape if isinstance(axis, str)}
    for name in sorted(axes & set(known)):
        raise ShapeError(f"'{name}' names both an array and a long axis; rename one of them")


def einsum(subscripts: Any, *operands: Any) -> BatchedEinsum:
    """Describe an einsum with one output, in any form that :func:`numpy.einsum` takes.

    :param subscripts: ``"xre,rij,ej->xei"``, or the first operand of the interleaved form.
    :param operands: one :class:`Array` an operand (or a tuple of arrays, which stands for their elementwise product).
        Anything with a `shape` and a `dtype` (a numpy or pyopencl array, say) is described as ``arg_0``, ``arg_1``, ...;
        the same object twice is the same array.
    :raises SubscriptError: if the subscripts are malformed or do not fit the number of operands.
    :raises ShapeError: if ranks or lengths contradict each other.
    :raises DTypeError: if OpenCL has no such number.

    >>> e = einsum("ij,ej->ei", array("D", (35, 35)), array("u", ("E", 35)))
    >>> e.subscripts, e.shape, e.flops({"E": 1000})
    ('ij,ej->ei', ('E', 35), 2450000)
    """
    if isinstance(subscripts, str):
        return batched_einsum(subscripts, [list(operands)])
    terms: tuple[Any, ...] = (subscripts, *operands)
    if len(terms) < 2:
        raise SubscriptError("einsum takes subscripts and operands, or operands each followed by a list of indices")
    paired = len(terms) // 2 * 2
    text = from_interleaved([terms[k] for k in range(1, paired, 2)], terms[-1] if len(terms) > paired else None)
    return batched_einsum(text, [[terms[k] for k in range(0, paired, 2)]])


def batched_einsum(subscripts: str, rows: Sequence[Sequence[Any]]) -> BatchedEinsum:
    """Describe a batched einsum: the same subscripts applied to every row of operands.

    :param subscripts: in the grammar of :func:`numpy.einsum`.
    :param rows: the m x n matrix of operands; an entry is an :class:`Array` or a tuple (or set) of arrays, whose
        elementwise product is the operand.
    :raises SubscriptError, ShapeError, DTypeError: as :func:`einsum`.

    >>> R, J = array("R", (4, 4, 3)), array("J", (4, "E"))
    >>> v = [array(f"v{i}", (4, "E", 3)) for i in range(2)]
    >>> batched_einsum("ifj,fe,fej->ei", [[R, J, v[0]], [R, J, v[1]]]).b
    2
    """
    names: dict[int, Array] = {}
    matrix = tuple(
        tuple(_entry(operand, f"operand {k} of row {i}", names) for k, operand in enumerate(row))
        for i, row in enumerate(rows)
    )
    if not matrix or not matrix[0]:
        raise SubscriptError("a batched einsum needs at least one row with at least one operand")
    for i, row in enumerate(matrix):
        if len(row) != len(matrix[0]):
            raise SubscriptError(f"row {i} has {len(row)} operands but row 0 has {len(matrix[0])}; every row has as many")
        for k, entry in enumerate(row):
            for a in entry:
                if len(a.shape) != len(matrix[0][k][0].shape):
                    raise ShapeError(
                        f"operand {k} of row {i} ('{a.name}') has {len(a.shape)} axes"
                        f" but '{matrix[0][k][0].name}' in the same column has {len(matrix[0][k][0].shape)}"
                    )
    indexing = parse_subscripts(subscripts, tuple(len(entry[0].shape) for entry in matrix[0]))
    return _broadcast(subscripts, indexing, matrix)


def _entry(operand: Any, where: str, names: dict[int, Array]) -> tuple[Array, ...]:
    """The arrays of one entry of the matrix, by name."""
    if isinstance(operand, (tuple, set, frozenset)):
        members = [a for part in operand for a in _entry(part, where, names)]
        if not members:
            raise SubscriptError(f"{where} is an empty set of arrays")
        return tuple(sorted(members, key=lambda a: a.name))
    if isinstance(operand, Array):
        return (operand,)
    if np.isscalar(operand) and not isinstance(operand, str):
        operand = np.asarray(operand)
    if not hasattr(operand, "shape") or not hasattr(operand, "dtype"):
        raise ShapeError(f"{where} is {operand!r}; an operand is made by feinsum.array, or has a shape and a dtype")
    if id(operand) not in names:
        names[id(operand)] = array(f"arg_{len(names)}", tuple(operand.shape), operand.dtype)
    return (names[id(operand)],)


def _broadcast(text: str, indexing: Subscripts, matrix: tuple[tuple[tuple[Array, ...], ...], ...]) -> BatchedEinsum:
    """Give an axis of length one that an ellipsis broadcasts an index of its own, over which the sum is trivial."""
    if "..." not in text:
        return BatchedEinsum(indexing, matrix)
    named = set(text)
    longest: dict[str, Axis] = {}
    for letters, entry in zip(indexing.inputs, matrix[0], strict=True):
        for letter, axis in zip(letters, entry[0].shape, strict=True):
            if longest.get(letter, 1) == 1:
                longest[letter] = axis
    spare = iter(letter for letter in INDEX_LETTERS if letter not in indexing.indices)
    inputs = []
    for letters, entry in zip(indexing.inputs, matrix[0], strict=True):
        renamed = [
            next(spare) if letter not in named and axis == 1 and longest[letter] != 1 else letter
            for letter, axis in zip(letters, entry[0].shape, strict=True)
        ]
        inputs.append("".join(renamed))
    return BatchedEinsum(Subscripts(tuple(inputs), indexing.output), matrix)
