"""Results of ``python -m benchmarks arrays`` as tables, for the terminal and as a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Row
from feinsum.cli.output import print_table

Table = tuple[str, list[str], list[list[str]]]
"""Title, headings, lines."""

_CALL_S, _CALL_RATIO = 15e-6, 1.02
"""What a call may take: so many times the kernel's device time, and so much more."""


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """All that there are rows for."""
    groups = {
        group: [row for row in rows if row["group"] == group] for group in dict.fromkeys(row["group"] for row in rows)
    }
    makers = {
        "calls": _calls, "host": _host, "copies": _copies, "leaks": _leaks, "streams": _streams, "gradcheck": _gradcheck,
        "training": _training, "devices": _devices,
    }  # fmt: skip
    for group, own in groups.items():
        failed = [row for row in own if "failed" in row]
        whole = [row for row in own if "failed" not in row]
        if failed:
            yield f"{group}: failed", ["what", "error"], [[row["name"], row["failed"].splitlines()[-1]] for row in failed]
        if whole:
            yield from makers[group](whole)


def _calls(rows: Sequence[Row]) -> Iterator[Table]:
    for row in rows:
        together, apart = row["back to back"], row["apart"]
        first = next(iter(together))
        raw, raw_apart = together[first]["median_s"], apart[first]["median_s"]
        lines = [
            [
                way,
                _time(taken["median_s"]),
                _time(taken["mad_s"]),
                f"{taken['median_s'] / raw:.3f}",
                _time(apart[way]["median_s"]),
                _time(apart[way]["median_s"] - raw_apart),
                "" if "kernel" not in way else "met" if taken["median_s"] <= _CALL_RATIO * raw + _CALL_S else "MISSED",
            ]
            for way, taken in together.items()
        ]
        sizes = ", ".join(f"{name} = {n}" for name, n in row["sizes"].items())
        title = f"{row['name']}: {row['einsum']}, {sizes}, float64, {row['kernel']['space']}"
        headings = ["call", "back to back", "±", "of the first", "apart", "more than the first", "1.02 + 15 us"]
        yield title, headings, lines


def _host(rows: Sequence[Row]) -> Iterator[Table]:
    for row in rows:
        raw = row["returned"].get("raw launch")
        lines = []
        for way, one in row["returned"].items():
            share = [f"{one['median_s'] / raw['median_s']:.2f}"] if raw else []
            lines.append([way, _time(one["median_s"]), _time(one["mad_s"]), *share])
        header = ["call", "median", "±", *(["of the raw launch"] if raw else [])]
        yield f"{row['name']}: until the call returns", header, lines


def _copies(rows: Sequence[Row]) -> Iterator[Table]:
    for row in rows:
        lines = [
            [library, _size(taken), _size(row["operands_bytes"]), "yes" if row["says_copied"][library] else "no"]
            for library, taken in row["besides_bytes"].items()
        ]
        yield f"{row['name']}: memory of a call", ["arrays", "besides result", "operands", "explain() says copied"], lines


def _leaks(rows: Sequence[Row]) -> Iterator[Table]:
    lines = [
        [
            row["name"],
            str(row["calls"]),
            _size(row["host_bytes"]),
            _size(row["device_bytes"]),
            "LEAKS" if row["leaks"] else "no",
        ]
        for row in rows
    ]
    yield "Memory kept after many calls", ["call", "calls", "host", "device", "leaks"], lines


def _streams(rows: Sequence[Row]) -> Iterator[Table]:
    lines = [
        [
            row["name"],
            _time(row["returned_s"]) if "returned_s" in row else "",
            _time(row["slept_s"]) if "slept_s" in row else "",
            *(("" if name not in row else "yes" if row[name] else "NO") for name in _CLAIMS),
        ]
        for row in rows
    ]
    headings = ["call", "returns after", "stream busy for", "returns at once", "hinders nobody", "in order"]
    yield "A call on a stream that sleeps", headings, lines


_CLAIMS = ("returns_at_once", "hinders_nobody", "in_order")


