"""Records of narrow searches: measured is not searched, so what nobody tried gets its chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

import feinsum as fe
from feinsum.candidates.ladder import ConfigurationChoice, candidates
from feinsum.candidates.predicted import Prediction, top_predictions
from feinsum.canonicalization import canonicalize_einsum
from feinsum.compile.executable import Executable
from feinsum.database import CuratedRecords, curate, open_stores
from feinsum.devices import Device
from feinsum.generate.candidate_selection import VARIABLE
from feinsum.registry import find_space
from feinsum.space import Instance
from feinsum.timing import FINAL_PROTOCOL, PROTOCOL
from feinsum.tune.autotune import make_task
from feinsum.tune.trial import Outcome

pytestmark = pytest.mark.narrow

E = fe.einsum("ek,ek->e", fe.array("a", ("E", 20)), fe.array("b", ("E", 20)))
AT = {"E": 200_000}
SLOW_S = 1.0
"""So many seconds that the cost model expects anything to be quicker."""


def instance(device: Device, sizes: Mapping[str, int] = AT) -> Instance:
    canonical = canonicalize_einsum(E)
    return Instance.of_canonical(canonical, canonical.renaming.lengths(E.resolve(sizes)), device.profile)


def keep(
    store: str, device: Device, tried: Sequence[tuple[str, Any]], seconds: float = SLOW_S, **changes: Any
) -> fe.TuningRecord:
    """Store a trial of each configuration; the first is the best, and has won a final unless `changes` say otherwise."""
    task = make_task(E, changes.pop("sizes", AT), device, 0)
    found = []
    for k, (name, configuration) in enumerate(tried):
        trial, protocol = task.trial(find_space(name), configuration), PROTOCOL if k else FINAL_PROTOCOL
        record = task.record(trial, Outcome("ok", samples_s=(seconds * (1 + k),)), protocol)
        found.append(replace(record, **changes))
    with fe.Database(store) as database:
        database.add(found)
    return found[0]


def generic(device: Device) -> tuple[str, Any]:
    space = find_space("generic")
    return "generic", space.default(instance(device).problem(space))


def of_each_space(device: Device, most: int) -> list[tuple[str, Any]]:
    """So many configurations of each space, those that the cost model expects to be the slowest."""
    taken: dict[str, list[Prediction]] = {}
    for prediction in reversed(top_predictions(instance(device), share=float("inf"))):
        taken.setdefault(prediction.space.name, []).append(prediction)
    return [(name, f.configuration) for name, found in taken.items() for f in found[:most]]


def first(store: str, device: Device, sizes: Mapping[str, int] = AT) -> ConfigurationChoice:
    return next(candidates(instance(device, sizes), open_stores(store)))


NARROW: dict[str, dict[str, Any]] = {
    "of one trial": {},
    "at other lengths": {"sizes": {"E": 150_000}},
    "of another driver": {"driver": "an older one"},
    "of a run without a final": {"protocol": PROTOCOL},
}


@pytest.mark.parametrize("changes", NARROW.values(), ids=NARROW)
def test_a_record_of_a_narrow_search_gives_way(changes: dict[str, Any], cpu: Device, store: str) -> None:
    """To what the cost model expects to be quicker; it is still among the candidates, and the reason is told."""
    record = keep(store, cpu, [generic(cpu)], **changes)
    best, *others = candidates(instance(cpu), open_stores(store))
    assert best.rung == "cost model"
    assert f"record {record.id} of generic is the best of 1 configuration tried of generic" in best.doubt
    assert record in [choice.record for choice in others if choice.is_doubted]


def test_a_record_of_a_wide_search_rules(cpu: Device, store: str) -> None:
    """Whatever the cost model expects; without its final the search was not finished."""
    record = keep(store, cpu, of_each_space(cpu, 6))
    found = first(store, cpu)
    assert (found.rung, found.record, found.doubt) == ("exact", record, "")
    younger = store + ".younger"
    keep(younger, cpu, of_each_space(cpu, 6), protocol=PROTOCOL)
    assert first(younger, cpu).doubt


def test_a_space_that_a_wide_search_did_not_know_is_tried(cpu: Device, store: str) -> None:
    """It is younger than the record; its name is told."""
    best = top_predictions(instance(cpu))[0]
    known = [(name, c) for name, c in of_each_space(cpu, 6) if name != best.space.name]
    keep(store, cpu, known)
    found = first(store, cpu)
    assert found.rung == "cost model"
    assert f"an untried one of {best.space.name} is expected to take" in found.doubt


def test_what_was_tried_is_no_rival(cpu: Device, store: str) -> None:
    """The record was quicker, as often as the cost model says otherwise."""
    tried = [(f.space.name, f.configuration) for f in top_predictions(instance(cpu), share=float("inf"))]
    record = keep(store, cpu, [generic(cpu), *(each for each in tried if each != generic(cpu))], protocol=PROTOCOL)
    assert first(store, cpu).record == record


def test_a_record_that_is_as_quick_as_expected_rules(cpu: Device, store: str) -> None:
    """However few were tried."""
    record = keep(store, cpu, [generic(cpu)], seconds=20e-6)
    found = first(store, cpu)
    assert (found.record, found.doubt) == (record, "")


def test_a_curated_record_is_not_doubted(cpu: Device, store: str, tmp_path: Any) -> None:
    """What it was compared with stayed where it was made."""
    record = keep(store, cpu, [generic(cpu)])
    (tmp_path / "curated").mkdir()
    curate([record], tmp_path / "curated")
    found = next(candidates(instance(cpu), open_stores(store, CuratedRecords(tmp_path / "curated"))))
    assert (found.record, found.doubt) == (record, "")


@pytest.mark.parametrize("record_wins", [True, False])
def test_candidate_selection_decides(record_wins: bool, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is one of its candidates, the kernel says so, and a wide search ends the doubt."""
    record = keep(store, cpu, [generic(cpu)])
    monkeypatch.delenv(VARIABLE)

    def timed(executables: Sequence[Executable], *_: Any, **__: Any) -> list[float]:
        return [1e-3 if (k == 1) == record_wins else 2e-3 for k in range(len(executables))]

    monkeypatch.setattr("feinsum.timing.candidate_timing.time_candidates", timed)
    kernel = fe.generate(E, cpu, store, AT)
    assert (kernel.record == record, kernel.rung == "exact", kernel.space == "generic") == (record_wins,) * 3
    text = kernel.explain()
    assert f"  doubted   record {record.id} of generic" in text
    assert "  selected " in text
    assert "nothing measured fits" not in text
    keep(store, cpu, of_each_space(cpu, 6), seconds=SLOW_S / 2)
    found = fe.generate(E, cpu, store, AT)
    assert (found.rung, "doubted" in found.explain()) == ("exact", False)


def test_a_record_that_is_quicker_than_its_model_is_doubted_if_its_rival_may_be_too(cpu: Device, store: str) -> None:
    """The cost model may err alike about two kernels of one einsum; what is far quicker than it expects of any rules."""
    rival_s = top_predictions(instance(cpu))[0].expected_s
    keep(store, cpu, [generic(cpu)], seconds=rival_s / 1.5)
    assert first(store, cpu).doubt
    keep(store + ".quick", cpu, [generic(cpu)], seconds=rival_s / 3)
    assert not first(store + ".quick", cpu).doubt
