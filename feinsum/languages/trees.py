"""Trees of frozen dataclasses: a field of a node is a node, a tuple of nodes, or anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

_Node = TypeVar("_Node")


def children_of(node: Any, base: type[_Node]) -> Iterator[_Node]:
    """The nodes right below a node, those of a class, in order of its fields."""
    for part in fields(node):
        value = getattr(node, part.name)
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, base):
                yield entry


def with_changed_children(node: Any, base: type[_Node], change: Callable[[_Node], Any]) -> Any:
    """A node with the nodes right below it changed; the node itself if all stay equal."""
    changes: dict[str, Any] = {}
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, base):
            changes[part.name] = change(value)
        elif isinstance(value, tuple) and value and all(isinstance(entry, base) for entry in value):
            changes[part.name] = tuple(map(change, value))
    return node if all(changes[name] == getattr(node, name) for name in changes) else replace(node, **changes)
