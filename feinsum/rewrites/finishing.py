"""The move that gives epilogues a launch of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import islpy as isl
import loopy as lp
from loopy.kernel.data import Iname
from pymbolic.primitives import FloorDiv, Product, Remainder, Sum, Variable

from feinsum.einsum import BatchedEinsum
from feinsum.lower.epilogue import Finish, scalar_arguments, with_functions
from feinsum.lower.steps import fresh_name, read

_GROUP_AXES = ("g.1", "g.2")


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
        out[q // 35, q % 35] = sum[q // 35, q % 35] + b[q % 35]

    The last axes of the output are one loop, as far as they have fixed lengths, and one more; so neighbours are neighbours
    in memory, however short the rows are, and compilers make vectors of them.

    :param sums: for each row the argument that holds its sum; the output itself for a row without an epilogue.
    :param names: names in the kernel of arrays, outputs, scalars and long axes of `e`, where they differ; arguments that
        the kernel has not are added.
    :param items: work-items of a group.
    """
    known = dict(names or {})
    launch = _Launch.make(t_unit[kernel_name], e, lambda name: known.get(name, name), items)
    kernel = _with_arguments(t_unit[kernel_name], e, sums, launch)
    kernel = launch.added(kernel, sums)
    return with_functions(t_unit.with_kernel(kernel), e)


@dataclass(frozen=True)
class _Launch:
    """The launch that finishes sums.

    :ivar loops: the new loops with their domains, and the tags of those that run in parallel.
    :ivar at: the position along each index of the output.
    """

    e: BatchedEinsum
    named: Any
    domains: tuple[str, ...]
    tags: Mapping[str, str]
    at: Mapping[str, Any]
    names: set[str]

    @staticmethod
    def make(kernel: lp.LoopKernel, e: BatchedEinsum, named: Any, items: int) -> _Launch:
        taken = set(kernel.all_variable_names()) | set(kernel.all_inames()) | set(kernel.substitutions)
        taken |= set(kernel.id_to_insn)
        lengths = {x: n if isinstance(n, int) else named(e.length_names[x]) for x, n in e.index_sizes.items()}
        output = e.indexing.output
        begin = len(output)
        while begin and isinstance(lengths[output[begin - 1]], int):
            begin -= 1
        begin = max(0, begin - 1)
        domains, tags, at = [], {}, {}
        for x in output[:begin]:
            loop = fresh_name(f"{x}_then", taken)
            domains.append(_domain(loop, lengths[x], 1))
            at[x] = Variable(loop)
            if len(tags) < len(_GROUP_AXES):
                tags[loop] = _GROUP_AXES[len(tags)]
        if output:
            groups, lanes = fresh_name("q_group", taken), fresh_name("q_lane", taken)
            tags |= {groups: "g.0", lanes: "l.0"}
            count = 1
            place = Sum((Product((items, Variable(groups))), Variable(lanes)))
            for x in reversed(output[begin:]):
                whole = place if count == 1 else FloorDiv(place, count)
                at[x] = whole if x == output[begin] else Remainder(whole, lengths[x])
                count *= lengths[x] if isinstance(lengths[x], int) else 1
            first = lengths[output[begin]]
            fixed = count if isinstance(first, str) else count // first if first else 0
            domains.append(_lanes(groups, lanes, items, first, fixed))
        return _Launch(e, named, tuple(domains), tags, at, taken)

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
        sets = [isl.BasicSet(domain) for domain in self.domains]
        inames = [name for domain in sets for name in domain.get_var_dict(isl.dim_type.set)]
        rows = [self._row(row, name, inames, barrier.id) for row, name in enumerate(sums) if self.e.epilogues[row]]
        kernel = kernel.copy(
            domains=[*kernel.domains, *sets],
            inames={**kernel.inames, **{name: Iname(name, frozenset()) for name in inames}},
            instructions=[*kernel.instructions, barrier, *rows],
        )
        return lp.tag_inames(kernel, dict(self.tags))

    def _row(self, row: int, name: str, inames: Sequence[str], after: str) -> lp.Assignment:
        output = tuple(self.at[x] for x in self.e.indexing.output)
        target = read(self.named(self.e.output_names[row]), output)
        value = Finish.of_row(self.e, row).write(
            read(name, output),
            target,
            lambda a, axes: read(self.named(a.name), tuple(output[k] for k in axes)),
            self.named,
        )
        return lp.Assignment(
            target,
            value,
            id=fresh_name(f"then_{row}", self.names),
            within_inames=frozenset(inames),
            within_inames_is_final=True,
            depends_on=frozenset([after]),
            depends_on_is_final=True,
        )


def _domain(loop: str, length: Any, factor: int) -> str:
    head = f"[{length}] -> " if isinstance(length, str) else ""
    return f"{head}{{[{loop}]: 0 <= {loop} < {factor} * {length}}}"


def _lanes(groups: str, lanes: str, items: int, first: Any, fixed: int) -> str:
    """The loops over groups and their work-items, which together go through ``first * fixed`` entries."""
    head = f"[{first}] -> " if isinstance(first, str) else ""
    total = f"{fixed} * {first}" if isinstance(first, str) else str(first * fixed)
    inside = f"0 <= {lanes} < {items} and 0 <= {items} * {groups} + {lanes} < {total}"
    return f"{head}{{[{groups}, {lanes}]: {inside}}}"


def _with_arguments(kernel: lp.LoopKernel, e: BatchedEinsum, sums: Sequence[str], launch: _Launch) -> lp.LoopKernel:
    """The kernel with the arguments that epilogues need, and with sums in memory that launches share."""
    named = launch.named
    waiting = {name for name, own in zip(sums, e.epilogues, strict=True) if own}
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
        sizes = (e.index_sizes[x] for x in letters)
        return tuple(n if isinstance(n, int) else Variable(named(e.length_names[x])) for x, n in zip(letters, sizes))

    new = [
        *(
            lp.GlobalArg(named(a.name), dtype=a.dtype, shape=shape(letters), order="C", is_input=True, is_output=False)
            for a, letters in e.array_indices.items()
        ),
        *(
            lp.GlobalArg(
                named(name), dtype=dtype, shape=shape(e.indexing.output), order="C", is_input=update, is_output=True
            )
            for name, dtype, update in zip(e.output_names, e.dtypes, e.updates, strict=True)
        ),
        *(argument.copy(name=named(argument.name)) for argument in scalar_arguments(e)),
    ]
    there = {argument.name for argument in arguments}
    return kernel.copy(
        args=[*arguments, *(argument for argument in new if argument.name not in there)], temporary_variables=temporaries
    )
