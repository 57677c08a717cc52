"""A mapping that cannot change: hashable, so that a frozen dataclass may hold it, and always in order of key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class FrozenMapping(Mapping[str, V], Generic[V]):
    """An immutable mapping from text, equal to any mapping with the same items.

    >>> FrozenMapping({"b": 2, "a": 1})
    {'a': 1, 'b': 2}
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(sorted(items.items()))

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMapping):
            return self._items == other._items
        return self._items == other if isinstance(other, dict) else super().__eq__(other)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[type[FrozenMapping[V]], tuple[dict[str, V]]]:
        return FrozenMapping, (self._items,)
