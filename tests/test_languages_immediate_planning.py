"""Plans: einsums as loops over matrix products; what the document prints, never costlier than another way, and right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations, product
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import feinsum as fe
from feinsum.cli import cli
from feinsum.errors import DTypeError, ShapeError, SubscriptError
from feinsum.languages.immediate.index_orders import Costs
from feinsum.languages.immediate.joint_orders import total_work, trees_together
from feinsum.languages.immediate.planner import Expression, Planner, Tree, tree_of


def described(text: str, sizes: dict[str, Any], dtype: str = "float64") -> fe.BatchedEinsum:
    """An einsum with operands A, B, ..., and lengths by letter."""
    terms = text.partition("->")[0].split(",")
    arrays = [fe.array("ABCDFGH"[k], tuple(sizes[x] for x in term), dtype) for k, term in enumerate(terms)]
    return fe.einsum(text, *arrays)


def maps(program: fe.Program) -> list[str]:
    """The index maps of a program's instructions."""
    return [f"{i.opcode} {i.map}" for i in program.function().walk() if hasattr(i, "map")]


FEM = {"k": 56, "l": 56, "d": 3, "f": 4, "m": 21, "n": 21, "q": 9, "p": 9, "e": "E"}
TABLE = [
    ("ikm,mjn->ijnk", {"i": 8, "k": 9, "m": 10, "j": 11, "n": 12}, "F", ["log {i[k]m, m(jn) to i(jn)[k]}"]),
    ("kld,lq,qpd->kp", FEM, "F", ["log {lq, qp[d] to l[d]p}", "log {k(ld), (ld)p to kp}"]),
    (
        "kmf,mlf,lq,qpf->kp",
        FEM,
        "F",
        ["log {ml[f], lq to m[f]q}", "log {m[f]q, qp[f] to m[f]p}", "log {k(mf), (mf)p to kp}"],
    ),
    (
        "pqrs,pi,qj,rk,sl->ijkl",
        dict(zip("pqrsijkl", (10, 11, 12, 13, 5, 6, 7, 8), strict=True)),
        "F",
        [
            "log {p(qrs), pi to (qrs)i}",
            "log {q(rsi), qj to (rsi)j}",
            "log {r(sij), rk to (sij)k}",
            "log {s(ijk), sl to (ijk)l}",
        ],
    ),
    ("kl,elq,eqp->ekp", FEM, "C", ["log {lk, ql to kq}", "log {pq, kq to pk}"]),
    ("ij,jk->i", {"i": 4, "j": 5, "k": 6}, "F", ["sum {jk to j}", "log {ij, j to i}"]),
    ("ij->ji", {"i": 4, "j": 5}, "F", ["axpby {ij to ji}"]),
    ("i,j->ij", {"i": 4, "j": 5}, "F", ["product {i, j to ij}"]),
    ("i,i->", {"i": 4}, "F", ["log {i, i to _}"]),
]


@pytest.mark.parametrize(("text", "sizes", "order", "wanted"), TABLE, ids=[row[0] for row in TABLE])
def test_plans_of_known_einsums(text: str, sizes: dict[str, Any], order: str, wanted: list[str]) -> None:
    """The document's example, operators of finite elements, the transform of four indices, and small ones."""
    found = maps(fe.plan(described(text, sizes), order=order))
    assert found == wanted


def test_the_plan_of_the_documents_example() -> None:
    """As the document prints it, operands and marks included."""
    program = fe.plan(described(*TABLE[0][:2]))
    assert str(program) == (
        "define @plan(%A: memref<f64x8x9x10>, %B: memref<f64x10x11x12>, %out: memref<f64x8x11x12x9>) {\n"
        "    log {i[k]m, m(jn) to i(jn)[k]} 1.0, %A, %B, 0.0, %out\n"
        "        : memref<f64x8x9x10>, memref<f64x10x11x12> to memref<f64x8x11x12x9>\n}\n"
    )


@st.composite
def expressions(draw: st.DrawFn, most: int = 4) -> Expression:
    """Operands of up to three indices; each index of the output is in an operand."""
    terms = draw(st.lists(st.permutations("abcde").map(lambda p: "".join(p[:3])), min_size=2, max_size=most))
    terms = [term[: draw(st.integers(1, 3))] for term in terms]
    inside = sorted(set("".join(terms)))
    chosen = draw(st.permutations(inside))[: draw(st.integers(0, min(3, len(inside))))]
    lengths = {x: draw(st.sampled_from([1, 2, 3, 8, 20])) for x in inside}
    return Expression(tuple(terms), "".join(chosen), lengths)


