"""Random einsums and calls as hypothesis draws them: plain data, so that a failure shows what to repeat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import feinsum as fe
from benchmarks.cases import CASES
from feinsum.arrays import DTYPES
from feinsum.registry import spaces
from feinsum.subscripts import parse_subscripts

LETTERS = "abcdef"
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 67, 127, 1021, 20011, 131101)
"""One, around the lengths of vectors, primes, and more than a work-group does."""
SHORT = LENGTHS[:11]
"""For which `contract` has one kernel."""
FEW_POINTS, MANY_POINTS = 300_000, 1 << 21
"""Of a loop nest; with a million `contract` compiles lengths in."""
NAMES = ("N", "M", "a", "b", math.inf, math.inf)
"""Of long axes: some are letters of indices, and indices share them."""
TYPES = tuple(dtype.name for dtype in DTYPES)
HOST_TYPES = (*TYPES, "bool", "float16")
LAYOUTS = ("C", "F", "sliced", "shifted", "field")
HOST_LAYOUTS = (*LAYOUTS, "reversed", "broadcast", "swapped")

KNOWN = sorted(
    {case["einsum"] for case in CASES}
    | {str(pattern) for s in spaces() if not callable(s.patterns) for pattern in s.patterns}
    | set(
        "ij->j ij,j->i ji,j->i i,i-> i,ij,j-> bij,bj->bi ij,ij->ij i,j->ij a,b,c->abc abc->bac ii->i eii->e iij->j".split()
    )
)
"""Subscripts that a family of kernels is made for."""


def chance(draw: st.DrawFn, one_in: int) -> bool:
    return draw(st.integers(0, one_in - 1)) == 1


@st.composite
def subscripts(draw: st.DrawFn, known_one_in: int) -> tuple[list[str], str]:
    """Terms of one to five operands, seldom of twelve, with repeated indices and terms among them; or known ones."""
    if chance(draw, known_one_in):
        known = parse_subscripts(draw(st.sampled_from(KNOWN)))
        return draw(st.permutations(known.inputs)), known.output
    letters = LETTERS[: draw(st.integers(1, len(LETTERS)))]
    term = st.lists(st.sampled_from(letters), max_size=4).map("".join)
    terms = draw(st.lists(term, min_size=1, max_size=11 if chance(draw, 12) else 4))
    if draw(st.booleans()):  # the simple families have an operand with every index
        terms[0] = "".join(draw(st.permutations(sorted(set("".join(terms))))))
    if chance(draw, 4):  # an operand that stands there twice, perhaps transposed
        terms.append("".join(draw(st.permutations(draw(st.sampled_from(terms))))))
    used = sorted(set("".join(terms)))
    return terms, "".join(draw(st.permutations(used))[: draw(st.integers(0, len(used)))])


@st.composite
def lengths_of(draw: st.DrawFn, terms: Sequence[str], points: int, choices: Sequence[int] = LENGTHS) -> dict[str, int]:
    """A length for every index, few enough points in all, and in every operand; in one case of eight an index is empty."""
    count = {x: max(term.count(x) for term in terms) for x in sorted(set("".join(terms)))}
    left, lengths = points, {}
    if count and chance(draw, 5):
        most = points ** (1 / sum(count.values()))
        lengths = dict.fromkeys(count, draw(st.sampled_from([n for n in choices if n <= most])))
    else:
        for letter in draw(st.permutations(list(count))):
            most = left ** (1 / count[letter])
            lengths[letter] = draw(st.sampled_from([n for n in choices if n <= most]))
            left //= lengths[letter] ** count[letter]
    return lengths | {draw(st.sampled_from(sorted(count))): 0} if count and chance(draw, 8) else lengths


def numbers(rng: np.random.Generator, shape: Sequence[int], dtype: str, whole: bool) -> np.ndarray[Any, Any]:
    """Numbers of mixed sign; whole ones so small that sums of their products are exact in every type of numbers."""
    kind = np.dtype(dtype).kind
    if kind in "iub" or whole:
        low = 0 if kind in "ub" else -1
        x: Any = rng.integers(low, 2, shape)
        return np.asarray(x + 1j * rng.integers(low, 2, shape) if kind == "c" else x).astype(dtype)
    x = rng.uniform(-1, 1, shape)
    return np.asarray(x + 1j * rng.uniform(-1, 1, shape) if kind == "c" else x).astype(dtype)


def lay_out(x: np.ndarray[Any, Any], layout: str, queue: Any = None) -> Any:
    """The numbers in an array of a layout, on the device of a queue if there is one.

    A broadcast one has those of the first row everywhere.
    """
    import pyopencl.array as cla

    def put(value: Any) -> Any:
        return value if queue is None else cla.to_device(queue, value)

    if layout == "F":
        return put(np.array(x, order="F"))
    if layout in ("sliced", "shifted") and x.shape:
        ends = {0, x.ndim - 1}  # all axes would take too much memory
        part = [slice(0, 2 * n, 2) if layout == "sliced" else slice(n + 1, 2 * n + 1) for n in x.shape]
        at = tuple(part[k] if k in ends else slice(0, n) for k, n in enumerate(x.shape))
        wide = np.zeros([2 * n + 1 if k in ends else n for k, n in enumerate(x.shape)], x.dtype)
        wide[at] = x
        return put(wide)[at]
    if layout == "field" and x.size:  # at odd bytes
        records = np.zeros(x.shape, [("name", "u1"), ("value", x.dtype)])
        records["value"] = x
        field = records["value"]
        if queue is None:
            return field
        there = cla.to_device(queue, records.ravel().view("u1"))
        return cla.Array(queue, x.shape, x.dtype, strides=field.strides, data=there.base_data, offset=1)
    if layout == "reversed":
        backwards = (slice(None, None, -1),) * x.ndim
        return x[backwards].copy()[backwards]
    if layout == "broadcast" and x.shape and x.shape[0]:
        return np.broadcast_to(x[0], x.shape)
    return put(x.astype(x.dtype.newbyteorder()) if layout == "swapped" else x)


@dataclass(frozen=True)
class Equation:
    """What `contract` is to evaluate, for operands of several shapes.

    :ivar shapes: for each call those of the operands.
    :ivar same: for each operand the first that is the same array.
    :ivar form: "text", "interleaved", or "expression" for one that is evaluated twice.
    :ivar constants: the operands that the expression knows.
    :ivar out: the layout of the array for the result, if there is one; "wider" is of another type.
    """

    text: str
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    same: tuple[int, ...]
    library: str
    whole: bool
    form: str
    constants: tuple[int, ...]
    out: str | None
    keywords: Mapping[str, Any]


@st.composite
def equations(draw: st.DrawFn) -> Equation:
    """With ellipses and axes of length one that broadcast, and operands of several types and layouts."""
    terms, output = draw(subscripts(3))
    dots = [draw(st.integers(0, len(term))) for term in terms] if chance(draw, 4) else None
    inputs = terms if dots is None else [f"{term[:at]}...{term[at:]}" for term, at in zip(terms, dots, strict=True)]
    result = "" if chance(draw, 8) else f"->{'...' if dots else ''}{output}"
    points = [(MANY_POINTS if chance(draw, 6) else FEW_POINTS, LENGTHS), *[(FEW_POINTS, SHORT)] * 3]
    shapes = [draw(shapes_of(terms, dots, *most)) for most in points[draw(st.integers(0, 1)) :]]
    library = "pyopencl" if chance(draw, 3) else "numpy"
    types, layouts = (HOST_TYPES, HOST_LAYOUTS) if library == "numpy" else (TYPES, LAYOUTS)
    chosen = draw(st.lists(st.sampled_from(types) | st.sampled_from(TYPES[:2]), min_size=1, max_size=3))
    dtypes = [draw(st.sampled_from(chosen)) for _ in terms]
    laid_out = [draw(st.sampled_from(layouts) | st.just("C")) for _ in terms]
    kinds = [*zip(*shapes, dtypes, laid_out, strict=True)]
    form = draw(st.sampled_from(["text", "text", "text", "interleaved", "expression"]))
    return Equation(
        ",".join(inputs) + result,
        tuple(shapes),
        tuple(dtypes),
        tuple(laid_out),
        same=tuple(kinds.index(kind) if draw(st.booleans()) else k for k, kind in enumerate(kinds)),
        library=library,
        whole=draw(st.booleans()),
        form=form,
        constants=tuple(k for k in range(len(terms)) if draw(st.booleans())) if form == "expression" else (),
        out=draw(st.sampled_from([None, None, "C", "F", *(["sliced", "wider"] if library == "numpy" else [])])),
        keywords=draw(keywords(len(terms))),
    )


@st.composite
def shapes_of(
    draw: st.DrawFn, terms: Sequence[str], dots: Sequence[int] | None, points: int, choices: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Shapes of operands; one axis in ten has length one instead of that of its index.

    :param dots: where the axes of the ellipsis stand in each operand, which may lack some of them.
    """
    lengths = draw(lengths_of(terms, points, choices))
    extra = draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=2)) if dots else []
    shapes = []
    for k, term in enumerate(terms):
        shrunk = {x: 1 if chance(draw, 10) else lengths[x] for x in dict.fromkeys(term)}
        shape = [shrunk[x] for x in term]
        if dots:
            common = extra[draw(st.integers(0, len(extra))) :]
            shape[dots[k] : dots[k]] = [n if draw(st.booleans()) else 1 for n in common]
        shapes.append(tuple(shape))
    return tuple(shapes)


