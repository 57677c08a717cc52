"""The benchmarks run, and what they say of their engines is so.  No test asserts a time."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import feinsum as fe
from benchmarks import report
from benchmarks.__main__ import COMMANDS
from benchmarks.cases import CASES, describe, long_sizes
from benchmarks.cases.epilogues import STEP, UPDATE
from benchmarks.cases.epilogues import Case as Updated
from benchmarks.cases.lists import WORKLOADS, seissol_cases, select
from benchmarks.cases.tensor import cases as tensor_cases
from benchmarks.engines.problem import Problem, Values, write_problem
from benchmarks.engines.process import CutOffError, EngineProcess, FailedError, engine_environment
from benchmarks.engines.programs import Language, in_program, plan_of_elements
from benchmarks.measure import alternating
from benchmarks.peers import PEERS
from benchmarks.peers.arrays import Numpy, OptEinsum, Tblis
from benchmarks.peers.base import Engine
from benchmarks.peers.loops import loops_source
from benchmarks.peers.matrices import Libxsmm, Matrices, Onemkl
from benchmarks.rows import (
    Row,
    best_peer,
    fraction,
    geometric_mean,
    headline,
    read_rows,
    seconds,
    speed_up,
    summary,
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
THREADS = (ROOT / "doc" / "guides" / "threads.rst").read_text(encoding="utf-8")


def small(name: str) -> fe.BatchedEinsum:
    """A case of the suite at sizes that take no time."""
    e = describe(select([name])[0], "cpu", "float64")
    rank = {length: k for k, length in enumerate(sorted(set(e.index_sizes.values())))}
    return e.with_sizes({letter: 2 + rank[length] for letter, length in e.index_sizes.items()})


@pytest.fixture
def problem(request: pytest.FixtureRequest, tmp_path: Path, cpu: fe.Device) -> Problem:
    """The small version of a case, on disk."""
    return write_problem(str(tmp_path), small(request.param), {}, side="cpu", device=cpu)


FLOATS = [case["name"] for case in CASES if "float64" in case["dtypes"]]


class NumpyMatrices(Matrices):
    """What peers of matrix products make of an einsum, where none of their libraries is installed."""

    def multiply(self, a: Values, b: Values, c: Values) -> None:
        assert all(values.flags.c_contiguous for values in (a, b, c))
        np.matmul(a, b, out=c)


@pytest.mark.parametrize("problem", FLOATS, indirect=True)
@pytest.mark.parametrize("engine", [Numpy, OptEinsum, Tblis, Onemkl, Libxsmm, NumpyMatrices])
def test_peers_are_right(problem: Problem, engine: type[Engine]) -> None:
    """Those that are installed give the expected outputs of every case, one array for each."""
    try:
        peer = engine()
    except ImportError as error:
        pytest.skip(str(error))
    peer.take(problem)
    peer.first()
    assert len(peer.outputs()) == len(problem.rows)
    assert problem.error(peer.outputs()) <= 1


@pytest.mark.parametrize("problem", FLOATS, indirect=True)
def test_loops_are_right(problem: Problem) -> None:
    """The loops written for numba, run as plain Python, give the expected outputs of every case."""
    scope = {"np": np, "prange": range}
    exec(loops_source(problem), scope)
    shape = [problem.lengths[letter] for letter in problem.output]
    outputs = [np.full(shape, np.nan) for _ in problem.rows]
    scope["run"](*problem.inputs().values(), *outputs)
    assert problem.error(outputs) <= 1


ROUND_TRIP = """
import numpy as np
from benchmarks.peers import installed_here
from benchmarks.peers.base import Work
x, y, z = np.random.default_rng(0).random((3, 4, 4))
work = Work({"x": x, "y": y, "z": z}, lambda xp, x, y, z: xp.einsum("ij,jk->ik", x, y) + z, "z")
for name, peer in installed_here(["numpy", "torch", "jax"]):
    for dtype in ("float32", "float64"):
        given = np.arange(6, dtype=dtype).reshape(2, 3)
        fetched = peer.fetch(peer.adopt(given.copy(), "cpu"))
        assert fetched.dtype == given.dtype and (fetched == given).all(), (name, dtype)
    offer = next(peer.offers(name, work, "cpu"))
    assert offer.name == name and np.allclose(offer.fetch(), x @ y + z), name
