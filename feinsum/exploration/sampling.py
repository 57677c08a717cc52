"""A sample of a space that no other process knows: proved and timed in this process, and recorded nowhere."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from feinsum.errors import FeinsumError, TransformError, ValidationError
from feinsum.search import make_sampler
from feinsum.tune.report import TuningReport
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome

if TYPE_CHECKING:
    from feinsum.database import TuningRecord
    from feinsum.exploration.exploration import Exploration
    from feinsum.space import Configuration

_SECONDS = 0.1
"""For the samples of a trial."""


def sample_here(x: Exploration, trials: int, seed: int, progress: bool) -> TuningReport:
    """Try configurations drawn at random.  One that crashes or hangs takes this process along."""
    from feinsum.tune.progress import progress_bar

    start = time.monotonic()
    task = make_task(x.einsum, x.sizes, x.device, seed)
    sampler = make_sampler(
        "random", x.parameters, lambda c: x.space.refusal(x.problem, c), start=[x.default], seed=seed, trials=trials
    )
    records: list[TuningRecord] = []
    best: TuningRecord | None = None
    with progress_bar(x.einsum.subscripts, trials, None) if progress else contextlib.nullcontext(lambda *_: None) as report:
        while len(records) < trials and (configuration := sampler.ask()) is not None:
            record = task.record(task.trial(x.space, configuration), _sampled_outcome(x, configuration, task.proof_seed))
            sampler.tell(configuration, record.median_s)
            records.append(record)
            if record.median_s is not None and (best is None or record.median_s < (best.median_s or 0.0)):
                best = record
            report(len(records), trials, best, record)
    return TuningReport(
        subject=task.subject,
        sizes=dict(x.sizes),
        device=x.device.profile,
        records=tuple(records),
        best=best,
        database="no store, as the space is not registered",
        seconds=time.monotonic() - start,
    )


def _sampled_outcome(x: Exploration, configuration: Configuration, seed: int) -> Outcome:
    try:
        return Outcome("ok", samples_s=x.time(configuration, seconds=_SECONDS, seed=seed).samples_s)
    except ValidationError as error:
        return Outcome("wrong", str(error))
    except TransformError as error:
        return Outcome("compile-failed", str(error))
    except FeinsumError as error:
        return Outcome("launch-failed", str(error))
