"""Exploring a space: what is in it, what its points look like, how they differ, what a sample says; and numpy beside it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_displays import shown

import feinsum as fe
from feinsum.exploration import Exploration, compare_with_numpy, explore
from feinsum.exploration.peer import numpy_evaluation, random_arrays
from feinsum.registry import find_space
from feinsum.space import space

E = fe.einsum("xre,rij,ej->xei", fe.array("J", (3, 3, "E")), fe.array("D", (3, 4, 4)), fe.array("u", ("E", 4)))
SIZES = {"E": 500}


@pytest.fixture
def gradient(cpu: fe.Device, store: str) -> Exploration:
    return explore(E, cpu, store, SIZES, "dg_gradient")


def test_a_space_is_found_for_an_einsum(cpu: fe.Device) -> None:
    """The first that matches and has any configuration on the device; one that does not match is refused."""
    found = explore(E, cpu, sizes=SIZES)
    assert found.census.accepted > 0
    assert found.default == dict(found.space.default(found.problem))
    with pytest.raises(fe.TransformError, match="space 'matrix_product' does not apply to 'xre,rij,ej->xei'"):
        explore(E, cpu, space="matrix_product")


def test_an_exploration_shows_parameters_and_survivors(gradient: Exploration) -> None:
    """And says in a line how many there are."""
    assert str(gradient).endswith("10 of 10 combinations are configurations")
    text = shown(gradient)
    for name in gradient.parameters:
        assert f">{name}</td>" in text


def test_the_picture_has_a_box_for_every_choice(gradient: Exploration) -> None:
    """With the choice written in it."""
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    (axes,) = gradient.picture().axes
    written = [text.get_text() for text in axes.texts]
    assert written == [str(value) for values in gradient.parameters.values() for value in values]


def test_a_point_is_the_default_with_changes(gradient: Exploration) -> None:
    """Its code is that of the configuration, in loopy and in OpenCL; what the space refuses says why."""
    point = gradient.point({"elements": 64})
    assert point.configuration == {**gradient.default, "elements": 64}
    assert "reqd_work_group_size(64, 1, 1)" in point.code.source
    assert "\x1b" not in point.code.loopy_text
    text = shown(point)
    assert "loopy" in text
    assert "OpenCL C" in text
    refused = gradient.point({"elements": 7})
    assert refused.refusal is not None
    assert "elements is 7, not one of" in shown(refused)
    with pytest.raises(fe.TransformError, match="space 'dg_gradient' has no parameter 'size'; it has elements, unroll"):
        gradient.point({"size": 7})


def test_two_configurations_are_compared(gradient: Exploration) -> None:
    """By parameter, and line by line."""
    comparison = gradient.compare({"elements": 16}, {"elements": 32})
    assert comparison.changes == {"elements": (16, 32)}
    assert comparison.summary == "elements: 16 -> 32"
    difference = str(comparison).splitlines()
    assert difference[:2] == ["--- elements=16", "+++ elements=32"]
    assert any(line.startswith("-") and "16" in line for line in difference[2:])
    assert "reqd_work_group_size(32, 1, 1)" in shown(comparison)
    assert "elements is 7" in shown(gradient.compare({}, {"elements": 7}))


def test_a_sample_of_a_registered_space_is_recorded(gradient: Exploration) -> None:
    """And the times stand beside the configurations afterwards."""
    report = gradient.sample(3, progress=False)
    assert {r.space for r in report.records} == {"dg_gradient"}
    found = gradient.records()
    assert {r.id for r in report.records if r.median_s is not None} <= {r.id for r in found}
    best = gradient.point(found[0].configuration)
    assert gradient.recorded_s(best) == found[0].median_s
    assert shown(gradient.compare({}, best.configuration)).count("recorded time") == 1


def test_a_space_that_is_being_written_is_tried_here(cpu: fe.Device, store: str) -> None:
    """In this process and without records; a transformation that computes something else is told as wrong."""

    @space(pattern="xre,rij,ej->xei", version=1, parameters={"right": (True, False)})
    def mine(t_unit: Any, m: Any, p: Any, *, right: bool) -> Any:
        """Nothing is transformed, or the metric is thrown away."""
        if right:
            return t_unit
        kernel = t_unit.default_entrypoint
        rule = kernel.substitutions[m.rules[0][0]]
        rules = {**kernel.substitutions, rule.name: replace_expression(rule)}
        return t_unit.with_kernel(kernel.copy(substitutions=rules))

    x = explore(E, cpu, store, SIZES, mine)
    assert not x.registered
    report = x.sample(5, progress=False)
    assert {r.configuration["right"]: r.status for r in report.records} == {True: "ok", False: "wrong"}
    assert report.best is not None
    assert x.records() == []


def replace_expression(rule: Any) -> Any:
    return rule.copy(expression=2 * rule.expression)


def test_a_space_that_only_looks_registered_is_tried_here(cpu: fe.Device, store: str) -> None:
    """Other processes would find another space by its name."""
    impostor = replace(find_space("dg_gradient"), version=99)
    assert not explore(E, cpu, store, SIZES, impostor).registered
    assert explore(E, cpu, store, SIZES, "dg_gradient").registered


def test_controls_are_widgets_where_there_are_widgets(gradient: Exploration) -> None:
    """Moving one changes the configuration, its status and its code; a page without widgets gets the table."""
    pytest.importorskip("ipywidgets", reason="the extra 'notebooks' is not installed")
    controls = gradient.controls()
    assert set(controls.widgets) == {"elements", "unroll"}
    assert list(controls.widgets["elements"].options) == [(str(n), n) for n in (8, 16, 32, 64, 128)]
    controls.widgets["elements"].value = 64
    assert controls.configuration["elements"] == 64
    controls.choose(elements=32, unroll=True)
    assert controls.widgets["elements"].value == 32
    assert controls.widgets["unroll"].value is True
    assert controls.configuration == {"elements": 32, "unroll": True}
    assert controls.status() == "accepted, not measured yet"
    assert controls.time().startswith("right, ")
    bundle = controls._repr_mimebundle_()
    assert {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"} <= set(bundle)


def test_controls_are_a_table_elsewhere(gradient: Exploration, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same choices, made by name."""
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    controls = gradient.controls()
    assert controls.widgets == {}
    controls.choose(elements=32)
    assert controls.configuration["elements"] == 32
    assert set(controls._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert "elements=32" in str(controls)
    assert ">32</span>" in shown(controls)


def test_a_kernel_is_compared_with_numpy(cpu: fe.Device, store: str) -> None:
    """The results agree to rounding; there are times for both, and a point for each below the roof."""
    kernel = fe.generate(E, cpu, store, SIZES)
    comparison = compare_with_numpy(kernel, SIZES, seconds=0.05)
    assert comparison.error < 1e-13
    assert set(comparison.times_s) == {"feinsum", "feinsum, numpy arrays", "numpy"}
    assert all(t > 0 for t in comparison.times_s.values())
    assert "numpy" in shown(comparison)
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    (axes,) = comparison.picture().axes
    assert len(axes.lines) == 4


def test_numpy_computes_the_same_einsum() -> None:
    """Entries of several arrays are multiplied, every row is an output, and all types have numbers."""
    a, b, c = fe.array("a", (2, 3), "complex64"), fe.array("b", (2, 3), "int16"), fe.array("c", (3, 4), "uint8")
    e = fe.batched_einsum("ij,jk->ik", [[(a, b), c], [b, c]])
    arrays = random_arrays(e, {})
    assert {name: x.dtype.name for name, x in arrays.items()} == {"a": "complex64", "b": "int16", "c": "uint8"}
    first, second = numpy_evaluation(e, arrays)()
    assert np.allclose(first, (arrays["a"] * arrays["b"]) @ arrays["c"])
    assert np.array_equal(second, arrays["b"] @ arrays["c"])
