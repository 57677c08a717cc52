"""Choices for streams: lanes, elements that pass through a work-group, and sums that are independent of each other."""

from __future__ import annotations

from collections.abc import Sequence

from feinsum.rewrites import side_by_side
from feinsum.space import Choices, Problem, Value
from feinsum.space.joined_problems import joined_problem

from .grids import LANES, LOADS, lane_counts
from .stream_operands import can_be_joined, crossing, crossing_sum, is_across_rows, longest_operand, read_besides

FAR_BEHIND = 1.5
"""So many times the additions of the best are too many for a first guess; chosen by hand."""
ITEMS = (256, 128, 512, 64, 32)
VECTORS = (1, 2, 4)
STRIPS = (1, 2, 4, 8)
PORTIONS_OF_TILES = (32768, 8192, 131072, 2048)
TILE = 32
"""Numbers that the lanes of a sub-group read side by side."""
LOAD_BYTES = 16
"""The most bytes that a work-item of a GPU loads at once."""
BYTES_OF_AN_ITEM = 32
"""The bytes that a work-item loads and stores where latency has to be hidden: 64 KiB for the 2048 work-items of a compute
unit.  On an H200 copies and products have 0.90 to 0.98 of the bandwidth with that, and a third less in float32 with a
quarter of it."""
GROUPS_AT_ONCE = 32
"""The most work-groups of a compute unit of a GPU."""
GROUPS_IN_TURN = 4
"""So many work-groups for each compute unit balance the load; chosen by hand."""
ROW_BYTES = 4096
"""The bytes of rows that are summed on a CPU several at a time: a page, as prefetchers follow each row by itself.  On a
Zen 4 sums of single rows take 0.4 to 0.5 of the time of eight at a time with rows of 640 to 1600 bytes, as long with 3 to
6 KB, and 1.3 to 2 times as long from 12 KB on."""
MANY_SQUARES = 8
"""The squares along either index from which the remainder counts for little.  On a Zen 4 transposes and products with a
transposed operand of 2500 by 1500 take 0.84 to 0.97 of the time with squares, a permutation of axes of 48 to 54 numbers
1.3 times."""
LITTLE_BESIDES = 2.0
"""Of what runs of results read; where it is no more, they are done in their own order.  Chosen by hand."""
ACROSS = (256, 64, 1024)
"""Numbers along the lane that a group goes through where each has a line of an operand: as many lines as half of a usual
first cache holds are the first guess."""


def copy_choices(p: Problem) -> Choices:
    """For einsums without sums: lanes, elements that pass through a work-group, whether stores go past the caches, and the
    loads that work-items of GPUs have on their way at a time.

    The first guess is that stores do where the results exceed the caches.
    """
    output = p.einsum.indexing.output
    beyond = p.count(output) * p.itemsize * p.einsum.b > p.device.cache_bytes
    vector, strips = loads_in_flight(p)
    return {
        "width": stream_widths(p, output[-1]),
        "portion": (65536, 16384, 262144) if p.device.simd_bytes else (1,),
        "streaming": (beyond, not beyond) if p.device.has_clang_builtins else (False,),
        "strips": strips,
        "vector": vector,
    }


