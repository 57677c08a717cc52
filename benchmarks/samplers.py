"""How quickly each sampler finds fast configurations of recorded spaces.

    python -m benchmarks samplers                        # the landscapes of tests/landscapes and three synthetic ones
    python -m benchmarks samplers mine.json records.jsonl --seeds 40
    python -m benchmarks samplers --large --budgets 400 1000 3000 --seeds 3

For every landscape and sampler: the trials needed to come within 5% of the optimum (median over seeds), the quality
(optimum / best found; mean over seeds) after 50, 100, 200 and 400 trials, and the time of the sampler itself.  ``.json``
files hold a landscape in the format of :mod:`feinsum.search.landscape`; ``.jsonl`` files hold tuning records, which are
a landscape for each einsum, device and version of a space.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import parser_of
from feinsum.search.landscape import Landscape, replay
from feinsum.search.sampler import SAMPLERS

RECORDED = Path(__file__).parent.parent / "tests" / "landscapes"
BUDGETS = [50, 100, 200, 400]
SHAPES = {"pairs": (8, 6, 5, 4, 3, 2), "switch": (7, 6, 5, 5, 2, 2), "roofline": (6, 6, 5, 5, 4, 2)}
LARGE = dict.fromkeys(SHAPES, (8, 8, 6, 6, 5, 4, 3, 2))
NEAR = 0.95


def synthetic(shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> Iterator[Landscape]:
    """Spaces in which parameters interact and a third of the configurations fails, for want of enough recorded ones.

    log t = sum of main effects + sum of effects of pairs; in the second one parameter switches between two such sums,
    in the third t is the larger of two, as arithmetic and traffic overlap.
    """
    for seed, (name, shape) in enumerate(shapes.items()):
        rng = np.random.default_rng(seed)
        log_t = _pairs(shape, rng)
        if name == "switch":
            log_t[..., 0] = _pairs(shape, rng)[..., 0]
        elif name == "roofline":
            log_t = np.maximum(log_t, _pairs(shape, rng))
        demand = _pairs(shape, rng)
        fails = demand > np.quantile(demand, 2 / 3)
        medians_s = {
            rank: None if failed else float(1e-3 * np.exp(value))
            for rank, (value, failed) in enumerate(zip(log_t.ravel(), fails.ravel(), strict=True))
        }
        parameters = {f"p{k}": tuple(range(length)) for k, length in enumerate(shape)}
        yield Landscape(f"synthetic, {name}", parameters, medians_s)


def _pairs(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """A sum of random effects of each parameter and of each pair of parameters."""
    total = np.zeros(shape)
    for p in range(len(shape)):
        for q in range(p, len(shape)):
            axes = [shape[k] if k in (p, q) else 1 for k in range(len(shape))]
            total += rng.normal(scale=0.35 if p == q else 0.2, size=axes)
    return total


def read(path: Path) -> Iterator[Landscape]:
    """The landscapes in a file."""
    if path.suffix != ".jsonl":
        yield Landscape.read(path)
        return
    from feinsum.database.record import TuningRecord
    from feinsum.space.chain import STEPS

    groups = defaultdict(list)
    for line in path.read_bytes().splitlines():
        record = TuningRecord.from_json(line)
        if record.status != "refused" and STEPS not in record.configuration:  # a chain is no point of a search
            key = (record.einsum_key, tuple(record.sizes.items()), record.device, record.space, record.space_version)
            groups[key].append((record.configuration, record.median_s))
    for (einsum_key, _, device, space, version), results in groups.items():
        yield Landscape.of_results(f"{space} v{version}, {einsum_key}, {device}", results)


def measure(landscape: Landscape, sampler: str, seeds: int, budgets: list[int], ahead: int) -> str:
    """A line of the table."""
    trials = min(max(budgets), len(landscape.medians_s))
    started = time.perf_counter()
    runs = [replay(landscape, sampler, trials, seed, ahead) for seed in range(seeds)]
    elapsed_ms = 1e3 * (time.perf_counter() - started) / sum(map(len, runs))
    needed = [next((n for n, quality in enumerate(run, start=1) if quality >= NEAR), np.inf) for run in runs]
    median = statistics.median(needed)
    near = f"> {trials}" if median == np.inf else f"{median:.0f}"
    qualities = "".join(f"{statistics.mean(run[min(n, len(run)) - 1] for run in runs):7.3f}" for n in budgets)
    return f"{sampler:12s}{near:>8s}{qualities}{elapsed_ms:9.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each landscape."""
    parser = parser_of(__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="recorded landscapes (.json) or tuning records (.jsonl)")
    parser.add_argument("--seeds", type=int, default=20, help="runs of each sampler")
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS, help="trials after which quality is shown")
    parser.add_argument("--ahead", type=int, default=1, help="configurations asked before the first of them is told")
    parser.add_argument("--large", action="store_true", help="only synthetic spaces of 276480 configurations")
    options = parser.parse_args(arguments)
    landscapes = [landscape for path in options.paths or sorted(RECORDED.glob("*.json")) for landscape in read(path)]
    if options.large:
        landscapes = list(synthetic(LARGE))
    elif not options.paths:
        landscapes += [*(landscape.unconstrained() for landscape in landscapes), *synthetic()]
    for landscape in landscapes:
        failing = sum(median_s is None for median_s in landscape.medians_s.values())
        print(f"\n{landscape.name}: {len(landscape.medians_s)} configurations, {failing} of them fail")
        print(f"{'':12s}{'to 5%':>8s}" + "".join(f"{n:7d}" for n in options.budgets) + f"{'ms/trial':>9s}")
        for sampler in SAMPLERS:
            seeds = 1 if sampler == "exhaustive" else options.seeds
            print(measure(landscape, sampler, seeds, options.budgets, options.ahead), flush=True)
