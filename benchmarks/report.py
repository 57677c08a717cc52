"""Tables of results, on the terminal and as pages: ``python -m benchmarks report RESULTS.jsonl ... [--page FILE.rst]``.

The rows say which command they are of.  Of several results for one thing on one device the last counts.  Plots, of which
doc/explanation/results-*.rst shows some, need matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import parser_of
from benchmarks.cases.lists import CLASSES, WORKLOADS, base
from benchmarks.rows import (
    OURS,
    Row,
    best_peer,
    fraction,
    geometric_mean,
    headline,
    peak_rate,
    read_rows,
    seconds,
    speed_up,
)
from feinsum.cli.output import print_table
from feinsum.report.plots import DOTS_PER_INCH, PlotError, Rooflines, rooflines, speedups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TUNED = "tuned"
"""The key of a row, and the name of the process, of what tuning found."""
ORDERED = "ordered"
"""The key of a row whose peers had to leave their results in the order of axes that was asked for."""
LANGUAGE = "language"
"""The key of a row, and the name of the process, of an einsum as a program of the immediate language."""
AIMS = {
    "gpu": {"small": (4.0, 0.75), "rich": (1.2, 0.75), "networks": (1.5, None), "streams": (1.1, 0.85)},
    "cpu": {"small": (3.0, 0.6), "rich": (1.05, 0.75), "networks": (1.5, None), "streams": (1.3, 0.8)},
}
"""Times as fast as the best peer, and fraction of the roofline, that geometric means of a class should reach."""
BEHIND = 0.9
"""Below this part of the speed of the best peer a case is behind."""
BARS = {
    "cpu": {"language": 1.03, "launches": 1.6, "times": 1.5, "peak": 0.5},
    "gpu": {"language": 1.03, "launches": 1.6, "times": 3.0, "roofline": 0.6},
}
"""Language over generate at most; launches over language, best peer over ours, and parts of what a device does at least."""
PEAK_FROM = 6
"""The order from which the rate of a CPU is compared with its peak."""
CALL_S, CALL_RATIO = 15e-6, 1.02
"""What a call may take: so many times the kernel's device time, and so much more."""
PEAK_COPY = "peak copy"
"""A copy as fast as the device was seen to copy, where that is faster than a kernel that copies."""
TEXTS = (
    "case", "einsum", "type", "peer", "space", "rung", "workload", "family", "class", "call", "arrays", "what", "error",
    "seen", "layer", "kernels", "why", "lengths", "epilogue", "einsums", "remark", "interval", "verdict", "left out",
    "device", "",
)  # fmt: skip


class Table(NamedTuple):
    """A table with a title, which may be empty."""

    title: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]


Part = str | Table
"""A line or a table of a report."""


def decimal(value: float | None, digits: int = 2) -> str:
    """A figure; a dash for one that is not there."""
    return "-" if value is None else f"{value:.{digits}f}"


def milliseconds(time_s: float | None) -> str:
    return "-" if time_s is None else f"{time_s * 1e3:.3f}"


def duration(time_s: float) -> str:
    """
    >>> duration(1.25e-5), duration(0.0125)
    ('12.5 us', '12.50 ms')
    """
    return f"{time_s * 1e6:.1f} us" if abs(time_s) < 1e-3 else f"{time_s * 1e3:.2f} ms"


def _over(row: Row, time_s: float | None, work: float) -> float | None:
    return None if time_s is None else work / time_s


def _peer_s(row: Row) -> float | None:
    peer = best_peer(row)
    return None if peer is None else seconds(row, peer)


def tuned_s(row: Row) -> float | None:
    """The time after tuning; None if there is none."""
    return row.get(TUNED, {}).get("median_s")


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def bound(row: Row) -> str:
    """What the least time follows from."""
    return "rate" if row["flops"] / peak_rate(row) >= row["roofline_s"] * 0.999 else "bandwidth"


