"""Loops over work-groups, over whole strips of an index, and over the remainder.

for i in range(n)   ->   for q in range(n // 8), l in range(8): i = 8 q + l;   for i in range(n // 8 * 8, n)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loopy.symbolic import get_dependencies
from pymbolic.primitives import FloorDiv, Remainder, Variable, flattened_product, flattened_sum

from feinsum.skeletons.common.draft import KernelDraft

_GROUP_AXES = 3


@dataclass(frozen=True)
class LoopStrips:
    """Loops, from the outside in, that run through an index, and the position that they give.

    :ivar strip: the loop over strips.
    :ivar inside: the loops inside a strip.
    :ivar lane: that of them which runs along lanes, if there are lanes.
    :ivar whole: whether strips are whole; false for the remainder.
    """

    strip: str
    inside: tuple[str, ...]
    position: Any
    lane: str = ""
    whole: bool = True


@dataclass(frozen=True)
class Items:
    """The work-items of a group along an index.

    :ivar tag: the axis of the device along which each index has a loop over them of its own.
    :ivar loop: in place of those, one loop over all work-items, which are counted in rows; "" if there is none.
    :ivar row: of so many.
    :ivar along: whether the index has the places in a row, rather than the rows.
    :ivar around: the loops around those along the index, if there is one over all work-items: loopy wants them in one line.
    """

    tag: str = ""
    loop: str = ""
    row: int = 1
    along: bool = True
    around: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The place along the index of a work-item, in isl's words."""
        if not self.loop:
            return "{}"
        return f"({{}} mod {self.row})" if self.along else f"floor({{}}/{self.row})"

    def place(self, item: str) -> Any:
        """The place of a work-item along the index."""
        if not self.loop:
            return Variable(item)
        return Remainder(Variable(item), self.row) if self.along else FloorDiv(Variable(item), self.row)


