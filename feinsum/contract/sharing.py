"""Intermediate results that several contractions share: ``with shared_intermediates(): ...``, as in opt_einsum.

A step of the same arrays (the same objects, not equal ones) is computed once and its result kept until the context is left,
whatever the letters of its equation and the order of its operands.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class _Stack(threading.local):
    def __init__(self) -> None:
        self.caches: list[dict[Any, Any]] = []


_stack = _Stack()


@contextmanager
def shared_intermediates(cache: dict[Any, Any] | None = None) -> Iterator[dict[Any, Any]]:
    """A context inside which contractions of this thread share their intermediate results.

    :param cache: that of an earlier context, to go on with; by default that of the context around this one, or a new one.

    The arrays must not be changed meanwhile; they, and what was computed from them, live as long as the cache.
    """
    if cache is None:
        cache = _stack.caches[-1] if _stack.caches else {}
    _stack.caches.append(cache)
    try:
        yield cache
    finally:
        _stack.caches.pop()


def current_cache() -> dict[Any, Any] | None:
    """The cache of the innermost context of this thread; None outside of any."""
    return _stack.caches[-1] if _stack.caches else None


def step_key(subscripts: str, lengths: Mapping[str, int], keys: Sequence[Any], facts: Any) -> Any:
    """The key of a step: equal for other letters and another order of its operands.

    :param lengths: by letter.
    :param keys: an identity of each operand.
    :param facts: all other facts that decide the result.

    >>> lengths = {"a": 2, "b": 2, "c": 2}
    >>> step_key("ab,bc->ac", lengths, ["x", "y"], 0) == step_key("ca,bc->ba", lengths, ["y", "x"], 0)
    True
    >>> step_key("ab,bc->ac", lengths, ["x", "y"], 0) == step_key("ab,bc->ca", lengths, ["x", "y"], 0)
    False
    """
    inputs, _, result = subscripts.partition("->")
    pairs = sorted(zip(map(repr, keys), inputs.split(","), keys, strict=True), key=lambda pair: pair[0])
    names: dict[str, int] = {}
    terms = tuple(tuple(names.setdefault(x, len(names)) for x in term) for _, term, _ in pairs)
    result_axes, shape = tuple(names[x] for x in result), tuple(lengths[x] for x in names)
    return ("step", terms, result_axes, shape, tuple(key for *_, key in pairs), facts)
