"""Matching: the batched einsum that instructions of a loopy kernel compute, the inverse of :mod:`feinsum.lower`.

D_0(i0, i1) := D[i0, i1]
u_1(i0, i1) := u[i0, i1]                                    ij,ej->ei  [D u]
out[e, i] = sum(j, D_0(i, j) * u_1(e, j))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import loopy as lp
from loopy.diagnostic import LoopyError
from loopy.match import parse_match
from pytools.lex import ParseError

from feinsum.einsum import BatchedEinsum
from feinsum.epilogue import Epilogue
from feinsum.errors import MatchError, SubscriptError
from feinsum.match.describe import describe_rows
from feinsum.match.group import RowGroup, RowReader
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.stored_functions import Finishing, Together
from feinsum.subscripts import Subscripts

_LISTED = 20
"""Instructions that an error lists at most."""


@dataclass(frozen=True)
class Match:
    """A batched einsum seen in a kernel, with the instructions that compute it.

    :ivar einsum: the einsum, in names of its own.
    :ivar kernel_name: the kernel of the translation unit in which it was seen.
    :ivar insn_ids: ``insn_ids[row]`` is the instruction that computes output `row`; where one output is made of all rows,
        they all have its instruction.
    :ivar rules: ``rules[row][k]`` is the substitution rule that is operand k of that row.
    :ivar loops: ``loops[row]`` maps index letters to the inames of that row.
    :ivar outputs: ``outputs[row]`` is the array that it writes.
    :ivar arrays: array of the einsum -> array of the kernel, or the substitution rule that stands for an array.
    :ivar axes: long axis of the einsum -> parameter of the kernel, or an affine expression of parameters.
    :ivar finishing: array of the kernel that is an output -> the function of the sum that it stores, if there is one.
    :ivar together: the output to be made of the sums of all rows, in place of storing these; None if there is none.
    :ivar epilogues: the epilogue of each row, in the names of the einsum; None for a row without one, and empty if no row
        has one; a single epilogue of several rows makes one output of all.  See :func:`feinsum.match_einsum`.
    """

    einsum: BatchedEinsum
    kernel_name: str
    insn_ids: tuple[str, ...]
    rules: tuple[tuple[str, ...], ...]
    loops: tuple[Mapping[str, str], ...]
    outputs: tuple[str, ...]
    arrays: Mapping[str, str]
    axes: Mapping[str, str]
    finishing: Mapping[str, Finishing] = field(default_factory=dict)
    together: Together | None = None
    epilogues: tuple[Epilogue | None, ...] = ()

    @property
    def inames(self) -> Mapping[str, str]:
        """Index letter -> iname of the first row, and of every row after :func:`feinsum.match.isolate`."""
        return self.loops[0]

    @property
    def epilogue(self) -> Epilogue | None:
        """The epilogue of a match of one row, or of rows that all have the same; None where there is none or several."""
        return self.epilogues[0] if len(set(self.epilogues)) == 1 else None

    @property
    def combines(self) -> bool:
        """Whether one instruction makes one output of the sums of several rows."""
        return len(self.insn_ids) > 1 and len(set(self.insn_ids)) == 1

    @property
    def makes_more(self) -> bool:
        """Whether any of its sums has a function applied before it is stored."""
        return self.own_together is not None or any(output in self.finishing for output in self.outputs)

    @property
    def own_together(self) -> Together | None:
        """The output to be made of the sums of all rows, if these are its outputs and not those of a later step."""
        return self.together if self.together and set(self.outputs) <= set(self.together.sums) else None

    @property
    def updates_output(self) -> bool:
        """Whether the function of a sum reads the present content of its output."""
        own = self.own_together
        updated = own is not None and own.finishing.reads_output
        return updated or any(output in self.finishing and self.finishing[output].reads_output for output in self.outputs)

    @property
    def all_finishing(self) -> Mapping[str, Finishing]:
        """The function of sums that each output stores, of one row or of all."""
        together = {} if self.together is None else {self.together.output: self.together.finishing}
        return {**self.finishing, **together}

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Every name of the einsum -> its name in the kernel: indices, long axes, arrays and outputs.

        Where an index letter is also the name of something else (which a match avoids, but :meth:`relabel` may bring
        about), that other name counts; :attr:`inames` has the letters alone.
        """
        outputs = dict(zip(self.einsum.output_names, self.outputs, strict=True))
        return {**self.inames, **self.axes, **self.arrays, **outputs}

    def _repr_html_(self) -> str:
        from feinsum.report.displays import match_html

        return match_html(self)

    def __repr__(self) -> str:
        return f"<Match {self.einsum.subscripts} in {', '.join(self.insn_ids)} of {self.kernel_name}>"

    def relabel(self, indices: Mapping[str, str], operands: Sequence[int]) -> Match:
        """The same match in other index letters and with the operands in another order.

        :param indices: new letter of every index, by the old one.
        :param operands: operand k of the result is operand ``operands[k]`` of this match.
        :raises SubscriptError: if `indices` is no one-to-one map of all indices or `operands` no permutation.
        """
        old = self.einsum.indexing
        if set(indices) != set(old.indices) or len(set(indices.values())) != len(indices):
            raise SubscriptError(f"{dict(indices)} does not rename the indices '{old.indices}' of '{old}' one to one")
        if sorted(operands) != list(range(self.einsum.n)):
            raise SubscriptError(f"{list(operands)} is no permutation of the {self.einsum.n} operands of '{old}'")
        renamed = old.rename(dict(indices))
        return replace(
            self,
            einsum=BatchedEinsum(
                Subscripts(tuple(renamed.inputs[k] for k in operands), renamed.output),
                tuple(tuple(row[k] for k in operands) for row in self.einsum.args),
                self.einsum.epilogues,
            ),
            rules=tuple(tuple(row[k] for k in operands) for row in self.rules),
            loops=tuple({indices[letter]: iname for letter, iname in row.items()} for row in self.loops),
        )


