"""Results of the suite on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import OURS, Row, best_peer, fraction, geometric_mean, headline, seconds, speed_up
from feinsum.cli.output import print_table

HEADINGS = (
    "case", "type", "ours ms", "±", "peer ms", "peer", "times", "by cpu", "GFLOP/s", "GB/s", "roofline", "vector",
    "peer's", "space", "rung",
)  # fmt: skip


def cells(row: Row) -> list[str]:
    """A line under :data:`HEADINGS`; what is not there is a dash."""
    ours, peer = row["engines"].get(OURS, {}), best_peer(row)
    own_s, peer_s = seconds(row, OURS), None if peer is None else seconds(row, peer)
    return [
        row["case"],
        row["dtype"],
        ours.get("status", "-") if own_s is None else f"{own_s * 1e3:.3f}",
        "-" if own_s is None else f"{ours['mad_s'] / own_s:.0%}",
        "-" if peer_s is None else f"{peer_s * 1e3:.3f}",
        peer or "-",
        _figure(speed_up(row)),
        _figure(speed_up(row, "cpu_s") if row["side"] == "cpu" else None),
        "-" if own_s is None else f"{row['flops'] / own_s / 1e9:.0f}",
        "-" if own_s is None else f"{row['bytes'] / own_s / 1e9:.1f}",
        _figure(fraction(row)),
        _figure(fraction(row, roofline="vector_roofline_s")),
        _figure(None if peer is None else fraction(row, peer)),
        ours.get("space", "-"),
        ours.get("rung", "-"),
    ]


def case_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and lines, without the columns that have nothing to say for these rows."""
    lines = [cells(row) for row in rows]
    kept = [k for k in range(len(HEADINGS)) if any(line[k] != "-" for line in lines)]
    return [HEADINGS[k] for k in kept], [[line[k] for k in kept] for line in lines]


def means(rows: Sequence[Row]) -> list[list[str]]:
    """Lines under :data:`MEANS`: geometric means by family and type, and of all."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        for family in (row["family"], "all"):
            groups.setdefault((family, row["dtype"]), []).append(row)
    groups["all", "all"] = list(rows)
    return [
        [
            family,
            dtype,
            str(len(group)),
            str(sum(seconds(row, OURS) is None for row in group)),
            _figure(geometric_mean(speed_up(row) for row in group)),
            _figure(min((s for row in group if (s := speed_up(row)) is not None), default=None)),
            _figure(geometric_mean(map(fraction, group))),
            _figure(min((f for row in group if (f := fraction(row)) is not None), default=None)),
            _figure(geometric_mean(fraction(row, peer) for row in group if (peer := best_peer(row)))),
        ]
        for (family, dtype), group in sorted(groups.items(), key=lambda item: (item[0][0] == "all", item[0]))
    ]


MEANS = ("family", "type", "cases", "failed", "times", "least times", "roofline", "least roofline", "peers' roofline")


def print_row(row: Row) -> None:
    """A line of progress, and a line for each engine that did not finish."""
    told = dict(zip(HEADINGS, cells(row), strict=True))
    ours = f"{told['ours ms']} ms ({told['space']}, {told['rung']}), {told['roofline']} of the roofline"
    peer = f"{told['peer']} {told['peer ms']} ms, {told['times']} times" if told["peer"] != "-" else "no peer"
    print(f"{told['case']} {told['type']}: {ours}; {peer}", flush=True)
    for name, engine in row["engines"].items():
        if "message" in engine:
            print(f"  {name}: {engine['status']}: {engine['message']}", flush=True)


def print_results(rows: Sequence[Row]) -> None:
    """All cases, then geometric means."""
    print()
    print_table(*case_table(rows), left=["case", "type", "peer", "space", "rung"])
    print()
    print_table(MEANS, means(rows), left=["family", "type"])
    print()
    print("times     the time of the best peer over ours; by cpu: of processor time, which a busy machine spoils less")
    print(f"peers     {headline(rows)}")
    print("roofline  max(operations / measured rate, least bytes / measured copy bandwidth) over our time;")
    print("          vector: by the rate without matrix units; peer's: of the best peer")


def list_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table of reStructuredText, whose first row has its headings."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    return lines + [f"   {'  -' if k else '* -'} {cell}".rstrip() for row in rows for k, cell in enumerate(row)]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
