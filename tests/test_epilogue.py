"""Epilogues as they are described: what a text means, its normal form, what is refused and why."""

from __future__ import annotations

import math
import random
import re
import shlex
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feinsum as fe
from feinsum.canonicalization import parse_key
from feinsum.cli.description import describe_arguments
from feinsum.elementwise import EXPANDED, NAMED
from feinsum.epilogue import parse_epilogue, tree
from feinsum.report.commands import command
from feinsum.report.formula import latex

A, B = fe.array("A", ("N", 8), "float32"), fe.array("B", (8, 4), "float32")
MATRIX_PRODUCT = fe.einsum("ik,kj->ij", A, B)
BIAS = fe.array("b", 4, "float32")


def text_of(text: str, **arrays: fe.Array) -> str:
    """The normal form of an epilogue of the matrix product."""
    own = MATRIX_PRODUCT.then(text, **arrays).epilogues
    return own[0].text("ij") if own and own[0] else "v"


SAME = [
    ("out*beta + v*alpha", "alpha*v + beta*out"),
    ("v + 0*out", "v"),
    ("v + (1 - 1)*(out*s - 2)", "v"),
    ("1*v + (2 + 3)/5*out", "v + out"),
    ("v**2 + v**1", "v + v*v"),
    ("--v - 0", "v"),
    ("v if v > 0 else 0.25*v", "where(v > 0, v, 0.25*v)"),
    ("0 < v < 1", None),
    ("relu(v)", "where(v < 0, 0, v)"),
    ("silu(out)", "out/(exp(-out) + 1)"),
    ("out[i, j] + v[i, j]", "v + out"),
    ("max(2, max(v, 1))", "max(max(v, 1), 2)"),
    ("2.0*v + 0.5", "2*v + 0.5"),
    ("(-v)**-2 - (-2)**3", "(-v)**(-2) + 8"),
    ("where(not (v > 1 or v < 0) and out != 0, v, sqrt(4))", "where(not (v > 1 or v < 0) and out != 0, v, 2)"),
]


@pytest.mark.parametrize(("text", "normal"), [pair for pair in SAME if pair[1]])
def test_the_normal_form_of_an_epilogue(text: str, normal: str) -> None:
    """One tree for what is written in several ways; printing it and reading that gives it again."""
    assert text_of(text) == normal
    assert text_of(normal) == normal


def test_what_multiplies_a_constant_zero_may_be_no_number() -> None:
    """So it stays, unless it is the output, which is then not read."""
    assert text_of("0*v + 1") == "0*v + 1"
    assert MATRIX_PRODUCT.then("v + 1 + 0*out").updates == (False,)
    assert MATRIX_PRODUCT.then("v + 1 + beta*out").updates == (True,)


def test_an_epilogue_says_what_it_reads() -> None:
    """Arrays count among those of the einsum, wherever inputs are listed."""
    e = MATRIX_PRODUCT.then("scale*gelu(v + b[j]) + beta*out", b=BIAS)
    assert [a.name for a in e.arrays] == ["A", "B", "b"]
    assert e.array_indices[BIAS] == "j"
    assert dict(e.scalars) == {"scale": "float32", "beta": "float32"}
    assert e.bare == MATRIX_PRODUCT
    assert "then scale*(0.5*(v + b[j])*(erf(" in str(e)
    assert e.with_sizes({"i": 5}).epilogues[0].arrays == (BIAS,)


def test_a_name_in_the_text_need_not_be_that_of_the_array() -> None:
    """The keyword says what a name in the text means; operands need not be given again."""
    assert text_of("v + b[j]", b=fe.array("bias", 4, "float32")) == "v + bias[j]"
    square = fe.einsum("ik,kj->ij", fe.array("P", (5, 8)), fe.array("Q", (8, 5)))
    then = square.then("v + P[i, j]*P[j, i]", P=fe.array("C", (5, 5)))
    assert then.epilogues[0].text("ij") == "v + C[i, j]*C[j, i]"
    two = fe.einsum("ij,j->i", fe.array("M", (4, 4)), fe.array("x", 4))
    assert two.then("x[i] - v").arrays == two.arrays


