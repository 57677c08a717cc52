"""The wide list is what it says it is, and a part of it runs, goes on and is read again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cases import describe, long_sizes
from benchmarks.cases.lists import CLASSES, wide_cases
from benchmarks.engines.ours import unseen
from benchmarks.report import Table, wide
from benchmarks.rows import read_rows
from feinsum.candidates.records import Inquiry, Question
from feinsum.database.stores import open_stores
from feinsum.registry import matching_spaces
from feinsum.space import Instance
from tests import profiles

ROOT = Path(__file__).parents[1]


def test_the_list_is_whole() -> None:
    """All 48 of TCCG and 60 others, each in two layouts with the same lengths, operations and bytes."""
    given, turned = (wide_cases(layouts=[layout]) for layout in ("given", "turned"))
    assert len({case["name"] for case in given}) == 108
    assert sum(case["name"].startswith("tccg_") for case in given) == 48
    assert set(Counter(case["family"] for case in given)) == set(CLASSES)
    for one, other in zip(given, turned, strict=True):
        assert one["einsum"] != other["einsum"]
        assert sorted(map(sorted, one["einsum"].replace("->", ",").split(","))) == sorted(
            map(sorted, other["einsum"].replace("->", ",").split(","))
        )
        assert [one[side] for side in ("cpu", "gpu")] == [other[side] for side in ("cpu", "gpu")]


def test_parts_of_the_list() -> None:
    """Some of each class, spread over it, and cases by what their names begin with."""
    assert Counter(case["family"] for case in wide_cases(limit=2)) == dict.fromkeys(CLASSES, 4)
    assert [case["name"] for case in wide_cases(["rich"], ["turned"], ["tccg_4", "experts"], 1)] == ["tccg_40.turned"]
    with pytest.raises(ValueError, match=r"no case of benchmarks/cases/wide.csv is called nothing"):
        wide_cases(names=["nothing"])


def test_records_of_the_very_einsum_are_hidden() -> None:
    """Those that come with feinsum for a gradient on the H200 are not seen, those of other orders are."""
    (case,) = wide_cases(["small"], ["given"], ["dg_gradient"], 1)
    e = describe(case, "gpu", "float64", long=True)
    profile = replace(profiles.GPU, id="gpu:nvidia:h200:132cu", driver="580.159.04; OpenCL 3.0 CUDA 13.0.98")
    here = Instance.at(e, long_sizes(case, "gpu"), profile)
    question = Question.of(here, matching_spaces(here.einsum))

    def kinds() -> Counter[str]:
        return Counter(kind for kind, _ in Inquiry(open_stores(None), profile).precedents(question))

    assert kinds()["lengths"]
    with unseen(e):
        assert not kinds()["lengths"]
        assert kinds()["pattern"]
    assert kinds()["lengths"]


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Untuned and tuned results are rows that say so; the same command measures only what is not there yet."""
    out = tmp_path / "wide.jsonl"
    command = f"wide --case sum_middle --layout given --peers numpy --seconds 0.02 --rounds 1 --tune 0.5 --out {out}"

    def run(dtypes: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", *command.split(), "--device", "cpu", "--dtypes", dtypes],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "1 results beside tuned, numpy; 0 are there already" in run("float32")
    assert "1 results beside tuned, numpy; 1 are there already" in run("float32,float64")
    rows = read_rows(out)
    assert [row["dtype"] for row in rows] == ["float32", "float64"]
    assert all(row["tuned"]["status"] == row["engines"]["feinsum"]["status"] == "ok" for row in rows)
    assert all(set(row["engines"]) == {"feinsum", "numpy"} for row in rows)
    assert all(row["engines"]["feinsum"]["rung"] != "exact" for row in rows)
    [means, _] = [part for part in wide(rows) if isinstance(part, Table)]
    assert [line[:3] for line in means.lines] == [
        ["streams", kind, n] for kind, n in zip(("float64", "float32", "both"), "112", strict=True)
    ]
    assert json.loads(out.read_text().splitlines()[0])["layout"] == "given"
