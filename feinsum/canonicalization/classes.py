"""Rows that differ only in the names of arrays of their own are one class of rows with a multiplicity.

In ``[[D, u0], [D, u1], ..., [D, u499]]`` each u stands in one row.  Which u it is says nothing up to renaming, so the row
is fully described by ``D, a float64 array of its own`` and the matrix by 500 times that.  Only arrays that several rows
share have an identity that a graph must hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from feinsum.arrays import DTYPES
from feinsum.einsum import BatchedEinsum

Columns = tuple[int, ...]
"""The operands of one row in which an array stands, in increasing order."""

DTYPE_NAMES = {dtype: dtype.name for dtype in DTYPES}


@dataclass
class RowClass:
    """Rows that are equal up to the names of arrays of their own.

    :ivar shared: name and columns of the arrays that stand in other rows as well.
    :ivar own: type and columns of the arrays that stand in this row only.
    :ivar rows: the rows of the class.
    :ivar names: for each of `rows`, the names of its own arrays, in the order of `own`.
    """

    shared: tuple[tuple[str, Columns], ...]
    own: tuple[tuple[str, Columns], ...]
    rows: list[int] = field(default_factory=list)
    names: list[tuple[str, ...]] = field(default_factory=list)


def classify_rows(e: BatchedEinsum) -> tuple[list[RowClass], Mapping[str, str]]:
    """The classes of the rows of `e`, and the type of every array by its name."""
    dtypes: dict[str, str] = {}
    matrix: list[dict[str, Columns]] = []
    for row in e.args:
        columns: dict[str, Columns] = {}
        for k, entry in enumerate(row):
            for a in entry:
                columns[a.name] = (*columns.get(a.name, ()), k)
                dtypes[a.name] = DTYPE_NAMES[a.dtype]
        matrix.append(columns)
    occurrences = Counter(name for columns in matrix for name in columns)

    classes: dict[object, RowClass] = {}
    for i, columns in enumerate(matrix):
        shared = tuple(sorted(item for item in columns.items() if occurrences[item[0]] > 1))
        named = sorted((dtypes[name], where, name) for name, where in columns.items() if occurrences[name] == 1)
        own = tuple((dtype, where) for dtype, where, _ in named)
        found = classes.setdefault((shared, own), RowClass(shared, own))
        found.rows.append(i)
        found.names.append(tuple(name for _, _, name in named))
    return list(classes.values()), dtypes
