"""Job files: what they say is done, a shard at a time, and what is malformed is one clear line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plugins import install, installing
from rogues import SOURCE

import feinsum as fe
from feinsum.devices import Device
from feinsum.errors import JobError
from feinsum.search import SAMPLERS
from feinsum.timing import FINAL_PROTOCOL
from feinsum.tune.batch import JobResult, Shard, run_batch
from feinsum.tune.device_lanes import several
from feinsum.tune.jobs import Job, read_jobs

FILE = """
database = "night.sqlite"
devices = ["cpu"]
trials = 2
space = "generic"

[[einsum]]
subscripts = "ij,ej->ei"
shapes = {D = ["n", "n"], u = ["E", "n"]}
dtypes = ["float32", "float64"]
fixed = {n = [4, 5]}
sizes = {E = [100, 200]}

[[einsum]]
subscripts = "ij,jk->ik"
shapes = {A = [8, 9], B = [9, 7], C = [9, 7]}
rows = [["A", "B"], ["A", "B*C"]]
trials = 1
timeout = 50
seed = 7
"""


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """A job file of nine jobs."""
    path = tmp_path / "night.toml"
    path.write_text(FILE)
    return path


def test_a_job_is_made_of_every_combination(night: Path) -> None:
    """Of types, fixed lengths, lengths of long axes and devices; an einsum's own values come before the common ones."""
    file = read_jobs(night)
    assert file.database == str(night.parent / "night.sqlite")
    *first, last = file.jobs
    D, u = (fe.array("D", (5, 5), "float32"), fe.array("u", ("E", 5), "float32"))
    assert len(first) == 8
    assert first[3] == Job(fe.einsum("ij,ej->ei", D, u), {"E": 200}, "cpu", 2, None, "generic")
    assert (last.einsum.b, last.trials, last.timeout, last.seed, last.sizes) == (2, 1, 50.0, 7, {})
    assert str(first[0]) == "ij,ej->ei [D u] D: float32[4, 4], u: float32[E, 4] at E=100 on cpu"


def test_without_a_budget_a_job_takes_a_minute(tmp_path: Path) -> None:
    """And without a device, the best one does it."""
    path = tmp_path / "short.toml"
    path.write_text('[[einsum]]\nsubscripts = "i,i->"\nshapes = {x = ["N"], y = ["N"]}\nsizes = {N = 10}\n')
    (job,) = read_jobs(path).jobs
    assert (job.timeout, job.trials, job.device) == (60.0, None, None)


def test_a_job_says_what_to_begin_with(tmp_path: Path) -> None:
    """Configurations of its space, or parts of them, as they stand in the file."""
    path = tmp_path / "begin.toml"
    path.write_text(einsum(space='"generic"', begin='[{work_group = 64, unroll = "all"}, {unroll = false}]'))
    assert read_jobs(path).jobs[0].begin == ({"work_group": 64, "unroll": "all"}, {"unroll": False})


def test_a_job_may_make_something_of_its_sums(tmp_path: Path) -> None:
    """Arrays that only an epilogue reads are no operands; a row may have an epilogue of its own."""
    path = tmp_path / "then.toml"
    shapes = '{D = [4, 4], u = ["E", 4], b = [4]}'
    rows = '[["D", "u"], ["D", "w"]]\nshapes = {D = [4, 4], u = ["E", 4], w = ["E", 4]}'
    path.write_text(einsum(then='"out + v*b[i]"', shapes=shapes) + einsum(then='["v", "v + out"]', rows=rows, shapes=""))
    first, second = (job.einsum for job in read_jobs(path).jobs)
    D, u, w = fe.array("D", (4, 4)), fe.array("u", ("E", 4)), fe.array("w", ("E", 4))
    assert first == fe.einsum("ij,ej->ei", D, u).then("out + v*b[i]", b=fe.array("b", (4,)))
    assert second == fe.batched_einsum("ij,ej->ei", [[D, u], [D, w]]).then(["v", "v + out"])


def einsum(**changes: str) -> str:
    """One [[einsum]] as text, with keys changed."""
    lines = {"subscripts": '"ij,ej->ei"', "shapes": '{D = [4, 4], u = ["E", 4]}', "sizes": "{E = 10}", **changes}
    return "[[einsum]]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items() if value)


