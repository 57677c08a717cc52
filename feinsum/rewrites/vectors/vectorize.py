"""Moves that compute on OpenCL vectors: one axis of private arrays becomes the lanes of a vector type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import islpy as isl
import loopy as lp
from loopy.kernel.data import Iname
from loopy.kernel.instruction import CInstruction
from loopy.symbolic import IdentityMapper, get_dependencies
from pymbolic.primitives import Comparison, If, Product, Subscript, Variable

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.match.stored_functions import Finishing
from feinsum.rewrites.finishing import sums_of
from feinsum.rewrites.loops import fixed_length, iname_of
from feinsum.rewrites.reads import subscripts_in, with_rules
from feinsum.rewrites.vectors.access import MemoryRow, row_of_subscript
from feinsum.rewrites.vectors.lane_axes import follow_lanes
from feinsum.rewrites.vectors.memory_rows import load_row, scalar_name, store_row
from feinsum.rewrites.vectors.vector_epilogues import finish_row


def vectorize(
    t_unit: lp.TranslationUnit,
    match: Match,
    lanes: Sequence[str],
    width: int,
    *,
    scalars: Sequence[str] = (),
    streaming: bool = False,
    aligned: bool = False,
) -> lp.TranslationUnit:
    """Make an index the lanes of vectors, padded to whole vectors; rows of memory are loaded and stored as vectors.

    Before, with private ``t`` and ``a``::

        for i in range(20): t[j, i] = D(i, j)
        for i in range(20): a[i] = a[i] + t[j, i] * u(j)
        for i in range(20): out[e, i] = 2 * a[i]

    After ``width=8``, ``v`` a lane::

        for b in range(3), v in range(8): t[j, b].v = D(8 b + v, j) if 8 b + v < 20 else 0
        for b in range(3): a[b] = a[b] + t[j, b] * u(j)
        for b in range(3): y[b] = 2 * a[b]
        vstore8(y[0], 0, out + ...); vstore8(y[1], 0, ...); vstore4(y[2].lo, 0, ...)

    An array that other loops read number by number (`scalars`) stays an array of numbers, read and written like `out`.

    :param lanes: loops of one fixed length that run along the lanes; those that index the same axis of a private array
        as one of them are found.
    :param width: lanes of a vector: 2, 4, 8 or 16.
    :param scalars: loops that index such an axis, but are no lanes.
    :param streaming: store past the caches, with a builtin of clang that compilers for CPUs know, where rows are aligned.
    :param aligned: load and store whole vectors by pointers to such where rows are aligned: GPUs take several numbers at
        once in no other way.
    :raises TransformError: if private arrays are not indexed by just these inames along one axis, if lengths differ, or
        for numbers other than float32 and float64.

    ``vectorize`` in Halide and TVM.
    """
    kernel = t_unit[match.kernel_name]
    others = frozenset(iname_of(t_unit, match, loop) for loop in scalars)
    axes, memory, found = follow_lanes(kernel, frozenset(iname_of(t_unit, match, loop) for loop in lanes), others)
    lengths = {fixed_length(kernel, iname) for iname in found}
    length = lengths.pop()
    if lengths:
        raise TransformError(f"loops {sorted(found)} have different lengths, so they cannot be the same lanes")
    return t_unit.with_kernel(
        VectorLanes(kernel, found, length, width, streaming, axes, memory, match.all_finishing, aligned=aligned).result()
    )


@dataclass
class VectorLanes:
    """The kernel while its lanes become vectors.

    :ivar axes: private arrays that become arrays of vectors -> the axis of the lanes.
    :ivar memory: private arrays that stay arrays of numbers, their rows padded.
    :ivar finishing: see :attr:`feinsum.match.Match.all_finishing`.
    :ivar aligned: whether whole vectors are loaded and stored by pointers to such, where rows are aligned.
    """

    kernel: lp.LoopKernel
    lanes: frozenset[str]
    length: int
    width: int
    streaming: bool
    axes: dict[str, int]
    memory: frozenset[str]
    finishing: Mapping[str, Finishing] = field(default_factory=dict)
    instructions: list[Any] = field(default_factory=list)
    temporaries: dict[str, Any] = field(default_factory=dict)
    domains: list[isl.BasicSet] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    block_loops: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    aligned: bool = False

    def __post_init__(self) -> None:
        self.fresh: Callable[[str], str] = self.kernel.get_var_name_generator()
        self.blocks = -(-self.length // self.width)

    def result(self) -> lp.LoopKernel:
        self.temporaries = dict(self.kernel.temporary_variables)
        for name, axis in self.axes.items():
            self.temporaries[name] = self._padded(self.kernel.temporary_variables[name], axis)
        for name in self.memory:
            old = self.kernel.temporary_variables[name]
            shape = (*old.shape[:-1], self.blocks * self.width)
            self.temporaries[name] = old.copy(shape=shape, dim_tags=None, strides=None, order="C", dim_names=None)
        for insn in self.kernel.instructions:
            self._rewrite(insn)
        inames = [name for domain in self.domains for name in domain.get_var_names(isl.dim_type.set)]
        kernel = self.kernel.copy(
            instructions=self.instructions,
            temporary_variables=self.temporaries,
            domains=[*self.kernel.domains, *self.domains],
            inames={**self.kernel.inames, **{name: Iname(name, frozenset()) for name in inames}},
            loop_priority=frozenset(
                tuple(self.block_loops.get(name, name) for name in order) for order in self.kernel.loop_priority
            ),
            # feinsum orders its own code by a quick scheduler; users of loopy alone can do nothing about this warning.
            silenced_warnings=self.kernel.silenced_warnings | {"v1_scheduler_fallback"},
            preambles=(*self.kernel.preambles, *self.functions.items()),
        )
        return lp.remove_unused_inames(lp.tag_inames(kernel, self.tags))

    def _padded(self, temporary: lp.TemporaryVariable, axis: int) -> lp.TemporaryVariable:
        scalar_name(temporary)
        shape = (*temporary.shape[:axis], self.blocks, *temporary.shape[axis + 1 :], self.width)
        tags = [f"N{k}" for k in reversed(range(len(shape) - 1))]
        return temporary.copy(shape=shape, dim_tags=",".join([*tags, "vec"]), strides=None, order=None, dim_names=None)

    def vectors(self, stem: str, dtype: Any) -> lp.TemporaryVariable:
        """Vectors that are private to one instruction."""
        kept = lp.TemporaryVariable(
            self.fresh(f"{stem}_vectors"),
            dtype=dtype,
            shape=(self.blocks, self.width),
            dim_tags="N0,vec",
            address_space=lp.AddressSpace.PRIVATE,
        )
        self.temporaries[kept.name] = kept
        return kept

    def number(self, stem: str, dtype: Any) -> str:
        """A number that is private to one instruction."""
        name = self.fresh(f"{stem}_number")
        self.temporaries[name] = lp.TemporaryVariable(name, dtype=dtype, shape=(), address_space=lp.AddressSpace.PRIVATE)
        return name

    def array(self, name: str) -> Any:
        """The array called `name`, private ones as they are now."""
        return self.temporaries[name] if name in self.temporaries else self.kernel.arg_dict[name]

    def _rewrite(self, insn: Any) -> None:
        own = sorted(self.lanes & insn.within_inames)
        if not own:
            self.instructions.append(self._with_vectors(insn) if isinstance(insn, CInstruction) else insn)
            return
        if len(own) > 1 or not isinstance(insn, lp.Assignment):
            raise TransformError(f"instruction '{insn.id}' is no assignment with one lane, but has {own}")
        iname = own[0]
        insn = insn.copy(expression=with_rules(self.kernel, insn.expression))
        block, lane = self.loops(iname)
        mapper = _LaneSubstitution(self, insn, iname, block, lane)
        value = mapper(insn.expression)
        if mapper.loads and mapper.escaped:
            # Lanes that are computed one by one read memory, not lanes of vectors that nothing loads.
            mapper = _LaneSubstitution(self, insn, iname, block, lane, loading=False)
            value = mapper(insn.expression)
        inside = (insn.within_inames - {iname}) | {block, lane}
        values = sums_of(value) if isinstance(sums_of(value), tuple) else (value,)
        if mapper.escaped:
            self.tags[lane] = "unr"
            if self.length % self.width:
                inbounds = Comparison(Variable(block) * self.width + Variable(lane), "<", self.length)
                values = tuple(If(inbounds, own, 0) for own in values)
        else:
            self.instructions += mapper.loads
            insn = insn.copy(depends_on=insn.depends_on | {load.id for load in mapper.loads})
        if insn.assignee_name in self.axes:
            self.instructions.append(insn.copy(assignee=mapper(insn.assignee), expression=values[0], within_inames=inside))
        else:
            finishing = self.finishing.get(insn.assignee_name)
            finish = partial(finish_row, self, insn, iname, finishing) if finishing else None
            store_row(self, insn, iname, block, lane, values, inside, finish)

    def _with_vectors(self, insn: CInstruction) -> CInstruction:
        """Code that fills an array of vectors, which it is told to: its assignees as numbers of the array as it is now."""
        assignees = []
        for assignee in insn.assignees:
            axis = self.axes.get(assignee.aggregate.name) if isinstance(assignee, Subscript) else None
            if axis is not None:
                assignee = Subscript(assignee.aggregate, (*assignee.index_tuple, 0))
            assignees.append(assignee)
        return insn.copy(assignees=tuple(assignees))

    def loops(self, iname: str) -> tuple[str, str]:
        """New loops over the vectors of a row and over their lanes."""
        block, lane = self.fresh(f"{iname}_block"), self.fresh(f"{iname}_lane")
        self.domains.append(
            isl.BasicSet(f"{{[{block}, {lane}]: 0 <= {block} < {self.blocks} and 0 <= {lane} < {self.width}}}")
        )
        self.tags |= {block: "unr_hint", lane: "vec"}
        self.block_loops[iname] = block
        return block, lane

    def piece_loop(self, iname: str, count: int, *, unroll: bool) -> str:
        """A new loop over the pieces of a row."""
        loop = self.fresh(f"{iname}_piece")
        self.domains.append(isl.BasicSet(f"{{[{loop}]: 0 <= {loop} < {count}}}"))
        if unroll:
            self.tags[loop] = "unr_hint"
        return loop


class _LaneSubstitution(IdentityMapper):  # type: ignore[misc]
    """Writes one lane iname as block and lane, and rows of memory as vectors loaded before.

    `escaped` tells whether anything else depends on the lane, so that the lanes have to be computed one by one.
    """

    def __init__(
        self, lanes: VectorLanes, insn: lp.Assignment, iname: str, block: str, lane: str, *, loading: bool = True
    ) -> None:
        super().__init__()
        self.lanes, self.insn, self.iname, self.block, self.lane = lanes, insn, iname, block, lane
        self.loads: list[CInstruction] = []
        self.loaded: dict[Subscript, str] = {}
        rows = {read: self._row(read) for read in subscripts_in(insn.expression)}
        apart = any(self._needs_load(read) and row is None for read, row in rows.items())
        self.rows = {} if apart or not loading else rows
        self.escaped = False
        self.indexing = False

    def _needs_load(self, read: Subscript) -> bool:
        return read.aggregate.name not in self.lanes.axes and self.iname in get_dependencies(read)

    def _row(self, read: Subscript) -> MemoryRow | None:
        if not self._needs_load(read):
            return None
        array = self.lanes.array(read.aggregate.name)
        target = self.lanes.array(self.insn.assignee_name)
        row = row_of_subscript(array, read, self.iname)
        return row if row is not None and array.dtype.itemsize <= target.dtype.itemsize else None

    def map_subscript(self, expr: Any) -> Any:
        name = expr.aggregate.name
        axis = self.lanes.axes.get(name)
        if axis is not None and expr.index_tuple[axis] == Variable(self.iname):
            index = list(expr.index_tuple)
            index[axis] = Variable(self.block)
            return Subscript(expr.aggregate, (*index, Variable(self.lane)))
        row = self.rows.get(expr)
        if row is None:
            before, self.indexing = self.indexing, True
            mapped = super().map_subscript(expr)
            self.indexing = before
            return mapped
        if expr not in self.loaded:
            self.loaded[expr], loads = load_row(self.lanes, self.insn, self.iname, expr, row)
            self.loads += loads
        return Subscript(Variable(self.loaded[expr]), (Variable(self.block), Variable(self.lane)))

    def map_type_cast(self, expr: Any) -> Any:
        if self.rows.get(expr.child) is not None:
            return self.rec(expr.child)
        if self.iname in get_dependencies(expr.child):
            return super().map_type_cast(expr)
        # loopy 2025.2 makes no vectors around a cast, even of a single number; a product converts as well.
        return Product((expr.type.numpy_dtype.type(1), self.rec(expr.child)))

    def _map_number(self, expr: Any) -> Any:
        """Refuse what loopy 2025.2 makes no vectors of, unless it is part of an index."""
        self.escaped = self.escaped or not self.indexing
        return getattr(super(), expr.mapper_method)(expr)

    map_if = map_min = map_max = map_floor_div = map_remainder = _map_number

    def map_variable(self, expr: Any) -> Any:
        if expr.name != self.iname:
            return expr
        self.escaped = True
        return Variable(self.block) * self.lanes.width + Variable(self.lane)
