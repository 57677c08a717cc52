"""Lists of einsums as cases of the suite: the wide list, kernels of SeisSol, and :func:`select`, which knows them by name.

The wide list (benchmarks/cases/wide.csv) has all 48 contractions of TCCG (Springer and Bientinesi, Design of a
High-Performance GEMM-like Tensor-Tensor Multiplication, ACM TOMS 44, 2018) and 60 from the literature, each in two layouts.
It is a list to measure on: no curated record may come from it.

SeisSol is a solver for seismic waves: seven einsums at orders 4 to 7.  Indices of one element e: basis k and l, basis of a
face m and n, quantities q and p, dimensions d, faces f, simulations s; m of the viscoelastic kernel are its mechanisms.
Elements are as many as make arrays of so many megabytes of float64.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Mapping

from benchmarks import ROOT
from benchmarks.cases import CASES, SHORT_LIST, Case, count, describe

CLASSES = ("small", "rich", "networks", "streams")
"""Small fixed operands times batches; contractions rich in operations; three and more tensors; what memory bounds."""
LAYOUTS = ("given", "turned")
"""As the literature has it, or with the axes of one array in reverse order, see :func:`turn`."""
DTYPES = ("float64", "float32")
SIDES = ("cpu", "gpu")
WORKLOADS = {
    "volume": "dkl,elq,edqp->ekp",
    "local": "fkm,fml,elq,efqp->ekp",
    "neighbour": "km,mn,nl,elq,eqp->ekp",
    "premultiplied": "kl,elq,eqp->ekp",
    "plasticity": "kl,elp->ekp",
    "viscoelastic": "ekqm,eqmp->ekp",
    "fused": "kl,eslq,eqp->eskp",
}
ORDERS = (4, 5, 6, 7)
MEGABYTES = {"cpu": 64, "gpu": 256}


def select(names: Iterable[str]) -> list[Case]:
    """The cases called so; ``"all"`` and ``"short"`` are lists of those of suite.json, ``"seissol"`` is that of SeisSol.

    :raises ValueError: if there is no such case.
    """
    others = seissol_cases()
    groups = {case["name"]: [case] for case in (*CASES, *others)}
    groups |= {"all": CASES, "short": SHORT_LIST, "seissol": others}
    chosen: dict[str, Case] = {}
    for name in names:
        if name not in groups:
            raise ValueError(f"there is no case {name!r}; there are {', '.join(groups)}")
        chosen |= {case["name"]: case for case in groups[name]}
    return list(chosen.values())


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
    with (ROOT / "benchmarks" / "cases" / "wide.csv").open(encoding="utf-8", newline="") as file:
        known = list(csv.DictReader(file))
    rows = [row for row in known if not names or row["name"].startswith(tuple(names))]
    if unknown := [name for name in names if not any(row["name"].startswith(name) for row in rows)]:
        raise ValueError(f"no case of benchmarks/cases/wide.csv is called {', '.join(unknown)}")
    found = []
    for group in classes:
        own = [row for row in rows if row["class"] == group]
        step = len(own) / limit if limit and limit < len(own) else 1.0
        chosen = [own[int(k * step)] for k in range(min(len(own), limit or len(own)))]
        found += [_wide_case(row, layout) for row in chosen for layout in layouts]
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


def _wide_case(row: Mapping[str, str], layout: str) -> Case:
    sizes = {side: {x: int(n) for x, n in (pair.split("=") for pair in row[side].split())} for side in SIDES}
    einsum = row["einsum"] if layout == "given" else turn(row["einsum"], sizes["gpu"])
    outputs = int(row["outputs"])
    shared = [f"a{k}" for k in range(einsum.count(","))]
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
        count(case, side)
    return case


def seissol_cases(
    names: Collection[str] = tuple(WORKLOADS), orders: Collection[int] = ORDERS, megabytes: Mapping[str, float] = MEGABYTES
) -> list[Case]:
    """The cases of some workloads at some orders, as ``benchmarks/suite.json`` has them.

    :param megabytes: what the arrays take in float64, by side.
    """
    return [_seissol_case(name, order, megabytes) for name in names for order in orders]


def lengths(name: str, order: int) -> dict[str, int]:
    """Of the indices of one element.

    >>> lengths("volume", 6)
    {'k': 56, 'l': 56, 'q': 9, 'p': 9, 'd': 3}
    """
    basis, face = order * (order + 1) * (order + 2) // 6, order * (order + 1) // 2
    quantities = 6 if name == "plasticity" else 9
    known = {"k": basis, "l": basis, "m": face, "n": face, "q": quantities, "p": quantities, "d": 3, "f": 4, "s": 8}
    known |= {"m": 3} if name == "viscoelastic" else {}
    return {x: n for x, n in known.items() if x in WORKLOADS[name]}


def _seissol_case(name: str, order: int, megabytes: Mapping[str, float]) -> Case:
    case: Case = {
        "name": f"seissol_{name}_o{order}",
        "family": "seissol",
        "workload": name,
        "order": order,
        "long": "e",
        "einsum": WORKLOADS[name],
        "n_outputs": 1,
        "arg_rows": [list("ABCDF"[: WORKLOADS[name].count(",") + 1])],
        "dtypes": list(DTYPES),
    }
    for side, most in megabytes.items():
        case[side] = {"sizes": {"e": 1, **lengths(name, order)}}
        e = describe(case, side, "float64", long=True)
        each = e.array_bytes({"E": 2}) - e.array_bytes({"E": 1})
        case[side]["sizes"]["e"] = max(1, int(most * 2**20 / each))
        count(case, side)
    return case
