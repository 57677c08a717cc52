"""Held values of a tile, which all its columns and outputs read: in registers or, with slices of the sum, in local
memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import loopy as lp
from pymbolic.primitives import Call, Comparison, If, Subscript, Variable

from feinsum.errors import TransformError
from feinsum.rewrites.loops import fixed_length
from feinsum.rewrites.reads import with_calls, with_rules
from feinsum.skeletons.common.digits import Digits, position
from feinsum.skeletons.instructions.async_copies import copy_asynchronously
from feinsum.skeletons.instructions.matrix_units import ROWS, SUB_GROUP
from feinsum.skeletons.warp_tiles.lanes import guarded
from feinsum.skeletons.warp_tiles.registers import LaneLoad
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops


class HeldRegisters:
    """Values of substitution rules for a lane's two rows, in registers while their tile is at hand.

    Before: ``out[x, 16 tile + 8 h + g, n] = J(x, 16 tile + 8 h + g) * acc[h, c]``; after::

        for x, h: J_held[x, h] = J(x, 16 tile + 8 h + g)
        ...
        out[x, 16 tile + 8 h + g, n] = J_held[x, h] * acc[h, c]

    :ivar fragments: the loads for each tile.
    :raises TransformError: if a rule does not have rows, or has columns, among its indices.
    """

    def __init__(self, loops: TileLoops, held: Mapping[str, str]) -> None:
        self.loops = loops
        self._arrays: dict[str, tuple[str, int]] = {}
        self.fragments = [self._fragments_of(rule, letters) for rule, letters in held.items()]

    def read(self, value: Any, half: Any) -> Any:
        """A value for one of a lane's two rows in terms of held values."""

        def held(call: Call) -> Any:
            if call.function.name not in self._arrays:
                return call
            name, axis = self._arrays[call.function.name]
            rest = tuple(x for k, x in enumerate(call.parameters) if k != axis)
            return Variable(name)[(*rest, half)]

        return with_calls(value, held) if self._arrays else value

    def _fragments_of(self, rule: str, letters: str) -> LaneLoad:
        matched, dtype = self.loops.matched, self.loops.plan.product.dtype
        m, n = matched.m, matched.n
        if n in letters or m not in letters:
            raise TransformError(f"'{rule}' with '{letters}' is not held: it needs '{m}' and no '{n}'")
        shape = (*(fixed_length(matched.kernel, matched.match.inames[x]) for x in letters if x != m), 2)
        name = self.loops.draft.array(f"{rule}_held", shape, dtype=dtype)
        self._arrays[rule] = name, letters.index(m)
        return LaneLoad(name, shape, self._value_of(rule, letters.index(m)))

    def _value_of(self, rule: str, axis: int) -> Callable[[Any, tuple[Any, ...]], Any]:
        def value(row: Any, index: tuple[Any, ...]) -> Any:
            row = row + 8 * index[-1]
            value = Call(Variable(rule), (*index[:axis], row, *index[axis:-1]))
            return guarded([Comparison(row, "<", self.loops.matched.rows)], value)

        return value


class HeldCopies:
    """Values of substitution rules for the rows of a tile in local memory, 16 of each for a warp.

    They are copied while the tile before is multiplied.  Before:
    ``a[step, h] = J(x, 16 tile + 8 h + g) * u(x, 16 tile + 8 h + g, 4 step + t)``; after, with n counting numbers of 32
    lanes::

        for n: copy asynchronously J_copied[s, n] = J(n / 16, 16 tile + n mod 16)
        ...
        a[step, h] = J_copied[s, 16 x + 8 h + g] * u(x, 16 tile + 8 h + g, 4 step + t)

    :param held: rules -> the index letters of their arguments, one of them that of the rows.
    :raises TransformError: if a rule is no element of an array.
    """

    def __init__(self, loops: TileLoops, held: Mapping[str, str]) -> None:
        self.loops = loops
        kernel, m, inames = loops.matched.kernel, loops.matched.m, loops.matched.match.inames
        for rule in held:
            if not isinstance(with_rules(kernel, kernel.substitutions[rule].expression), Subscript):
                raise TransformError(f"'{rule}' is computed, so it cannot be copied asynchronously")
        self.axes = {rule: letters.index(m) for rule, letters in held.items()}
        self.letters = {rule: letters.replace(m, "") for rule, letters in held.items()}
        self.lengths = {rule: [fixed_length(kernel, inames[x]) for x in own] for rule, own in self.letters.items()}
        self._copied = {rule: Variable(self._array(rule)) for rule in held}

    def _array(self, rule: str) -> str:
        shape = (self.loops.plan.warps, ROWS * math.prod(self.lengths[rule]))
        return self.loops.draft.array(f"{rule}_copied", shape, lp.AddressSpace.LOCAL, self.loops.plan.product.dtype)

    def begin(self, tile: Any, around: frozenset[str], after: frozenset[str], *only: Any) -> tuple[str, ...]:
        """Begin to copy the values for a tile, zeros for rows beyond the last; the ids of the copies, not yet committed.

        :param only: conditions, the same for all lanes, on which to copy.
        """
        return tuple(self._copy(rule, tile, around, after, only) for rule in self._copied)

    def _copy(self, rule: str, tile: Any, around: frozenset[str], after: frozenset[str], only: tuple[Any, ...]) -> str:
        loops, letters, m, rows = self.loops, self.letters[rule], self.loops.matched.m, self.loops.matched.rows
        count = ROWS * math.prod(self.lengths[rule])
        (piece,) = loops.draft.unrolled(("piece",), (-(-count // SUB_GROUP),))
        number = Variable(piece) * SUB_GROUP + loops.lane
        # Lanes beyond the last number copy nothing, and may not read beyond the array either.
        digits = Digits(("beyond", *letters, m), (2, *self.lengths[rule], ROWS)).of(number)
        row = ROWS * tile + digits[m]
        there = Comparison(row, "<", rows)
        index = [digits[x] for x in letters]
        index.insert(self.axes[rule], If(there, row, rows - 1))
        copy = partial(
            copy_asynchronously,
            loops.plan.copies,
            self._copied[rule][loops.warp, number],
            Call(Variable(rule), tuple(index)),
            If(there, 1, 0),
            loops.plan.product.dtype,
            predicates=frozenset([*only, *([Comparison(number, "<", count)] if count % SUB_GROUP else [])]),
        )
        return loops.draft.add(copy, f"copy_{rule}", around | {piece}, after, alone=True)

    def read(self, value: Any, half: Any) -> Any:
        """A value for one of a lane's two rows in terms of the copies."""
        row = self.loops.lanes.row(half)
        return with_calls(value, lambda call: self._element(call, row))

    def _element(self, call: Call, row: Any) -> Any:
        """The copy of the value of a call; of a rule that is not copied, the call."""
        rule = call.function.name
        if rule not in self._copied:
            return call
        rest = (x for k, x in enumerate(call.parameters) if k != self.axes[rule])
        return self._copied[rule][self.loops.warp, ROWS * position(rest, self.lengths[rule]) + row]
