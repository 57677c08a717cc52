"""What is held of a tile, in local memory where registers have no room: copied while the tile before is multiplied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import loopy as lp
from pymbolic.primitives import Call, Comparison, If, Subscript, Variable

from feinsum.devices.ptx import SUB_GROUP
from feinsum.errors import TransformError
from feinsum.rewrites.loops import fixed_length
from feinsum.rewrites.reads import with_calls, with_rules
from feinsum.skeletons.common.digits import Digits, position
from feinsum.skeletons.nvidia.async_copies import copy_asynchronously
from feinsum.skeletons.nvidia.matrix_units import ROWS, row_of
from feinsum.skeletons.warp_tiles.loops import TileLoops


class HeldCopies:
    """Values of substitution rules for the rows of a tile in local memory, 16 of each for a sub-group.

    Before: ``a[step, h] = J(x, 16 tile + 8 h + g) * u(x, 16 tile + 8 h + g, 4 step + t)``; after, with n counting numbers
    of 32 lanes::

        for n: copy asynchronously J_copied[s, n] = J(n / 16, 16 tile + n mod 16)
        ...
        a[step, h] = J_copied[s, 16 x + 8 h + g] * u(x, 16 tile + 8 h + g, 4 step + t)

    :param held: rules -> the index letters of their arguments, one of them that of the rows.
    :raises TransformError: if a rule is no element of an array.
    """

    def __init__(self, tiles: TileLoops, held: Mapping[str, str]) -> None:
        self.tiles = tiles
        for rule in held:
            if not isinstance(with_rules(tiles.kernel, tiles.kernel.substitutions[rule].expression), Subscript):
                raise TransformError(f"'{rule}' is computed, so it cannot be copied asynchronously")
        self.axes = {rule: letters.index(tiles.m) for rule, letters in held.items()}
        self.letters = {rule: letters.replace(tiles.m, "") for rule, letters in held.items()}
        self.lengths = {
            rule: [fixed_length(tiles.kernel, tiles.match.inames[x]) for x in letters]
            for rule, letters in self.letters.items()
        }
        self._copied = {rule: Variable(self._array(rule)) for rule in held}

    def _array(self, rule: str) -> str:
        shape = (self.tiles.tiling.sub_groups, ROWS * math.prod(self.lengths[rule]))
        return self.tiles.draft.array(f"{rule}_copied", shape, lp.AddressSpace.LOCAL, self.tiles.dtype)

    def begin(self, tile: Any, around: frozenset[str], after: frozenset[str], *only: Any) -> tuple[str, ...]:
        """Begin to copy the values for a tile, zeros for rows beyond the last; the ids of the copies, not yet committed.

        :param only: conditions, the same for all lanes, on which to copy.
        """
        tiles, copied = self.tiles, []
        for rule, place in self._copied.items():
            letters = self.letters[rule]
            count = ROWS * math.prod(self.lengths[rule])
            (piece,) = tiles.draft.unrolled(("piece",), (-(-count // SUB_GROUP),))
            number = Variable(piece) * SUB_GROUP + tiles.lane
            # Lanes beyond the last number copy nothing, and may not read beyond the array either.
            digits = Digits(("beyond", *letters, tiles.m), (2, *self.lengths[rule], ROWS)).of(number)
            row = ROWS * tile + digits[tiles.m]
            there = Comparison(row, "<", tiles.rows_m)
            index = [digits[x] for x in letters]
            index.insert(self.axes[rule], If(there, row, tiles.rows_m - 1))
            copy = partial(
                copy_asynchronously,
                place[tiles.sub_group, number],
                Call(Variable(rule), tuple(index)),
                If(there, 1, 0),
                tiles.dtype,
                predicates=frozenset([*only, *([Comparison(number, "<", count)] if count % SUB_GROUP else [])]),
            )
            copied.append(tiles.draft.add(copy, f"copy_{rule}", around | {piece}, after, alone=True))
        return tuple(copied)

    def values(self, value: Any, half: Any) -> Any:
        """A value for one of a lane's two rows in terms of what was copied."""
        row = row_of(self.tiles.lane, half)
        return with_calls(value, lambda call: self._element(call, row))

    def _element(self, call: Call, row: Any) -> Any:
        """The copy of what a call stands for; of a rule that is not copied, the call."""
        rule = call.function.name
        if rule not in self._copied:
            return call
        rest = (x for k, x in enumerate(call.parameters) if k != self.axes[rule])
        return self._copied[rule][self.tiles.sub_group, ROWS * position(rest, self.lengths[rule]) + row]