def paths(count: int) -> Iterator[list[tuple[int, int]]]:
    """Every order of pairwise contractions."""
    if count == 1:
        yield []
        return
    for i in range(count):
        for j in range(i + 1, count):
            for rest in paths(count - 1):
                yield [(i, j), *rest]


@settings(max_examples=25, deadline=None)
@given(expressions())
def test_no_order_of_contraction_is_cheaper(e: Expression) -> None:
    """Among all orders of up to four operands, none has fewer operations, or as many and a lower cost."""
    best = Planner(e)
    trees = (tree_of(path, len(e.terms)) for path in paths(len(e.terms)))
    found = min((p.flops, p.best[0][:4]) for p in (Planner(e, tree) for tree in trees))
    assert (best.flops, best.best[0][:4]) == found


@settings(max_examples=25, deadline=None)
@given(expressions(), st.randoms())
def test_the_order_of_operands_does_not_matter(e: Expression, random: Any) -> None:
    """Neither for the cost nor for the program, names aside."""
    places = list(range(len(e.terms)))
    random.shuffle(places)
    other = Planner(Expression(tuple(e.terms[k] for k in places), e.output, e.lengths))
    mine = Planner(e)
    assert other.best[0] == mine.best[0]
    assert other.flops == mine.flops


@settings(max_examples=40, deadline=None)
@given(expressions(most=2), st.data())
def test_orders_of_one_product_by_brute_force(e: Expression, data: st.DataObject) -> None:
    """The cost written down once more, for every choice of groups, without tables; what one operand alone has is kept."""
    a, b = e.terms
    kept_ones = sorted(set(a) ^ set(b)) + [x for x in sorted(set(a) & set(b)) if data.draw(st.booleans())]
    e = Expression(e.terms, "".join(data.draw(st.permutations(kept_ones))), e.lengths)
    costs = Costs(e.lengths, e.itemsize)
    kept = "".join(sorted(e.output))
    table = costs.product({a: ((0, 0, 0, 0, a), Any)}, {b: ((0, 0, 0, 0, b), Any)}, kept, [e.output])  # type: ignore[dict-item]
    assert table[e.output][0][0] == min(_product_costs(a, b, e))


def _product_costs(a: str, b: str, e: Expression) -> Iterator[int]:
    c, n = e.output, e.lengths

    def size(letters: Any) -> int:
        return int(np.prod([n[x] for x in letters], dtype=int))

    common = set(a) & set(b) & set(c)
    classes = [(set(a) & set(c)) - common, (set(b) & set(c)) - common, (set(a) & set(b)) - set(c)]
    choices = [["".join(p) for r in range(len(one) + 1) for p in permutations(sorted(one), r)] for one in classes]
    for m in choices[0]:
        for o in choices[1]:
            for k in choices[2]:
                if not (m in a and k in a and o in b and k in b and m in c and o in c):
                    continue
                inside, loops = m + o + k, (set(a) | set(b) | set(c)) - set(m + o + k)
                total = 4 * 64 * size(loops)
                for term in (a, b, c):
                    inner = [x for x in term if x in inside]
                    stride = size(term[: term.index(inner[0])]) if inner and term[0] not in inside else 1
                    reads = 3 + min(size(loops - set(term)), 4) + 0 if term is not c else 4
                    reads = 8 if term is c and loops & classes[2] else reads
                    total += 8 * size(term) * max(1, min(stride, 8)) * reads
                yield total


def test_several_outputs_share_partial_results() -> None:
    """What two of them need is computed once."""
    arrays = {name: fe.array(name, shape) for name, shape in (("A", (3, 4)), ("B", (4, 5)), ("C", (5, 6)), ("D", (5, 6)))}
    rows = [[arrays[name] for name in row] for row in ("ABC", "ABD")]
    program = fe.plan(fe.batched_einsum("ij,jk,kl->il", rows))
    assert maps(program) == ["log {ij, jk to ik}", "log {ik, kl to il}", "log {ik, kl to il}"]
    rng = np.random.default_rng(0)
    values = {name: rng.random(a.shape) for name, a in arrays.items()}
    out = program.interpret(**values, out_0=np.zeros((3, 6)), out_1=np.zeros((3, 6)))
    for got, last in zip(out, "CD", strict=True):
        np.testing.assert_allclose(got, values["A"] @ values["B"] @ values[last])


