"""The steps of a contraction schedule as loopy instructions, domains and temporaries.

Step s of ``ij,jk,k->i`` contracted as ``B x`` first::

    partial_0[j] = sum(k, B_1(j, k) * x_2(k))        nest of step 0
    ... gbarrier
    partial_0_(i0) := partial_0[i0]
    out[i] = sum(j, A_0(i, j) * partial_0_(j))       nest of step 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import numpy as np
from pymbolic.primitives import Subscript, Variable

from feinsum.contraction import ContractionSchedule, ContractionStep
from feinsum.lower.epilogue_expressions import OutputEpilogue
from feinsum.lower.substitution_rules import sum_of_calls

Length = int | str


def read_element(name: str, at: tuple[Variable, ...]) -> Any:
    """The element of an array at an index tuple; a scalar is read without one."""
    return Subscript(Variable(name), at) if at else Variable(name)


def fresh_name(name: str, taken: set[str]) -> str:
    """`name`, with underscores appended until nothing in `taken` has it; it is taken from then on."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


@dataclass
class StepNest:
    """The loop nest of one step: its inames, and for each result its rules, array, element type and instruction."""

    step: ContractionStep
    inames: Mapping[str, str]
    results: list[tuple[tuple[str, ...], str, np.dtype[Any], str]] = field(default_factory=list)


