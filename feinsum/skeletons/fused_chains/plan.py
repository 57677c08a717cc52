"""Plans of fused chains: contractions one after the other by one work-group, partial results in local memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from feinsum.contraction import ContractionStep
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.parameters import described
from feinsum.skeletons.fused_chains.arrangements import GroupSchedule, arrange
from feinsum.skeletons.fused_chains.chain_steps import BlockSteps
from feinsum.skeletons.fused_chains.events import ContractStep, CopyOperand, InRegisters
from feinsum.subscripts import Subscripts


@dataclass(frozen=True)
class FusedChain:
    """The work of a work-group on a block, and the way of groups from block to block.

    :ivar einsum: what the chain evaluates, in the letters of its steps.
    :raises TransformError: if the steps do not evaluate the einsum, or groups cannot go on as is wanted.
    """

    einsum: BatchedEinsum
    block: BlockSteps = described("What a work-group does with a block of the output.", word="block tile")
    persistent_groups: int = described(
        """Work-groups that stay for the whole kernel and stride over the blocks, `stay` of them on each compute unit; 0 for
        groups that come and go, one to each block.""",
        word="persistent groups",
        parameter="stay",
        default=0,
    )
    prefetch: bool = described(
        "Whether groups that stay load what they copy for the next block, into registers, during a block.",
        word="prefetch",
        parameter="prefetch",
        default=False,
    )
    loads_in_flight: bool = described(
        """Whether operands that a step reads where they are, if they are few, are loaded ahead of all steps; with
        `prefetch`, during the block before.""",
        word="loads in flight",
        parameter="early",
        default=False,
    )

    def __post_init__(self) -> None:
        divided = "".join(self.block.block_tile)
        if len(divided) > 3:
            raise TransformError(f"blocks of '{divided}' are too many for the axes of groups")
        if self.persistent_groups and len(divided) != 1:
            raise TransformError("groups stay where one index is divided")
        if self.prefetch and not self.persistent_groups:
            raise TransformError("groups that do not stay have no next block")
        _ = self.schedule  # whether the steps fit the einsum shows as they are put in order

    @cached_property
    def schedule(self) -> GroupSchedule:
        """The events of a work-group, and the layout of its local memory."""
        return arrange(self.einsum, self.block, self.einsum.dtype.itemsize)

    def local_bytes(self) -> int:
        """Local memory of a work-group."""
        return self.einsum.dtype.itemsize * self.schedule.entries

    def registers(self) -> int:
        """32-bit registers of a work-item, at least."""
        return self.block.registers(self.einsum.dtype.itemsize)

    def pointless(self) -> str | None:
        """The choice that changes nothing, and why; None if there is none."""
        events = self.schedule.events
        sources = [source for event in events if isinstance(event, ContractStep) for source in event.sources]
        if self.block.register_forwarding and not any(isinstance(source, InRegisters) for source in sources):
            return "no work-item has in registers what it needs next"
        if self.loads_in_flight and None not in sources:
            return "no operand is read where it is"
        if self.prefetch and not self.loads_in_flight and not isinstance(events[0], CopyOperand):
            return "nothing is copied that could be loaded a block ahead"
        return None


@dataclass(frozen=True)
class ContractionOrder:
    """The operands and results to contract one after the other; n + s is the result of step s of n operands.

    >>> str(ContractionOrder.parse("0+3 1+4"))
    '0+3 1+4'
    """

    taken: tuple[tuple[int, ...], ...]

    @staticmethod
    def parse(text: str) -> ContractionOrder:
        """The order that :meth:`__str__` wrote."""
        return ContractionOrder(tuple(tuple(map(int, pair.split("+"))) for pair in text.split()))

    def __str__(self) -> str:
        return " ".join("+".join(map(str, pair)) for pair in self.taken)

    def steps(self, e: BatchedEinsum) -> list[ContractionStep]:
        """The contractions; one that only multiplies is joined with the one that takes its result."""
        letters = dict(enumerate(e.indexing.inputs))
        steps: list[ContractionStep] = []
        joined: dict[int, tuple[int, ...]] = {}
        renumbered = {k: k for k in range(e.n)}
        for number, pair in enumerate(self.taken):
            operands = tuple(j for k in pair for j in joined.get(k, (k,)))
            inputs = tuple(letters[renumbered[k]] for k in operands)
            rest = [
                letters[renumbered[j]]
                for later in self.taken[number + 1 :]
                for k in later
                if k < e.n + number
                for j in joined.get(k, (k,))
            ]
            last = number == len(self.taken) - 1
            output = e.indexing.output if last else _kept_indices(inputs, set(e.indexing.output).union(*rest))
            if not last and set(output) == set("".join(inputs)) and any(set(x) == set(output) for x in inputs):
                joined[e.n + number] = operands
                continue
            steps.append(ContractionStep(tuple(renumbered[k] for k in operands), Subscripts(inputs, output)))
            renumbered[e.n + number] = e.n + len(steps) - 1
            letters[e.n + len(steps) - 1] = output
        return steps


def _kept_indices(inputs: Sequence[str], needed: set[str]) -> str:
    """The indices of a result: those of the operand with most of them, new ones in the place of the first summed over."""
    main = max(inputs, key=len)
    new = [x for x in dict.fromkeys("".join(inputs)) if x in needed and x not in main]
    result: list[str] = []
    for x in main:
        result += [x] if x in needed else new
        new = new if x in needed else []
    return "".join(result + new)
