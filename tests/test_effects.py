"""What all of a process shares is as it was found, save what :mod:`feinsum.effects` lists."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from feinsum import effects

ROOT = Path(__file__).parents[1]
OWN = {"tune.worker", "tune.memory_limit", "languages.declarative.tracing"}
"""Modules that change what is their own: processes for trials, and a class."""
CHANGES = re.compile(
    r"= (Replaced|Pause)\(|\breplace\([\"'][\w.]+:|\blasts\(f?[\"']|\b(set_variable|setattr|simplefilter|filterwarnings)\("
    r"|sys\.(meta_path|path)\.|(sys\.modules|os\.environ)\[.*\] =|os\.environ\.(update|pop)|os\.(putenv|umask|chdir)"
    r"|\bsignal\.signal\(|atexit\.register\(|register_at_fork\(|\bgc\.(disable|set_threshold)|\bset_(verbosity|caching_enabled)"
    r"|set(recursionlimit|switchinterval|rlimit)|set_int_max_str_digits|seterr\(|sys\.(stdout|stderr|excepthook) =",
    re.MULTILINE,
)
"""What changes something of the process, or of another library."""
LOOK = """
import atexit, gc, importlib, json, logging, os, signal, sys, threading, types, warnings

LIBRARIES = "pytools loopy islpy pymbolic pyopencl opt_einsum igraph optuna numpy sqlite3 cgen genpy".split()
OWN = "os sys warnings signal gc threading logging builtins".split()

def seen():
    state = {"sys.meta_path": sys.meta_path, "sys.path_hooks": sys.path_hooks, "sys.path": sys.path}
    state |= {"warnings.filters": warnings.filters, "gc": (gc.isenabled(), gc.get_threshold())}
    state |= {"limits": (sys.getrecursionlimit(), sys.get_int_max_str_digits(), sys.getswitchinterval())}
    state |= {"hooks": (sys.excepthook, threading.excepthook, sys.gettrace(), sys.getprofile(), sys.stdout, sys.stderr)}
    state |= {"logging": (logging.root.handlers, logging.root.level), "directory": os.getcwd()}
    state = {place: repr(value) for place, value in state.items()}
    state["signal"] = repr([signal.getsignal(number) for number in sorted(signal.valid_signals())])
    state |= {f"os.environ:{name}": value for name, value in os.environ.items()}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in (*LIBRARIES, *OWN):
            for key, value in list(vars(module).items()):
                state[f"{name}:{key}"] = noted(value)
                if isinstance(value, type) and value.__module__ == name:
                    state |= {f"{name}:{key}.{one}": noted(it) for one, it in list(vars(value).items())}
    return state

def noted(value):
    kept.append(value)  # or another object could have its id
    table = isinstance(value, dict) and all(isinstance(one, str) for one in [*value, *value.values()])
    return repr(value) if table else id(value)

def changed(before):
    after = seen()
    ours = {p for p, value in after.items() if p not in before and (p.startswith("os.environ:") or of_feinsum(value))}
    return sorted({p for p, value in before.items() if after.get(p) != value} | ours)

def of_feinsum(number):
    value = next((one for one in kept if id(one) == number), None)
    return str(getattr(value, "__module__", "")).partition(".")[0] == "feinsum"

kept = []
for name in LIBRARIES:
    if name not in left:
        importlib.import_module(name)
"""
STAGES = """
import loopy.codegen.loop, numpy.random, optuna.samplers, pyopencl.array, pyopencl.invoker, pytools.persistent_dict
before, found = seen(), {{}}
import feinsum as fe
found["import"] = changed(before)
import opt_einsum.backends.dispatch as dispatch
assert "feinsum" in dispatch._aliases and "feinsum" not in type(dispatch.__loader__).__module__
e = fe.einsum("ij,jk,kl->il", fe.array("A", (5, 6)), fe.array("B", (6, 7)), fe.array("C", (7, "N")))
kernel = fe.generate(e, {device!r}, sizes={{"N": 8}})
kernel(A=numpy.ones((5, 6)), B=numpy.ones((6, 7)), C=numpy.ones((7, 8)))
fe.transform(fe.generate_loopy(e), fe.device({device!r}), sizes={{"N": 8}})
found["generate"] = changed(before)
from feinsum import effects
effects.undo()
found["undo"] = changed(before)
assert "feinsum" not in dispatch._aliases
fe.generate(fe.einsum("ij->ji", fe.array("A", (9, 5))), {device!r})
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False], ids=["before opt_einsum", "after opt_einsum"])
def test_nothing_but_what_is_listed_is_changed(early: bool, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """By the import, and by a kernel made; most of it can be undone, and is made again where it is needed."""
    script = (
        f"left = {['opt_einsum'] * early}\n" + LOOK + STAGES.format(device=request.config.getoption("--cpu"), early=early)
    )
    settings = {name: value for name, value in os.environ.items() if name != "OCL_ICD_VENDORS"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**settings, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    listed = {effect.place for effect in effects.EFFECTS}
    lasting = {effect.place for effect in effects.EFFECTS if "undo()" in effect.until}
    assert set(found["import"]) == {"sys.meta_path"} if early else {"opt_einsum.backends.dispatch:_aliases"}
    assert set(found["generate"]) <= lasting <= listed
    assert set(found["generate"]) >= {place for place in lasting if place.startswith("pytools")}
    assert found["undo"] == []


def test_every_module_that_changes_something_is_listed() -> None:
    """A change that nobody lists is one that nobody can look up."""
    changing = set()
    for path in sorted((ROOT / "feinsum").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "feinsum").with_suffix("").parts)
        if CHANGES.search(path.read_text(encoding="utf-8")):
            changing.add(name)
    assert changing - OWN == {name for effect in effects.EFFECTS for name in effect.by}


def test_a_change_that_is_not_listed_is_refused() -> None:
    """So the list is whole."""
    with pytest.raises(AssertionError, match="json:dumps is to be changed, but EFFECTS does not list it"):
        effects.replace("json:dumps", lambda _: None)
    with pytest.raises(AssertionError, match=r"os\.environ:HOME is changed, but EFFECTS does not list it"):
        effects.set_variable("HOME", "/")


def test_what_a_library_lacks_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version without the attribute needs no change, or none that is known."""
    monkeypatch.delattr("islpy._monkeypatch.warn")
    with effects.deprecations_paused:
        assert effects.deprecations_paused.is_inside
    assert not effects.deprecations_paused.is_inside
