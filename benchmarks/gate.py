"""``python -m benchmarks gate``: is this checkout slower than the last release?

    python -m benchmarks gate                                   # about 5 minutes on an idle machine
    python -m benchmarks gate --base main --kernels 3 --pairs 8

Both versions run at the same time, each in processes with caches of its own, and take turns: a pair is a sample of each,
and the order changes from pair to pair.  Kernels of every strategy, calls, first calls and ``import feinsum`` are
compared by the median ratio of the pairs with a 90% interval.  Something is slower if even the lower end of its interval is
beyond the bound of its row; then, or where only this checkout fails, the exit code is 1.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import feinsum as fe
from benchmarks import ROOT, parser_of
from benchmarks.cases import Case
from benchmarks.cases.lists import select, wide_cases
from benchmarks.engines.process import CutOffError, EngineProcess, FailedError
from benchmarks.report import TEXTS, duration
from feinsum.cli.output import print_table
from feinsum.timing.races import median_interval

_PACKAGES = ("transforms", "tuning_db")
"""Directories of a checkout that are packages inside feinsum, see setup.cfg."""
_LIMIT_S = 120.0
BOUNDS = {"kernel": 0.05, "mean": 0.02, "call": 0.05, "first": 0.1, "import": 0.1}
"""How much longer each may take, as a part of the base's time."""
KERNELS = (
    "dg_facemass_p1_m4", "dg_grad_p3_m1", "dg_div_p3_m6", "tccg_01", "tccg_13", "ader_volume_o6", "sem_interp_p7",
    "ml_bgemm16", "gen_syn",
)  # fmt: skip
"""Of the short list: small operands, some with several outputs, contractions, chains of steps."""
STREAMS = ("outer", "permute_4", "sum_first")
"""Of the wide list: what memory bounds, each by a strategy of its own."""

ERROR = 0.1
"""Intervals miss the true ratio with this probability, on either side in equal parts."""

Pair = tuple[float, float]
"""Seconds of the base and of this checkout, measured one after the other."""


@dataclass(frozen=True)
class Finding:
    """A line of the gate.

    :ivar pairs: none where one side failed, see `failure`.
    :ivar bound: how much longer than the base it may take, 0.05 for 5%.
    :ivar failure: why it was not measured.
    :ivar is_regression: whether only this checkout failed.
    """

    what: str
    pairs: Sequence[Pair]
    bound: float
    failure: str = ""
    is_regression: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """Of the median of the ratios of this checkout's time to the base's."""
        low, high = median_interval([math.log(new / old) for old, new in self.pairs], ERROR)
        return math.exp(low), math.exp(high)

    @property
    def ratio(self) -> float:
        """The median; above 1 is slower."""
        return median(new / old for old, new in self.pairs)

    @property
    def is_slower(self) -> bool:
        """Whether even the lower end of the interval is beyond the bound, or only this checkout fails."""
        return self.is_regression if not self.pairs else self.interval[0] > 1 + self.bound

    def cells(self) -> list[str]:
        """A line under :data:`HEADINGS`."""
        bound = f"{self.bound:.0%}"
        if not self.pairs:
            return [self.what, *"----", bound, "FAILS" if self.is_slower else "skipped", self.failure]
        (low, high), (old, new) = self.interval, (median(side) for side in zip(*self.pairs, strict=True))
        verdict = "SLOWER" if self.is_slower else "faster" if high < 1 else "ok"
        interval = f"{low:.3f} to {high:.3f}" if math.isfinite(high) else "too few pairs"
        return [self.what, duration(old), duration(new), f"{self.ratio:.3f}", interval, bound, verdict, self.failure]


def kernel_cases() -> list[Case]:
    """Twelve cases that stand for the strategies."""
    return [*select(KERNELS), *wide_cases(layouts=["given"], names=STREAMS)]


HEADINGS = ("what", "base", "this", "this/base", "interval", "may be", "verdict", "remark")


def mean_of(findings: Iterable[Finding], bound: float) -> Finding:
    """The geometric mean of several, round by round."""
    rounds = zip(*(f.pairs for f in findings if f.pairs), strict=False)
    pairs = [tuple(math.exp(fmean(math.log(pair[k]) for pair in own)) for k in (0, 1)) for own in rounds]
    return Finding("kernels, geometric mean", [(old, new) for old, new in pairs], bound)


class GateError(Exception):
    """There is nothing to compare with."""


def main() -> None:
    parser = parser_of(__doc__, "cpu")
    parser.add_argument("--base", help="a git revision (default: the last tag v*)")
    parser.add_argument("--kernels", type=int, default=12, help="of the twelve (default: all)")
    parser.add_argument(
        "--pairs", type=int, default=15, help="of calls and imports; kernels have twice as many (default: 15)"
    )
    options = parser.parse_args()
    try:
        base = options.base or last_release()
        with tempfile.TemporaryDirectory(prefix="feinsum-gate-") as folder:
            sides = (released(base, Path(folder) / "base"), checkout(Path(folder) / "this"))
            findings = list(compared(sides, options))
    except GateError as error:
        sys.exit(f"gate: {error}")
    print(f"this checkout against {base} on {fe.device(options.device)}; ratios above 1 are slower\n")
    print_table(HEADINGS, [finding.cells() for finding in findings], left=TEXTS)
    slower = [finding.what for finding in findings if finding.is_slower]
    print(f"\nslower beyond the noise: {', '.join(slower) or 'nothing'}")
    sys.exit(1 if slower else 0)


