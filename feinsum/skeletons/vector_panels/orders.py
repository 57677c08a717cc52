"""Orders of contraction: ``"12 01"`` contracts operands 1 and 2, then the remaining two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError

_POSITIONS = "0123456789abcdefghijklmnopqrstuvwxyz"
MOST_OPERANDS = len(_POSITIONS)
"""An order is written with one character for each operand."""


@dataclass(frozen=True)
class PanelContraction:
    """One step of an order of contraction, in the indices of an einsum.

    :ivar operands: the operands that it contracts, by position among the remaining ones.
    :ivar inputs: the indices of each of these.
    :ivar own: which operand of the einsum each of these is; None for a partial result.
    :ivar kept: the indices of the result.
    """

    operands: tuple[int, ...]
    inputs: tuple[str, ...]
    own: tuple[int | None, ...]
    kept: str


@dataclass(frozen=True)
class PanelOrder:
    """The contractions, one after the other.

    :ivar steps: the operands of each step, by position among what the steps before it left; results stand last.
    """

    steps: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for step in self.steps:
            if not step or len(set(step)) < len(step):
                raise TransformError(f"a step contracts operands {step}; it has one at least, and each once")
            if not all(0 <= position < MOST_OPERANDS for position in step):
                raise TransformError(f"a step contracts operands {step}, not all of them in range({MOST_OPERANDS})")
        if not self.steps:
            raise TransformError("an order of contraction has one step at least")

    @classmethod
    def parse(cls, text: str) -> PanelOrder:
        """The order that :attr:`text` wrote.

        >>> PanelOrder.parse("12 01").steps
        ((1, 2), (0, 1))

        :raises TransformError: if `text` is something else.
        """
        return _parsed_order(text)

    @property
    def text(self) -> str:
        """The order in the notation of configurations: a word for each step, a digit or letter for each of its operands."""
        return " ".join("".join(_POSITIONS[position] for position in step) for step in self.steps)

    def readers(self, n: int) -> list[int | None]:
        """The step that reads the result of each step, which need not be the next one; None for what is left at the end.

        :param n: how many operands there are at the beginning.
        """
        readers: list[int | None] = []
        for number, contracted in enumerate(self.steps):
            n += 1 - len(contracted)
            at = n - 1
            for reader in range(number + 1, len(self.steps)):
                if at in self.steps[reader]:
                    readers.append(reader)
                    break
                at -= sum(k < at for k in self.steps[reader])
            else:
                readers.append(None)
        return readers

    def contractions(self, e: BatchedEinsum) -> tuple[PanelContraction, ...]:
        """The steps in the indices of an einsum.

        :raises TransformError: if a step contracts more operands than are left.
        """
        return _contractions_of_order(e, self)


@lru_cache(maxsize=1024)
def _parsed_order(text: str) -> PanelOrder:
    """Asked for with every plan, of which a problem has hundreds."""
    if not set(text) <= {" ", *_POSITIONS}:
        raise TransformError(f"{text!r} is no order of contraction; one is written like '12 01'")
    return PanelOrder(tuple(tuple(_POSITIONS.index(x) for x in step) for step in text.split()))


@lru_cache(maxsize=1024)
def _contractions_of_order(e: BatchedEinsum, order: PanelOrder) -> tuple[PanelContraction, ...]:
    """Asked for with every plan, as well."""
    letters = list(e.indexing.inputs)
    pool: list[int | None] = list(range(e.n))
    steps = []
    for operands in order.steps:
        if max(operands) >= len(letters):
            raise TransformError(
                f"a step of '{order.text}' contracts operands {operands}, of which {len(letters)} are left"
            )
        taken = tuple(letters[k] for k in operands)
        rest = [x for k, x in enumerate(letters) if k not in operands]
        needed = set(e.indexing.output).union(*rest)
        kept = "".join(x for x in dict.fromkeys("".join(taken)) if x in needed)
        steps.append(PanelContraction(operands, taken, tuple(pool[k] for k in operands), kept))
        letters = [*rest, kept]
        pool = [*(x for k, x in enumerate(pool) if k not in operands), None]
    return tuple(steps)
