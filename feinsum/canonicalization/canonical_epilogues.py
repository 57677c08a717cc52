"""Epilogues in canonical forms: the key of the bare einsum, unchanged, followed by the functions of its sums.

    1|ac,bc->ab|a=inf b=35 c=35||[float64,float64]|ω:y0=float64|s0*v + s1*out + y0[b]

After ``ω:`` stand the types of the arrays that only epilogues read, and the epilogues in the canonical letters and names:
one if all rows have the same, or are for one output, which has their sums as ``v0``, ``v1``, ..., else one for each row,
``v`` where there is none.  Numbers given at the call are ``s0``, ...

Which of two equal operands or rows comes first is decided by what epilogues read: the einsum with its epilogues is a
coloured graph, too, that is labelled before the bare einsum is brought to canonical form.  Arguments of commutative
operators are in an order that depends on no name (:mod:`feinsum.epilogue.normal_form`); where that does not decide, as
between two arrays of one type in ``b[j] + c[j]``, they stay as they were written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from feinsum.arrays import DTYPES, Array, Axis, is_identifier
from feinsum.canonicalization.axis_notation import spelling
from feinsum.canonicalization.labelling import ColouredGraph
from feinsum.canonicalization.renaming import Renaming
from feinsum.einsum import BatchedEinsum
from feinsum.epilogue import parse_epilogue
from feinsum.errors import DTypeError, ShapeError, SubscriptError
from feinsum.subscripts import INDEX_LETTERS

MARK = "ω:"
_DTYPES = {dtype.name: dtype for dtype in DTYPES}


def representative(e: BatchedEinsum) -> Renaming:
    """A renaming to one and the same einsum for all that are isomorphic with their epilogues."""
    graph = ColouredGraph()
    output, summed = e.indexing.output, e.indexing.summed
    sizes = e.index_sizes
    index = _vertices(graph, [(output.find(x), _axis_label(sizes[x])) for x in (*output, *summed)], (*output, *summed))
    groups = [group for group in e.equal_long_axes if len(group) > 1]
    graph.add([len(group) for group in groups], [[index[x] for x in group] for group in groups])
    operands = graph.add([len(letters) for letters in e.indexing.inputs], [()] * e.n)
    places = [(k, p, x) for k, letters in enumerate(e.indexing.inputs) for p, x in enumerate(letters)]
    graph.add([p for _, p, _ in places], [(operands[k], index[x]) for k, _, x in places])
    array = _vertices(graph, [a.dtype.name for a in e.arrays], [a.name for a in e.arrays])
    finished = e.epilogues * (e.b if e.combines else 1)
    rows = graph.add([own.skeleton if own else "" for own in finished], [()] * e.b)
    entries = [(i, k, a.name) for i, row in enumerate(e.args) for k, entry in enumerate(row) for a in entry]
    graph.add([0] * len(entries), [(rows[i], operands[k], array[name]) for i, k, name in entries])
    # An epilogue of several rows tells them apart by where it reads their sums, and is a thing of its own.
    owners = graph.add(["rows"], [()]) if e.combines else rows
    sums = [(s, row) for own in e.epilogues if own for s, row in enumerate(own.all_rows)]
    graph.add([s for s, _ in sums], [(rows[row],) for _, row in sums])
    reads = [(i, s, read.array.name) for i, own in enumerate(e.epilogues) if own for s, read in enumerate(own.all_reads)]
    graph.add([s for _, s, _ in reads], [(owners[i], array[name]) for i, s, name in reads])
    scalar = _vertices(graph, [0] * len(e.scalars), tuple(e.scalars))
    uses = [(i, s, name) for i, own in enumerate(e.epilogues) if own for s, name in enumerate(own.all_scalars)]
    graph.add([s for _, s, _ in uses], [(owners[i], scalar[name]) for i, s, name in uses])

    ranks = graph.ranks()
    indices = [*output, *sorted(summed, key=lambda x: ranks[index[x]])]
    groups = sorted(groups, key=lambda group: min(map(indices.index, group)))
    here, shared = spelling(e, e.equal_long_axes), {group: f"N{k}" for k, group in enumerate(groups)}
    there: dict[str, Axis] = {x: shared.get(group, math.inf) for group in e.equal_long_axes for x in group}
    return Renaming(
        arrays=_numbered_names("y", array, ranks),
        indices=dict(zip(indices, INDEX_LETTERS, strict=False)),
        spellings={x: (here[x], there[x]) for x in there},
        operands=tuple(sorted(range(e.n), key=lambda k: ranks[operands[k]])),
        rows=tuple(sorted(range(e.b), key=lambda i: ranks[rows[i]])),
        scalars=_numbered_names("s", scalar, ranks),
    )


def _axis_label(axis: Axis) -> int:
    return axis if isinstance(axis, int) else -1


def _vertices(graph: ColouredGraph, descriptions: Sequence[object], names: Sequence[str]) -> dict[str, int]:
    """New vertices by name."""
    return dict(zip(names, graph.add(descriptions, [()] * len(names)), strict=True))


def _numbered_names(stem: str, vertices: Mapping[str, int], ranks: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Names in order of rank, of so many digits that they sort as they count."""
    ordered = sorted(vertices, key=lambda name: ranks[vertices[name]])
    return {name: f"{stem}{k:06}" for k, name in enumerate(ordered)}