def _gradcheck(rows: Sequence[Row]) -> Iterator[Table]:
    lines = [[row["name"], str(row["right"]), str(len(row["wrong"]))] for row in rows]
    yield "gradcheck of feinsum.torch.einsum, float64 and complex128", ["what", "right", "wrong"], lines
    wrong = [[what, why.splitlines()[0]] for row in rows for what, why in row["wrong"].items()]
    if wrong:
        yield "What is wrong", ["einsum", "why"], wrong


def _training(rows: Sequence[Row]) -> Iterator[Table]:
    lines = []
    for row in rows:
        ours, theirs = (row["step"][way]["median_s"] for way in ("feinsum.torch.einsum", "torch.einsum"))
        sizes = " ".join(f"{name}={n}" for name, n in row["sizes"].items())
        lines.append(
            [row["name"], row["einsum"], sizes, _time(ours), _time(theirs), f"{theirs / ours:.2f}", f"{row['error']:.0e}"]
        )
    yield (
        "Training steps, forward and backward of all operands, float32, untuned",
        ["layer", "einsum", "sizes", "feinsum", "torch", "times as quick", "difference"],
        lines,
    )
    pieces = []
    for row in rows:
        for one in row["einsums"]:
            ours, theirs = (one[way]["median_s"] for way in ("feinsum", "torch.einsum"))
            kernels = "; ".join(f"{k['space']} ({k['rung']})" if "space" in k else k["einsum"] for k in one["kernels"])
            pieces.append([row["name"], one["subscripts"], _time(ours), _time(theirs), f"{theirs / ours:.2f}", kernels])
    yield (
        "The einsums of these steps, each alone",
        ["layer", "einsum", "feinsum", "torch", "times as quick", "kernels"],
        pieces,
    )


def _devices(rows: Sequence[Row]) -> Iterator[Table]:
    said = {
        "told apart": lambda row: (
            f"{' and '.join(row['words'])} (CUDA: {' and '.join(row.get('addresses') or row['cuda'])})"
        ),
        "in turns": lambda row: f"{len(row['wrong'])} of 36 results wrong or elsewhere than their operands",
        "a mixture is refused": lambda row: row["message"],
        "a job file": _at_once,
    }
    yield "Two equal GPUs in one process", ["what", "seen"], [[row["name"], said[row["name"]](row)] for row in rows]


def _at_once(row: Row) -> str:
    """What came of a job file on both."""
    times = {word: " to ".join(moment[14:21] for moment in ends) for word, ends in row["from_to"].items()}
    records = ", ".join(f"{count} records of {word} ({times[word]})" for word, count in row["records"].items())
    overlap = "at once" if row["overlap"] else "ONE AFTER THE OTHER"
    return (
        f"{len(row['jobs'])} jobs {overlap}: {records}; {row['records_in_store']} in one store; both busy in"
        f" {row['both_busy_samples']} of {row['samples']} looks"
    )


def print_tables(rows: Sequence[Row]) -> None:
    """All tables, one after the other."""
    for title, headings, lines in tables(rows):
        print(f"\n{title}")
        print_table(headings, lines, left=[*headings[:2], "kernels", "why"])
    for row in rows:
        if "failed" in row:
            print(f"\n{row['group']}:\n{row['failed']}")


def write_page(rows: Sequence[Row], path: str | Path) -> None:
    """The tables as a report."""
    about: dict[str, Any] = rows[0]["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(rows[0]["versions"].items()))
    lines = [
        ".. Generated by ``python -m benchmarks arrays --report``; do not edit.",
        "",
        f"Measured {min(row['date'] for row in rows)[:10]} by ``python -m benchmarks arrays --side {rows[0]['side']}`` on"
        f" {about['name'].strip()} (``{about['device']}``), driver {about['driver']}; host {about['processor']},"
        f" {about['cores']} cores, Python {about['python']}; {versions}.  Load average of the machine"
        f" {min(row['load'] for row in rows):.1f} to {max(row['load'] for row in rows):.1f}.",
        "",
    ]
    for title, headings, table in tables(rows):
        lines += [f".. csv-table:: {title}", "   :header: " + ", ".join(f'"{cell}"' for cell in headings), ""]
        lines += ["   " + ", ".join(f'"{cell}"' for cell in line) for line in table]
        lines.append("")
    Path(path).write_text("\n".join(lines), encoding="utf-8")


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if abs(seconds) < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if abs(count) >= 1e5 else f"{count} B"
