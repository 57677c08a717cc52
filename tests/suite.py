"""The cases of benchmarks/suite.json as batched einsums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import feinsum as fe

Case = dict[str, Any]
CASES: list[Case] = json.loads((Path(__file__).parents[1] / "benchmarks" / "suite.json").read_text())["cases"]
SHORT_LIST = [case for case in CASES if case["cpu"].get("short_list")]


def describe(case: Case, side: str, dtype: str) -> fe.BatchedEinsum:
    """A case at the sizes of ``"cpu"`` or ``"gpu"``, every axis a number."""
    sizes = case[side]["sizes"]
    terms = case["einsum"].partition("->")[0].split(",")
    return fe.batched_einsum(
        case["einsum"],
        [
            [
                fe.array(name.replace("'", "_prime"), [sizes[letter] for letter in term], dtype)
                for name, term in zip(row, terms, strict=True)
            ]
            for row in case["arg_rows"]
        ],
    )
