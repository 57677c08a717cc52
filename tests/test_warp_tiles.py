"""The plan of warp tiles: what its fields mean, what operators ask of it, what it counts and what it refuses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from profiles import GPU

import feinsum as fe
from feinsum.compile.realize import realize
from feinsum.errors import TransformError
from feinsum.lower import generate_loopy
from feinsum.match import match_einsum
from feinsum.parameters import described_fields, described_parameters
from feinsum.registry import find_space
from feinsum.skeletons.warp_tiles import Prefetch, TallProduct, WarpTiles, write

SHORT = "fp64-mma-m16n8k4"
OPERATORS = {
    "dg_gradient_mma": ("xre,rij,ej->xei", {"columns": 5, "sums": (6,), "batch": 2, "results": 3, "held": 6}),
    "dg_derivative_mma": ("re,rij,ej->ei", {"columns": 5, "sums": (6,), "batch": 2, "held": 2}),
    "dg_mass_mma": ("e,ij,ej->ei", {"columns": 5, "sums": (6,), "held": 1}),
    "dg_face_mass_mma": ("ifj,fe,fej->ei", {"columns": 5, "sums": (4, 6), "held": 4, "planes": 4}),
    "dg_divergence_mma": ("xre,rij,xej->ei", {"columns": 5, "sums": (2, 6), "held": 6, "planes": 3}),
}
LENGTHS: dict[str, int | str] = {"e": "E", "i": 5, "j": 6, "f": 4, "x": 3, "r": 2}
REFUSED: dict[str, dict[str, Any]] = {
    "come and go": {"product_major": True},
    "not staggered": {"stagger": 500},
    "whole rows": {"staged": True, "n_split": 2},
    "odd length": {"vector_stores": True},
    "by themselves": {"accumulation": "whole"},
    "no way to add": {"accumulation": "twice"},
    "those that the unit multiplies": {"loads_in_flight": 0, "product": TallProduct(np.dtype(np.float32), 5, (6,))},
    "come by copies, or not ahead": {"prefetch": Prefetch.VALUES, "k_slices": 2},
    "not whole pieces of 16 bytes": {
        "prefetch": Prefetch.COPIES,
        "product": TallProduct(np.dtype(float), 5, (7,), planes=2),
    },
    "has warps, parts, slices": {"warps": 0},
    "no matrix unit 'abacus'": {"matrix_unit": "abacus"},
    "multiply float64, or float32, and not complex64": {"product": TallProduct(np.dtype(np.complex64), 5, (6,))},
    "too short for float64": {"matrix_unit": "tf32-mma-m16n8k8"},
}


def described(subscripts: str, *rows: str, dtype: str = "float64") -> fe.BatchedEinsum:
    """An einsum with the names of the operands of each row, for example ``"J D u"``."""
    shapes = [tuple(LENGTHS[x] for x in letters) for letters in subscripts.partition("->")[0].split(",")]
    return fe.batched_einsum(
        subscripts,
        [[fe.array(name, shape, dtype) for name, shape in zip(row.split(), shapes, strict=True)] for row in rows],
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_tall_products(name: str) -> None:
    """Which indices are summed, accumulated at a time, held and copied follows from the role of each operand."""
    subscripts, expected = OPERATORS[name]
    s = find_space(name)
    p = s.problem(described(subscripts, "A B C"), {"E": 1000}, GPU)
    assert s.plan is not None
    assert s.plan(p, s.default(p)).product == TallProduct(np.dtype(float), **expected)


WITHOUT_METRIC = {
    "ij,ej->ei": {},
    "rij,ej->rei": {"batch": 2, "results": 2},
    "rij,rej->rei": {"batch": 2, "results": 2, "planes": 2, "fields": 2},
    "ij,rej->rei": {"batch": 2, "results": 2, "planes": 2, "fields": 2, "shared": 2},
    "rij,rej->ei": {"sums": (2, 6), "planes": 2},
}


@pytest.mark.parametrize("subscripts", WITHOUT_METRIC)
def test_matrices_without_a_metric_are_tall_products(subscripts: str) -> None:
    """Where r is in the matrix, in the values, in both or summed; values of several products are not copied."""
    s = find_space("dg_matrix_mma")
    p = s.problem(described(subscripts, "A B"), {"E": 1000}, GPU)
    assert s.plan is not None
    plan = s.plan(p, s.default(p))
    assert plan.product == TallProduct(np.dtype(float), **{"columns": 5, "sums": (6,), **WITHOUT_METRIC[subscripts]})
    copied = {choice for choice in s.parameters(p)["prefetch"] if Prefetch(str(choice)).copies}
    assert bool(copied) == (plan.product.fields == 1)
    # a matrix that products share lies in local memory once
    assert plan.product.distinct_matrices == (2 if subscripts.startswith("r") and subscripts != "rij,rej->ei" else 1)


@pytest.mark.parametrize("output", ["ei", "ie"])
def test_the_long_index_is_that_of_elements(output: str) -> None:
    """A matrix and values have equal forms: which index is e follows from the lengths, not from the order of axes."""
    arrays = fe.array("A", (30_000, 6)), fe.array("B", (5, 6))
    for e in (fe.einsum(f"ej,ij->{output}", *arrays), fe.einsum(f"ij,ej->{output}", *arrays[::-1])):
        assert find_space("dg_matrix_mma").problem(e, {}, GPU).sizes == {"e": 30_000, "i": 5, "j": 6}


def test_values_of_several_products_are_not_copied() -> None:
    """As copies take rows of a plane, and lanes would need one of each product."""
    product = TallProduct(np.dtype(float), 5, (6,), batch=2, fields=2, planes=2)
    with pytest.raises(TransformError, match="values of several products are not copied"):
        WarpTiles(product, SHORT, warps=4, prefetch=Prefetch.COPIES)


def test_what_only_looks_like_an_operator_is_refused_at_once() -> None:
    """An MTTKRP is a derivative with a matrix of 200 MB: one configuration is looked at, to say why."""
    s = find_space("dg_derivative_mma")
    arrays = fe.array("A", (400, 380, 360)), fe.array("B", (380, 32)), fe.array("C", (360, 32))
    p = s.problem(fe.einsum("ijk,jr,kr->ir", *arrays), {}, GPU)
    assert {len(values) for values in s.parameters(p).values()} == {1}
    with pytest.raises(TransformError, match="has no configuration"):
        s.default(p)


def test_every_parameter_is_told_at_a_field_of_the_plan() -> None:
    """No field is without its meaning, and no parameter of a space without a field."""
    assert set(described_fields(WarpTiles)) == set(WarpTiles.__dataclass_fields__)
    for name, (subscripts, _) in OPERATORS.items():
        s = find_space(name)
        p = s.problem(described(subscripts, "A B C"), {"E": 1000}, GPU)
        assert set(s.parameters(p)) <= set(described_parameters(WarpTiles)) == set(s.described)


def test_what_comes_ahead_is_read_as_it_is_written() -> None:
    """Every choice that spaces offer is a word of the plan, and the words are told apart by what they bring."""
    assert [Prefetch(str(word)) for word in Prefetch] == list(Prefetch)
    assert len({(word.copies, word.loads, word.held) for word in Prefetch}) == len(Prefetch)
    s = find_space("dg_gradient_mma")
    p = s.problem(described("xre,rij,ej->xei", "J D u"), {"E": 1000}, GPU)
    assert {Prefetch(word) for word in s.parameters(p)["prefetch"]} == set(Prefetch)


@pytest.mark.parametrize("reason", REFUSED)
def test_plans_that_cannot_be_written_are_refused(reason: str) -> None:
    """With the reason, where the plan is made, not where the kernel is written."""
    usual: dict[str, Any] = {"product": TallProduct(np.dtype(float), 5, (6,)), "matrix_unit": SHORT, "warps": 4}
    with pytest.raises(TransformError, match=reason):
        WarpTiles(**{**usual, **REFUSED[reason]})


def test_products_have_positive_lengths() -> None:
    """Nothing is multiplied where there is nothing to sum."""
    for sums in ((0,), ()):
        with pytest.raises(TransformError, match="positive lengths and counts"):
            TallProduct(np.dtype(float), 5, sums)


def test_a_plan_is_for_products_of_one_shape() -> None:
    """What its registers and its local memory are counted for is what is written."""
    t_unit = generate_loopy(described("ij,ej->ei", "M u"))
    m = match_einsum(t_unit)
    rows, columns = m.einsum.indexing.output
    write(t_unit, m, WarpTiles(TallProduct(np.dtype(float), 5, (6,)), SHORT, 4), None, rows, columns)
    for other in (TallProduct(np.dtype(float), 6, (6,)), TallProduct(np.dtype(float), 5, (5,))):
        with pytest.raises(TransformError, match="the plan is for"):
            write(t_unit, m, WarpTiles(other, SHORT, 4), None, rows, columns)


def test_local_memory_is_counted_for_the_most_outputs_of_a_product() -> None:
    """Of four derivatives three share one of two fields: rows of three are staged at a time, not of two."""
    e, s = described("re,rij,ej->ei", "J D u", "K D u", "L D u", "J D v"), find_space("dg_derivative_mma")
    p = s.problem(e, {"E": 1000}, GPU)
    c = {**s.default(p), "staged": True, "prefetch": "none", "burst": 8}
    assert s.refusal(p, c) is None
    declared = re.findall(r"__local double \w+\[([\d *]+)\]", realize(e, {"E": 1000}, s, c, GPU).source)
    assert s.plan is not None
    assert s.plan(p, c).local_bytes() == sum(8 * eval(size) for size in declared)


def test_every_metric_of_a_gradient_is_held() -> None:
    """Two outputs with metrics of their own hold both, and the registers of both are counted."""
    s = find_space("dg_gradient_mma")
    shared, apart = (described("xre,rij,ej->xei", "J D u", f"{metric} D v") for metric in ("J", "K"))
    plans = [s.plan(p, s.default(p)) for p in (s.problem(e, {"E": 1000}, GPU) for e in (shared, apart)) if s.plan]
    assert [plan.product.held for plan in plans] == [6, 12]


def test_registers_beyond_those_of_a_work_item_are_told() -> None:
    """A mass matrix of 120 nodes with values that wait needs 272; what is beyond 255 is in memory, as the model learns."""
    arrays = (fe.array("J", ("E",)), fe.array("M", (120, 120)), fe.array("u", ("E", 120)))
    e, s = fe.einsum("e,ij,ej->ei", *arrays), find_space("dg_mass_mma")
    p = s.problem(e, {"E": 1000}, GPU)
    c = {**s.default(p), "staged": False, "sub_groups": 8, "prefetch": "all", "parts": 3, "weighted": False}
    assert s.refusal(p, c) is None
    assert s.plan is not None
    assert s.work(p, c).registers_bytes == 4 * s.plan(p, c).registers() == 4 * 272
