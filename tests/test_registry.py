"""The registry: feinsum's own spaces and those of installed packages, whatever state these are in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import feinsum.transforms
import pytest
from plugins import install, installing

import feinsum as fe
from feinsum import registry
from feinsum.devices import Device
from feinsum.tune.task import make_task
from feinsum.tune.tuning_search import TuningSearch

SPACE = '''
from feinsum.space import space

@space(pattern="abc,cd->abd", version=3, parameters={"size": (1, 2)})
def NAME(t_unit, match, problem, *, size):
    """A family of its own."""
    return t_unit
'''


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A directory of installed packages, and a registry that has not looked yet."""
    with installing(tmp_path):
        yield tmp_path


def test_the_spaces_of_an_installed_package_are_found(site: Path) -> None:
    """All spaces of the module that its entry point names, or the one space that it names."""
    install(site, "one_package", SPACE.replace("NAME", "first") + SPACE.replace("NAME", "second"))
    install(site, "other_package", SPACE.replace("NAME", "third") + SPACE.replace("NAME", "fourth"), "other_package:third")
    names = [space.name for space in registry.spaces()]
    assert {"first", "second", "third", "generic"} <= set(names)
    assert "fourth" not in names
    assert registry.find_space("first").version == 3
    assert registry.find_space("first").description == "A family of its own."


def test_matching_spaces_come_most_specific_first(site: Path) -> None:
    """Of higher rank first, then by name; the generic space is last."""
    ranked = SPACE.replace("version=3,", "version=3, rank=RANK,")
    source = "".join(
        ranked.replace("NAME", name).replace("RANK", str(rank)) for name, rank in (("b", 5), ("a", 5), ("c", 9))
    )
    install(site, "ranked_package", source)
    e = fe.einsum("ijk,kl->ijl", fe.array("A", (2, 3, 4)), fe.array("B", (4, 5)))
    names = [space.name for space in registry.matching_spaces(e)]
    assert names[:3] == ["c", "a", "b"]
    assert names[-1] == "generic"
    assert "a" not in [space.name for space in registry.matching_spaces(fe.einsum("ij->j", fe.array("A", (2, 3))))]


BROKEN = {
    "a module that raises": ("raise RuntimeError('no licence')", None, "RuntimeError: no licence"),
    "a module that is not there": ("", "gone", "ModuleNotFoundError: No module named 'gone'"),
    "an attribute that is not there": ("", "bad_package:gone", "AttributeError: "),
    "something else": ("thing = 7", "bad_package:thing", "is neither a module nor a transform space, but a int"),
}


MISTAKES = {
    "is no Python": ("def f(:\n", "SyntaxError: invalid syntax", 1),
    "names what is not there": ("import feinsum\n\nfeinsum.gone\n", "AttributeError: ", 3),
    "declares a space wrongly": (
        SPACE.replace("version=3", "version=0").replace("NAME", "f"),
        "TransformError: the version of a space is a positive integer, not 0",
        4,
    ),
}


