"""Failures of spaces: a bug in a space is a miss, never the end of a program, and is reported once in the log."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from types import TracebackType

from feinsum.apart import TimedStep
from feinsum.errors import is_shortage, told
from feinsum.space.attempts import asking
from feinsum.space.space import TransformSpace

logger = logging.getLogger(__name__)


class Missed:
    """A context that an exception of a space leaves quietly, after a warning; what stands behind it is the answer then.

    The space has a time limit (:mod:`feinsum.apart`).  A shortage of memory is no fault of the space
    (:func:`feinsum.errors.is_shortage`).

    ::

        with Missed(space):
            return space.refusal(problem, configuration) is None
        return False

    :param question: what the space was asked, as the warning says it.
    :param expected: exceptions that are answers, and so no reason to warn.
    :param passing: exceptions that are the caller's business, and so not held back.
    :param subject: what is left out from then on if the answer takes too long; by default the space.
    :param answer: whether it is one answer; else more time is given.
    :ivar error: the exception that was left behind; None if there was none.
    """

    def __init__(
        self,
        space: TransformSpace,
        question: str = "what it accepts",
        *,
        expected: type[Exception] | tuple[()] = (),
        passing: type[Exception] | tuple[()] = (),
        subject: Hashable = None,
        answer: bool = True,
    ) -> None:
        self._space, self._question, self._expected, self._passing = space, question, expected, passing
        self.error: Exception | None = None
        self._asked = TimedStep(subject or space.name, f"asking space '{space.name}' {question}", answer=answer)
        self._noted = asking(space.code)

    def __enter__(self) -> Missed:
        self._noted.__enter__()
        try:
            self._asked.__enter__()
        except BaseException:
            self._noted.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self._asked.__exit__(kind, error, trace)
        self._noted.__exit__(None, None, None)
        if not isinstance(error, Exception) or isinstance(error, self._passing) or is_shortage(error):
            return False
        self.error = error
        if not isinstance(error, self._expected):
            logger.warning(describe_failure(self._space, error, self._question))
        return True


def describe_failure(s: TransformSpace, error: Exception, question: str = "what it accepts") -> str:
    """One sentence that says at which question a space fails, and how."""
    return f"space '{s.name}' fails when asked {question}: {told(error)}"