"""


def test_peers_do_what_is_no_einsum() -> None:
    """Arrays come back as they were given, and a function written once gives the same; in a new process, as peers configure
    libraries."""
    done = subprocess.run([sys.executable, "-c", ROUND_TRIP], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", [UPDATE, STEP])
@pytest.mark.parametrize("subscripts", ["ik,kj->ij", "ij,ej->ei", "eij,ej->ei", "ij,jk,kl->il"])
def test_updates_by_hand_are_right(subscripts: str, text: str) -> None:
    """What numpy is given for epilogues is what the function for all peers computes."""
    terms = subscripts.partition("->")[0].split(",")
    e = fe.einsum(subscripts, *(fe.array(f"a{k}", (3,) * len(term)) for k, term in enumerate(terms)))
    work = Updated("small", e, text).work()
    functions = Numpy().functions()
    expected = work.compute(functions, **work.arrays)
    found = work.special["numpy"](functions, **{name: value.copy() for name, value in work.arrays.items()})
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_samples_alternate() -> None:
    """So many of each, without those of the first round; nobody drops out, however slow."""
    asked: list[str] = []

    def timed(name: str, seconds: float) -> float:
        asked.append(name)
        return seconds

    samples = alternating({name: partial(timed, name, s) for name, s in (("a", 1.0), ("b", 9.0))}, 20)
    assert samples == {"a": [1.0] * 20, "b": [9.0] * 20}
    assert asked[:6] == ["a", "b", "b", "a", "a", "b"]


@pytest.mark.parametrize("problem", ["dg_grad_p3_m1"], indirect=True)
def test_errors_are_found(problem: Problem) -> None:
    """One entry that is off by more than rounding, or is not a number, is an error."""
    peer = Numpy()
    peer.take(problem)
    peer.first()
    (right,) = peer.outputs()
    for wrong in (1e-12, np.nan):
        spoilt = right.copy()
        spoilt[0, 0, 0] += wrong
        assert problem.error([spoilt]) > 1


def test_a_run_of_the_suite(tmp_path: Path) -> None:
    """One case beside numpy and a peer that is not there: a row with both engines, a page, and a line on the absent one."""
    out, page = tmp_path / "results.jsonl", tmp_path / "page.rst"
    arguments = f"suite --cases ml_bilinear --dtypes float32 --peers numpy,cupy --seconds 0.05 --rounds 2 --out {out}"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments.split(), "--device", "cpu", "--report", page],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "cupy is left out" in done.stdout
    (row,) = read_rows(out)
    assert {name: engine["status"] for name, engine in row["engines"].items()} == {"feinsum": "ok", "numpy": "ok"}
    assert row["flops"] / row["peaks"]["fp32_flops_per_s"] <= row["roofline_s"] * 1.001
    assert row["bytes"] / row["peaks"]["copy_bytes_per_s"] <= row["roofline_s"] * 1.001
    assert "ml_bilinear" in page.read_text()


def test_peers_start_without_settings_that_slow_them_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """OPENBLAS_CORETYPE halves the speed of numpy; the BLAS in use is told with its kernels and threads."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "1")
    assert not any(name.startswith("OPENBLAS_C") or "L2" in name for name in engine_environment("numpy"))


def test_peers_of_a_restricted_runtime_have_the_same_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under AVX2 numpy's BLAS has AVX2 kernels, while feinsum's own process keeps its settings."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "SkylakeX")
    monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", "core-avx2")
    assert engine_environment("numpy")["OPENBLAS_CORETYPE"] == "Haswell"
    assert "OPENBLAS_CORETYPE" not in engine_environment("feinsum")
    with EngineProcess("numpy") as engine:
        libraries = engine.ask(60.0, "hello")["libraries"]
    assert all("threads)" in name and "Prescott" not in name for name in libraries)


@pytest.mark.parametrize("name", PEERS)
def test_peers_that_are_absent_say_why(name: str) -> None:
    """Each engine answers with its versions, or with what is missing; none is ended by an absent library."""
    absent = "^(ImportError|ModuleNotFoundError|PackageNotFoundError|OSError): ."
    with EngineProcess(name) as engine:
        try:
            assert engine.ask(120.0, "hello")["versions"]
        except FailedError as error:
            if not re.match(absent, str(error)):
                pytest.fail(f"{name}: {error}")


