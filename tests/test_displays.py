"""What objects show in a notebook: formula, figures and code, escaped, without scripts; and in a terminal, a line."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from profiles import CPU, GPU

import feinsum as fe
from feinsum.devices import Device
from feinsum.registry import find_space, spaces
from feinsum.report import code, html
from feinsum.report.census import take_census
from feinsum.report.formula import latex
from feinsum.space import TransformSpace, space
from feinsum.timing import Timing
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome

J, D, U = fe.array("J", (3, 3, "E")), fe.array("D", (3, 4, 4)), fe.array("u_old", ("E", 4))
GRADIENT = fe.einsum("xre,rij,ej->xei", J, D, U)
FORMULA = r"\mathrm{out}_{xei} = \sum_{r,j} J_{xre}\, D_{rij}\, \mathrm{u\_old}_{ej}"
EVIL = "<script>alert(1)</script>"


class Page(HTMLParser):
    """A reader that knows which elements are open, to see that all are closed and none is a script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "img")
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in ("br", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown(thing: Any) -> str:
    """The html of an object, which is well formed, executes nothing and loads nothing from elsewhere."""
    text: str = thing._repr_html_()
    assert Page(text).open == []
    assert not re.search(r"(src|href)\s*=", text)
    return text


def test_an_einsum_shows_its_formula_and_its_work() -> None:
    """In LaTeX, and drawn without a script; operations, bytes and operations a byte at round lengths, which it names."""
    assert GRADIENT._repr_latex_() == f"$\\displaystyle {FORMULA}$"
    text = shown(GRADIENT)
    assert "<math" in text
    assert FORMULA in text
    sizes = {"E": 100_000}
    assert f"E={sizes['E']}" in text
    assert f"{GRADIENT.flops(sizes):,}" in text
    assert f"{GRADIENT.min_bytes(sizes):,}" in text
    assert f"{GRADIENT.flops(sizes) / GRADIENT.min_bytes(sizes):.3g} operations a byte" in text


def test_every_output_has_a_line_up_to_four() -> None:
    """Of more, the first three and the last; arrays of one entry are multiplied like all others."""
    v = [fe.array(f"v{k}", ("E", 4)) for k in range(6)]
    several = fe.batched_einsum("xre,rij,ej->xei", [[J, D, (U, w)] for w in v])
    text = latex(several)
    assert r"\mathrm{out\_0}_{xei} &= \sum_{r,j} J_{xre}\, D_{rij}\, \mathrm{u\_old}_{ej}\, \mathrm{v0}_{ej}" in text
    assert [name for name in ("out\\_2", "out\\_3", "vdots", "out\\_5") if name in text] == ["out\\_2", "vdots", "out\\_5"]
    assert "⋮" in shown(several)


@pytest.mark.parametrize(
    ("subscripts", "formula"),
    [("i->i", r"\mathrm{out}_{i} = A_{i}"), ("i->", r"\mathrm{out} = \sum_{i} A_{i}")],
    ids=["no sum", "a number"],
)
def test_sums_and_indices_that_are_not_there_are_not_written(subscripts: str, formula: str) -> None:
    """A formula has a sum sign where something is summed, and indices where there are axes."""
    assert latex(fe.einsum(subscripts, fe.array("A", 3))) == formula


def test_a_canonical_einsum_shows_who_is_who() -> None:
    """Its key, its formula and the renaming."""
    text = shown(fe.canonicalize_einsum(GRADIENT))
    assert html.markup(fe.canonicalize_einsum(GRADIENT).key) in text
    assert ">u_old</td>" in text


def test_a_device_shows_limits_and_why_it_cannot_be_used(cpu: fe.Device) -> None:
    """Peaks too, if they were measured; asking does not measure them."""
    text = shown(cpu)
    assert cpu.id in text
    assert str(cpu.profile.max_work_group_size) in text
    broken = shown(Device(replace(GPU, name=EVIL), why=f"{EVIL} no driver"))
    assert EVIL not in broken
    assert html.markup(f"{EVIL} no driver") in broken
    assert "copying" not in broken


@pytest.mark.parametrize("s", spaces(), ids=lambda s: s.name)
def test_every_space_shows_parameters_and_how_many_configurations_there_are(s: TransformSpace) -> None:
    """For an example that it accepts, with the sources of parameters and constraint."""
    text = shown(s)
    assert ("combinations are configurations" in text) != ("explore an einsum of yours" in text)
    assert "source: parameters" in text
    assert "source: constraint" in text


def test_a_kernel_shows_where_it_comes_from_and_its_code(cpu: fe.Device, store: str) -> None:
    """Rung and configuration; once there are peaks, the least time, or the roofline as a bar; the code folded away."""
    kernel = fe.generate(GRADIENT, cpu, store, {"E": 1000})
    _ = cpu.peaks
    text = shown(kernel)
    assert f"{kernel.rung}: " in text
    assert "least time" in text or "% of what the device can do" in text
    assert "<details>" in text
    assert "reqd_work_group_size" in text
    report = fe.autotune(GRADIENT, cpu, store, {"E": 1000}, "dg_gradient", trials=1, workers=1, progress=False)
    assert report.best is not None
    tuned = shown(fe.generate(GRADIENT, cpu, store, {"E": 1000}))
    assert "% of what the device can do" in tuned
    assert 'class="bar"' in tuned


def test_the_answer_of_a_query_is_a_list_that_shows_a_table() -> None:
    """Messages of failures are text of somebody, so they are escaped; an empty answer says so."""
    from feinsum.query import QueryResult

    task = make_task(GRADIENT, {"E": 1000}, CPU)
    trial = task.trial(find_space("dg_gradient"), {"elements": 16, "unroll": False})
    good, bad = task.record(trial, Outcome("ok", samples_s=(1e-3, 1.1e-3))), task.record(trial, Outcome("wrong", EVIL))
    found = QueryResult([good, bad])
    assert found == [good, bad]
    assert isinstance(found, list)
    text = shown(found)
    assert "1.05 ms" in text
    assert EVIL not in text
    assert html.markup(EVIL) in text
    assert [line.split()[0] for line in repr(found).splitlines()] == ["1.05", "wrong"]
    assert repr(QueryResult()) == "no records"
    assert "no records" in shown(QueryResult())


def test_a_match_shows_names_and_instructions() -> None:
    """What the einsum's names are in the kernel."""
    match = fe.match_einsum(fe.generate_loopy(GRADIENT))
    text = shown(match)
    assert "names" in text
    for name in match.names.values():
        assert f">{name}</td>" in text


def test_whatever_a_session_gives_shows_itself(cpu: Device, store: str) -> None:
    """Arrays, profiles, records, rooflines, timings, stores and expressions, each with its figures."""
    task = make_task(GRADIENT, {"E": 1000}, CPU)
    trial = task.trial(find_space("dg_gradient"), {"elements": 16, "unroll": False})
    record = task.record(trial, Outcome("ok", samples_s=(1e-3, 1.1e-3)))
    failed = task.record(trial, Outcome("wrong", EVIL))
    with fe.Database(store) as database:
        database.add(record)
        stored = shown(database)
    timing = Timing((1e-3, 1.1e-3, 1.2e-3), runs_per_sample=4)
    expression = fe.contract_expression("ij,jk->ik", (4, 5), np.ones((5, 6)), constants=[1])
    said = {
        "u_old": U,
        "work-items at most": replace(GPU, name=EVIL),
        "1.05 ms": record,
        "100 µs at least": fe.Roofline(10**6, 10**6, 1e-4, 2e-4),
        "1.1 ms": timing,
        "each the mean of 4 runs": timing,
        "4 × 6": expression,
    }
    for words, thing in said.items():
        assert words in shown(thing)
    assert "1 record of 1 einsum" in stored
    assert EVIL not in shown(failed)
    assert html.markup(EVIL) in shown(failed)


def test_lengths_that_nobody_gave_are_said_to_be_examples() -> None:
    """Other displays say which lengths they are of."""
    assert "for example at" in shown(GRADIENT)
    assert "for example at" not in shown(fe.einsum("i->", fe.array("A", 3)))


def test_texts_for_a_terminal_are_one_line() -> None:
    """Objects that hold much say little."""
    assert repr(GRADIENT) == f"<BatchedEinsum {GRADIENT}>"
    assert repr(fe.match_einsum(fe.generate_loopy(GRADIENT))).startswith("<Match ")
    for thing in (GRADIENT, fe.canonicalize_einsum(GRADIENT), find_space("generic")):
        assert "\n" not in repr(thing)


def test_names_are_never_html() -> None:
    """Whoever makes an array by hand may name it as he likes."""
    e = fe.BatchedEinsum(GRADIENT.indexing, (((J,), (D,), (replace(U, name=EVIL),)),))
    assert EVIL not in shown(e)
    assert html.markup(EVIL) in shown(e)
    assert "_{<" not in e._repr_latex_()


def test_a_census_counts_what_a_constraint_lets_pass() -> None:
    """Exactly where there are few combinations, from a sample of many; reasons that differ in numbers are one."""
    even = space(
        pattern="xre,rij,ej->xei",
        version=1,
        parameters={"a": range(1, 11), "b": range(100)},
        constraint=lambda p, c: f"{c['a']} is odd" if c["a"] % 2 else None,
        name="even",
    )(lambda t_unit, match, problem, **configuration: t_unit)
    problem = even.problem(GRADIENT, {"E": 1000}, CPU)
    census = take_census(even, problem)
    assert (census.size, census.accepted, census.complete) == (1000, 500, True)
    assert str(census) == "500 of 1,000 combinations are configurations"
    assert {value: passed for value, _, passed in census.choices["a"]} == {a: 0 if a % 2 else 100 for a in range(1, 11)}
    assert list(census.reasons.values()) == [500]
    some = take_census(even, problem, limit=200)
    assert (some.seen, some.complete) == (200, False)
    assert str(some).startswith("about ")
    assert 350 < some.configurations < 650


def test_code_is_coloured_where_pygments_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And plain elsewhere; escaped in either case."""
    pytest.importorskip("pygments", reason="the extra 'report' is not installed")
    source = "__kernel void f(__global double4 *a) { if (1 < 2) a[0] = 0.0; }"
    coloured = code.highlighted(source, "opencl")
    assert '<span class="kt">__kernel</span>' in coloured
    assert '<span class="kt">double4</span>' in coloured
    assert "&lt;" in coloured
    monkeypatch.setitem(sys.modules, "pygments", None)
    assert code.highlighted(source, "opencl") == f"<pre>{html.markup(source)}</pre>"


def test_two_sources_line_by_line() -> None:
    """What differs is marked by a sign and a tint; long stretches in common are left out."""
    lines = [f"line {k};" for k in range(20)]
    changed = [*lines[:9], "if (a < b)", *lines[10:], "one more"]
    text = code.line_by_line("\n".join(lines), "\n".join(changed))
    assert Page(text).open == []
    assert '<td class="less">line 9;</td><td class="sign">+</td><td class="more">if (a &lt; b)</td>' in text
    assert "… 7 lines in common" in text
    assert "line 15;" not in text
    assert code.line_by_line("a", "a") == "<p>the same</p>"


def test_importing_feinsum_loads_no_report() -> None:
    """What is shown in notebooks costs nothing where nothing is shown."""
    script = "import sys, feinsum; print(*(name for name in sys.modules if name.startswith('feinsum.report')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
