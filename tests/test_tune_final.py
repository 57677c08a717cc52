"""The end of a run and its beginning: finals name winners and ties, searches begin with what is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from models import slower_with
from profiles import CPU

import feinsum as fe
from feinsum.devices import Device
from feinsum.errors import SearchError
from feinsum.registry import find_space
from feinsum.timing import FINAL_PROTOCOL
from feinsum.tune import final
from feinsum.tune.runner import TrialRunner
from feinsum.tune.task import Task, make_task
from feinsum.tune.trial import Outcome
from feinsum.tune.tuning_search import TuningSearch, _space_search
from feinsum.tune.worker import Worker

pytestmark = pytest.mark.slow

GEMM = fe.einsum("ij,jk->ik", fe.array("A", ("N", 16)), fe.array("B", (16, 16)))


def record_of(task: Task, configuration: dict[str, Any], *samples_s: float, protocol: int = 1) -> fe.TuningRecord:
    """What a trial of the generic space would have recorded."""
    trial = task.trial(find_space("generic"), configuration)
    return task.record(trial, Outcome("ok" if samples_s else "wrong", samples_s=samples_s), protocol)


def choices(task: Task) -> list[dict[str, Any]]:
    """Every configuration of the generic space, the default first."""
    space = find_space("generic")
    return list(space.configurations(task.problem(space)))


@pytest.fixture
def task() -> Task:
    return make_task(GEMM, {"N": 1000}, CPU)


def test_the_quickest_of_every_configuration_take_part(task: Task) -> None:
    """Ten at most; what failed, or is a quarter slower than the best, has no chance."""
    cs = [{"number": k} for k in range(14)]
    records = [record_of(task, c, 1.0 + 0.01 * k) for k, c in enumerate(cs[:12])]
    again = record_of(task, cs[5], 0.99)
    late, failed = record_of(task, cs[12], 1.3), record_of(task, cs[13])
    found = final.finalists([*records, again, late, failed])
    assert found == [again, *(r for k, r in enumerate(records) if k != 5)][: final.FINALISTS]
    assert final.finalists([late, failed]) == [late]
    assert final.finalists([failed]) == []


@pytest.mark.parametrize(
    ("medians", "winner", "ties"),
    [
        ({"a": 1.00, "b": 1.01, "c": 1.03}, "b", ["a"]),
        ({"a": 1.00, "b": 1.03}, "a", []),
        ({"a": 1.00, "c": 1.015, "b": 1.02}, "b", ["a", "c"]),
        ({"c": 1.0}, "c", []),
    ],
)
def test_within_two_per_cent_the_simpler_one_wins(
    task: Task, medians: dict[str, float], winner: str, ties: list[str]
) -> None:
    """And what is as quick is said to be a tie."""
    cs = dict(zip("abc", choices(task), strict=False))
    complexity = {"a": 2, "b": 0, "c": 1}
    records = {name: record_of(task, cs[name], 5.0) for name in medians}
    name_of = {id(record): name for name, record in records.items()}
    decided = final.decide(
        [{name: [t, 0.9 * t, 2 * t] for name, t in medians.items()}],
        records,
        lambda record: complexity[name_of[id(record)]],
        lambda record, samples, _: record_of(task, dict(record.configuration), *samples, protocol=FINAL_PROTOCOL),
    )
    assert decided is not None
    assert decided.winner.configuration == cs[winner]
    assert decided.winner.samples_s == (medians[winner], 0.9 * medians[winner], 2 * medians[winner])
    assert [name_of[id(record)] for record in decided.ties] == ties
    assert [t for _, t in decided.ranking] == sorted(medians.values())


def test_a_record_names_its_ties(task: Task) -> None:
    """By space and configuration; without ties it says nothing."""
    a, b = (record_of(task, {"number": k}, 1.0) for k in range(2))
    assert final.tie_message([a, b]) == "as quick, within 2%: generic number=0; generic number=1"
    assert final.tie_message([]) == ""


def test_a_final_without_finalists_decides_nothing() -> None:
    """As where none could be timed again."""
    assert final.decide([{"a": []}], {}, lambda _: 0, lambda record, *_: record) is None
    assert final.decide([], {}, lambda _: 0, lambda record, *_: record) is None


def test_simple_is_what_differs_least_from_the_default(task: Task, store: str) -> None:
    """Counted in parameters."""
    with fe.Database(store) as database:
        search = TuningSearch(task, database, "generic", None, "exhaustive")
    default = choices(task)[0]
    for configuration in choices(task):
        different = sum(default[name] != value for name, value in configuration.items())
        assert search.complexity(record_of(task, configuration, 1.0)) == different


def test_a_search_begins_with_what_was_best_for_similar_problems(
    task: Task, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest lengths first, then what the cost model expects to be quick, then the default."""
    cs = choices(task)
    monkeypatch.setattr("feinsum.candidates.predicted.cost_model", lambda: slower_with("generic.items", 50.0))
    with fe.Database(store) as database:
        near, far = make_task(GEMM, {"N": 2000}, CPU), make_task(GEMM, {"N": 10**6}, CPU)
        database.add([record_of(near, cs[7], 1.0), record_of(near, cs[4], 2.0), record_of(far, cs[9], 0.5)])
        search = TuningSearch(task, database, "generic", None, "random")
        first = [trial.configuration for _ in range(6) if (trial := search.next_trial()) is not None]
    assert first[:2] == [cs[7], cs[9]]
    assert all(configuration["items"] < 50 for configuration in first[2:5])
    assert first[5] == cs[0]


