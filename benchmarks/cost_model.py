"""Train the cost model and measure how well it chooses: ``python -m benchmarks cost-model [RECORDS ...]``.

    python -m benchmarks cost-model                                  # from benchmarks/landscapes; a quarter of an hour
    python -m benchmarks cost-model night.sqlite gpu.jsonl           # these records too, which are kept
    python -m benchmarks cost-model --rows benchmarks/results/cost-model.jsonl --page benchmarks/results/cost-model.rst
    python -m benchmarks selection                                   # what a few candidates gain; trains, writes nothing

*first pick* is the time of the configuration that the model would try first, of those measured, over the time of the
best measured, for problems that were left out of the training: geometric mean, ninth decile and worst.  *selection* has the
fastest of the first k candidates of candidate selection in its place, for patterns that were left out.  Problems with fewer
than three measured configurations are not counted.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import parser_of
from benchmarks.ahead import pool_of
from benchmarks.forest import Row, rows_of, starts_of, train
from benchmarks.landscapes import Evidence, Problem, read_landscapes, read_records, write_landscapes
from benchmarks.measure import keep
from benchmarks.report import show
from benchmarks.rows import lost, read_rows
from feinsum.candidates.diversity import spread_choices
from feinsum.candidates.shortlist import CANDIDATES, HOPELESS, with_default
from feinsum.canonicalization import parse_key
from feinsum.cli.output import print_table
from feinsum.cost.model import FILE, CostModel
from feinsum.devices import DeviceProfile
from feinsum.errors import FeinsumError
from feinsum.registry import find_space
from feinsum.space import Instance

SHIPPED = Path(__file__).parent.parent / "tuning_db" / FILE
FOLDS = 10
LEAST = 3


def left_out(rows: Sequence[Row], by: Callable[[Row], Hashable]) -> Iterator[tuple[CostModel, list[Row]]]:
    """Models, and rows that each has not seen: all of one group, and for speed of a tenth of the groups at a time."""
    groups = sorted({by(row) for row in rows}, key=str)
    random.Random(0).shuffle(groups)
    folds = [set(groups[fold::FOLDS]) for fold in range(min(FOLDS, len(groups)))]
    seen = [[row for row in rows if by(row) not in fold] for fold in folds]
    with pool_of() as pool:
        for fold, model in zip(folds, pool.map(train, seen), strict=True):
            yield model, [row for row in rows if by(row) in fold]


def losses(rows: Sequence[Row], predicted: Sequence[float]) -> dict[Problem, float]:
    """The time of the first pick over the best time, of each problem."""
    by_problem: dict[Problem, list[tuple[float, float]]] = {}
    for row, t in zip(rows, predicted, strict=True):
        by_problem.setdefault(row.problem, []).append((t, row.time_s))
    enough = {problem: pairs for problem, pairs in by_problem.items() if len(pairs) >= LEAST}
    return {problem: min(pairs)[1] / min(t for _, t in pairs) for problem, pairs in enough.items()}


def predict(model: CostModel, rows: Sequence[Row]) -> list[float]:
    """The times expected."""
    found: dict[int, float] = {}
    for kind in {row.kind for row in rows}:
        own = [k for k, row in enumerate(rows) if row.kind == kind]
        times_s = model.predict_s([rows[k].features for k in own], [rows[k].work_s for k in own], kind)
        found |= dict(zip(own, map(float, times_s), strict=True))
    return [found[k] for k in range(len(rows))]


def cross_validate(rows: Sequence[Row], by: Callable[[Row], Hashable]) -> tuple[dict[Problem, float], dict[str, float]]:
    """What is lost by the first pick for each problem, and the median factor between prediction and truth by kind."""
    first: dict[Problem, float] = {}
    errors: dict[str, list[float]] = {}
    for model, unseen in left_out(rows, by):
        predicted = predict(model, unseen)
        first |= losses(unseen, predicted)
        for row, t in zip(unseen, predicted, strict=True):
            errors.setdefault(row.kind, []).append(abs(math.log(t / row.time_s)))
    return first, {kind: math.exp(statistics.median(values)) for kind, values in errors.items()}


def by_default(rows: Sequence[Row]) -> dict[Problem, float]:
    """The loss by the default of the space of highest rank, the choice without a model, where it was measured."""
    defaults = {row.problem: row for row in sorted(rows, key=lambda row: row.rank) if row.is_default}
    best: dict[Problem, float] = {}
    for row in rows:
        best[row.problem] = min(best.get(row.problem, math.inf), row.time_s)
    return {problem: row.time_s / best[problem] for problem, row in defaults.items()}


def quickest_of(ordered: Sequence[tuple[Row, float]], profile: DeviceProfile) -> list[float]:
    """The time of the fastest of the first k candidates over the best time, for each k.

    :param ordered: the configurations of a problem with the times expected, best first.
    """
    (first, quickest), space = ordered[0], find_space(ordered[0][0].space)
    found = spread_choices(ordered, CANDIDATES, lambda each: each[1], lambda each: (each[0].space, each[0].configuration))
    with suppress(FeinsumError):
        here = Instance(parse_key(first.problem.einsum), dict(first.problem.sizes), profile)
        wanted = dict(space.default(here.problem(space)))
        for row, t in ordered:
            if row.space == space.name and dict(row.configuration) == wanted and t < HOPELESS * quickest:
                found = with_default(found, (row, t))
    best = min(row.time_s for row, _ in ordered)
    return [min(row.time_s for row, _ in found[:most]) / best for most in range(1, CANDIDATES + 1)]


def selection() -> None:
    """Train without each pattern, choose, and print a table for each device of ``benchmarks/landscapes``."""
    parser_of(__doc__).parse_args()
    evidence, found = read_landscapes(), {}
    for kind in ("gpu", "cpu"):
        by_problem: dict[Problem, list[tuple[Row, float]]] = {}
        for model, unseen in left_out(rows_of(evidence.of(kind)), lambda row: row.problem.einsum.split("|")[1]):
            for row, t in zip(unseen, predict(model, unseen), strict=True):
                by_problem.setdefault(row.problem, []).append((row, t))
        for problem, own in by_problem.items():
            if len(own) >= LEAST:
                ordered = sorted(own, key=lambda each: each[1])
                found.setdefault(problem.device, []).append(quickest_of(ordered, evidence.profiles[problem.device]))
    lines = []
    for device, losses_of in sorted(found.items()):
        told = [lost(factors) for factors in zip(*losses_of, strict=True)]
        figures = [*(f"{one['first pick']:.2f}" for one in told), *(f"{told[k]['worst']:.1f}" for k in (0, -1))]
        lines.append([device, str(len(losses_of)), *figures])
    counts = [str(most) for most in range(1, CANDIDATES + 1)]
    print_table(["device", "problems", *counts, "worst of 1", f"of {CANDIDATES}"], lines, left=["device"])


def judged(rows: Sequence[Row]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of results, and the factors that belong into the model."""
    by_einsum, factors = cross_validate(rows, lambda row: row.problem.einsum)
    measured = {
        "one einsum": by_einsum,
        "one pattern": cross_validate(rows, lambda row: row.problem.einsum.split("|")[1])[0],
        "one device": cross_validate(rows, lambda row: row.problem.device)[0],
        "all (no records)": losses(rows, predict(CostModel({}), rows)),
        "default of the highest rank": by_default(rows),
    }
    found = []
    for name, losses_of in measured.items():
        by_device: dict[str, list[float]] = {}
        for problem, value in losses_of.items():
            by_device.setdefault(problem.device, []).append(value)
        for device, own in sorted(by_device.items()):
            about = {"command": "cost-model", "group": name, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
            about |= {"machine": {"device": device}, "factor": factors.get(device.partition(":")[0])}
            found.append({**about, "problems": len(own), **lost(own)})
    return found, factors


def gather(places: Sequence[str], profiles: Sequence[Path]) -> Evidence:
    """What is kept, and what some records add to it."""
    evidence = read_landscapes()
    for path in profiles:
        profile = DeviceProfile.from_json(path.read_text(encoding="utf-8"))
        evidence.profiles[profile.id] = profile
    for place in places:
        print(f"{evidence.add_records(read_records(place))} measured configurations in {place}")
    unknown = {problem.device for problem in evidence.times_s} - evidence.profiles.keys()
    if unknown:
        import feinsum as fe

        evidence.profiles |= {d.id: d.profile for d in fe.devices() if d.id in unknown}
    for device in sorted(unknown - evidence.profiles.keys()):
        print(f"nothing is known of the device {device}; give its profile with --profile", file=sys.stderr)
    return evidence


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure, write."""
    parser = parser_of(__doc__)
    parser.add_argument("records", nargs="*", help="databases or files of JSON Lines whose records are learnt and kept")
    parser.add_argument(
        "--profile", type=Path, action="append", default=[], help="a device profile as JSON, for records of it"
    )
    parser.add_argument("--only", choices=("cpu", "gpu"), help="of these devices alone; the trees for others stay")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="where the model goes; by default into the package")
    parser.add_argument("--rows", help="a file to which the results are added; the last of a device count")
    parser.add_argument("--page", type=Path, help="the page that is written of them")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    evidence = gather(options.records, options.profile)
    if options.records:
        write_landscapes(evidence)
    if options.only:
        evidence = evidence.of(options.only)
    rows = rows_of(evidence)
    if not rows:
        sys.exit("no record is of a space that still accepts it; tune first, see doc/guides/training.rst")
    found, factors = judged(rows)
    print(f"{len(rows)} measured configurations of {len({row.problem for row in rows})} problems")
    for kind, factor in sorted(factors.items()):
        print(f"half of the predictions on {kind.upper()}s are within a factor of {factor:.2g}")
    for row in found:
        keep(options.rows, row)
    show(read_rows(options.rows) if options.rows else found, options.page)
    model = train(rows, factors)
    model = CostModel({kind: replace(own, starts=starts_of(evidence, model, kind)) for kind, own in model.forests.items()})
    if options.only:
        shipped = CostModel.from_json(json.loads(SHIPPED.read_text(encoding="utf-8")))
        model = CostModel({**shipped.forests, options.only: model.forests[options.only]})
    options.out.write_text(json.dumps(model.to_json(), separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{options.out}: {options.out.stat().st_size >> 10} KiB, in {time.monotonic() - start:.0f} s")
