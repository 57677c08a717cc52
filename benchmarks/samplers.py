"""How quickly each sampler finds fast configurations of recorded spaces.

    python -m benchmarks samplers                        # the landscapes of tests/landscapes, with and without constraint
    python -m benchmarks samplers mine.json records.jsonl --seeds 40

For every landscape and sampler: the trials needed to come within 5% of the optimum (median over seeds), the quality
(optimum / best found; mean over seeds) after 50, 100, 200 and 400 trials, and the time of the sampler itself.  ``.json``
files hold a landscape in the format of :mod:`feinsum.search.landscape`; ``.jsonl`` files and databases hold tuning records,
which are a landscape for each einsum, device and version of a space.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import ROOT, parser_of
from benchmarks.landscapes import read_records
from feinsum.cli.output import print_table
from feinsum.search.landscape import Landscape, replay
from feinsum.search.sampler import SAMPLERS
from feinsum.space.chain import STEPS

RECORDED = ROOT / "tests" / "landscapes"
BUDGETS = [50, 100, 200, 400]
NEAR = 0.95


def read(path: Path) -> Iterator[Landscape]:
    """The landscapes in a file."""
    if path.suffix == ".json":
        yield Landscape.read(path)
        return
    groups = defaultdict(list)
    for record in read_records(str(path)):
        if record.status != "refused" and STEPS not in record.configuration:  # a chain is no point of a search
            key = (record.einsum_key, tuple(record.sizes.items()), record.device, record.space, record.space_version)
            groups[key].append((record.configuration, record.median_s))
    for (einsum_key, _, device, space, version), results in groups.items():
        yield Landscape.of_results(f"{space} v{version}, {einsum_key}, {device}", results)


def measure(landscape: Landscape, sampler: str, options: argparse.Namespace) -> list[str]:
    """A line of the table."""
    trials = min(max(options.budgets), len(landscape.medians_s))
    seeds = 1 if sampler == "exhaustive" else options.seeds
    started = time.perf_counter()
    runs = [replay(landscape, sampler, trials, seed, options.ahead) for seed in range(seeds)]
    elapsed_ms = 1e3 * (time.perf_counter() - started) / sum(map(len, runs))
    needed = statistics.median(next((n for n, q in enumerate(run, start=1) if q >= NEAR), math.inf) for run in runs)
    qualities = (statistics.mean(run[min(n, len(run)) - 1] for run in runs) for n in options.budgets)
    near = f"> {trials}" if needed == math.inf else f"{needed:.0f}"
    return [sampler, near, *(f"{quality:.3f}" for quality in qualities), f"{elapsed_ms:.2f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each landscape."""
    parser = parser_of(__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="recorded landscapes (.json) or records (.jsonl, databases)")
    parser.add_argument("--seeds", type=int, default=20, help="runs of each sampler")
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS, help="trials after which quality is shown")
    parser.add_argument("--ahead", type=int, default=1, help="configurations asked before the first of them is told")
    options = parser.parse_args(arguments)
    landscapes = [landscape for path in options.paths or sorted(RECORDED.glob("*.json")) for landscape in read(path)]
    if not options.paths:
        landscapes += [landscape.unconstrained() for landscape in landscapes]
    for landscape in landscapes:
        failing = sum(median_s is None for median_s in landscape.medians_s.values())
        print(f"\n{landscape.name}: {len(landscape.medians_s)} configurations, {failing} of them fail")
        lines = [measure(landscape, sampler, options) for sampler in SAMPLERS]
        print_table(["sampler", "to 5%", *map(str, options.budgets), "ms/trial"], lines, left=["sampler"])
