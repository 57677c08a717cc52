"""Cases by their names, whatever list they are of."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.cases import CASES, SHORT_LIST, Case
from benchmarks.seissol.cases import seissol_cases


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
