"""Effects: every change that feinsum makes to state which all of a process shares, why, by which module, and for how long.

Everything else is left as it was found.  Names that feinsum registers as its own, such as operators of torch, change no
other library; processes that feinsum starts (workers, probes) are its own.

Attributes of other libraries are replaced here alone, and only those that :data:`EFFECTS` lists; where a version of the
library has no such attribute, nothing is replaced.
"""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import Any

_LASTS, _MAKING, _ENDS = "`undo()` is called", "no thread makes a kernel", "the process ends"


@dataclass(frozen=True)
class Effect:
    """One change.

    :ivar place: the state that is changed; ``module:attribute`` for attributes of libraries.
    :ivar by: the modules of feinsum that change it.
    :ivar until: the event after which it is as it was.
    :ivar why: the reason.
    :ivar of: the library whose internal attribute is changed, and its versions.
    """

    place: str
    by: tuple[str, ...]
    until: str
    why: str
    of: str = ""


_PYTOOLS = ("_PersistentDictBase.__init__", "_PersistentDictBase._exec_sql_fn", "WriteOncePersistentDict._fetch_uncached")

EFFECTS = (
    Effect("sys.meta_path", ("_backend",), "opt_einsum is imported, or `undo()` called",
           "a finder learns that opt_einsum is imported, which then gets the name of feinsum's backend", "opt_einsum 3.4"),
    Effect("opt_einsum.backends.dispatch:_aliases", ("_backend",), _LASTS,
           "`oe.contract(..., backend='feinsum')` calls the module that computes", "opt_einsum 3.4"),
    Effect("sys.modules", ("_checkout", "canonicalization.bliss", "registry"), _ENDS,
           "some modules are not on Python's path: those of a checkout, igraph's extension, and files of spaces"),
    *(Effect(f"pytools.persistent_dict:{name}", ("caches",), _LASTS,
             "a damaged file among the caches of loopy and pyopencl costs time and nothing else, and so does a full disk;"
             " making a cache does not wait for the disk", "pytools 2025.1 to 2026.1") for name in _PYTOOLS),
    Effect("islpy._monkeypatch:warn", ("effects",), _MAKING,
           "threads that make kernels get no warnings that loopy uses deprecated functions of islpy, which"
           " would be errors under `python -W error`; the filters that all threads share stay as they are", "loopy 2025.2"),
    Effect("loopy.codegen.loop:set_up_hw_parallel_loops", ("compile.ordered",), _MAKING,
           "the same kernel has the same source in every process", "loopy 2025.2"),
    Effect("loopy:CACHING_ENABLED", ("compile.codegen",), _MAKING,
           "loopy would keep every kernel that is tried on disk, without a bound"),
    Effect("pymbolic.mapper:CachedMapper.get_cache_key", ("compile.detours",), _MAKING,
           "the same key is not made again at every node of an expression", "pymbolic 2025.1"),
    Effect("loopy.codegen.control:dataclass", ("compile.detours",), _MAKING,
           "the same class is not declared again for every loop", "loopy 2025.2"),
    *(Effect(f"loopy.kernel:LoopKernel.get_grid_sizes_for_insn_ids{form}", ("compile.detours",), _MAKING,
             "no digest of the whole kernel is taken to remember a grid", "loopy 2025.2")
      for form in ("", "_as_dicts", "_as_exprs")),
    Effect("gc", ("effects",), _MAKING,
           "looking through loopy's objects, which live on, would take a tenth of the time"),
    Effect("signal", ("interrupts",), "the module is imported",
           "Python's signal handlers wait while a binary module is imported, which they would leave half imported"),
    Effect("os.environ:OCL_ICD_VENDORS", ("devices.icd",), _LASTS,
           "the loader of OpenCL finds the drivers that pip and conda installed; your own value stays"),
    Effect("os.environ:XDG_CACHE_HOME", ("devices.json_store",), _LASTS,
           "where your cache directory cannot be written, pyopencl and OpenCL runtimes need another"),
    Effect("os.environ:FEINSUM_TRANSFORMS", ("registry",), _ENDS,
           "worker processes load the files that `registry.add_file` was given, too"),
    Effect("atexit", ("ending", "apart"), _ENDS, "the process waits for calls of drivers, not for candidates"),
    Effect("os.register_at_fork", ("ending",), _ENDS, "a forked process has none of the threads that are in drivers"),
    Effect("warnings.filters", ("search.tpe",), "the search has begun", "Optuna warns that its sampler is experimental"),
    Effect("optuna.logging", ("search.tpe",), "the search has begun", "Optuna prints a line for each search"),
)  # fmt: skip
"""Every change, in the order of first use."""

