"""The short list of the benchmark suite at the sizes for CPUs: what `generate` gives without any record is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import feinsum as fe
from benchmarks import cases, job
from feinsum.devices import Device
from feinsum.tune.jobs import read_jobs
from feinsum.validate.reference import random_inputs, references

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", cases.SHORT_LIST, ids=lambda case: case["name"])
def test_a_case_equals_numpy_within_the_bound(case: cases.Case, dtype: str, cpu: Device, store: str) -> None:
    """Of roundoff, at a random block of entries with the ends of every axis; all others are numbers at least."""
    e = cases.describe(case, "cpu", dtype)
    lengths = e.resolve()
    arrays = random_inputs(e, lengths, 1)
    found = fe.generate(e, cpu, store)(arrays)
    for values, reference in zip(found if e.b > 1 else (found,), references(e, lengths, arrays, 1), strict=True):
        assert np.isfinite(values).all()
        assert (abs(values[np.ix_(*reference.at)] - reference.expected) <= reference.bound).all()


@pytest.mark.parametrize("side", ["cpu", "gpu"])
def test_the_job_file_of_the_suite_tunes_its_cases(side: str, tmp_path: Path) -> None:
    """Each case that ``python -m benchmarks job`` writes down is read again as the einsum and the sizes of the suite."""
    text = "\n".join(job.table(case, side, ["float32"]) for case in cases.CASES)
    (tmp_path / "suite.toml").write_text(f"devices = ['{side}']\n{text}")
    read = [(one.einsum, dict(one.sizes)) for one in read_jobs(tmp_path / "suite.toml").jobs]
    assert read == [
        (cases.describe(case, side, "float32", long=True), cases.long_sizes(case, side)) for case in cases.CASES
    ]