MALFORMED = {
    "not TOML": ("[[einsum", "Expected ']]'"),
    "nothing": ("", r"there is no \[\[einsum\]\]; write one for each einsum"),
    "no table": ("einsum = 3", r"there is no \[\[einsum\]\]"),
    "unknown key": (
        "tirals = 3\n" + einsum(),
        r"the top of the file has the key 'tirals'; known are database, devices, .*; each einsum is a table \[\[einsum\]\]",
    ),
    "steps at another time": (einsum(steps='"often"'), "steps is 'often'"),
    "unknown key of one": (einsum(size="3"), r"\[\[einsum\]\] 1 has the key 'size'; known are"),
    "no subscripts": (einsum(subscripts=""), r"\[\[einsum\]\] 1: the key 'subscripts' is missing"),
    "bad subscripts": (einsum(subscripts='"ij,ej->ek"'), r"\[\[einsum\]\] 1: .*k"),
    "subscripts of another type": (einsum(subscripts="3"), "subscripts is 3, not a text"),
    "no shapes": (einsum(shapes="{}"), "shapes is no table like"),
    "a shape that is none": (einsum(shapes='{D = 3, u = ["E", 4]}'), "the shape of 'D' is no list of lengths and names"),
    "an axis that is none": (einsum(shapes='{D = [4, true], u = ["E", 4]}'), "the shape of 'D' has True, which is neither"),
    "lengths that differ": (einsum(shapes='{D = [4, 4], u = ["E", 5]}'), "index 'j' is 4 in .* but 5 in"),
    "a missing length": (einsum(sizes=""), "the long axis 'E' of 'ij,ej->ei' has no length"),
    "a length that is none": (einsum(sizes='{E = "many"}'), "sizes.E is 'many', not a number"),
    "a negative length": (einsum(sizes="{E = -1}"), "sizes.E is -1; it is a number from 0 on"),
    "a fixed length of nothing": (einsum(fixed="{m = 3}"), "fixed has 'm', which is no axis of shapes"),
    "a type that is none": (einsum(dtypes='["float31"]'), "float31"),
    "no types": (einsum(dtypes="[]"), "dtypes is empty"),
    "a row of nothing known": (einsum(rows='[["D", "v"]]'), "rows has 'v', but shapes has D, u"),
    "an array of nothing known": (einsum(then='"v + b[i]"'), "then reads 'b', but shapes has D, u"),
    "an epilogue that is none": (einsum(then='"v +"'), r"the epilogue 'v \+' is no expression"),
    "no trials": (einsum(trials="0"), "trials is 0; it is a number from 1 on"),
    "a budget that is none": (einsum(timeout="nan"), "timeout is nan; it is a number from 0 on"),
    "a sampler that is none": (einsum(sampler='"best"'), "sampler is 'best', not one of exhaustive, random"),
    "a beginning of no space": (einsum(begin="[{a = 1}]"), "begin has values of parameters, so it needs the key 'space'"),
    "a beginning that is none": (einsum(space='"generic"', begin='["x"]'), "begin is 'x', not a table of parameters"),
    "a beginning of lists": (einsum(space='"generic"', begin="[{a = [1]}]"), "begin is .*, not a table of parameters"),
    "too many jobs": (einsum(sizes=f"{{E = {list(range(400))}, F = {list(range(400))}}}"), "more than 100000"),
    "nested deeply": ("a = " + "[" * 5000, "nested|Invalid|Unclosed|too deep"),
    "no text": (b"\xff\xfe", "it is no text in UTF-8"),
    "much": ("#" * (1 << 20) + "\n", "it is longer than 1048576 bytes"),
}