@st.composite
def keywords(draw: st.DrawFn, operands: int) -> dict[str, Any]:
    """Those of numpy; what is optimal, opt_einsum finds in factorial time."""
    thorough = "optimal" if operands <= 6 else "auto"
    found: dict[str, Any] = {"optimize": draw(st.sampled_from([True, True, False, "greedy", thorough]))}
    if chance(draw, 4):
        found["order"] = draw(st.sampled_from("CFAK"))
    if chance(draw, 8):
        found["dtype"] = "complex128"
    return found


@dataclass(frozen=True)
class Described:
    """A described einsum, lengths to call one kernel of it with, and how to call it.

    :ivar lengths: of the long axes; the first are those expected.
    :ivar recorded: the number of the lengths for which there is a record of some configuration, if there is one.
    :ivar out: whether there are arrays for the results.
    """

    einsum: fe.BatchedEinsum
    lengths: tuple[dict[str, int], ...]
    library: str
    layouts: tuple[str, ...]
    whole: bool
    recorded: int | None
    out: bool


@st.composite
def described(draw: st.DrawFn) -> Described:
    """Up to three rows, entries that are products, arrays that stand in several places, and three lengths of long axes."""
    terms, output = draw(subscripts(2))
    first = draw(lengths_of(terms, FEW_POINTS))
    axes: dict[str, Any] = {x: draw(st.sampled_from(NAMES)) if draw(st.booleans()) else first[x] for x in first}
    axes = {x: "N" if axis == math.inf and x in axes.values() else axis for x, axis in axes.items()}
    some = st.lists(st.sampled_from(TYPES) | st.sampled_from(TYPES[:2]), min_size=1, max_size=2)
    kinds = draw(st.sampled_from([["float64"], ["float32"]]) | some)
    pool: dict[tuple[Any, ...], list[fe.Array]] = {}

    def pick(term: str) -> fe.Array:
        shape = tuple(axes[x] for x in term)
        known = pool.setdefault(shape, [])
        if not known or draw(st.booleans()):
            known.append(fe.array(f"x{sum(map(len, pool.values()))}", shape, draw(st.sampled_from(kinds))))
        return draw(st.sampled_from(known))

    rows = [
        [tuple(dict.fromkeys(pick(term) for _ in range(2 if chance(draw, 4) else 1))) for term in terms]
        for _ in range(draw(st.integers(1, 3)))
    ]
    e = fe.batched_einsum(f"{','.join(terms)}->{output}", rows)
    lengths = [long_lengths(e, first)]
    for _ in range(2):
        other = {x: draw(st.sampled_from([0, 1, 2, 13, 64, 67])) for x in first}
        resolved = e.resolve(long_lengths(e, other))
        # An empty index leaves operands that lack it as large as they are.
        if math.prod(max(1, n) ** max(term.count(x) for term in terms) for x, n in resolved.items()) <= FEW_POINTS:
            lengths.append(long_lengths(e, other))
    library = draw(st.sampled_from(["numpy", "pyopencl"]))
    return Described(
        e,
        tuple(lengths),
        library,
        tuple(draw(st.sampled_from(LAYOUTS) | st.just("C")) for _ in e.arrays),
        whole=draw(st.booleans()),
        recorded=draw(st.none() | st.integers(0, len(lengths) - 1)),
        out=draw(st.booleans()),
    )


def long_lengths(e: fe.BatchedEinsum, wanted: Mapping[str, int]) -> dict[str, int]:
    """Lengths of the long axes, the least that is wanted of any index which has the length."""
    of_group = {x: min(wanted[letter] for letter in group) for group in e.equal_long_axes for x in group}
    return e.sizes_from({x: of_group.get(x, 0) for x in e.indexing.indices})
