"""Keys of known einsums, what is and is not isomorphic, renamings, and keys as data from outside."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from feinsum.arrays import Axis, array
from feinsum.canonicalization import canonicalize_einsum, is_isomorphic, isomorphism, parse_key
from feinsum.einsum import BatchedEinsum, batched_einsum, einsum
from feinsum.errors import DTypeError, FeinsumError, ShapeError, SubscriptError

ROOT = Path(__file__).parents[1]

A, B = array("A", (8, 8)), array("B", (8, 8))
D = [array(f"D{i}", (35, 35)) for i in range(3)]
u = [array(f"u{i}", ("E", 35)) for i in range(8)]
R, J = array("R", (35, 4, 15)), array("J", (4, "E"))
v = [array(f"v{i}", (4, "E", 15)) for i in range(4)]
s = [array(f"s{i}", ("N", "N"), "float32") for i in range(6)]


def transpose(*shape: Axis, dtype: str = "float64", name: str = "x") -> BatchedEinsum:
    """The smallest einsum that has the shape of one matrix."""
    return einsum("ij->ji", array(name, shape, dtype))


KEYS = {
    "product": (einsum("ij,jk->ik", array("A", (3, 4)), array("B", (4, 5))), "1|ac,cb->ab|a=3 b=5 c=4||[float64,float64]"),
    "scalar": (einsum("->", array("q", ())), "1|->|||[float64]"),
    "trace": (einsum("ii->", A), "1|aa->|a=8||[float64]"),
    "diagonal": (einsum("ii->i", A), "1|aa->a|a=8||[float64]"),
    "dot": (einsum("i,i->", array("x", 5), array("y", 5)), "1|a,a->|a=5||[float64,float64]"),
    "square of a vector": (einsum("i,i->", array("x", 5), array("x", 5)), "1|a,a->|a=5||[float64#0,float64#0]"),
    "matrix times its transpose": (einsum("ij,ji->ij", A, A), "1|ab,ba->ab|a=8 b=8||[float64#0,float64#0]"),
    "a set": (einsum("ij->ij", (A, B)), "1|ab->ab|a=8 b=8||[float64*float64]"),
    "identical rows": (batched_einsum("ij->i", [[A], [A]]), "1|ab->a|a=8 b=8|A0=float64|2*[A0]"),
    "derivatives of fields": (
        batched_einsum("ij,ej->ei", [[D[0], x] for x in u]),
        "1|ac,bc->ab|a=inf b=35 c=35|A0=float64|8*[float64,A0]",
    ),
    "face masses": (
        batched_einsum("ifj,fe,fej->ei", [[R, J, x] for x in v]),
        "1|bcd,ca,cad->ab|a=inf b=35 c=4 d=15|A0=float64 A1=float64|4*[A0,A1,float64]",
    ),
    "curl": (
        batched_einsum("ij,ej->ei", [[D[i], u[j]] for i in range(3) for j in range(3) if i != j]),
        "1|ac,bc->ab|a=inf b=35 c=35|A0=float64 A1=float64 A2=float64 A3=float64 A4=float64 A5=float64"
        "|[A0,A1] [A2,A1] [A2,A3] [A4,A3] [A4,A5] [A0,A5]",
    ),
    "ring of products": (
        batched_einsum("ij,jk->ik", [[s[i], s[(i + 1) % 6]] for i in range(6)]),
        "1|ac,cb->ab|a=N0 b=N0 c=N0|A0=float32 A1=float32 A2=float32 A3=float32 A4=float32 A5=float32"
        "|[A0,A1] [A2,A0] [A3,A2] [A4,A3] [A5,A4] [A1,A5]",
    ),
    "products with a common factor": (
        batched_einsum("ij,jk->ik", [[s[0], (s[1], s[3])], [s[1], (s[2], s[3])]]),
        "1|ac,cb->ab|a=N0 b=N0 c=N0|A0=float32 A1=float32|[A0,A1*float32] [float32,A0*A1]",
    ),
}
"""Keys that records are filed under.  Another series of igraph may order symmetric rows in another way (curl, ring); files
of records are then rewritten by ``canonicalize_einsum(parse_key(key)).key``."""


@pytest.mark.parametrize(("e", "key"), KEYS.values(), ids=KEYS)
def test_key_is_known(e: BatchedEinsum, key: str) -> None:
    """The key of an einsum is the same text today as when its records were written."""
    assert canonicalize_einsum(e).key == key


@pytest.mark.parametrize("e", [e for e, _ in KEYS.values()], ids=KEYS)
def test_renaming_leads_to_the_canonical_einsum_and_back(e: BatchedEinsum) -> None:
    """The renaming makes of the given einsum the one that the key describes, and its inverse undoes that, literally."""
    c = canonicalize_einsum(e)
    assert c.renaming.apply(e) == c.einsum == parse_key(c.key)
    assert c.renaming.inverse.apply(c.einsum) == e
    assert c.renaming.inverse.inverse == c.renaming
    assert c.given == e


ISOMORPHIC = {
    "names of arrays": (einsum("ij->ji", A), einsum("ij->ji", B)),
    "names of indices": (einsum("ij,jk->ik", A, B), einsum("ax,xZ->aZ", A, B)),
    "order of operands": (einsum("ij,jk->ik", A, B), einsum("jk,ij->ik", A, B)),
    "order of operands of one pattern": (
        einsum("i,i->i", array("x", 5, "float32"), array("y", 5)),
        einsum("i,i->i", array("x", 5), array("y", 5, "float32")),
    ),
    "order of rows": (
        batched_einsum("ij->i", [[A], [A], [array("C", (8, 8))]]),
        batched_einsum("ij->i", [[array("C", (8, 8))], [A], [A]]),
    ),
    "order of a set": (einsum("ij->ij", (A, B)), einsum("ij->ij", (B, A))),
    "name of a long axis": (transpose("E", 3), transpose("F", 3)),
    "a name that one index has": (transpose("E", 3), transpose(math.inf, 3)),
    "names of two indices": (transpose("M", "N"), transpose("N", math.inf)),
    "a name for a length that follows from the arrays": (
        einsum("ij,ji->ij", array("x", (math.inf, math.inf)), array("x", (math.inf, math.inf))),
        einsum("ij,ji->ij", array("x", ("N", "N")), array("x", ("N", "N"))),
    ),
    "a long axis named in one of two arrays": (
        einsum("i,i->i", array("x", "E"), array("y", math.inf)),
        einsum("i,i->i", array("x", math.inf), array("y", math.inf)),
    ),
    "implicit output": (einsum("ij,jk", A, B), einsum("ij,jk->ik", A, B)),
}


@pytest.mark.parametrize(("e1", "e2"), ISOMORPHIC.values(), ids=ISOMORPHIC)
def test_names_and_order_do_not_matter(e1: BatchedEinsum, e2: BatchedEinsum) -> None:
    """Einsums that differ in names and order alone have one key, and the renaming between them is found."""
    assert is_isomorphic(e1, e2)
    renaming = isomorphism(e1, e2)
    assert renaming is not None
    assert canonicalize_einsum(e1) == canonicalize_einsum(e2)
    assert renaming.inverse.apply(renaming.apply(e1)) == renaming.then(renaming.inverse).apply(e1)


DIFFERENT = {
    "two equal and two unequal lengths": (transpose(8, 8), transpose(8, 9)),
    "lengths": (transpose(8, 9), transpose(8, 10)),
    "which axis is long": (transpose("E", 3), transpose(3, "E")),
    "long and fixed": (transpose("E", 3), transpose(500, 3)),
    "one long axis and two of them": (transpose("N", "N"), transpose("M", "N")),
    "types": (transpose(8, 8), transpose(8, 8, dtype="float32")),
    "real and complex": (transpose(8, 8, dtype="float64"), transpose(8, 8, dtype="complex64")),
    "which operand has which type": (
        einsum("ij,j->i", array("x", (8, 8)), array("y", 8, "float32")),
        einsum("ij,j->i", array("x", (8, 8), "float32"), array("y", 8)),
    ),
    "order of the axes of the output": (einsum("ij,jk->ik", A, B), einsum("ij,jk->ki", A, B)),
    "order of the axes of an array": (einsum("ij->ij", A), einsum("ji->ij", A)),
    "one array twice and two arrays": (einsum("ij,ji->ij", A, A), einsum("ij,ji->ij", A, B)),
    "a square and one factor": (einsum("j,j->", array("x", 5), array("x", 5)), einsum("j->", array("x", 5))),
    "a set and two operands": (einsum("ij->ij", (A, B)), einsum("ij,ij->ij", A, B)),
    "a set and one array": (einsum("ij->ij", (A, B)), einsum("ij->ij", A)),
    "trace and sum": (einsum("ii->", A), einsum("ij->", A)),
    "number of rows": (batched_einsum("ij->i", [[A], [B]]), einsum("ij->i", A)),
    "one row twice and two rows": (batched_einsum("ij->i", [[A], [A]]), batched_einsum("ij->i", [[A], [B]])),
    "who shares": (
        batched_einsum("ij,ej->ei", [[D[0], u[0]], [D[0], u[1]]]),
        batched_einsum("ij,ej->ei", [[D[0], u[0]], [D[1], u[0]]]),
    ),
    "one ring of six and two rings of three": (
        batched_einsum("ij,jk->ik", [[s[i], s[(i + 1) % 6]] for i in range(6)]),
        batched_einsum("ij,jk->ik", [[s[i], s[i // 3 * 3 + (i + 1) % 3]] for i in range(6)]),
    ),
}


@pytest.mark.parametrize(("e1", "e2"), DIFFERENT.values(), ids=DIFFERENT)
def test_everything_else_matters(e1: BatchedEinsum, e2: BatchedEinsum) -> None:
    """Einsums that differ in anything but names and order have different keys and no renaming between them."""
    assert not is_isomorphic(e1, e2)
    assert isomorphism(e1, e2) is None
    assert canonicalize_einsum(e1) != canonicalize_einsum(e2)


def test_isomorphism_names_arrays_indices_axes_operands_and_rows() -> None:
    """A renaming says what everything of the source is called in the target and where it stands."""
    here = batched_einsum("ij,ej->ei", [[D[0], u[0]], [D[0], array("w", ("E", 35), "float32")]])
    P, x, y = array("P", (35, 35)), array("x", (math.inf, 35), "float32"), array("y", (math.inf, 35))
    there = batched_einsum("bc,ac->ba", [[x, P], [y, P]])
    renaming = isomorphism(here, there)
    assert renaming is not None
    assert renaming.arrays == {"D0": "P", "u0": "y", "w": "x"}
    assert renaming.indices == {"e": "b", "i": "a", "j": "c"}
    assert renaming.axes == {"E": "b"}
    assert (renaming.operands, renaming.rows) == ((1, 0), (1, 0))
    assert renaming.apply(here) == there
    assert renaming.inverse.apply(there) == here


def test_pattern_forgets_lengths_and_keeps_types() -> None:
    """The pattern of an einsum is the canonical form it has with every axis long."""
    e = einsum("ij,ej->ei", array("D", (35, 35)), array("u", ("E", 35), "float32"))
    pattern = canonicalize_einsum(e).pattern
    assert pattern.key == "1|ac,bc->ab|a=inf b=inf c=inf||[float32,float64]"
    other = einsum("pq,rq->rp", array("x", (4, 4), "float64"), array("y", (9, 4), "float32"))
    assert canonicalize_einsum(other).pattern == pattern
    assert canonicalize_einsum(other).pattern is canonicalize_einsum(other).pattern
    assert pattern.pattern == pattern


def test_lengths_are_carried_to_key_and_pattern() -> None:
    """Lengths by index of the given einsum become lengths by index of the canonical einsum and of the pattern."""
    c = canonicalize_einsum(einsum("rij,xre,ej->xei", array("D", (3, 5, 6)), array("J", (3, 3, "E")), array("u", ("E", 6))))
    lengths = {"x": 3, "r": 3, "e": 1000, "i": 5, "j": 6}
    assert c.key == "1|adb,be,dce->abc|a=3 b=inf c=5 d=3 e=6||[float64,float64,float64]"
    assert c.renaming.lengths(lengths) == {"a": 3, "b": 1000, "c": 5, "d": 3, "e": 6}
    mapped = c.pattern.renaming.lengths(lengths)
    assert c.pattern.einsum.flops(mapped) == c.einsum.flops(c.renaming.lengths(lengths)) == c.given.flops({"E": 1000})
    with pytest.raises(ShapeError, match=r"'z' is no index of the source of this renaming; those are e, i, j, r, x"):
        c.renaming.lengths({"z": 3})


def test_renaming_of_a_pattern_applies_to_the_einsum_with_lengths() -> None:
    """Fixed lengths stay what they are where a renaming knows a long axis."""
    e = transpose(3, 4, name="D")
    assert canonicalize_einsum(e).pattern.renaming.apply(e) == einsum("ba->ab", array("x0", (3, 4)))


def test_renamings_that_do_not_fit_are_refused() -> None:
    """A renaming applied to another einsum, or followed by a renaming of another, says what does not fit."""
    product, dot = canonicalize_einsum(einsum("ij,jk->ik", A, B)), canonicalize_einsum(einsum("ij,ij->", A, B))
    with pytest.raises(SubscriptError, match=r"has arrays A but the renaming is of A, B"):
        product.renaming.apply(einsum("ij,jk->ik", A, A))
    with pytest.raises(SubscriptError, match=r"has 1 operands but the renaming is of 2"):
        dot.renaming.apply(einsum("ij->", (A, B)))
    with pytest.raises(SubscriptError, match=r"ends with indices a, b, c but the second starts from a, b; compose"):
        product.renaming.then(dot.renaming.inverse)


def test_second_call_computes_nothing() -> None:
    """The form is remembered by the einsum itself and for einsums equal to it."""
    first, second = (batched_einsum("ij,ej->ei", [[D[0], x] for x in u]) for _ in range(2))
    assert canonicalize_einsum(first) is canonicalize_einsum(first)
    assert canonicalize_einsum(first) is canonicalize_einsum(second)


MALFORMED = {
    "": (SubscriptError, "'' is no key of format 1"),
    "1|->||[float64]": (SubscriptError, "reads '1|subscripts|axes|arrays|rows'"),
    "2|->|||[float64]": (SubscriptError, "is no key of format 1"),
    "1|a|a=3||[float64]": (SubscriptError, "'a' in the key are no subscripts with an output"),
    "1|a->a|a=3|||": (SubscriptError, "is no key of format 1"),
    "1|a|a=3||[float64]|": (SubscriptError, "is no key of format 1"),
    "1|é->|é=3||[float64]": (SubscriptError, "'é' in operand 0"),
    "1|a->b|a=3 b=3||[float64]": (SubscriptError, "output index 'b'"),
    "1|a->aa|a=3||[float64]": (SubscriptError, "occurs 2 times"),
    "1|a->a|||[float64]": (ShapeError, "has axes for '' but the indices of 'a->a'"),
    "1|a->a|a=3 b=3||[float64]": (ShapeError, "has axes for 'ab'"),
    "1|a->a|a=3 a=3||[float64]": (ShapeError, "'a=3' in the key is no axis, or one given twice"),
    "1|a->a|a=-3||[float64]": (ShapeError, "'a=-3' in the key is no axis"),
    "1|a->a|a=03||[float64]": (ShapeError, "'a=03' in the key is no axis"),
    "1|a->a|a=٣||[float64]": (ShapeError, "is no axis"),
    "1|a->a|a=nan||[float64]": (ShapeError, "'a=nan' in the key is no axis"),
    "1|a->a|a=E||[float64]": (ShapeError, "'a=E' in the key is no axis"),
    "1|a->a|a=3\n||[float64]": (ShapeError, "is no axis"),
    "1|a->a|a=" + "9" * 5000 + "||[float64]": (ShapeError, "is no axis"),
    "1|a->a|a=3||[float16]": (DTypeError, "'float16' in the key is no type of arrays; those are float32"),
    "1|a->a|a=3||[object]": (DTypeError, "'object' in the key is no type"),
    "1|a->a|a=3||[float64]\n": (SubscriptError, "is no row"),
    "1|a->a|a=3||[]": (SubscriptError, "'' in the key is no array"),
    "1|a->a|a=3||[float64*]": (SubscriptError, "'' in the key is no array"),
    "1|a->a|a=3||float64": (SubscriptError, "'float64' in the key is no row"),
    "1|a->a|a=3||": (SubscriptError, "'' in the key is no row"),
    "1|a->a|a=3||0*[float64]": (SubscriptError, "is no row"),
    "1|a->a|a=3||[float64,float64]": (SubscriptError, "has 2 operands but 'a->a' has others"),
    "1|a->a|a=3||[__import__('os')]": (SubscriptError, "is no array; an array reads A0, float64 or float64#0"),
    "1|a->a|a=3||99999999*[float64]": (SubscriptError, "more than 65536 places"),
    "1|a->a|a=3||2*[" + "*".join(["float64"] * 40_000) + "]": (SubscriptError, "more than 65536 places"),
    "1|a->a|a=3||[A0]": (ShapeError, "array 'A0' stands in a row of the key but has no type"),
    "1|a->a|a=3|A0=float64|[float64]": (ShapeError, "describes array 'A0', which stands in no row"),
    "1|a->a|a=3|A1=float64|[A1]": (ShapeError, "'A1=float64' in the key does not describe array 'A0'"),
    "1|a->a|a=3|A0=float64|[A0*A0]": (SubscriptError, "names an array twice"),
    "1|a->a|a=3||[float64#0*float64#0]": (SubscriptError, "names an array twice"),
    "1|a,ab->a|a=3 b=3|A0=float64|[A0,A0]": (ShapeError, "has 1 axes but its subscripts 'ab' name 2"),
    "1|a,b->a|a=3 b=4|A0=float64|[A0,A0]": (ShapeError, "index 'b' is 4 in the key but 3 by the arrays"),
}


@pytest.mark.parametrize(
    ("key", "error", "text"), [(k, *v) for k, v in MALFORMED.items()], ids=map(str, range(len(MALFORMED)))
)
def test_malformed_keys_are_refused(key: str, error: type[FeinsumError], text: str) -> None:
    """A key that does not follow the grammar, or describes nothing or too much, is refused by an error that says why."""
    with pytest.raises(error) as caught:
        parse_key(key)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_key_is_text() -> None:
    """Anything but text is refused like text that is no key."""
    with pytest.raises(SubscriptError, match="None is no key of format 1"):
        parse_key(None)  # type: ignore[arg-type]


def test_a_key_in_another_order_leads_to_the_canonical_one() -> None:
    """A key whose parts stand in another order, as an older graph library may have written it, is read all the same."""
    key = "1|bc,ac->ba|a=35 b=inf c=35|A0=float64|[float32,A0] 2*[float64,A0]"
    assert canonicalize_einsum(parse_key(key)).key == "1|ac,bc->ab|a=inf b=35 c=35|A0=float64|[float32,A0] 2*[float64,A0]"


PRINT_KEYS = """
import random, sys
from feinsum.canonicalization import canonicalize_einsum
from feinsum.einsum import array, batched_einsum
rng = random.Random(3)
for _ in range(60):
    pool = [array(f"a{k}", ("N", "N"), rng.choice(["float32", "float64"])) for k in range(rng.randint(1, 6))]
    inputs = ["".join(rng.choices("ijkl", k=2)) for _ in range(rng.randint(1, 5))]
    output = "".join(sorted(set("".join(inputs)))[: rng.randint(0, 2)])
    rows = [[set(rng.sample(pool, rng.randint(1, min(2, len(pool))))) for _ in inputs] for _ in range(rng.randint(1, 6))]
    print(canonicalize_einsum(batched_einsum(f"{','.join(inputs)}->{output}", rows)).key)
