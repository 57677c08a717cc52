"""Two equal GPUs in one process: told apart, each computing what lies on it, and both tuned at once."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.arrays.calls import gradient
from benchmarks.arrays.side import Side
from feinsum.tune.batch import Result, run_batch
from feinsum.tune.jobs import Job
from feinsum.tune.lanes import several

_SUBSCRIPTS = ("ij,ej->ei", "xre,rij,ej->xei", "rij,ej->rei", "re,rij,ej->ei")
_TUNE_S = 8.0


def devices(side: Side) -> Iterator[dict[str, Any]]:
    """What there is to say of two equal GPUs; nothing where there is one."""
    equal = [one for one in fe.devices() if one.usable and one.id == side.device.id]
    if not side.on_gpu or len(equal) < 2:
        return
    from feinsum.interop.cuda.driver import pci_bus_id

    yield {
        "name": "told apart",
        "words": [one.word for one in equal],
        "addresses": [pci_bus_id(number) for number in range(len(equal))],
    }
    yield {"name": "in turns", "wrong": list(_in_turns(side))}
    yield {"name": "a mixture is refused", "message": _refused(side)}
    yield {"name": "a job file", **_job_file()}


def _in_turns(side: Side) -> Iterator[str]:
    """What is wrong with calls of which each is on another device than the one before."""
    import torch

    problem = gradient(side, 1000)
    text, kernel = problem.text, problem.kernel
    for turn in range(6):
        number = turn % 2
        there = {name: torch.from_numpy(value * (turn + 1)).cuda(number) for name, value in problem.values.items()}
        learnt = [one.clone().requires_grad_() for one in there.values()]
        expected = problem.expected() * (turn + 1) ** 3
        results = {
            "kernel": kernel(there),
            "contract": fe.contract(text, *there.values()),
            "feinsum.torch.einsum": fe.torch.einsum(text, *learnt).detach(),
        }
        for name, found in results.items():
            if found.device.index != number or not np.allclose(found.cpu().numpy(), expected):
                yield f"{name}, turn {turn}: on {found.device}"
        ours, theirs = (
            torch.autograd.grad(einsum(text, *learnt).sum(), learnt) for einsum in (fe.torch.einsum, torch.einsum)
        )
        for k, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one.device.index != number or not torch.allclose(one, other):
                yield f"derivative {k}, turn {turn}: on {one.device}"
        if torch.cuda.current_device() != 0:
            yield f"turn {turn}: the current device is {torch.cuda.current_device()}"


def _refused(side: Side) -> str:
    """What a call with arrays on both says."""
    import torch

    problem = gradient(side, 10)
    mixed = {name: torch.from_numpy(v).cuda(k % 2) for k, (name, v) in enumerate(problem.values.items())}
    try:
        problem.kernel(mixed)
    except fe.ValidationError as error:
        return str(error)
    return "NOT REFUSED"


def _job_file() -> dict[str, Any]:
    """What came of jobs on both devices: which did which, when, and whether both were busy at the same time."""
    jobs, ended = [_job(text) for text in _SUBSCRIPTS], threading.Event()
    busy: list[list[int]] = []
    watch = threading.Thread(target=_watch, args=(ended, busy))
    watch.start()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "two.sqlite")
        try:
            results = run_batch(jobs, store, workers=4, progress=False, devices=several("gpu:0,gpu:1"))
        finally:
            ended.set()
            watch.join()
        with fe.Database(store) as shared:
            in_store = len(shared.query(status=None))
    lanes = {word: _when(results, word) for word in sorted({str(result.job.device) for result in results})}
    begins, ends = zip(*((times[0], times[-1]) for times in lanes.values()), strict=True)
    return {
        "jobs": {str(result.job): f"{result.job.device}: {result.status} {result.message}" for result in results},
        "records": {word: len(times) for word, times in lanes.items()},
        "records_in_store": in_store,
        "from_to": {word: (times[0], times[-1]) for word, times in lanes.items()},
        "overlap": len(lanes) == 2 and max(begins) < min(ends),
        "both_busy_samples": sum(min(one) > 0 for one in busy if len(one) > 1),
        "samples": len(busy),
    }


def _job(text: str) -> Job:
    lengths: dict[str, Any] = {"x": 3, "r": 3, "i": 20, "j": 20, "e": "E"}
    terms = text.partition("->")[0].split(",")
    arrays = [fe.array(f"a{k}", tuple(lengths[letter] for letter in term)) for k, term in enumerate(terms)]
    return Job(fe.einsum(text, *arrays), {"E": 100_000}, timeout=_TUNE_S)


def _when(results: list[Result], word: str) -> list[str]:
    """When the records of a device were made."""
    reports = [result.report for result in results if result.job.device == word and result.report is not None]
    return sorted(record.created for report in reports for record in report.records)


def _watch(ended: threading.Event, busy: list[list[int]]) -> None:
    """Note how busy each GPU is, in per cent, several times a second."""
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    while not ended.wait(0.2):
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        busy.append([int(line) for line in said.split() if line.isdigit()])
