"""What a tuning run found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from feinsum.database import TuningRecord
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.tune.final import Final


@dataclass(frozen=True)
class TuningReport:
    """The outcome of :func:`feinsum.autotune`.

    :ivar records: one for each configuration tried in this run, in order.
    :ivar best: the winner of the final, or else the quickest known, of this run or an earlier one; None if none is right.
    :ivar database: where the records went.
    :ivar interrupted: whether the user ended the run.
    :ivar final: how the best did when they were timed again; None if there was nothing to decide.
    """

    einsum: BatchedEinsum
    sizes: Mapping[str, int]
    device: DeviceProfile
    records: tuple[TuningRecord, ...] = field(repr=False)
    best: TuningRecord | None
    database: str
    seconds: float
    interrupted: bool = False
    final: Final | None = field(default=None, repr=False)

    @property
    def failures(self) -> dict[str, int]:
        """How many trials ended with each status but ``ok``."""
        return dict(Counter(record.status for record in self.records if record.status != "ok"))

    def table(self, rows: int = 10) -> str:
        """The best configurations of this run as text: the winner of the final, then the others, quickest first."""
        others = sorted((r for r in self.records if r.median_s is not None), key=lambda r: r.median_s or 0.0)
        good = [] if self.final is None else [self.final.winner]
        won = {(r.space, r.configuration) for r in good}
        good += [r for r in others if (r.space, r.configuration) not in won]
        lines = [f"{'time (ms)':>10} {'±':>6} {'GFLOP/s':>8} {'GB/s':>7}  space, configuration"]
        for r in good[:rows]:
            t = r.median_s or 1.0
            spread = f"{(r.spread_s or 0.0) / t:6.1%}"
            settings = " ".join(f"{name}={value}" for name, value in r.configuration.items())
            lines.append(
                f"{t * 1e3:10.4g} {spread} {r.flops / t / 1e9:8.4g} {r.bytes / t / 1e9:7.4g}  {r.space}: {settings}"
            )
        tried = f"{len(self.records)} configurations in {self.seconds:.0f} s"
        failed = ", ".join(f"{count} {status}" for status, count in self.failures.items())
        lines.append(f"{tried}{f'; {failed}' if failed else ''}; records in {self.database}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "subscripts": self.einsum.subscripts,
            "sizes": dict(self.sizes),
            "device": self.device.id,
            "best": self.best.to_dict() if self.best else None,
            "tried": len(self.records),
            "failures": self.failures,
            "seconds": self.seconds,
            "database": self.database,
            "interrupted": self.interrupted,
        }

    def __str__(self) -> str:
        return self.table()
