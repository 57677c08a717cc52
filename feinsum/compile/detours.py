"""Detours of loopy 2025.2 and pymbolic 2025.1 that are not taken while a kernel is made; the kernel is the same.

A ``CachedMapper`` makes a ``constantdict`` of its keyword arguments at every node of an expression, and hashes it: 4.9 us,
though nearly all calls have none (0.7 us with one empty dict kept; AMD EPYC family 25, 2026-11-23).  Old and new keys are
equal, so a mapper may be switched in the middle of its work.

``build_loop_nest`` declares its dataclass anew for every loop that it generates, which takes up to a sixth of the time in
which a kernel is made.

The grid of some instructions is remembered under the table of callables, whose hash is a digest of the whole kernel: a
twelfth of that time, where the very same table is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from constantdict import constantdict

from feinsum.effects import Replaced

_NONE: constantdict[str, Any] = constantdict()
_declared: dict[str, type[Any]] = {}


def _key(self: Any, expression: Any, *args: Any, **kwargs: Any) -> Any:
    return (type(expression), expression, args, constantdict(kwargs) if kwargs else _NONE)


def _once(dataclass: Callable[..., Any]) -> Callable[..., Any]:
    """``dataclass`` for classes in functions: each class in the code is declared once, and then reused."""

    def with_options(**options: Any) -> Callable[[type[Any]], type[Any]]:
        def declare(cls: type[Any]) -> type[Any]:
            place = f"{cls.__module__}.{cls.__qualname__}"
            if place not in _declared:
                _declared[place] = dataclass(**options)(cls)
            return _declared[place]

        return declare

    return with_options


def _by_object(method: Any) -> Callable[..., Any]:
    """A method whose result a kernel remembers for each table of callables, found by identity in place of a digest."""
    where = f"_feinsum_{method.__name__}"

    def remember(kernel: Any, insn_ids: Any, callables_table: Any, **options: Any) -> Any:
        known = vars(kernel).setdefault(where, {})
        key = (insn_ids, id(callables_table), frozenset(options.items()))
        if key not in known:  # the table is kept, so that no other gets its id
            known[key] = (callables_table, method.__wrapped__(kernel, insn_ids, callables_table, **options))
        return known[key][1]

    return remember


_keys = Replaced("pymbolic.mapper:CachedMapper.get_cache_key", lambda _: _key)
_classes = Replaced("loopy.codegen.control:dataclass", _once)
_grids = [
    Replaced(f"loopy.kernel:LoopKernel.get_grid_sizes_for_insn_ids{form}", _by_object)
    for form in ("", "_as_dicts", "_as_exprs")
]


@contextmanager
def detours_paused() -> Iterator[None]:
    """A context in which no detour is taken."""
    with ExitStack() as stack:
        for pause in (_keys, _classes, *_grids):
            stack.enter_context(pause)
        yield
