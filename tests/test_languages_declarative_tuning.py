"""Tuned numbers and alternatives as parameters of a space: searched, recorded and found again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import declarative_programs as programs
import numpy as np
import pytest
from click.testing import CliRunner

import feinsum as fe
from feinsum.cli import cli
from feinsum.database import best_known
from feinsum.devices import Device
from feinsum.errors import FeinsumError, ValidationError
from feinsum.languages.declarative.open_choices import choices_of
from feinsum.languages.declarative.program_names import normal_text
from feinsum.languages.declarative.tuning import subject_at
from feinsum.timing import FINAL_PROTOCOL
from feinsum.tune import final
from feinsum.tune.jobs import read_jobs
from feinsum.tune.subject import Subject, make_subject, subject_of

PROGRAM = """
A: Tensor<N, K; f32>
B: Tensor<K, M; f32>
rows = tune(N, [8, 4])
columns = tune(M, [16])
y: Tensor<N, M; f32> = grid (dim = [cdiv(N, rows), cdiv(M, columns)]) |g, h| {
    a = compute (shape = [rows, K]) |i, k| if i + g * rows < N then A[i + g * rows, k] else 0
    b = compute (shape = [K, columns]) |k, j| if j + h * columns < M then B[k, j + h * columns] else 0
    compute (shape = [rows, columns]) |i, j| reduce (shape = [K], op = sum) |k| a[i, k] * b[k, j]
}
"""
SIZES = {"N": 13, "K": 9, "M": 21}
WAYS = """
a: Tensor<N; f64>
y = alternative {
    slow = compute (shape = [N]) |i| reduce (shape = [N], op = sum) |k| if k <= i then a[k] else 0.0
    quick = scan (shape = [N], op = sum) |k| a[k]
}
"""


def subject(text: str, **sizes: int) -> Subject:
    return fe.program(text, "declarative").subject(sizes)


def test_the_key_does_not_depend_on_names() -> None:
    """Nor on blanks and comments; but on what is computed, and on what tuned numbers are called."""
    text = PROGRAM.replace("tune(N", "tune(Z").replace("N", "Z").replace("Z", "N")
    one, other = subject(text, **SIZES), subject(text.replace("A", "left").replace("|g, h|", "|h, g|").replace("g *", "w *")
        .replace("h *", "g *").replace("w *", "h *"), **SIZES)  # fmt: skip
    assert one.key == other.key
    assert one.key != subject(text.replace("a[i, k] *", "2 * a[i, k] *"), **SIZES).key
    assert one.key != subject(text.replace("f32", "f64"), **SIZES).key
    assert one.key.isprintable()


@pytest.mark.parametrize("text", [programs.SOFTMAX, programs.TILED, programs.ATTENTION, programs.SCAN_BY_HALVES, WAYS])
def test_the_normal_form_is_a_program(text: str) -> None:
    """Whose normal form it is itself."""
    function = fe.program(text, "declarative").function()
    found, names = normal_text(function, {"dtype": "f32"})
    again = fe.program(found, "declarative").function()
    assert normal_text(again, {})[0] == found
    assert len(set(names.values())) == len(names)
    assert [c.name for c in choices_of(again)] == [c.name for c in choices_of(function)]


def test_a_subject_is_made_again_from_its_key() -> None:
    """As a worker process does, which knows nothing else."""
    one = subject(PROGRAM, **SIZES)
    other = subject_of(one.key, one.sizes)
    assert (other.key, dict(other.sizes)) == (one.key, dict(one.sizes))
    assert other.flops == one.flops >= 2 * 13 * 9 * 21
    assert other.bytes == 4 * (13 * 9 + 9 * 21 + 13 * 21)


def test_a_subject_asks_for_no_memory() -> None:
    """Lengths are known before there are arrays, which here would take terabytes."""
    sizes = dict.fromkeys(SIZES, 1 << 20)
    large = subject(PROGRAM, **sizes)
    assert large.key == subject(PROGRAM, **SIZES).key
    assert sorted(large.sizes.values()) == sorted(sizes.values())


class Counted:
    """A program, and how often it was made a subject."""

    def __init__(self, text: str) -> None:
        self._program, self.made = fe.program(text, "declarative"), 0

    def subject(self, sizes: Mapping[str, int] | None) -> Subject:
        self.made += 1
        return self._program.subject(sizes)


def test_a_run_makes_its_subject_once(cpu: Device, tmp_path: Path) -> None:
    """Though what is wrong with it is said before a process is started."""
    counted = Counted(PROGRAM)
    report = fe.autotune(counted, cpu, tmp_path / "records.sqlite", SIZES, trials=1, progress=False, workers=1)
    assert len(report.records) == counted.made == 1
    assert make_subject(report.subject, None) is report.subject


def test_programs_are_tuned_and_found_again(cpu: Device, tmp_path: Path) -> None:
    """Every configuration is proved and recorded; a program that is spelled otherwise takes the best."""
    store = str(tmp_path / "records.sqlite")
    report = fe.autotune(fe.program(PROGRAM, "declarative"), cpu, store, SIZES, trials=9, progress=False, workers=1)
    assert report.best is not None
    assert {(r.status, r.space, dict(r.configuration)["rows"]) for r in report.records} == {
        ("ok", "program", 4),
        ("ok", "program", 8),
    }
    assert "rows=" in report.table()
    again = fe.autotune(fe.program(PROGRAM, "declarative"), cpu, store, SIZES, trials=9, progress=False, workers=1)
    assert not again.records
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal(shape).astype(np.float32) for shape in ((13, 9), (9, 21)))
    kernel = fe.build(fe.program(PROGRAM.replace("A", "left"), "declarative"), device=cpu, database=store)
    np.testing.assert_allclose(kernel(left=A, B=B), A @ B, atol=1e-5)
    assert "columns = 16, rows = " in kernel.explain()
    assert ", by its record" in kernel.explain()
    near = fe.build(fe.program(PROGRAM, "declarative"), device=cpu, database=store)
    np.testing.assert_allclose(near(A=A[:12], B=B), A[:12] @ B, atol=1e-5)
    assert "by the record of" in near.explain()


def test_ways_are_a_parameter(cpu: Device, tmp_path: Path) -> None:
    """So a record says which one to take, and no race is run."""
    store = str(tmp_path / "records.sqlite")
    kernel = fe.build(fe.program(WAYS, "declarative"), device=cpu, database=store, tune="missing")
    np.testing.assert_allclose(kernel(a=np.ones(300)), np.arange(1, 301))
    records = fe.Database(store)
    first, *_ = records.query()
    where = first.einsum_key, first.sizes, first.device, first.driver
    record = best_known(records, *where, [(first.space, first.space_version)])  # the final's, which need not be the first
    assert record is not None
    assert record.configuration["y"] in ("slow", "quick")
    assert f"y = {record.configuration['y']}, by its record" in kernel.explain()
    assert "alternative of line" not in kernel.explain()


def test_the_verdict_on_ways_is_kept(cpu: Device, tmp_path: Path) -> None:
    """In the record of the one that won the final's race, and told by whoever takes that."""
    text = "a: Tensor<N; f32>\ny = alternative {\n twice = a + a\n product = 2 * a\n}\n"
    report = fe.autotune(
        fe.program(text, "declarative"), cpu, tmp_path / "records.sqlite", {"N": 5000}, trials=2, progress=False, workers=1
    )
    ways = {r.configuration["y"]: r for r in report.records}
    # The rounds are given: on a busy machine two trials of a few microseconds may be too far apart for a final.
    decided = final.decide(
        [{"twice": [1e-6], "product": [2e-6]}] * 9,
        ways,
        lambda r: 0,
        lambda r, samples_s, message: replace(r, message=message, samples_s=tuple(samples_s), protocol=FINAL_PROTOCOL),
    )
    assert decided is not None
    record = decided.winner
    assert record.message == "2 times as fast (95% interval 2 to 2) as program y=product"
    alone = fe.Database(tmp_path / "winner.sqlite")
    alone.add(record)
    kernel = fe.build(fe.program(text, "declarative"), device=cpu, database=alone)
    kernel(a=np.ones(5000, np.float32))
    (told,) = [line for line in kernel.explain().splitlines() if line.startswith("y = twice, by its record")]
    assert told.endswith(f"; {record.message}")