def test_rows_have_epilogues_of_their_own_or_one_in_common() -> None:
    """None, or v, stores a sum as it is; if all do, there is no epilogue."""
    C = fe.array("C", ("N", 8), "float32")
    two = fe.batched_einsum("ik,kj->ij", [[A, B], [C, B]])
    assert two.then("2*v").epilogues[0] == two.then(["2*v", "2*v"]).epilogues[1]
    assert two.then([None, "out - v"]).updates == (False, True)
    assert two.then(["v", None]) == two


GATED = fe.batched_einsum("ik,kj->ij", [[A, B], [A, fe.array("G", (8, 4), "float32")]])


def test_one_output_is_made_of_the_sums_of_all_rows() -> None:
    """By a text that has v0, v1, ...; it is the only output, of the type of the rows, and may be updated."""
    e = GATED.then("silu(v0)*v1[i, j] + b[j]*out", b=BIAS)
    assert e.combines
    assert (e.b, e.output_names, e.dtypes, e.updates) == (2, ("out",), (np.float32,), (True,))
    assert e.epilogues[0].text("ij") == "b[j]*out + v1*(v0/(exp(-v0) + 1))"
    assert e.bare == GATED
    assert not GATED.then("2*v").combines
    sizes = {"N": 10}
    assert e.min_bytes(sizes) == GATED.min_bytes(sizes) + 16 + (1 - 2 + 1) * 160
    assert e.flops(sizes) == GATED.flops(sizes) + 6 * 40
    assert e.with_sizes({"i": 5}).combines
    assert latex(e).startswith(r"\begin{aligned} \mathrm{v0}_{ij} &= ")


def test_the_sum_of_a_row_may_have_the_name_of_an_array() -> None:
    """With indices it is the array, without them the sum."""
    v0, v1 = fe.array("v0", (3, 3)), fe.array("v1", (3, 3))
    e = fe.batched_einsum("ij,jk->ik", [[v0, v0], [v0, v1]]).then("v0*v1 - v0[k, i]")
    assert e.epilogues[0].rows == (0, 1)
    assert e.epilogues[0].arrays == (v0,)


SEVERAL_REFUSED = [
    ("v0 + v0", "makes one output of 2 rows, but has no 'v1'; leave that row out"),
    ("v0*v1 + v", "has 'v', the sum of each row, and 'v0', that of one"),
    ("v0*v2*v1", "has 'v2', but the sums of the 2 rows are v0 to v1"),
    ("v0 + v1[j, i]", r"reads 'v1\[j, i\]'; it is of v1\[i, j\], the entry"),
    (["v0 + v1", "v"], "has 'v0'; an epilogue is of the sum of its own row, v, or one text of those of all rows"),
]


@pytest.mark.parametrize(("text", "reason"), SEVERAL_REFUSED)
def test_what_cannot_be_made_of_several_rows_is_refused(text: str | list[str], reason: str) -> None:
    """With the row that is missing, or that there is not."""
    with pytest.raises(fe.SubscriptError, match=reason):
        GATED.then(text)


def test_rows_of_several_types_are_not_one_output() -> None:
    """Everything is computed in the type of the output, which is that of every row."""
    mixed = fe.batched_einsum("ij->i", [[fe.array("s", (3, 3), "float32")], [fe.array("d", (3, 3))]])
    with pytest.raises(fe.DTypeError, match="made of rows of one type, and v0 is float32, v1 is float64; convert"):
        mixed.then("v0*v1")


