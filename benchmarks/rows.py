"""Rows of results, one JSON object a line, complete in itself, and the figures made of them.

Every row has ``command``, ``case`` (or ``group`` and ``name``), ``date``, ``load``, ``machine`` and ``versions``.  Beside
peers in processes of their own, ``engines`` has what each of them did, with the ``peaks`` of the device and the rooflines.
Ways that were raced in one process have ``seconds`` by name and the ``ratios`` of the command, medians over rounds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]

OURS = "feinsum"
_KEY = ("command", "group", "name", "case", "lengths", "dtype", "side")


def read_rows(*paths: str | Path) -> list[Row]:
    """The rows of some files; of several for one thing on one device the last."""
    lines = [line for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    rows = [json.loads(line) for line in lines if line.strip()]
    return list({(*(row.get(name) for name in _KEY), row["machine"]["device"]): row for row in rows}.values())


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Median, absolute deviation from it and least, in seconds."""
    middle = median(samples)
    found = {"median_s": middle, "mad_s": median(abs(s - middle) for s in samples), "least_s": min(samples)}
    return {name: _rounded(value) for name, value in found.items()}


def summary(turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of an engine from its turns, in seconds: median, absolute deviation from it, least, median of each turn.

    The median is that of the turns' medians: a turn that something else slows down has other numbers of samples.
    """
    samples = [sample for turn in turns for sample in turn["samples_s"]]
    medians = [median(turn["samples_s"]) for turn in turns]
    middle = median(medians)
    figures = spread(samples) | {
        "median_s": middle,
        "mad_s": median(abs(sample - middle) for sample in samples),
        "samples": len(samples),
        "turns_s": medians,
    }
    figures["cpu_s"] = median(turn["cpu_s"] for turn in turns)
    if "beside" in turns[0]:
        figures["times"] = {name: _times(turns, name) for name in turns[0]["beside"]}
    return {name: _rounded(value) for name, value in figures.items()}


def _times(turns: Sequence[dict[str, Any]], name: str) -> float:
    """How many times as fast as another an engine is that times it in the same rounds: the median of ratios."""
    pairs = [pair for turn in turns for pair in zip(turn["samples_s"], turn["beside"][name], strict=True)]
    return _rounded(median(other / own for own, other in pairs))  # type: ignore[no-any-return]


def seconds(row: Row, engine: str = OURS) -> float | None:
    """The median time of an engine; None if it has none."""
    time_s: float | None = row["engines"].get(engine, {}).get("median_s")
    return time_s


def best_peer(row: Row) -> str | None:
    """The quickest engine besides ours."""
    times = {name: e["median_s"] for name, e in row["engines"].items() if name != OURS and "median_s" in e}
    return min(times, key=times.__getitem__, default=None)


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
    if peer is None or seconds(row) is None:
        return None
    return float(row["engines"][peer][figure] / row["engines"][OURS][figure])


def fraction(row: Row, engine: str | None = OURS, roofline: str = "roofline_s") -> float | None:
    """The part of the roofline that an engine reaches.

    :param roofline: ``"vector_roofline_s"`` is the one without matrix units, which not every row has.
    """
    time_s = None if engine is None else seconds(row, engine)
    return None if time_s is None or roofline not in row else float(row[roofline] / time_s)


def peak_rate(row: Row) -> float:
    """Operations in a second of the type of a row, measured with nothing but multiply-adds."""
    bits = 64 if row["dtype"] == "float64" else 32
    return max(row["peaks"].get(f"fp{bits}{unit}_flops_per_s") or 0.0 for unit in ("", "_matrix"))


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there; None of none."""
    known = [value for value in values if value is not None]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def lost(values: Iterable[float]) -> dict[str, float]:
    """Of factors that a choice loses, the geometric mean, the ninth decile and the worst."""
    ordered = sorted(values)
    ninth = ordered[math.ceil(0.9 * len(ordered)) - 1]
    return {"first pick": geometric_mean(ordered) or math.nan, "9 of 10 below": ninth, "worst": ordered[-1]}


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
