"""Results of the wide list: a line for each, and geometric means by class, beside what is aimed at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import OURS, Row, best_peer, fraction, geometric_mean, headline, seconds, speed_up
from benchmarks.wide.cases import CLASSES, base
from feinsum.cli.output import print_table

TUNED = "tuned"
"""The key of a row, and the name of the process, of what tuning found."""
ORDERED = "ordered"
"""The key of a row whose peers had to leave their results in the order of axes that was asked for."""
AIMS = {
    "gpu": {"small": (4.0, 0.75), "rich": (1.2, 0.75), "networks": (1.5, None), "streams": (1.1, 0.85)},
    "cpu": {"small": (3.0, 0.6), "rich": (1.05, 0.75), "networks": (1.5, None), "streams": (1.3, 0.8)},
}
"""Times as fast as the best peer, and fraction of the roofline, that geometric means of a class should reach."""
BEHIND = 0.9
"""Below this part of the speed of the best peer a case is behind."""

HEADINGS = (
    "case", "einsum", "type", "ms", "tuned", "pick", "peer ms", "peer", "times", "tuned times", "roofline", "space", "rung",
)  # fmt: skip
MEANS = (
    "class", "type", "results", "failed", "behind", "times", "least", "aim", "roofline", "aim of it", "tuned times",
    "tuned roofline", "pick", "layout",
)  # fmt: skip


def tuned_s(row: Row) -> float | None:
    """The time after tuning; None if there is none."""
    return row.get(TUNED, {}).get("median_s")


def tuned_times(row: Row) -> float | None:
    """The time of the best peer over that after tuning."""
    found, peer = tuned_s(row), best_peer(row)
    return None if found is None or peer is None else float(row["engines"][peer]["median_s"] / found)


def first_pick(row: Row) -> float | None:
    """The time untuned over that after tuning."""
    own, found = seconds(row, OURS), tuned_s(row)
    return None if own is None or found is None else own / found


def cells(row: Row) -> list[str]:
    """A line under :data:`HEADINGS`."""
    ours, peer = row["engines"].get(OURS, {}), best_peer(row)
    return [
        row["case"],
        row["einsum"],
        row["dtype"],
        _milliseconds(seconds(row, OURS)) if "median_s" in ours else ours.get("status", "-"),
        _milliseconds(tuned_s(row)),
        _figure(first_pick(row)),
        _milliseconds(None if peer is None else seconds(row, peer)),
        peer or "-",
        _figure(speed_up(row)),
        _figure(tuned_times(row)),
        _figure(fraction(row)),
        ours.get("space", "-"),
        ours.get("rung", "-"),
    ]


def means(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Lines under :data:`MEANS`: each class in each type, then in both."""
    layouts = _layout_costs(rows)
    for group in CLASSES:
        for dtype in ("float64", "float32", "both"):
            own = [row for row in rows if row["family"] == group and dtype in (row["dtype"], "both")]
            if own:
                yield _mean(group, dtype, own, [layouts[_key(row)] for row in own if _key(row) in layouts])


def _mean(group: str, dtype: str, rows: Sequence[Row], layouts: Sequence[float]) -> list[str]:
    def mean(figure: Callable[[Row], float | None]) -> str:
        return _figure(geometric_mean(map(figure, rows)))

    known = [times for row in rows if (times := speed_up(row)) is not None]
    times, roofline = AIMS[rows[0]["side"]][group]
    return [
        group,
        dtype,
        str(len(rows)),
        str(sum(seconds(row, OURS) is None for row in rows)),
        str(sum(found < BEHIND for found in known)),
        mean(speed_up),
        _figure(min(known, default=None)),
        _figure(times),
        mean(fraction),
        _figure(roofline),
        mean(tuned_times),
        mean(lambda row: None if (found := tuned_s(row)) is None else row["roofline_s"] / found),
        mean(first_pick),
        _figure(geometric_mean(layouts)),
    ]


def _layout_costs(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """What the worse of two layouts takes over the better one, of what has both."""
    times: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if (own := seconds(row, OURS)) is not None:
            times.setdefault(_key(row), []).append(own)
    return {key: max(found) / min(found) for key, found in times.items() if len(found) > 1}


def _key(row: Row) -> tuple[str, str]:
    return base(row["case"]), row["dtype"]


def _worst_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: speed_up(row) or 0.0)


def print_row(row: Row) -> None:
    """A line of progress, and one for each engine that did not finish."""
    told = dict(zip(HEADINGS, cells(row), strict=True))
    peer = f"{told['peer']} {told['peer ms']} ms, {told['times']} times" if told["peer"] != "-" else "no peer"
    after = f", tuned {told['tuned']} ms ({told['tuned times']} times)" if told["tuned"] != "-" else ""
    here = f"{told['ms']} ms ({told['space']}, {told['rung']}), {told['roofline']} of the roofline"
    print(f"{told['case']} {told['einsum']} {told['type']}: {here}; {peer}{after}", flush=True)
    for name, engine in (*row["engines"].items(), (TUNED, row.get(TUNED, {}))):
        if "message" in engine:
            print(f"  {name}: {engine['status']}: {engine['message']}", flush=True)


def print_tables(rows: Sequence[Row]) -> None:
    """All results, the worst first, then the means by class."""
    print()
    print_table(HEADINGS, map(cells, _worst_first(rows)), left=["case", "einsum", "type", "peer", "space", "rung"])
    print()
    print_table(MEANS, means(rows), left=["class", "type"])
    print()
    for line in (*LEGEND, f"peers     {headline(rows)}"):
        print(line)


LEGEND = (
    "times     the time of the best peer over ours untuned; behind: results below 0.9; aim: what the mean should reach",
    "roofline  max(operations / measured rate, least bytes / measured copy bandwidth) over our time",
    "pick      the time untuned over the time tuned",
    "layout    the time in the worse layout over that in the better one",
)


def write_page(rows: Sequence[Row], path: str | Path) -> None:
    """The tables as a report."""
    about: dict[str, Any] = rows[0]["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(rows[0]["versions"].items()))
    lines = [
        f".. Generated by ``python -m benchmarks wide --report`` from {len(rows)} results; do not edit.",
        "",
        f"Measured {min(row['date'] for row in rows)[:10]} to {max(row['date'] for row in rows)[:10]} on"
        f" {about['name'].strip()} (``{about['device']}``), driver {about['driver']}; host {about['processor']},"
        f" {about['cores']} cores, Python {about['python']}; {versions}.  Load average of the machine"
        f" {min(row['load'] for row in rows):.1f} to {max(row['load'] for row in rows):.1f}.",
        *(
            ["The results of peers lie in memory as their axes are asked for; views of products are copied."]
            if all(ORDERED in row for row in rows)
            else []
        ),
        "",
        *(f"| {line}" for line in (*LEGEND, f"peers     {headline(rows)}")),
        "",
        *_table("By class", MEANS, list(means(rows))),
        *_table("Every result, the worst first", HEADINGS, list(map(cells, _worst_first(rows)))),
    ]
    Path(path).write_text("\n".join(lines), encoding="utf-8")


def _table(title: str, headings: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from (f".. csv-table:: {title}", "   :header: " + ", ".join(f'"{cell}"' for cell in headings), "")
    for line in lines:
        yield "   " + ", ".join(f'"{cell}"' for cell in line)
    yield ""


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:.3f}"
