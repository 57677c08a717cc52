"""Sliders and menus for a configuration, by ipywidgets where it is installed; a table elsewhere and in saved notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feinsum.errors import FeinsumError
from feinsum.report.figures import duration, listed
from feinsum.report.html import Markup, chip, display_block, element, table

if TYPE_CHECKING:
    from feinsum.exploration.exploration import Exploration

_SLIDES = 3
"""Numbers from which on there is a slider instead of a menu."""


class Controls:
    """A configuration that is chosen by hand, and its records.

    :ivar exploration: the exploration that it belongs to.
    :ivar configuration: the present choice.
    :ivar widgets: parameter -> its slider or menu; empty without ipywidgets.
    """

    def __init__(self, exploration: Exploration) -> None:
        self.exploration = exploration
        self.configuration: dict[str, Any] = dict(exploration.default)
        self.widgets: dict[str, Any] = {}
        self._box: Any = None
        try:
            import ipywidgets
        except ModuleNotFoundError:  # an extra
            return
        self._build(ipywidgets)

    def choose(self, **changes: Any) -> None:
        """Choose as the widgets do.

        :raises TransformError: if a parameter does not exist.
        """
        wanted = self.exploration.configuration({**self.configuration, **changes})
        for name, widget in self.widgets.items():
            widget.value = wanted[name]  # which sets the configuration, too
        self.configuration = wanted

    def status(self) -> str:
        """Why the present choice is refused, or the best time recorded of it."""
        point = self.exploration.point(self.configuration)
        if point.refusal is not None:
            return f"refused: {point.refusal}"
        recorded = self.exploration.recorded_s(point)
        return "accepted, not measured yet" if recorded is None else f"accepted, {duration(recorded)} in the records"

    def time(self) -> str:
        """Prove and time the present choice in this process; the outcome, in words."""
        try:
            return f"right, {duration(self.exploration.time(self.configuration).median_s)}"
        except FeinsumError as error:
            return f"{type(error).__name__}: {error}"

    def _build(self, w: Any) -> None:
        self.widgets = {name: _widget(w, name, values) for name, values in self.exploration.parameters.items()}
        said, code, button = w.HTML(), w.HTML(), w.Button(description="prove and time")

        def show(_: object = None) -> None:
            self.configuration = {name: widget.value for name, widget in self.widgets.items()}
            said.value = str(element("b", self.status()))
            code.value = self.exploration.point(self.configuration)._repr_html_()

        def measure(_: object) -> None:
            said.value = str(element("b", self.time()))

        for name, widget in self.widgets.items():
            widget.value = self.configuration[name]
            widget.observe(show, "value")
        button.on_click(measure)
        show()
        self._box = w.VBox([*self.widgets.values(), w.HBox([button, said]), code])

    def __str__(self) -> str:
        return f"{self.exploration.space.name}: {listed(self.configuration)}; {self.status()}"

    def _repr_html_(self) -> str:
        rows = (
            [name, Markup("".join(chip(float(_same_value(value, self.configuration[name])), value) for value in values))]
            for name, values in self.exploration.parameters.items()
        )
        choices = table(["parameter", "choices"], rows, text=["parameter", "choices"])
        return display_block(choices, element("p", self.status()), title=self.exploration.space.name)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Mapping[str, Any]:
        """The widgets where the page can show them, and the table for all others."""
        static = {"text/plain": str(self), "text/html": self._repr_html_()}
        return static if self._box is None else {**self._box._repr_mimebundle_(), **static}


def _widget(w: Any, name: str, values: Sequence[Any]) -> Any:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    kind, options = (w.SelectionSlider, sorted(values)) if numbers and len(values) >= _SLIDES else (w.Dropdown, values)
    style = {"description_width": "8em"}
    return kind(options=[(str(value), value) for value in options], description=name, style=style)


def _same_value(a: object, b: object) -> bool:
    return type(a) is type(b) and a == b