def match_bare(t_unit: lp.TranslationUnit, kernel_name: str | None = None, insn_match: Any = None) -> Match:
    """The batched einsum that the chosen instructions compute together, if they store their sums as they are.

    Parameters and errors are those of :func:`feinsum.match_einsum`.
    """
    source = SourceKernel.of(t_unit, kernel_name)
    chosen = choose_instructions(source, insn_match)
    if not chosen:
        raise MatchError(f"kernel '{source.kernel.name}' has no instruction that does something")
    reader = RowReader(source)
    seen = [reader.read(insn) for insn in chosen]
    group = RowGroup(reader, seen[0])
    for row in seen[1:]:
        group.add(row)
    return to_match(source, group)


def choose_instructions(source: SourceKernel, insn_match: Any) -> list[Any]:
    """The instructions that `insn_match` chooses and that do something.

    :raises MatchError: if `insn_match` cannot be read or chooses none.
    """
    try:
        chosen = parse_match(insn_match)
    except (LoopyError, ParseError, TypeError) as error:
        raise MatchError(
            f"insn_match {insn_match!r} cannot be read: {error}; write for example 'id:a or writes:y'"
        ) from None
    found = [
        insn
        for insn in source.kernel.instructions
        if chosen(source.kernel, insn) and not isinstance(insn, (lp.BarrierInstruction, lp.NoOpInstruction))
    ]
    if insn_match is not None and not found:
        ids = [insn.id for insn in source.kernel.instructions]
        there = ", ".join(ids if len(ids) <= _LISTED else [*ids[:_LISTED], "..."])
        raise MatchError(f"no instruction of kernel '{source.kernel.name}' is chosen by {insn_match}; there are {there}")
    return found


def to_match(source: SourceKernel, group: RowGroup) -> Match:
    """The match of a group of rows."""
    rows = [member.row for member in group.members]
    found = describe_rows(rows[0], [member.operands for member in group.members], group.correspondences)
    return Match(
        einsum=found.einsum,
        kernel_name=source.kernel.name,
        insn_ids=tuple(row.insn_id for row in rows),
        rules=tuple(
            tuple(row.calls[k][0] for k in correspondence.operands)
            for row, correspondence in zip(rows, group.correspondences, strict=True)
        ),
        loops=tuple(
            {letter: correspondence.inames[iname] for iname, letter in found.letters.items()}
            for correspondence in group.correspondences
        ),
        outputs=tuple(row.output for row in rows),
        arrays=found.arrays,
        axes=found.axes,
    )
