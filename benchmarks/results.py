"""Results of the suite: one JSON object a line for each case and type, complete in itself, and the figures made of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]
"""A line: the case, machine, date, peaks, roofline and, under ``"engines"``, what each engine did."""

OURS = "feinsum"


def read_results(path: str | Path) -> list[Row]:
    """The rows of a file; of several for one case, type, side and device the last."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    return list({(r["case"], r["dtype"], r["side"], r["machine"]["device"]): r for r in rows}.values())


def summary(turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of an engine from its turns, in seconds: median, absolute deviation from it, least, median of each turn.

    The median is that of the turns' medians: a turn that something else slows down has other numbers of samples.
    """
    samples = [sample for turn in turns for sample in turn["samples_s"]]
    medians = [median(turn["samples_s"]) for turn in turns]
    middle = median(medians)
    figures = {
        "median_s": middle,
        "mad_s": median(abs(sample - middle) for sample in samples),
        "least_s": min(samples),
        "samples": len(samples),
        "turns_s": medians,
    }
    for name in ("cpu_s", "wall_s"):
        if name in turns[0]:
            figures[name] = median(turn[name] for turn in turns)
    figures = {name: _rounded(value) for name, value in figures.items()}
    return {**figures, "times": _times(turns)} if "beside" in turns[0] else figures


def _times(turns: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How many times as fast as others an engine is that times them in the same rounds: medians of ratios."""
    return {
        name: _rounded(
            median(
                other / own for turn in turns for own, other in zip(turn["samples_s"], turn["beside"][name], strict=True)
            )
        )
        for name in turns[0]["beside"]
    }


def seconds(row: Row, engine: str) -> float | None:
    """The median time of an engine; None if it has none."""
    time_s: float | None = row["engines"].get(engine, {}).get("median_s")
    return time_s


def best_peer(row: Row) -> str | None:
    """The quickest engine besides ours."""
    times = {name: e["median_s"] for name, e in row["engines"].items() if name != OURS and "median_s" in e}
    return min(times, key=lambda name: times[name]) if times else None


def headline(rows: Iterable[Row]) -> str:
    """The peers that "best of" means here, with the number of results in which each was the best.

    >>> headline([{"engines": {"feinsum": {"median_s": 1.0}, "jax": {"median_s": 2.0}, "numpy": {"median_s": 3.0}}}])
    'best of jax (in 1), numpy (in 0)'
    """
    rows = list(rows)
    timed = sorted({name for row in rows for name, own in row["engines"].items() if name != OURS and "median_s" in own})
    best = [best_peer(row) for row in rows]
    return "best of " + (", ".join(f"{name} (in {best.count(name)})" for name in timed) or "no peer")


def speed_up(row: Row, figure: str = "median_s") -> float | None:
    """The time of the best peer over ours; None without either.

    :param figure: ``"cpu_s"`` compares processor time, which other programs on the machine disturb less.
    """
    peer = best_peer(row)
    if peer is None or seconds(row, OURS) is None:
        return None
    return float(row["engines"][peer][figure] / row["engines"][OURS][figure])


def fraction(row: Row, engine: str = OURS, roofline: str = "roofline_s") -> float | None:
    """The part of the roofline that an engine reaches.

    :param roofline: ``"vector_roofline_s"`` is the one without matrix units, which not every row has.
    """
    time_s = seconds(row, engine)
    return None if time_s is None or roofline not in row else float(row[roofline] / time_s)


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there; None of none."""
    known = [value for value in values if value is not None]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
