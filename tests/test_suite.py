"""The short list of the benchmark suite at the sizes for CPUs: what `generate` gives without any record is right."""

from __future__ import annotations

import numpy as np
import pytest

import feinsum as fe
from benchmarks import cases
from feinsum.devices import Device
from feinsum.validate.reference import random_inputs, references


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
