"""A figure of matplotlib that a notebook shows by itself, drawn without pyplot: no window, no global state."""

from __future__ import annotations

import io

from matplotlib.figure import Figure
from PIL import Image  # matplotlib needs it, too

from feinsum.report.plots import DOTS_PER_INCH


class Picture(Figure):
    """A figure on white ground, whatever the page around it."""

    def __init__(self, width: float, height: float) -> None:
        """:param width, height: in inches."""
        super().__init__(figsize=(width, height), layout="constrained", facecolor="white")

    def _repr_png_(self) -> bytes:
        drawn, small = io.BytesIO(), io.BytesIO()
        self.savefig(drawn, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        with Image.open(drawn) as image:  # a palette makes a third of it, which matters in notebooks under version control
            image.convert("RGB").quantize(64).save(small, format="png", optimize=True)
        return small.getvalue()