FIGURES: dict[str, Callable[[Row], float | None]] = {
    "times": speed_up,
    "by cpu": lambda r: speed_up(r, "cpu_s") if r["side"] == "cpu" else None,
    "roofline": fraction,
    "vector": lambda r: fraction(r, roofline="vector_roofline_s"),
    "peer's": lambda r: fraction(r, best_peer(r)),
    "tuned times": lambda r: _ratio(_peer_s(r), tuned_s(r)),
    "tuned roofline": lambda r: _ratio(r["roofline_s"], tuned_s(r)),
    "pick": lambda r: _ratio(seconds(r), tuned_s(r)),
    "peak": lambda r: _over(r, seconds(r), r["flops"] / peak_rate(r)),
    "language": lambda r: _ratio(1.0, r.get(LANGUAGE, {}).get("times", {}).get("generate")),
    "launches": lambda r: r.get(LANGUAGE, {}).get("times", {}).get("launches"),
}
"""Figures of a row beside peers, by the headings of their columns."""


def _own(name: str) -> Callable[[Row], str]:
    return lambda r: r["engines"].get(OURS, {}).get(name, "-")  # type: ignore[no-any-return]


def _engine_ms(row: Row, name: str) -> str:
    """The time of an engine, or why it has none."""
    own = row["engines"].get(name, {})
    return milliseconds(own["median_s"]) if "median_s" in own else str(own.get("status", "-"))


CELLS: dict[str, Callable[[Row], str]] = {
    **{name: lambda r, name=name: r[name] for name in ("case", "einsum", "workload")},  # type: ignore[misc]
    "order": lambda r: str(r["order"]),
    "type": lambda r: r["dtype"],
    "ours ms": lambda r: _engine_ms(r, OURS),
    "ms": lambda r: _engine_ms(r, OURS),
    "±": lambda r: "-" if (t := seconds(r)) is None else f"{r['engines'][OURS]['mad_s'] / t:.0%}",
    "tuned": lambda r: milliseconds(tuned_s(r)),
    "peer ms": lambda r: milliseconds(_peer_s(r)),
    "peer": lambda r: best_peer(r) or "-",
    "GFLOP/s": lambda r: decimal(_over(r, seconds(r), r["flops"] / 1e9), 0),
    "GB/s": lambda r: decimal(_over(r, seconds(r), r["bytes"] / 1e9), 1),
    **{name: lambda r, of=of: decimal(of(r)) for name, of in FIGURES.items()},  # type: ignore[misc]
    "bound": bound,
    "space": _own("space"),
    "rung": _own("rung"),
    "load": lambda r: f"{r['load']:.0f}",
}
"""Columns of rows beside peers."""
SUITE = "case,type,ours ms,±,peer ms,peer,times,by cpu,GFLOP/s,GB/s,roofline,vector,peer's,space,rung".split(",")
WIDE = "case,einsum,type,ms,tuned,pick,peer ms,peer,times,tuned times,roofline,space,rung".split(",")
SEISSOL = (
    "workload,order,type,ms,GFLOP/s,peak,roofline,bound,peer ms,peer,times,language,launches,space,rung,load"
).split(",")  # fmt: skip
LEGEND = {
    "ms": "our kernel by device events, inputs that no cache holds; peer: the quickest library",
    "times": "the time of the best peer over ours; behind: results below 0.9; aim: what the mean should reach",
    "by cpu": "the same for processor time, which a busy machine spoils less",
    "roofline": "max(operations / measured rate, least bytes / measured copy bandwidth) over our time",
    "vector": "the same by the rate without matrix units",
    "peer's": "the same over the time of the best peer",
    "peak": "operations over the measured rate of multiply-add",
    "bound": "which of the two is the longer one: the rate of operations, or the bandwidth",
    "pick": "the time untuned over the time tuned",
    "layout": "the time in the worse layout over that in the better one",
    "language": "the time of a call of the program over that of the kernel, both with device arrays",
    "launches": "the time with a launch for each instruction over that of the program",
    "load": "of the machine: where it is above its cores, ratios mean more than times and rates",
}
"""What columns mean."""
HOW = (
    "Every engine is a process with the same inputs and cores; they take turns.  Times are medians in milliseconds; ± is"
    " the median absolute deviation.",
    "Peers keep freed memory, so that their results cost no fresh pages, and do not pay for compilation or the search for a"
    " path; each result was compared with a reference in higher precision.",
    "An engine is slow if it was cut off at its first evaluation, and wrong if it errs more than rounding can.",
)


