"""Progress in a notebook: a bar and a line of text that are replaced as the work goes on, and that stay at the end."""

from __future__ import annotations

import sys
import time
from typing import Any

from feinsum.report.html import bar, display_block

_PAUSE_S = 0.25
"""Between two updates, so that a page is not flooded."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows html."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class LiveBar:
    """A bar in the output of the present cell; nothing outside of notebooks."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._latest: tuple[float, str] | None = None
        self._updated_s = 0.0

    def update(self, share: float, text: str) -> None:
        """Show how much is done and what to say of it, unless the page was updated a moment ago."""
        self._latest = share, text
        if in_notebook() and time.monotonic() >= self._updated_s + _PAUSE_S:
            self._show(share, text)

    def finish(self) -> None:
        """Show the last word, whenever it was said."""
        if in_notebook() and self._latest is not None:
            self._show(*self._latest)

    def _show(self, share: float, text: str) -> None:
        from IPython.display import display

        self._updated_s = time.monotonic()
        shown = {"text/plain": text, "text/html": display_block(bar(share, text))}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
