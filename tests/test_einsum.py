"""Descriptions of arrays and batched einsums: what they say of themselves, and every refusal with its reason."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import feinsum as fe
from feinsum.arrays import DTYPES
from feinsum.einsum import BatchedEinsum
from feinsum.errors import DTypeError, ShapeError, SubscriptError
from feinsum.subscripts import Subscripts

J, D, U, V = (
    fe.array("J", (3, 3, "E")),
    fe.array("D", (3, 20, 20)),
    fe.array("u", ("E", 20)),
    fe.array("v", ("E", 20), "float32"),
)
GRADIENT = fe.batched_einsum("xre,rij,ej->xei", [[J, D, U], [J, D, V]])


def vector(name: str, length: Any = 5, dtype: str = "float64") -> fe.Array:
    return fe.array(name, length, dtype)


def test_a_batched_einsum_describes_itself() -> None:
    """Rows, operands, shape, types and names of the gradient of two fields."""
    e = GRADIENT
    assert (e.subscripts, e.b, e.n) == ("xre,rij,ej->xei", 2, 3)
    assert e.shape == (3, "E", 20)
    assert e.arrays == (J, D, U, V)
    assert e.dtypes == (np.float64, np.float64)
    assert e.long_axes == ("E",)
    assert e.index_sizes == {"x": 3, "e": "E", "i": 20, "r": 3, "j": 20}
    assert e.output_names == ("out_0", "out_1")
    assert e.resolve({"E": 7}) == {"x": 3, "e": 7, "i": 20, "r": 3, "j": 20}
    assert e.sizes_from(e.resolve({"E": 7})) == {"E": 7}
    assert str(e) == (
        "xre,rij,ej->xei [J D u; J D v] J: float64[3, 3, E], D: float64[3, 20, 20], u: float64[E, 20], v: float32[E, 20]"
    )


@pytest.mark.parametrize(
    ("axis", "stored"),
    [(3, 3), (0, 0), (np.int64(4), 4), ("E", "E"), (math.inf, math.inf), (np.inf, math.inf)],
)
def test_axes_are_lengths_names_or_infinite(axis: Any, stored: Any) -> None:
    """An axis may be given alone where there is one."""
    assert fe.array("A", axis).shape == (stored,)
    assert fe.array("A", [axis, 2]).shape == (stored, 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_that_opencl_computes_with_is_accepted(dtype: np.dtype[Any]) -> None:
    """In any spelling of numpy, whatever the byte order of the data described."""
    assert fe.array("A", 3, dtype.name).dtype == dtype
    assert fe.array("A", 3, dtype.type).dtype == dtype
    assert fe.array("A", 3, dtype.newbyteorder(">")).dtype == dtype


@pytest.mark.parametrize("name", ["", "2u", "a-b", "_u", "lambda", "global", "float", "ü", None, 3])
def test_a_name_that_c_cannot_hold_is_refused(name: Any) -> None:
    """Names become names of kernel arguments."""
    message = f"{name!r} cannot name an array; use an identifier of C that is no keyword and does not begin with '_'"
    with pytest.raises(ShapeError, match=re.escape(message)):
        fe.array(name, 3)


ARRAY_REFUSALS: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "negative length": ((3, -1), "float64", ShapeError, "axis 1 of 'A' is -1; a length is not negative"),
    "fraction": (
        2.5,
        "float64",
        ShapeError,
        "axis 0 of 'A' is 2.5; an axis is a length, the name of a long axis or math.inf",
    ),
    "truth value": ((True,), "float64", ShapeError, "axis 0 of 'A' is True; an axis is a length"),
    "nothing": ((3, None), "float64", ShapeError, "axis 1 of 'A' is None; an axis is a length"),
    "minus infinity": (-math.inf, "float64", ShapeError, "axis 0 of 'A' is -inf; an axis is a length"),
    "axis named by a keyword": (
        "for",
        "float64",
        ShapeError,
        "axis 0 of 'A' is 'for'; a long axis is named by an identifier",
    ),
    "shape as a text": (
        "20x30",
        "float64",
        ShapeError,
        "by an identifier of C that is no keyword; write the shape (20, 30)",
    ),
    "half": (3, "float16", DTypeError, "'A' is float16; arrays are float32, float64, complex64, complex128, int8, int16,"),
    "half has a way out": (3, "float16", DTypeError, "uint64; convert it to float32, whose range holds it"),
    "bool": (3, bool, DTypeError, "'A' is bool; arrays are float32"),
    "long double": (3, np.longdouble, DTypeError, "arrays are float32"),
    "text": (3, "U5", DTypeError, "'A' is <U5; arrays are float32"),
    "objects": (3, object, DTypeError, "'A' is object; arrays are float32"),
    "structure": (3, [("x", "f8")], DTypeError, "arrays are float32"),
    "no type": (3, "float63", DTypeError, "'float63', the type of 'A', is not a data type"),
}


@pytest.mark.parametrize(("shape", "dtype", "kind", "message"), ARRAY_REFUSALS.values(), ids=ARRAY_REFUSALS)
def test_refused_arrays_say_why(shape: Any, dtype: Any, kind: type[Exception], message: str) -> None:
    """The message names the array and the axis or the type."""
    with pytest.raises(kind) as error:
        fe.array("A", shape, dtype)
    assert message in str(error.value)


EINSUM_REFUSALS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "lengths contradict": (
        lambda: fe.einsum("ij,jk", fe.array("D", (9, 35)), fe.array("u", (20, 4))),
        ShapeError,
        "index 'j' is 35 in operand 0 ('D') but 20 in operand 1 ('u') of 'ij,jk->ik'; make the lengths equal",
    ),
    "lengths contradict within an operand": (
        lambda: fe.einsum("ii", fe.array("A", (3, 4))),
        ShapeError,
        "index 'i' is 3 in operand 0 ('A') but 4 in operand 0 ('A') of 'ii->'",
    ),
    "lengths contradict in another row": (
        lambda: fe.batched_einsum("i->i", [[vector("a")], [vector("b", 6)]]),
        ShapeError,
        "index 'i' is 5 in operand 0 of row 0 ('a') but 6 in operand 0 of row 1 ('b')",
    ),
    "a length of one is not broadcast without an ellipsis": (
        lambda: fe.einsum("i,i", vector("a", 1), vector("b")),
        ShapeError,
        "index 'i' is 1 in operand 0 ('a') but 5 in operand 1 ('b')",
    ),
    "a long axis is no length": (
        lambda: fe.einsum("i,i", vector("a", "N"), vector("b")),
        ShapeError,
        "index 'i' is N in operand 0 ('a') but 5 in operand 1 ('b')",
    ),
    "an anonymous long axis is no length": (
        lambda: fe.einsum("i,i", vector("a"), vector("b", math.inf)),
        ShapeError,
        "index 'i' is 5 in operand 0 ('a') but ∞ in operand 1 ('b')",
    ),
    "two long axes": (
        lambda: fe.einsum("i,i", vector("a", "M"), vector("b", "N")),
        ShapeError,
        "index 'i' is M in operand 0 ('a') but N in operand 1 ('b')",
    ),
    "ranks differ within a set": (
        lambda: fe.einsum("i", (vector("a"), fe.array("b", (5, 5)))),
        ShapeError,
        "operand 0 of row 0 ('b') has 2 axes but 'a' in the same column has 1",
    ),
    "ranks differ within a column": (
        lambda: fe.batched_einsum("i", [[vector("a")], [fe.array("b", (5, 5))]]),
        ShapeError,
        "operand 0 of row 1 ('b') has 2 axes but 'a' in the same column has 1",
    ),
    "rank and subscripts": (
        lambda: fe.einsum("ij,j", vector("a"), vector("b")),
        SubscriptError,
        "operand 0 is 'ij' in 'ij,j' but has 1 axes",
    ),
    "ranks differ from the indexing": (
        lambda: BatchedEinsum(Subscripts(("ij",), "ij"), (((vector("a"),),),)),
        ShapeError,
        "operand 0 ('a') has 1 axes but its subscripts 'ij' name 2",
    ),
    "number of operands differs from the indexing": (
        lambda: BatchedEinsum(Subscripts(("i", "i"), "i"), (((vector("a"),),),)),
        SubscriptError,
        "row 0 has 1 operands but 'i,i->i' has 2",
    ),
    "an entry without arrays": (
        lambda: BatchedEinsum(Subscripts(("i",), "i"), (((),),)),
        SubscriptError,
        "operand 0 of row 0 of 'i->i' names no array",
    ),
    "no rows": (
        lambda: BatchedEinsum(Subscripts(("i",), "i"), ()),
        ShapeError,
        "a batched einsum needs at least one row of operands",
    ),
    "number of operands": (
        lambda: fe.einsum("i,i", vector("a")),
        SubscriptError,
        "'i,i' has 2 operands but 1 were given",
    ),
    "rows of different length": (
        lambda: fe.batched_einsum("i,i", [[vector("a"), vector("b")], [vector("a")]]),
        SubscriptError,
        "row 1 has 1 operands but row 0 has 2; every row has as many",
    ),
    "no row": (
        lambda: fe.batched_einsum("i", []),
        SubscriptError,
        "a batched einsum needs at least one row with at least one operand",
    ),
    "a row that is no list": (
        lambda: fe.batched_einsum("i,i", [vector("a"), vector("b")]),
        SubscriptError,
        "row 0 is the array 'a', not a list of operands; write",
    ),
    "text for an einsum": (lambda: fe.canonicalize_einsum("ij,jk"), SubscriptError, "a batched einsum is needed, not"),
    "text to generate": (lambda: fe.generate("ij,jk"), SubscriptError, "a batched einsum is needed, not 'ij,jk'; make one"),
    "no operand": (lambda: fe.einsum(""), SubscriptError, "a batched einsum needs at least one row"),
    "nothing": (lambda: fe.einsum(vector("a")), SubscriptError, "einsum takes subscripts and operands, or operands each"),
    "interleaved form without indices": (
        lambda: fe.einsum(vector("a"), vector("b")),
        SubscriptError,
        "the interleaved form takes a list of integers",
    ),
    "empty set": (lambda: fe.einsum("i", ()), SubscriptError, "operand 0 of row 0 is an empty set of arrays"),
    "set with an array twice": (
        lambda: fe.einsum("i", (vector("a"), vector("a"))),
        SubscriptError,
        "operand 0 of row 0 of 'i->i' names an array twice: ['a', 'a'];"
        " an operand is a set of arrays, so write a square as two operands",
    ),
    "one name for two shapes": (
        lambda: fe.einsum("i,j", vector("a"), vector("a", 6)),
        ShapeError,
        "two arrays are named 'a': a: float64[5] and a: float64[6]; rename one of them",
    ),
    "one name for two types": (
        lambda: fe.einsum("i,i", vector("a"), vector("a", dtype="int8")),
        DTypeError,
        "'a' is float64 in one place and int8 in another; rename one of the arrays",
    ),
    "one name for an array and an axis": (
        lambda: fe.einsum("ij", fe.array("N", (3, "N"))),
        ShapeError,
        "'N' names both an array and a long axis; rename one of them",
    ),
    "one name for a letter and an axis": (
        lambda: fe.einsum("ij", fe.array("a", (math.inf, "i"))),
        ShapeError,
        "index 'i' of 'ij->ij' is an anonymous long axis, which goes by its letter, but another long axis is named 'i'",
    ),
    "list as an operand": (
        lambda: fe.einsum("i", [1.0, 2.0]),
        ShapeError,
        "operand 0 of row 0 is [1.0, 2.0]; an operand is made by feinsum.array, or has a shape and a dtype",
    ),
    "text as an operand": (lambda: fe.einsum("i", "u"), ShapeError, "operand 0 of row 0 is 'u'; an operand is made by"),
    "data of a type that is none": (lambda: fe.einsum("i", np.ones(3, np.float16)), DTypeError, "'arg_0' is float16"),
    "name of an array that was given as data": (
        lambda: fe.einsum("i,i", np.ones(3), vector("arg_0", 3)),
        ShapeError,
        "an array is named 'arg_0', and so is one that was given as data; rename the first",
    ),
    "method of counting": (lambda: GRADIENT.flops({"E": 3}, "fast"), ValueError, "method is 'fast'; it is 'shared'"),
}


@pytest.mark.parametrize(("describe", "kind", "message"), EINSUM_REFUSALS.values(), ids=EINSUM_REFUSALS)
def test_refused_einsums_say_why(describe: Callable[[], object], kind: type[Exception], message: str) -> None:
    """The message names index, operand, row, sizes and what to do."""
    with pytest.raises(kind) as error:
        describe()
    assert message in str(error.value)
    assert isinstance(error.value, fe.FeinsumError) or kind is ValueError


RESOLVED: dict[str, tuple[BatchedEinsum, dict[str, Any], dict[str, int]]] = {
    "by name": (GRADIENT, {"E": 9}, {"x": 3, "e": 9, "i": 20, "r": 3, "j": 20}),
    "by letter": (GRADIENT, {"e": 9}, {"x": 3, "e": 9, "i": 20, "r": 3, "j": 20}),
    "by both": (GRADIENT, {"e": 9, "E": 9}, {"x": 3, "e": 9, "i": 20, "r": 3, "j": 20}),
    "fixed ones repeated": (GRADIENT, {"E": 9, "x": 3}, {"x": 3, "e": 9, "i": 20, "r": 3, "j": 20}),
    "zero": (GRADIENT, {"E": np.int32(0)}, {"x": 3, "e": 0, "i": 20, "r": 3, "j": 20}),
    "anonymous": (fe.einsum("ij", fe.array("A", (math.inf, math.inf))), {"i": 2, "j": 3}, {"i": 2, "j": 3}),
    "shared": (fe.einsum("ij", fe.array("A", ("N", "N"))), {"N": 2}, {"i": 2, "j": 2}),
    "shared, by the letter of one": (fe.einsum("ij", fe.array("A", ("N", "N"))), {"j": 2}, {"i": 2, "j": 2}),
    "a name that is the letter of a fixed axis": (fe.einsum("ij", fe.array("A", (3, "i"))), {"i": 7}, {"i": 3, "j": 7}),
    "a name that is the letter of another": (
        fe.einsum("ij", fe.array("A", ("j", "i"))),
        {"i": 7, "j": 8},
        {"i": 8, "j": 7},
    ),
    "a name in one place is enough": (
        fe.einsum("i,i", vector("a", math.inf), vector("b", "N")),
        {"N": 4},
        {"i": 4},
    ),
}


@pytest.mark.parametrize(("e", "sizes", "lengths"), RESOLVED.values(), ids=RESOLVED)
def test_sizes_are_resolved(e: BatchedEinsum, sizes: dict[str, Any], lengths: dict[str, int]) -> None:
    """Lengths by name of axis or letter of index become the lengths of all indices, and can be read off them again."""
    assert e.resolve(sizes) == lengths
    assert e.resolve(e.sizes_from(lengths)) == lengths


SQUARE = fe.einsum("ij,jk", fe.array("A", ("N", "N")), fe.array("B", ("N", 3)))
SIZE_REFUSALS = {
    "missing": (GRADIENT, None, "the long axis 'E' of 'xre,rij,ej->xei' has no length; pass sizes={'E': ...}"),
    "missing anonymous": (
        fe.einsum("i", vector("a", math.inf)),
        {},
        "the long axis 'i' of 'i->i' has no length; pass sizes={'i': ...}",
    ),
    "unknown": (GRADIENT, {"F": 3}, "sizes has 'F', which is neither a long axis nor an index of 'xre,rij,ej->xei'"),
    "negative": (GRADIENT, {"E": -1}, "sizes['E'] is -1; a length is a non-negative integer"),
    "fraction": (GRADIENT, {"E": 1e3}, "sizes['E'] is 1000.0; a length is a non-negative integer"),
    "truth value": (GRADIENT, {"E": True}, "sizes['E'] is True; a length is a non-negative integer"),
    "contradicts a fixed axis": (GRADIENT, {"E": 3, "i": 21}, "sizes['i'] is 21 but index 'i' of 'xre,rij,ej->xei' is 20"),
    "name and letter differ": (
        GRADIENT,
        {"E": 3, "e": 4},
        "sizes['E'] is 3 but sizes['e'] is 4, and both mean the long axis 'E' of 'xre,rij,ej->xei'; give one of them",
    ),
    "indices of one array differ": (
        fe.einsum("i,j", vector("a", math.inf), vector("a", math.inf)),
        {"i": 3, "j": 4},
        "index 'i' is 3 but index 'j' is 4, and both are axis 0 of 'a' in 'i,j->ij'; make the lengths equal",
    ),
    "letters of one axis differ": (
        SQUARE,
        {"i": 3, "j": 4},
        "sizes['i'] is 3 but sizes['j'] is 4, and both mean the long axis 'N' of 'ij,jk->ik'",
    ),
}


@pytest.mark.parametrize(("e", "sizes", "message"), SIZE_REFUSALS.values(), ids=SIZE_REFUSALS)
def test_refused_sizes_say_why(e: BatchedEinsum, sizes: dict[str, Any] | None, message: str) -> None:
    """The message names the axis and the way to give its length."""
    with pytest.raises(ShapeError) as error:
        e.resolve(sizes)
    assert message in str(error.value)


def test_the_interleaved_form_is_the_same_einsum() -> None:
    """Operands each followed by their indices, then those of the output."""
    A, B = fe.array("A", (2, 3)), fe.array("B", (3, 4))
    assert fe.einsum(A, [0, 1], B, [1, 2], [0, 2]) == fe.einsum("ab,bc->ac", A, B)
    assert fe.einsum(A, [0, 1], B, [1, 2]) == fe.einsum("ab,bc", A, B)


def test_an_ellipsis_broadcasts_axes_of_length_one() -> None:
    """Such an axis has an index of its own, over which the sum is trivial."""
    e = fe.einsum("...i,...i->...", fe.array("A", (1, 4, 5)), fe.array("B", (3, 1, 5)))
    assert e.shape == (3, 4)
    assert len(e.indexing.summed) == 3
    assert fe.einsum("...,...", fe.array("A", (1, 5)), fe.array("B", (1, 1))).shape == (1, 5)
    assert fe.einsum("...,...", fe.array("A", ("E", 5)), fe.array("B", (1, 5))).shape == ("E", 5)


def test_data_is_described_by_its_shape_and_type() -> None:
    """The same object twice is one array; equal numbers are two."""
    a, b = np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)
    e = fe.einsum("ij,ij,ij", a, b, a)
    assert [entry[0].name for entry in e.args[0]] == ["arg_0", "arg_1", "arg_0"]
    assert e.arrays[0] == fe.array("arg_0", (2, 3), "float32")
    scalars = fe.einsum(",,", 2.0, 3.0, 4.0)
    assert len(scalars.arrays) == 3
    assert scalars.dtype == np.float64


def test_sets_of_arrays_have_no_order() -> None:
    """An entry is a set: the einsum is the same in whatever order its arrays are given."""
    a, b, c = (vector(name) for name in "abc")
    assert fe.einsum("i,i", (b, a), c) == fe.einsum("i,i", {a, b}, c) == fe.einsum("i,i", frozenset([a, b]), (c,))


@pytest.mark.parametrize(
    ("dtypes", "result"),
    [
        (("float32", "float64"), "float64"),
        (("float32", "int32"), "float64"),
        (("float32", "int16"), "float32"),
        (("int8", "uint8"), "int16"),
        (("uint64", "int64"), "float64"),
        (("complex64", "float64"), "complex128"),
        (("complex64", "int8"), "complex64"),
    ],
)
def test_the_type_of_an_output_is_that_of_numpy(dtypes: tuple[str, str], result: str) -> None:
    """numpy.result_type of the arrays in its row, for each row by itself."""
    a, b = (vector(name, dtype=dtype) for name, dtype in zip("ab", dtypes, strict=True))
    assert fe.einsum("i,i", a, b).dtype == np.dtype(result) == np.result_type(*dtypes)
    e = fe.batched_einsum("i,i", [[a, b], [a, a]])
    assert e.dtypes == (np.dtype(result), a.dtype)


def test_names_of_outputs_and_lengths_are_free() -> None:
    """Underscores are appended where an array or an axis has the name."""
    assert fe.einsum("i", vector("out")).output_names == ("out_",)
    assert fe.einsum("i", vector("a", "out")).output_names == ("out_",)
    assert fe.batched_einsum("i", [[vector("out_1")], [vector("out")]]).output_names == ("out__0", "out__1")
    assert fe.einsum("i,j", vector("n_i", math.inf), vector("b", "N")).length_names == {"i": "n_i_", "j": "N"}


def test_an_einsum_in_other_sizes() -> None:
    """Axes are replaced by index, in every array."""
    e = GRADIENT.with_sizes({"e": 7, "i": "I"})
    assert e.index_sizes == {"x": 3, "e": 7, "i": "I", "r": 3, "j": 20}
    assert e.arrays[1] == fe.array("D", (3, "I", 20))


def test_einsums_are_values() -> None:
    """Equal descriptions are equal and hash alike; fields cannot be changed."""
    again = fe.batched_einsum("xre,rij,ej->xei", [[J, D, U], [J, D, V]])
    assert again == GRADIENT
    assert hash(again) == hash(GRADIENT)
    with pytest.raises(AttributeError):
        GRADIENT.args = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("subscripts", "shapes", "entries"),
    [
        ("ii->i", [(5, 5)], 5 + 5),
        ("ijjk->ik", [(2, 3, 3, 4)], 2 * 3 * 4 + 2 * 4),
        ("ii,ij->j", [(4, 4), (4, 7)], 4 + 4 * 7 + 7),
    ],
)
def test_of_an_array_with_a_repeated_index_its_diagonal_counts(subscripts: str, shapes: list[Any], entries: int) -> None:
    """Nothing else of it has to be read."""
    arrays = [fe.array(f"A{k}", shape) for k, shape in enumerate(shapes)]
    assert fe.einsum(subscripts, *arrays).min_bytes() == 8 * entries


def test_an_array_that_is_needed_whole_somewhere_counts_whole() -> None:
    """Though another operand takes its diagonal."""
    a = fe.array("A", (6, 6))
    assert fe.einsum("ii,ij->j", a, a).min_bytes() == 8 * (36 + 6)


def test_arrays_take_their_bytes_whatever_is_needed_of_them() -> None:
    a, x = fe.array("A", ("N", "N")), fe.array("x", "N")
    assert fe.einsum("ii->i", a).array_bytes({"N": 10}) == 8 * (100 + 10)
    assert fe.batched_einsum("ij,j->i", [[a, x], [a, x]]).array_bytes({"N": 10}) == 8 * (100 + 10 + 20)


def test_rows_may_be_iterators() -> None:
    """Of rows that are iterators, as generator expressions give."""
    assert fe.batched_einsum("xre,rij,ej->xei", ((a for a in row) for row in ([J, D, U], [J, D, V]))) == GRADIENT


@pytest.mark.parametrize(
    "call",
    [fe.autotune, fe.explore, fe.timeit, fe.roofline, fe.generate, fe.generate_loopy, fe.query, fe.canonicalize_einsum],
    ids=lambda call: call.__name__,
)
def test_what_takes_an_einsum_refuses_what_is_none(call: Callable[..., Any]) -> None:
    """Before anything else happens, and says how one is made."""
    with pytest.raises(SubscriptError, match=re.escape("is needed, not 'ij,jk->ik'; make one with feinsum.einsum")):
        call("ij,jk->ik")


@pytest.mark.parametrize(
    "call", [fe.autotune, fe.explore, fe.timeit, fe.roofline, fe.generate], ids=lambda call: call.__name__
)
def test_lengths_are_given_by_name(call: Callable[..., Any]) -> None:
    """Not as a number alone."""
    with pytest.raises(ShapeError, match=re.escape("sizes is 100; it gives lengths by name of long axis or index, as in")):
        call(GRADIENT, sizes=100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fe.batched_einsum("ij->i", fe.array("A", (2, 3))), "rows is the array 'A', not a list of rows; write"),
        (lambda: fe.generate_loopy(GRADIENT, "pairwise"), "schedule is 'pairwise'; give a ContractionSchedule"),
        (
            lambda: fe.timeit(GRADIENT, sizes={"E": 0}),
            "index 'e' of 'xre,rij,ej->xei' is empty, so there is nothing to time",
        ),
        (lambda: fe.array("A", 3, 4), r"4, the type of 'A', is not a data type: the axes of a shape are one tuple"),
        (lambda: fe.array("A", 3, "f4,x"), "'f4,x', the type of 'A', is not a data type"),
        (lambda: fe.timeit(GRADIENT, sizes={"E": 3}, seconds=-1), "seconds is -1; it is 0 or more"),
    ],
)
def test_other_mistakes_are_told(call: Callable[[], Any], message: str) -> None:
    """Rows, schedules and budgets that are none."""
    with pytest.raises(fe.FeinsumError, match=re.escape(message)):
        call()
