"""Launches while they are written down: loops, arrays in global memory and instructions, with barriers between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import islpy as isl
import loopy as lp
from loopy.kernel.data import Iname
from pymbolic.primitives import Variable

from feinsum.lower.same_bytes import SameBytes, runs_through
from feinsum.lower.schedule_steps import fresh_name, read_element
from feinsum.skeletons.complex_parts.copies import PartsCopy, on_groups


@dataclass
class LaunchDraft:
    """The additions to a kernel, launch by launch.

    :ivar kernel: as it was.
    :ivar lengths: index -> its length, or the name of the argument that says it.
    :ivar real: the type of the arrays.
    :ivar taken: the names in use.
    :ivar after: the instructions that the next launch comes after.
    """

    kernel: lp.LoopKernel
    lengths: Mapping[str, Any]
    real: Any
    taken: set[str]
    after: frozenset[str]
    domains: list[str] = field(default_factory=list)
    instructions: list[Any] = field(default_factory=list)
    temporaries: list[lp.TemporaryVariable] = field(default_factory=list)
    rules: list[lp.SubstitutionRule] = field(default_factory=list)
    copies: list[PartsCopy] = field(default_factory=list)

    def fresh(self, stem: str) -> str:
        """A name that nothing has."""
        return fresh_name(stem, self.taken)

    def array(self, stem: str, letters: str) -> str:
        """A new array in global memory."""
        name = self.fresh(stem)
        shape = tuple(Variable(n) if isinstance(n, str) else n for n in (self.lengths[x] for x in letters))
        self.temporaries.append(
            lp.TemporaryVariable(name, dtype=self.real, shape=shape, address_space=lp.AddressSpace.GLOBAL)
        )
        return name

    def strides(self, letters: str) -> dict[str, Any]:
        """The stride of each axis of an array."""
        strides: dict[str, Any] = {}
        step: Any = 1
        for x in reversed(letters):
            strides[x] = step
            step = step * (Variable(self.lengths[x]) if isinstance(self.lengths[x], str) else self.lengths[x])
        return strides

    def nest(self, letters: str, **together: int) -> dict[str, str]:
        """New loops, each in a set of its own.

        :param together: how many of an index an iteration treats.
        """
        loops = {x: self.fresh(f"{x}_{len(self.domains)}") for x in letters}
        for x, loop in loops.items():
            head = f"[{self.lengths[x]}] -> " if isinstance(self.lengths[x], str) else ""
            self.domains.append(f"{head}{{[{loop}]: 0 <= {loop} and {together.get(x, 1)} {loop} < {self.lengths[x]}}}")
        return loops

    def wait(self) -> None:
        """A barrier after the launches so far, if there are any."""
        if not self.instructions:
            return
        before = frozenset(insn.id for insn in self.instructions) | self.after
        barrier = lp.BarrierInstruction(self.fresh("barrier"), depends_on=before, synchronization_kind="global")
        self.instructions.append(barrier)
        self.after = frozenset([barrier.id])

    def assign(self, name: str, index: list[Any], value: Any, loops: Mapping[str, str], insn_id: str) -> None:
        """An assignment to an element of an array, within loops."""
        self.instructions.append(
            lp.Assignment(
                read_element(name, tuple(Variable(x) if isinstance(x, str) else x for x in index)),
                value,
                id=insn_id,
                within_inames=frozenset(loops.values()),
                within_inames_is_final=True,
                depends_on=self.after,
                depends_on_is_final=True,
            )
        )

    def tag_bytes(self, count: int, element: Any, copy: str, loops: Mapping[str, str]) -> None:
        """Say of the last instructions that they copy the bytes of an argument to an array or back, if it is so."""
        if runs_through(self.kernel, element, {loop: self.lengths[x] for x, loop in loops.items()}):
            tag = SameBytes(element.aggregate.name, copy)
            self.instructions[-count:] = [insn.copy(tags=frozenset([tag])) for insn in self.instructions[-count:]]

    def finish(self, replaced: Collection[str]) -> lp.LoopKernel:
        """The kernel with these launches in place of some instructions."""
        domains = [isl.BasicSet(domain) for domain in self.domains]
        inames = [name for domain in domains for name in domain.get_var_dict(isl.dim_type.set)]
        kernel = self.kernel.copy(
            domains=[*self.kernel.domains, *domains],
            inames={**self.kernel.inames, **{name: Iname(name, frozenset()) for name in inames}},
            instructions=[insn for insn in self.kernel.instructions if insn.id not in replaced] + self.instructions,
            substitutions={**self.kernel.substitutions, **{rule.name: rule for rule in self.rules}},
            temporary_variables={**self.kernel.temporary_variables, **{t.name: t for t in self.temporaries}},
        )
        for copy in self.copies:
            kernel = on_groups(kernel, copy)
        return lp.remove_unused_inames(kernel)