def last_release() -> str:
    """The newest tag ``v*`` that this checkout comes from.

    :raises GateError: if there is none.
    """
    found = _git("describe", "--tags", "--abbrev=0", "--match", "v*")
    if found.returncode:
        raise GateError("no release is tagged v* before this checkout; name a revision with --base REV")
    return found.stdout.decode().strip()


def released(revision: str, into: Path) -> Path:
    """The packages of a revision, as they are installed.

    :raises GateError: if there is no such revision.
    """
    found = _git("archive", "--format=tar", revision, "feinsum", *_PACKAGES)
    if found.returncode:
        raise GateError(f"{revision!r} is no revision to compare with: {found.stderr.decode().strip()}")
    into.mkdir()
    subprocess.run(["tar", "-x", "-C", into], input=found.stdout, check=True)
    for name in _PACKAGES:
        (into / name).rename(into / "feinsum" / name)
    return into


def checkout(into: Path) -> Path:
    """The packages of this checkout, with what is not committed, as they are installed."""
    shutil.copytree(ROOT / "feinsum", into / "feinsum", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _PACKAGES:
        shutil.copytree(ROOT / name, into / "feinsum" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return into


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, check=False)


def process_of(side: Path, caches: Path | None, **more: str) -> EngineProcess:
    """A process with the feinsum of a folder, caches in another or those of the user.

    Byte code is kept in the first, as after installing.

    :param more: of its environment.
    """
    path = os.pathsep.join(map(str, (side, ROOT)))  # ROOT for this directory
    environment = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "", **more}
    environment |= dict.fromkeys(("XDG_DATA_HOME", "XDG_CACHE_HOME", "CUDA_CACHE_PATH"), str(caches)) if caches else {}
    # Without -P the directory where it starts comes before PYTHONPATH.
    command = [sys.executable, "-P", "-m", "benchmarks.engines.side"]
    return EngineProcess(side.name, command=command, environment=environment)


def compared(sides: Sequence[Path], options: argparse.Namespace) -> Iterator[Finding]:
    """All findings, in the order of the table."""
    processes = [process_of(side, side.with_name(f"{side.name}-caches")) for side in sides]
    device = options.device
    try:
        cases = kernel_cases()
        kernels = [_kernel(processes, case, options) for case in cases[:: max(1, len(cases) // options.kernels)]]
        yield from kernels
        if any(f.pairs for f in kernels):
            yield mean_of(kernels, BOUNDS["mean"])
        for what in ("kernel, device arrays", "expression", "contract"):
            ask = {"do": "call", "device": device, "what": what, "count": 1000}
            yield paired(
                f"call of 4 x 4, {what}",
                BOUNDS["call"],
                options.pairs,
                lambda k, ask=ask: processes[k].ask(_LIMIT_S, **ask),
            )
    finally:
        for process in processes:
            process.close()
    firsts = {"cold caches": None, "warm caches": "-caches"}
    for name, kept in firsts.items():

        def first(k: int, kept: str | None = kept) -> dict[str, Any]:
            return _fresh(sides[k], kept, do="first", device=device)

        yield paired(f"first generate, {name}", BOUNDS["first"], max(5, options.pairs // 2), first)
    yield paired("import feinsum", BOUNDS["import"], options.pairs, lambda k: _fresh(sides[k], "-caches", do="imported"))


def _fresh(side: Path, kept: str | None, **ask: Any) -> dict[str, Any]:
    """The answer of a new process, its caches empty unless some are kept."""
    with tempfile.TemporaryDirectory(prefix="feinsum-gate-") as empty:
        caches = side.with_name(f"{side.name}{kept}") if kept else Path(empty)
        with process_of(side, caches) as process:
            return process.ask(_LIMIT_S, **ask)


def _kernel(processes: Sequence[EngineProcess], case: Case, options: argparse.Namespace) -> Finding:
    """One kernel, each side having as many runs in a sample as it needs."""
    side = "cpu" if fe.device(options.device).profile.kind == "cpu" else "gpu"
    ask = {"do": "kernel", "device": options.device, "case": case, "side": side, "dtype": case["dtypes"][0]}
    runs = [1, 1]

    def load(k: int) -> None:
        runs[k] = processes[k].ask(_LIMIT_S, **ask)["runs"]

    def sample(k: int) -> dict[str, Any]:
        return {"seconds": processes[k].ask(_LIMIT_S, "sample")["seconds"] / runs[k]}

    return paired(f"{case['name']} {case['dtypes'][0]}", BOUNDS["kernel"], 2 * options.pairs, sample, load)


def paired(
    what: str, bound: float, count: int, ask: Callable[[int], dict[str, Any]], begin: Callable[[int], None] | None = None
) -> Finding:
    """So many pairs, side 0 being the base, after one that does not count.

    :param begin: what each side does before.
    """
    failed: dict[int, str] = {}
    pairs: list[Pair] = []
    for k in (0, 1):
        try:
            if begin is not None:
                begin(k)
            ask(k)
        except (CutOffError, FailedError) as error:
            failed[k] = str(error)
    try:
        for number in range(0 if failed else count):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            taken = {k: float(ask(k)["seconds"]) for k in order}
            pairs.append((taken[0], taken[1]))
    except (CutOffError, FailedError) as error:
        return Finding(what, [], bound, f"failed on the way: {error}", is_regression=True)
    told = "; ".join(f"{('base', 'this')[k]}: {why}" for k, why in failed.items())
    return Finding(what, pairs, bound, told, is_regression=set(failed) == {1})