@pytest.mark.parametrize(("text", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_one_clear_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    """Which names the file, the place, what is there and what should be."""
    path = tmp_path / "bad.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(JobError, match=message) as caught:
        read_jobs(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With what the system says."""
    with pytest.raises(JobError, match=r"cannot read .*gone\.toml: No such file"):
        read_jobs(tmp_path / "gone.toml")


def test_a_job_after_which_nothing_is_right_has_failed(cpu: Device, store: str, tmp_path: Path) -> None:
    """It says how its trials ended, or that there was no time for one; so does the next run."""
    install(tmp_path, "rogues_package", SOURCE)
    e = fe.einsum("abc,c->ba", fe.array("A", (40, "N", 30)), fe.array("x", 30))
    common: dict[str, Any] = {"space": "rogue", "sampler": "exhaustive"}
    bad = Job(e, {"N": 50}, "cpu", 2, begin=({"way": "wrong"}, {"way": "refused"}), **common)
    short = Job(e, {"N": 60}, "cpu", timeout=0.0, **common)
    with installing(tmp_path):
        wrong, late = run_batch([bad, short], store, workers=1, progress=False)
        assert str(wrong).endswith(": failed: no configuration is right: 1 wrong, 1 refused")
        assert str(late).endswith(": failed: 0 s were over before a configuration could be tried; give it more time")
        assert late.report is not None
        assert late.report.records == ()
        (again,) = run_batch([bad], store, workers=1, progress=False)
        assert str(again).endswith(": failed: no configuration that was tried before is right")


def test_a_failed_job_is_an_exit_code(tmp_path: Path) -> None:
    """Of 1, and a line that says why; the other jobs are done."""
    path = tmp_path / "short.toml"
    path.write_text(einsum(timeout="0") + einsum(trials="1", space='"generic"'))
    done = feinsum("tune", str(path), "--workers", "1", cwd=tmp_path)
    first, second = done.stdout.splitlines()
    assert "failed: 0 s were over before a configuration could be tried" in first
    assert ": tuned, " in second
    assert done.returncode == 1


def test_shards_divide_the_jobs(night: Path) -> None:
    """Every job belongs to one of them."""
    jobs = read_jobs(night).jobs
    parts = [Shard(k, 4).of(jobs) for k in range(1, 5)]
    assert sorted(map(len, parts)) == [2, 2, 2, 3]
    assert sorted(map(str, sum(map(tuple, parts), ()))) == sorted(map(str, jobs))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "-1/4", "1/4/2", "a/b", "٣/٤"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    """With what to write."""
    with pytest.raises(JobError, match=r"the shard is .*; write 1/8, 2/8, [.]{3} or 8/8"):
        Shard.parse(text)


def feinsum(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "feinsum", *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )


def test_what_a_shard_or_the_batch_has_done_is_skipped(night: Path) -> None:
    """A shard looks into its own store and into that of the batch, and tries only what is missing."""
    database, job = str(night.parent / "night.sqlite"), read_jobs(night).jobs[0]
    first, second = Shard(1, 2), Shard(2, 2)
    assert first.store(database) == str(night.parent / "night.1-of-2.sqlite")
    assert first.store("postgresql://host/records") == "postgresql://host/records"

    def do(shard: Shard, trials: int) -> JobResult:
        jobs = [replace(job, trials=trials)] * 2
        (result,) = run_batch(jobs, database, shard=shard, workers=1, progress=False)
        return result

    assert [do(first, trials).status for trials in (1, 1)] == ["tuned", "done"]
    more = do(first, 3)
    assert more.report is not None
    assert len(more.report.records) == 2
    assert do(second, 1).status == "tuned"
    with fe.Database(database) as merged:
        merged.merge(str(first.store(database)))
    assert do(second, 3).status == "done"


def test_lanes_share_the_jobs_of_equal_devices(cpu: Device, store: str) -> None:
    """Each job is done once, by whichever is free, into one store; each device of another kind would do all of them."""
    jobs = [
        Job(fe.einsum("ij,jk->ik", fe.array("A", (8, n)), fe.array("B", (n, 7))), {}, "gone", 1, space="generic")
        for n in (3, 4, 5)
    ]
    told: list[JobResult] = []
    results = run_batch(jobs, store, workers=1, tell=told.append, devices=(cpu, cpu))
    assert results == told
    assert [result.status for result in results] == ["tuned"] * 3
    assert {str(result.job) for result in results} == {str(replace(job, device=cpu.word)) for job in jobs}
    assert {result.status for result in run_batch(jobs, store, workers=1, devices=(cpu,))} == {"done"}


@pytest.mark.parametrize(("words", "message"), [("cpu,cpu", "means .* twice"), ("cpu,gone", "fits 'gone'")])
def test_lanes_are_different_devices(cpu: Device, words: str, message: str) -> None:
    assert several(cpu.word) == (cpu,)
    with pytest.raises(fe.DeviceError, match=message):
        several(words)


def test_a_job_that_fails_does_not_end_the_batch(cpu: Device, store: str) -> None:
    """It is told, and the others are done; a job with a time is done when its final was held."""
    e = fe.einsum("ij,jk->ik", fe.array("A", (8, 9)), fe.array("B", (9, 7)))
    jobs = [
        Job(e, {}, "no such device", 1),
        Job(e, {}, "cpu", 1, space="gone"),
        Job(e, {}, "cpu", timeout=0.5, space="generic"),
    ]
    told: list[JobResult] = []
    options: dict[str, Any] = {"workers": 1, "progress": False, "tell": told.append}
    results = run_batch(jobs, store, **options)
    assert results == told
    assert [result.status for result in results] == ["failed", "failed", "tuned"]
    assert "no transform space named 'gone'" in str(results[1])
    assert "no such device" in str(results[0])
    assert [result.status for result in run_batch(jobs[2:], store, **options)] == ["done"]


def test_the_log_of_a_batch_says_how_far_it_is(night: Path) -> None:
    """Which job of how many, at which lengths, its trials, its best and the time left, each line with the time."""
    night.write_text(FILE.replace("[4, 5]", "4").replace("[100, 200]", "100"))
    done = feinsum("tune", "night.toml", cwd=night.parent)
    assert done.returncode == 0, done.stderr
    stamp = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    lines = [line for line in done.stderr.splitlines() if "job " in line]
    jobs = 3
    begun = [line for line in lines if re.search(rf"{stamp}job \d+/{jobs} begins, (2 trials|1 trial and 50 s): ", line)]
    assert len(begun) == jobs
    assert " at E=100 on cpu" in begun[0]
    told = [line for line in lines if re.search(rf"{stamp}job \d+/{jobs}( at E=100)?: (best|nothing)", line)]
    assert len(told) == jobs
    assert all(re.search(r"\d+ of \d+ tried, .* \d+:\d\d left$", line) for line in told)


def test_the_second_run_at_a_store_says_so(cpu: Device, store: str, caplog: pytest.LogCaptureFixture) -> None:
    """It names the process of the first, and goes on; a run after another has nothing to say."""
    e = fe.einsum("i,i->i", fe.array("x", (64,)), fe.array("y", (64,)))
    how: dict[str, Any] = {"trials": 1, "workers": 1, "space": "generic", "progress": False}
    fe.autotune(e, cpu, store, **how)
    fe.autotune(e, cpu, store, **how, seed=1)
    assert "another run" not in caplog.text
    holding = (
        "import sys; from feinsum.tune.recorder import noting_others\n"
        "with noting_others(sys.argv[1]): print('begun', flush=True); sys.stdin.read()"
    )
    with (
        fe.Database(store) as database,
        subprocess.Popen(
            [sys.executable, "-c", holding, database.location], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as first,
    ):
        assert first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        fe.autotune(e, cpu, store, **how, seed=2)
        assert f"another run, process {first.pid}, records in {database.location} at the same time" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.toml"], "feinsum: cannot read gone.toml: No such file or directory"),
        (["night.toml", "--shard", "9"], "feinsum: the shard is '9'; write 1/8, 2/8, ... or 8/8 for the parts of eight"),
        (["night.toml", "--trials", "3"], "--trials does not go with a job file; write it into the file"),
        (["i,i->", "--shape", "x=3", "--shape", "y=3", "--shard", "1/2"], "--shard divides the jobs of a job file"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(night: Path, arguments: list[str], message: str) -> None:
    """With exit code 2, before anything is done."""
    done = feinsum("tune", *arguments, cwd=night.parent)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line


def test_a_run_on_the_command_line_writes_its_report(tmp_path: Path) -> None:
    """As JSON to the standard output and as a page to a file; on ``--sampler``, ``--workers`` and ``--seed``."""
    einsum = ["i,i->i", "--shape", "x=64", "--shape", "y=64", "--device", "cpu", "--database", "store.sqlite"]
    how = ["--trials", "2", "--workers", "1", "--sampler", "random", "--seed", "3", "--html", "report.html", "--json"]
    done = feinsum("tune", *einsum, *how, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["tried"], report["best"]["seed"]) == (2, 3)
    assert report["best"]["protocol"] == FINAL_PROTOCOL
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    wrong = feinsum("tune", *einsum, "--sampler", "best", cwd=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr == f"feinsum: there is no sampler 'best'; there are {', '.join(SAMPLERS)}\n"
