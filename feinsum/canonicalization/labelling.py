"""One order of operands, arrays and rows for all isomorphic einsums, from a canonical labelling of a coloured graph.

The vertices are indices, operands, arrays and classes of rows; an edge says that one belongs to the other.  A vertex is
coloured by its properties other than names: an index by its axis and the places where it occurs, an operand by its indices,
a row by its arrays.  Where no two vertices have one colour, the colours are the order.  Otherwise BLISS, through igraph,
breaks the ties (Junttila and Kaski, "Engineering an efficient canonical labeling tool for large and sparse graphs", ALENEX
2007).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from feinsum.arrays import Axis
from feinsum.canonicalization.classes import Columns, RowClass
from feinsum.einsum import BatchedEinsum

Role = tuple[str, Columns]
"""The name of a shared array and the operands in which some row has it."""

Rank = tuple[int, int]


@dataclass
class ColouredGraph:
    """A graph whose vertices have colours; equal graphs with equal colours arise from isomorphic einsums."""

    colors: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    used: int = 0

    def add(self, descriptions: Sequence[Any], neighbours: Sequence[Iterable[int]]) -> list[int]:
        """Add vertices of one kind, coloured in order of their descriptions; their numbers."""
        palette = {description: self.used + k for k, description in enumerate(sorted(set(descriptions)))}
        vertices = list(range(len(self.colors), len(self.colors) + len(descriptions)))
        self.colors.extend(palette[description] for description in descriptions)
        self.edges.extend((v, other) for v, others in zip(vertices, neighbours, strict=True) for other in others)
        self.used += len(palette)
        return vertices

    def tints(self, vertices: Iterable[int]) -> tuple[int, ...]:
        """The colours of `vertices`, sorted: a description of what belongs to all of them."""
        return tuple(sorted([self.colors[v] for v in vertices]))

    def ranks(self) -> list[Rank]:
        """A sort key for each vertex, the same for every presentation of this graph up to its automorphisms."""
        if self.used == len(self.colors):
            return [(color, 0) for color in self.colors]
        from feinsum.canonicalization import bliss

        return list(zip(self.colors, bliss.labels(self.colors, self.edges), strict=True))


@dataclass(frozen=True)
class Order:
    """An order of the parts of an einsum that isomorphic einsums have in common.

    :ivar operands: the operands in order.
    :ivar roles: a sort key for each shared array in each of its roles.
    :ivar classes: the classes of rows in order.
    """

    operands: tuple[int, ...]
    roles: Mapping[Role, Rank]
    classes: tuple[RowClass, ...]


def canonical_order(
    e: BatchedEinsum, classes: Sequence[RowClass], dtypes: Mapping[str, str], equal_axes: Sequence[str]
) -> Order:
    """Order the operands of `e`, its shared arrays and the `classes` of its rows.

    :param dtypes: the type of every array, by name.
    :param equal_axes: the long indices in groups of equal length.
    """
    graph = ColouredGraph()
    index, operands = _add_indexing(graph, e)
    common = [[index[x] for x in group] for group in equal_axes if len(group) > 1]
    graph.add([graph.tints(group) for group in common], common)
    roles = _add_roles(graph, operands, classes, dtypes)
    own = _add_own(graph, operands, classes)
    parts = [[roles[role] for role in c.shared] + [own[item] for item in Counter(c.own).items()] for c in classes]
    rows = graph.add([(len(c.rows), graph.tints(p)) for c, p in zip(classes, parts, strict=True)], parts)
    ranks = graph.ranks()
    return Order(
        operands=tuple(sorted(range(e.n), key=lambda k: ranks[operands[k]])),
        roles={role: ranks[vertex] for role, vertex in roles.items()},
        classes=tuple(classes[k] for k in sorted(range(len(classes)), key=lambda k: ranks[rows[k]])),
    )


def _add_indexing(graph: ColouredGraph, e: BatchedEinsum) -> tuple[dict[str, int], list[int]]:
    """Add the indices, the operands and which index stands where; the vertices of indices and operands.

    An output index is told apart by its axis of the output, so its places in an operand are known by the operand's colour.
    A summed index has a vertex for each of its places.
    """
    inputs, summed = e.indexing.inputs, e.indexing.summed
    position = {letter: p for p, letter in enumerate(e.indexing.output)} | dict.fromkeys(summed, len(e.indexing.output))
    patterns = [tuple(position[letter] for letter in letters) for letters in inputs]
    places: dict[str, list[Any]] = {letter: [] for letter in position}
    for letters, pattern in zip(inputs, patterns, strict=True):
        for p, letter in enumerate(letters):
            places[letter].append((pattern, p))
    descriptions = [(position[x], tuple(sorted(places[x])), _axis_code(e.index_sizes[x])) for x in position]
    vertices = graph.add(descriptions, [()] * len(descriptions))
    index = dict(zip(position, vertices, strict=True))

    operands = graph.add([tuple(graph.colors[index[x]] for x in letters) for letters in inputs], [()] * e.n)
    spots = [(k, p) for k, letters in enumerate(inputs) for p, x in enumerate(letters) if x in summed]
    graph.add([(graph.colors[operands[k]], p) for k, p in spots], [(operands[k], index[inputs[k][p]]) for k, p in spots])
    return index, operands


def _axis_code(axis: Axis) -> int:
    """A fixed length, or -1 for a long axis; which long axes are one is told by vertices of their own."""
    return axis if isinstance(axis, int) else -1


def _add_roles(
    graph: ColouredGraph, operands: list[int], classes: Sequence[RowClass], dtypes: Mapping[str, str]
) -> dict[Role, int]:
    """Add the shared arrays; the vertex of each array in each of its roles.

    An array that has one role in all of its rows needs no vertex besides that of the role.
    """
    rows = Counter(role for c in classes for role in c.shared)
    places = [[operands[k] for k in columns] for _, columns in rows]
    vertices = graph.add(
        [(dtypes[name], rows[name, columns], graph.tints(p)) for (name, columns), p in zip(rows, places, strict=True)],
        places,
    )
    by_array: dict[str, list[int]] = {}
    for (name, _), vertex in zip(rows, vertices, strict=True):
        by_array.setdefault(name, []).append(vertex)
    several = [group for group in by_array.values() if len(group) > 1]
    graph.add([graph.tints(group) for group in several], several)
    return dict(zip(rows, vertices, strict=True))


def _add_own(
    graph: ColouredGraph, operands: list[int], classes: Sequence[RowClass]
) -> dict[tuple[tuple[str, Columns], int], int]:
    """Add what rows have of their own: a vertex for each type, columns and number of such arrays in a row."""
    kinds = list(dict.fromkeys(item for c in classes for item in Counter(c.own).items()))
    places = [[operands[k] for k in columns] for (_, columns), _ in kinds]
    vertices = graph.add(
        [(dtype, count, graph.tints(p)) for ((dtype, _), count), p in zip(kinds, places, strict=True)], places
    )
    return dict(zip(kinds, vertices, strict=True))
