"""Contractions of complex numbers on CPUs, as steps of reals in vectors: ``out[i,k,p] = Σ_jq A[i,j,q] B[j,q,k,p]``.

See :mod:`feinsum.skeletons.complex_parts.write`; the real einsums are planned like those that stand alone.
"""

from __future__ import annotations

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import split_index
from feinsum.skeletons.complex_parts.write import contract_in_parts, matrix_of, of_complex
from feinsum.skeletons.vector_panels import PANEL_SHARES, fill, panel_bytes
from feinsum.space import Choices, Configuration, Problem, space

from .contractions import OWN, transform_step
from .plans import in_parts, lengths_of, parts_that_fit, schedule_of_steps

_PARTS = 2
"""Reals of a complex number."""


def has_complex_sums(e: BatchedEinsum) -> bool:
    """Whether complex numbers are multiplied and summed, no operand having all the indices of a step of two."""
    plain = all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)
    streams = e.n == 2 and any(set(letters) == set(e.indexing.indices) for letters in e.indexing.inputs)
    return plain and of_complex(e) and e.n > 1 and bool(e.indexing.summed) and bool(e.indexing.output) and not streams


def parameters(p: Problem) -> Choices:
    return {
        "split": _splits(p),
        "vectors": (OWN, 4, 2, 3, 6),
        "together": (OWN, 4, 1, 2, 6, 8, 5),
    }


def _splits(p: Problem) -> tuple[str, ...]:
    """Parts of which the matrices take a quarter of a core's cache; or not to divide the sums; or others.

    A number of a matrix takes two of the operand.
    """
    most = panel_bytes(p.device, PANEL_SHARES[0])
    found = [parts_that_fit(p, nbytes) or "none" for nbytes in (most // 2, most // 4, most // 8, most)]
    return tuple(dict.fromkeys((*found, "none")))


def constraint(p: Problem, c: Configuration) -> str | None:
    return None if p.device.simd_bytes else "the device has no vector registers"


def estimate(p: Problem, c: Configuration) -> Work:
    """The multiply-adds of the steps in vectors, and the traffic of the copies."""
    steps, traffic, flops, launches = schedule_of_steps(p).steps, p.count(p.einsum.indexing.output), 0.0, 1
    for step in steps:
        letters = step.indexing.output[-1:]
        row = _PARTS * (p.sizes[letters] if letters else 1)
        flops += 8 * p.count(step.indexing.indices) / fill(row, _PARTS * p.lanes)
        traffic += p.count(step.indexing.output)
        if len(step.operands) == 2:
            right = matrix_of(step.indexing)
            traffic += sum(p.count(x) * (2 if k == right else 1) for k, x in enumerate(step.indexing.inputs))
            launches += 2
        launches += 1
    return Work(
        flops=flops * p.einsum.b,
        bytes=p.einsum.min_bytes(p.lengths) + 2 * p.itemsize * p.einsum.b * traffic,
        launches=launches + len(lengths_of(c["split"])),
        lanes=_PARTS * p.lanes,
    )


@space(pattern=has_complex_sums, version=1, rank=2, parameters=parameters, constraint=constraint, estimate=estimate)
def complex_steps(t_unit, match, p, *, split="none", **wanted):  # type: ignore[no-untyped-def]
    """A launch that copies an operand as matrices of reals, and one of vector panels, for each pairwise contraction."""
    sizes, chunks = dict(p.sizes), {}
    wanted = {name: value for name, value in wanted.items() if value != OWN}
    schedule = schedule_of_steps(p)
    for letter, part in lengths_of(split).items():
        t_unit, match, chunks[letter] = split_index(t_unit, match, letter, part)
        sizes |= {chunks[letter]: sizes[letter] // part, letter: part}
    schedule = in_parts(schedule, match.einsum.indexing, chunks)
    t_unit, steps = contract_in_parts(t_unit, match, schedule, sizes, p.lanes)
    for step in steps:
        own = {x: sizes.get(x, _PARTS) for x in step.einsum.indexing.indices}
        t_unit = transform_step(t_unit, step, own, p, wanted)
    return t_unit