def loads_in_flight(p: Problem) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of a vector, and the vectors, that a work-item of a GPU loads of each operand before it stores; the best
    guess of both first.

    Memory is busy while latency times bandwidth is on its way, which for the work-items that a compute unit holds makes
    some bytes of each, loaded and stored.  So long as every compute unit has several groups, work-items take vectors as
    long as memory loads at once, and as many of them as make these bytes; of single numbers, whose rows end anywhere, as
    many as make twice that.
    """
    if p.device.simd_bytes:
        return (1,), (1,)
    lengths = [n for n in VECTORS if n == 1 or (n * p.itemsize <= LOAD_BYTES and has_vectors(p, n))]
    output = p.einsum.indexing.output
    items = p.count(output) / (GROUPS_IN_TURN * p.device.compute_units * ITEMS[0])
    vector = max(n for n in lengths if n <= max(1.0, items))
    passing = 1 + sum(set(x) == set(output) for x in p.einsum.indexing.inputs)
    wanted = BYTES_OF_AN_ITEM * (2 if vector == 1 else 1) / (p.itemsize * vector * passing * p.einsum.b)
    strips = max(n for n in STRIPS if n == 1 or (n <= wanted and n * vector <= items))
    if strips * vector == 1 and p.count(output[:-1]) > GROUPS_AT_ONCE * p.device.compute_units:
        strips = 2  # rather than a work-group for each row
    return tuple(sorted(lengths, key=lambda n: abs(n - vector))), tuple(sorted(STRIPS, key=lambda n: abs(n - strips)))


def has_vectors(p: Problem, count: int) -> bool:
    """Whether all rows of operands and outputs are whole vectors of so many real numbers."""
    lane = p.einsum.indexing.output[-1]
    if p.is_long(lane) or p.sizes[lane] % count or any(lane in x[:-1] for x in p.einsum.indexing.inputs):
        return False
    return {a.dtype.name for row in p.einsum.args for entry in row for a in entry} in ({"float32"}, {"float64"})


def permutation_choices(p: Problem) -> Choices:
    """The choices of copies, and the sizes of tiles where an operand is read across its rows; 0 for none.

    Rows of few numbers fill neither tiles nor vectors.  Where what their neighbours read lies close by, results are done in
    their own order.  On a Zen 4 products take 0.7 to 0.9 of the time if tiles are stored row by row, as each row of their
    other operands is longer then; copies take 0.8 to 1.4 of it.
    """
    common = copy_choices(p)
    if not crossing(p.einsum):
        return {**common, "tile": (1,), "spare": (0,), "joined": (False,), "by_rows": (False,), "square": (False,)}
    in_order = read_besides(p) <= LITTLE_BESIDES
    short = in_order and min(p.sizes[p.einsum.indexing.output[-1]], p.sizes[crossing(p.einsum)]) < TILE // 2
    none = {False: (), True: (0,)}[in_order]
    if p.device.simd_bytes:
        by_rows, square = (True, False) if p.einsum.n > 1 else (False, True), squares(p)
        by_rows, tiles = (False, True) if square[0] or short else by_rows, (64, 32, 128, 16)
        own = {"portion": common["portion"] if short else common["portion"][:1], "spare": (0,), "joined": (False,)}
        own |= {"tile": (*none, *tiles) if short else (*tiles, *none), "by_rows": by_rows}
        if short:  # what has no vectors has no squares, nor stores past the caches
            own |= {"square": tuple(sorted(square)), "streaming": tuple(sorted(common["streaming"]))}
        return {**common, "square": square, **own}
    joined = (True, False) if can_be_joined(p.einsum) else (False,)
    tiles = (32, 16, 8, 64)
    strips: tuple[Value, ...] = places_of_tiles(p)
    if short:
        own = {"width": (*ITEMS[:1], 32, 16, 64), "tile": (*none, *tiles), "joined": tuple(sorted(joined))}
        strips = tuple(dict.fromkeys((*(n for n in common["strips"] if n != 1), *strips)))
    else:
        own = {"width": (32, 16, 64, *ITEMS[: len(none)]), "tile": (*tiles, *none), "joined": joined}
    return {**common, **own, "spare": (1, 0), "vector": (1,), "strips": strips, "by_rows": (False,), "square": (False,)}


def squares(p: Problem) -> tuple[bool, ...]:
    """Whether squares of numbers are turned round in registers, where there are such; the first guess is that they are if
    few numbers are left of either index."""
    lane, across = p.einsum.indexing.output[-1], crossing(p.einsum)
    (width,), least = stream_widths(p, lane), min(p.sizes[lane], p.sizes[across])
    if width == 1 or least < width or not p.device.has_clang_builtins:
        return (False,)
    return (True, False) if least >= MANY_SQUARES * width else (False, True)


def places_of_tiles(p: Problem) -> tuple[int, ...]:
    """The places that work-items of a GPU have of a tile which passes through local memory; 1 for a row of work-items that
    takes the tile row by row."""
    output = p.einsum.indexing.output
    if sum(map(p.is_long, output)) > 1:
        return (1,)
    wide = min(p.sizes[output[-1]], p.sizes[crossing(p.einsum)]) >= TILE // 2
    return (4, 8, 16, 2, 1) if wide else (1, 4, 8, 16, 2)


def sum_choices(p: Problem) -> Choices:
    """The choices of single sums, and the part of the lane axis for a group where another operand is read across rows."""
    letters = longest_operand(p.einsum) or ""
    row = p.sizes[letters[-1]]
    apart = p.device.simd_bytes and is_across_rows(p.einsum, letters[-1])
    shorter = tuple(n for n in ACROSS if n < row) if apart else ()
    kept = row * p.device.line_bytes <= p.device.first_cache_bytes
    tile, common = crossed_tiles(p, letters[-1]), single_sum_choices(p)
    if tile[0]:
        common = {**common, "portion": PORTIONS_OF_TILES}
    across = (0, *shorter) if kept else (*shorter, 0)
    return {"square": squares_of_sum(p), **common, "across": across, "tile": tile, **grid_choices(p, common, tile)}


def grid_choices(p: Problem, common: Choices, tile: Sequence[int]) -> Choices:
    """Whether indices side by side become one, and for GPUs the lanes of a grid of work-items, and their loads."""
    if p.device.simd_bytes:
        return {"joined": (False,), "lanes": (0,), "loads": (1,)}
    together = (True, False) if side_by_side(p.einsum) else (False,)
    if tile[0]:
        return {"joined": together[::-1], "lanes": (0, *LANES), "loads": (1, *LOADS[:-1])}
    own = joined_problem(p) if together[0] else p
    return {"joined": together, "lanes": (*lane_counts(own, int(common["width"][0])), 0), "loads": LOADS}


def squares_of_sum(p: Problem) -> tuple[bool, ...]:
    """The choices of squares for a sum of two operands that cross each other in the only two indices summed over."""
    letters, across = longest_operand(p.einsum) or "", crossing_sum(p.einsum)
    (width, *_), two = stream_widths(p, letters[-1]), set(p.einsum.indexing.summed) == {letters[-1], across}
    if not across or not two or width == 1 or not (p.device.simd_bytes and p.device.has_clang_builtins):
        return (False,)
    return (True, False) if min(p.sizes[across], p.sizes[letters[-1]]) >= MANY_SQUARES * width else (False,)


def crossed_tiles(p: Problem, lane: str) -> tuple[int, ...]:
    """Sides of the tiles that pass through the local memory of a GPU where operands run across each other; 0 for none."""
    across = crossing_sum(p.einsum)
    if p.device.simd_bytes or not across or any(p.is_long(x) for x in p.einsum.indexing.summed):
        return (0,)
    return (TILE, 0) if min(p.sizes[across], p.sizes[lane]) >= TILE else (0, TILE)


def single_sum_choices(p: Problem) -> Choices:
    """For sums over one operand: lanes, numbers that pass through a work-group, and sums independent of each other.

    Where rows are summed, work-items of CPUs read several side by side only if each is as long as prefetchers need it.
    """
    lane, vectors = (longest_operand(p.einsum) or "")[-1], bool(p.device.simd_bytes)
    along = lane in p.einsum.indexing.summed
    short = vectors and p.sizes[lane] * p.itemsize < ROW_BYTES
    return {
        "width": stream_widths(p, lane),
        "portion": (65536, 16384, 262144) if vectors else (8192, 2048, 32768),
        "accumulators": accumulators(p, lane) if along and vectors else (1,),
        "together": (1,) if along else (1, 2, 4, 8) if short else (8, 4, 2, 1),
    }


def trace_choices(p: Problem) -> Choices:
    """The choices of sums or, where nothing is summed over, of copies in tiles."""
    if p.einsum.indexing.summed:
        return {**single_sum_choices(p), "strips": (1,), "vector": (1,)}
    return {**copy_choices(p), "tile": (64, 16)}


def stream_widths(p: Problem, lane: str) -> tuple[int, ...]:
    """Lanes: work-items of a group, or of the longest vectors that a row fills; 1 where vectors hold no such numbers."""
    if not p.device.simd_bytes:
        return ITEMS
    dtypes = {a.dtype.name for row in p.einsum.args for entry in row for a in entry}
    if len(dtypes) > 1 or not dtypes <= {"float32", "float64"} or any(x.count(lane) > 1 for x in p.einsum.indexing.inputs):
        return (1,)
    widest = min(16, p.device.simd_bytes // p.itemsize)
    filled = [width for width in (widest, widest // 2, widest // 4) if 1 < width <= p.sizes[lane]]
    return tuple(filled[:1]) or (1,)


def accumulators(p: Problem, lane: str) -> tuple[int, ...]:
    """The numbers of strips to sum side by side, the best guess first; the remainder is added element by element."""
    width, row = stream_widths(p, lane)[0], p.sizes[lane]
    additions = {n: row // (n * width) * n + row % (n * width) for n in (4, 2, 8, 1)}
    return tuple(sorted(additions, key=lambda n: additions[n] > FAR_BEHIND * min(additions.values())))