def every_tree(operands: frozenset[int]) -> Iterator[Tree]:
    """Every tree of pairwise products, written down once more."""
    if len(operands) == 1:
        yield {}
    for size in range(1, len(operands)):
        for left in map(frozenset, combinations(sorted(operands), size)):
            if min(operands) in left:
                for one, other in product(every_tree(left), every_tree(operands - left)):
                    yield {operands: (left, operands - left), **one, **other}


@settings(max_examples=40, deadline=None)
@given(expressions(), st.data())
def test_no_orders_of_several_outputs_have_fewer_operations(e: Expression, data: st.DataObject) -> None:
    """Every choice of a tree for each of them, what is the same counted once; and plans have no more than the best one."""
    n = len(e.terms)
    most = 2 if n > 3 else 3
    rows = data.draw(st.lists(st.tuples(*(st.sampled_from("xy") for _ in range(n))), min_size=2, max_size=most))
    planner = Planner(e, tree_of([(0, 1)] * (n - 1), n))
    trees = list(every_tree(frozenset(range(n))))
    least = min(_shared_work(planner, rows, choice) for choice in product(trees, repeat=len(rows)))
    found = trees_together(planner, rows, trees[-1])
    assert total_work(planner, rows, found) == _shared_work(planner, rows, found) == least
    shapes = [tuple(e.lengths[x] for x in term) for term in e.terms]
    arrays = [[fe.array(f"{name}{k}", shapes[k]) for k, name in enumerate(row)] for row in rows]
    program = fe.plan(fe.batched_einsum(f"{','.join(e.terms)}->{e.output}", arrays))
    assert _operations(program) <= least


def test_outputs_share_a_product_whose_order_is_not_the_best_of_one() -> None:
    """The product ``abc,abd`` is computed once: two outputs take 12 operations by it, and 13 by the best order of one."""
    e = Expression(("a", "abc", "abd"), "acd", {"a": 1, "b": 1, "c": 1, "d": 3}, 8)
    planner, rows = Planner(e, tree_of([(0, 1)] * 2, 3)), [("x", "x", "x")] * 2
    assert total_work(planner, rows, trees_together(planner, rows, tree_of([(0, 1)] * 2, 3))) == 12


def _shared_work(planner: Planner, rows: Any, trees: Any) -> int:
    """Operations of some outputs; a partial result is known by how it is made."""
    seen: dict[Any, int] = {}
    for number, (row, tree) in enumerate(zip(rows, trees, strict=True)):

        def how(operands: frozenset[int], row: Any = row, tree: Any = tree) -> Any:
            if operands in tree:
                return frozenset(how(part) for part in tree[operands])
            (k,) = operands
            return k, row[k]

        for operands, work in planner.work_of(tree).items():
            seen[how(operands), number if len(operands) == len(row) else -1] = work
    return sum(seen.values())


def _operations(program: fe.Program) -> int:
    """Multiplications and additions of a plan."""
    total = 0
    for update in program.function().walk():
        if hasattr(update, "map") and update.opcode != "axpby":
            terms, shapes = update.map.terms, (type_.shape for type_ in update.types)
            lengths = {
                x: n for term, own in zip(terms, shapes, strict=True) for x, n in zip(term.letters, own, strict=True)
            }
            is_product_and_sum = update.opcode == "log"
            total += int(np.prod(list(lengths.values()), dtype=int)) * (1 + is_product_and_sum)
    return total


def test_outputs_take_orders_of_their_own_where_they_share_more() -> None:
    """Two of them have the first product in common, and two the second one; the order is not the same for all."""
    arrays = {name: fe.array(name, (4, 4)) for name in "ABCDEFG"}
    rows = [[arrays[name] for name in row] for row in ("ABC", "ABD", "EFG", "DFG")]
    program = fe.plan(fe.batched_einsum("ij,jk,kl->il", rows))
    assert len(maps(program)) == 6
    rng = np.random.default_rng(0)
    values = {name: rng.random((4, 4)) for name in "ABCDEFG"}
    out = program.interpret(**values, **{f"out_{k}": np.zeros((4, 4)) for k in range(4)})
    for got, (a, b, c) in zip(out, ("ABC", "ABD", "EFG", "DFG"), strict=True):
        np.testing.assert_allclose(got, values[a] @ values[b] @ values[c])


