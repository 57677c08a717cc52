"""Moves that compute on OpenCL vectors: one axis of private arrays becomes the lanes of a vector type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import islpy as isl
import loopy as lp
from loopy.kernel.array import FixedStrideArrayDimTag
from loopy.kernel.data import Iname
from loopy.kernel.instruction import CInstruction
from loopy.symbolic import CombineMapper, IdentityMapper, get_dependencies
from pymbolic.primitives import Comparison, If, Subscript, Variable

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.loops import fixed_length, iname_of

_NAMES = {"float32": "float", "float64": "double"}


def vectorize(
    t_unit: lp.TranslationUnit, match: Match, lanes: Sequence[str], width: int, *, streaming: bool = False
) -> lp.TranslationUnit:
    """Make an index the lanes of vectors, padded to whole vectors; results are stored as vectors.

    Before, with private ``t`` and ``a``::

        for i in range(20): t[j, i] = D(i, j)
        for i in range(20): a[i] = a[i] + t[j, i] * u(j)
        for i in range(20): out[e, i] = 2 * a[i]

    After ``width=8``, ``v`` a lane::

        for b in range(3), v in range(8): t[j, b].v = D(8 b + v, j) if 8 b + v < 20 else 0
        for b in range(3): a[b] = a[b] + t[j, b] * u(j)
        for b in range(3): y[b] = 2 * a[b]
        vstore8(y[0], 0, out + ...); vstore8(y[1], 0, ...); vstore4(y[2].lo, 0, ...)

    :param lanes: loops of one fixed length that run along the lanes; those that index the same axis of a private array
        as one of them are found.
    :param width: lanes of a vector: 2, 4, 8 or 16.
    :param streaming: store past the caches, with a builtin of clang that compilers for CPUs know, where rows are aligned.
    :raises TransformError: if private arrays are not indexed by just these inames along one axis, if lengths differ, or
        for numbers other than float32 and float64.

    ``vectorize`` in Halide and TVM.
    """
    kernel = t_unit[match.kernel_name]
    axes, found = _follow(kernel, frozenset(iname_of(t_unit, match, loop) for loop in lanes))
    lengths = {fixed_length(kernel, iname) for iname in found}
    length = lengths.pop()
    if lengths:
        raise TransformError(f"loops {sorted(found)} have different lengths, so they cannot be the same lanes")
    return t_unit.with_kernel(_Lanes(kernel, found, length, width, streaming, axes).result())


def _follow(kernel: lp.LoopKernel, lanes: frozenset[str]) -> tuple[dict[str, int], frozenset[str]]:
    """The axis along which lanes run in each private array, and every iname that indexes such an axis."""
    references = [
        (insn.id, reference)
        for insn in kernel.instructions
        if isinstance(insn, lp.Assignment)
        for reference in _subscripts(insn.assignee) | _subscripts(insn.expression)
        if reference.aggregate.name in kernel.temporary_variables
    ]
    axes: dict[str, int] = {}
    while True:
        for insn_id, reference in references:
            at = [k for k, index in enumerate(reference.index_tuple) if get_dependencies(index) & lanes]
            if not at:
                continue
            axis = axes.setdefault(reference.aggregate.name, at[0])
            if at != [axis] or not isinstance(reference.index_tuple[axis], Variable):
                raise TransformError(f"'{reference}' in '{insn_id}' is not indexed by a lane along axis {axis} alone")
        found = lanes | {
            reference.index_tuple[axes[reference.aggregate.name]].name
            for _, reference in references
            if reference.aggregate.name in axes
            and isinstance(reference.index_tuple[axes[reference.aggregate.name]], Variable)
        }
        if found == lanes:
            return axes, lanes
        lanes = found


@dataclass
class _Lanes:
    """The kernel while its lanes become vectors."""

    kernel: lp.LoopKernel
    lanes: frozenset[str]
    length: int
    width: int
    streaming: bool
    axes: dict[str, int]
    instructions: list[Any] = field(default_factory=list)
    temporaries: dict[str, Any] = field(default_factory=dict)
    domains: list[isl.BasicSet] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fresh: Callable[[str], str] = self.kernel.get_var_name_generator()
        self.blocks = -(-self.length // self.width)

    def result(self) -> lp.LoopKernel:
        self.temporaries = dict(self.kernel.temporary_variables)
        for name, axis in self.axes.items():
            self.temporaries[name] = self._padded(self.kernel.temporary_variables[name], axis)
        for insn in self.kernel.instructions:
            self._rewrite(insn)
        inames = [name for domain in self.domains for name in domain.get_var_names(isl.dim_type.set)]
        kernel = self.kernel.copy(
            instructions=self.instructions,
            temporary_variables=self.temporaries,
            domains=[*self.kernel.domains, *self.domains],
            inames={**self.kernel.inames, **{name: Iname(name, frozenset()) for name in inames}},
            # Code of feinsum's own is ordered by the quick scheduler; a user of loopy alone can do nothing about it.
            silenced_warnings=self.kernel.silenced_warnings | {"v1_scheduler_fallback"},
        )
        return lp.remove_unused_inames(lp.tag_inames(kernel, self.tags))

    def _padded(self, temporary: lp.TemporaryVariable, axis: int) -> lp.TemporaryVariable:
        if temporary.dtype.numpy_dtype.name not in _NAMES:
            raise TransformError(f"'{temporary.name}' is {temporary.dtype}; vectors hold float32 or float64")
        shape = (*temporary.shape[:axis], self.blocks, *temporary.shape[axis + 1 :], self.width)
        tags = [f"N{k}" for k in reversed(range(len(shape) - 1))]
        return temporary.copy(shape=shape, dim_tags=",".join([*tags, "vec"]), strides=None, order=None, dim_names=None)

    def _rewrite(self, insn: Any) -> None:
        own = sorted(self.lanes & insn.within_inames)
        if not own:
            self.instructions.append(insn)
            return
        if len(own) > 1 or not isinstance(insn, lp.Assignment):
            raise TransformError(f"instruction '{insn.id}' is no assignment with one lane, but has {own}")
        block, lane = self._loops(own[0])
        mapper = _Substitution(self.axes, own[0], block, lane, self.width)
        value = mapper(insn.expression)
        inside = (insn.within_inames - {own[0]}) | {block, lane}
        if insn.assignee_name in self.axes:
            if mapper.escaped and self.length % self.width:
                inbounds = Comparison(Variable(block) * self.width + Variable(lane), "<", self.length)
                value = If(inbounds, value, 0)
            if mapper.escaped:
                self.tags[lane] = "unr"
            self.instructions.append(insn.copy(assignee=mapper(insn.assignee), expression=value, within_inames=inside))
        else:
            self._store(insn, own[0], block, lane, value, inside)

    def _loops(self, iname: str) -> tuple[str, str]:
        block, lane = self.fresh(f"{iname}_block"), self.fresh(f"{iname}_lane")
        self.domains.append(
            isl.BasicSet(f"{{[{block}, {lane}]: 0 <= {block} < {self.blocks} and 0 <= {lane} < {self.width}}}")
        )
        self.tags |= {block: "unr_hint", lane: "vec"}
        return block, lane

    def _store(self, insn: lp.Assignment, iname: str, block: str, lane: str, value: Any, inside: frozenset[str]) -> None:
        """Compute the result in vectors and write them out: whole vectors first, then the rest by halves."""
        target = self.kernel.arg_dict[insn.assignee_name]
        dtype = target.dtype.numpy_dtype
        if dtype.name not in _NAMES:
            raise TransformError(f"'{target.name}' is {dtype}; vectors hold float32 or float64")
        kept = lp.TemporaryVariable(
            self.fresh(f"{target.name}_vectors"),
            dtype=dtype,
            shape=(self.blocks, self.width),
            dim_tags="N0,vec",
            address_space=lp.AddressSpace.PRIVATE,
        )
        self.temporaries[kept.name] = kept
        compute = insn.copy(
            id=self.fresh(f"{insn.id}_vectors"),
            assignee=Subscript(Variable(kept.name), (Variable(block), Variable(lane))),
            expression=value,
            within_inames=inside,
        )
        self.instructions.append(compute)
        offset, stride = _linear(target, insn.assignee, iname)
        pieces = self._pieces(stride)
        ids = [self.fresh(f"{insn.id}_store") for _ in pieces[1:]] + [insn.id]
        previous = compute.id
        for number, (size, count, start) in enumerate(pieces):
            loop = self.fresh(f"{iname}_piece")
            self.domains.append(isl.BasicSet(f"{{[{loop}]: 0 <= {loop} < {count}}}"))
            at = Variable(loop) * size + start
            store = CInstruction(
                (("at", at), ("to", offset + stride * at)),
                self._code(kept.name, target.name, _NAMES[dtype.name], size),
                read_variables=frozenset([kept.name]),
                assignees=(insn.assignee.aggregate[_replaced(insn.assignee.index_tuple, iname, at)],),
                id=ids[number],
                within_inames=(insn.within_inames - {iname}) | {loop},
                within_inames_is_final=True,
                predicates=insn.predicates,
                depends_on=insn.depends_on | {compute.id, previous},
                depends_on_is_final=True,
                # The pieces of a store do not overlap, which loopy 2025.2 fails to find out (it raises AttributeError).
                no_sync_with=insn.no_sync_with | {(other, "any") for other in ids if other != ids[number]},
            )
            self.instructions.append(store)
            previous = store.id

    def _pieces(self, stride: Any) -> list[tuple[int, int, int]]:
        """(numbers of a store, how many of them, where the first begins), covering the length."""
        if stride != 1:
            return [(1, self.length, 0)]
        if self.streaming:
            size = min(self.width, self.length & -self.length)
            if size > 1:
                return [(size, self.length // size, 0)]
        pieces, start, size = [], 0, self.width
        while start < self.length:
            count = (self.length - start) // size
            if count:
                pieces.append((size, count, start))
                start += count * size
            size //= 2
        return pieces

    def _code(self, kept: str, target: str, scalar: str, size: int) -> str:
        if size == 1:
            return f"{target}[to] = (({scalar} const *) {kept})[at];"
        vector = f"*({scalar}{size} const *) (({scalar} const *) {kept} + at)"
        if self.streaming and self.length % size == 0:
            return f"__builtin_nontemporal_store({vector}, (__global {scalar}{size} *) ({target} + to));"
        return f"vstore{size}({vector}, 0, {target} + to);"


class _Substitution(IdentityMapper):  # type: ignore[misc]
    """Writes one lane iname as block and lane; `escaped` tells whether anything but a padded array depends on it."""

    def __init__(self, axes: dict[str, int], iname: str, block: str, lane: str, width: int) -> None:
        super().__init__()
        self.axes, self.iname, self.block, self.lane, self.width = axes, iname, block, lane, width
        self.escaped = False

    def map_subscript(self, expr: Any) -> Any:
        name = expr.aggregate.name
        axis = self.axes.get(name)
        if axis is None or expr.index_tuple[axis] != Variable(self.iname):
            return super().map_subscript(expr)
        index = list(expr.index_tuple)
        index[axis] = Variable(self.block)
        return Subscript(expr.aggregate, (*index, Variable(self.lane)))

    def map_variable(self, expr: Any) -> Any:
        if expr.name != self.iname:
            return expr
        self.escaped = True
        return Variable(self.block) * self.width + Variable(self.lane)


class _Subscripts(CombineMapper):  # type: ignore[misc]
    """Every subscript of an expression."""

    def combine(self, values: Any) -> frozenset[Any]:
        return frozenset[Any]().union(*values)

    def map_subscript(self, expr: Any) -> frozenset[Any]:
        return frozenset([expr])

    def map_constant(self, expr: Any) -> frozenset[Any]:
        return frozenset()

    map_variable = map_function_symbol = map_constant


def _subscripts(expr: Any) -> frozenset[Any]:
    found: frozenset[Any] = _Subscripts()(expr)
    return found


def _replaced(index: tuple[Any, ...], iname: str, value: Any) -> tuple[Any, ...]:
    return tuple(value if entry == Variable(iname) else entry for entry in index)


def _linear(target: Any, assignee: Any, iname: str) -> tuple[Any, Any]:
    """The offset in elements of an assignee at lane 0, and the stride of a lane."""
    offset: Any = 0
    stride: Any = None
    for entry, tag in zip(assignee.index_tuple, target.dim_tags, strict=True):
        if not isinstance(tag, FixedStrideArrayDimTag):
            raise TransformError(f"'{target.name}' is no array of plain strides, so its vectors cannot be stored")
        if entry == Variable(iname):
            stride = tag.stride
        elif iname in get_dependencies(entry):
            raise TransformError(f"'{assignee}' is not indexed by lane '{iname}' alone along one axis")
        else:
            offset = offset + entry * tag.stride
    if stride is None:
        raise TransformError(f"'{assignee}' has no axis of lane '{iname}'")
    return offset, stride