def test_processes_are_cut_off_and_come_back() -> None:
    """An engine that does not answer in time is killed; asked again, a new one answers; its errors are told."""
    with EngineProcess("numpy") as engine:
        with pytest.raises(CutOffError, match="no answer to 'hello' within 0 s"):
            engine.ask(0.0, "hello")
        assert engine.ask(60.0, "hello")["versions"] == {"numpy": np.__version__}
        with pytest.raises(FailedError, match="FileNotFoundError"):
            engine.ask(60.0, "load", directory="/nowhere")
        assert engine.ask(60.0, "hello")


def made_row(**times_s: float) -> Row:
    """A row whose roofline is one second."""
    engines = {name: summary([{"samples_s": [t], "cpu_s": t / 2}]) | {"status": "ok"} for name, t in times_s.items()}
    return {
        "command": "suite", "case": "c", "family": "f", "dtype": "float64", "side": "cpu",
        "flops": 10, "bytes": 5, "roofline_s": 1.0, "date": "2026-11-20", "load": 0.0, "versions": {"numpy": "2"},
        "engines": engines,
        "peaks": {"fp64_flops_per_s": 10.0, "fp32_flops_per_s": 20.0, "copy_bytes_per_s": 5.0},
        "machine": {"device": "d", "name": "n", "driver": "v", "processor": "p", "cores": 2, "python": "3"},
    }  # fmt: skip


def test_figures() -> None:
    """The best peer is the quickest; speed-up and fraction compare with it and with the roofline."""
    row = made_row(feinsum=2.0, numpy=8.0, jax=5.0)
    assert best_peer(row) == "jax"
    assert speed_up(row) == speed_up(row, "cpu_s") == 2.5
    assert fraction(row) == 0.5
    assert fraction(row, "jax") == 0.2
    assert geometric_mean([1.0, None, 4.0]) == 2.0
    assert headline([row]) == "best of jax (in 1), numpy (in 0)"


def test_rows_without_ours_or_a_peer() -> None:
    """Where ours failed or there is no peer, figures are missing instead of wrong, and the table has dashes."""
    alone, without = made_row(feinsum=2.0), made_row(numpy=1.0)
    assert best_peer(alone) is None
    assert speed_up(alone) is None
    assert speed_up(without) is None
    assert fraction(without) is None
    of_alone, of_without = (
        dict(zip(report.SUITE, report.cells(row, report.SUITE), strict=True)) for row in (alone, without)
    )
    assert [of_alone[x] for x in ("peer ms", "peer", "times", "by cpu", "peer's")] == ["-"] * 5
    assert [of_without[x] for x in ("ours ms", "times", "GFLOP/s", "GB/s", "roofline")] == ["-"] * 5
    assert report.row_table("", [alone], report.SUITE).headings == [
        "case",
        "type",
        "ours ms",
        "±",
        "GFLOP/s",
        "GB/s",
        "roofline",
    ]


def test_summaries_are_medians() -> None:
    """Over the turns, however many samples each has: the second was slowed down."""
    turns = [([1.0, 2.0], 1.0), ([9.0, 9.0, 9.0, 9.0], 3.0), ([2.0], 2.0)]
    told = summary([{"samples_s": samples, "cpu_s": cpu} for samples, cpu in turns])
    assert told == {
        "median_s": 2.0, "mad_s": 7.0, "least_s": 1.0, "samples": 7, "turns_s": [1.5, 9.0, 2.0], "cpu_s": 2.0
    }  # fmt: skip


def test_later_results_replace_earlier_ones(tmp_path: Path) -> None:
    """Of two rows for one case, type, side and device, the last counts; a page is made of it."""
    results, page = tmp_path / "r.jsonl", tmp_path / "page.rst"
    rows = [made_row(feinsum=t, numpy=4.0) for t in (2.0, 1.0)]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_rows(results) == rows[1:]
    report.write_page(rows[1:], page)
    assert '"c", "float64", "1000.000"' in page.read_text()


def test_elements_of_a_mesh_are_a_long_axis() -> None:
    """As users describe them; a tensor contraction has no long axis, and unknown cases are refused."""
    (case,) = select(["dg_grad_p3_m1"])
    e = describe(case, "cpu", "float64", long=True)
    assert e.long_axes == ("E",)
    assert e.resolve(long_sizes(case, "cpu")) == case["cpu"]["sizes"]
    assert long_sizes(select(["tccg_31"])[0], "cpu") == {}
    with pytest.raises(ValueError, match="there is no case 'nothing'; there are dg_"):
        select(["nothing"])