def cells(row: Row, columns: Sequence[str]) -> list[str]:
    """The cells of a row beside peers; what is not there is a dash."""
    return [CELLS[name](row) for name in columns]


def row_table(title: str, rows: Sequence[Row], columns: Sequence[str]) -> Table:
    """A line for each row, without the columns that have nothing to say for these rows."""
    lines = [cells(row, columns) for row in rows]
    kept = [k for k in range(len(columns)) if any(line[k] != "-" for line in lines)]
    return Table(title, [columns[k] for k in kept], [[line[k] for k in kept] for line in lines])


def legend(rows: Sequence[Row], columns: Iterable[str]) -> Iterator[str]:
    """What columns mean, and which peers there are."""
    yield from (f"{name:9} {LEGEND[name]}" for name in columns if name in LEGEND)
    yield f"{'peers':9} {headline(rows)}"


def _mean(of: Callable[[Row], float | None]) -> Callable[[Sequence[Row]], str]:
    return lambda rows: decimal(geometric_mean(map(of, rows)))


def _least(of: Callable[[Row], float | None]) -> Callable[[Sequence[Row]], str]:
    return lambda rows: decimal(min((x for x in map(of, rows) if x is not None), default=None))


def _layout_cost(rows: Sequence[Row]) -> float | None:
    """What the worse of two layouts takes over the better one, of what has both."""
    times: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if (own := seconds(row)) is not None:
            times.setdefault((base(row["case"]), row["dtype"]), []).append(own)
    return geometric_mean(max(found) / min(found) for found in times.values() if len(found) > 1)


MEANS: dict[str, Callable[[Sequence[Row]], str]] = {
    **dict.fromkeys(("cases", "results"), lambda rows: str(len(rows))),
    "failed": lambda rows: str(sum(seconds(row) is None for row in rows)),
    "behind": lambda rows: str(sum((speed_up(row) or 1.0) < BEHIND for row in rows)),
    "times": _mean(speed_up),
    **dict.fromkeys(("least", "least times"), _least(speed_up)),
    "aim": lambda rows: decimal(AIMS[rows[0]["side"]][rows[0]["family"]][0]),
    "roofline": _mean(fraction),
    "aim of it": lambda rows: decimal(AIMS[rows[0]["side"]][rows[0]["family"]][1]),
    "least roofline": _least(fraction),
    "peers' roofline": _mean(FIGURES["peer's"]),
    **{name: _mean(FIGURES[name]) for name in ("tuned times", "tuned roofline", "pick")},
    "layout": lambda rows: decimal(_layout_cost(rows)),
}
"""Columns of groups of rows."""
SUITE_MEANS = "cases,failed,times,least times,roofline,least roofline,peers' roofline".split(",")
WIDE_MEANS = "results,failed,behind,times,least,aim,roofline,aim of it,tuned times,tuned roofline,pick,layout".split(",")


def mean_table(
    title: str, group: str, rows: Sequence[Row], families: Iterable[str], dtypes: Iterable[str], columns: Sequence[str]
) -> Table:
    """Geometric means for families and types that there are rows of; ``all`` and ``both`` are all of them."""
    lines = []
    for family in families:
        for dtype in dtypes:
            own = [r for r in rows if family in (r["family"], "all") and dtype in (r["dtype"], "all", "both")]
            if own and (family == "all" or dtype != "all"):
                lines.append([family, dtype, *(MEANS[name](own) for name in columns)])
    return Table(title, [group, "type", *columns], lines)


