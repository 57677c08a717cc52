"""Batched einsums: ``R_i[out] = Σ Π_j A_ij[E_j]``, an indexing expression E over an m x n matrix A of sets of arrays.

Row i of the matrix computes output i; the entry at column j is the set of arrays whose elementwise product is operand j
(the definition of a batched einsum, doc/explanation/design).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from feinsum.arrays import DTYPES, Array, Axis, array, format_axis, is_identifier
from feinsum.axes import group_long_axes
from feinsum.epilogue import Epilogue, check_types, uses_of
from feinsum.epilogue.text import parse_tree
from feinsum.epilogue.tree import Read, Sum, walk_tree
from feinsum.errors import DTypeError, ShapeError, SubscriptError
from feinsum.lengths import check_repeated, common_lengths, resolve_lengths
from feinsum.subscripts import INDEX_LETTERS, Subscripts, from_interleaved, parse_subscripts

__all__ = ["DTYPES", "Array", "Axis", "BatchedEinsum", "array", "batched_einsum", "einsum", "format_axis", "is_identifier"]


@dataclass(frozen=True)
class BatchedEinsum:
    """A batched einsum: one indexing expression applied to every row of a matrix of sets of arrays.

    Made by :func:`einsum` or :func:`batched_einsum`.  Equality is literal; see :func:`feinsum.is_isomorphic` for
    equality up to names and order.

    :ivar indexing: the indexing expression.
    :ivar args: ``args[i][j]`` holds the arrays whose elementwise product is operand j of output i, in order of name.
    :ivar epilogues: the functions that are applied to the sum of each row before it is stored; None for a row without one,
        and empty if no row has one.  A single epilogue of several rows makes one output of the sums of all.
    """

    indexing: Subscripts
    args: tuple[tuple[tuple[Array, ...], ...], ...]
    epilogues: tuple[Epilogue | None, ...] = ()

    def __post_init__(self) -> None:
        if not self.args:
            raise ShapeError("a batched einsum needs at least one row of operands")
        for i, row in enumerate(self.args):
            if len(row) != self.n:
                raise SubscriptError(f"row {i} has {len(row)} operands but '{self.subscripts}' has {self.n}")
        _settle_epilogues(self)
        _check_array_names(self)
        _check_axes(self)
        for own, dtype in zip(self.epilogues, self.dtypes, strict=False):
            if own is not None:
                check_types(own, dtype, own.text(self.indexing.output))

    @property
    def subscripts(self) -> str:
        """The indexing expression as text, with explicit output: ``"xre,rij,ej->xei"``."""
        return str(self.indexing)

    @property
    def b(self) -> int:
        """The number of rows, m in the definition, and of outputs, unless an epilogue makes one of all."""
        return len(self.args)

    @property
    def combines(self) -> bool:
        """Whether an epilogue makes one output of the sums of several rows."""
        return len(self.epilogues) < self.b and bool(self.epilogues)

    @property
    def n(self) -> int:
        """The number of operands."""
        return len(self.indexing.inputs)

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """Every input array once, in order of appearance; those that only epilogues read come last."""
        return tuple(dict.fromkeys([*(a for row in self.args for entry in row for a in entry), *self._epilogue_arrays]))

    @cached_property
    def index_sizes(self) -> Mapping[str, Axis]:
        """The length of each index; a long axis by its name or ``math.inf``."""
        found = common_lengths(self._placed(), self.subscripts)
        return {letter: found[letter] for letter in self.indexing.indices}

    def _placed(self) -> Iterator[tuple[str, Array, str]]:
        """Every place of an array: its name in errors, the array, and its indices there."""
        for i, row in enumerate(self.args):
            for k, (entry, axes) in enumerate(zip(row, self.indexing.inputs, strict=True)):
                for a in entry:
                    yield f"operand {k} ('{a.name}')" if self.b == 1 else f"operand {k} of row {i} ('{a.name}')", a, axes
        for a, axes in uses_of(self.epilogues, self.indexing.output):
            yield f"the epilogue's '{a.name}'", a, axes

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
        """The element type of each output, that of its row; of an output that all rows are for, theirs."""
        return self.row_dtypes[:1] if self.combines else self.row_dtypes

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of the outputs together, the :func:`numpy.result_type` of :attr:`dtypes`."""
        return np.result_type(*self.dtypes)

    @cached_property
    def row_dtypes(self) -> tuple[np.dtype[Any], ...]:
        """The element type of the sum of each row, the :func:`numpy.result_type` of the arrays in it."""
        return tuple(np.result_type(*(a.dtype for entry in row for a in entry)) for row in self.args)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """A name for each output: ``out``, or ``out_0``, ``out_1``, ..., with underscores where something has that name."""
        taken = {a.name for a in self.arrays} | set(map(str, self.index_sizes.values())) | set(self.scalars)
        stem = "out"
        while True:
            names = (stem,) if self.b == 1 or self.combines else tuple(f"{stem}_{i}" for i in range(self.b))
            if not taken & set(names):
                return names
            stem += "_"

    @cached_property
    def length_names(self) -> Mapping[str, str]:
        """The name of the value argument of a kernel that holds the length of each index with a long axis.

        That is the name of the axis, or ``n_e`` for an anonymous long axis of index e, with underscores where taken.
        Indices of equal length have one name.
        """
        taken = {a.name for a in self.arrays} | set(self.output_names) | set(map(str, self.index_sizes.values()))
        taken |= set(self.scalars)
        names: dict[str, str] = {}
        for group in self.equal_long_axes:
            written = sorted(axis for letter in group if isinstance(axis := self.index_sizes[letter], str))
            name = written[0] if written else f"n_{group[0]}"
            while not written and name in taken:
                name += "_"
            taken.add(name)
            names |= dict.fromkeys(group, name)
        return names

    @cached_property
    def equal_long_axes(self) -> list[str]:
        """The indices with long axes, in groups of equal length: of one name, or lent by one array to several indices."""
        return group_long_axes(self.indexing, self.args, self.index_sizes, uses_of(self.epilogues, self.indexing.output))

    def resolve(self, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
        """The length of every index, with those of long axes taken from `sizes`.

        :param sizes: lengths by name of long axis, or by index letter where no axis has that name.
        :raises ShapeError: if a long axis has no length, a key is neither, or two lengths contradict each other.
        """
        lengths = resolve_lengths(self.subscripts, self.index_sizes, sizes)
        if len(self.array_uses) > len(self.arrays):
            check_repeated(self.subscripts, self.array_uses, lengths)
        return lengths

    def sizes_from(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """The inverse of :meth:`resolve_lengths`: lengths by long axis from the length of every index."""
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
            tuple(own and own.resized(axes[letter] for letter in self.indexing.output) for own in self.epilogues),
        )

    def then(self, text: str | Sequence[str | None], /, **arrays: Array) -> BatchedEinsum:
        """The einsum with an epilogue: ``out[o] = ω(v, out[o], b[j], ...)``, entry by entry of the output.

        In the text ``v`` is the sum and ``out`` the present content of the output, which is then updated in place; arrays
        are read at indices of the output, ``b[j]``; a name alone is a scalar that the call gives by that name, or an array
        without axes.  There are ``+ - * / **``, comparisons, ``and``, ``or``, ``not``, ``where(c, a, b)``, ``min``,
        ``max``, the functions of OpenCL C (``exp``, ``tanh``, ``erf``, ...), and ``gelu`` (by the error function),
        ``gelu_tanh``, ``silu``, ``relu``, ``sigmoid``, ``pow`` and ``isnan``.  All values are computed in the type of the
        output, integers of 8 and 16 bits in 32 as in C.

        A constant zero times ``out`` is zero and reads nothing, and so is a scalar of the call that is zero, times ``out``,
        whatever the output holds (the rule of the BLAS).

        In a batched einsum, ``v0``, ``v1``, ... are the sums of its rows: a text that contains all of them makes one output
        of them, as ``silu(v0)*v1`` does.

        :param text: of all rows, or one for each row; None, or ``"v"``, stores the sum as it is.
        :param arrays: the arrays that the text reads, by their names there; arrays of the einsum need not be given again.
        :raises SubscriptError: if the text has no meaning, or there is an epilogue already.
        :raises ShapeError: if an array is not as long as the output, or has the name of something else.
        :raises DTypeError: if an array or a constant does not promote into the type of the output.

        >>> x, w = array("x", ("N", 8)), array("w", (8, 4))
        >>> print(einsum("ik,kj->ij", x, w).then("gelu(v + b[j])", b=array("b", 4)).epilogues[0].text("ij"))
        0.5*(v + b[j])*(erf(0.7071067811865476*(v + b[j])) + 1)
        >>> gated = batched_einsum("ik,kj->ij", [[x, w], [x, array("u", (8, 4))]]).then("silu(v0)*v1")
        >>> gated.b, gated.output_names, gated.epilogues[0].text("ij")
        (2, ('out',), 'v1*(v0/(exp(-v0) + 1))')
        """
        if self.epilogues:
            raise SubscriptError(
                f"'{self.subscripts}' has an epilogue already; call .then() on the einsum's .bare with one text for both"
            )
        texts = [text] * self.b if isinstance(text, str) else list(text)
        if len(texts) != self.b:
            raise SubscriptError(
                f"{len(texts)} epilogues for the {self.b} rows of '{self.subscripts}'; give one, or one a row"
            )
        for name, given in arrays.items():
            if not isinstance(given, Array):
                raise SubscriptError(f"{name} is {given!r}; what an epilogue reads is made by feinsum.array")
        own = {a.name: a for a in self.arrays} | arrays
        rows = self.b if isinstance(text, str) else 1
        written = [None if t is None else parse_tree(t, self.indexing.output, own, rows) for t in texts]
        read = {node.array for one in written if one for node in walk_tree(one) if isinstance(node, Read)}
        idle = [name for name, a in arrays.items() if a not in read]
        if idle:
            raise SubscriptError(f"'{idle[0]}' is given, but the epilogue '{text}' does not read it")
        made = tuple(None if one is None else Epilogue(one) for one in written)
        return replace(self, epilogues=made[:1] if made[0] is not None and made[0].rows else made)

    @cached_property
    def bare(self) -> BatchedEinsum:
        """The einsum without epilogues."""
        if not self.epilogues:
            return self
        alone = BatchedEinsum(self.indexing, self.args)
        # A long axis that has its name from an array of the epilogue keeps it.
        return alone if alone.index_sizes == self.index_sizes else alone.with_sizes(self.index_sizes)

    @cached_property
    def scalars(self) -> Mapping[str, np.dtype[Any]]:
        """The scalars that a call gives: name -> type, that of the outputs whose epilogues have them."""
        types: dict[str, np.dtype[Any]] = {}
        for own, dtype in zip(self.epilogues, self.dtypes, strict=False):
            for name in own.scalars if own else ():
                if types.setdefault(name, dtype) != dtype:
                    raise DTypeError(
                        f"'{name}' is a number for outputs of {types[name]} and of {dtype}; give the epilogues of rows of"
                        " different types numbers of different names"
                    )
        return types

    @cached_property
    def updates(self) -> tuple[bool, ...]:
        """For each output whether its present content is read, so that it is updated in place."""
        own = self.epilogues or (None,) * self.b
        return tuple(one is not None and one.reads_output for one in own)

    @cached_property
    def _epilogue_arrays(self) -> tuple[Array, ...]:
        return tuple(a for a, _ in uses_of(self.epilogues, self.indexing.output))

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
        """The bytes that must move at least: every entry that is needed read once, every output written once.

        An output that is updated is read once, too.

        If only diagonals of an array are needed, as in ``ii->i``, only their entries count.
        """
        lengths = self.resolve(sizes)
        entries: dict[Array, int] = {}
        for a, letters in self.array_uses:
            entries[a] = max(entries.get(a, 0), math.prod(lengths[letter] for letter in set(letters)))
        present = sum(dt.itemsize for dt, update in zip(self.dtypes, self.updates, strict=True) if update)
        return self._bytes(entries, lengths) + present * math.prod(lengths[letter] for letter in self.indexing.output)

    def array_bytes(self, sizes: Mapping[str, int] | None = None) -> int:
        """The bytes of all arrays, outputs among them, including entries off the diagonal where only a diagonal is
        needed."""
        lengths = self.resolve(sizes)
        return self._bytes({a: math.prod(lengths[letter] for letter in letters) for a, letters in self.array_uses}, lengths)

    def _bytes(self, entries: Mapping[Array, int], lengths: Mapping[str, int]) -> int:
        """The bytes of so many entries of inputs, and of the outputs."""
        total = sum(a.dtype.itemsize * count for a, count in entries.items())
        return total + sum(dt.itemsize for dt in self.dtypes) * math.prod(
            lengths[letter] for letter in self.indexing.output
        )

    @cached_property
    def array_indices(self) -> Mapping[Array, str]:
        """Each input array with the indices of the first operand it stands in."""
        found: dict[Array, str] = {}
        for a, letters in self.array_uses:
            found.setdefault(a, letters)
        return found

    @cached_property
    def array_uses(self) -> tuple[tuple[Array, str], ...]:
        """Each input array with the indices of every operand it stands in, no pair twice, in order of appearance."""
        operands = (
            (a, letters)
            for row in self.args
            for entry, letters in zip(row, self.indexing.inputs, strict=True)
            for a in entry
        )
        return tuple(dict.fromkeys([*operands, *uses_of(self.epilogues, self.indexing.output)]))

    def _repr_html_(self) -> str:
        from feinsum.report.displays import einsum_html

        return einsum_html(self)

    def _repr_latex_(self) -> str:
        from feinsum.report.displays import einsum_latex

        return einsum_latex(self)

    def __repr__(self) -> str:
        return f"<BatchedEinsum {self}>"

    def __str__(self) -> str:
        """The rows of names and the arrays: ``xre,rij,ej->xei [J D u] J: float64[3, 3, E] ...``."""
        rows = "; ".join(" ".join("*".join(a.name for a in entry) for entry in row) for row in self.args)
        written = [own.text(self.indexing.output) if own else "v" for own in self.epilogues]
        then = f" then {'; '.join(written if len(set(written)) > 1 else written[:1])}" if written else ""
        return f"{self.subscripts} [{rows}]{then} {', '.join(map(str, self.arrays))}"


def _settle_epilogues(e: BatchedEinsum) -> None:
    """Write None for epilogues that do nothing, and nothing where that is all of them."""
    own = tuple(None if one is None or one.expression == Sum() else one for one in e.epilogues)
    object.__setattr__(e, "epilogues", own if any(own) else ())
    numbered = [one for one in own if one is not None and one.rows]
    if numbered and (len(own) > 1 or numbered[0].rows != tuple(range(e.b)) or e.b == 1):
        raise SubscriptError(f"an epilogue of several rows of '{e.subscripts}' is the only one, and of all {e.b} rows")
    if numbered and len(set(e.row_dtypes)) > 1:
        types = ", ".join(f"v{k} is {dtype}" for k, dtype in enumerate(e.row_dtypes))
        raise DTypeError(f"one output is made of rows of one type, and {types}; convert arrays, or write two einsums")
    if not numbered and len(e.epilogues) not in (0, e.b):
        raise SubscriptError(f"{len(e.epilogues)} epilogues for the {e.b} rows of '{e.subscripts}'; there is one for each")


def _check_array_names(e: BatchedEinsum) -> None:
    """Refuse two arrays of one name, one array twice in an entry, and an array or scalar named like something else."""
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
    for a, _ in uses_of(e.epilogues, e.indexing.output):
        if known.setdefault(a.name, a) != a:
            raise ShapeError(f"two arrays are named '{a.name}': {known[a.name]} and {a}, which an epilogue reads")
    axes = {axis for a in known.values() for axis in a.shape if isinstance(axis, str)}
    for name in sorted(axes & set(known)):
        raise ShapeError(f"'{name}' names both an array and a long axis; rename one of them")
    for name in sorted(set(e.scalars) & (axes | set(known))):
        kind = "a long axis" if name in axes else "an array"
        raise ShapeError(f"'{name}' names both {kind} and a number that the epilogue takes; rename one of them")


def _check_axes(e: BatchedEinsum) -> None:
    """Refuse lengths that contradict each other, and an anonymous long axis that goes by the name of another axis."""
    named = {axis for axis in e.index_sizes.values() if isinstance(axis, str)}
    for letter, axis in e.index_sizes.items():
        if axis == math.inf and letter in named:
            raise ShapeError(
                f"index '{letter}' of '{e.subscripts}' is an anonymous long axis, which goes by its letter, but another"
                f" long axis is named '{letter}'; name the anonymous one"
            )


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


def batched_einsum(subscripts: str, rows: Iterable[Iterable[Any]]) -> BatchedEinsum:
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
    data: dict[int, tuple[Any, Array]] = {}
    if isinstance(rows, Array):
        raise SubscriptError(f"rows is the array '{rows.name}', not a list of rows; write [[...]] for a single row")
    rows = tuple(rows)
    for i, row in enumerate(rows):
        if isinstance(row, Array):
            raise SubscriptError(
                f"row {i} is the array '{row.name}', not a list of operands; write [[...]] for a single row"
            )
    matrix = tuple(
        tuple(_matrix_entry(operand, f"operand {k} of row {i}", data) for k, operand in enumerate(row))
        for i, row in enumerate(rows)
    )
    made = {a.name: a for _, a in data.values()}
    for a in (a for row in matrix for entry in row for a in entry):
        if made.get(a.name, a) is not a:
            raise ShapeError(f"an array is named '{a.name}', and so is one that was given as data; rename the first")
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


def _matrix_entry(operand: Any, where: str, data: dict[int, tuple[Any, Array]]) -> tuple[Array, ...]:
    """The arrays of one entry of the matrix, by name; `data` maps the id of an object that holds data to both."""
    if isinstance(operand, (tuple, set, frozenset)):
        members = [a for part in operand for a in _matrix_entry(part, where, data)]
        if not members:
            raise SubscriptError(f"{where} is an empty set of arrays")
        return tuple(sorted(members, key=lambda a: a.name))
    if isinstance(operand, Array):
        return (operand,)
    if id(operand) not in data:
        values = np.asarray(operand) if np.isscalar(operand) and not isinstance(operand, str) else operand
        if not hasattr(values, "shape") or not hasattr(values, "dtype"):
            raise ShapeError(f"{where} is {operand!r}; an operand is made by feinsum.array, or has a shape and a dtype")
        # The object is kept, so that no other one has its id meanwhile.
        data[id(operand)] = operand, array(f"arg_{len(data)}", tuple(values.shape), values.dtype)
    return (data[id(operand)][1],)


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
    spare = [letter for letter in reversed(INDEX_LETTERS) if letter not in indexing.indices]
    inputs = []
    for letters, entry in zip(indexing.inputs, matrix[0], strict=True):
        renamed = ""
        for letter, axis in zip(letters, entry[0].shape, strict=True):
            own = letter not in named and axis == 1 and longest[letter] != 1
            if own and not spare:
                raise SubscriptError(f"'{text}' needs more than the {len(INDEX_LETTERS)} indices there are letters for")
            renamed += spare.pop() if own else letter
        inputs.append(renamed)
    return BatchedEinsum(Subscripts(tuple(inputs), indexing.output), matrix)


def require_einsum(e: Any) -> None:
    """Check that something is a batched einsum.

    :raises SubscriptError: if it is not, with how to make one.
    """
    if not isinstance(e, BatchedEinsum):
        raise SubscriptError(f"a batched einsum is needed, not {e!r}; make one with feinsum.einsum")
