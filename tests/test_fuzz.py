"""Random einsums equal numpy's, on every CPU device: equations as `contract` takes them, and described einsums in rows.

``FEINSUM_FUZZ=5000 pytest tests/test_fuzz.py`` tries thousands instead of a few dozen, others each time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import feinsum as fe
from feinsum.devices import Device

EXAMPLES = int(os.environ.get("FEINSUM_FUZZ", "0"))
LETTERS = "abcdef"
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 67, 127, 1021, 20011, 131101)
"""Nothing, one, around the lengths of vectors, primes, and more than a work-group does."""
MOST_POINTS = 300_000
REAL = ("float64", "float32")
OTHERS = ("complex64", "complex128", "int32", "int64", "uint8", "bool")
LAYOUTS = ("C", "F", "sliced", "reversed", "shifted")

few = settings(
    max_examples=EXAMPLES or 25,
    derandomize=not EXAMPLES,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


def cpu_devices() -> list[Device]:
    return [device for device in fe.devices() if device.usable and device.profile.kind == "cpu"]


@pytest.fixture(scope="module", params=cpu_devices(), ids=lambda device: device.profile.runtime)
def device(request: pytest.FixtureRequest) -> Device:
    return request.param


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("fuzz") / "records.sqlite")


@st.composite
def subscripts(draw: st.DrawFn) -> tuple[list[str], str]:
    """Terms of one to four operands, with repeated indices among them, and an output."""
    letters = LETTERS[: draw(st.integers(1, len(LETTERS)))]
    term = st.lists(st.sampled_from(letters), max_size=4).map("".join)
    terms = draw(st.lists(term, min_size=1, max_size=4))
    if draw(st.booleans()):  # the simple families have an operand with every index
        terms[0] = "".join(draw(st.permutations(sorted(set("".join(terms))))))
    used = sorted(set("".join(terms)))
    return terms, "".join(draw(st.permutations(used))[: draw(st.integers(0, len(used)))])


@st.composite
def lengths_of(draw: st.DrawFn, terms: Sequence[str]) -> dict[str, int]:
    """A length for every index, few enough points in all, and in every operand."""
    left, lengths = MOST_POINTS, {}
    for letter in draw(st.permutations(sorted(set("".join(terms))))):
        most = left ** (1 / max(term.count(letter) for term in terms))
        lengths[letter] = draw(st.sampled_from([n for n in LENGTHS if n <= most]))
        left //= max(1, lengths[letter]) ** max(term.count(letter) for term in terms)
    return lengths


def values(rng: np.random.Generator, shape: Sequence[int], dtype: str, layout: str = "C") -> np.ndarray[Any, Any]:
    """Numbers of mixed sign, in one of several layouts."""
    wide = [2 * n + 1 for n in shape] if layout in ("sliced", "shifted") else list(shape)
    kind = np.dtype(dtype).kind
    drawn = (
        rng.integers(0 if kind in "ub" else -3, 2 if kind == "b" else 4, wide) if kind in "iub" else rng.normal(size=wide)
    )
    x = np.asarray(drawn + 1j * rng.normal(size=wide) if kind == "c" else drawn).astype(dtype)
    if layout == "F":
        return np.array(x, order="F")
    step = {"sliced": slice(None, -1, 2), "reversed": slice(None, None, -1)}.get(layout)
    if layout == "shifted":
        return x[tuple(slice(n + 1, 2 * n + 1) for n in shape)]
    return x if step is None else x[(step,) * len(shape)]


def check(found: Any, text: str, operands: Sequence[Any], dtype: Any) -> None:
    """The type and shape of numpy, and its values: integers exactly, others within gamma_K * sum |a||b|."""
    long = [
        x.astype(np.complex128 if x.dtype.kind == "c" else np.float64 if x.dtype.kind == "f" else x.dtype) for x in operands
    ]
    expected = np.asarray(np.einsum(text, *long))
    found = np.asarray(found)
    assert (found.shape, found.dtype) == (expected.shape, dtype)
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
        return
    terms = math.prod(max(1, n) for x in operands for n in x.shape)
    bound = np.einsum(text, *(np.abs(x).astype(np.float64) for x in long))
    roundoff = np.finfo(dtype).eps * (min(terms, MOST_POINTS) ** 0.5 * 4 + 8)
    assert np.all(np.abs(found - expected) <= roundoff * bound), f"{text}: {np.max(np.abs(found - expected)):.2e}"


@dataclass(frozen=True)
class Equation:
    """What `contract` is to evaluate: subscripts, shapes, types, layouts."""

    text: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]


@st.composite
def equations(draw: st.DrawFn) -> Equation:
    """Equations with ellipses that broadcast, axes of length one that do, and operands of several types and layouts."""
    terms, output = draw(subscripts())
    lengths = draw(lengths_of(terms))
    extra = draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=2)) if draw(st.integers(0, 3)) == 0 else None
    shapes, texts = [], []
    for term in terms:
        shrunk = {x: 1 if draw(st.integers(0, 9)) == 0 else lengths[x] for x in dict.fromkeys(term)}
        shape, at = [shrunk[x] for x in term], draw(st.integers(0, len(term)))
        if extra is not None:
            common = extra[draw(st.integers(0, len(extra))) :]
            shape[at:at] = [n if draw(st.booleans()) else 1 for n in common]
        texts.append(term if extra is None else f"{term[:at]}...{term[at:]}")
        shapes.append(tuple(shape))
    kinds = REAL if draw(st.booleans()) else OTHERS
    mixed = draw(st.integers(0, 4)) == 0
    first = draw(st.sampled_from(kinds))
    dtypes = [draw(st.sampled_from(REAL + OTHERS)) if mixed else first for _ in terms]
    layouts = [draw(st.sampled_from(LAYOUTS)) for _ in terms]
    return Equation(
        f"{','.join(texts)}->{'...' if extra is not None else ''}{output}", tuple(shapes), tuple(dtypes), tuple(layouts)
    )


@few
@given(equation=equations(), seed=st.integers(0, 2**32 - 1))
def test_contract_equals_numpy(equation: Equation, seed: int, device: Device, database: str) -> None:
    """Whatever the grammar, lengths, types and strides."""
    rng = np.random.default_rng(seed)
    operands = [values(rng, *kind) for kind in zip(equation.shapes, equation.dtypes, equation.layouts, strict=True)]
    found = fe.contract(equation.text, *operands, device=device, database=database)
    check(found, equation.text, operands, np.result_type(*operands))


@dataclass(frozen=True)
class Rows:
    """A described einsum: which axes are long, what every row multiplies, and lengths to call its kernel with.

    :ivar rows: for each row and operand the numbers of the arrays that are multiplied elementwise.
    """

    terms: tuple[str, ...]
    output: str
    long: str
    dtype: str
    rows: tuple[tuple[tuple[int, ...], ...], ...]
    lengths: tuple[dict[str, int], ...]

    @property
    def text(self) -> str:
        return f"{','.join(self.terms)}->{self.output}"

    def name(self, operand: int, number: int) -> str:
        return f"x{operand}_{number}"

    def described(self) -> fe.BatchedEinsum:
        """With long axes by name."""
        axes = {x: f"N{x}" if x in self.long else self.lengths[0][x] for x in set("".join(self.terms))}

        def array(operand: int, number: int) -> fe.Array:
            return fe.array(self.name(operand, number), [axes[x] for x in self.terms[operand]], self.dtype)

        rows = [[tuple(array(k, n) for n in numbers) for k, numbers in enumerate(row)] for row in self.rows]
        return fe.batched_einsum(self.text, rows)


@st.composite
def described(draw: st.DrawFn) -> Rows:
    """Up to three rows, entries that are products, and three lengths of every long axis for one kernel."""
    terms, output = draw(subscripts())
    used = sorted(set("".join(terms)))
    long = "".join(x for x in used if draw(st.booleans()))
    first = draw(lengths_of(terms).filter(lambda lengths: all(lengths[x] for x in lengths if x not in long)))
    others = [{x: draw(st.sampled_from([0, 1, 2, 13, 64, 67])) if x in long else first[x] for x in used} for _ in range(2)]
    fits = [math.prod(n ** max(t.count(x) for t in terms) for x, n in other.items()) <= MOST_POINTS for other in others]
    numbers = st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True).map(tuple)
    rows = draw(st.lists(st.tuples(*(numbers for _ in terms)), min_size=1, max_size=3))
    dtype = draw(st.sampled_from([*REAL, *REAL, "complex64", "int32"]))
    lengths = (first, *(other for other, fit in zip(others, fits, strict=True) if fit))
    return Rows(tuple(terms), output, long, dtype, tuple(rows), lengths)


@few
@given(rows=described(), seed=st.integers(0, 2**32 - 1))
def test_described_einsums_equal_numpy(rows: Rows, seed: int, device: Device, database: str) -> None:
    """One kernel for several lengths of its long axes, in one or several rows that share arrays."""
    e = rows.described()
    sizes = {f"N{x}": rows.lengths[0][x] for x in rows.long}
    kernel = fe.generate(e, device, database, sizes=sizes)
    for lengths in rows.lengths:
        rng = np.random.default_rng(seed)
        arrays = {
            a.name: values(rng, [lengths[x] for x in rows.terms[int(a.name[1 : a.name.index("_")])]], rows.dtype)
            for a in e.arrays
        }
        outputs = kernel(**arrays)
        for row, found in zip(rows.rows, outputs if e.b > 1 else (outputs,), strict=True):
            entries = [math.prod((arrays[rows.name(k, n)] for n in numbers), start=1) for k, numbers in enumerate(row)]
            operands = [np.asarray(x, rows.dtype) for x in entries]
            check(found, rows.text, operands, np.dtype(rows.dtype))
