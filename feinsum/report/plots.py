"""Plots of tuning runs and of rooflines, by matplotlib: each a figure of its own, readable in grey, with units.

The functions show nothing and touch no global state; series differ in the shape of their marks, and then in colour.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from feinsum._checkout import how_to_install
from feinsum.errors import FeinsumError
from feinsum.report.figures import bandwidth, rate
from feinsum.report.insight import influences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy import dtype

    from feinsum.database import TuningRecord
    from feinsum.devices import Peaks
    from feinsum.report.census import Census
    from feinsum.report.picture import Picture

Point = tuple[float, float]
"""Operations a byte, and operations a second."""

SUFFIXES = (".png", ".svg", ".pdf")
"""The suffixes of the files that pictures are written to."""
DOTS_PER_INCH = 100
"""The resolution of PNG pictures."""
_SIZE = (5.2, 3.4)
"""Inches."""
_SHOWN = 12
"""Parameters of the plot of importance."""
_OURS = "#08519c"
_LOOKS = (("s", "#d95f02"), ("^", "#1b9e77"), ("D", "#7570b3"), ("v", "#a6761d"), ("P", "#666666"), ("X", "#e7298a"))
"""Mark and colour of the peers, in turn."""


class PlotError(FeinsumError, RuntimeError):
    """A plot that cannot be drawn."""


@dataclass(frozen=True)
class Rooflines:
    """One plot of rates below a roof.

    :ivar title: the heading.
    :ivar series: the series: ours first, then the others; each a list of points.
    :ivar flops_per_s: the flat roof.
    :ivar bytes_per_s: the slanted one.
    """

    title: str
    series: Mapping[str, Sequence[Point]]
    flops_per_s: float
    bytes_per_s: float


def rooflines(*plots: Rooflines) -> Picture:
    """Operations a second over operations a byte, below the roofline of the device; several plots stand side by side."""
    crowded = any(len(plot.series) > 1 for plot in plots)
    made = _picture(1.5 * crowded + _SIZE[0] * len(plots), 4.0 if crowded else _SIZE[1])
    for axes, plot in zip(made.subplots(1, len(plots), squeeze=False)[0], plots, strict=True):
        _draw_roofline(axes, plot)
    handles = {text: handle for axes in made.axes for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    if crowded:
        made.legend(handles.values(), handles, loc="outside right upper", fontsize="small")
    else:
        made.axes[0].legend(loc="lower right", fontsize="small")
    return made


def roofline(records: Sequence[TuningRecord], peaks: Peaks, type_: dtype) -> Picture:
    """Every right trial, below the roofline of the device for a type."""
    points = [(r.flops / max(r.bytes, 1), r.flops / r.median_s) for r in records if r.median_s and r.flops]
    plot = Rooflines(f"roofline, {type_.name}", {"trials": points}, peaks.flops_per_s(type_), peaks.copy_bytes_per_s)
    return rooflines(plot)


def convergence(records: Sequence[TuningRecord]) -> Picture:
    """The time of every trial in order, and of the best so far."""

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        times = [(k, 1e3 * r.median_s) for k, r in enumerate(records, 1) if r.median_s is not None]
        failed = [k for k, r in enumerate(records, 1) if r.median_s is None]
        if times:
            numbers, milliseconds = zip(*times, strict=True)
            axes.plot(numbers, milliseconds, "o", ms=4, mfc="none", color="#777777", label="trial")
            axes.step(numbers, list(accumulate(milliseconds, min)), where="post", color=_OURS, lw=2, label="best so far")
            _log_axis(axes, "y", milliseconds)
        if failed:
            at_the_foot = axes.get_xaxis_transform()
            axes.plot(failed, [0.03] * len(failed), "x", ms=5, color="#b30000", transform=at_the_foot, label="failed")
        axes.set(xlabel="trial", ylabel="time (ms)", title="convergence")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if records:
            axes.legend(fontsize="small")
        if not times:
            _write_words(axes, "nothing was right")

    return _single(draw)


def distribution(records: Sequence[TuningRecord]) -> Picture:
    """The share of the configurations that take at most a multiple of the time of the best."""

    def draw(axes: Axes) -> None:
        times = sorted(r.median_s for r in records if r.median_s is not None)
        if times:
            slowdowns = [t / times[0] for t in times]
            axes.step(slowdowns, [(k + 1) / len(times) for k in range(len(times))], where="post", color=_OURS)
            axes.plot(slowdowns, [0.02] * len(times), "|", color="#777777", transform=axes.get_xaxis_transform())
            _log_axis(axes, "x", slowdowns)
        else:
            _write_words(axes, "nothing was right")
        axes.set(xlabel="time / best time", ylabel="share of configurations", title="distribution", ylim=(0, 1.02))
        axes.yaxis.set_major_formatter(_percent())
        axes.grid(alpha=0.3)

    return _single(draw)


def importance(records: Sequence[TuningRecord]) -> Picture:
    """The share of the variance of log time that each parameter explains."""
    found = influences(records)
    shares = [
        (f"{space}: {name}" if len(found) > 1 else name, share)
        for space, influence in found.items()
        for name, share in influence.shares.items()
    ]
    largest = sorted(shares, key=lambda item: item[1])[-_SHOWN:]
    widest = max((share for _, share in largest), default=0.0)

    def draw(axes: Axes) -> None:
        bars = axes.barh([name for name, _ in largest], [share for _, share in largest], color=_OURS)
        axes.bar_label(bars, [f"{share:.0%}" for _, share in largest], padding=3, fontsize="small")
        if not largest:
            _write_words(axes, "too few records")
        axes.set(xlabel="share of the variance of log time", title="importance", xlim=(0, max(1.1, 1.15 * widest)))
        axes.xaxis.set_major_formatter(_percent())

    return _single(draw, height=max(_SIZE[1], 0.8 + 0.25 * len(largest)))


def speedups(times: Mapping[str, float], title: str = "", peer: str = "the best peer") -> Picture:
    """Bars of how many times as fast as a peer each case is, the fastest at the top, on an axis where 2 and 1/2 are alike.

    :param times: case -> time of the peer / our time.
    """
    cases = sorted(times, key=lambda case: times[case])

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        values = [times[case] for case in cases]
        bars = axes.barh(cases, [value - 1 for value in values], left=1, color=_OURS, edgecolor="black")
        for drawn, value in zip(bars, values, strict=True):
            if value < 1:
                drawn.set(facecolor="white", hatch="////")
        axes.set_xscale("log")
        axes.set_xlim(min(0.5, 0.7 * min(values, default=1)), max(2.0, 1.6 * max(values, default=1)))
        axes.xaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}×"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        for k, value in enumerate(values):
            axes.annotate(f"{value:.2g}", (max(value, 1), k), (3, 0), textcoords="offset points", va="center", fontsize=8)
        axes.axvline(1, color="black", lw=1)
        axes.set(xlabel=f"times as fast as {peer}", title=title)
        axes.tick_params(axis="y", labelsize="small")

    return _single(draw, width=7.0, height=1.0 + 0.24 * max(len(cases), 3))


def survivors(census: Census, title: str = "") -> Picture:
    """Every parameter with its choices, each a box filled by the share of its combinations that the constraint accepts."""

    def draw(axes: Axes) -> None:
        widest = max((len(values) for values in census.choices.values()), default=1)
        for row, values in enumerate(census.choices.values()):
            for column, (value, seen, passed) in enumerate(values):
                share = passed / max(seen, 1)
                axes.bar(column, 0.8 * share, 0.9, row + 0.9 - 0.8 * share, color="#9ecae1", align="edge")
                axes.bar(column, 0.8, 0.9, row + 0.1, fill=False, edgecolor="#555555", lw=0.8, align="edge")
                text = f"{value}\n{share:.0%}" if share < 1 else str(value)
                axes.text(column + 0.45, row + 0.5, text, ha="center", va="center", fontsize=7)
        axes.set(xlim=(-0.1, widest), ylim=(len(census.choices), 0), xticks=[], title=title or str(census))
        axes.set_yticks([k + 0.5 for k in range(len(census.choices))], list(census.choices))
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("choices, best guess first; filled: the share accepted")

    columns = max((len(values) for values in census.choices.values()), default=1)
    return _single(draw, width=max(_SIZE[0], 1.6 + 0.75 * columns), height=1.1 + 0.45 * len(census.choices))


def choices(records: Sequence[TuningRecord]) -> Picture:
    """For the parameters that matter most: the time of every configuration, by the choice it made."""
    found = influences(records)
    chosen = [(space, name) for space, influence in found.items() for name in influence.shares][:4]
    made = _picture(2.6 * max(len(chosen), 1), 3.0)
    every = made.subplots(1, max(len(chosen), 1), sharey=True, squeeze=False)[0]
    for axes, (space, name) in zip(every, chosen, strict=False):
        points: dict[str, list[float]] = {}
        for r in sorted(records, key=lambda r: _value_rank(r.configuration.get(name))):
            if r.median_s is not None and f"{r.space}@{r.space_version}" == space and name in r.configuration:
                points.setdefault(str(r.configuration[name]), []).append(1e3 * r.median_s)
        for k, times in enumerate(points.values()):
            axes.plot([k] * len(times), times, "o", ms=4, mfc="none", color="#777777")
            axes.plot([k - 0.3, k + 0.3], [min(times)] * 2, color=_OURS, lw=2)
        axes.set_xticks(range(len(points)), list(points), fontsize="small")
        axes.set_xlabel(name if len(found) == 1 else f"{space}: {name}")
        axes.margins(x=0.2)
    if chosen:
        _log_axis(every[0], "y", [1e3 * r.median_s for r in records if r.median_s is not None])
        every[0].set_ylabel("time (ms)")
    else:
        _write_words(every[0], "too few records")
    return made


def save_picture(picture: Picture, path: str | os.PathLike[str]) -> None:
    """Write a picture to a file, in the format that its name ends with: png, svg or pdf.

    :raises PlotError: if there is no such format, or the file cannot be written.
    """
    suffix = os.path.splitext(path)[1]
    if suffix not in SUFFIXES:
        raise PlotError(f"{os.fspath(path)!r} ends in {suffix!r}; a picture is {', '.join(SUFFIXES)}")
    try:
        picture.savefig(path, dpi=1.5 * DOTS_PER_INCH)
    except OSError as error:
        raise PlotError(f"cannot write {os.fspath(path)}: {error.strerror}") from None


def _draw_roofline(axes: Axes, plot: Rooflines) -> None:
    ridge = plot.flops_per_s / plot.bytes_per_s
    intensities = [x for points in plot.series.values() for x, _ in points]
    left, right = min([ridge, *intensities]) / 4, max([ridge, *intensities]) * 4
    roof = [min(plot.flops_per_s, x * plot.bytes_per_s) / 1e9 for x in (left, ridge, right)]
    axes.loglog([left, ridge, right], roof, color="black", label="measured roof")
    for k, (name, points) in enumerate(plot.series.items()):
        mark, colour = ("o", _OURS) if k == 0 else _LOOKS[(k - 1) % len(_LOOKS)]
        at, rates = [x for x, _ in points], [y / 1e9 for _, y in points]
        look: dict[str, Any] = {"ms": 7, "mew": 0.5, "mec": "white"} if k == 0 else {"ms": 5, "mfc": "none"}
        axes.plot(at, rates, mark, ls="", color=colour, label=name, zorder=9 - k, **look)
    axes.annotate(rate(plot.flops_per_s), (right, roof[2]), (0, 4), textcoords="offset points", ha="right", fontsize=8)
    axes.annotate(bandwidth(plot.bytes_per_s), (left, roof[0]), (6, -6), textcoords="offset points", va="top", fontsize=8)
    axes.set(xlabel="operations / byte", ylabel="GFLOP/s", title=plot.title)
    rates = [*roof, *(y / 1e9 for points in plot.series.values() for _, y in points)]
    axes.set_ylim(min(rates) / 1.5, 2 * max(rates))
    _log_axis(axes, "x", [left, right])
    _log_axis(axes, "y", rates)
    axes.grid(alpha=0.3)


def _write_words(axes: Axes, text: str) -> None:
    """Words in place of a plot."""
    axes.text(0.5, 0.5, text, ha="center", transform=axes.transAxes)
    axes.set(xticks=[], yticks=[])


def _log_axis(axes: Axes, which: str, values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers, as many as its span needs: matplotlib's own may have none at all."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    span = max(values) / min(values) if values else 1.0
    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(MaxNLocator(6) if span < 6 else LogLocator(10, (1, 2, 5) if span < 200 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
    axis.set_minor_locator(NullLocator() if span < 200 else LogLocator(10, range(2, 10)))
    axis.set_minor_formatter(NullFormatter())


def _value_rank(value: Any) -> tuple[bool, Any]:
    """Numbers by size, then words."""
    return (isinstance(value, str), value if value is not None else 0)


def _percent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0, 0)


def _single(draw: Callable[[Axes], None], width: float = _SIZE[0], height: float = _SIZE[1]) -> Picture:
    made = _picture(width, height)
    draw(made.subplots())
    return made


def _picture(width: float, height: float) -> Picture:
    try:
        from feinsum.report.picture import Picture
    except ModuleNotFoundError:
        raise PlotError(f"plots need matplotlib, which is not here: {how_to_install('report')}") from None
    return Picture(width, height)