def test_a_search_may_be_told_what_to_begin_with(task: Task, store: str) -> None:
    """Parts of configurations, the rest being the default's; what is refused is the nearest there is; no other names."""
    begin = [{"items": 128}, {"items": 250, "lane": "longest"}]
    with fe.Database(store) as database:
        database.add([record_of(make_task(GEMM, {"N": 2000}, CPU), choices(task)[7], 1.0)])
        search = TuningSearch(task, database, "generic", None, "random", begin)
        first = [trial.configuration for _ in range(2) if (trial := search.next_trial()) is not None]
        default = choices(task)[0]
        assert first == [{**default, "items": 128}, {**default, "items": 256, "lane": "longest"}]
        with pytest.raises(SearchError, match=r"begin has 'size', which is no parameter of 'generic'; items, lane, .* are"):
            TuningSearch(task, database, "generic", None, None, [{"size": 3}])


def test_a_space_gets_trials_by_how_quick_its_best_is(store: str) -> None:
    """After the same few for each, one that is four times behind gets a quarter, one without success an eighth."""
    task = make_task(GEMM, {"N": 1000}, CPU)
    times_s = {"vector_panels": 1.0, "contraction_steps": 4.0, "generic": 1.0}
    asked: list[str] = []
    with fe.Database(store) as database:
        search = TuningSearch(task, database, None, None, "random")
        for _ in range(150):
            trial = search.next_trial()
            assert trial is not None
            asked.append(trial.space)
            samples_s = [times_s[trial.space]] if trial.space in times_s else []
            outcome = Outcome("ok" if samples_s else "wrong", samples_s=tuple(samples_s))
            search.tell(task.record(trial, outcome, 1))
    panels, steps, products = (asked.count(name) for name in ("vector_panels", "contraction_steps", "matrix_product"))
    assert panels == pytest.approx(4 * steps, rel=0.1)
    assert panels == pytest.approx(8 * products, rel=0.2)


def test_the_winner_of_the_last_final_is_the_best_known(task: Task, store: str) -> None:
    """Whatever luck a trial had; but what is quicker by far was found by a run that did not come to its final."""
    a, b, c = choices(task)[:3]
    with fe.Database(store) as database:
        winner, far = record_of(task, b, 1.01, protocol=FINAL_PROTOCOL), record_of(task, c, 0.5)
        database.add([record_of(task, a, 0.95), winner])
        assert TuningSearch(task, database, "generic", None, None).best == winner
        database.add(far)
        assert TuningSearch(task, database, "generic", None, None).best == far