def test_commands_are_listed() -> None:
    """Without a command, all are listed, and every one of them is a function of a module."""
    done = subprocess.run([sys.executable, "-m", "benchmarks"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    names = [line.split()[0] for line in done.stderr.splitlines() if line.startswith("  ")]
    assert names == list(COMMANDS)
    for name, entry in COMMANDS.items():
        assert callable(getattr(importlib.import_module(f"benchmarks.{entry.module}"), entry.function)), name


@pytest.mark.parametrize("name", WORKLOADS)
def test_programs_of_seissol_compute_their_einsums(name: str) -> None:
    """Interpreted, for arrays as numpy has them; a batch of elements in all of them."""
    (case,) = seissol_cases([name], [4])
    e = describe(case, "cpu", "float64", long=True)
    sizes = e.resolve({"E": 2})
    rng = np.random.default_rng(0)
    arrays = {a.name: rng.uniform(-1, 1, [sizes[x] for x in t]) for a, t in zip(e.arrays, e.indexing.inputs, strict=True)}
    out = np.full([sizes[x] for x in e.indexing.output], np.nan)
    given = {a: in_program(e, a, value) for a, value in arrays.items()}
    plan_of_elements(e).interpret(**given, out=in_program(e, "out", out))
    np.testing.assert_allclose(out, np.einsum(e.subscripts, *arrays.values(), optimize=True), rtol=1e-12, atol=1e-12)


def test_programs_of_seissol_are_timed_beside_others(cpu: fe.Device, tmp_path: Path) -> None:
    """As an engine: each of the three ways is right, and is timed as often as the others."""
    (case,) = seissol_cases(["premultiplied"], [4])
    problem = write_problem(str(tmp_path), describe(case, "cpu", "float32", long=True), {"E": 11}, side="cpu", device=cpu)
    engine = Language()
    engine.take(problem)
    engine.first()
    turn = engine.turn(0.01)
    assert {len(turn["samples_s"])} == {len(samples) for samples in turn["beside"].values()}
    assert problem.error(engine.outputs()) < 1
    assert set(summary([turn])["times"]) == {"generate", "launches"}
    engine._calls["launches"] = lambda: engine._out.set(np.ones(engine._out.shape, np.float32))
    with pytest.raises(ValueError, match="'launches' is wrong"):
        engine.first()


def test_what_misses_a_bar_of_seissol(tmp_path: Path) -> None:
    """Is told by name; what has one instruction has no bar for launches, and low orders none for the rate."""
    row = made_row(feinsum=4.0, numpy=5.0) | {"workload": "volume", "order": 6, "einsum": "a,b,c->", "load": 1.0}
    row |= {"language": {"times": {"generate": 0.9, "launches": 1.5}}, "date": "2026-11-22T00:00:00", "command": "seissol"}
    assert report.missed(row) == ["language", "launches", "times", "peak"]
    assert report.missed(row | {"order": 5, "einsum": "a,b->"}) == ["language", "times"]
    report.write_page([row], tmp_path / "page.rst")
    text = (tmp_path / "page.rst").read_text()
    assert "language at most 1.03: 1.11 in geometric mean, missed by 1 of 1 (volume 1)" in text
    assert '"volume", "6", "float64", "4000.000"' in text
    assert report.bound(row) == "rate"
    moving = row | {"roofline_s": 2 * row["roofline_s"]}
    assert report.bound(moving) == "bandwidth"
    report.write_page([row, moving], tmp_path / "page.rst")
    assert "missed by 2 of 2 (volume 2); 1 of these are bound by bandwidth" in (tmp_path / "page.rst").read_text()


@pytest.mark.parametrize(
    "rows",
    [path for path in sorted(RESULTS.rglob("*.jsonl")) if not path.stem.startswith(("suite", "arrays", "scaling"))],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_a_report_is_that_of_its_rows(rows: Path, tmp_path: Path) -> None:
    """So that rows are not renewed without their report; that of arrays has a test of its own, the suite's has plots."""
    report.write_page(read_rows(rows), tmp_path / "page.rst")
    assert (tmp_path / "page.rst").read_text() == rows.with_suffix(".rst").read_text(encoding="utf-8")


@pytest.mark.parametrize("rows", sorted(RESULTS.glob("*/tensor.jsonl")), ids=lambda path: path.parent.name)
def test_rows_of_the_tensor_language_are_of_known_cases(rows: Path) -> None:
    """A case that was renamed is measured again."""
    assert {row["case"] for row in read_rows(rows)} <= {case.name for case in tensor_cases()}


def test_a_table_of_the_tensor_language_names_what_misses_a_bar() -> None:
    """The slower of two ways counts for its own bar, the quicker one for the peers'."""
    machine = {"name": "A", "device": "cpu:a", "driver": "1"}
    about = {"command": "tensor", "machine": machine, "date": "2026-01-02", "versions": {"torch": "2"}}
    row = {"case": "gemm 4^3 float32 beta 0", "seconds": {"general": 3e-6, "einsum": 1e-6, "torch": 1.5e-6}}
    ratios = {"best of ours / torch": 1.5, "general / peer": 0.5, "einsum / peer": 1.5}
    rows = [{**about, **row, "ratios": {**ratios, "general / einsum": 0.33, "einsum / generate": None}}]
    assert report.about(rows) == (
        "Measured 2026-01-02 by ``python -m benchmarks tensor`` on A (``cpu:a``), driver 1; torch 2."
    )
    _, *sentences = report.tensor(rows)
    assert "batched products: the better route is at least as fast as the best peer: 1 of 1" in sentences
    assert "the general route is at least half as fast as einsums: 0 of 1 (not: gemm 4^3 float32 beta 0 0.33)" in sentences


def test_programs_are_measured_against_the_faster_copy(tmp_path: Path) -> None:
    """A kernel that copies may be slower than the device; each device has a table, the newest lines count."""
    line = {
        "command": "declarative",
        "case": "softmax",
        "lengths": "A 8x8",
        "machine": {"device": "gpu:some"},
        "date": "2026-11-23",
        "seconds": {"program": 1e-3},
        "ratios": {"copy": 1.3, "peak copy": 0.8, "torch": 2.0},
        "against": "copy",
        "bar": 0.8,
    }
    other = {"machine": {"device": "cpu:some"}, "ratios": {"copy": 0.7}}
    results = tmp_path / "declarative.jsonl"
    lines = [line | {"ratios": {"copy": 9.0}}, line, line | other]
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (of_cpu, of_gpu) = report.declarative(read_rows(results))
    assert of_cpu.title == "On ``cpu:some``, 2026-11-23"
    assert "0.70 (copy)" in of_cpu.lines[0]
    assert [line[3] for line in of_gpu.lines] == ["0.80 (peak copy)"]


def test_the_page_of_threads_has_the_figures_of_its_rows() -> None:
    """Geometric means over the last run of each case, and medians of what was measured next to it."""
    last: dict[int, dict[str, Row]] = {}
    for row in read_rows(RESULTS / "xeon-emerald-rapids" / "scaling.jsonl"):
        last.setdefault(row["machine"]["cores"], {})[row["case"]] = row
    table = re.findall(r"^(\d+) +(\d+) +(\d+) +([\d.]+)(?: \((\d+) einsums\))? +([\d.]+)$", THREADS, re.MULTILINE)
    assert [int(line[0]) for line in table] == sorted(last)
    for cores, bandwidth, rate, speed, count, roofline in table:
        rows = last[int(cores)]
        measured = (
            f"{median(r['peaks']['copy_bytes_per_s'] for r in rows.values()) / 1e9:.0f}",
            f"{median(r['peaks']['fp64_flops_per_s'] for r in rows.values()) / 1e9:.0f}",
            f"{geometric_mean(seconds(last[1][case]) / seconds(row) for case, row in rows.items()):.1f}",
            len(rows),
            f"{geometric_mean(map(fraction, rows.values())):.2f}",
        )
        assert measured == (bandwidth, rate, f"{float(speed):.1f}", int(count or 10), roofline)
    over_torch = [geometric_mean(seconds(r, "torch") / seconds(r) for r in last[cores].values()) for cores in (1, 16)]
    assert "{:.1f} times as fast as torch on one core, and {:.1f} times on 16".format(*over_torch) in THREADS