def renaming_with_epilogues(bare: Renaming, e: BatchedEinsum) -> Renaming:
    """The renaming of a bare einsum to its canonical form, with names for what only the epilogues of `e` have.

    :param e: the einsum with its epilogues, in the names that `bare` starts from.
    """
    arrays, scalars = dict(bare.arrays), dict[str, str]()
    for own in e.epilogues if e.combines else [e.epilogues[i] for i in bare.rows]:
        for a in own.arrays if own else ():
            arrays.setdefault(a.name, f"y{len(arrays) - len(bare.arrays)}")
        for name in own.scalars if own else ():
            scalars.setdefault(name, f"s{len(scalars)}")
    return replace(bare, arrays=arrays, scalars=scalars)


def suffix(e: BatchedEinsum) -> str:
    """The suffix of the key of the bare einsum, for an einsum in canonical form."""
    bare = {a.name for a in e.bare.arrays}
    types = " ".join(f"{a.name}={a.dtype.name}" for a in e.arrays if a.name not in bare)
    texts = [own.text(e.indexing.output) if own else "v" for own in e.epilogues]
    return f"|{MARK}{types}|{'; '.join(texts if len(set(texts)) > 1 else texts[:1])}"


def read_suffix(bare: BatchedEinsum, types: str, texts: str) -> BatchedEinsum:
    """The canonical einsum of a key with epilogues.

    :raises SubscriptError, ShapeError, DTypeError: if the parts of the key are not as :func:`suffix` writes them.
    """
    arrays = {a.name: a for a in bare.arrays}
    new: dict[str, str] = {}
    for term in types.split(" ") if types else ():
        name, _, dtype = term.partition("=")
        if not is_identifier(name) or name in arrays or name in new:
            raise ShapeError(f"{term[:80]!r} in the key does not describe an array of epilogues; that reads y0=float64")
        if dtype not in _DTYPES:
            raise DTypeError(f"{dtype[:80]!r} in the key is no type of arrays; those are {', '.join(_DTYPES)}")
        new[name] = dtype
    rows = texts.split("; ")
    if len(rows) not in (1, bare.b):
        raise SubscriptError(f"the key has {len(rows)} epilogues for {bare.b} rows")
    output, axes = bare.indexing.output, bare.index_sizes
    count = bare.b if len(rows) == 1 else 1
    made = {
        text: parse_epilogue(text, output, {**arrays, **_read_arrays(text, new, output, axes)}, count) for text in set(rows)
    }
    whole = replace(bare, epilogues=tuple(made[text] for text in rows) * (1 if made[rows[0]].rows else count))
    if suffix(whole) != f"|{MARK}{types}|{texts}":
        raise SubscriptError(f"the epilogues {texts[:80]!r} in the key are not written as they would be again")
    return whole


def _read_arrays(text: str, types: Mapping[str, str], output: str, axes: Mapping[str, Axis]) -> dict[str, Array]:
    """The arrays of epilogues that a text reads, with the axes of the indices that it reads them at."""
    found = {}
    for name, dtype in types.items():
        begin = text.find(f"{name}[")
        letters = text[begin + len(name) + 1 :].partition("]")[0].split(", ") if begin >= 0 else []
        if all(x in axes and x in output for x in letters):
            found[name] = Array(name, tuple(axes[x] for x in letters), _DTYPES[dtype])
    return found
