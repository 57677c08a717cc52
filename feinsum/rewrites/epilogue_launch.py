"""The move that gives epilogues a launch of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
from loopy.kernel.data import Iname
from loopy.symbolic import SubstitutionMapper
from pymbolic import parse
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Comparison, FloorDiv, Product, Remainder, Subscript, Sum, Variable

from feinsum.einsum import Array, BatchedEinsum
from feinsum.lower.epilogue_expressions import OutputEpilogue, scalar_arguments, with_functions
from feinsum.lower.schedule_steps import fresh_name, read_element
from feinsum.match import Match
from feinsum.match.domain import find_parameters
from feinsum.match.stored_functions import PRESENT, Finishing, Together, output_placeholder, value_of
from feinsum.rewrites.loops import without_race_warnings, without_shared_slabs

_GROUP_AXES = ("g.1", "g.2")
_NOT_SHORT = 32
"""The length of a last axis from which on it has a loop to itself."""
_LEAST_ITEMS = 16


def finish_apart(
    t_unit: lp.TranslationUnit,
    kernel_name: str,
    e: BatchedEinsum,
    sums: Sequence[str],
    names: Mapping[str, str] | None = None,
    *,
    items: int = 256,
) -> lp.TranslationUnit:
    """Apply epilogues to sums that a kernel stores, in a launch after all others.

    Before::

        sum[e, i] = ...

    After, with ``v + b[i]``::

        sum[e, i] = ...                        in global memory that is no argument any more
        ... gbarrier
        q = 256*get_group_id(0) + get_local_id(0)
        if q < 35*E: out[q // 35, q % 35] = sum[q // 35, q % 35] + b[q % 35]

    The last axes of the output are one loop, as far as they have fixed lengths, and one more; so neighbours are neighbours
    in memory, however short the rows are, and compilers make vectors of them.  Where an array is read along some axes of
    the output only, and the last axis is not short, that axis has a loop to itself, so that no index need be divided.

    :param sums: for each row the argument that holds its sum; the output itself for a row without an epilogue.  Where one
        output is made of all rows, the launch reads all of them.
    :param names: names in the kernel of arrays, outputs, scalars and long axes of `e`, where they differ; arguments that
        the kernel has not are added.
    :param items: work-items of a group.
    """
    known = dict(names or {})
    launch = _SumLaunch.make(t_unit[kernel_name], e, lambda name: known.get(name, name), items)
    kernel = _with_arguments(t_unit[kernel_name], e, sums, launch.named)
    kernel = launch.added(kernel, sums)
    return with_functions(t_unit.with_kernel(kernel), e)


def finish_together(t_unit: lp.TranslationUnit, match: Match, e: BatchedEinsum) -> tuple[lp.TranslationUnit, Match]:
    """The kernel with the arguments of the one output that is made of all rows, and the match that is to make it.

    :param match: of rows that store their sums, in the order of those of `e`.
    """
    kernel = _with_arguments(t_unit[match.kernel_name], e, (), str)
    output = e.output_names[0]
    values = [value_of(row) for row in range(e.b)]

    def reading(a: Array, axes: tuple[int, ...]) -> Any:
        return read_element(a.name, tuple(output_placeholder(k) for k in axes))

    expression = OutputEpilogue.of_output(e, 0).write(values, PRESENT, reading)
    together = Together(match.outputs, output, Finishing(expression, len(e.indexing.output)))
    return with_functions(t_unit.with_kernel(kernel), e), replace(match, together=together)


def launch_rest(
    t_unit: lp.TranslationUnit, match: Match, axes: Mapping[str, str], *, items: int = 256
) -> lp.TranslationUnit:
    """Spread over the device the instructions that apply functions to sums in memory, behind a barrier of their own.

    Before::

        sum[e, i] = ...
        ... gbarrier
        for e, i: out[e, i] = exp(sum[e, i]) + b[i]

    After, as :func:`finish_apart`::

        sum[e, i] = ...
        ... gbarrier
        q = 256*get_group_id(0) + get_local_id(0)
        if q < 35*E: out[q // 35, q % 35] = exp(sum[q // 35, q % 35]) + b[q % 35]

    :param match: whose instructions apply functions to sums that others store.
    :param axes: the length of each long axis of its einsum, in parameters of the kernel.
    """
    kernel, e = t_unit[match.kernel_name], replace(match.einsum, epilogues=match.epilogues)
    lengths = {
        e.length_names[x]: axes[x if axis == math.inf else str(axis)]
        for x, axis in e.index_sizes.items()
        if not isinstance(axis, int)
    }
    launch = _SumLaunch.make(kernel, e, lambda name: lengths.get(name, name), items)
    rest = [
        kernel.id_to_insn[insn_id] for row, insn_id in enumerate(match.insn_ids) if match.outputs[row] in match.finishing
    ]
    return t_unit.with_kernel(launch.instead(kernel, list({insn.id: insn for insn in rest}.values())))


@dataclass(frozen=True)
class _SumLaunch:
    """The launch that finishes sums.

    :ivar domains: of the new loops.
    :ivar tags: of those of them that run in parallel.
    :ivar at: the position along each index of the output.
    :ivar digits: the same for arrays that are read along some of them.
    :ivar place: the name of the position along the last axes together, its value, and how many of them there are; None
        for an output without axes.
    """

    e: BatchedEinsum
    named: Any
    domains: tuple[str, ...]
    tags: Mapping[str, str]
    at: Mapping[str, Any]
    digits: Mapping[str, Any]
    place: tuple[str, Any, Any] | None
    names: set[str]

    @staticmethod
    def make(kernel: lp.LoopKernel, e: BatchedEinsum, named: Any, items: int) -> _SumLaunch:
        taken = set(kernel.all_variable_names()) | set(kernel.all_inames()) | set(kernel.substitutions)
        taken |= set(kernel.id_to_insn)
        lengths = {x: n if isinstance(n, int) else named(e.length_names[x]) for x, n in e.index_sizes.items()}
        output = e.indexing.output
        if not output:
            return _SumLaunch(e, named, (), {}, {}, {}, None, taken)
        apart, together = _parted(e, lengths)
        if len(together) == 1 and isinstance(length := lengths[together], int):
            items = min(items, max(_LEAST_ITEMS, 1 << (length - 1).bit_length()))
        loops = {x: fresh_name(f"{x}_then", taken) for x in apart}
        groups, lanes, place = (fresh_name(name, taken) for name in ("q_group", "q_lane", "q"))
        taken.add(_unsigned(place))
        domains = [_loop_domain({loop: lengths[x]}) for x, loop in loops.items()]
        count = math.prod(lengths[x] for x in together[1:])
        first = lengths[together[0]]
        total = count * first if isinstance(first, int) else Product((count, parse(first)))
        head, whole = (_length_head(first), f"{count} * ({first})") if isinstance(first, str) else ("", str(total))
        domains.append(f"{head}{{[{groups}]: 0 <= {groups} and {items} * {groups} < {whole}}}")
        domains.append(_loop_domain({lanes: items}))
        own = {x: Variable(loop) for x, loop in loops.items()}
        at = {**own, **_position_digits(Variable(place), together, lengths)}
        digits = {**own, **_position_digits(Variable(_unsigned(place) if len(together) > 1 else place), together, lengths)}
        tags = {groups: "g.0", lanes: "l.0", **dict(zip(loops.values(), _GROUP_AXES, strict=False))}
        value = Sum((Product((items, Variable(groups))), Variable(lanes)))
        return _SumLaunch(e, named, tuple(domains), tags, at, digits, (place, value, total), taken)

    def instead(self, kernel: lp.LoopKernel, rest: Sequence[lp.Assignment]) -> lp.LoopKernel:
        """The kernel with this launch in place of instructions that finish sums, entry by entry."""
        after = frozenset[str]().union(*(insn.depends_on for insn in rest)) - {insn.id for insn in rest}
        opened, inames, placing = self._opened(kernel, after)
        names = {insn.id for insn in rest}
        rows = []
        for insn in rest:
            index = insn.assignee.index_tuple if isinstance(insn.assignee, Subscript) else ()
            places = {at.name: self.at[x] for at, x in zip(index, self.e.indexing.output, strict=True)}
            moved = insn.with_transformed_expressions(SubstitutionMapper(make_subst_func(places)))
            row = moved.copy(within_inames=inames, within_inames_is_final=True, depends_on=after, depends_on_is_final=True)
            rows.append(self._guarded(row))
        instructions = [insn for insn in opened.instructions if insn.id not in names]
        closed = self._closed(opened.copy(instructions=[*instructions, *placing, *rows]), rows)
        return lp.remove_unused_inames(closed)

    def added(self, kernel: lp.LoopKernel, sums: Sequence[str]) -> lp.LoopKernel:
        """The kernel with this launch after all that it does."""
        barrier = lp.BarrierInstruction(
            fresh_name("then", self.names),
            depends_on=frozenset(kernel.id_to_insn),
            synchronization_kind="global",
            mem_kind="global",
            within_inames=frozenset(),
            within_inames_is_final=True,
        )
        opened, inames, placing = self._opened(kernel, frozenset([barrier.id]))
        parts = [tuple(sums)] if self.e.combines else [(name,) for name in sums]
        rows = [self._row(k, own, inames, barrier.id) for k, own in enumerate(parts) if self.e.epilogues[k]]
        return self._closed(opened.copy(instructions=[*kernel.instructions, barrier, *placing, *rows]), rows)

    def _opened(
        self, kernel: lp.LoopKernel, after: frozenset[str]
    ) -> tuple[lp.LoopKernel, frozenset[str], list[lp.Assignment]]:
        """The kernel with the loops of the launch, these loops, and what says where they are."""
        sets = [isl.BasicSet(domain) for domain in self.domains]
        inames = frozenset(name for domain in sets for name in domain.get_var_dict(isl.dim_type.set))
        placing, temporaries = [], dict(kernel.temporary_variables)
        if self.place is not None:
            name, value, _ = self.place
            width = 8 * kernel.index_dtype.itemsize
            # Unsigned, so that compilers see that no number is negative whose digits are wanted; but they make no vectors
            # of what is read at consecutive numbers that may wrap around.
            for variable, kind in ((name, "int"), (_unsigned(name), "uint")):
                dtype = np.dtype(f"{kind}{width}")
                temporaries[variable] = lp.TemporaryVariable(
                    variable, dtype=dtype, shape=(), address_space=lp.AddressSpace.PRIVATE
                )
                placing.append(self._assignment(Variable(variable), value, variable, inames, after))
        opened = kernel.copy(
            domains=[*kernel.domains, *sets],
            inames={**kernel.inames, **{name: Iname(name, frozenset()) for name in inames}},
            temporary_variables=temporaries,
        )
        return opened, inames, placing

    def _closed(self, kernel: lp.LoopKernel, rows: Sequence[lp.Assignment]) -> lp.LoopKernel:
        """The kernel with its loops spread over the device."""
        kernel = lp.tag_inames(without_race_warnings(kernel, [row.id for row in rows]), dict(self.tags))
        return without_shared_slabs(kernel)

    def _row(self, row: int, sums: tuple[str, ...], inames: frozenset[str], after: str) -> lp.Assignment:
        """The instruction that stores an output, from the sums that it is made of."""
        output = tuple(self.at[x] for x in self.e.indexing.output)
        target = read_element(self.named(self.e.output_names[row]), output)
        digits = tuple(self.digits[x] for x in self.e.indexing.output)

        def reading(a: Array, axes: tuple[int, ...]) -> Any:
            own = output if axes == tuple(range(len(output))) else digits
            return read_element(self.named(a.name), tuple(own[k] for k in axes))

        values = [read_element(name, output) for name in sums]
        value = OutputEpilogue.of_output(self.e, row).write(values, target, reading, self.named)
        return self._guarded(self._assignment(target, value, f"then_{row}", inames, frozenset([after])))

    def _guarded(self, insn: lp.Assignment) -> lp.Assignment:
        """The instruction that stores an output, up to its end."""
        if self.place is None:
            return insn
        place, position, total = self.place
        # Not a bound of the loops, which loopy writes as -1 + -1024*gid(0) + -1*lid(0) + 35*E >= 0: with that Intel's
        # compiler (2026.2) lets lanes beyond the end update what is there, if all that they read is the output itself.
        guard = Comparison(position, "<", total)
        return insn.copy(predicates=insn.predicates | {guard}, depends_on=insn.depends_on | {place, _unsigned(place)})

    def _assignment(
        self, target: Any, value: Any, insn_id: str, inames: frozenset[str], after: frozenset[str]
    ) -> lp.Assignment:
        known = self.place is not None and insn_id in (self.place[0], _unsigned(self.place[0]))
        return lp.Assignment(
            target,
            value,
            id=insn_id if known else fresh_name(insn_id, self.names),
            within_inames=inames,
            within_inames_is_final=True,
            depends_on=after,
            depends_on_is_final=True,
        )


def _unsigned(place: str) -> str:
    """The name of a position as an unsigned number."""
    return f"{place}_digits"


def _parted(e: BatchedEinsum, lengths: Mapping[str, Any]) -> tuple[str, str]:
    """The indices that have loops of their own, and the last ones, which are one: all but the first of them are fixed."""
    output, last = e.indexing.output, lengths[e.indexing.output[-1]]
    partial = any(len(read.axes) not in (0, len(output)) for own in e.epilogues if own for read in own.reads)
    if partial and (isinstance(last, str) or last >= _NOT_SHORT):
        return output[:-1], output[-1]
    begin = len(output)
    while begin and isinstance(lengths[output[begin - 1]], int):
        begin -= 1
    begin = max(0, begin - 1)
    return output[:begin], output[begin:]


def _position_digits(place: Any, letters: str, lengths: Mapping[str, Any]) -> dict[str, Any]:
    """The position along each of some indices at a position along all of them."""
    found, count = {}, 1
    for x in reversed(letters):
        whole = place if count == 1 else FloorDiv(place, count)
        found[x] = whole if x == letters[0] else Remainder(whole, lengths[x])
        count *= lengths[x] if x != letters[0] else 1
    return found


def _loop_domain(loops: Mapping[str, Any]) -> str:
    ((loop, length),) = loops.items()
    head = _length_head(length) if isinstance(length, str) else ""
    return f"{head}{{[{loop}]: 0 <= {loop} < {length}}}"


def _length_head(length: str) -> str:
    """The parameters of a set that has a length."""
    return f"[{', '.join(sorted(find_parameters(length)))}] -> "


def _output_argument(kernel: lp.LoopKernel, name: str, dtype: Any, shape: tuple[Any, ...], *, update: bool) -> lp.GlobalArg:
    """The argument that a finished sum is stored in; it lies in memory as it does in the kernel, if it is there."""
    known = kernel.arg_dict.get(name)
    argument = lp.GlobalArg(name, dtype=dtype, shape=shape, order="C") if known is None else known
    return argument.copy(is_input=update, is_output=True)


def _with_arguments(
    kernel: lp.LoopKernel, e: BatchedEinsum, sums: Sequence[str], named: Callable[[str], str]
) -> lp.LoopKernel:
    """The kernel with the arguments that epilogues need, and with `sums` in memory that launches share."""
    own_epilogues = e.epilogues * (len(sums) if e.combines else 1)
    waiting = {name for name, own in zip(sums, own_epilogues, strict=True) if own}
    temporaries, arguments = dict(kernel.temporary_variables), []
    for argument in kernel.args:
        if argument.name in waiting:
            temporaries[argument.name] = lp.TemporaryVariable(
                argument.name,
                dtype=argument.dtype,
                shape=argument.shape,
                dim_tags=argument.dim_tags,
                address_space=lp.AddressSpace.GLOBAL,
            )
        else:
            arguments.append(argument)

    def shape(letters: str) -> tuple[Any, ...]:
        sizes = {x: e.index_sizes[x] for x in letters}
        return tuple(n if isinstance(n := sizes[x], int) else Variable(named(e.length_names[x])) for x in letters)

    new = [
        *(
            lp.GlobalArg(named(a.name), dtype=a.dtype, shape=shape(letters), order="C", is_input=True, is_output=False)
            for a, letters in e.array_indices.items()
        ),
        *(
            _output_argument(kernel, named(name), dtype, shape(e.indexing.output), update=update)
            for name, dtype, update, own in zip(e.output_names, e.dtypes, e.updates, e.epilogues, strict=True)
            if own
        ),
        *(argument.copy(name=named(argument.name)) for argument in scalar_arguments(e)),
    ]
    finished = {argument.name for argument in new if argument.is_output}
    arguments = [argument for argument in arguments if argument.name not in finished]
    there = {argument.name for argument in arguments}
    return kernel.copy(
        args=[*arguments, *(argument for argument in new if argument.name not in there)], temporary_variables=temporaries
    )
