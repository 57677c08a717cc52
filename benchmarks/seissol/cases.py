"""Kernels of SeisSol, a solver for seismic waves, as cases of the suite: seven einsums at orders 4 to 7.

Indices of one element e: basis k and l, basis of a face m and n, quantities q and p, dimensions d, faces f, simulations s;
m of the viscoelastic kernel are its mechanisms.  Elements are as many as make arrays of so many megabytes of float64.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from benchmarks.cases import Case, describe, long_sizes

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
DTYPES = ("float64", "float32")
MEGABYTES = {"cpu": 64, "gpu": 256}


def seissol_cases(
    names: Collection[str] = tuple(WORKLOADS),
    orders: Collection[int] = ORDERS,
    megabytes: Mapping[str, float] = MEGABYTES,
) -> list[Case]:
    """The cases of some workloads at some orders, as ``benchmarks/suite.json`` has them.

    :param megabytes: what the arrays take in float64, by side.
    """
    return [_case(name, order, megabytes) for name in names for order in orders]


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


def _case(name: str, order: int, megabytes: Mapping[str, float]) -> Case:
    terms = WORKLOADS[name].partition("->")[0].split(",")
    case: Case = {
        "name": f"seissol_{name}_o{order}",
        "family": "seissol",
        "workload": name,
        "order": order,
        "long": "e",
        "einsum": WORKLOADS[name],
        "n_outputs": 1,
        "arg_rows": [list("ABCDF"[: len(terms)])],
        "dtypes": list(DTYPES),
    }
    for side, most in megabytes.items():
        case[side] = {"sizes": {"e": 1, **lengths(name, order)}}
        e = describe(case, side, "float64", long=True)
        each = e.array_bytes({"E": 2}) - e.array_bytes({"E": 1})
        case[side]["sizes"]["e"] = max(1, int(most * 2**20 / each))
        sizes = long_sizes(case, side)
        case[side]["flops"] = {"pairwise_shared": e.flops(sizes)}
        case[side]["min_bytes"] = {dtype: describe(case, side, dtype, long=True).min_bytes(sizes) for dtype in DTYPES}
    return case
