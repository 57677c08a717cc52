"""Plans of streams: which index runs along lanes, in which order the rest runs, and what a work-group takes of it.

    out[i, v] = A(i, v) x(v)            lanes along v, the rows of the output
    out[i] = Σ_v A(i, v) x(v)           lanes along v, the rows of the longest operand, whether summed over or not

A plan follows from an einsum, the lengths of its indices and a configuration; it says nothing about loopy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.skeletons.streaming.write import Stream
from feinsum.space import Choices, Configuration, Problem

GROUPS_PER_UNIT = 4
"""So many work-groups for each compute unit balance the load."""
SECOND_CACHE = 0.5
"""The time of a line from there, in that of one from memory."""
KEPT_SHARE = 3
"""The sums that a work-group keeps take such a part of the first cache at most."""
FAR_BEHIND = 1.5
"""So many times the additions of the best are too many for a first guess."""
ITEMS = (256, 128, 512, 64, 32)


def is_distinct(e: BatchedEinsum) -> bool:
    """Whether no operand has an index twice."""
    return all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)


def longest_operand(e: BatchedEinsum) -> str | None:
    """The indices of an operand that has all of them, each once, in the order in which memory goes through them."""
    letters = next((x for x in e.indexing.inputs if set(x) == set(e.indexing.indices)), None)
    return None if letters is None else "".join(dict.fromkeys(reversed(letters)))[::-1]


def crossing(e: BatchedEinsum) -> str:
    """The index along the rows of an operand that has the last index of the output elsewhere; "" if there is none."""
    lane = e.indexing.output[-1]
    return next((x[-1] for x in e.indexing.inputs if lane in x and x[-1] != lane), "")


def widths(p: Problem, lane: str) -> tuple[int, ...]:
    """Lanes: work-items of a group, or of the longest vectors that a row fills; 1 where vectors hold no such numbers."""
    if not p.device.simd_bytes:
        return ITEMS
    dtypes = {a.dtype.name for row in p.einsum.args for entry in row for a in entry}
    if len(dtypes) > 1 or not dtypes <= {"float32", "float64"} or any(x.count(lane) > 1 for x in p.einsum.indexing.inputs):
        return (1,)
    widest = min(16, p.device.simd_bytes // p.itemsize)
    filled = [width for width in (widest, widest // 2, widest // 4) if 1 < width <= p.sizes[lane]]
    return tuple(filled[:1]) or (1,)


def copy_parameters(p: Problem) -> Choices:
    """Lanes, numbers that pass through a work-group, and whether those stored are more than the caches hold."""
    output = p.einsum.indexing.output
    beyond = p.count(output) * p.itemsize * p.einsum.b > p.device.cache_bytes
    return {
        "width": widths(p, output[-1]),
        "portion": (65536, 16384, 262144) if p.device.simd_bytes else (1,),
        "streaming": (beyond, not beyond) if p.device.has_clang_builtins else (False,),
    }


def sum_parameters(p: Problem) -> Choices:
    """Lanes, numbers that pass through a work-group, and sums that are independent of each other."""
    lane, vectors = (longest_operand(p.einsum) or "")[-1], bool(p.device.simd_bytes)
    along = lane in p.einsum.indexing.summed
    return {
        "width": widths(p, lane),
        "portion": (65536, 16384, 262144) if vectors else (8192, 2048, 32768),
        "accumulators": strips_at_once(p, lane) if along and vectors else (1,),
        "together": (1,) if along else (8, 4, 2, 1),
    }


def strips_at_once(p: Problem, lane: str) -> tuple[int, ...]:
    """How many strips to sum side by side, the best guess first: what whole ones leave is added number by number."""
    width, row = widths(p, lane)[0], p.sizes[lane]
    additions = {n: row // (n * width) * n + row % (n * width) for n in (4, 2, 8, 1)}
    return tuple(sorted(additions, key=lambda n: additions[n] > FAR_BEHIND * min(additions.values())))


def refusal(p: Problem, c: Configuration) -> str | None:
    """Why there is no plan of a configuration."""
    if not all(p.sizes.values()):
        return "an axis has no length, so nothing streams by"
    return None if p.device.simd_bytes else p.exceeds(work_items=c["width"])


def groups_wanted(p: Problem, c: Configuration) -> int:
    """How many work-groups: by the portion of each, but enough to occupy the device if there is work for them."""
    total = p.count(p.einsum.indexing.indices)
    enough = min(total // 4096, GROUPS_PER_UNIT * p.device.compute_units)
    return max(1, total // int(c["portion"]), enough)


def dealt(p: Problem, letters: str, wanted: int) -> dict[str, int]:
    """Counts for the outermost of `letters` that make about so many groups."""
    counts: dict[str, int] = {}
    for letter in letters:
        if wanted <= 1:
            break
        counts[letter] = max(1, p.sizes[letter] // wanted)
        wanted = -(-wanted // -(-max(1, p.sizes[letter]) // counts[letter]))
    return counts


def numbered(p: Problem, counts: Mapping[str, int], order: str) -> dict[str, int]:
    """The counts in the order of the axes of a device: CPUs take groups in turn, which are to be neighbours in memory.

    GPUs have as many groups as one likes along the first axis alone.
    """
    if p.device.simd_bytes:
        return {x: counts[x] for x in reversed(order) if x in counts}
    return {x: counts[x] for x in sorted(counts, key=lambda x: -p.sizes[x] / counts[x])}


def copy_plan(p: Problem, c: Configuration) -> Stream:
    """The plan of an einsum without sums; where an operand is read across its rows, groups do tiles of whole lines."""
    output = p.einsum.indexing.output
    lane, across = output[-1], crossing(p.einsum)
    before = "".join(x for x in output[:-1] if x not in across)
    vectors = bool(p.device.simd_bytes)
    if not vectors:
        counts = dict.fromkeys(before, 1) | {lane: c["width"]}
    elif across:
        rows = max(c["tile"], c["tile"] ** 2 // max(1, p.sizes[across]))
        counts = dict.fromkeys(before, 1) | {across: c["tile"], lane: _multiple(rows, c["width"])}
    else:
        counts = dealt(p, output, groups_wanted(p, c))
        counts |= {lane: _multiple(counts[lane], c["width"])} if lane in counts else {}
    order = before + lane + across
    counts = numbered(p, counts, order)
    return Stream(order, lane, c["width"], counts, vectors=vectors, streaming=c["streaming"])


def sum_plan(p: Problem, c: Configuration) -> Stream:
    """The plan of a sum over one operand with all indices, times smaller ones."""
    indexing = p.einsum.indexing
    letters = longest_operand(p.einsum) or indexing.indices
    lane, width = letters[-1], c["width"]
    output = "".join(x for x in letters if x in indexing.output and x != lane)
    summed = "".join(x for x in letters if x in indexing.summed and x != lane)
    strip, counts, wanted = width * c["accumulators"], {}, groups_wanted(p, c)
    if lane in indexing.output:
        strip = width
        kept = p.device.first_cache_bytes // KEPT_SHARE // p.itemsize if p.device.simd_bytes else width
        counts[lane] = min(_multiple(p.sizes[lane], width), _multiple(kept, width))
        wanted = -(-wanted // -(-p.sizes[lane] // counts[lane]))
    counts |= dealt(p, output, wanted)
    groups = math.prod(-(-p.sizes[x] // count) for x, count in counts.items())
    enough = min(wanted, GROUPS_PER_UNIT * p.device.compute_units)
    if 2 * groups < enough:
        split = max(summed or lane, key=lambda x: p.sizes[x])
        part = p.sizes[split] * groups // enough
        counts[split] = _multiple(part, strip if split == lane else c["together"])
    order = output + summed + lane
    return Stream(
        order,
        lane,
        width,
        numbered(p, counts, order),
        accumulators=c["accumulators"] if lane in indexing.summed else 1,
        together=c["together"] if summed and lane in indexing.output else 1,
        vectors=bool(p.device.simd_bytes),
    )


def stream_work(p: Problem, plan: Stream) -> Work:
    """Every operand is read once; partial sums are few.  Work-items beyond the end of a row take their time, too.

    In a sum, vectors of an operand that has the lane across its rows are loaded number by number, and if its lines do not
    stay in a first cache until the next number of each is wanted, each number brings a line, from the second one as a rule.
    """
    indexing, row = p.einsum.indexing, p.sizes[plan.lane]
    idle = 1.0 if plan.vectors else -(-row // plan.width) * plan.width / row
    loaded = idle * p.count(indexing.indices) * p.einsum.n * p.einsum.b
    apart = [x for x in indexing.inputs if plan.vectors and indexing.summed and plan.lane in x[:-1]]
    lines = sum(p.count(x) * p.device.line_bytes for x in apart if _lines_at_once(p, plan, x) > p.device.first_cache_bytes)
    kept = plan.accumulators if plan.lane in indexing.summed else plan.groups.get(plan.lane, plan.width) // plan.width
    return Work(
        flops=loaded,
        bytes=p.einsum.min_bytes(p.lengths) + SECOND_CACHE * p.einsum.b * lines,
        loads=p.itemsize * (loaded + p.einsum.b * p.count(indexing.indices) * len(apart) * (plan.width - 1)),
        launches=2 if any(x in indexing.summed for x in plan.groups) else 1,
        groups=math.prod(-(-p.sizes[x] // count) for x, count in plan.groups.items()),
        items=1 if plan.vectors else plan.width,
        lanes=plan.width if plan.vectors else 0,
        sums=kept if indexing.summed else 0,
    )


def _lines_at_once(p: Problem, plan: Stream, letters: str) -> int:
    """The bytes of the lines of an operand that are read from one number along its rows to the next."""
    inner = plan.order.partition(letters[-1])[2]
    return p.device.line_bytes * math.prod(p.sizes[x] for x in inner if x in letters)


def _multiple(count: int, of: int) -> int:
    return max(1, -(-count // of)) * of
