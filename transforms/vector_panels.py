"""Contractions in vectors on CPUs: ``out[e,i] = Σ S[i,k] V[e,k] ...``, lanes along i, a tile of e in registers.

Gradient, divergence, mass, lift and face mass of discontinuous-Galerkin methods, ADER-DG, sum factorisation, batched and
plain matrix products, and pairwise tensor contractions are of this kind, in any layout of S.
"""

from __future__ import annotations

import math
from itertools import combinations

from feinsum.einsum import BatchedEinsum
from feinsum.contraction import pairwise_schedule
from feinsum.rewrites import Panel, Stage, vector_panel
from feinsum.space import Choices, Configuration, Problem, space

CLANG_RUNTIMES = ("intel", "pocl")
"""Runtimes whose compilers know the builtins of clang, among them the store past the caches."""
MOST_VECTORS_IN_ROW = 8
"""A longer axis is divided into panels."""
MOST_INSIDE_BYTES = 65536
"""Of an intermediate result of a work-group."""


def is_vectorizable(e: BatchedEinsum) -> bool:
    """Whether lanes can run along an axis of the output, and a tile along another one."""
    plain = all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)
    real = all(a.dtype in ("float32", "float64") for row in e.args for entry in row for a in entry)
    return plain and real and e.n >= 2 and len(e.indexing.output) >= 2


def paths(p: Problem) -> list[str]:
    """What to contract one after the other, fewest operations first: ``"01 02"`` is operands 0, 1, then the rest."""
    e = p.einsum
    if e.n == 2:
        return ["01"]
    if e.n > 3:
        return [" ".join("".join(map(str, step)) for step in _positions(p))]

    def points(path: str) -> int:
        total = 0
        letters = list(e.indexing.inputs)
        rows = [tuple((k, entry) for k, entry in enumerate(row)) for row in e.args]
        for operands in (*(tuple(map(int, step)) for step in path.split()), None):
            operands = operands or tuple(range(len(letters)))
            inside = set("".join(letters[k] for k in operands))
            factors = [tuple(row[k] for k in operands) for row in rows]
            last = len(operands) == len(letters)
            total += (e.b if last else len(set(factors))) * p.count("".join(inside)) if len(operands) > 1 else 0
            rest = [x for k, x in enumerate(letters) if k not in operands]
            letters = [*rest, "".join(inside & set(e.indexing.output).union(*rest))]
            rows = [
                (*(x for k, x in enumerate(row) if k not in operands), entry)
                for row, entry in zip(rows, factors, strict=True)
            ]
        return total

    pairs = [f"{a}{b}" for a, b in combinations(range(3), 2)]
    return sorted(["012", *pairs, *(f"{pair} 01" for pair in pairs)], key=points)


def _positions(p: Problem) -> list[tuple[int, ...]]:
    """The cheapest pairwise steps, operands by their position among what is left."""
    pool = list(range(p.einsum.n))
    steps = []
    for s, step in enumerate(pairwise_schedule(p.einsum, p.lengths).steps):
        steps.append(tuple(pool.index(k) for k in step.operands))
        pool = [k for k in pool if k not in step.operands] + [p.einsum.n + s]
    return steps