def test_a_way_that_is_wrong_is_a_record(cpu: Device, tmp_path: Path) -> None:
    """And is never taken."""
    store = str(tmp_path / "records.sqlite")
    text = WAYS.replace("quick = scan (shape = [N], op = sum)", "quick = scan (shape = [N], op = max)")
    report = fe.autotune(fe.program(text, "declarative"), cpu, store, {"N": 40}, trials=2, progress=False, workers=1)
    assert {r.configuration["y"]: r.status for r in report.records} == {"slow": "ok", "quick": "wrong"}
    assert report.best is not None
    assert report.best.configuration["y"] == "slow"


def test_job_files_have_programs(tmp_path: Path) -> None:
    """Each with every combination of lengths; a mistake names the table."""
    (tmp_path / "tiles.decl").write_text(PROGRAM)
    file = tmp_path / "night.toml"
    file.write_text('trials = 1\n[[program]]\nfile = "tiles.decl"\nsizes = {N = [13, 14], K = 9, M = 21}\n')
    assert [str(job) for job in read_jobs(file).jobs] == ["tiles.decl at N=13 K=9 M=21", "tiles.decl at N=14 K=9 M=21"]
    file.write_text('[[program]]\nfile = "tiles.decl"\nshapes = {A = [1]}\n')
    with pytest.raises(FeinsumError, match=r"\[\[program\]\] 1 has the key 'shapes'; known are"):
        read_jobs(file)


