"""The cases of benchmarks/suite.json as batched einsums; other lists and programs are modules of this package."""

from __future__ import annotations

import json
from typing import Any

import feinsum as fe
from benchmarks import ROOT

Case = dict[str, Any]
CASES: list[Case] = json.loads((ROOT / "benchmarks" / "suite.json").read_text(encoding="utf-8"))["cases"]
SHORT_LIST = [case for case in CASES if case["cpu"].get("short_list")]

_MESHES = ("dg", "ader", "sem")
"""Families whose index e counts the elements of a mesh, whose number is unknown when a kernel is generated."""


def describe(case: Case, side: str, dtype: str, *, long: bool = False) -> fe.BatchedEinsum:
    """A case at the sizes of ``"cpu"`` or ``"gpu"``, every axis a number.

    :param long: make the number of elements of a mesh the long axis E, as its users do; :func:`long_sizes` has its length.
    """
    axes: dict[str, int | str] = dict(case[side]["sizes"])
    if long:
        axes |= dict.fromkeys(_element_index(case), "E")
    terms = case["einsum"].partition("->")[0].split(",")
    arrays = {
        name: fe.array(name.replace("'", "_prime"), [axes[letter] for letter in term], dtype)
        for row in case["arg_rows"]
        for name, term in zip(row, terms, strict=True)
    }
    return fe.batched_einsum(case["einsum"], [[arrays[name] for name in row] for row in case["arg_rows"]])


def long_sizes(case: Case, side: str) -> dict[str, int]:
    """The lengths of the long axes of ``describe(..., long=True)``."""
    letter = _element_index(case)
    return {"E": case[side]["sizes"][letter]} if letter else {}


def _element_index(case: Case) -> str:
    return str(case.get("long", "e" if case["family"] in _MESHES else ""))


def count(case: Case, side: str) -> None:
    """Add to the side of a case the operations and least bytes that suite.json has of its own."""
    for dtype in case["dtypes"]:
        e, sizes = describe(case, side, dtype, long=True), long_sizes(case, side)
        case[side].setdefault("flops", {"pairwise_shared": e.flops(sizes)})
        case[side].setdefault("min_bytes", {})[dtype] = e.min_bytes(sizes)


def gradient(nodes: int = 20, prefix: str = "") -> fe.BatchedEinsum:
    """The gradient of a discontinuous Galerkin method on elements of so many nodes, in float64.

    :param prefix: of the names of its arrays.
    """
    shapes = {"J": (3, 3, "E"), "D": (3, nodes, nodes), "u": ("E", nodes)}
    return fe.einsum("xre,rij,ej->xei", *(fe.array(prefix + name, shape) for name, shape in shapes.items()))