@settings(max_examples=25, deadline=None)
@given(
    st.permutations([0, 1, 2]),
    st.sampled_from(
        ["silu(v0)*v1 - b[i]*v2", "s*v0*v1*v2 + t", "where(v0 < v1, v2, out)", "v0 + v1 + v2", "v0/v1/v2*M0[i, j]"]
    ),
)
def test_keys_do_not_depend_on_the_order_of_rows_of_one_output(order: list[int], text: str) -> None:
    """The sums are renumbered with their rows; which sum stands where does distinguish."""
    b, rows = fe.array("b", 4), [[fe.array(f"M{k}", (4, 4)), fe.array("N", (4, 4))] for k in range(3)]
    e = fe.batched_einsum("ij,ij->ij", rows)
    e = e.then(text, **_read([text], {"b": b}))
    place = {row: k for k, row in enumerate(order)}
    moved = fe.batched_einsum("qp,qp->qp", [[fe.array("y", (4, 4)), fe.array(f"x{k}", (4, 4))] for k in order])
    spelled = re.sub(r"v(\d)", lambda m: f"v{place[int(m[1])]}", _spelled(text.replace("M0", "x0"), "qp"))
    moved = moved.then(spelled, **_read([spelled], {"b": b}))
    canonical, again = fe.canonicalize_einsum(e), fe.canonicalize_einsum(moved)
    assert canonical.key == again.key
    assert canonical.key.split("|ω:")[0] == fe.canonicalize_einsum(e.bare).key
    assert parse_key(canonical.key) == canonical.einsum
    renaming = fe.isomorphism(e, moved)
    assert renaming is not None
    assert renaming.apply(e) == moved


def test_rows_of_one_output_that_differ_have_keys_that_differ() -> None:
    """Of rows that are not alike it matters which one is where."""
    M, N, P = (fe.array(x, (4, 4)) for x in "MNP")
    e = fe.batched_einsum("ij,ij->ij", [[M, M], [N, P]])
    texts = ["v0 - v1", "v1 - v0", "silu(v0)*v1", "silu(v1)*v0", "v0*v1*M[i, j]", "v0*v1*N[i, j]", "2*v"]
    assert len({fe.canonicalize_einsum(e.then(t)).key for t in texts}) == len(texts)
    assert fe.canonicalize_einsum(e.then("v0 + v1")).key == fe.canonicalize_einsum(e.then("v1 + v0")).key


def test_a_long_axis_may_have_its_name_from_an_epilogue() -> None:
    """An anonymous axis is as long as what is read along it."""
    e = fe.einsum("ij->i", fe.array("M", (math.inf, 3)))
    then = e.then("v*w[i]", w=fe.array("w", "E"))
    assert then.index_sizes["i"] == "E"
    assert then.bare.index_sizes["i"] == "E"
    assert then.flops({"E": 10}) > e.flops({"i": 10})
    assert then.min_bytes({"E": 10}) == e.min_bytes({"i": 10}) + 80


def test_bytes_and_operations_of_an_epilogue_count() -> None:
    """What is read, the output where it is updated, and an operation an entry for each operator."""
    sizes = {"N": 10}
    assert MATRIX_PRODUCT.then("v + beta*out").min_bytes(sizes) == MATRIX_PRODUCT.min_bytes(sizes) + 160
    assert MATRIX_PRODUCT.then("v + b[j]", b=BIAS).min_bytes(sizes) == MATRIX_PRODUCT.min_bytes(sizes) + 16
    assert MATRIX_PRODUCT.then("v + beta*out").flops(sizes) == MATRIX_PRODUCT.flops(sizes) + 80