@dataclass
class Steps:
    """The steps of a schedule while they are written down.

    :ivar rules: ``rules[row][k]``, the substitution rule of operand k of a row; equal names mean equal operands.
    :ivar outputs: the array that each row writes, or one that all rows are for.
    :ivar dtypes: the element type of each row.
    :ivar lengths: the length of each index, an int or the name of a parameter.
    :ivar taken: names that are not free.
    :ivar after: instructions that must come before the first step.
    :ivar finishes: the epilogues of the last sum of each output; empty if there are none.
    :ivar inline: whether a sum stands in its instruction though it decides a choice there.
    """

    rules: Sequence[Sequence[str]]
    outputs: Sequence[str]
    dtypes: Sequence[np.dtype[Any]]
    lengths: Mapping[str, Length]
    taken: set[str]
    after: frozenset[str] = frozenset()
    finishes: Sequence[OutputEpilogue] = ()
    inline: bool = False
    domains: list[str] = field(default_factory=list)
    instructions: list[Any] = field(default_factory=list)
    temporaries: list[lp.TemporaryVariable] = field(default_factory=list)
    new_rules: list[lp.SubstitutionRule] = field(default_factory=list)
    nests: list[StepNest] = field(default_factory=list)

    def add(self, schedule: ContractionSchedule) -> None:
        """Write down every step: a nest, one instruction for each result that differs, a global barrier between."""
        operands = [dict(enumerate(row)) for row in self.rules]
        count = len(schedule.steps)
        for s, step in enumerate(schedule.steps):
            self._open_nest(step, f"_{s}" if count > 1 else "")
            if s:
                self._add_barrier(s)
            known: dict[object, str] = {}
            if s == count - 1:
                self._add_outputs([tuple(own[k] for k in step.operands) for own in operands])
                continue
            for row, own in enumerate(operands):
                factors = tuple(own[k] for k in step.operands)
                result = (factors, self.dtypes[row])
                if result not in known:
                    known[result] = self._add_partial(factors, row)
                own[len(self.rules[0]) + s] = known[result]

    def fresh(self, name: str) -> str:
        """`name`, made free; see :func:`fresh_name`."""
        return fresh_name(name, self.taken)

    def parameters(self) -> list[str]:
        """The names of the lengths that are not numbers."""
        return list(dict.fromkeys(length for length in self.lengths.values() if isinstance(length, str)))

    def shape(self, letters: str) -> tuple[Any, ...]:
        """The lengths of some indices in loopy's terms."""
        lengths = (self.lengths[letter] for letter in letters)
        return tuple(Variable(length) if isinstance(length, str) else length for length in lengths)

    def _open_nest(self, step: ContractionStep, suffix: str) -> None:
        """Name the inames of a step and add their domains: ``[E] -> {[e]: 0 <= e < E}``, ``{[i]: 0 <= i < 35}``, ..."""
        inames = {letter: self.fresh(letter + suffix) for letter in step.indexing.indices}
        # A set for each loop: the rewrites' isl operations stay small, however many loops a kernel has.
        for letter, iname in inames.items():
            length = self.lengths[letter]
            head = f"[{length}] -> " if isinstance(length, str) else ""
            self.domains.append(f"{head}{{[{iname}]: 0 <= {iname} < {length}}}")
        self.nests.append(StepNest(step, inames))

    def _add_barrier(self, s: int) -> None:
        before = frozenset(insn.id for insn in self.instructions) | self.after
        barrier = lp.BarrierInstruction(self.fresh(f"barrier_{s}"), depends_on=before, synchronization_kind="global")
        self.instructions.append(barrier)
        self.after = frozenset([barrier.id])

    def _add_outputs(self, factors: Sequence[tuple[str, ...]]) -> None:
        """Add what stores each output, of its row or of all rows.

        :param factors: of the last sum of each row.
        """
        finishes = self.finishes or (None,) * len(factors)
        if len(finishes) < len(factors):
            self._add_instruction(factors, self.outputs[0], 0, finishes[0])
            return
        for row, (own, finish) in enumerate(zip(factors, finishes, strict=True)):
            self._add_instruction([own], self.outputs[row], row, finish)

    def _value(self, factors: tuple[str, ...]) -> Any:
        """The sum of a product of rules."""
        indexing = self.nests[-1].step.indexing
        return sum_of_calls(factors, indexing.inputs, indexing.summed, self.nests[-1].inames)

    def _at(self, letters: str) -> tuple[Variable, ...]:
        return tuple(Variable(self.nests[-1].inames[letter]) for letter in letters)

    def _add_instruction(
        self, factors: Sequence[tuple[str, ...]], name: str, row: int, finish: OutputEpilogue | None = None
    ) -> None:
        """Add what stores a result.

        :param factors: of its sum, or of that of each row.
        """
        nest = self.nests[-1]
        insn_id = self.fresh(f"step_{len(self.nests) - 1}_{row}")
        nest.results.append((factors[0], name, self.dtypes[row], insn_id))
        output = self._at(nest.step.indexing.output)
        values = [self._value(own) for own in factors]
        target = read_element(name, output)
        after = self.after
        if finish is not None and finish.chooses and not self.inline:
            for k, value in enumerate(values):
                after |= {self._add_sum(insn_id, value, output, row + k)}
                values[k] = Variable(self.temporaries[-1].name)
        value = values[0]
        if finish is not None:
            value = finish.write(values, target, lambda a, axes: read_element(a.name, tuple(output[k] for k in axes)))
        self.instructions.append(
            lp.Assignment(
                target,
                value,
                id=insn_id,
                within_inames=frozenset(nest.inames[letter] for letter in nest.step.indexing.output),
                within_inames_is_final=True,
                depends_on=after,
                depends_on_is_final=True,
            )
        )

    def _add_sum(self, insn_id: str, value: Any, around: tuple[Variable, ...], row: int) -> str:
        """Add an instruction that keeps a sum in private memory; returns its id."""
        name = self.fresh(f"finished_{row}")
        self.temporaries.append(
            lp.TemporaryVariable(name, dtype=self.dtypes[row], shape=(), address_space=lp.AddressSpace.PRIVATE)
        )
        self.instructions.append(
            lp.Assignment(
                Variable(name),
                value,
                id=self.fresh(f"{insn_id}_sum"),
                within_inames=frozenset(loop.name for loop in around),
                within_inames_is_final=True,
                depends_on=self.after,
                depends_on_is_final=True,
            )
        )
        return str(self.instructions[-1].id)

    def _add_partial(self, factors: tuple[str, ...], row: int) -> str:
        """Add a step whose result later ones need; returns the rule that reads it."""
        step = self.nests[-1].step
        name = self.fresh(f"partial_{len(self.temporaries)}")
        self.temporaries.append(
            lp.TemporaryVariable(
                name,
                dtype=self.dtypes[row],
                shape=self.shape(step.indexing.output),
                address_space=lp.AddressSpace.GLOBAL,
            )
        )
        self._add_instruction([factors], name, row)
        formal = tuple(f"i{axis}" for axis in range(len(step.indexing.output)))
        rule = lp.SubstitutionRule(self.fresh(f"{name}_"), formal, read_element(name, tuple(map(Variable, formal))))
        self.new_rules.append(rule)
        return str(rule.name)