@pytest.mark.parametrize(("source", "message", "line"), MISTAKES.values(), ids=MISTAKES)
def test_a_broken_file_beside_ours_is_passed_over(
    source: str, message: str, line: int, site: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning that names file and line, so that every command works while a transform is being written."""
    monkeypatch.setattr(feinsum.transforms, "__path__", [*feinsum.transforms.__path__, str(site)])
    (site / "half_written_package.py").write_text(source)
    assert "generic" in {space.name for space in registry.spaces()}
    [record] = caplog.records
    assert (
        f"the transform spaces of 'feinsum.transforms.half_written_package' cannot be loaded: {message}" in record.message
    )
    assert record.message.endswith(f" ({site / 'half_written_package.py'}, line {line})")


@pytest.mark.parametrize(("source", "entry_point", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_package_is_passed_over(
    source: str, entry_point: str | None, message: str, site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning that names it; all other spaces work."""
    install(site, "bad_package", source, entry_point)
    install(site, "good_package", SPACE.replace("NAME", "good"))
    assert {"good", "generic"} <= {space.name for space in registry.spaces()}
    assert message in caplog.text
    assert "bad_package" in caplog.text or "gone" in caplog.text


def test_two_spaces_of_one_name_are_refused(site: Path) -> None:
    """Records could not tell them apart."""
    install(site, "package", SPACE.replace("NAME", "generic"))
    with pytest.raises(fe.TransformError, match="two transform spaces are named 'generic'; rename one of them"):
        registry.spaces()


def test_an_unknown_space_is_named_with_those_there_are() -> None:
    """In the order in which they are asked."""
    names = ", ".join(space.name for space in registry.spaces())
    with pytest.raises(fe.TransformError, match=f"no transform space is named 'gone'; there are {names}"):
        registry.find_space("gone")


SCRIPT = '''
import sys
import feinsum as fe
from feinsum import registry
from feinsum.rewrites import spread

@fe.space(pattern="abc,c->ba", version=1, parameters={"items": (16, 32, 8)})
def scripted(t_unit, match, problem, *, items):
    """One work-item a row."""
    return spread(t_unit, match, "a", items, problem.sizes)

if __name__ == "__main__":
    e = fe.einsum("abc,c->ba", fe.array("A", (40, "N", 30)), fe.array("x", 30))
    try:
        fe.autotune(e, "cpu", sys.argv[1], {"N": 50}, scripted, trials=2, workers=1)
    except fe.TransformError as error:
        print(error)
    registry.add_file(__file__)
    run = fe.autotune(e, "cpu", sys.argv[1], {"N": 50}, scripted, trials=2, workers=1, progress=False)
    print([record.status for record in run.records], run.best.space, len(fe.query(e, "cpu", sys.argv[1])))
'''


def test_a_space_that_a_script_declares_can_be_tuned(tmp_path: Path, store: str) -> None:
    """Once its file is named; before that, the error says what to do."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script, store], capture_output=True, text=True, timeout=300, check=False)
    said, *found = done.stdout.splitlines() or [done.stderr]
    assert said.startswith(f"space 'scripted' of {script} is not known to worker processes; call feinsum.registry.add_file")
    assert found == ["['ok', 'ok'] scripted 3"]


def test_files_of_spaces_are_named_in_the_environment(
    site: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is not there is passed over; one that changes is another module, so that no old kernel is taken for new."""
    file = site / "own_package.py"
    file.write_text(SPACE.replace("NAME", "mine"))
    monkeypatch.setenv(registry.VARIABLE, f"{site / 'gone.py'}:{file}")
    first = registry.find_space("mine")
    assert "gone.py' cannot be loaded: FileNotFoundError" in caplog.text
    file.write_text(SPACE.replace("NAME", "mine") + "# changed")
    registry.spaces.cache_clear()
    assert registry.find_space("mine").function.__module__ != first.function.__module__
    assert registry.name_everywhere(first) == registry.name_everywhere("mine") == "mine"
    monkeypatch.delenv(registry.VARIABLE)
    registry.spaces.cache_clear()
    with pytest.raises(fe.TransformError, match=r"'mine' of .* is not known to worker processes"):
        registry.name_everywhere(first)


FAULTY = {
    "whether it applies": "pattern=lambda e: 1/0, version=1, parameters={'items': (16,)}",
    "what it accepts": "pattern='ij,nj->ni', version=1, parameters={'items': (16,)}, constraint=lambda *_: 1/0",
    "what there is": "pattern='ij,nj->ni', version=1, parameters=lambda problem: 1/0",
    "for a kernel": "pattern='ij,nj->ni', version=1, parameters={'items': (16,)}",
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_faulty_space_costs_nothing_but_itself(
    fault: str, site: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, store: str, cpu: Device
) -> None:
    """Generating, timing and tuning go on without it, and the log has its name; it alone is an error that says why."""
    file = site / "faulty_space.py"
    file.write_text(f"import feinsum as fe\n@fe.space({FAULTY[fault]}, rank=9)\ndef faulty(*_, items):\n    pass\n")
    monkeypatch.setenv(registry.VARIABLE, str(file))
    e = fe.einsum("ij,ej->ei", fe.array("D", (6, 6)), fe.array("u", ("E", 6)))
    assert fe.generate(e, cpu, store, {"E": 100}).space != "faulty"
    assert "space 'faulty'" in caplog.text or "faulty {'items': 16} is passed over" in caplog.text
    if fault == "for a kernel":
        with pytest.raises(fe.SpaceError, match=r"space 'faulty' returns nothing for .*; return the given kernel, changed"):
            fe.timeit(e, cpu, sizes={"E": 100})
        return
    assert fe.timeit(e, cpu, sizes={"E": 100}, seconds=0.01).median_s > 0
    assert fe.explore(e, cpu, store, {"E": 100}).space.name != "faulty"
    task = make_task(e, {"E": 100}, cpu)
    with fe.Database(store) as database:
        assert TuningSearch(task, database, None, 5, None).next_trial() is not None
        alone = "space 'faulty' fails when asked|no transform space named 'faulty' applies"
        with pytest.raises((fe.SpaceError, fe.TransformError), match=alone):
            TuningSearch(task, database, "faulty", 5, None)
