"""The command line that describes an einsum, by which a reader repeats the run of a report."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feinsum.einsum import BatchedEinsum


def command(name: str, e: BatchedEinsum, sizes: Mapping[str, int], *options: str) -> str:
    """A command of feinsum about an einsum.

    >>> import feinsum as fe
    >>> e = fe.einsum("ij,ej->ei", fe.array("D", (4, 4)), fe.array("u", ("E", 4)))
    >>> command("tune", e, {"E": 1000}, "--trials", "9")
    "feinsum tune 'ij,ej->ei' --shape D=4,4 --shape u=E,4 --size E=1000 --trials 9"
    """
    words = ["feinsum", name, e.subscripts]
    operands = e.bare.arrays
    for a in operands:
        words += ["--shape", f"{a.name}={','.join('inf' if axis == math.inf else str(axis) for axis in a.shape)}"]
    plain = e.b == 1 and len(operands) == e.n and all(len(entry) == 1 for entry in e.args[0])
    if not plain:
        for row in e.args:
            words += ["--row", ",".join("*".join(a.name for a in entry) for entry in row)]
    for a in e.arrays:
        if a.dtype != ("float64" if a in operands else e.dtype):
            words += ["--dtype", f"{a.name}={a.dtype.name}"]
    texts = [own.text(e.indexing.output) if own else "v" for own in e.epilogues]
    for text in texts if len(set(texts)) > 1 else texts[:1]:
        words += ["--then", text]
    for axis, length in sizes.items():
        words += ["--size", f"{axis}={length}"]
    return shlex.join([*words, *options])
