"""Samplers on recorded landscapes, which need no device: see `python -m benchmarks samplers` for the whole table."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from records import make_record

from benchmarks import samplers
from feinsum.errors import SearchError
from feinsum.search import SAMPLERS
from feinsum.search.landscape import Landscape, replay

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
RECORDED = [Landscape.read(path) for path in sorted((HERE / "landscapes").glob("*.json"))]
RESULTS: list[tuple[dict[str, Any], float | None]] = [
    ({"tile": 16, "order": "ij"}, 2e-3),
    ({"tile": 16, "order": "ji"}, None),
    ({"tile": 32, "order": "ij"}, 1e-3),
]


@pytest.mark.parametrize("landscape", RECORDED, ids=lambda landscape: landscape.name)
def test_the_default_comes_within_five_percent_in_fewer_trials_than_random_search(landscape: Landscape) -> None:
    """Median over seeds: when the default has arrived, random search mostly has not."""

    def qualities(sampler: str | None, trials: int) -> list[float]:
        return [replay(landscape, sampler, trials, seed)[-1] for seed in range(15)]

    runs = [replay(landscape, None, 120, seed) for seed in range(15)]
    needed = statistics.median(next((n for n, q in enumerate(run, 1) if q >= 0.95), 1000) for run in runs)
    assert needed <= 100
    assert statistics.median(qualities("random", int(needed))) < 0.95


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_replay_to_the_end_finds_the_optimum(sampler: str) -> None:
    """Quality never falls, begins at 0 if the first one fails, and ends at 1 when all was tried."""
    landscape = Landscape.of_results("small", RESULTS)
    run = replay(landscape, sampler, 10, seed=0)
    assert len(run) == 3
    assert run == sorted(run)
    assert run[-1] == 1


def test_a_replay_ahead_of_the_answers_tries_as_many() -> None:
    """Asking eight before the first is told wastes no trial."""
    assert len(replay(RECORDED[0], "parzen", 100, seed=0, ahead=8)) == 100


def test_results_become_a_landscape() -> None:
    """What was not recorded is refused; of repeated records the fastest counts."""
    landscape = Landscape.of_results("small", [*RESULTS, ({"tile": 32, "order": "ij"}, 5e-3), (RESULTS[1][0], None)])
    assert landscape.parameters == {"tile": (16, 32), "order": ("ij", "ji")}
    assert list(landscape.results()) == RESULTS
    assert landscape.best_s == 1e-3
    assert landscape.refusal({"tile": 16, "order": "ji"}) is None
    assert landscape.refusal({"tile": 32, "order": "ji"}) == "it was not recorded"


def test_without_its_constraint_a_landscape_fails_where_it_refused() -> None:
    """The same times in a space that knows less of itself."""
    free = Landscape.of_results("small", RESULTS).unconstrained()
    assert list(free.results()) == [*RESULTS, ({"tile": 32, "order": "ji"}, None)]


def test_a_landscape_survives_its_file(tmp_path: Path) -> None:
    """Times are kept to four digits, everything else as it is."""
    landscape = Landscape.of_results("small", RESULTS, {"device": "none"})
    landscape.write(tmp_path / "small.json")
    read = Landscape.read(tmp_path / "small.json")
    assert list(read.results()) == RESULTS
    assert (read.name, read.about) == ("small", {"device": "none"})


@pytest.mark.parametrize("landscape", RECORDED, ids=lambda landscape: landscape.name)
def test_recorded_landscapes_are_small_files_of_many_configurations(landscape: Landscape, tmp_path: Path) -> None:
    """They are written by the program that reads them, and large enough to tell samplers apart."""
    assert len(landscape.medians_s) > 1000
    landscape.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() in {path.read_text() for path in (HERE / "landscapes").glob("*.json")}
    assert (tmp_path / "again.json").stat().st_size < 200_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"medians_us": [[0, 1.0], [4, 1.0]]}, "no configuration 4, only 4"),
        ({"medians_us": [[0, -1.0]]}, "cannot take -1e-06 seconds"),
        ({"medians_us": [[0, None]]}, "no configuration that worked"),
        ({"medians_us": [[0]]}, "not enough values"),
        ({"medians_us": 3}, "'int' object"),
        ({"parameters": [1]}, "no recorded landscape"),
    ],
)
def test_a_malformed_file_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """A landscape is checked where it enters; the error names the file and what is wrong in it."""
    items = {"name": "x", "about": {}, "parameters": {"a": [1, 2], "b": [1, 2]}, "medians_us": [[0, 1.0]]}
    (tmp_path / "x.json").write_text(json.dumps(items | change))
    with pytest.raises(SearchError, match=message) as caught:
        Landscape.read(tmp_path / "x.json")
    assert "x.json" in str(caught.value)


def test_records_of_different_spaces_are_no_landscape() -> None:
    """Two versions of a space may differ in their parameters."""
    with pytest.raises(SearchError, match=r"\['order', 'tile'\] in one record, \['tile'\] in another"):
        Landscape.of_results("mixed", [*RESULTS, ({"tile": 16}, 1.0)])


def test_the_benchmark_compares_every_sampler_on_any_recorded_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Landscapes and tuning records are read alike; records of two devices are two landscapes."""
    Landscape.of_results("small", RESULTS).write(tmp_path / "small.json")
    records = [
        make_record(device=device, configuration={"tile": 2**k, "hoist": hoist}, median_s=1e-3 * (k + 2 + hoist))
        for device in ("amd-epyc (intel)", "nvidia-h200 (nvidia)")
        for k in range(4)
        for hoist in (False, True)
    ]
    refused = make_record(configuration={"tile": 64, "hoist": True}, status="refused", samples_s=())
    (tmp_path / "records.jsonl").write_text("".join(f"{record.to_json()}\n" for record in [*records, refused]))
    samplers.main([str(tmp_path / "small.json"), str(tmp_path / "records.jsonl"), "--seeds", "2"])
    out = capsys.readouterr().out
    assert "small: 3 configurations, 1 of them fail" in out
    assert out.count("8 configurations, 0 of them fail") == 2
    for sampler in SAMPLERS:
        lines = [line.split() for line in out.splitlines() if line.startswith(sampler)]
        assert [line[2:6] for line in lines] == [["1.000"] * 4] * 3