def lane_width(p: Problem) -> int:
    return max(2, min(16, (p.device.simd_bytes or 16) // p.itemsize))


def fill(length: int, width: int) -> float:
    """Which part of the vectors of a row is used."""
    return length / (-(-length // width) * width)


def parameters(p: Problem) -> Choices:
    width = lane_width(p)
    output = p.einsum.indexing.output
    by_length = sorted(output, key=lambda x: (not p.is_long(x), -p.sizes[x]))
    return {
        "path": paths(p),
        "lane": sorted(output, key=lambda x: (x == by_length[0], fill(p.sizes[x], width) < 0.8, -output.index(x))),
        "long": by_length[:2],
        "width": (width, max(2, width // 2)),
        "vectors": (4, 2, 3, 6),
        "together": (2, 1, 4, 3, 5, 6, 8),
        "accumulators": (24, 16, 12, 8),
        "tile": (1000, 500, 250, 2500, 100),
        "panel": ("copy", "place"),
        "rows": _rows(p),
        "streaming": (True, False) if p.device.runtime in CLANG_RUNTIMES else (False,),
    }


def _rows(p: Problem) -> tuple[str, ...]:
    """Outputs that share a partial result are computed together, others one after the other: fewer streams of memory."""
    if p.einsum.b == 1:
        return ("together",)
    shared = any(len({row[k] for row in p.einsum.args}) < p.einsum.b for k in range(p.einsum.n))
    return ("apart", "together")


def constraint(p: Problem, c: Configuration) -> str | None:
    if not p.device.simd_bytes:
        return "the device has no vector registers"
    if c["lane"] == c["long"]:
        return "lanes and tile run along one axis"
    plan = panel_plan(p, c)
    return plan if isinstance(plan, str) else None


def panel_plan(p: Problem, c: Configuration) -> Panel | str:
    """The plan of a configuration, or why there is none."""
    e, long, width = p.einsum, c["long"], c["width"]
    groups = {long: (max(1, -(-min(c["tile"], p.sizes[long]) // c["together"])), c["together"])}
    inside = {x: p.sizes[x] for x in e.indexing.indices if not p.is_long(x)}
    inside[long] = c["together"]
    lane = c["lane"]
    if p.is_long(lane) or p.sizes[lane] > MOST_VECTORS_IN_ROW * width:
        inside[lane] = c["vectors"] * width
        groups[lane] = (1, inside[lane])
    elif c["vectors"] != 4:
        return "the vectors of a short row are given by its length"
    for x in sorted(set(e.indexing.output) - {lane, long}, key=lambda x: (not p.is_long(x), -p.sizes[x])):
        kept = math.prod(inside.get(y, math.inf) for y in e.indexing.output) * p.itemsize
        if kept > MOST_INSIDE_BYTES or all(x in letters for letters in e.indexing.inputs):
            groups[x], inside[x] = (1, 1), 1
    stages = _stages(p, c, lane, inside)
    if isinstance(stages, str):
        return stages
    panels = {}
    if c["panel"] == "copy":
        panels = {k: x for k, x in _lanes_of_operands(e, stages).items() if long not in e.indexing.inputs[k]}
        for k in panels:
            size = math.prod(inside.get(x, math.inf) for x in e.indexing.inputs[k]) * p.itemsize
            if size > max(p.device.local_memory_bytes, MOST_INSIDE_BYTES):
                return f"a panel of {size} bytes does not stay in the caches"
        if not panels:
            return "no operand is shared by a work-group"
    return Panel(stages, panels, groups, width, c["rows"] == "apart", c["streaming"])


def _lanes_of_operands(e: BatchedEinsum, stages: tuple[Stage, ...]) -> dict[int, str]:
    """The operands of the einsum along which a stage that takes them runs its lanes."""
    pool: list[int | None] = list(range(e.n))
    lanes = {}
    for stage in stages:
        taken = [pool[k] for k in stage.operands]
        pool = [x for k, x in enumerate(pool) if k not in stage.operands] + [None]
        lanes |= {k: stage.lane for k in taken if k is not None and stage.lane in e.indexing.inputs[k]}
    return lanes


def _stages(p: Problem, c: Configuration, lane: str, inside) -> tuple[Stage, ...] | str:
    e = p.einsum
    letters = list(e.indexing.inputs)
    results = []
    for step in c["path"].split():
        operands = tuple(map(int, step))
        taken = [letters[k] for k in operands]
        rest = [x for k, x in enumerate(letters) if k not in operands]
        kept = "".join(x for x in dict.fromkeys("".join(taken)) if x in set(e.indexing.output).union(*rest))
        letters = [*rest, kept]
        results.append((operands, taken, kept))
    left = set("".join(letters)) - set(e.indexing.output)
    if math.prod(inside.get(x, math.inf) for x in left) > 8:
        return "the sum that is left is too long to write out"
    if lane not in results[-1][2]:
        return "lane not in the last result"
    stages = []
    for operands, taken, kept in reversed(results):
        if lane not in kept:
            # Lanes of an operand that is not copied have to be in a row of memory.
            able = [
                x
                for x in kept
                if x != c["long"] and all(x not in y or x == y[-1] or c["long"] not in y for y in taken if y in e.indexing.inputs)
            ]
            if not able:
                return "no lanes"
            lane = max(able, key=lambda x: (fill(inside[x], c["width"]), inside[x]))
        size = inside.get(lane, math.inf)
        if size > MOST_VECTORS_IN_ROW * c["width"]:
            return "lanes too long"
        vectors = -(-size // c["width"])
        registers = {c["long"]: c["together"]} if c["long"] in kept else {}
        count = vectors * math.prod(registers.values())
        for x in sorted(set(kept) - {lane, c["long"]}, key=lambda x: (inside[x], x)):
            registers[x] = max(d for d in range(1, inside[x] + 1) if inside[x] % d == 0 and (d == 1 or count * d <= c["accumulators"]))
            count *= registers[x]
        if count + vectors > 32:
            return f"{count} accumulators do not stay in registers"
        stages.insert(0, Stage(operands, lane, registers))
    return tuple(stages)


@space(pattern=is_vectorizable, version=2, parameters=parameters, constraint=constraint)
def vector_panel_space(t_unit, m, p, **configuration):  # type: ignore[no-untyped-def]
    """S in private vectors, `together` iterations of the long index in registers, `tile` of them in a work-group."""
    return vector_panel(t_unit, m, panel_plan(p, configuration))


def default_plan(p: Problem, **wanted: int) -> Panel | None:
    """The plan of the first accepted configuration that has the values wanted, or as many of them as can be."""
    if not is_vectorizable(p.einsum):
        return None
    best = None
    for c in vector_panel_space.configurations(p):
        agreed = sum(c[name] == value for name, value in wanted.items())
        if best is None or agreed > best[0]:
            best = (agreed, c)
        if agreed == len(wanted):
            break
    return None if best is None else panel_plan(p, best[1])