def suite(rows: Sequence[Row]) -> Iterator[Part]:
    """Geometric means, all cases, and every engine."""
    every_case = row_table("Cases", rows, SUITE)
    yield from (*legend(rows, every_case.headings), *HOW)
    bandwidths = [row["peaks"]["copy_bytes_per_s"] / 1e9 for row in rows]
    yield (
        f"Copy bandwidth {min(bandwidths):.0f} to {max(bandwidths):.0f} GB/s (median {median(bandwidths):.0f}), measured"
        " around the samples of every case."
    )
    families = [*sorted({row["family"] for row in rows}), "all"]
    dtypes = ["all", *sorted({row["dtype"] for row in rows})]
    yield mean_table("Geometric means", "family", rows, families, dtypes, SUITE_MEANS)
    yield every_case
    engines = list(dict.fromkeys(name for row in rows for name in (OURS, *row["engines"])))
    every = [[row["case"], row["dtype"], *(_engine_ms(row, name) for name in engines)] for row in rows]
    yield Table("Every engine, in milliseconds", ["case", "type", *engines], every)
    if told := [f"{row['case']} {row['dtype']}, {line}" for row in rows for line in messages(row)]:
        yield from ("Engines without a time:", *(line.replace("`", "'") for line in told))


def wide(rows: Sequence[Row]) -> Iterator[Part]:
    """Means by class beside what is aimed at, and every result, the worst first."""
    every = row_table("Every result, the worst first", sorted(rows, key=lambda r: speed_up(r) or 0.0), WIDE)
    yield from (*legend(rows, (*every.headings, "layout")), *HOW)
    if all(ORDERED in row for row in rows):
        yield "The results of peers lie in memory as their axes are asked for; views of products are copied."
    yield mean_table("By class", "class", rows, CLASSES, ("float64", "float32", "both"), WIDE_MEANS)
    yield every


def seissol(rows: Sequence[Row]) -> Iterator[Part]:
    """What is reached and missed of each bar, and every result."""
    yield from (*legend(rows, SEISSOL), *HOW, *summaries(rows))
    order = list(WORKLOADS)
    ordered = sorted(rows, key=lambda r: (order.index(r["workload"]), r["dtype"], r["order"]))
    yield row_table("Every result", ordered, SEISSOL)


def missed(row: Row) -> list[str]:
    """The bars that a result of SeisSol does not reach."""
    names = []
    for name, bar in BARS[row["side"]].items():
        value = FIGURES[name](row)
        if value is not None and _counts(row, name) and (value > bar if name == LANGUAGE else value < bar):
            names.append(name)
    return names


def _counts(row: Row, bar: str) -> bool:
    """Whether a bar is meant for a result: one instruction is one launch in any case, and low orders have short sums."""
    return row["order"] >= PEAK_FROM if bar == "peak" else bar != "launches" or row["einsum"].count(",") > 1


