"""A figure of matplotlib that a notebook shows by itself, drawn without pyplot: no window, no global state."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

from feinsum.report.plots import DOTS_PER_INCH


class Picture(Figure):
    """A figure on white ground, whatever the page around it."""

    def __init__(self, width: float, height: float) -> None:
        """:param width, height: in inches."""
        super().__init__(figsize=(width, height), layout="constrained", facecolor="white")

    def _repr_png_(self) -> bytes:
        target = io.BytesIO()
        self.savefig(target, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        return target.getvalue()
