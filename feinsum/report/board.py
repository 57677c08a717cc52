"""The page of a tuning run: one file that needs nothing else, with every configuration to point at.

The run is in the page as JSON, drawn by ``board.js``: parallel coordinates, in which a line is a configuration, a table,
and a second run beside the first, from another page of this kind.  Where no script may run, the table above it holds the
figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feinsum.errors import FeinsumError
from feinsum.report.html import Markup, element

if TYPE_CHECKING:
    from feinsum.database import TuningRecord

_RUN = re.compile(r'<script type="application/json" id="feinsum-run">(.*?)</script>', re.DOTALL)
_FORMAT = "feinsum run 1"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_STYLE = """\
body {font-family: sans-serif; margin: 1.5em auto; max-width: 76em; padding: 0 1em}
#board svg {width: 100%; height: auto; display: block; user-select: none}
#board svg text {fill: CanvasText; font-size: 12px; paint-order: stroke; stroke: Canvas; stroke-width: 3px}
#board svg .axis {stroke: currentColor; stroke-opacity: .5}
#board svg .choice {cursor: pointer} #board svg .chosen {font-weight: bold; text-decoration: underline}
#board svg .line {fill: none; stroke-width: 1.6; stroke-opacity: .55; cursor: pointer}
#board svg .line.other {stroke-dasharray: 5 3}
#board svg .line.faint {stroke-opacity: .06}
#board svg .line.lit {stroke: #e0701a !important; stroke-width: 4; stroke-opacity: 1}
#board .said {border: 1px solid #8888; padding: .5em .8em; min-height: 6em; margin: .5em 0; white-space: pre-wrap}
#board .said, #board td, #board code {font-family: monospace}
#board .scroll {overflow: auto; max-height: 26em}
#board table {border-collapse: collapse}
#board td, #board th {padding: .1em .7em; text-align: right; white-space: nowrap; vertical-align: baseline}
#board td.text, #board th.text {text-align: left} #board td.text:last-child {white-space: normal}
#board tr.lit {background: #e0701a55} #board tbody tr {cursor: pointer}
#board .controls > * {margin-right: 1.2em}
"""


def run_data(
    title: str,
    facts: Mapping[str, str],
    records: list[TuningRecord],
    best: TuningRecord | None,
    shown: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """A run as plain data.

    :param facts: facts about the run, by name.
    :param shown: the configuration of each record in the user's letters, by its id.
    """
    return {
        "format": _FORMAT,
        "title": title,
        "facts": dict(facts),
        "best": None if best is None else best.id,
        "records": [
            {
                "id": r.id,
                "space": f"{r.space}@{r.space_version}",
                "configuration": {name: str(value) for name, value in shown[r.id].items()},
                "given": dict(r.configuration),
                "status": r.status,
                "median_s": r.median_s,
                "spread_s": r.spread_s,
                "flops": r.flops,
                "bytes": r.bytes,
                "message": r.message,
                "created": r.created,
            }
            for r in records
        ],
    }


def board_page(title: str, run: Mapping[str, Any], other: Mapping[str, Any] | None, content: str) -> str:
    """A whole page.

    :param other: the run to begin the comparison with, if any.
    :param content: html that is there without a script, too.
    """
    script = files("feinsum.report").joinpath("board.js").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{content}{element('h3', 'every configuration')}"
        f'<div id="board"></div>{_embedded("feinsum-run", run)}{_embedded("feinsum-other", other)}'
        f"<script>{script}</script></body></html>\n"
    )


def _embedded(name: str, data: object) -> Markup:
    """JSON within a page; no text of it ends the element."""
    text = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="{name}">{text}</script>')


def read_run(path: str) -> dict[str, Any]:
    """The run in a page that was written before.

    :raises FeinsumError: if it cannot be read, or holds none.
    """
    try:
        found = _RUN.search(Path(path).read_text(encoding="utf-8"))
        data = json.loads(found[1]) if found else None
    except OSError as error:
        raise FeinsumError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        data = None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise FeinsumError(f"{path} is no page of a tuning run; `feinsum tune --html` writes one")
    return data