def summaries(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence for each bar: the mean, and how many results miss it."""
    for side in sorted({row["side"] for row in rows}):
        own = [row for row in rows if row["side"] == side]
        for name, bar in BARS[side].items():
            counted = [row for row in own if _counts(row, name)]
            behind = [row for row in counted if name in missed(row)]
            workloads = [row["workload"] for row in behind]
            by_workload = ", ".join(f"{x} {workloads.count(x)}" for x in dict.fromkeys(workloads))
            word = "at most" if name == LANGUAGE else "at least"
            mean = decimal(geometric_mean(map(FIGURES[name], counted)))
            told = f"{name} {word} {bar:g}: {mean} in geometric mean, missed by {len(behind)} of {len(counted)}"
            told += f" ({by_workload})" if behind else ""
            moved = [row for row in behind if bound(row) == "bandwidth"] if name == "peak" else []
            yield told + (f"; {len(moved)} of these are bound by bandwidth, see their roofline" if moved else "")


def messages(row: Row) -> Iterator[str]:
    """Why engines have no time."""
    for name, engine in (*row["engines"].items(), *((key, row.get(key, {})) for key in (TUNED, LANGUAGE))):
        if "message" in engine:
            yield f"{name}: {engine['status']}: {engine['message']}"


COLUMNS = {"suite": SUITE, "wide": WIDE, "seissol": SEISSOL}


def print_row(row: Row) -> None:
    """A line of progress, and a line for each engine that did not finish."""
    headings = [name for name in COLUMNS[row["command"]] if CELLS[name](row) != "-"]
    told = [CELLS[name](row) if name in TEXTS else f"{name} {CELLS[name](row)}" for name in headings]
    behind = [f"misses {', '.join(found)}"] if row["command"] == "seissol" and (found := missed(row)) else []
    print(", ".join(told + behind), flush=True)
    for line in messages(row):
        print(f"  {line}", flush=True)


def declarative(rows: Sequence[Row]) -> Iterator[Part]:
    """A table for each device, the latest first."""
    peers = ["torch", "torch.compile", "jax", "numba"]
    headings = ["case", "lengths", "time", "of what it is measured against", "aim", *peers]
    for device in dict.fromkeys(row["machine"]["device"] for row in reversed(rows)):
        own = [row for row in rows if row["machine"]["device"] == device]
        dates = " and ".join(sorted({row["date"][:10] for row in own}))
        yield Table(f"On ``{device}``, {dates}", headings, [_declarative_line(row, peers) for row in own])


def _declarative_line(row: Row, others: Sequence[str]) -> list[str]:
    ratios = row["ratios"]
    yardstick = min((name for name in (row["against"], PEAK_COPY) if name in ratios), key=ratios.__getitem__, default="")
    against = f"{ratios[yardstick]:.2f} ({yardstick})" if yardstick else ""
    bar = f"{row['bar']:.2f}" if row["bar"] else ""
    told = [f"{ratios[name]:.2f}" if name in ratios else "" for name in others]
    return [row["case"], row["lengths"], f"{row['seconds']['program'] * 1e3:.3g} ms", against, bar, *told]


def raced(rows: Sequence[Row], columns: Sequence[str] = ("case",), first: Sequence[str] = ()) -> Table:
    """Seconds of every way, and ratios.

    :param columns: keys of rows that come before.
    :param first: ways in the order in which they stand; others follow.
    """
    ways = list(dict.fromkeys((*first, *(name for row in rows for name in row["seconds"]))))
    ways = [name for name in ways if any(name in row["seconds"] for row in rows)]
    ratios = list(dict.fromkeys(name for row in rows for name in row["ratios"]))
    lines = []
    for row in rows:
        times = (f"{row['seconds'][name] * 1e6:.0f}" if name in row["seconds"] else "-" for name in ways)
        lines.append([*(str(row[x]) for x in columns), *times, *(decimal(row["ratios"].get(name)) for name in ratios)])
    headings = [*columns, *(f"{name}, µs" for name in ways), *ratios]
    return Table("Times, and ratios of speeds", headings, lines)


def tensor(rows: Sequence[Row]) -> Iterator[Part]:
    """A table of all cases, and a sentence for each bar: how many results reach it."""
    yield raced(rows, first=("general", "items", "einsum", "generate", "torch", "jax", "cupy", "numpy"))
    programs = [row for row in rows if not row["case"].startswith("gemm")]
    products = [row for row in rows if row not in programs]
    best = ("general / peer", "einsum / peer")
    bars = (
        ("batched products: the better route is at least as fast as the best peer", products, 1.0, *best),
        ("programs: ours is at least twice as fast as torch", programs, 2.0, "best of ours / torch"),
        ("the general route is at least half as fast as einsums", rows, 0.5, "general / einsum"),
        ("the einsum route is within 5% of generate", rows, 0.95, "einsum / generate"),
    )  # fmt: skip
    for sentence, own, bar, *names in bars:
        ratios = {row["case"]: [x for name in names if (x := row["ratios"].get(name)) is not None] for row in own}
        counted = {case: max(found) for case, found in ratios.items() if found}
        behind = [f"{name} {value:.2f}" for name, value in counted.items() if value < bar]
        told = f"{sentence}: {len(counted) - len(behind)} of {len(counted)}"
        yield told + (f" (not: {'; '.join(behind)})" if behind else "")


def epilogues(rows: Sequence[Row]) -> Iterator[Part]:
    """Ratios over the fused kernel, and of it over the bare one."""
    yield raced(rows, first=("bare", "fused", "two", "copy"))


def forms(rows: Sequence[Row]) -> Iterator[Part]:
    """Given over transformed, and of how many cases this is above 1."""
    yield raced(rows, ("case", "einsums"))
    for name in ("call", "launches"):
        yield f"faster: {sum(row['ratios'][name] > 1 for row in rows)} of {len(rows)} by {name}"


def costs(rows: Sequence[Row]) -> Iterator[Part]:
    """Medians beside what they may be at most."""
    lines = []
    for row in rows:
        figures, most = row["figures"], row.get("most_s")
        met = "" if most is None else "met" if figures["median_s"] <= most else "MISSED"
        times = [duration(figures[name]) for name in ("median_s", "mad_s", "least_s")]
        lines.append([row["case"], *times, "" if most is None else duration(most), met, row["remark"]])
    yield Table("Costs", ["what", "median", "±", "least", "target", "", "remark"], lines)


def cost_model(rows: Sequence[Row]) -> Iterator[Part]:
    """What the first pick loses, by what was left out and by device."""
    yield from (
        "first pick: the time of the measured configuration that the model would try first, over that of the best,",
        "as a geometric mean over problems that were left out of the training; others than measured ones cannot be picked",
        "left out: an einsum with all its lengths; all einsums of a pattern, so that the model has never seen such",
        "subscripts; all records of a device; all records; the last rows show the choice without a model",
    )
    for kind, factor in sorted({(r["machine"]["device"][:3], r["factor"]) for r in rows if r.get("factor")}):
        yield f"half of the predictions are within a factor of {factor:.2g} on {kind.upper()}s"
    groups = list(dict.fromkeys(r["group"] for r in rows))
    digits = {"first pick": 2, "9 of 10 below": 2, "worst": 1}
    lines = [
        [r["group"], f"``{r['machine']['device']}``", str(r["problems"]), *(decimal(r[x], n) for x, n in digits.items())]
        for r in sorted(rows, key=lambda r: groups.index(r["group"]))
    ]
    yield Table("How good the cost model is", ["left out", "device", "problems", *digits], lines)


def arrays(rows: Sequence[Row]) -> Iterator[Part]:
    """The tables of every group that there are rows for."""
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == group]
        failed = [[row["name"], row["failed"].splitlines()[-1]] for row in own if "failed" in row]
        if failed:
            yield Table(f"{group}: failed", ["what", "error"], failed)
        if whole := [row for row in own if "failed" not in row]:
            yield from _GROUPS[group](whole)


def _calls(rows: Sequence[Row]) -> Iterator[Part]:
    for row in rows:
        together, apart = row["back to back"], row["apart"]
        raw, raw_apart = (next(iter(times.values()))["median_s"] for times in (together, apart))
        lines = [
            [
                way, duration(taken["median_s"]), duration(taken["mad_s"]), f"{taken['median_s'] / raw:.3f}",
                duration(apart[way]["median_s"]), duration(apart[way]["median_s"] - raw_apart),
                "" if "kernel" not in way else "met" if taken["median_s"] <= CALL_RATIO * raw + CALL_S else "MISSED",
            ]
            for way, taken in together.items()
        ]  # fmt: skip
        sizes = "".join(f"{name} = {n}, " for name, n in row["sizes"].items())
        title = f"{row['name']}: {row['einsum']}, {sizes}{row.get('dtype', 'float64')}, {row['kernel']['space']}"
        headings = ["call", "back to back", "±", "of the first", "apart", "more than the first", "1.02 + 15 us"]
        yield Table(title, headings, lines)


def _host(rows: Sequence[Row]) -> Iterator[Part]:
    for row in rows:
        raw = row["returned"].get("raw launch")
        lines = []
        for way, one in row["returned"].items():
            share = [f"{one['median_s'] / raw['median_s']:.2f}"] if raw else []
            lines.append([way, duration(one["median_s"]), duration(one["mad_s"]), *share])
        headings = ["call", "median", "±", *(["of the raw launch"] if raw else [])]
        yield Table(f"{row['name']}: until the call returns", headings, lines)


def _training(rows: Sequence[Row]) -> Iterator[Part]:
    def beside(one: Row, ours: str) -> list[str]:
        own, theirs = one[ours]["median_s"], one["torch.einsum"]["median_s"]
        return [duration(own), duration(theirs), f"{theirs / own:.2f}"]

    lines, pieces = [], []
    for row in rows:
        sizes = " ".join(f"{name}={n}" for name, n in row["sizes"].items())
        told = [row["name"], row["einsum"], sizes]
        lines.append([*told, *beside(row["step"], "feinsum.torch.einsum"), f"{row['error']:.0e}"])
        for one in row["einsums"]:
            kernels = "; ".join(f"{k['space']} ({k['rung']})" if "space" in k else k["einsum"] for k in one["kernels"])
            pieces.append([row["name"], one["subscripts"], *beside(one, "feinsum"), kernels])
    title = "Training steps, forward and backward of all operands, float32, untuned"
    times = ["feinsum", "torch", "times as quick"]
    yield Table(title, ["layer", "einsum", "sizes", *times, "difference"], lines)
    yield Table("The einsums of these steps, each alone", ["layer", "einsum", *times, "kernels"], pieces)


_GROUPS = {"calls": _calls, "host": _host, "training": _training}
REPORTS: dict[str, Callable[[Sequence[Row]], Iterator[Part]]] = {
    "suite": suite, "wide": wide, "seissol": seissol, "declarative": declarative, "tensor": tensor,
    "epilogues": epilogues, "forms": forms, "costs": costs, "arrays": arrays, "cost-model": cost_model,
}  # fmt: skip


def parts(rows: Sequence[Row]) -> Iterator[Part]:
    """The report of the command that the rows are of."""
    return REPORTS[rows[0]["command"]](rows)


def show(rows: Sequence[Row], page: str | Path | None = None) -> None:
    """Print a report, and write it as a page where one is asked for."""
    for part in parts(rows) if rows else ():
        if isinstance(part, str):
            print(part)
        else:
            print(f"\n{part.title}")
            print_table(part.headings, part.lines, left=TEXTS)
            print()
    for row in rows:
        if "failed" in row:
            print(f"\n{row['group']}:\n{row['failed']}")
    if page and rows:
        write_page(rows, page)


def write_page(rows: Sequence[Row], path: str | Path) -> None:
    """Write a page, and beside that of the suite plots where matplotlib is installed."""
    path = Path(path)
    pictures: dict[str, str] = {}
    if rows[0]["command"] == "suite":
        try:
            pictures = _draw(rows, path)
        except PlotError as error:
            print(f"no plots: {error}")
    path.write_text("\n".join(_page(rows, pictures)) + "\n", encoding="utf-8")


def _page(rows: Sequence[Row], pictures: dict[str, str]) -> Iterator[str]:
    yield from (f".. Generated by ``python -m benchmarks report`` from {len(rows)} results; do not edit.", "")
    yield from (about(rows), "")
    for name, shown in pictures.items():
        yield from (f".. image:: {name}", f"   :alt: {shown}", "")
    lines: list[str] = []
    for part in parts(rows):
        if isinstance(part, str):
            lines.append(f"| {part}")
            continue
        yield from (*lines, *[""] * bool(lines), *csv_table(part), "")
        lines = []
    yield from lines


def about(rows: Sequence[Row]) -> str:
    """When, by which command and on what rows were measured."""
    dates = sorted({row["date"][:10] for row in rows})
    machines = dict.fromkeys(_described(row["machine"]) for row in rows)
    versions = sorted({f"{name} {version}" for row in rows for name, version in row.get("versions", {}).items()})
    loads = [row["load"] for row in rows if "load" in row]
    told = (
        f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} by ``python -m benchmarks {rows[0]['command']}`` on"
    )
    told += f" {'; '.join(machines)}{'; ' * bool(versions)}{', '.join(versions)}."
    return told + (f"  Load average of the machine {min(loads):.1f} to {max(loads):.1f}." if loads else "")


def _described(machine: dict[str, Any]) -> str:
    told = [f"{machine.get('name', '').strip()} (``{machine['device']}``)".strip()]
    told += [f"driver {machine['driver']}"] if "driver" in machine else []
    told += [f"{machine['cores']} cores of {machine['processor']}"] if "processor" in machine else []
    return ", ".join(told + ([f"Python {machine['python']}"] if "python" in machine else []))


def csv_table(table: Table) -> Iterator[str]:
    """The lines of a table of reStructuredText."""

    def line(cells: Sequence[str]) -> str:
        return ", ".join(f'"{cell}"' for cell in cells)

    yield from (f".. csv-table:: {table.title}".rstrip(), f"   :header: {line(table.headings)}", "")
    yield from (f"   {line(cells)}" for cells in table.lines)


def _draw(rows: Sequence[Row], page: Path) -> dict[str, str]:
    """Write the pictures of the suite beside its page; their names, with what they show."""
    machine = f"{rows[0]['machine']['name'].strip()}, {rows[0]['side']}"
    faster = {f"{row['case']} {row['dtype']}": times for row in rows if (times := speed_up(row))}
    drawn = {
        page.with_suffix(".png"): (roofline_plot(rows), "rate over operations per byte, under the measured roof"),
        page.with_name(f"{page.stem}-speedup.png"): (
            speedups(faster, machine),
            "how many times as fast as the best peer each case is",
        ),
    }
    for path, (figure, _) in drawn.items():
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
    return {path.name: shown for path, (_, shown) in drawn.items()}


def roofline_plot(rows: Sequence[Row]) -> Figure:
    """A plot for each type: rate over intensity for ours and every peer under the measured roof."""
    by_type = {dtype: [row for row in rows if row["dtype"] == dtype] for dtype in sorted({row["dtype"] for row in rows})}
    return rooflines(*(_rooflines(dtype, own) for dtype, own in by_type.items()))


def _rooflines(dtype: str, rows: Sequence[Row]) -> Rooflines:
    drawn = dict.fromkeys([OURS, *(name for row in rows for name, e in row["engines"].items() if "median_s" in e)])
    return Rooflines(
        title=dtype,
        series={
            name: [(row["flops"] / row["bytes"], row["flops"] / t) for row in rows if (t := seconds(row, name))]
            for name in drawn
        },
        flops_per_s=median(map(peak_rate, rows)),
        bytes_per_s=median(row["peaks"]["copy_bytes_per_s"] for row in rows),
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="files of rows, all of one command")
    parser.add_argument("--page", type=Path, help="write a page, too")
    options = parser.parse_args()
    show(read_rows(*options.results), options.page)