@pytest.mark.parametrize("outputs", [1, 2])
def test_many_operands_are_never_costlier_than_in_the_order_given(outputs: int) -> None:
    """Of twelve matrices, which are too many to look at every set of them."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        sizes = [int(n) for n in rng.integers(1, 30, 13)]
        arrays = [fe.array(f"A{k}", (sizes[k], sizes[k + 1])) for k in range(12)]
        text = ",".join(ascii_lowercase[k : k + 2] for k in range(12)) + "->am"
        rows = [arrays, [*arrays[:-1], fe.array("B", arrays[-1].shape)]][:outputs]
        left_to_right = sum(2 * sizes[0] * sizes[k] * sizes[k + 1] for k in range(1, 12))
        last = 2 * sizes[0] * sizes[11] * sizes[12] * (outputs - 1)
        assert _operations(fe.plan(fe.batched_einsum(text, rows))) <= left_to_right + last


def test_products_of_arrays_in_one_operand() -> None:
    """They are multiplied first."""
    x, y, z = fe.array("x", 4), fe.array("y", 4), fe.array("z", (4, 3))
    program = fe.plan(fe.batched_einsum("i,ij->j", [[(x, y), z]]))
    assert maps(program)[0] == "product {i, i to i}"
    values = {"x": np.arange(4.0), "y": np.ones(4) * 2, "z": np.arange(12.0).reshape(4, 3)}
    np.testing.assert_allclose(program.interpret(**values, out=np.zeros(3)), 2 * values["x"] @ values["z"])


@settings(max_examples=40, deadline=None)
@given(expressions(), st.sampled_from("FC"))
def test_plans_compute_their_einsum(e: Expression, order: str) -> None:
    """Interpreted, with integers; the array of the program has the indices in reverse where the last is the fastest."""
    text = f"{','.join(e.terms)}->{e.output}"
    lengths = {x: min(n, 3) for x, n in e.lengths.items()}
    program = fe.plan(described(text, lengths), order=order)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, [lengths[x] for x in term]).astype(float) for term in e.terms]
    out = np.full([lengths[x] for x in e.output], np.nan)
    step = 1 if order == "F" else -1
    given_ = {"ABCDFGH"[k]: a.transpose(range(a.ndim)[::step]) for k, a in enumerate(arrays)}
    program.interpret(**given_, out=out.transpose(range(out.ndim)[::step]))
    np.testing.assert_array_equal(out, np.einsum(text, *arrays))


def test_a_batch_runs_on_a_device(cpu: fe.Device) -> None:
    """A long axis in front of arrays as numpy has them is the batch; raised, the plan is the einsum again."""
    sizes = {**FEM, "k": 10, "l": 10, "q": 3, "p": 3}
    e = described("dkl,elq,edqp->ekp", sizes)
    program = fe.plan(e, order="C")
    kernel = fe.build(program, device=cpu)
    assert kernel.ir() == "C := {pqd, lkd, ql to pk}\n"
    rng = np.random.default_rng(0)
    K, Q, S = rng.random((3, 10, 10)), rng.random((50, 10, 3)), rng.random((50, 3, 3, 3))
    out = np.zeros((50, 10, 3))
    kernel(A=K.T, B=Q.transpose(0, 2, 1), C=S.transpose(0, 3, 2, 1), out=out.transpose(0, 2, 1))
    np.testing.assert_allclose(out, np.einsum(e.subscripts, K, Q, S))


def test_what_has_no_plan() -> None:
    """Diagonals, complex numbers, several types, too many operands, and long axes that are no batch."""
    with pytest.raises(SubscriptError, match="index twice"):
        fe.plan(described("ii->i", {"i": 3}))
    with pytest.raises(DTypeError, match="complex"):
        fe.plan(described("ij,jk->ik", {"i": 3, "j": 3, "k": 3}, "complex64"))
    with pytest.raises(ShapeError, match="order='C'"):
        fe.plan(described("ei,ij->ej", {"e": "E", "i": 3, "j": 3}))
    with pytest.raises(SubscriptError, match="orders of up to 10"):
        Planner(Expression(tuple(ascii_lowercase[:11]), "", dict.fromkeys(ascii_lowercase[:11], 2)))
    assert maps(fe.plan(described("ei,ij->ej", {"e": "E", "i": 3, "j": 3}), {"E": 7})) == ["log {ei, ij to ej}"]


def test_the_command_prints_a_program() -> None:
    """Which can be read, and is that of `fe.plan`."""
    arguments = ["plan", "ikm,mjn->ijnk", "--size", "i=8,k=9,m=10,j=11,n=12"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0
    assert result.output == str(fe.plan(described(*TABLE[0][:2])))
    assert "group<" in CliRunner().invoke(cli, ["plan", "ei,ij->ej", "--size=i=3,j=4", "--long=e", "--order=C"]).output