REFUSED = [
    ("out[j, i] + v", fe.SubscriptError, r"reads 'out\[j, i\]'; it is of out\[i, j\], the entry that it is worked out for"),
    ("out[0, 0] + v", fe.SubscriptError, "the entry that it is worked out for, alone"),
    ("v + b[k]", fe.SubscriptError, r"reads 'b\[k\]'; arrays are read at indices of the output, i, j"),
    ("v + b[j, i]", fe.SubscriptError, r"reads 'b' at 2 indices, but b: float32\[4\] has 1 axes"),
    ("v + b", fe.SubscriptError, "reads 'b' at 0 indices"),
    ("v + c[j]", fe.SubscriptError, r"reads 'c\[j\]', an array that was not given; pass c=feinsum.array"),
    ("v + b[j + 1]", fe.SubscriptError, "arrays are read at indices of the output"),
    ("v + b[i]", fe.ShapeError, r"index 'i' is N in operand 0 \('A'\) but 4 in the epilogue's 'b'"),
    ("v +", fe.SubscriptError, "is no expression"),
    ("v0 + v1", fe.SubscriptError, "has 'v0'; an epilogue is of the sum of its own row, v"),
    ("v > 0", fe.SubscriptError, "is a truth value"),
    ("v + (v > 0)", fe.SubscriptError, "a number is needed, not a truth value"),
    ("where(v, 1, 0)", fe.SubscriptError, "a condition, such as v > 0, is needed"),
    ("exec('1')", fe.SubscriptError, "calls 'exec'; it may call abs"),
    ("v.real", fe.SubscriptError, "has 'v.real', which has no meaning there"),
    ("[v for v in out]", fe.SubscriptError, "which has no meaning there"),
    ("exp(v, v)", fe.SubscriptError, "exp takes 1 argument"),
    ("exp", fe.SubscriptError, r"names the function 'exp' without calling it; write exp\(v\)"),
    ("v is out", fe.SubscriptError, "compares by 'v is out'"),
    ("True*v", fe.SubscriptError, "the constant True; constants are finite real numbers"),
    ("1e999*v", fe.SubscriptError, "constants are finite real numbers"),
    ("double*v", fe.SubscriptError, "names a scalar 'double'"),
    ("N*v", fe.ShapeError, "'N' names both a long axis and a number that the epilogue takes"),
    ("silu(" * 12 + "v" + ")" * 12, fe.SubscriptError, "which stands in it repeatedly"),
    ("-" * 150 + "v", fe.SubscriptError, "has more than 100 operators within each other"),
]


@pytest.mark.parametrize(("text", "error", "reason"), REFUSED)
def test_what_is_no_epilogue_is_refused_with_the_reason(text: str, error: type[Exception], reason: str) -> None:
    """The text is quoted, and what in it has no meaning."""
    arrays = {"b": BIAS} if "b" in text and "double" not in text else {}
    with pytest.raises(error, match=reason):
        MATRIX_PRODUCT.then(text, **arrays)


def test_types_that_do_not_promote_are_refused() -> None:
    """Everything is computed in the type of the output."""
    with pytest.raises(fe.DTypeError, match="reads 'b', which is float64, and its output is float32"):
        MATRIX_PRODUCT.then("v + b[j]", b=fe.array("b", 4, "float64"))
    whole = fe.einsum("i->i", fe.array("n", 4, "int32"))
    with pytest.raises(fe.DTypeError, match=r"has the constant 0\.5, and its output is int32"):
        whole.then("0.5*v")
    with pytest.raises(fe.DTypeError, match="takes 'exp' of int32"):
        whole.then("exp(v)")
    with pytest.raises(fe.DTypeError, match="takes 'where' of complex64"):
        fe.einsum("i->i", fe.array("z", 4, "complex64")).then("relu(v)")


