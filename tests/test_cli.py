"""The command line: its notation, its exit codes, its one-line errors, and every command on the CPU device."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import os
import pty
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pytest

from feinsum._checkout import ROOT
from feinsum.cli import FAILED, INTERRUPTED, MISTAKE, cli, main
from feinsum.cli.description import describe_arguments
from feinsum.timing import FINAL_PROTOCOL

GRADIENT = ["xre,rij,ej->xei", "--shape", "J=3,3,E", "--shape", "D=3,4,4", "--shape", "u=E,4"]
PRODUCT = ["ij,jk->ik", "--size", "i=17,j=5,k=9"]


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def run(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as end:
            main(arguments)
        captured = capsys.readouterr()
        return Result(int(end.value.code or 0), captured.out, captured.err)

    return run


def in_a_process(
    arguments: Sequence[str], environment: dict[str, str] | None = None, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    how = {"capture_output": True, "text": True, "timeout": 300, **how}
    command = [sys.executable, "-m", "feinsum", *arguments]
    return subprocess.run(command, check=False, env={**os.environ, **(environment or {})}, **how)


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of every command and group."""
    children = command.commands.items() if isinstance(command, click.Group) else ()
    return [path, *(each for name, child in children for each in commands(child, (*path, name)))]


@pytest.mark.parametrize(
    ("arguments", "expected", "sizes"),
    [
        ({"sizes": ["i=4,j=5,k=6"]}, "ij,jk->ik [A B] A: float64[4, 5], B: float64[5, 6]", {}),
        ({"sizes": ["i=4,j=5", "k=1_000"]}, "ij,jk->ik [A B] A: float64[4, 5], B: float64[5, 1000]", {}),
        (
            {"sizes": ["i=4,j=5,k=6"], "long": ["i,k"]},
            "ij,jk->ik [A B] A: float64[∞, 5], B: float64[5, ∞]",
            {"i": 4, "k": 6},
        ),
        ({"sizes": ["j=5"], "long": ["i", "k"]}, "ij,jk->ik [A B] A: float64[∞, 5], B: float64[5, ∞]", {}),
        (
            {"shapes": ["D=4,5", "u=5,E"], "sizes": ["E=9"]},
            "ij,jk->ik [D u] D: float64[4, 5], u: float64[5, E]",
            {"E": 9},
        ),
        (
            {"shapes": ["D=4,5", "u=(5,inf)"], "sizes": ["k=9,i=4"]},
            "ij,jk->ik [D u] D: float64[4, 5], u: float64[5, ∞]",
            {"k": 9},
        ),
        (
            {"shapes": ["D=4,5", "u=5,E"], "sizes": ["k=9"]},
            "ij,jk->ik [D u] D: float64[4, 5], u: float64[5, E]",
            {"E": 9},
        ),
        (
            {"rows": ["A,v0", "A,v1"], "sizes": ["i=4,j=5,k=6"], "dtypes": ["float32", "A=float64"]},
            "ij,jk->ik [A v0; A v1] A: float64[4, 5], v0: float32[5, 6], v1: float32[5, 6]",
            {},
        ),
        (
            {"rows": ["a*b,c"], "shapes": ["c=5,6"], "sizes": ["i=4,j=5"]},
            "ij,jk->ik [a*b c] a: float64[4, 5], b: float64[4, 5], c: float64[5, 6]",
            {},
        ),
    ],
)
def test_notation(arguments: dict[str, list[str]], expected: str, sizes: dict[str, int]) -> None:
    """Shapes, lengths, long indices, rows and types describe what they say."""
    request = describe_arguments("ij,jk->ik", **arguments)  # type: ignore[arg-type]
    assert (str(request.einsum), dict(request.sizes)) == (expected, sizes)


