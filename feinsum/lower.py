"""Lowering: a batched einsum becomes a loopy translation unit with one instruction per output.

``ij,ej->ei`` becomes, on the domain ``0 <= e < E, 0 <= i < 35, 0 <= j < 35``::

    D_0(i0, i1) := D[i0, i1]
    u_1(i0, i1) := u[i0, i1]
    out[e, i] = sum(j, D_0(i, j) * u_1(e, j))

Operands are substitution rules, so that a transformation can move an operand without knowing what it is, and
:mod:`feinsum.match` reads an einsum back out of any kernel of this form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import numpy as np
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction, TypeCast
from pymbolic.primitives import Call, Product, Subscript, Variable

from feinsum.contraction import ContractionSchedule, Step, fused_schedule
from feinsum.einsum import Array, Axis, BatchedEinsum

KERNEL_NAME = "feinsum"
LANGUAGE_VERSION = (2018, 2)


def generate_loopy(
    e: BatchedEinsum, schedule: ContractionSchedule | None = None, index_dtype: Any = "int32"
) -> lp.TranslationUnit:
    """The loopy kernel that computes a batched einsum, with no transformation applied.

    Arguments are the arrays of `e` under their names, C-contiguous; the outputs ``out`` or ``out_0``, ``out_1``, ...;
    and a value argument for each long axis.  Index letters are inames; an underscore is appended to a letter that names
    something else, and with several steps the number of the step.

    :param schedule: how to contract many operands; None does so in one loop nest.  Results of steps but the last are
        temporaries in global memory, and a global barrier stands between steps.
    :param index_dtype: ``int32``, or ``int64`` for arrays of 2³¹ elements and more.
    :raises SubscriptError: if `schedule` does not evaluate `e`.
    """
    schedule = schedule or fused_schedule(e)
    schedule.check(e.indexing)
    plan = _Plan.of(e)
    for s, step in enumerate(schedule.steps):
        plan.open_nest(step, f"_{s}" if len(schedule.steps) > 1 else "")
        plan.add_step(step, e.n + s, last=s == len(schedule.steps) - 1)
    return lp.make_kernel(
        plan.domains,
        [*plan.rules.values(), *plan.instructions],
        [*plan.arguments(np.dtype(index_dtype)), *plan.temporaries],
        name=KERNEL_NAME,
        target=lp.PyOpenCLTarget(),
        index_dtype=np.dtype(index_dtype),
        assumptions=" and ".join(f"{p} >= 1" for p in plan.parameters()) or None,
        lang_version=LANGUAGE_VERSION,
    )


@dataclass
class _Plan:
    """The names, rules and instructions of a kernel while it is put together.

    :ivar inames: the iname of each index letter in the step at hand.
    :ivar lengths: the length of each index, an int or the name of a parameter.
    :ivar values: what stands at operand or result k of a row: the arrays of an entry, or the name of a temporary.
    """

    e: BatchedEinsum
    taken: set[str]
    inames: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, int | str] = field(default_factory=dict)
    values: dict[tuple[int, int], tuple[Array, ...] | str] = field(default_factory=dict)
    rules: dict[object, lp.SubstitutionRule] = field(default_factory=dict)
    domains: list[str] = field(default_factory=list)
    instructions: list[Any] = field(default_factory=list)
    temporaries: list[lp.TemporaryVariable] = field(default_factory=list)

    @staticmethod
    def of(e: BatchedEinsum) -> _Plan:
        named = {axis for axis in e.index_sizes.values() if isinstance(axis, str)}
        plan = _Plan(e, {a.name for a in e.arrays} | set(e.output_names) | named)
        for letter, axis in e.index_sizes.items():
            plan.lengths[letter] = plan.parameter(axis, letter)
        for i, row in enumerate(e.args):
            plan.values.update({(i, k): entry for k, entry in enumerate(row)})
        return plan

    def fresh(self, name: str) -> str:
        """`name`, with underscores appended until nothing else has it."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def parameter(self, axis: Axis, letter: str) -> int | str:
        """A length, or the name of the value argument that holds it."""
        if isinstance(axis, float):
            return self.fresh(f"n_{letter}")
        return axis

    def parameters(self) -> list[str]:
        return list(dict.fromkeys(length for length in self.lengths.values() if isinstance(length, str)))

    def open_nest(self, step: Step, suffix: str) -> None:
        """Name the inames of a step and add their hypercube: ``[E] -> {[e, i, j]: 0 <= e < E and ...}``."""
        self.inames = {letter: self.fresh(letter + suffix) for letter in step.indexing.indices}
        bounds = " and ".join(f"0 <= {iname} < {self.lengths[letter]}" for letter, iname in self.inames.items())
        head = f"[{', '.join(self.parameters())}] -> {{[{', '.join(self.inames.values())}]"
        self.domains.append(f"{head}: {bounds}}}" if bounds else f"{head}}}")

    def shape(self, letters: str) -> tuple[Any, ...]:
        lengths = (self.lengths[letter] for letter in letters)
        return tuple(Variable(length) if isinstance(length, str) else length for length in lengths)

    def arguments(self, index_dtype: np.dtype[Any]) -> list[Any]:
        inputs = [lp.GlobalArg(a.name, dtype=a.dtype, shape=self.shape(at)) for a, at in self.e.array_indices.items()]
        outputs = [
            lp.GlobalArg(name, dtype=dtype, shape=self.shape(self.e.indexing.output), is_input=False)
            for name, dtype in zip(self.e.output_names, self.e.dtypes, strict=True)
        ]
        return [*inputs, *outputs, *(lp.ValueArg(name, dtype=index_dtype) for name in self.parameters())]

    def add_step(self, step: Step, number: int, last: bool) -> None:
        """Append the instructions of one step, one for each row whose result no earlier row has."""
        before = frozenset(insn.id for insn in self.instructions)
        if before:
            self.instructions.append(
                lp.BarrierInstruction(f"barrier_{number}", depends_on=before, synchronization_kind="global")
            )
            before = frozenset([f"barrier_{number}"])
        known: dict[object, str] = {}
        for row in range(self.e.b):
            origin = (*(self.values[row, k] for k in step.operands), self.e.dtypes[row])
            if last or origin not in known:
                known[origin] = self.e.output_names[row] if last else self.temporary(step, row)
                self.add_instruction(step, number, row, known[origin], before)
            self.values[row, number] = known[origin]

    def add_instruction(self, step: Step, number: int, row: int, name: str, after: frozenset[str]) -> None:
        factors = tuple(
            Call(Variable(self.rule(row, k)), self.at(letters))
            for k, letters in zip(step.operands, step.indexing.inputs, strict=True)
        )
        product = factors[0] if len(factors) == 1 else Product(factors)
        if step.indexing.summed:
            summed = tuple(self.inames[letter] for letter in step.indexing.summed)
            product = Reduction(SumReductionOperation(), summed, product)
        self.instructions.append(
            lp.Assignment(
                _read(name, self.at(step.indexing.output)),
                product,
                id=f"step_{number - self.e.n}_{row}",
                within_inames=frozenset(self.inames[letter] for letter in step.indexing.output),
                within_inames_is_final=True,
                depends_on=after,
            )
        )

    def at(self, letters: str) -> tuple[Variable, ...]:
        return tuple(Variable(self.inames[letter]) for letter in letters)

    def temporary(self, step: Step, row: int) -> str:
        name = self.fresh(f"partial_{len(self.temporaries)}")
        shape = self.shape(step.indexing.output)
        space = lp.AddressSpace.GLOBAL
        self.temporaries.append(lp.TemporaryVariable(name, dtype=self.e.dtypes[row], shape=shape, address_space=space))
        return name

    def rule(self, row: int, k: int) -> str:
        """The substitution rule of an operand or result, made at first use and shared by the rows that have it."""
        value, dtype = self.values[row, k], self.e.dtypes[row]
        key = (k, value, dtype)
        if key not in self.rules:
            if isinstance(value, str):
                stem, rank = value, len(next(t.shape for t in self.temporaries if t.name == value))
            else:
                stem, rank = "_".join(a.name for a in value), len(value[0].shape)
            formal = tuple(f"i{axis}" for axis in range(rank))
            at = tuple(Variable(name) for name in formal)
            reads = (_read(value, at),) if isinstance(value, str) else tuple(_converted(a, at, dtype) for a in value)
            name = self.fresh(f"{stem}_{k}")
            self.rules[key] = lp.SubstitutionRule(name, formal, reads[0] if len(reads) == 1 else Product(reads))
        return str(self.rules[key].name)


def _read(name: str, at: tuple[Variable, ...]) -> Any:
    return Subscript(Variable(name), at) if at else Variable(name)


def _converted(a: Array, at: tuple[Variable, ...], dtype: np.dtype[Any]) -> Any:
    """The read of an array, converted where C would compute in another type than numpy does.

    A real factor of a complex product stays real, which halves the work.
    """
    if np.issubdtype(dtype, np.complexfloating) and not np.issubdtype(a.dtype, np.complexfloating):
        dtype = np.empty(0, dtype).real.dtype
    read = _read(a.name, at)
    return read if a.dtype == dtype else TypeCast(dtype, read)
