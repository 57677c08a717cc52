"""Records for the tests of stores: one by one, and as hypothesis draws them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from feinsum.database import STATUSES, TuningRecord

KEY = "xre,rij,ej->xei [a b c] a: float64[3, 3, E]"
SIZES = {"x": 3, "r": 3, "e": 1000, "i": 20, "j": 20}


def make_record(**changes: Any) -> TuningRecord:
    """A plain record with some fields changed; ``median_s=t`` stands for three samples about t."""
    if "median_s" in changes:
        median_s = changes.pop("median_s")
        changes["samples_s"] = (median_s * 0.99, median_s, median_s * 1.02)
    fields: dict[str, Any] = {
        "einsum_key": KEY,
        "pattern_key": "xre,rij,ej->xei",
        "sizes": SIZES,
        "pattern_sizes": SIZES,
        "device": "amd-epyc (intel)",
        "architecture": "zen5",
        "driver": "2025.20.8",
        "space": "dg_gradient",
        "space_version": 2,
        "configuration": {"elements": 16, "hoist": True, "order": "ji", "fraction": 0.5},
        "status": "ok",
        "flops": 2_450_000,
        "bytes": 800_000,
        "protocol": 1,
        "versions": {"loopy": "2025.2", "numpy": "2.4.0"},
        "created": "2026-11-20T09:19:00.123456Z",
    }
    if changes.get("status", "ok") == "ok":
        fields["samples_s"] = (1.01e-3, 1e-3, 1.03e-3)
    return TuningRecord(**(fields | changes))


_PRINTABLE = st.characters(exclude_categories=("C", "Z"))
_NAMES = st.text(_PRINTABLE, min_size=1, max_size=12)
_INTEGERS = st.integers(0, 2**63 - 1)
_LENGTHS = st.dictionaries(st.sampled_from("abcxyzABC"), st.integers(1, 2**63 - 1), max_size=5)
_VALUES = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(_PRINTABLE, max_size=8)
)
_SECONDS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@st.composite
def records(draw: st.DrawFn) -> TuningRecord:
    """Any record at all."""
    status = draw(st.sampled_from(STATUSES))
    return TuningRecord(
        einsum_key=draw(_NAMES),
        pattern_key=draw(_NAMES),
        sizes=draw(_LENGTHS),
        pattern_sizes=draw(_LENGTHS),
        device=draw(_NAMES),
        architecture=draw(_NAMES),
        driver=draw(_NAMES),
        space=draw(_NAMES),
        space_version=draw(_INTEGERS),
        configuration=draw(st.dictionaries(_NAMES, _VALUES, max_size=6)),
        status=status,
        flops=draw(_INTEGERS),
        bytes=draw(_INTEGERS),
        protocol=draw(_INTEGERS),
        samples_s=tuple(draw(st.lists(_SECONDS, min_size=status == "ok", max_size=6))),
        message=draw(st.text(max_size=40)),
        versions=draw(st.dictionaries(_NAMES, _NAMES, max_size=3)),
        seed=draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        created=draw(st.datetimes()).strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27),
    )