def test_finalists_are_timed_alternately(cpu: Device) -> None:
    """Each of those that are right, in every round; what fails has no samples."""
    task, space = make_task(GEMM, {"N": 1000}, cpu), find_space("generic")
    good = [task.trial(space, configuration) for configuration in choices(task)[:2]]
    bad = task.trial(space, {"gone": 1})
    with TrialRunner(cpu.profile, 1, 60) as runner:
        rounds = runner.compare([*good, bad], 0.1)
    assert all(set(found) <= {trial.id for trial in good} for found in rounds)
    assert set(rounds[0]) == set(rounds[3]) == {trial.id for trial in good}
    assert all(samples for found in rounds for samples in found.values())


def test_a_final_says_how_sure_it_is(task: Task) -> None:
    """The ratio to the quickest that is no tie, with its interval, in the record; what is dropped keeps its rank."""
    cs = dict(zip("abc", choices(task), strict=False))
    records = {name: record_of(task, cs[name], 5.0) for name in cs}
    times_s = {"a": 1.0, "b": 1.3, "c": 1.01}
    rounds = [{name: [t * (1 + 1e-3 * k), t] for name, t in times_s.items()} for k in range(16)]
    rounds += [{name: [t] for name, t in times_s.items() if name != "b"} for _ in range(16)]
    said: list[str] = []

    def remember(record: fe.TuningRecord, samples: Sequence[float], message: str) -> fe.TuningRecord:
        said.append(message)
        return record_of(task, dict(record.configuration), *samples, protocol=FINAL_PROTOCOL)

    decided = final.decide(rounds, records, lambda record: 0 if record is records["a"] else 1, remember)
    assert decided is not None
    assert decided.winner.configuration == cs["a"]
    assert [c.verdict for c in decided.comparisons] == ["tie", "faster"]
    tie, verdict = said[0].split("; ")
    assert tie.startswith("as quick, within 2%: generic ")
    assert verdict.startswith("1.3 times as fast (95% interval 1.3 to 1.3) as generic ")
    final.decide(rounds[:3], records, lambda record: 0 if record is records["a"] else 1, remember)
    assert "1.3 times as fast (inconclusive after 3 rounds) as generic " in said[1]


def test_the_time_limit_of_a_paused_worker_stands_still(cpu: Device) -> None:
    """So that a build is not said to hang because another variant is being timed."""
    task = make_task(GEMM, {"N": 1000}, cpu)
    trial = task.trial(find_space("generic"), choices(task)[0])
    worker = Worker("build", cpu.id)
    try:
        assert not isinstance(worker.build(trial, 60), Outcome)
        worker.pause()
        threading.Timer(4.0, worker.resume).start()
        begin = time.monotonic()
        assert not isinstance(worker.build(trial, 3.0), Outcome)
        assert time.monotonic() - begin >= 3.5
    finally:
        worker.close()


def test_a_search_begins_with_winners_of_older_versions(task: Task, store: str) -> None:
    """So that a new version of a space is at least tried where the old one was quick."""
    space = find_space("generic")
    newer = replace(space, version=space.version + 1)
    quick = choices(task)[-1]
    with fe.Database(store) as database:
        database.add(record_of(task, quick, 0.5))
        assert _space_search(task, database, newer, None, "random").ask() == quick
        assert _space_search(task, database, space, None, "random").ask() != quick


def test_a_search_begins_with_winners_of_other_rows_and_types(store: str) -> None:
    """The nearest first, each made to fit: a choice that is none here gives way to the nearest that is."""

    def products(rows: int, dtype: str) -> Task:
        A, B = fe.array("A", (16, 16), dtype), [fe.array(f"B{k}", ("N", 16), dtype) for k in range(rows)]
        return make_task(fe.batched_einsum("ij,nj->ni", [[A, b] for b in B]), {"N": 1000}, CPU)

    space = find_space("vector_panels")
    task, others = products(3, "float64"), [products(2, "float64"), products(3, "float32")]
    recorded = [space.default(other.problem(space)) for other in others]
    assert [c["width"] for c in recorded] == [8, 16]
    recorded[1]["streaming"] = not recorded[0]["streaming"]
    with fe.Database(store) as database:
        for other, configuration in zip(others, recorded, strict=True):
            trial = other.trial(space, configuration)
            database.add(other.record(trial, Outcome("ok", samples_s=(1.0,))))
        sampler = _space_search(task, database, space, None, "random").sampler
        first = [sampler.ask(), sampler.ask()]
    assert first == [recorded[0], recorded[1] | {"width": 8}]
