"""Plans for what is bound by memory: how strips of lanes fit rows of any length."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from profiles import CPU, GPU

import feinsum as fe
from feinsum.devices import DeviceProfile
from feinsum.errors import TransformError
from feinsum.registry import find_space
from feinsum.space import Configuration, Problem, TransformSpace, Value


def described(subscripts: str, dtype: str = "float64", **sizes: int) -> fe.BatchedEinsum:
    """An einsum of arrays with these lengths."""
    terms = subscripts.split("->")[0].split(",")
    return fe.einsum(subscripts, *(fe.array(f"a{k}", [sizes[x] for x in term], dtype) for k, term in enumerate(terms)))


def default(subscripts: str, dtype: str = "float64", **sizes: int) -> Configuration:
    """The default configuration of sums of one operand on a CPU."""
    s = find_space("reduction")
    return s.default(s.problem(described(subscripts, dtype, **sizes), {}, CPU))


@pytest.mark.parametrize(
    ("row", "dtype", "strips"),
    [
        (3000, "float64", 4),
        (1000, "float32", 4),
        (64, "float64", 4),
        (16, "float64", 2),
        (16, "float32", 1),
        (30, "float64", 1),
    ],
)
def test_rows_are_summed_in_strips_rather_than_number_by_number(row: int, dtype: str, strips: int) -> None:
    """Four strips of vectors side by side where a row is long, as many as leave few numbers where it is short."""
    assert default("bij,bj->bi", dtype, b=1000, i=16, j=row)["accumulators"] == strips


@pytest.mark.parametrize(("row", "dtype", "together"), [(200, "float32", 1), (200, "float64", 1), (3000, "float64", 8)])
def test_short_rows_are_summed_one_at_a_time(row: int, dtype: str, together: int) -> None:
    """A row that is shorter than a page ends before it has been fetched ahead."""
    assert default("bij->bj", dtype, b=100, i=200, j=row)["together"] == together


@pytest.mark.parametrize(("subscripts", "by_rows"), [("ji->ij", False), ("ji,ij->ij", True)])
def test_products_store_their_tiles_row_by_row(subscripts: str, *, by_rows: bool) -> None:
    """As the other operand is read along the same rows; a tile of a copy is stored in columns as wide as a vector, and so
    are squares that are turned round, as a first guess where there are many."""
    s = find_space("permutation")
    p = s.problem(described(subscripts, i=50, j=50), {}, CPU)
    assert s.plan is not None
    assert (s.default(p)["by_rows"], s.default(p)["square"]) == (by_rows, False)
    assert s.plan(p, {**s.default(p), "by_rows": True}).order == p.einsum.indexing.output
    assert s.plan(p, {**s.default(p), "by_rows": False}).order == p.einsum.indexing.output[::-1]
    long = s.problem(described(subscripts, i=300, j=300), {}, CPU)
    assert (s.default(long)["by_rows"], s.default(long)["square"]) == (False, True)
    with pytest.raises(TransformError, match="no squares of"):
        s.plan(long, {**s.default(long), "by_rows": True})


@pytest.mark.parametrize("device", [CPU, GPU], ids=lambda device: device.kind)
def test_results_are_done_in_order_where_little_else_is_read(device: DeviceProfile) -> None:
    """First where rows are short, last where they fill tiles; not where neighbours read lines far from each other."""

    def tiles(subscripts: str, **sizes: int) -> Sequence[Value]:
        return s.parameters(s.problem(described(subscripts, **sizes), {}, device))["tile"]

    s = find_space("permutation")
    assert tiles("nij->nji", n=10**5, i=6, j=5)[0] == 0
    assert tiles("nij->nji", n=10**5, i=20, j=20)[-1] == 0
    assert tiles("vn->nv", n=10**6, v=5)[0] == 0
    assert 0 not in tiles("ij->ji", i=3000, j=2000)
    assert 0 not in tiles("ijk->kji", i=300, j=200, k=10)
    p = s.problem(described("nij->nji", n=10**5, i=6, j=5), {}, device)
    for name, wanted in (("square", True), ("by_rows", True), ("streaming", True), ("joined", True)):
        assert s.refusal(p, {**s.default(p), name: wanted}) is not None
    assert s.plan is not None
    with pytest.raises(TransformError, match="in their own order"):
        s.plan(p, {**s.default(p), "streaming": True})


def expected(subscripts: str, wanted: Configuration | None = None, **sizes: int) -> float:
    """The time that follows from the work of the default configuration, but for some values that are wanted."""
    s = find_space("reduction")
    problem = s.problem(described(subscripts, **sizes), {}, CPU)
    return s.work(problem, {**s.default(problem), **(wanted or {})}).seconds(CPU, 8)


def test_numbers_across_the_rows_of_an_operand_take_longer() -> None:
    """One load each, and a line each where the lines of a column are more than a first cache holds."""
    along, across = (expected(f"ijkl,{x}->ij", i=40, j=40, k=40, l=40) for x in ("ijkl", "klij"))
    assert across > 2 * along
    one_by_one = {"square": False, "across": 0}
    few, many = (expected("ij,ji->", one_by_one, i=n, j=10**6 // n) for n in (2000, 500))
    assert many > 1.5 * few
    assert expected("ij,ji->", {"square": False, "across": 256}, i=500, j=2000) < 1.1 * few
    assert expected("ij,ji->", i=500, j=2000) < 1.1 * few


@pytest.mark.parametrize(
    ("subscripts", "length", "choices"),
    [
        ("ij,ji->", 2000, (256, 64, 1024, 0)),
        ("ij,ji->j", 2000, (256, 64, 1024, 0)),
        ("ij,ji->", 100, (0, 64)),
        ("ij,ij->", 2000, (0,)),
    ],
)
def test_groups_take_as_much_of_the_lane_as_a_first_cache_has_lines_for(
    subscripts: str, length: int, choices: tuple[int, ...]
) -> None:
    """Where another operand is read across its rows, and all of them are too many."""
    s = find_space("reduction")
    p = s.problem(fe.einsum(subscripts, *(fe.array(x, (length, length)) for x in "AB")), {}, CPU)
    assert s.parameters(p)["across"] == choices
    assert s.plan is not None
    plan = s.plan(p, {**s.default(p), "square": False, "across": choices[0]})
    assert choices[0] in (0, plan.block_tile.get(plan.lane))


def test_two_operands_that_run_across_each_other_in_a_sum_are_turned_round_in_squares() -> None:
    """Where there are many squares, and nothing else is summed over; their lines need not be kept."""
    s = find_space("reduction")

    def offered(subscripts: str, n: int, device: DeviceProfile = CPU) -> Sequence[Value]:
        lengths = {x: n for x in "ijk" if x in subscripts}
        return s.parameters(s.problem(described(subscripts, **lengths), {}, device))["square"]

    assert [offered("ij,ji->", n) for n in (300, 30)] == [(True, False), (False,)]
    assert [offered(subscripts, 300) for subscripts in ("ij,ij->", "ij,ji->j", "ijk,jik->")] == [(False,)] * 3
    assert offered("ij,ji->", 300, GPU) == (False,)
    p = s.problem(described("ij,ji->", i=300, j=300), {}, CPU)
    assert s.default(p)["square"]
    assert s.default(p)["across"] == 0
    assert "have whole lines" in str(s.refusal(p, {**s.default(p), "across": 64}))


def copied(subscripts: str, dtype: str, *, i: int, j: int) -> tuple[TransformSpace, Problem]:
    """A copy or product on a GPU, and its space."""
    e = described(subscripts, dtype, i=i, j=j)
    s = find_space("permutation" if e.n == 1 else "elementwise_product")
    return s, s.problem(e, {}, GPU)


@pytest.mark.parametrize(
    ("subscripts", "dtype", "row", "strips", "vector"),
    [
        ("ij->ij", "float32", 2048, 1, 4),
        ("ij->ij", "float64", 2048, 1, 2),
        ("ij->ij", "float32", 2046, 2, 2),
        ("ij->ij", "float32", 2047, 8, 1),
        ("ij->ij", "complex64", 2048, 4, 1),
        ("i,j->ij", "float64", 2048, 2, 2),
        ("ij,ij->ij", "float64", 2048, 1, 2),
    ],
)
def test_work_items_of_a_gpu_have_enough_on_their_way(
    subscripts: str, dtype: str, row: int, strips: int, vector: int
) -> None:
    """32 bytes of operands and output, in loads as long as rows allow; 64 of numbers one by one."""
    s, p = copied(subscripts, dtype, i=10**5, j=row)
    first = s.default(p)
    assert (first["strips"], first["vector"]) == (strips, vector)


def test_short_outputs_are_shared_by_all_compute_units() -> None:
    """So loads in flight do not leave some without a group; and rows are as short as they like."""
    s, p = copied("ij->ij", "float32", i=500, j=100)
    assert (s.default(p)["strips"], s.default(p)["vector"]) == (1, 1)
    s, p = copied("ij->ij", "float32", i=20000, j=7)
    assert (s.default(p)["strips"], s.default(p)["vector"]) == (2, 1)
    s, p = copied("ij->ij", "float32", i=10**7, j=4)
    one, several = (s.work(p, {**s.default(p), "strips": n, "vector": n}) for n in (1, 2))
    assert one.groups == 10**7
    assert several.groups == math.ceil(10**7 / 256)
    assert several.seconds(GPU, 4) < one.seconds(GPU, 4) / 10


def test_loads_in_flight_are_bandwidth() -> None:
    """The less, the more there are already, and none where nothing is loaded that is long."""
    s, p = copied("ij->ij", "float32", i=10**5, j=2048)
    one, two, many = (s.work(p, {**s.default(p), "strips": n, "vector": 1}).bandwidth for n in (1, 2, 8))
    assert 1 == one < two < many < 2
    assert many - two < 4 * (two - one)
    s, p = copied("i,j->ij", "float32", i=10**5, j=2048)
    assert s.work(p, s.default(p)).bandwidth == 1


def test_crossed_operands_pass_through_tiles() -> None:
    """In sums of lengths that fill tiles; elsewhere an operand that is read across its rows comes several times."""
    s = find_space("reduction")
    for length, tile in ((4096, 32), (10, 0)):
        e = fe.einsum("ij,ji->", *(fe.array(x, (length, length), "float32") for x in "AB"))
        p = s.problem(e, {}, GPU)
        assert s.default(p)["tile"] == tile
    e = fe.einsum("ij,ji->", *(fe.array(x, (4096, 4096), "float32") for x in "AB"))
    p = s.problem(e, {}, GPU)
    turned, strided = (s.work(p, {**s.default(p), "tile": tile}) for tile in (32, 0))
    assert (turned.groups, turned.launches) == (512, 2)
    assert strided.bytes > 2 * turned.bytes
    assert strided.seconds(GPU, 4) > 1.5 * turned.seconds(GPU, 4)
    assert s.parameters(s.problem(e, {}, CPU))["tile"] == (0,)
