"""How long a canonical form takes.

    python -m benchmarks canonical                # the table of benchmarks/results/zen5/canonical-forms.rst
    python -m benchmarks canonical --samples 200

Every sample canonicalizes an einsum that was not seen before (its arrays have new names), so no memory of earlier forms
helps, except in the rows "again", which ask for the form of a known einsum.  Median, spread (median absolute deviation) and
minimum of the samples, in milliseconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import parser_of
from benchmarks.rows import spread
from feinsum.arrays import Array, array
from feinsum.canonicalization import canonicalize_einsum
from feinsum.einsum import BatchedEinsum, batched_einsum, einsum

ROWS = (4, 16, 64, 200, 500)

Maker = Callable[[str], BatchedEinsum]
"""Makes an einsum; equal ones for equal prefixes of the names of arrays."""


def gradient(prefix: str) -> BatchedEinsum:
    """One row of three operands that are told apart without the graph library."""
    J, D, u = array(f"{prefix}J", (3, 3, "E")), array(f"{prefix}D", (3, 35, 35)), array(f"{prefix}u", ("E", 35))
    return einsum("xre,rij,ej->xei", J, D, u)


def elementwise(prefix: str) -> BatchedEinsum:
    """One row of three operands that only the graph library puts in order."""
    return einsum("i,i,i->i", *(array(f"{prefix}{k}", "E") for k in "xyz"))


def derivatives(prefix: str, rows: int) -> BatchedEinsum:
    """One operator, a field a row."""
    D = array(f"{prefix}D", (35, 35))
    return batched_einsum("ij,ej->ei", [[D, u] for u in _fields(f"{prefix}u", rows)])


def face_masses(prefix: str, rows: int) -> BatchedEinsum:
    """Two operands that all rows share."""
    R, J = array(f"{prefix}R", (35, 4, 15)), array(f"{prefix}J", (4, "E"))
    return batched_einsum("ifj,fe,fej->ei", [[R, J, array(f"{prefix}v{k}", (4, "E", 15))] for k in range(rows)])


def gradients(prefix: str, rows: int) -> BatchedEinsum:
    """Every field in three rows, in each with another metric term, which all fields share."""
    D = array(f"{prefix}D", (35, 35))
    metric = [array(f"{prefix}J{k}", "E") for k in range(3)]
    fields = _fields(f"{prefix}u", (rows + 2) // 3)
    return batched_einsum("e,ij,ej->ei", [[metric[k % 3], D, fields[k // 3]] for k in range(rows)])


def random_pairs(prefix: str, rows: int) -> BatchedEinsum:
    """Every array shared by two rows or so, at random."""
    rng = random.Random(rows)
    operators = [array(f"{prefix}D{k}", (35, 35)) for k in range((rows + 1) // 2)]
    fields = _fields(f"{prefix}u", (rows + 1) // 2)
    return batched_einsum("ij,ej->ei", [[rng.choice(operators), rng.choice(fields)] for _ in range(rows)])


def ring(prefix: str, rows: int) -> BatchedEinsum:
    """Every array in two rows, all of which look alike."""
    s = [array(f"{prefix}s{k}", (8, 8)) for k in range(rows)]
    return batched_einsum("ij,jk->ik", [[s[k], s[(k + 1) % rows]] for k in range(rows)])


def separate_pairs(prefix: str, rows: int) -> BatchedEinsum:
    """Pairs of rows that exchange their arrays: as many symmetries as there can be."""
    s = [array(f"{prefix}s{k}", (8, 8)) for k in range(rows)]
    return batched_einsum("ij,jk->ik", [[s[k], s[(k ^ 1) % rows]] for k in range(rows)])


BATCHES = {
    "ij,ej->ei, one D": derivatives,
    "ifj,fe,fej->ei, one R and J": face_masses,
    "e,ij,ej->ei, gradients": gradients,
    "ij,ej->ei, D and u at random": random_pairs,
    "ij,jk->ik, a ring": ring,
    "ij,jk->ik, separate pairs": separate_pairs,
}


def _fields(prefix: str, count: int) -> list[Array]:
    return [array(f"{prefix}{k}", ("E", 35)) for k in range(count)]


def new(make: Maker, samples: int) -> list[float]:
    """Seconds for the canonical form of einsums not seen before."""
    return list(_times(make(f"n{k}_") for k in range(samples)))


def again(make: Maker, samples: int, *, same: bool) -> list[float]:
    """Seconds for the form of an einsum that has one already, or of another that is equal to it."""
    known = make("a_")
    canonicalize_einsum(known)
    return list(_times(known if same else make("a_") for _ in range(samples)))


def _times(einsums: Iterator[BatchedEinsum]) -> Iterator[float]:
    for e in einsums:
        start = time.perf_counter()
        canonicalize_einsum(e)
        yield time.perf_counter() - start


def show(what: str, rows: int, seconds: list[float]) -> None:
    """Print a line of the table."""
    print(f"{what:<34}{rows:>6}" + "".join(f"{value * 1e3:>12.4f}" for value in spread(seconds).values()))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--samples", type=int, default=50, help="samples for each line (default 50)")
    samples = parser.parse_args().samples
    start = time.perf_counter()
    canonicalize_einsum(elementwise("first"))
    print(
        f"the first form that needs the graph library, which is loaded then: {(time.perf_counter() - start) * 1e3:.1f} ms\n"
    )
    print(f"{'':<34}{'rows':>6}{'median ms':>12}{'spread ms':>12}{'least ms':>12}")
    show("xre,rij,ej->xei", 1, new(gradient, samples))
    show("i,i,i->i, all alike", 1, new(elementwise, samples))
    for what, batch in BATCHES.items():
        for rows in ROWS:
            show(what, rows, new(partial(batch, rows=rows), samples))
    for rows in (1, 64, 500):
        make = partial(derivatives, rows=rows)
        show("again, the same object", rows, again(make, samples, same=True))
        show("again, an equal object", rows, again(make, samples, same=False))
