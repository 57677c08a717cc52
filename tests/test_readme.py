"""The README: its example gives what it shows, and what it links to and tells readers to type is there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from benchmarks.rows import fraction, geometric_mean, read_rows, speed_up

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDERS = {"NVIDIA H100": "h100", "NVIDIA H200": "h200", "AMD Zen 5, 2 cores": "zen5"}


def test_the_example_gives_what_it_shows() -> None:
    """In ten lines or so, so that it is read."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    example = doctest.DocTestParser().get_doctest(block, {}, "README.md", "README.md", 0)
    assert 5 <= len(block.splitlines()) <= 15
    assert doctest.DocTestRunner().run(example).failed == 0
    assert any(part.want for part in example.examples)


def test_the_results_are_those_of_the_reports() -> None:
    """The table has the geometric means of the rows that were measured last."""
    line = r"^\| (.*?) \| (tuned|untuned, short list|untuned).*? \| (\d+) \| .*\*\*([\d.]+)\*\* \| ([\d.]+) \|$"
    lines = re.findall(line, README, re.MULTILINE)
    assert len(lines) == 5
    for device, how, count, times, roofline in lines:
        report = "wide" if how == "untuned" else "suite"
        rows = read_rows(ROOT / "benchmarks" / "results" / FOLDERS[device] / f"{report}.jsonl")
        measured = (f"{geometric_mean(map(speed_up, rows)):.1f}", f"{geometric_mean(map(fraction, rows)):.2f}")
        assert (count, times, roofline) == (str(len(rows)), *measured)


def test_what_is_linked_to_is_there() -> None:
    """Links are relative, as those of GitHub and of a checkout are."""
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) > 5
    assert [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()] == []


def test_targets_of_make_are_there() -> None:
    """What readers are told to type, ``make demo`` and so on."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\$ make (\w+)", README, re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_the_first_page_is_short() -> None:
    """What takes longer to say is a page of doc/."""
    assert len(README.encode()) <= 6000
