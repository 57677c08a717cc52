"""Small operators applied along a long index, on CPUs: ``out[e,i] = Σ S[i,k] V[e,k] ...`` with lanes along i.

One operand S lacks the long index e and alone has an output index i; every other operand has e and not i.  Gradient,
divergence, gradient components, mass, lift, face mass and plain ``ij,ej->ei`` are of this kind, in any layout of S.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import Panel, vector_panel
from feinsum.space import Choices, Configuration, Problem, space

BLOCKS_IN_REGISTERS = 32
"""Vector registers of AVX-512; spilled accumulators cost a factor of two, so more are never worth trying."""


@dataclass(frozen=True)
class Roles:
    """The operand S, its own output index, and the long index of the others."""

    shared: int
    lane: str
    long: str


def find_roles(e: BatchedEinsum) -> Roles | None:
    """The roles of an einsum in this plan; of several, those with the longest batch of lanes."""
    inputs, output = e.indexing.inputs, e.indexing.output
    found = []
    for k, letters in enumerate(inputs):
        others = [axes for other, axes in enumerate(inputs) if other != k]
        lanes = [x for x in letters if x in output and letters.count(x) == 1 and not any(x in axes for axes in others)]
        longs = [x for x in output if x not in letters and others and all(axes.count(x) == 1 for axes in others)]
        found += [Roles(k, lane, long) for lane in lanes for long in longs if len(inputs) > 1]
    # Stores are contiguous where lanes run along the last axis of the output.
    return max(found, key=lambda roles: output.index(roles.lane), default=None)


def orders(p: Problem) -> list[str]:
    """What may be contracted first, the fewest operations first: nothing, or a pair of operands."""
    e = p.einsum

    def points(first: tuple[int, ...]) -> int:
        rest = [letters for k, letters in enumerate(e.indexing.inputs) if k not in first]
        inside = set("".join(e.indexing.inputs[k] for k in first))
        kept = inside & set(e.indexing.output).union(*rest)
        partials = len({tuple(row[k] for k in first) for row in e.args}) if first else 0
        return partials * p.count("".join(inside)) + e.b * p.count("".join(kept.union(e.indexing.output, *rest)))

    pairs = list(combinations(range(e.n), 2)) if e.n > 2 else []
    return ["".join(map(str, first)) or "none" for first in sorted([(), *pairs], key=points)]


def parameters(p: Problem) -> Choices:
    width = max(2, min(16, (p.device.simd_bytes or 16) // p.itemsize))
    return {
        "first": orders(p),
        "width": dict.fromkeys((width, max(2, width // 2))),
        "together": (2, 1, 4, 3, 5, 6, 8, 9),
        "tile": (1000, 500, 250, 2500),
        "rows": ("together",) if p.einsum.b == 1 else ("apart", "together"),
        "streaming": (True, False),
    }


def constraint(p: Problem, c: Configuration) -> str | None:
    if not p.device.simd_bytes:
        return "the device has no vector registers"
    return None


@space(
    pattern=lambda e: find_roles(e) is not None, version=1, parameters=parameters, constraint=constraint
)
def vector_panel_space(t_unit, m, p, *, first, width, together, tile, rows, streaming):  # type: ignore[no-untyped-def]
    """S in private vectors, `together` iterations of the long index in registers, `tile` of them in a work-group."""
    roles = find_roles(m.einsum)
    plan = Panel(
        shared=roles.shared,
        lane=roles.lane,
        long=roles.long,
        first=() if first == "none" else tuple(map(int, first)),
        blocks=-(-tile // together),
        together=together,
        width=width,
        apart=rows == "apart",
        streaming=streaming,
    )
    return vector_panel(t_unit, m, plan)
