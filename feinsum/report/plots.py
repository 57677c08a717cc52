"""Plots of a tuning run, by matplotlib, each as a figure of its own: nothing is shown and no global state is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from feinsum.errors import FeinsumError
from feinsum.report.insight import influences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy import dtype

    from feinsum.database import TuningRecord
    from feinsum.devices import Peaks

_SIZE = (5.0, 3.2)
"""Inches."""
_SHOWN = 12
"""Parameters of the plot of importance."""


class PlotError(FeinsumError, RuntimeError):
    """A plot that cannot be drawn."""


def convergence(records: Sequence[TuningRecord]) -> Figure:
    """The time of every trial in order, and of the best so far."""

    def draw(axes: Axes) -> None:
        times = [(k, 1e3 * r.median_s) for k, r in enumerate(records, 1) if r.median_s is not None]
        failed = [k for k, r in enumerate(records, 1) if r.median_s is None]
        if times:
            numbers, milliseconds = zip(*times, strict=True)
            axes.plot(numbers, milliseconds, ".", color="tab:gray", label="trial")
            axes.step(numbers, list(accumulate(milliseconds, min)), where="post", color="tab:blue", label="best so far")
            axes.set_yscale("log")
        axes.plot(failed, [0.02] * len(failed), "x", color="tab:red", transform=axes.get_xaxis_transform(), label="failed")
        axes.set(xlabel="trial", ylabel="time (ms)", title="convergence")
        axes.legend()

    return _figure(draw)


def distribution(records: Sequence[TuningRecord]) -> Figure:
    """How many configurations are how many times slower than the best."""

    def draw(axes: Axes) -> None:
        times = sorted(r.median_s for r in records if r.median_s is not None)
        if times:
            slowdowns = [t / times[0] for t in times]
            axes.step(slowdowns, [(k + 1) / len(times) for k in range(len(times))], where="post")
            axes.set_xscale("log")
        axes.set(xlabel="time / best time", ylabel="share of configurations", title="distribution", ylim=(0, 1.02))

    return _figure(draw)


def importance(records: Sequence[TuningRecord]) -> Figure:
    """The share of the variance of log time that each parameter explains."""
    shares = [
        (f"{space}: {name}" if several else name, share)
        for found in [influences(records)]
        for several in [len(found) > 1]
        for space, influence in found.items()
        for name, share in influence.shares.items()
    ]

    def draw(axes: Axes) -> None:
        largest = sorted(shares, key=lambda item: item[1])[-_SHOWN:]
        axes.barh([name for name, _ in largest], [share for _, share in largest])
        if not largest:
            axes.text(0.5, 0.5, "too few records", ha="center", transform=axes.transAxes)
        axes.set(xlabel="share of the variance of log time", title="importance", xlim=(0, 1))

    return _figure(draw)


def roofline(records: Sequence[TuningRecord], peaks: Peaks, type_: dtype) -> Figure:
    """Operations a second over operations a byte: every trial, below what the device can do."""
    good = [r for r in records if r.median_s is not None and r.flops and r.bytes]
    bandwidth, rate = peaks.copy_bytes_per_s, peaks.flops_per_s(type_)

    def draw(axes: Axes) -> None:
        ridge = rate / bandwidth
        ends = [min([ridge, *(r.flops / r.bytes for r in good)]) / 8, max([ridge, *(r.flops / r.bytes for r in good)]) * 8]
        corners = [ends[0], ridge, ends[1]]
        axes.plot(corners, [min(rate, x * bandwidth) / 1e9 for x in corners], color="black", label="roofline")
        axes.plot(
            [r.flops / r.bytes for r in good],
            [r.flops / (r.median_s or 1.0) / 1e9 for r in good],
            ".",
            color="tab:blue",
            label="trials",
        )
        axes.set(xlabel="operations / byte", ylabel="GFLOP/s", title=f"roofline, {type_.name}", xscale="log", yscale="log")
        axes.legend()

    return _figure(draw)


def _figure(draw: Callable[[Axes], None]) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise PlotError("plots need matplotlib, which is not here: pip install 'feinsum[report]'") from None
    figure = Figure(figsize=_SIZE, layout="constrained")
    draw(figure.subplots())
    return figure
