"""The wide list: benchmarks/wide/cases.csv as cases of the suite, each in two layouts.

All 48 contractions of TCCG (Springer and Bientinesi, Design of a High-Performance GEMM-like Tensor-Tensor Multiplication,
ACM TOMS 44, 2018) and 60 from the literature.  It is a list to measure on: no curated record may come from it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Mapping
from pathlib import Path

from benchmarks.cases import Case, describe, long_sizes

CLASSES = ("small", "rich", "networks", "streams")
"""Small fixed operands times batches; contractions rich in operations; three and more tensors; what memory bounds."""
LAYOUTS = ("given", "turned")
"""As the literature has it, or with the axes of one array in reverse order, see :func:`turn`."""
DTYPES = ("float64", "float32")
SIDES = ("cpu", "gpu")


def wide_cases(
    classes: Collection[str] = CLASSES,
    layouts: Collection[str] = LAYOUTS,
    names: Collection[str] = (),
    limit: int | None = None,
) -> list[Case]:
    """The cases of some classes in some layouts, as ``benchmarks/suite.json`` has them.

    :param names: of cases, or what they begin with; all if there is none.
    :param limit: so many of each class and layout, spread over the list.
    :raises ValueError: if nothing is called so.
    """
    rows = [row for row in _rows() if not names or row["name"].startswith(tuple(names))]
    if unknown := [name for name in names if not any(row["name"].startswith(name) for row in rows)]:
        raise ValueError(f"no case of benchmarks/wide/cases.csv is called {', '.join(unknown)}")
    found = []
    for group in classes:
        own = [row for row in rows if row["class"] == group]
        step = len(own) / limit if limit and limit < len(own) else 1.0
        chosen = [own[int(k * step)] for k in range(min(len(own), limit or len(own)))]
        found += [_case(row, layout) for row in chosen for layout in layouts]
    return found


def base(name: str) -> str:
    """The name that a case has in whatever layout."""
    return name.partition(".")[0]


def turn(einsum: str, sizes: Mapping[str, int]) -> str:
    """Subscripts with the axes of the largest operand of several axes in reverse order, or without one of the output.

    >>> turn("xre,rij,ej->xei", {"x": 3, "r": 3, "e": 1000, "i": 20, "j": 20})
    'xre,rij,je->xei'
    >>> turn("i,j->ij", {"i": 5, "j": 6})
    'i,j->ji'
    """
    inputs, output = einsum.split("->")
    terms = inputs.split(",")
    able = [k for k, term in enumerate(terms) if len(term) > 1]
    if not able:
        return f"{inputs}->{output[::-1]}"
    largest = max(able, key=lambda k: math.prod(sizes[x] for x in terms[k]))
    terms[largest] = terms[largest][::-1]
    return ",".join(terms) + "->" + output


def _rows() -> list[dict[str, str]]:
    with (Path(__file__).parent / "cases.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _case(row: Mapping[str, str], layout: str) -> Case:
    sizes = {side: {x: int(n) for x, n in (pair.split("=") for pair in row[side].split())} for side in SIDES}
    einsum = row["einsum"] if layout == "given" else turn(row["einsum"], sizes["gpu"])
    n, outputs = einsum.count(",") + 1, int(row["outputs"])
    shared = [f"a{k}" for k in range(n - 1)]
    case: Case = {
        "name": row["name"] if layout == "given" else f"{row['name']}.{layout}",
        "family": row["class"],
        "layout": layout,
        "long": row["long"],
        "einsum": einsum,
        "n_outputs": outputs,
        # Outputs have all operands but the last in common.
        "arg_rows": [[*shared, f"u{i}"] for i in range(outputs)],
        "dtypes": list(DTYPES),
        **{side: {"sizes": sizes[side]} for side in SIDES},
    }
    for side in SIDES:
        for dtype in DTYPES:
            e, lengths = describe(case, side, dtype, long=True), long_sizes(case, side)
            case[side].setdefault("flops", {"pairwise_shared": e.flops(lengths)})
            case[side].setdefault("min_bytes", {})[dtype] = e.min_bytes(lengths)
    return case