def test_notation_of_scalars_and_ellipses() -> None:
    """An operand without axes has an empty shape; an ellipsis takes its axes from the shapes."""
    assert str(describe_arguments(",i->i", shapes=["a=", "x=7"]).einsum) == ",i->i [a x] a: float64[], x: float64[7]"
    batched = describe_arguments("...ij,...j->...i", shapes=["A=8,3,4", "x=8,4"])
    assert batched.einsum.shape == (8, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ij,jk->ik", "--size", "i=4,j=5"], "index 'k' of 'ij,jk->ik' has no length; give --size k=LENGTH"),
        (["ij,jk->ik", "--size", "i=4,j=5,k=x"], "--size k=x: a length is a whole number"),
        (["ij,jk->ik", "--size", "i=4,j=5,k=-6"], "--size k=-6: a length is a whole number"),
        (["ij,jk->ik", "--size", "i=20x20"], "or 1e6; each index has one of its own: --size i=20,j=20"),
        (["ij,jk->ik", "--size", "20x20"], "--size is '20x20'; write --size NAME=VALUE, as in --size i=20,j=20"),
        (["ij->i", "--shape", "D=20x20"], "--shape D=20x20: axes are separated by commas; write --shape D=20,20"),
        (["ij->i", "--shape", "D=20,3×4"], "--shape D=20,3×4: axes are separated by commas; write --shape D=20,3,4"),
        (["ij->i", "--shape", "20,20"], "--shape is '20,20'; write --shape NAME=VALUE, as in --shape A=20,20"),
        ([*PRODUCT, "--timeout", "10s"], "'10s' has a unit; give the number of seconds alone, 10"),
        ([*PRODUCT, "--timeout", "1.5h"], "'1.5h' has a unit; give the number of seconds alone, 5400"),
        ([*PRODUCT, "--timeout", "soon"], "'soon' is not a valid number of seconds"),
        (["ij,jk->ik", "--size", "i=4,i=5"], "--size is given twice for 'i'"),
        (["ij,jk->ik", "--size", "i"], "--size is 'i'; write --size NAME=VALUE"),
        (["ij,jk->ik", "--size", "i=4,j=5,k=6,q=7"], "--size names 'q', but the indices and long axes are i, k, j"),
        (["ij,jk->ik", "--size", "i=4,j=5,k=6", "--long", "q"], "--long names 'q', but the indices are i, k, j"),
        (["ij,jk->ik", "--shape", "A=4,5"], "'ij,jk->ik' has 2 operands, but the number of --shape is 1"),
        ([*PRODUCT, "-v"], "No such option '-v'; it stands before the command, as in feinsum -v tune"),
        (["ij,jk->ik", "--shape", "A=4,5", "--shape", "B=6,7"], "index 'j' is 5 in operand 0 ('A') but 6 in operand 1"),
        (["ij,jk->ik", "--shape", "A=4,5", "--shape", "B=5,7", "--size", "k=8"], "--size k=8, but index 'k' is 7"),
        (["ij,jk->ik", "--size", "i=4,j=5,k=6", "--dtype", "C=float32"], "--dtype names 'C', but the operands are A, B"),
        (["ij,jk->ik", "--size", "i=4,j=5,k=6", "--dtype", "float16"], "'A' is float16; arrays are"),
        (["ij,jk->ik", "--size", "i=4,j=5,k=6", "--row", "A"], "'ij,jk->ik' has 2 operands but 1 were given"),
        (["ij,jk->iq", "--size", "i=4,j=5,k=6"], "output index 'q' of 'ij,jk->iq' occurs in no operand"),
        (["...i,i->...", "--size", "i=4"], "has an ellipsis; give --shape"),
        ([*PRODUCT, "--device", "quantum"], "no OpenCL device fits 'quantum'"),
        ([*PRODUCT, "--database", "ftp://host/x"], "ftp://host/x is no store"),
        (["ij,jk-", "--size", "i=4,j=5,k=6"], "the shell took what follows 'ij,jk-' for a redirection"),
        ([*PRODUCT, "--siz", "i=4"], "No such option"),
        ([], "Missing argument 'SUBSCRIPTS'"),
    ],
)
def test_a_mistake_costs_one_line(run: Run, arguments: list[str], message: str) -> None:
    """A mistake is told in one line that names it, on the standard error, with exit code 2."""
    result = run("generate", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", *GRADIENT], "the long axis 'E' needs a length to measure at; give --size E=LENGTH"),
        (["bench", *GRADIENT], "the long axis 'E' needs a length to measure at; give --size E=LENGTH"),
        (["tune", *PRODUCT, "--trials", "0"], "0 is not in the range x>=1"),
        (["tune", *PRODUCT, "--space", "fancy", "--trials", "1"], "no transform space named 'fancy'"),
        (["query", *PRODUCT, "--status", "fine"], "'fine' is no status; give one of ok, wrong, compile-failed, "),
        (["db", "export", "--status", "fine"], "launch-failed, timeout, refused, or all"),
        (["db", "stats", "--database", "nowhere.sqlite"], "there is no store at"),
        (["db", "import", "nowhere.jsonl"], "nowhere.jsonl"),
        (["tune", *PRODUCT, "--trials", "1", "--html", "nowhere/report.html"], "cannot write nowhere/report.html"),
        (["tun"], "No such command 'tun'"),
        (["bench", "ij->i", "--size", "i=0,j=5"], "index 'i' of 'ij->i' is empty, so there is nothing to time"),
        (["explain", "ij->i", "--shape", "A=3,-4"], "axis 1 of 'A' is -4; a length is not negative"),
        (
            ["explain", *PRODUCT, "--dtype", "A=float32,B=float64"],
            "'float32,B=float64', the type of 'A', is not a data type",
        ),
        (["bench", "ij,jk->ik", "--size", "i=4", "j=5", "k=6"], "several lengths are joined by commas"),
    ],
)
def test_mistakes_of_other_commands(
    run: Run, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command tells a mistake in one line and exits with 2."""
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no device here is always full")
def test_a_full_disk_is_told_in_one_line(store: str) -> None:
    """Where the output goes to a file."""
    with open("/dev/full", "w") as full:
        done = in_a_process(["spaces"], stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert (done.returncode, done.stderr) == (1, "feinsum: cannot read or write: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no device here is always full")
def test_a_full_disk_is_no_mistake_of_the_user(run: Run, store: str, tmp_path: Path) -> None:
    """Also where feinsum's own error tells it; a directory that is not there is a mistake."""
    (tmp_path / "full.svg").symlink_to("/dev/full")
    timed = ["bench", *PRODUCT, "--device", "cpu", "--database", store, "--seconds", "0.05", "--plot"]
    for name, code, why in (("full.svg", FAILED, "No space left on device"), ("no/plot.svg", MISTAKE, "No such file")):
        result = run(*timed, str(tmp_path / name))
        assert (result.code, why in result.err.splitlines()[-1]) == (code, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["db", "stats", "--database", "postgresql://127.0.0.1:1/records"], FAILED, "no server answers there"),
        (["db", "stats", "--database", "postgres:/nowhere"], MISTAKE, "is no store"),
        (["db", "merge", "nowhere.jsonl"], MISTAKE, "cannot read nowhere.jsonl"),
        (["db", "stats", "--database", "text.sqlite"], MISTAKE, "is no SQLite database"),
        (["query", *PRODUCT, "--database", "."], MISTAKE, "is a directory; name a file in it"),
        (["tune", *PRODUCT, "--scheduler", "tcp://127.0.0.1:1", "--trials", "1"], FAILED, "no scheduler answers"),
        (["generate", *PRODUCT, "--device", "accelerator"], FAILED, "no OpenCL device fits 'accelerator'"),
        (["generate", *PRODUCT, "--device", "cqu"], MISTAKE, "no OpenCL device fits 'cqu'"),
        (["run", "nowhere.tc"], MISTAKE, "nowhere.tc"),
    ],
)
def test_what_failed_is_told_from_what_was_mistaken(
    run: Run, arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not answer and a device that this machine lacks are no slip of a pen."""
    monkeypatch.chdir(tmp_path)
    Path("text.sqlite").write_text("no database\n" * 100)
    monkeypatch.setattr("feinsum.tune.cluster._CONNECT_S", 1.0)
    result = run(*arguments)
    assert message in result.err
    assert (result.code, len(result.err.splitlines())) == (code, 1)


def test_arrays_beyond_all_memory_are_told_in_one_line(run: Run, store: str) -> None:
    """Nothing is known of such lengths, so the kernel would have to be tried."""
    lengths = f"i={2**24},j={2**24}"
    result = run("generate", "ij->i", "--size", lengths, "--device", "cpu", "--database", store)
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[-1].startswith("feinsum: there is not enough memory for these lengths: ")


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_has_an_example(run: Run, path: tuple[str, ...]) -> None:
    """The help of every command shows an example, which begins with the command itself."""
    result = run(*path, "--help")
    assert result.code == 0
    example = result.out.partition("Example")[2].splitlines()[1]
    assert example.split()[: len(path) + 1] == ["feinsum", *path]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_the_examples_of_help_are_understood(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands, options and einsums of every example are parsed as they would be when it is run."""
    monkeypatch.chdir(tmp_path)
    Path("records.jsonl").touch()
    command = functools.reduce(lambda group, name: group.commands[name], path, cli)  # type: ignore[attr-defined]
    lines = inspect.cleandoc(command.help or "").partition("Example")[2].partition("\n\n")[0].splitlines()[1:]
    assert lines
    for line in lines:
        found, arguments = cli, shlex.split(line)[1:]
        while isinstance(found, click.Group):
            found, arguments = found.commands[arguments[0]], arguments[1:]
        context = found.make_context(line, arguments)
        if "shapes" in context.params and not context.params["subscripts"].endswith((".toml", ".decl")):
            given = {name: context.params[name] for name in ("shapes", "sizes", "long", "rows", "dtypes")}
            assert describe_arguments(context.params["subscripts"], **given).einsum.b >= 1


def test_exit_codes_are_told(run: Run) -> None:
    """In the help of the whole, and in the documentation."""
    page = (Path(__file__).parents[1] / "doc" / "reference" / "command-line.rst").read_text(encoding="utf-8")
    told = run("--help").out.partition("Exit codes:")[2]
    for code in (0, FAILED, MISTAKE, INTERRUPTED):
        assert re.search(rf"^ +{code} ", told, re.MULTILINE)
        assert re.search(rf"^{code} ", page, re.MULTILINE)


def test_help_is_light() -> None:
    """Help imports none of the libraries that take long to load."""
    script = "import sys, feinsum.cli as c\ntry: c.main(['tune', '--help'])\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"loopy", "pyopencl", "sqlalchemy", "optuna", "rich", "igraph"} & set(done.stderr.split())


def test_module_and_version() -> None:
    """``python -m feinsum`` is the same command."""
    from feinsum import __version__

    assert in_a_process(["--version"]).stdout == f"feinsum, version {__version__}\n"


def test_devices(run: Run) -> None:
    """`devices` lists what there is, the usable ones first, as text and as JSON."""
    text, data = run("devices"), run("devices", "--json")
    found = json.loads(data.out)
    assert (text.code, data.code) == (0, 0)
    assert found[0]["usable"]
    assert all(device["id"] in text.out for device in found)


def test_no_device(tmp_path: Path) -> None:
    """Where no device works, `devices` exits with 1 and says how to get one, and so does `generate`."""
    nothing = {"OCL_ICD_VENDORS": str(tmp_path)}
    listed = in_a_process(["devices"], nothing)
    assert listed.returncode == 1
    assert f"pip install '.[cpu]'` in {ROOT}" in listed.stderr
    asked = in_a_process(["generate", *PRODUCT], nothing)
    assert asked.returncode == 1
    assert "there is no usable OpenCL device" in asked.stderr
    assert len(asked.stderr.splitlines()) == 1
    assert "OCL_ICD_VENDORS is set, so feinsum loads only the drivers that it names" in asked.stderr
    assert "chosen-" not in asked.stderr


def test_explain_needs_no_device(tmp_path: Path) -> None:
    """Where none works it says what any device would say, and all of one that comes with feinsum."""
    nothing = {"OCL_ICD_VENDORS": str(tmp_path)}
    anywhere = in_a_process(["explain", *PRODUCT], nothing)
    assert (anywhere.returncode, anywhere.stderr) == (0, "")
    assert re.search(r"^ +spaces  .*generic$", anywhere.stdout, re.MULTILINE)
    assert re.search(r"^ +device  none here; --device explains for one of .*gpu:nvidia:h200:132cu", anywhere.stdout, re.M)
    assert json.loads(in_a_process(["explain", *PRODUCT, "--json"], nothing).stdout)["candidates"] == []
    square = ["ij,jk->ik", "--size", "i=1024,j=1024,k=1024", "--device", "h200"]
    known = json.loads(in_a_process(["explain", *square, "--json"], nothing).stdout)
    assert known["device"] == "gpu:nvidia:h200:132cu"
    assert known["candidates"][0]["rung"] == "exact"
    log = in_a_process(["explain", *square, "--as", "log"], nothing)
    assert log.stdout.startswith("; exact\n")
    unknown = in_a_process(["explain", *PRODUCT, "--device", "h9000"], nothing)
    assert re.search(r"no OpenCL device fits 'h9000'.*explain also takes .*gpu:nvidia:h200:132cu", unknown.stderr)


def test_a_space_says_what_it_does(run: Run) -> None:
    """By name; a name that is none is a mistake that names those there are."""
    said = run("spaces", "generic")
    assert said.out.startswith("generic, version 1, for every einsum\n")
    assert "generic.py" in said.out
    wrong = run("spaces", "nothing")
    assert wrong.code == MISTAKE
    assert "no transform space is named 'nothing'; there are" in wrong.err


def test_spaces(run: Run) -> None:
    """`spaces` names every registered space with what it matches."""
    from feinsum.registry import spaces

    text, data = run("spaces"), json.loads(run("spaces", "--json").out)
    assert [space["name"] for space in data] == [space.name for space in spaces()]
    assert all(space["description"] in text.out for space in data)


def test_tune_then_db_commands(run: Run, store: str, tmp_path: Path) -> None:
    """What `tune` records, `query` and `generate` find, `bench` times, and `db` counts and moves to another store."""
    einsum, at = [*GRADIENT, "--size", "E=300"], ["--database", store, "--device", "cpu"]
    tuned = run("tune", *einsum, *at, "--space", "generic", "--trials", "2", "--workers", "1", "--seed", "7", "--json")
    assert tuned.code == 0
    assert json.loads(tuned.out)["tried"] == 2

    renamed = ["bj,drb,rij->dbi", "--shape", "f=n,4", "--shape", "G=3,3,n", "--shape", "M=3,4,4", "--database", store]
    found = run("query", *renamed, "--json")
    records = json.loads(found.out)
    best = records[0]
    assert (found.code, best["space"], best["seed"], best["status"]) == (0, "generic", 7, "ok")
    assert best["median_s"] > 0
    assert "generic@" in run("query", *renamed, "--limit", "1").out

    # The winner of the final is trusted unless a trial was quicker by more than luck.
    winner = next(record for record in records if record["protocol"] == FINAL_PROTOCOL)
    trusted = winner if winner["median_s"] <= 1.1 * best["median_s"] else best
    generated = json.loads(run("generate", *einsum, *at, "--json", "--source").out)
    assert (generated["rung"], generated["record"]) == ("exact", trusted["id"])
    assert run("generate", *einsum, *at, "--source").out.strip() == generated["source"].strip()
    assert "rung      exact" in run("generate", *einsum, *at).out
    assert json.loads(run("explain", *einsum, *at, "--json").out)["candidates"][0]["rung"] == "exact"
    timed = json.loads(run("bench", *einsum, *at, "--seconds", "0.05", "--json").out)
    assert (timed["rung"], timed["flops"]) == ("exact", 300 * (3 * 4 * 4 * 2 + 3 * 3 * 4 * 2))

    assert json.loads(run("db", "stats", "--database", store, "--json").out)["records"] == 3
    assert re.search(r"^device cpu:.*: 3, made in \d{4}-\d\d$", run("db", "stats", "--database", store).out, re.MULTILINE)
    lines, other = str(tmp_path / "records.jsonl"), str(tmp_path / "other.sqlite")
    assert run("db", "export", lines, "--database", store).err == f"3 records written to {lines}\n"
    for every in ([], ["--status", "all"]):
        assert run("db", "export", "--database", store, *every).out == Path(lines).read_text(encoding="utf-8")
    assert "3 records added" in run("db", "import", lines, "--database", other).out
    assert "0 records added, 3 known before" in run("db", "merge", store, "--database", other).out
    merged = json.loads(run("db", "merge", store, "--database", other, "--json").out)
    assert merged == {store: {"added": 0, "known": 3, "refused": []}}


def test_winners_are_curated_into_a_folder_of_their_own(run: Run, store: str, tmp_path: Path) -> None:
    """With the profile of the device, which then explains elsewhere; a second call changes nothing."""
    import feinsum as fe
    from feinsum.database import CuratedRecords

    einsum, at = [*GRADIENT, "--size", "E=300"], ["--database", store]
    run("tune", *einsum, *at, "--device", "cpu", "--space", "generic", "--trials", "2", "--workers", "1")
    folder = tmp_path / "package" / "records"
    written = run("db", "curate", str(folder), *at)
    assert (written.code, sorted(written.out.split())) == (0, sorted(str(path) for path in folder.iterdir()))
    here = fe.device("cpu")
    curated = CuratedRecords(folder)
    assert [record.space for record in curated.query(device=here.id)] == ["generic"]
    assert curated.profiles() == [here.profile]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert run("db", "curate", str(folder), *at).code == 0
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_an_interrupted_tuning_run(store: str) -> None:
    """Ctrl-C ends `tune` with 130; what it has found by then is printed and stays recorded."""
    import feinsum as fe

    command = [
        sys.executable,
        "-m",
        "feinsum",
        "tune",
        *PRODUCT,
        "--database",
        store,
        "--device",
        "cpu",
        "--timeout",
        "100",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with fe.Database(store) as records:
            while process.poll() is None and not records.stats().records:
                time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        shown, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "feinsum: interrupted"
    assert f"records in {store}" in shown
    with fe.Database(store) as records:
        assert records.stats().records >= 1


SCALARS = [",->", "--shape", "a=", "--shape", "b="]


def test_text_is_plain_where_it_is_no_terminal(run: Run, store: str) -> None:
    """`bench` and `explain` print text without control sequences and without trailing spaces."""
    commands = (
        ["bench", "--seconds", "0.05", *PRODUCT],
        ["explain", *PRODUCT],
        ["explain", *SCALARS],
        ["generate", *SCALARS],
    )
    for command in commands:
        result = run(*command, "--device", "cpu", "--database", store)
        assert result.code == 0
        assert "\x1b" not in result.out
        assert all(line == line.rstrip() for line in result.out.splitlines())


def test_colours_on_a_terminal() -> None:
    """On a terminal a table has rules and an error has a colour."""
    shown, ended = on_a_terminal(["spaces"], {"NO_COLOR": "", "TERM": "xterm", "COLUMNS": "120"})
    assert ("─" in shown, ended) == (True, 0)
    shown, ended = on_a_terminal(["spaces", "--bad"], {"TERM": "xterm"})
    assert ("\x1b[31m" in shown, ended) == (True, 2)


@pytest.mark.parametrize(("columns", "is_table"), [(60, False), (200, True)])
def test_a_narrow_terminal(columns: int, is_table: bool) -> None:
    """Where a table does not fit, every cell has a line of its own instead of a column a few letters wide."""
    shown, _ = on_a_terminal(["devices"], {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"})
    assert ("─" in shown) is is_table
    assert bool(re.search(r"^works +yes", shown, re.MULTILINE)) is not is_table


def test_no_colour() -> None:
    """NO_COLOR turns colours off on terminals, of tables and errors."""
    for arguments in (["spaces"], ["spaces", "--bad"]):
        shown, _ = on_a_terminal(arguments, {"TERM": "xterm", "NO_COLOR": "1"})
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown)


def on_a_terminal(arguments: Sequence[str], environment: dict[str, str]) -> tuple[str, int]:
    """What a command writes to a terminal, and its exit code."""
    outer, inner = pty.openpty()
    done = in_a_process(arguments, environment, capture_output=False, stdout=inner, stderr=inner, text=False)
    os.close(inner)
    shown = b""
    try:
        while part := os.read(outer, 65536):
            shown += part
    except OSError:  # Linux's way to tell that nobody holds the other end any more
        pass
    os.close(outer)
    return shown.decode(), done.returncode


def test_nothing_recorded(run: Run, store: str) -> None:
    """`query` exits with 1 where there is no record, and says how to make one; JSON is an empty list."""
    result = run("query", *PRODUCT, "--database", store, "--json")
    assert (result.code, json.loads(result.out)) == (1, [])
    assert "`feinsum tune` makes some" in result.err


def test_a_store_that_is_not_there(run: Run, store: str) -> None:
    """A command that reads says so, since the name may be mistyped; one that writes makes the store."""
    told = f"there is no store at {store} yet"
    assert told in run("explain", *PRODUCT, "--database", store, "--json").err
    Path(store).unlink(missing_ok=True)
    assert told not in run("tune", *PRODUCT, "--database", store, "--device", "cpu", "--trials", "1").err
    assert told not in run("explain", *PRODUCT, "--database", store).err


def test_records_of_a_device(run: Run, store: str) -> None:
    """`query` and `db export` take a part of the id of any device, here or elsewhere."""
    gradient = [*GRADIENT[:3], "--shape", "D=3,20,20", "--shape", "u=E,20"]  # of which curated records are known
    found = json.loads(run("query", *gradient, "--device", "H200", "--json").out)
    assert {record["device"] for record in found} == {"gpu:nvidia:h200:132cu"}
    nothing = run("query", *gradient, "--device", "abacus")
    assert nothing.code == 1
    assert re.search("there are some of .*gpu:nvidia:h200:132cu", nothing.err)

    run("tune", *PRODUCT, "--database", store, "--device", "cpu", "--trials", "1")
    exported = run("db", "export", "--database", store)
    assert run("db", "export", "--database", store, "--device", "cpu").out == exported.out
    refused = run("db", "export", "--database", store, "--device", "abacus")
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert "--device abacus fits 0 devices; there are cpu:" in refused.err


def test_lines_that_are_no_records(run: Run, store: str, tmp_path: Path) -> None:
    """`db import` refuses a line that is no record by its number, and exits with 1."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"not": "a record"}\n', encoding="utf-8")
    result = run("db", "import", str(bad), "--database", store)
    assert result.code == 1
    assert "line 1: unknown field" in result.out
    refused = json.loads(run("db", "import", str(bad), "--database", store, "--json").out)[str(bad)]["refused"]
    assert [line["line"] for line in refused] == [1]


def test_a_reader_that_goes_away() -> None:
    """A pipe that is closed early ends a command quietly."""
    script = f"{sys.executable} -m feinsum spaces --json | head -c 5"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""


def test_nothing_that_a_terminal_obeys_is_printed(run: Run, tmp_path: Path) -> None:
    """Neither from the subscripts of a job file or a command, nor from the columns of a store that somebody forged."""
    harm = "\x1b]0;renamed\x07\x9b31m\u202e"
    job = tmp_path / "job.toml"
    job.write_text(f"[[einsum]]\nsubscripts = {json.dumps('ij,j->i' + harm)}\nshapes = {{A = [3, 3], x = [3]}}\n")
    store = tmp_path / "records.sqlite"
    tuned = run("tune", *PRODUCT, "--trials", "1", "--database", str(store), "--device", "cpu")
    assert tuned.code == 0
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE feinsum_records SET device = device || ?, space = space || ?", (harm, harm))
    connection.close()
    for command in (
        ("tune", str(job), "--database", str(store)),
        ("explain", "ij,j->i" + harm, "--size", "i=3,j=3"),
        ("query", *PRODUCT, "--database", str(store)),
        ("db", "stats", "--database", str(store)),
        ("db", "stats", "--database", str(store), "--json"),
    ):
        result = run(*command)
        said = result.out + result.err
        assert [c for c in said if not c.isprintable() and c not in "\n\t"] == [], command
    assert "renamed" in said


def test_what_is_logged_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages quote what compilers and stores say."""
    from feinsum.cli.output import StandardErrorHandler

    StandardErrorHandler().emit(
        logging.LogRecord("feinsum", logging.WARNING, "", 0, "passed over: %s", ("\x1b[31mred\x1b[0m",), None)
    )
    assert capsys.readouterr().err == "passed over: \\u001b[31mred\\u001b[0m\n"


STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def test_each_action_is_reported_with_its_time(store: str, tmp_path: Path) -> None:
    """By -v: probing, each step of making a kernel, and each trial; nothing without it."""
    home = {"XDG_CACHE_HOME": str(tmp_path)}
    at = ["--device", "cpu", "--database", store]
    in_a_process(["db", "import", os.devnull, "--database", store])  # which makes it
    made = in_a_process(["-v", "generate", *PRODUCT, *at], home).stderr.splitlines()
    assert all(re.match(STAMP, line) for line in made)
    told = "\n".join(made)
    for action in (
        "probing the devices of ",
        "the cache has no kernel",
        "writing the kernel of ",
        "building the kernel of ",
    ):
        assert action in told
    again = in_a_process(["-v", "generate", *PRODUCT, *at], home).stderr
    assert re.fullmatch(rf"{STAMP} 'ij,jk->ik' on cpu:.*: the kernel at rung '.*' is in the cache\n", again)
    tuned = in_a_process(
        ["-v", "tune", *PRODUCT, *at, "--space", "generic", "--trials", "2", "--workers", "1"], home
    ).stderr
    assert re.search(rf"^{STAMP} tuning 'ij,jk->ik' on cpu:.*; 0 configurations are known from ", tuned, re.MULTILINE)
    assert re.search(rf"^{STAMP} trial 2, generic .*: ok, .* ms$", tuned, re.MULTILINE)
    assert in_a_process(["generate", *PRODUCT, *at], home).stderr == ""


def test_lengths_may_be_written_as_floating_point_numbers() -> None:
    """If they are whole."""
    assert dict(describe_arguments("ij,j->i", sizes=["i=1e6", "j=2.5e1"], long=["i"]).sizes) == {"i": 1_000_000}
    with pytest.raises(click.UsageError, match=r"--size i=1\.5: a length is a whole number such as 20, 100_000 or 1e6"):
        describe_arguments("ij,j->i", sizes=["i=1.5", "j=3"])


@pytest.mark.parametrize("empty", ["i=0,j=4,k=4", "i=4,j=0,k=4", "i=4,j=4,k=0"])
@pytest.mark.parametrize("command", ["explain", "generate"])
def test_an_empty_axis_is_nothing_to_warn_of(run: Run, caplog: pytest.LogCaptureFixture, command: str, empty: str) -> None:
    """Spaces are asked at lengths of one, as they were made for."""
    result = run(command, "ij,jk->ik", "--size", empty, "--device", "cpu")
    assert (result.code, result.err, caplog.messages) == (0, "", [])


def test_lengths_that_nobody_gave_are_said_to_be_examples(run: Run) -> None:
    """And those that somebody gave are not."""
    invented = run("explain", "ij,ej->ei", "--size", "i=4,j=4", "--long", "e").out
    assert re.search(r"lengths +for example e=\d+ i=4 j=4", invented)
    assert re.search(r"lengths +e=100 i=4 j=4", run("explain", "ij,ej->ei", "--size", "i=4,j=4,e=100", "--long", "e").out)


def test_queries_show_this_device_first_each_configuration_once_and_say_whose_it_is(run: Run, store: str) -> None:
    """In the letters of the request: `lane` and `long` of vector_panels name indices."""
    asked = ["bj,drb,rij->dbi", "--shape", "f=n,20", "--shape", "G=3,3,n", "--shape", "M=3,20,20"]
    space = ["--space", "vector_panels"]
    how = ["--size", "n=999", "--trials", "3", "--workers", "1", "--device", "cpu", "--database", store]
    assert run("tune", *asked, *how, *space).code == 0
    lines = run("query", *asked, "--database", store).out.splitlines()
    heading = lines[0].split()
    assert heading[heading.index("device") :] == ["device", "origin", "kernel"]
    assert [" (here)  yours " in line for line in lines[1:]] == sorted(
        [" (here)  yours " in line for line in lines[1:]], reverse=True
    )
    ours = [line for line in lines if " yours " in line]
    kernels = [line.partition("vector_panels@")[2] for line in ours]
    assert 0 < len(set(kernels)) == len(kernels) <= 3
    assert all(re.search(r"\blane=[drbij] long=b\b", kernel) for kernel in kernels)
    assert any(" feinsum " in line for line in lines[1:])
    mine = run("query", *asked, "--database", store, "--mine").out.splitlines()
    assert mine[1:]
    assert all(" yours " in line for line in mine[1:])
    told = json.loads(run("query", *asked, "--database", store, "--json", "--limit", "1").out)
    assert told[0]["origin"] == "yours"
    assert run("query", "ij,ej->ei", "--size", "i=3,j=3", "--long", "e", "--mine", "--database", store).code == FAILED


def test_check_tells_every_error_and_exits_with_1(run: Run, tmp_path: Path) -> None:
    """Errors are on the standard error, each with its place; warnings and what is right are not."""
    path = tmp_path / "kernels.tc"
    path.write_text("func @f() {\n  %a = constant 1 : f32\n  %b = constant 2 -> i32\n  axpy %a\n}\n", encoding="utf-8")
    result = run("check", str(path))
    assert (result.code, result.out) == (FAILED, "")
    told = [line for line in result.err.splitlines() if line.startswith(str(path))]
    assert [line.partition(" ")[0] for line in told] == [f"{path}:2:8:", f"{path}:4:3:"]
    path.write_text("func @f() {\n  %b = constant 2 -> i32\n}\nfunc @g() {}\n", encoding="utf-8")
    result = run("check", str(path))
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[0].startswith(f"{path}:2:19: warning: ")
    assert result.out.splitlines()[-1] == f"{path}: 2 functions, 1 warning"
    assert run("check", str(path), "--strict").code == FAILED


def test_check_prints_json(run: Run, tmp_path: Path) -> None:
    """With the place, rule and notes of every error."""
    path = tmp_path / "kernels.txt"
    path.write_text("func @f(%A: memref<f32x4>) { %x = load %A[] : f32 }", encoding="utf-8")
    result = run("check", str(path), "--language", "tensor", "--json")
    (found,) = json.loads(result.out)["diagnostics"]
    assert (found["severity"], found["rule"], found["line"], found["column"]) == ("error", "index-count", 1, 35)
    assert found["notes"] == [{"message": "%A: memref<f32x4>", "file": str(path), "line": 1, "column": 9}]
    assert result.code == FAILED


def test_format_prints_the_canonical_text(run: Run, tmp_path: Path) -> None:
    """Or writes it back; a program with errors is left as it is."""
    path = tmp_path / "kernels.tc"
    path.write_text("func @f(){%a=constant 2.:f32}", encoding="utf-8")
    canonical = "func @f() {\n    %a = constant 2.0 : f32\n}\n"
    assert run("format", str(path)) == (0, canonical, "")
    assert run("format", str(path), "--in-place") == (0, "", "")
    assert path.read_text(encoding="utf-8") == canonical
    path.write_text("func @f(){%a=constant 2:f32}", encoding="utf-8")
    result = run("format", str(path), "--in-place")
    assert result.code == FAILED
    assert result.err.startswith(f"{path}:1:14: error: ")
    assert path.read_text(encoding="utf-8") == "func @f(){%a=constant 2:f32}"


def test_mistakes_about_languages_are_told_in_a_line(run: Run, tmp_path: Path) -> None:
    """A file that is not there, a language that is not, and one that cannot be guessed."""
    path = tmp_path / "kernels.txt"
    for arguments, message in (
        (("check", str(path)), "No such file or directory"),
        (("check", str(path), "--language", "fortran"), "no language 'fortran'; give one of tensor"),
    ):
        result = run(*arguments)
        assert result.code in (FAILED, MISTAKE)
        assert message in result.err
    path.write_text("program main", encoding="utf-8")
    result = run("format", str(path))
    assert result.code == MISTAKE
    assert "--language, one of tensor" in result.err


SCALE = """func @scale(%s: f32, %x: memref<f32x?x?>) {
    %id = builtin.group_id : index
    %n = size %x[0] : index
    %c = subview %x[0:%n, %id] : memref<f32x?>
    %0 = constant 0.0 : f32
    axpby.n %s, %c, %0, %c
}
"""


def test_run_compares_random_arguments_with_the_interpreter(run: Run, tmp_path: Path) -> None:
    """Sizes follow from the count, or are said; what is wrong with them is said in a line."""
    path = tmp_path / "kernels.tc"
    path.write_text(SCALE, encoding="utf-8")
    told = json.loads(run("run", str(path), "--count", "3", "--size", "x.0=5", "--time", "--json").out)
    assert told["written"] == {"x": [5, 3]}
    assert (told["function"], told["route"]) == ("scale", "general")
    assert told["deviation"] == 0
    assert told["median_s"] > 0
    shown = run("run", str(path), "--count", "3")
    assert "%x: float32 of 8x3" in shown.out
    assert run("run", str(path), "--size", "y=3").code == FAILED
    assert run("run", str(path), "--size", "x.0=many").code == MISTAKE
    assert "foreach (" in run("run", str(path), "--ir", "linear-algebra").out
    assert "__kernel" in run("run", str(path), "--source").out


def test_run_takes_and_writes_arrays(run: Run, tmp_path: Path) -> None:
    """Numbers and files as arguments; what is not among them is random."""
    path, given, wanted = tmp_path / "kernels.tc", tmp_path / "x.npy", tmp_path / "y.npy"
    path.write_text(SCALE, encoding="utf-8")
    np.save(given, np.arange(6, dtype=np.float32).reshape(2, 3))
    result = run("run", str(path), "--arg", f"x={given}", "--arg", "s=2.0", "--out", f"x={wanted}", "--check")
    assert (result.code, result.err) == (0, "")
    np.testing.assert_array_equal(np.load(wanted), 2 * np.arange(6, dtype=np.float32).reshape(2, 3))
    assert run("run", str(path), "--arg", "z=1").code == FAILED
    assert run("run", str(path), "--out", f"s={wanted}").code == FAILED
