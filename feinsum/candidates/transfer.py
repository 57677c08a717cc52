"""Transfer: the configuration of a record, adapted to an einsum of other lengths, types or number of rows.

A value that the new einsum does not admit gives way to the nearest that it does.  A parameter that follows a rule and
is younger than the record takes the value that the rule says (:attr:`feinsum.space.TransformSpace.ruled`).  The cost
model chooses the value of a parameter which had only one choice *there*, so that the record says nothing of it.  Then
one parameter after another changes to the value that the model expects to be faster *here*, unless the model expected
the same *there*, where the record proves it wrong::

    gain(x)  =  t_here(x) / t_here(c)  /  min(1, t_there(x) / t_there(c))          c: the configuration of the record

By the same rule a prediction of the cost model in any space may beat the configuration of a record of another einsum: one
of other types, or one that its space refuses here as it was measured; or, if it is expected to take half the time, any.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from typing import Any

from feinsum.candidates.predicted import SECONDS, Oracle, Prediction, expected_s
from feinsum.candidates.records import instance_of
from feinsum.database import TuningRecord
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError
from feinsum.space import Choices, Configuration, Instance, Missed, Problem, TransformSpace, Value

WORTHWHILE = 0.9
"""A rival has to be expected to take less than this share of the time to replace a measured configuration that must
change."""
MUCH_BETTER = 0.5
"""The share for a measured configuration that can stay as it is: half of the predictions on a CPU are off by 1.4 and
more."""
_CHANGES = 3
"""The most parameters that are changed on the advice of the cost model."""
_TRIED = 300
"""The most configurations that a space is asked about to find one that it accepts."""


def adapt(record: TuningRecord, wanted: Instance, space: TransformSpace) -> Configuration | None:
    """The configuration of a record, adapted to an einsum; None if the space accepts nothing near it.

    A record that its space refuses where it was made does not count.

    :param space: that of the record; a failure of it is a miss.
    """
    with Missed(space, expected=FeinsumError):
        here = _SizedEinsum(wanted, space)
        there = _SizedEinsum(instance_of(record, wanted.profile), space)
        if space.is_chain(record.configuration):
            return None if space.refusal(here.problem, record.configuration) else record.configuration
        if not there.accepts(record.configuration):
            return None
        start = nearest_configuration(here.problem, space, record.configuration)
        if start is None or here.is_like(there):
            return start
        decided = _ruled(_decided(start, here, there), record, here)
        return _improved(decided, space.completed(record.configuration), here, there)
    return None


def is_better(
    rival: Prediction,
    record: TuningRecord,
    configuration: Configuration,
    wanted: Instance,
    space: TransformSpace,
    share: float = WORTHWHILE,
) -> bool:
    """Whether a prediction for an einsum is expected to beat the adapted configuration of a record, beyond what the record
    refutes.

    A record refutes a promise that the model already made where the record was measured, for the configuration there that
    is nearest to the prediction.  A space that fails when asked makes no promise.

    :param configuration: what :func:`adapt` made of `record`.
    :param space: that of the record.
    :param share: of the time that a rival may take at most to be better.
    """
    gain = math.inf
    with Missed(space):
        gain = rival.expected_s / expected_s(wanted, space, configuration)
    there = instance_of(record, wanted.profile)
    with Missed(rival.space, expected=FeinsumError) as missed:  # if it fails, nothing like the rival could be tried there
        similar = nearest_configuration(there.problem(rival.space), rival.space, rival.configuration)
        if similar is not None:
            similar_s = expected_s(there, rival.space, similar)
            gain /= min(1.0, similar_s / expected_s(there, space, record.configuration))
    return gain < share and (missed.error is None or isinstance(missed.error, FeinsumError))


def nearest_configuration(problem: Problem, space: TransformSpace, configuration: Configuration) -> dict[str, Value] | None:
    """The accepted configuration with the fewest values that differ from those given; of these, with the nearest.

    A number is as far from another as the logarithm of their ratio says; other values that differ are all equally far.
    A configuration with other parameters is near to none.
    """
    given, choices = space.completed(configuration), space.parameters(problem)
    if given.keys() != choices.keys():
        return None
    start = {
        name: given[name] if name in space.open else min(values, key=lambda v: _value_distance(v, given[name]))
        for name, values in choices.items()
    }
    for changed in islice(_near(start, choices), _TRIED):
        if space.constraint(problem, changed) is None:
            return changed
    return None


def _near(start: dict[str, Value], choices: Choices) -> Iterator[dict[str, Value]]:
    """`start`, what differs from it in one value, nearest first, and what differs in two."""
    yield start
    singles = sorted(_singles(start, choices), key=lambda change: _value_distance(change[1], start[change[0]]))
    for name, value in singles:
        yield {**start, name: value}
    for (one, first), (other, second) in combinations(singles, 2):
        if one != other:
            yield {**start, one: first, other: second}


def _singles(start: Mapping[str, Value], choices: Choices) -> Iterator[tuple[str, Value]]:
    for name, values in choices.items():
        yield from ((name, value) for value in values if not _same_problem(value, start[name]))


def _same_problem(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _value_distance(one: Any, other: Any) -> float:
    if _same_problem(one, other):
        return 0.0
    if type(one) is type(other) and not isinstance(one, (bool, str)) and min(one, other) > 0:
        return min(abs(math.log2(one / other)), 4.0) / 4
    return 1.0


class _SizedEinsum:
    """An einsum of certain lengths, for which configurations of a space are compared."""

    def __init__(self, instance: Instance, space: TransformSpace) -> None:
        self.space = space
        self._oracle = Oracle(instance)
        self.problem = instance.problem(space)
        self.choices = space.parameters(self.problem)

    def is_like(self, other: _SizedEinsum) -> bool:
        """Whether another place is the same in all that matters."""
        ours, theirs = self.problem, other.problem
        return (ours.sizes, _operand_types(ours.einsum)) == (theirs.sizes, _operand_types(theirs.einsum))

    def accepts(self, configuration: Configuration) -> bool:
        return self.space.refusal(self.problem, configuration) is None

    def expected_s(self, configurations: Sequence[Configuration]) -> list[float]:
        """The times that the cost model expects of accepted configurations."""
        return self._oracle.predict(self.space, self.problem, self.choices, configurations)


def _operand_types(e: BatchedEinsum) -> list[list[tuple[str, ...]]]:
    """The types of the arrays of each operand, row by row."""
    return [[tuple(a.dtype.name for a in entry) for entry in row] for row in e.args]


def _decided(start: Configuration, here: _SizedEinsum, there: _SizedEinsum) -> Configuration:
    """`start`, with the fastest values by the cost model for parameters that had only one choice where the record was
    made."""
    names = [name for name, values in here.choices.items() if len(values) > 1 and len(there.choices[name]) == 1]
    if not names:
        return start
    options = ({**start, **dict(zip(names, values, strict=True))} for values in product(*(here.choices[x] for x in names)))
    accepted = [c for c in islice(options, _TRIED) if here.space.constraint(here.problem, c) is None]
    if not accepted:
        return start
    times = here.expected_s(accepted)
    return accepted[times.index(min(times))]


def _ruled(start: Configuration, record: TuningRecord, here: _SizedEinsum) -> Configuration:
    """The configuration nearest to `start` that has the first choices of parameters that follow a rule and are younger than
    the record; the default if none is near."""
    younger = {name: here.choices[name][0] for name in here.space.ruled if name not in record.configuration}
    others = {name: values for name, values in here.choices.items() if name not in younger}
    for changed in islice(_near({**start, **younger}, others), _TRIED if younger else 0):
        if here.space.constraint(here.problem, changed) is None:
            return changed
    return here.space.default(here.problem) if younger else start


def _improved(start: Configuration, recorded: Configuration, here: _SizedEinsum, there: _SizedEinsum) -> Configuration:
    """`start`, with the changes that the cost model expects to pay here and did not expect to pay there."""
    end = time.thread_time() + SECONDS
    (start_s,) = here.expected_s([start])
    (recorded_s,) = there.expected_s([recorded])
    best, best_gain = start, 1.0
    for _ in range(_CHANGES):
        options = [{**best, name: value} for name, value in _singles(best, here.choices)]
        accepted = [c for c in options if time.thread_time() < end and here.space.constraint(here.problem, c) is None]
        if not accepted:
            break
        gains = {}
        for k, t in enumerate(here.expected_s(accepted)):
            if t / start_s < WORTHWHILE * best_gain:
                gains[k] = t / start_s / _expected_there(accepted[k], recorded_s, there)
        if not gains or min(gains.values()) >= WORTHWHILE * best_gain:
            break
        best_gain = min(gains.values())
        best = accepted[min(gains, key=gains.__getitem__)]
    return best


def _expected_there(configuration: Configuration, recorded_s: float, there: _SizedEinsum) -> float:
    """The share of the time of the record that the cost model expects where that was made: below 1, it is wrong."""
    if not there.accepts(configuration):
        return 1.0  # it could not be tried there
    return min(1.0, there.expected_s([configuration])[0] / recorded_s)