def test_the_command_tunes_programs(tmp_path: Path) -> None:
    """At the lengths that are given; what is for einsums is refused."""
    path, store = tmp_path / "tiles.decl", str(tmp_path / "records.sqlite")
    path.write_text(PROGRAM)
    given = ["tune", str(path), "--size", "N=13,K=9,M=21", "--trials", "1", "--workers", "1", "--device", "cpu"]
    result = CliRunner().invoke(cli, [*given, "--database", store])
    assert result.exit_code == 0, result.output
    assert "program: columns=16 rows=8" in result.output
    result = CliRunner().invoke(cli, ["tune", str(path), "--shape", "A=3,4"])
    assert "--shape does not go with a program" in result.output


def test_what_cannot_be_tuned_is_said() -> None:
    """A program without choices, of another language, or whose lengths are none of it."""
    with pytest.raises(ValidationError, match="leaves no size Q open"):
        subject(PROGRAM, Q=3)
    with pytest.raises(FeinsumError, match=r"no transform space .* applies|nothing is left open"):
        fe.autotune(fe.program(programs.SOFTMAX, "declarative"), "cpu", sizes={"B": 4, "D": 4}, trials=1, progress=False)
    text = "func @double(%x: memref<f32x8>) { %two = constant 2.0 : f32  %z = constant 0.0 : f32 axpby.n %two,%x,%z,%x }"
    with pytest.raises(FeinsumError, match="programs of the tensor language have no numbers to tune"):
        fe.autotune(fe.program(text), "cpu", trials=1, progress=False)
    mapped = fe.program(programs.MAPPED, "declarative")
    with pytest.raises(FeinsumError):
        subject_at(mapped.function(), mapped.source, {}, "mapped")


def test_tiles_of_more_elements_than_registers_are_counted() -> None:
    """Element by element, though each takes its own state of the loop through another expression; and records are shown."""
    text = """
A: Tensor<N, K; f32>
B: Tensor<K, M; f32>
tile = tune(N, [16])
y: Tensor<N, M; f32> = grid (dim = [cdiv(N, tile), cdiv(M, tile)]) |g, h| {
    init: Tensor<tile, tile; f32> = zeros([tile, tile])
    affine_for (end = K, init = init) |k, sums| {
        sums + compute (shape = [tile, tile]) |i, j| {
            if i + g * tile < N and j + h * tile < M then A[i + g * tile, k] * B[k, j + h * tile] else 0
        }
    }
}
"""
    assert subject(text, **SIZES).flops >= 2 * 13 * 9 * 21


def test_a_record_of_a_program_is_shown(cpu: Device, tmp_path: Path) -> None:
    """With its key, as it has no formula."""
    store = str(tmp_path / "records.sqlite")
    report = fe.autotune(fe.program(PROGRAM, "declarative"), cpu, store, SIZES, trials=1, progress=False, workers=1)
    (record,) = report.records
    assert "grid" in record._repr_html_()
    assert "rows=" in report._repr_html_()
