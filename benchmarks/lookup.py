"""How long a look-up of the best record takes in a store of 100 000: ``python -m benchmarks.lookup``.

The connection is open and the key is known, as in the second call of ``generate``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from feinsum.database import Database, TuningRecord

KEY = "xre,rij,ej->xei [J D u] J: float64[3, 3, E], D: float64[3, 20, 20], u: float64[E, 20]"
SPACES = [("generic", 3), ("dg_gradient", 2), ("matrix_product", 5)]


def synthetic_records(number: int, problems: int, rng: random.Random) -> Iterator[TuningRecord]:
    """Records of `problems` sizes on two devices, a third of them failed and a quarter from an old space."""
    for k in range(number):
        sizes = {"x": 3, "r": 3, "e": 1000 + k % problems, "i": 20, "j": 20}
        ok = rng.random() > 1 / 3
        median_s = rng.lognormvariate(-7, 1)
        yield TuningRecord(
            einsum_key=KEY,
            pattern_key="xre,rij,ej->xei",
            sizes=sizes,
            pattern_sizes=sizes,
            device=rng.choice(["amd-epyc-intel-runtime", "nvidia-h200"]),
            architecture="zen5",
            driver="2025.20.8",
            space="dg_gradient",
            space_version=rng.choice([1, 2, 2, 2]),
            configuration={"elements": k % 64, "rows": rng.randrange(8), "vector": rng.choice([1, 2, 4, 8]), "hoist": True},
            status="ok" if ok else "compile-failed",
            message="" if ok else "error: out of registers",
            flops=10**9,
            bytes=10**8,
            protocol=1,
            samples_s=[median_s * rng.uniform(0.98, 1.02) for _ in range(30)] if ok else (),
            versions={"loopy": "2025.2", "numpy": "2.4.0", "pyopencl": "2026.1.4"},
        )


def percentiles(look_up: Callable[[int], object], problems: int, calls: int, rng: random.Random) -> tuple[float, float]:
    """The median and the 95th percentile of the time of a call, in seconds, for random problems."""
    chosen = [rng.randrange(problems) for _ in range(calls)]
    times = []
    for k in chosen:
        start = time.perf_counter()
        look_up(k)
        times.append(time.perf_counter() - start)
    times.sort()
    return times[calls // 2], times[calls * 95 // 100]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--problems", type=int, default=1000, help="einsums with sizes among which the records fall")
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--database", help="a path or URL of an empty store; by default a temporary SQLite file")
    options = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as directory, Database(options.database or Path(directory) / "records.sqlite") as db:
        start = time.perf_counter()
        db.add(synthetic_records(options.records, options.problems, rng))
        print(f"{options.records} records added in {time.perf_counter() - start:.1f} s to {db.location}")

        def best(k: int, device: str = "nvidia-h200") -> TuningRecord | None:
            sizes = {"x": 3, "r": 3, "e": 1000 + k, "i": 20, "j": 20}
            return db.best(KEY, sizes, device, driver="2025.20.8", spaces=SPACES)

        for name, look_up in (("hit", best), ("miss", lambda k: best(k, "no-such-device"))):
            percentiles(look_up, options.problems, 500, rng)
            p50, p95 = percentiles(look_up, options.problems, options.calls, rng)
            print(f"best record, {name}: p50 {p50 * 1e6:.1f} us, p95 {p95 * 1e6:.1f} us")


if __name__ == "__main__":
    main()