"""


def printed_keys(python: str, seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [python, "-c", PRINT_KEYS], env=environment, check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout


def test_keys_do_not_depend_on_the_process() -> None:
    """Sixty einsums, most of them with symmetries, have the same keys under every seed of the hash function."""
    outputs = {printed_keys(sys.executable, seed) for seed in ("0", "1", "2", "random")}
    assert len(outputs) == 1
    assert len(set(outputs.pop().splitlines())) > 50


@pytest.mark.parametrize("minor", [m for m in range(11, 16) if m != sys.version_info.minor])
def test_keys_do_not_depend_on_the_version_of_python(minor: int) -> None:
    """Every other Python on this machine that has numpy and igraph computes the same keys."""
    python = shutil.which(f"python3.{minor}")
    if not python or subprocess.run([python, "-c", "import numpy, igraph"], check=False, capture_output=True).returncode:
        pytest.skip(f"no python3.{minor} with numpy and igraph on the path")
    assert printed_keys(python, "0") == printed_keys(sys.executable, "0")


def test_no_graph_library_without_ties() -> None:
    """The graph library is loaded only for einsums whose parts cannot be told apart one by one."""
    program = (
        "import sys, feinsum as fe, feinsum.canonicalization as fc;"
        "fc.canonicalize_einsum(fe.einsum('ij,jk->ik', fe.array('A', (3, 4)), fe.array('B', (4, 5))));"
        "assert 'igraph._igraph' not in sys.modules;"
        "fc.canonicalize_einsum(fe.einsum('i,i->', fe.array('x', 3), fe.array('y', 3)));"
        "assert 'igraph._igraph' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.parametrize("first", [True, False], ids=["igraph first", "feinsum first"])
def test_the_graph_library_does_not_bring_what_it_draws_with(first: bool) -> None:
    """Its module in C is enough, and is the one that a user who imports the library has, before or after."""
    program = (
        "import sys, feinsum as fe, feinsum.canonicalization as fc;"
        f"{'import igraph;' if first else ''}"
        "key = fc.canonicalize_einsum(fe.einsum('i,i->', fe.array('x', 3), fe.array('y', 3))).key;"
        f"assert {first} or not [name for name in sys.modules if name.split('.')[0] in ('matplotlib', 'texttable')];"
        "import igraph;"
        "assert igraph.GraphBase is sys.modules['igraph._igraph'].GraphBase;"
        "assert igraph.Graph(3, [(0, 1), (1, 2)]).diameter() == 2;"
        "print(key)"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.strip() == "1|a,a->|a=3||[float64,float64]"
