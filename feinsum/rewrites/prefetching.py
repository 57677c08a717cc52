"""The moves that ask for memory before it is needed: ``for b: touch A(k, 8 (b + 1)); ... A(k, 8 b + t) ...``

The hardware foresees rows that are read from end to end, but not a tile of rows that lie far apart: a core waits for every
line of it that was not prefetched while the tile before was computed.  Where a loop goes from row to row, it asks for each
as it passes; where all rows are read at once, each step asks for a share of them.  Nor does it foresee vectors that are
gathered, though what they gather is read from end to end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
from loopy.kernel.array import FixedStrideArrayDimTag
from loopy.kernel.instruction import CInstruction
from loopy.symbolic import SubstitutionMapper, get_dependencies
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Subscript, Variable

from feinsum.match import Match
from feinsum.rewrites.loops import fixed_length, iname_of
from feinsum.rewrites.reads import subscripts_in, with_rules

_LINES_AHEAD = 2
"""Lines of a row from the one that is read to the one that is asked for; 1 to 3 took as long on a Zen 4."""
_BYTES_AHEAD, _MOST_STEPS_AHEAD = 4096, 8
"""Where steps read whole lines: bytes from those that are read to those that are asked for, and steps at most.  Steps of
2 KB took 1.19 ms without, and 0.32, 0.27, 0.27, 0.27 and 0.36 ms by 1, 2, 3, 4 and 8 steps ahead, on a Zen 5."""


def prefetch_ahead(
    t_unit: lp.TranslationUnit,
    match: Match,
    insn_ids: Sequence[str],
    step: str,
    sums: Sequence[str],
    tile: Sequence[str],
    lane: str,
    line_bytes: int,
) -> tuple[lp.TranslationUnit, list[str]]:
    """Prefetch in each step of a loop the elements that the next step reads from rows that lie apart.

    Before::

        for b, k:
            for t in range(8): acc[t] = acc[t] + A[k, 8*b + t] * ...

    After ``step="b", sums=["k"], tile=["t"]``::

        for b, k:
            __builtin_prefetch(A + n*k + 8*(b + 1))
            for t in range(8): acc[t] = acc[t] + A[k, 8*b + t] * ...

    Other reads stay as they are, since the hardware foresees rows along a sum and a vector takes a row along a lane at
    once.  The last step asks for memory beyond the array, which the builtin allows.

    :param insn_ids: the instructions that read.
    :param step: a loop around them.
    :param sums: loops inside it that the instructions sum over.
    :param tile: loops of fixed lengths inside these.
    :param lane: the loop inside them that is to become the lanes of vectors.
    :param line_bytes: the length of a cache line.
    :returns: the kernel, and the loops of the tile in an order, from the outside in, in which those around the prefetches
        come first.  Keep this order: a loop around one statement alone cannot be outside one around both.

    ``prefetch`` in Halide.  With a builtin of clang that compilers for CPUs know.
    """
    kernel = t_unit[match.kernel_name]
    first, inner, *rest = (iname_of(t_unit, match, x) for x in (step, lane, *sums, *tile))
    summed, tiles = frozenset(rest[: len(sums)]), frozenset(rest[len(sums) :])
    seeker = _Seeker(kernel, first, summed, tiles, inner, line_bytes)
    touches = list(seeker.touches([kernel.id_to_insn[insn_id] for insn_id in insn_ids]))
    order = sorted(rest[len(sums) :], key=lambda loop: -sum(loop in touch.within_inames for touch in touches))
    touches = [_ordered_touch(touch, order) for touch in touches]
    return t_unit.with_kernel(kernel.copy(instructions=[*kernel.instructions, *touches])), order


def prefetch_rows(
    t_unit: lp.TranslationUnit,
    match: Match,
    rules: Mapping[str, int],
    at: Any,
    at_once: int,
    within: frozenset[str],
    line_bytes: int,
) -> lp.TranslationUnit:
    """Prefetch in each step of a loop what a later step reads of all rows, or a share of the rows a line or two ahead.

    Before::

        for b: acc = acc + A[0, 2*b + t] * ... + A[1, 2*b + t] * ... + A[99, 2*b + t] * ...

    After ``at=2*b, at_once=2``, with lines of eight numbers, the next of which is wanted in every fourth step::

        for b:
            for r in range(25 * (b % 4), 25 * (b % 4) + 25): __builtin_prefetch(A + n*r + 8*(b // 4 + 2))
            acc = acc + ...

    A core has room for some ten lines on their way, so that a hundred requests at once would wait for each other.  Where a
    step reads whole lines of each row, as of ``A[r, 2*b + t, i]``, it asks for all of what the step reads that comes some
    KiB later.

    :param rules: the operands of which all is read that has a position along one of its axes, and which axis that is.  What
        is not an array of memory with its rows at one distance stays as it is.
    :param at: the position along the axis at which a step begins.
    :param at_once: the positions that a step reads.
    :param within: the loops around a step.
    :param line_bytes: the length of a cache line.

    With a builtin of clang that compilers for CPUs know.
    """
    kernel = t_unit[match.kernel_name]
    arrays = {_whole_array(kernel, rule): axis for rule, axis in rules.items()}
    found = ((name, _rows_of(kernel.arg_dict[name], axis)) for name, axis in arrays.items() if name is not None)
    touches = [_touch_rows(kernel, name, rows, at, at_once, within, line_bytes) for name, rows in found if rows]
    return t_unit.with_kernel(kernel.copy(instructions=[*kernel.instructions, *touches]))


def _whole_array(kernel: lp.LoopKernel, rule: str) -> str | None:
    """The array of memory that a rule stands for, index by index; None if it is something else."""
    own = kernel.substitutions[rule]
    read = own.expression
    if not isinstance(read, Subscript) or read.index_tuple != tuple(map(Variable, own.arguments)):
        return None
    return read.aggregate.name if read.aggregate.name in kernel.arg_dict else None


@dataclass(frozen=True)
class _ArrayRows:
    """The rows of an array that go on along one of its axes.

    :ivar distance: from each row to the next.
    :ivar each: the numbers that lie at one position of the axis, all of them neighbours.
    """

    count: int
    distance: Any
    each: int


def _rows_of(array: Any, axis: int) -> _ArrayRows | None:
    """None if rows begin at distances that differ, if numbers of a row are no neighbours, or if there is but one row of
    single numbers, which the hardware foresees."""
    shape, tags = array.shape, array.dim_tags
    fixed = all(isinstance(length, int) for length in (*shape[:axis], *shape[axis + 1 :]))
    if len(tags) == 1 or not fixed or not all(isinstance(tag, FixedStrideArrayDimTag) for tag in tags):
        return None
    if tags[-1].stride != 1 or not _are_dense(tags[axis:], shape[axis:]) or not _are_dense(tags[:axis], shape[:axis]):
        return None
    return _ArrayRows(math.prod(shape[:axis]), tags[axis - 1].stride if axis else 0, tags[axis].stride)


def _are_dense(tags: Sequence[Any], lengths: Sequence[Any]) -> bool:
    """Whether each axis goes on where the next one ends."""
    return all(tags[k].stride == tags[k + 1].stride * lengths[k + 1] for k in range(len(tags) - 1))


def _touch_rows(
    kernel: lp.LoopKernel, name: str, rows: _ArrayRows, at: Any, at_once: int, within: frozenset[str], line_bytes: int
) -> CInstruction:
    array = kernel.arg_dict[name]
    number = max(1, line_bytes // array.dtype.itemsize)
    at, at_once = at * rows.each, at_once * rows.each
    # Loopy puts what several statements declare into one block.
    own = {word: f"{word}_{name}" for word in ("at", "row", "first", "line", "part")}
    # A plain pointer: the builtin takes none to global memory.
    touch = "__builtin_prefetch((void const *) (size_t) ({array} + {first} + r * {row} + {line}".format(array=name, **own)
    if at_once > number:
        ahead = min(_MOST_STEPS_AHEAD, max(1, round(_BYTES_AHEAD / (rows.count * at_once * array.dtype.itemsize))))
        begin = at + ahead * at_once
        code = f"for (int r = 0; r < {rows.count}; ++r)"
        code += f"\n  for (int piece = 0; piece < {at_once}; piece += {number})\n    {touch} + piece));"
    else:
        steps = max(1, number // at_once)
        share = -(-rows.count // steps)
        begin = (at // number + _LINES_AHEAD) * number
        code = "int {part} = (int) ({at} / {at_once}) % {steps};".format(at_once=at_once, steps=steps, **own)
        part = f"{own['part']} * {share}"
        code += f"\nfor (int r = {part}; r < min({rows.count}, {part} + {share}); ++r)\n  {touch}));"
    values = {"at": at, "row": rows.distance, "first": array.offset, "line": begin}
    return CInstruction(
        tuple((own[word], value) for word, value in values.items()),
        code,
        read_variables=frozenset([name]),
        id=kernel.get_instruction_id_generator()(f"touch_{name}"),
        within_inames=within,
        within_inames_is_final=True,
        depends_on=frozenset(),
        depends_on_is_final=True,
    )


def _ordered_touch(touch: CInstruction, order: Sequence[str]) -> CInstruction:
    """A statement also in the loops that are around one of its own."""
    depth = max((k + 1 for k, loop in enumerate(order) if loop in touch.within_inames), default=0)
    return touch.copy(within_inames=touch.within_inames | set(order[:depth]))


@dataclass(frozen=True)
class _Seeker:
    """Finds what the next step of a loop reads; the fields are those of :func:`prefetch_ahead`, as inames."""

    kernel: lp.LoopKernel
    step: str
    sums: frozenset[str]
    tile: frozenset[str]
    lane: str
    line_bytes: int

    def touches(self, insns: Sequence[Any]) -> Iterator[CInstruction]:
        """Statements for the reads of instructions, once for what several of them read."""
        fresh = self.kernel.get_var_name_generator()
        reads = {read: insn for insn in insns for read in subscripts_in(with_rules(self.kernel, insn.expression))}
        for read in sorted(filter(self._is_apart, reads), key=str):
            yield self._touch(reads[read], read, fresh(f"{read.aggregate.name}_ahead"))

    def _is_apart(self, read: Subscript) -> bool:
        """Whether a read of global memory goes along its row with step and tile, and from row to row with the sums."""
        array = self._array(read)
        private = isinstance(array, lp.TemporaryVariable) and array.address_space != lp.AddressSpace.GLOBAL
        if private or not all(isinstance(tag, FixedStrideArrayDimTag) for tag in array.dim_tags):
            return False
        along, across = set[str](), set[str]()
        for entry, tag in zip(read.index_tuple, array.dim_tags, strict=True):
            (along if tag.stride == 1 else across).update(get_dependencies(entry))
        goes_along = self.step in along and not along.isdisjoint(self.tile) and self.sums.isdisjoint(along)
        return goes_along and not self.sums.isdisjoint(across) and self.lane not in along | across

    def _touch(self, insn: Any, read: Subscript, name: str) -> CInstruction:
        array = self._array(read)
        pairs = list(zip(read.index_tuple, array.dim_tags, strict=True))
        lanes = {x for entry, tag in pairs if tag.stride == 1 for x in get_dependencies(entry)} & self.tile
        ahead = {self.step: Variable(self.step) + 1, **dict.fromkeys(lanes, 0)}
        first = SubstitutionMapper(make_subst_func(ahead))(sum(entry * tag.stride for entry, tag in pairs))
        row_bytes = array.dtype.itemsize * math.prod(fixed_length(self.kernel, x) for x in lanes)
        starts = range(0, row_bytes // array.dtype.itemsize, max(1, self.line_bytes // array.dtype.itemsize))
        # A plain pointer: the builtin takes none to global memory.
        code = "\n".join(f"__builtin_prefetch((void const *) (size_t) ({array.name} + {name} + {n}));" for n in starts)
        return CInstruction(
            ((name, first),),
            code,
            read_variables=frozenset([array.name]),
            id=self.kernel.get_instruction_id_generator()(f"touch_{name}"),
            within_inames=(insn.within_inames - {self.lane} - (self.tile - get_dependencies(first))) | self.sums,
            within_inames_is_final=True,
            depends_on=insn.depends_on,
            depends_on_is_final=True,
        )

    def _array(self, read: Subscript) -> Any:
        name = read.aggregate.name
        return self.kernel.temporary_variables.get(name) or self.kernel.arg_dict[name]
