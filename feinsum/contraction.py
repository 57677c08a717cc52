"""Contraction schedules: an einsum of many operands as a chain of einsums of few, ``abc = (a b) c``.

A schedule is a list of steps.  Step s contracts some of the operands and results that are left and leaves one result;
the last step's result is the output.  The cheapest order of pairwise steps comes from :mod:`feinsum.flops`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feinsum.arrays import Array
from feinsum.einsum import BatchedEinsum
from feinsum.errors import SubscriptError
from feinsum.flops import contraction_path
from feinsum.subscripts import Subscripts


@dataclass(frozen=True)
class ContractionStep:
    """One contraction of a schedule.

    :ivar operands: what it contracts: k < n is operand k of the einsum, n + s is the result of step s.
    :ivar indexing: how; its inputs stand in the order of `operands`.
    """

    operands: tuple[int, ...]
    indexing: Subscripts


@dataclass(frozen=True)
class ContractionSchedule:
    """How an einsum is evaluated: each operand and each result but the last is used exactly once.

    :ivar steps: the contractions, in order.
    """

    steps: tuple[ContractionStep, ...]

    def check(self, indexing: Subscripts) -> None:
        """Check that the steps evaluate `indexing`.

        :raises SubscriptError: naming the first step that does not fit, or what is left over.
        """
        left = dict(enumerate(indexing.inputs))
        for s, step in enumerate(self.steps):
            for k, letters in zip(step.operands, step.indexing.inputs, strict=True):
                if left.pop(k, None) != letters:
                    raise SubscriptError(f"step {s} of the schedule takes operand {k} as '{letters}', which is not there")
            needed = set(indexing.output).union(*left.values())
            if not needed.isdisjoint(step.indexing.summed):
                lost = min(needed & set(step.indexing.summed))
                raise SubscriptError(f"step {s} of the schedule sums over '{lost}', which is still needed after it")
            left[len(indexing.inputs) + s] = step.indexing.output
        if list(left.values()) != [indexing.output]:
            raise SubscriptError(
                f"the schedule leaves {list(left.values())} of '{indexing}', not one result '{indexing.output}'"
            )

    def rename(self, letters: Mapping[str, str], operands: Sequence[int]) -> ContractionSchedule:
        """The same steps for an einsum in other letters, whose operand k is operand ``operands[k]`` of this one.

        >>> one = ContractionSchedule((ContractionStep((0, 1), Subscripts(("ij", "j"), "i")),))
        >>> [(s.operands, str(s.indexing)) for s in one.rename({"i": "a", "j": "b"}, (1, 0)).steps]
        [((1, 0), 'ab,b->a')]
        """
        place = {old: new for new, old in enumerate(operands)}
        return ContractionSchedule(
            tuple(
                ContractionStep(tuple(place.get(k, k) for k in step.operands), step.indexing.rename(dict(letters)))
                for step in self.steps
            )
        )


def fused_schedule(e: BatchedEinsum) -> ContractionSchedule:
    """All operands at once, in one loop nest."""
    return ContractionSchedule((ContractionStep(tuple(range(e.n)), e.indexing),))


def pairwise_schedule(e: BatchedEinsum, sizes: Mapping[str, int] | None = None) -> ContractionSchedule:
    """The chain of pairwise contractions with the fewest operations at these sizes.

    Intermediate axes are in order of appearance in the operands of their step, outer ones first.

    >>> from feinsum import array, einsum
    >>> e = einsum("ij,jk,k->i", array("A", (9, 8)), array("B", (8, 7)), array("x", 7))
    >>> [(step.operands, str(step.indexing)) for step in pairwise_schedule(e).steps]
    [((1, 2), 'jk,k->j'), ((0, 3), 'ij,j->i')]
    """
    pool = [(k, letters) for k, letters in enumerate(e.indexing.inputs)]
    steps: list[ContractionStep] = []
    for positions in contraction_path(e, e.resolve(sizes)):
        taken = [pool[k] for k in positions]
        pool = [term for k, term in enumerate(pool) if k not in positions]
        needed = set(e.indexing.output).union(*(letters for _, letters in pool))
        involved = dict.fromkeys("".join(letters for _, letters in taken))
        output = "".join(letter for letter in involved if letter in needed) if pool else e.indexing.output
        steps.append(
            ContractionStep(tuple(k for k, _ in taken), Subscripts(tuple(letters for _, letters in taken), output))
        )
        pool.append((e.n + len(steps) - 1, output))
    return ContractionSchedule(tuple(steps))


def step_einsums(e: BatchedEinsum, schedule: ContractionSchedule) -> tuple[BatchedEinsum, ...]:
    """Each step of a schedule as a batched einsum of its own, in the letters of `e`.

    A partial result that several outputs need is one output of its step.  Partial results and operands have the type of
    the output that they are for, and an array that is two operands is two arrays, as it is in a kernel.

    >>> from feinsum import array, einsum
    >>> e = einsum("ij,jk,k->i", array("A", (9, 8)), array("B", (8, 7)), array("x", 7))
    >>> [(step.subscripts, step.shape) for step in step_einsums(e, pairwise_schedule(e))]
    [('jk,k->j', (8,)), ('ij,j->i', (9,))]

    :raises SubscriptError: if the schedule does not evaluate the einsum.
    """
    schedule.check(e.indexing)
    names: dict[tuple[int, object], str] = {}

    def name(k: int, what: object) -> str:
        return names.setdefault((k, what), f"x{k}_{sum(j == k for j, _ in names)}")

    own = [
        {k: name(k, (entry, dtype)) for k, entry in enumerate(row)} for row, dtype in zip(e.args, e.row_dtypes, strict=True)
    ]
    found = []
    for s, step in enumerate(schedule.steps):
        rows: dict[object, tuple[Array, ...]] = {}
        for number, (terms, dtype) in enumerate(zip(own, e.row_dtypes, strict=True)):
            factors = tuple(terms[k] for k in step.operands)
            result = (factors, dtype, number if s == len(schedule.steps) - 1 else None)
            rows[result] = tuple(
                Array(factor, tuple(e.index_sizes[x] for x in letters), dtype)
                for factor, letters in zip(factors, step.indexing.inputs, strict=True)
            )
            terms[e.n + s] = name(e.n + s, result)
        found.append(BatchedEinsum(step.indexing, tuple(tuple((a,) for a in row) for row in rows.values())))
    return tuple(found)


def with_aligned_axes(schedule: ContractionSchedule, indexing: Subscripts) -> ContractionSchedule:
    """The same steps, the axes of partial results ordered for the steps that read them, so that lanes run through them all.

    First the indices in common with the output and other operands, then the summed ones, then the rest of the output.
    """
    left, outputs = dict(enumerate(indexing.inputs)), []
    for s, step in enumerate(schedule.steps[:-1]):
        for k in step.operands:
            del left[k]
        others = set[str]().union(*left.values())
        order = sorted(
            step.indexing.output,
            key=lambda x: (x in indexing.output and x not in others, x not in indexing.output, indexing.output.find(x)),
        )
        outputs.append("".join(order))
        left[len(indexing.inputs) + s] = outputs[-1]
    return with_results(schedule, indexing, (*outputs, indexing.output))


def with_results(schedule: ContractionSchedule, indexing: Subscripts, outputs: Sequence[str]) -> ContractionSchedule:
    """The same steps, the result of each with its axes in a given order."""
    terms = dict(enumerate(indexing.inputs))
    steps = []
    for step, output in zip(schedule.steps, outputs, strict=True):
        steps.append(ContractionStep(step.operands, Subscripts(tuple(terms[k] for k in step.operands), output)))
        terms[len(indexing.inputs) + len(steps) - 1] = output
    return ContractionSchedule(tuple(steps))
