"""The cases of benchmarks/suite.json as batched einsums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import feinsum as fe

Case = dict[str, Any]
CASES: list[Case] = json.loads((Path(__file__).parent / "suite.json").read_text(encoding="utf-8"))["cases"]
SHORT_LIST = [case for case in CASES if case["cpu"].get("short_list")]

_MESHES = ("dg", "ader", "sem")
"""Families whose index e counts the elements of a mesh, which nobody knows when a kernel is generated."""


def describe(case: Case, side: str, dtype: str, *, long: bool = False) -> fe.BatchedEinsum:
    """A case at the sizes of ``"cpu"`` or ``"gpu"``, every axis a number.

    :param long: make the number of elements of a mesh the long axis E, as its users do; :func:`long_sizes` has its length.
    """
    axes: dict[str, int | str] = dict(case[side]["sizes"])
    if long:
        axes |= dict.fromkeys(_element_index(case), "E")
    terms = case["einsum"].partition("->")[0].split(",")
    return fe.batched_einsum(
        case["einsum"],
        [
            [
                fe.array(name.replace("'", "_prime"), [axes[letter] for letter in term], dtype)
                for name, term in zip(row, terms, strict=True)
            ]
            for row in case["arg_rows"]
        ],
    )


def long_sizes(case: Case, side: str) -> dict[str, int]:
    """The lengths of the long axes of ``describe(..., long=True)``."""
    letter = _element_index(case)
    return {"E": case[side]["sizes"][letter]} if letter else {}


def _element_index(case: Case) -> str:
    return str(case.get("long", "e" if case["family"] in _MESHES else ""))
