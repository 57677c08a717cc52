"""A kernel while a rewrite replaces instructions of it by loops and instructions of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
from loopy.kernel.data import Iname
from pymbolic.primitives import LogicalAnd, Variable

from feinsum.devices.vendors.vendor import Vendor


def all_of(conditions: Sequence[Any]) -> Any:
    """The condition that all of some conditions hold, of which there is one at least."""
    return conditions[0] if len(conditions) == 1 else LogicalAnd(tuple(conditions))


@dataclass
class KernelDraft:
    """The additions to a kernel of loopy, until they are finished.

    :ivar tags: iname -> tag.
    :ivar priorities: loops from the outside in, separated by commas.
    :ivar alone: ids of instructions that need no barrier of the work-group, as one sub-group alone touches what they do.
    """

    kernel: lp.LoopKernel
    instructions: list[Any] = field(default_factory=list)
    domains: list[isl.BasicSet] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    priorities: list[str] = field(default_factory=list)
    alone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.fresh = self.kernel.get_var_name_generator()
        self.fresh_id = self.kernel.get_instruction_id_generator()
        self.temporaries = dict(self.kernel.temporary_variables)

    def array(
        self,
        base: str,
        shape: tuple[int, ...],
        memory: Any = lp.AddressSpace.PRIVATE,
        dtype: Any = np.float64,
        alignment: int | None = None,
    ) -> str:
        """A new array.

        :param alignment: of its beginning, in bytes.
        """
        name = self.fresh(base)
        self.temporaries[name] = lp.TemporaryVariable(
            name, dtype=dtype, shape=shape, address_space=memory, alignment=alignment
        )
        return str(name)

    def unrolled(self, bases: Sequence[str], lengths: Sequence[int]) -> tuple[str, ...]:
        """New loops of fixed lengths that the compiler is told to unroll: so code stays short, and quick to make."""
        names = tuple(self.fresh(base) for base in bases)
        for name, length in zip(names, lengths, strict=True):
            self.domain("", [name], f"0 <= {name} < {length}")
            self.tags[name] = "unr_hint"
        return names

    def domain(self, parameters: str, names: Sequence[str], constraints: str) -> None:
        """New loops with the constraints of an isl set."""
        self.domains.append(isl.BasicSet(f"[{parameters}] -> {{[{', '.join(names)}]: {constraints}}}"))

    def assign(
        self,
        assignee: Any,
        value: Any,
        loops: Iterable[str],
        after: Collection[str],
        *,
        predicates: Sequence[Any] = (),
        alone: bool = False,
        insn_id: str | None = None,
    ) -> str:
        """Add an assignment within `loops`, after the instructions `after`; its id.  See :attr:`alone`."""
        insn = lp.Assignment(
            assignee,
            value,
            id=insn_id or self.fresh_id(f"set_{getattr(assignee, 'aggregate', assignee).name}"),
            predicates=frozenset(predicates),
            within_inames=frozenset(loops),
            within_inames_is_final=True,
            depends_on=frozenset(after),
            depends_on_is_final=True,
        )
        self.instructions.append(insn)
        if alone:
            self.alone.add(insn.id)
        return str(insn.id)

    def add(
        self,
        make: Callable[..., Any],
        name: str,
        loops: Iterable[str],
        after: Collection[str],
        *,
        alone: bool = False,
    ) -> str:
        """Add an instruction that `make` makes within `loops`, after the instructions `after`; its id, made of `name`.

        See :attr:`alone`.
        """
        insn = make(
            id=self.fresh_id(name),
            within_inames=frozenset(loops),
            within_inames_is_final=True,
            depends_on=frozenset(after),
            depends_on_is_final=True,
        )
        self.instructions.append(insn)
        if alone:
            self.alone.add(insn.id)
        return str(insn.id)

    def hide(self, vendor: Vendor, name: str, loops: Iterable[str], after: Collection[str]) -> str:
        """Hide an integer in a temporary from the compiler; the id of the instruction that does."""
        forget = partial(
            lp.CInstruction,
            (),
            vendor.hide(name, self.temporaries[name].dtype.itemsize),
            read_variables=frozenset([name]),
            assignees=(Variable(name),),
        )
        return self.add(forget, f"hide_{name}", loops, after)

    def finished(self, replaced: Collection[str], rules: Collection[str]) -> lp.LoopKernel:
        """The kernel with the additions, without the instructions `replaced` and the substitution rules `rules`."""
        kept = [insn for insn in self.kernel.instructions if insn.id not in replaced]
        apart = frozenset((insn_id, "any") for insn_id in self.alone)
        added = [insn.copy(no_sync_with=apart) if insn.id in self.alone else insn for insn in self.instructions]
        inames = [name for domain in self.domains for name in domain.get_var_names(isl.dim_type.set)]
        kernel = self.kernel.copy(
            instructions=kept + added,
            temporary_variables=self.temporaries,
            domains=[*self.kernel.domains, *self.domains],
            inames={**self.kernel.inames, **{name: Iname(name, frozenset()) for name in inames}},
            substitutions={name: rule for name, rule in self.kernel.substitutions.items() if name not in rules},
        )
        kernel = lp.tag_inames(lp.remove_unused_inames(kernel), self.tags)
        for order in self.priorities:
            kernel = lp.prioritize_loops(kernel, order)
        return kernel