@dataclass
class StripLoops:
    """The loops that a stream adds to a draft.

    :ivar lengths: index -> its length, an int or an expression of parameters.
    :ivar counts: index -> how many of its iterations a work-group does, where groups share it.
    :ivar groups: index -> the loop over its groups.
    :ivar tiles: index -> its groups and the work-items of each, where a group does no more.
    """

    draft: KernelDraft
    lengths: Mapping[str, Any]
    counts: Mapping[str, int]
    groups: dict[str, str] = field(default_factory=dict)
    tiles: dict[str, LoopStrips] = field(default_factory=dict)

    def open_groups(self, items: Mapping[str, int], first: int = 0) -> None:
        """Add the loops over groups, the first of `counts` along an axis of the device, which is the first one as a rule.

        :param items: index -> the work-items of a group along it; where they are all that a group does of it, they stand in
            one set with the groups, which keeps the order of the code the same from run to run.
        """
        for axis, (letter, count) in enumerate(self.counts.items(), first):
            group, length = self.draft.fresh(f"{letter}_group"), self.lengths[letter]
            if items.get(letter) == count:
                item = self.draft.fresh(f"{letter}_item")
                bounds = f"0 <= {group} and 0 <= {item} < {count} and {count}*{group} + {item} < {length}"
                self.draft.domain(strip_parameters(length), [group, item], bounds)
                self.draft.tags[item] = "l.0"
                position = flattened_sum((count * Variable(group), Variable(item)))
                self.tiles[letter] = LoopStrips(group, (item,), position, item)
            else:
                self.draft.domain(strip_parameters(length), [group], f"0 <= {group} and {count}*{group} < {length}")
            if axis < _GROUP_AXES:
                self.draft.tags[group] = f"g.{axis}"
            self.groups[letter] = group

    def open_shares(self, letters: str, share: int) -> str:
        """Add the loop over groups that have a share each of some indices as one, along the first axis of the device."""
        group = str(self.draft.fresh(f"{letters}_group"))
        total = flattened_product(tuple(self.lengths[x] for x in letters))
        self.draft.domain(strip_parameters(total), [group], f"0 <= {group} and {share}*{group} < {total}")
        self.draft.tags[group] = "g.0"
        self.groups[letters] = group
        return group

    def plain(self, letter: str) -> str:
        """A loop over the positions of a group along an index."""
        loop, length = self.draft.fresh(letter), self.lengths[letter]
        self.draft.domain(self._known(letter), [loop], f"{self._inside(letter, loop)} and {loop} < {length}")
        return str(loop)

    def whole(self, letter: str, length: int, inside: Mapping[str, int] | None = None) -> LoopStrips | None:
        """Loops over whole strips of an index and, unrolled, inside a strip; None if there is no whole strip.

        :param inside: lengths of the loops inside by a word for their names, from the outside in, that make up `length`.
        """
        end, inside = self.lengths[letter], inside or {}
        if isinstance(end, int) and end < length:
            return None
        strip = self.draft.fresh(f"{letter}_strip")
        start = f"{length}*{strip}"
        self.draft.domain(self._known(letter), [strip], f"{self._inside(letter, start)} and {start} + {length} <= {end}")
        loops = self.draft.unrolled([f"{letter}_{word}" for word in inside], list(inside.values()))
        position = flattened_product((length, Variable(strip)))
        for k, loop in enumerate(loops):
            step = math.prod(list(inside.values())[k + 1 :])
            position = flattened_sum((position, flattened_product((step, Variable(loop)))))
        return LoopStrips(strip, loops, position)

    def left(self, letter: str, length: int, *, unrolled: bool = False) -> LoopStrips | None:
        """Loops over the remainder of an index after whole strips, the outer one run at most once; None if there is
        none.

        :param unrolled: whether the inner loop is unrolled where the remainder is known.
        """
        end = self.lengths[letter]
        if length == 1 or (isinstance(end, int) and end % length == 0):
            return None
        strip = self.draft.fresh(f"{letter}_strip")
        start = f"{length}*{strip}"
        if unrolled and isinstance(end, int):
            (loop,) = self.draft.unrolled([f"{letter}_left"], [end % length])
            self.draft.domain(self._known(letter), [strip], f"{self._inside(letter, start)} and {strip} = {end // length}")
            return LoopStrips(strip, (loop,), flattened_sum((length * Variable(strip), Variable(loop))), whole=False)
        loop = self.draft.fresh(f"{letter}_left")
        some = f"{end} < {start} + {length}"
        # Strips of two leave a number where the end is odd, n = 2 s + 1, which loopy 2025.2 does not ask once it has s from
        # that equation.  So the outer loop there has the last strip even if it is whole, and the inner one asks.
        at_most, asked = (f"{end} <= {start} + {length}", f" and {some}") if length == 2 else (some, "")
        self.draft.domain(self._known(letter), [strip], f"{self._inside(letter, start)} and {start} < {end} and {at_most}")
        self.draft.domain(
            strip_parameters(end, strip), [loop], f"0 <= {loop} < {length} and {start} + {loop} < {end}{asked}"
        )
        position = flattened_sum((flattened_product((length, Variable(strip))), Variable(loop)))
        return LoopStrips(strip, (loop,), position, whole=False)

    def shared(self, letter: str, length: int, items: Items | None = None) -> LoopStrips:
        """Loops over strips whose numbers work-items share, on the first axis as a rule; the last one perhaps in part."""
        if letter in self.tiles:
            return self.tiles[letter]
        end, strip = self.lengths[letter], self.draft.fresh(f"{letter}_strip")
        start = f"{length}*{strip}"
        return self._in_part(letter, strip, f"{self._inside(letter, start)}", start, end, length, items or Items("l.0"))

    def dealt(self, letter: str, length: int, loads: int, items: Items) -> LoopStrips | None:
        """Loops over whole strips, in which a work-item has several places, `length` apart; None if there is none."""
        whole = self.whole(letter, length * loads)
        if whole is None:
            return None
        (load,) = self.draft.unrolled([f"{letter}_load"], [loads])
        item = items.loop or self.fixed(f"{letter}_item", length, items.tag)
        position = flattened_sum((whole.position, flattened_product((length, Variable(load))), items.place(item)))
        return LoopStrips(whole.strip, (load, item), position, item)

    def dealt_rest(self, letter: str, length: int, loads: int, items: Items) -> LoopStrips | None:
        """Loops over strips of what whole strips of :meth:`dealt` leave; None if they leave nothing."""
        end = self.lengths[letter]
        if length * loads == 1 or (isinstance(end, int) and end % (length * loads) == 0):
            return None
        strip = self.draft.fresh(f"{letter}_strip")
        start, whole = f"{length}*{strip}", f"{length * loads}*floor(({end})/{length * loads})"
        left = f"{self._inside(letter, start)} and {whole} <= {start}"
        return self._in_part(letter, strip, left, start, end, length, items, whole=False)

    def _in_part(
        self, letter: str, strip: str, inside: str, start: str, end: Any, length: int, items: Items, *, whole: bool = True
    ) -> LoopStrips:
        """Strips of `length`, the last one perhaps in part."""
        item = items.loop or str(self.draft.fresh(f"{letter}_item"))
        place = items.text.format(item)
        bounds = f"{inside} and 0 <= {place} < {length} and {start} + {place} < {end}"
        if items.loop:
            self.draft.domain(strip_parameters(end, self.groups.get(letter), item, *items.around), [strip], bounds)
        else:
            self.draft.domain(self._known(letter), [strip, item], bounds)
            self.draft.tags[item] = items.tag
        return LoopStrips(strip, (item,), flattened_sum((length * Variable(strip), items.place(item))), item, whole=whole)

    def fixed(self, base: str, length: int, tag: str = "") -> str:
        """A loop of fixed length along no index."""
        loop = str(self.draft.fresh(base))
        self.draft.domain("", [loop], f"0 <= {loop} < {length}")
        if tag:
            self.draft.tags[loop] = tag
        return loop

    def _inside(self, letter: str, position: str) -> str:
        """The condition that a position along an index belongs to the group, if the index goes so far."""
        if letter not in self.groups:
            return f"0 <= {position}"
        start = f"{self.counts[letter]}*{self.groups[letter]}"
        return f"{start} <= {position} and {position} < {start} + {self.counts[letter]}"

    def _known(self, letter: str) -> str:
        return strip_parameters(self.lengths[letter], self.groups.get(letter))


def strip_parameters(length: Any, *loops: str | None) -> str:
    """The parameters of a length and some loops, as an isl set lists them."""
    return ", ".join(sorted(get_dependencies(length) | set(filter(None, loops))))