_PLACES = {effect.place for effect in EFFECTS}
_lasting: dict[str, Callable[[], object]] = {}
"""The function that undoes each change that lasts, by place."""


def lasts(place: str, undo: Callable[[], object]) -> None:
    """Note a lasting change of a listed place, with the function that restores the first state."""
    assert place in _PLACES, f"{place} is changed, but EFFECTS does not list it"
    _lasting.setdefault(place, undo)


def undo() -> None:
    """Undo the changes that last and can be undone; feinsum makes them again where it needs them.

    Spaces, kernels and devices go on working.  ``until`` of each of :data:`EFFECTS` says which changes these are.
    """
    while _lasting:
        _lasting.popitem()[1]()


def set_variable(name: str, value: str) -> None:
    """Set an environment variable; :func:`undo` restores its value."""
    before = os.environ.get(name)
    lasts(f"os.environ:{name}", lambda: os.environ.pop(name, None) if before is None else os.environ.update({name: before}))
    os.environ[name] = value


def replace(place: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute of a library, once, by what `make` returns for it; :func:`undo` restores it."""
    if place not in _lasting and (found := _find(place)) is not None:
        owner, name = found
        original = getattr(owner, name)
        lasts(place, lambda: setattr(owner, name, original))
        setattr(owner, name, make(original))


def _find(place: str) -> tuple[Any, str] | None:
    """The object that has a listed attribute, and the attribute's name; None if the library has no such attribute."""
    assert place in _PLACES, f"{place} is to be changed, but EFFECTS does not list it"
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    try:
        owner = functools.reduce(getattr, owners, import_module(module))
        getattr(owner, name)
    except (AttributeError, ModuleNotFoundError):
        return None
    return owner, name


class Pause:
    """A context in which something is switched off, for any number of threads; the last one to leave restores it.

    A thread that hangs and is left behind (:mod:`feinsum.apart`) counts as having left.

    :param is_on: tells whether it is on.
    :param switch: switches it on or off.
    """

    def __init__(self, is_on: Callable[[], bool], switch: Callable[[bool], object]) -> None:
        self._is_on, self._switch = is_on, switch
        self._lock = threading.Lock()
        self._inside: Counter[int] = Counter()
        self._was_on = False
        _pauses.append(self)

    @property
    def is_inside(self) -> bool:
        """Whether this thread is inside the context."""
        return threading.get_ident() in self._inside

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_on = self._is_on()
                self._switch(False)
            self._inside[threading.get_ident()] += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave(threading.get_ident(), 1)

    def leave(self, thread: int, depth: int | None = None) -> None:
        """Let a thread leave the context `depth` times, or wholly if None; nothing happens if it was left behind."""
        with self._lock:
            inside = self._inside.pop(thread, 0)
            if depth is not None and inside > depth:
                self._inside[thread] = inside - depth
            if inside and not self._inside:
                self._switch(self._was_on)


class Replaced(Pause):
    """A context in which a listed attribute of a library is replaced.

    :param make: returns the replacement for the library's own attribute.
    """

    def __init__(self, place: str, make: Callable[[Any], Any]) -> None:
        self._place, self._make = place, make
        self._put_back = ExitStack()
        super().__init__(lambda: True, self._put)

    def _put(self, own: bool) -> None:
        if own:
            self._put_back.close()
        elif (found := _find(self._place)) is not None:
            original = getattr(*found)
            self._put_back.callback(setattr, *found, original)
            setattr(*found, self._make(original))


_pauses: list[Pause] = []


def leave_behind(thread: int) -> None:
    """Count a thread that hangs as having left all pauses."""
    for pause in _pauses:
        pause.leave(thread)


def _told_outside(warn: Callable[..., None]) -> Callable[..., None]:
    def told(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None) -> None:
        if not deprecations_paused.is_inside:
            warn(message, category, stacklevel + 1, source)

    return told


collector_paused = Pause(gc.isenabled, lambda on: gc.enable() if on else gc.disable())
deprecations_paused = Replaced("islpy._monkeypatch:warn", _told_outside)
"""Inside, this thread gets no deprecation warnings of islpy; other threads get them as before."""
