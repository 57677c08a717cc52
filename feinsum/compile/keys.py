"""What pymbolic's mappers look expressions up by, made once where it is always the same.

A ``CachedMapper`` of pymbolic 2025.1 makes a ``constantdict`` of its keyword arguments at every node of an expression, and
hashes it: 4.9 us, where nearly all calls have none (0.7 us with the empty one kept; AMD EPYC family 25, 2026-11-23).  The
keys are equal, so mappers that began with the one go on with the other.
"""

from __future__ import annotations

from typing import Any

from constantdict import constantdict

from feinsum.effects import Replaced

_NONE: constantdict[str, Any] = constantdict()


def _key(self: Any, expression: Any, *args: Any, **kwargs: Any) -> Any:
    return (type(expression), expression, args, constantdict(kwargs) if kwargs else _NONE)


full_keys_paused = Replaced("pymbolic.mapper:CachedMapper.get_cache_key", lambda _: _key)
"""Inside, the empty keyword arguments of all nodes are one object."""