def test_other_misuse_is_refused() -> None:
    """Arrays of one name, arrays that nothing reads, a second epilogue, a wrong number of them."""
    with pytest.raises(fe.ShapeError, match="two arrays are named 'A'"):
        MATRIX_PRODUCT.then("v + b[j]", b=fe.array("A", 4, "float32"))
    with pytest.raises(fe.SubscriptError, match=r"'b' is given, but the epilogue '2\*v' does not read it"):
        MATRIX_PRODUCT.then("2*v", b=BIAS)
    with pytest.raises(
        fe.SubscriptError, match=r"has an epilogue already; call \.then\(\) on the einsum's \.bare with one text for both$"
    ):
        MATRIX_PRODUCT.then("2*v").then("v + 1")
    with pytest.raises(fe.SubscriptError, match="2 epilogues for the 1 rows"):
        MATRIX_PRODUCT.then(["2*v", "v"])
    with pytest.raises(fe.SubscriptError, match=r"made by feinsum\.array"):
        MATRIX_PRODUCT.then("v + b[j]", b=[1, 2, 3, 4])  # type: ignore[arg-type]


LEAVES = st.sampled_from(["v", "out", "s", "t", "b[j]", "m[i, j]", "c", "2", "0", "0.5", "1"])
UNARY = [name for name, (letters, _) in EXPANDED.items() if letters == "x" and name != "isnan"]
NODES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "**"]), inner).map(lambda x: f"({x[0]}) {x[1]} ({x[2]})"),
        inner.map("-({})".format),
        st.tuples(inner, inner, st.sampled_from(["<", "<=", "=="])).map(
            lambda x: f"where({x[0]} {x[2]} {x[1]}, {x[1]}, v)"
        ),
        st.tuples(st.sampled_from(sorted([*UNARY, "exp", "tanh", "abs"])), inner).map(lambda x: f"{x[0]}({x[1]})"),
        st.tuples(inner, inner).map(lambda x: f"max({x[0]}, {x[1]})"),
    ),
    max_leaves=8,
)
GIVEN = {"b": fe.array("b", 4), "m": fe.array("m", ("N", 4)), "c": fe.array("c", ())}


@settings(max_examples=150, deadline=None)
@given(NODES)
def test_printing_and_reading_again_changes_nothing(text: str) -> None:
    """parse(print(x)) == x for the normal form."""
    epilogue = parse_epilogue(text, "ij", GIVEN)
    assert parse_epilogue(epilogue.text("ij"), "ij", GIVEN) == epilogue
    assert sum(1 for _ in tree.walk_tree(epilogue.expression)) < 2000


def test_every_function_can_be_called() -> None:
    """By its name, with as many arguments as it takes."""
    for name, function in NAMED.items():
        arguments = ["v > 0", "v", "out"][: function.arity] if name == "where" else ["v"] * function.arity
        assert name in text_of(f"{name}({', '.join(arguments)})") or function.arity > 1


def test_an_epilogue_on_the_command_line() -> None:
    """Its arrays have the axes of the indices that they are read at; what a report prints describes it again."""
    given = {"sizes": ["i=4,j=5,k=6"], "dtypes": ["float32", "c=int8"], "then": ["gelu(v + b[j])*c[i]"]}
    e = describe_arguments("ik,kj->ij", **given).einsum
    assert sorted(str(a) for a in e.arrays[2:]) == ["b: float32[5]", "c: int8[4]"]
    words = shlex.split(command("generate", e, {}))
    options = {flag: [b for a, b in pairwise(words) if a == flag] for flag in ("--shape", "--dtype", "--then")}
    again = describe_arguments(words[2], shapes=options["--shape"], dtypes=options["--dtype"], then=options["--then"])
    assert again.einsum == e


def test_one_output_of_several_rows_on_the_command_line() -> None:
    """The one text has the sums of all rows."""
    given = {"shapes": ["x=3,8", "w=8,5", "u=8,5"], "rows": ["x,w", "x,u"], "then": ["silu(v0)*v1"]}
    e = describe_arguments("ik,kj->ij", **given).einsum
    assert e.combines
    words = shlex.split(command("generate", e, {}))
    options = {flag: [b for a, b in pairwise(words) if a == flag] for flag in ("--shape", "--row", "--then")}
    assert (
        describe_arguments(words[2], shapes=options["--shape"], rows=options["--row"], then=options["--then"]).einsum == e
    )


