"""Results of SeisSol's kernels: a line for each, and what is missed of the bars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.engines.programs import LANGUAGE
from benchmarks.results import OURS, Row, best_peer, fraction, geometric_mean, headline, seconds, speed_up
from benchmarks.seissol.cases import WORKLOADS
from feinsum.cli.output import print_table

BARS = {
    "cpu": {"language": 1.03, "launches": 1.6, "times": 1.5, "peak": 0.5},
    "gpu": {"language": 1.03, "launches": 1.6, "times": 3.0, "roofline": 0.6},
}
"""Language over generate at most; launches over language, best peer over ours, and parts of what a device does at least."""
PEAK_FROM = 6
"""The order from which the rate of a CPU is compared with its peak."""
HEADINGS = (
    "workload", "order", "type", "ms", "GFLOP/s", "peak", "roofline", "bound", "peer ms", "peer", "times", "language",
    "launches", "space", "rung", "load",
)  # fmt: skip
LEGEND = (
    "ms        the kernel of generate by device events, inputs that no cache holds; peer: the quickest library",
    "peak      operations over the measured rate of multiply-add; roofline: the least time by rate or bandwidth over ours",
    "bound     which of the two is the longer one: the rate of operations, or the bandwidth",
    "times     the time of the best peer over ours",
    "language  the time of a call of the program over that of the kernel, both with device arrays",
    "launches  the time with a launch for each instruction over that of the program",
    "load      of the machine: where it is above its cores, ratios mean more than times and rates",
)


def figures(row: Row) -> dict[str, float | None]:
    """What has a bar, and the rate in GFLOP/s."""
    own, beside = seconds(row, OURS), row.get(LANGUAGE, {}).get("times", {})
    return {
        "rate": None if own is None else row["flops"] / own / 1e9,
        "peak": None if own is None else row["flops"] / own / _rate(row),
        "roofline": fraction(row),
        "times": speed_up(row),
        "language": 1 / beside["generate"] if "generate" in beside else None,
        "launches": beside.get("launches"),
    }


def bound(row: Row) -> str:
    """What the least time follows from."""
    rate = _rate(row)
    return "rate" if row["flops"] / rate >= row["roofline_s"] * 0.999 else "bandwidth"


def _rate(row: Row) -> float:
    """Operations in a second, measured with nothing but multiply-adds."""
    bits = 64 if row["dtype"] == "float64" else 32
    return max(row["peaks"].get(f"fp{bits}{unit}_flops_per_s") or 0.0 for unit in ("", "_matrix"))


def missed(row: Row) -> list[str]:
    """The bars that a result does not reach."""
    found = figures(row)
    names = []
    for name, bar in BARS[row["side"]].items():
        value = found[name]
        if value is None or not _counts(row, name):
            continue
        if value > bar if name == "language" else value < bar:
            names.append(name)
    return names


def _counts(row: Row, bar: str) -> bool:
    """Whether a bar is meant for a result: one instruction is one launch in any case, and low orders have short sums."""
    return row["order"] >= PEAK_FROM if bar == "peak" else bar != "launches" or row["einsum"].count(",") > 1


def cells(row: Row) -> list[str]:
    """A line under :data:`HEADINGS`."""
    ours, peer, found = row["engines"].get(OURS, {}), best_peer(row), figures(row)
    return [
        row["workload"],
        str(row["order"]),
        row["dtype"],
        _milliseconds(seconds(row, OURS)) if "median_s" in ours else ours.get("status", "-"),
        "-" if found["rate"] is None else f"{found['rate']:.0f}",
        *(_figure(found[name]) for name in ("peak", "roofline")),
        bound(row),
        _milliseconds(None if peer is None else seconds(row, peer)),
        peer or "-",
        *(_figure(found[name]) for name in ("times", "language", "launches")),
        ours.get("space", "-"),
        ours.get("rung", "-"),
        f"{row['load']:.0f}",
    ]


def summaries(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence for each bar: the mean, and how many results miss it."""
    for side in sorted({row["side"] for row in rows}):
        own = [row for row in rows if row["side"] == side]
        for name, bar in BARS[side].items():
            counted = [row for row in own if _counts(row, name)]
            behind = [row for row in counted if name in missed(row)]
            mean = geometric_mean(figures(row)[name] for row in counted)
            word = "at most" if name == "language" else "at least"
            told = f"{name} {word} {bar:g}: {_figure(mean)} in geometric mean, missed by {len(behind)} of {len(counted)}"
            told += f" ({_by_workload(behind)})" if behind else ""
            moved = [row for row in behind if bound(row) == "bandwidth"] if name == "peak" else []
            yield told + (f"; {len(moved)} of these are bound by bandwidth, see their roofline" if moved else "")


def _by_workload(rows: Iterable[Row]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["workload"]] = counts.get(row["workload"], 0) + 1
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _sorted(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (list(WORKLOADS).index(row["workload"]), row["dtype"], row["order"]))


def print_row(row: Row) -> None:
    """A line of progress, and one for each engine that did not finish."""
    told = dict(zip(HEADINGS, cells(row), strict=True))
    behind = ", ".join(missed(row))
    print(
        f"{told['workload']} {told['order']} {told['type']}: {told['ms']} ms, {told['GFLOP/s']} GFLOP/s ({told['space']},"
        f" {told['rung']}), {told['peak']} of the peak, {told['roofline']} of the roofline; {told['peer']}"
        f" {told['peer ms']} ms, {told['times']} times; language {told['language']}, launches {told['launches']}"
        + (f"; misses {behind}" if behind else ""),
        flush=True,
    )
    for name, engine in (*row["engines"].items(), (LANGUAGE, row[LANGUAGE])):
        if "message" in engine:
            print(f"  {name}: {engine['status']}: {engine['message']}", flush=True)


def print_tables(rows: Sequence[Row]) -> None:
    """All results, and the bars."""
    print()
    print_table(HEADINGS, map(cells, _sorted(rows)), left=["workload", "type", "peer", "space", "rung"])
    print()
    for line in (*LEGEND, f"peers     {headline(rows)}", "", *summaries(rows)):
        print(line)


def write_page(rows: Sequence[Row], path: str | Path) -> None:
    """The table as a report."""
    about = rows[0]["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(rows[0]["versions"].items()))
    dates = sorted({row["date"][:10] for row in rows})
    loads = [row["load"] for row in rows]
    lines = [
        f".. Generated by ``python -m benchmarks seissol --report`` from {len(rows)} results; do not edit.",
        "",
        f"Measured {' and '.join(dict.fromkeys((dates[0], dates[-1])))} on {about['name'].strip()} (``{about['device']}``),"
        f" driver {about['driver']}; host {about['processor']}, {about['cores']} cores, Python {about['python']};"
        f" {versions}.  Load average of the machine {min(loads):.1f} to {max(loads):.1f}.",
        "",
        *(f"| {line}" for line in (*LEGEND, f"peers     {headline(rows)}")),
        "",
        *(f"- {line}" for line in summaries(rows)),
        "",
        ".. csv-table::",
        "   :header: " + ", ".join(f'"{cell}"' for cell in HEADINGS),
        "",
        *("   " + ", ".join(f'"{cell}"' for cell in cells(row)) for row in _sorted(rows)),
        "",
    ]
    Path(path).write_text("\n".join(lines), encoding="utf-8")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:.3f}"