@settings(max_examples=40, deadline=None)
@given(st.data(), st.randoms(use_true_random=False))
def test_keys_do_not_depend_on_names_or_order(data: st.DataObject, rng: random.Random) -> None:
    """Of arrays, numbers, indices, operands and rows; the bare part is the key of the bare einsum."""
    operands = [[fe.array(f"{x}{i}", (4, 4)) for x in "MN"] for i in range(data.draw(st.integers(1, 3)))]
    b, c = fe.array("b", 4), fe.array("c", (4, 4))
    given_arrays = {"b": b, "c": c, "M0": operands[0][0]}
    texts = ["v", "s*v + t*out", "v*b[i]", "v*c[i, j] + c[j, i]", "v + M0[i, j]", "max(v, s)", "t*v + s"]
    chosen = [data.draw(st.sampled_from(texts)) for _ in operands]
    e = fe.batched_einsum("ij,ij->ij", operands).then(chosen, **_read(chosen, given_arrays))

    new = {name: f"q{k}" for k, name in enumerate(rng.sample([a.name for a in e.arrays], len(e.arrays)))}
    rows = rng.sample(range(len(operands)), len(operands))
    swapped = rng.random() < 0.5
    letters = rng.choice(["ij", "ji", "xy"])
    renamed = {a.name: fe.array(new[a.name], a.shape) for a in e.arrays}
    matrix = [[renamed[a.name] for a in (operands[i][::-1] if swapped else operands[i])] for i in rows]
    other = fe.batched_einsum(f"{letters},{letters}->{letters}", matrix).then(
        [_spelled(chosen[i], letters) for i in rows],
        **{f"{x}": renamed[a.name] for x, a in _read(chosen, given_arrays).items()},
    )
    first, second = fe.canonicalize_einsum(e), fe.canonicalize_einsum(other)
    assert first.key == second.key
    assert first.einsum == second.einsum
    assert first.key.split("|ω:")[0] == fe.canonicalize_einsum(e.bare).key
    renaming = fe.isomorphism(e, other)
    assert renaming is not None
    assert renaming.apply(e) == other
    assert renaming.inverse.apply(other) == e
    assert parse_key(first.key) == first.einsum


def _read(texts: list[str], arrays: dict[str, fe.Array]) -> dict[str, fe.Array]:
    return {name: a for name, a in arrays.items() if any(f"{name}[" in text for text in texts)}


def _spelled(text: str, letters: str) -> str:
    """A text with other letters of indices, and other names of numbers."""
    inside = re.sub(r"\[(.*?)\]", lambda m: f"[{m[1].replace('i', '0').replace('j', '1')}]", text)
    inside = inside.replace("[0", f"[{letters[0]}").replace("[1", f"[{letters[1]}")
    inside = inside.replace(", 0", f", {letters[0]}").replace(", 1", f", {letters[1]}")
    return re.sub(r"\bt\b", "beta", re.sub(r"\bs\b", "alpha", inside))


def test_epilogues_that_differ_have_keys_that_differ() -> None:
    """Which array, at which indices, with which numbers, in which row."""
    M, N = fe.array("M", (4, 4)), fe.array("N", (4, 5))
    e = fe.einsum("ij,jk->ik", M, N)
    square = fe.array("c", (4, 4))
    texts = ["v + s", "v + out", "s*v + t", "s*v + s", "v - 1", "v - 2", "v*b[i]", "v*b[i] + b[i]", "v*b[i] + d[i]"]
    arrays = {"b": fe.array("b", 4), "d": fe.array("d", 4), "c": square}
    keys = [fe.canonicalize_einsum(e.then(t, **_read([t], arrays))).key for t in texts]
    both = fe.einsum("ij,ji->ij", square, square)
    keys += [fe.canonicalize_einsum(both.then(t)).key for t in ("v*c[i, j]", "v*c[j, i]")]
    assert len(set(keys)) == len(keys)
