"""An equation with its keywords, and the evaluations that were prepared for arrays so far.

An evaluation is found by class, shape, strides and type of every operand and of the array for the result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from feinsum.build.freshness import StoreHandle
from feinsum.compile.call_cache import CallCache
from feinsum.contract.contraction_operands import take_operands
from feinsum.contract.evaluate import How, is_positive_seconds, prepare
from feinsum.contract.evaluation import Evaluation
from feinsum.errors import ValidationError
from feinsum.kernel.array_adapter import ArrayAdapter, Copied, adapt_arrays, has_arrays_of_others, return_like
from feinsum.kernel.epilogue_scalars import Scaling

_LOOK_AGAIN_S = 1e-3
"""Seconds for which a store is assumed to be unchanged: a look at its files takes as long as a small product."""
_UNSEEN_S = 1.0
"""The same for a store whose files do not tell whether it changed."""
_MISSING_S = 60.0


class PreparedEquation:
    """The subscripts and keywords of a contraction; thread-safe.

    :param constants: the operands that are the same in every call.
    :param lasting: whether prepared evaluations stay when records are added.
    :ivar quick: a function tried first in each call: it returns the result for arrays like earlier ones, and None for
        others.
    """

    def __init__(self, text: str, how: How, constants: frozenset[int] = frozenset(), *, lasting: bool = False) -> None:
        self.text = text
        self.how = how
        self._constants = constants
        self._lasting = lasting
        self._place = StoreHandle(how.database)
        self._glance: Any = None
        self._look_at_s = 0.0
        self._known = CallCache[tuple[Evaluation, bool]](128)
        self._known_elsewhere = CallCache[Any](128)
        self.quick: Callable[[Sequence[Any], Any], Any] | None = None
        self._last: tuple[Evaluation, tuple[Any, ...]] | None = None
        self._lock = threading.Lock()
        self.copied: tuple[Copied, ...] = ()

    def evaluate(
        self,
        values: Sequence[Any],
        out: Any = None,
        like: Any = None,
        stream: Any = None,
        scaling: Scaling | None = None,
    ) -> Any:
        """The result for some operands, in `out` if that is given; see :func:`feinsum.contract`."""
        if self.quick is not None and like is stream is scaling is None:
            if not self._lasting:
                self._look()
            quick = self.quick
            if quick is not None and (found := quick(values, out)) is not None:
                self.copied = ()
                return found
        if like is not None or stream is not None:
            return self._evaluate_foreign(values, out, like, stream, scaling)
        return self._evaluate(values, out, scaling=scaling)

    def _evaluate_foreign(self, values: Sequence[Any], out: Any, like: Any, stream: Any, scaling: Scaling | None) -> Any:
        """The result where operands may be of other libraries, or the result is to be of one."""
        received = adapt_arrays(dict(enumerate(values)), out, like, None)
        if received is not None and not received.on_host:
            if scaling is not None:
                raise ValidationError("alpha and beta are for arrays of the host and of pyopencl; scale CUDA arrays apart")
            return self._contract_elsewhere(received, stream)
        if stream is not None:
            raise ValidationError("stream is for CUDA arrays; those on the host need none")
        if received is None:
            result = self._evaluate(values, out, "native", scaling)
            if like is None or out is not None:
                return result
            given, more = return_like(result, like, self._queue())
            self.copied = tuple(more)
            return given
        result = self._evaluate(list(received.inputs.values()), received.out, received.library.name, scaling)
        given, more = received.give(result)
        self.copied = (*received.copied, *more)
        return given

    def _contract_elsewhere(self, received: ArrayAdapter, stream: Any) -> Any:
        """The result of CUDA arrays."""
        self._check_backend(received.library.name)
        if not self._lasting:
            self._look()
        result, copied, self._last, self.quick = received.contract(self.text, self.how, stream, self._known_elsewhere)
        self.copied = tuple(copied)
        return result

    def _evaluate(self, values: Sequence[Any], out: Any, owner: str | None = None, scaling: Scaling | None = None) -> Any:
        """The result for operands of numpy or pyopencl.

        :param owner: the library that they were adapted from, or ``"native"`` if they are of numpy or pyopencl themselves;
            None where arrays of other libraries may be among them.
        """
        if not self._lasting:
            self._look()
        try:
            key: Any = tuple([(a.__class__, a.shape, a.strides, a.dtype) for a in values])
            if out is not None:
                key = (*key, (out.__class__, out.shape, out.strides, out.dtype, getattr(out.flags, "writeable", True)))
            if scaling is not None:
                key = (*key, scaling.text)
            known = self._known.get(key)
        except (AttributeError, TypeError):  # lists, numbers, and what is no array
            known, key = None, None
        known_before = known is not None
        if known is None:
            if owner is None and has_arrays_of_others(values):
                return self._evaluate_foreign(values, out, None, None, scaling)
            operands = take_operands(values)
            self._check_backend(operands.library if owner in (None, "native") else owner)
            values = operands.arrays
            known = self._prepare(key, operands, out, scaling)
        evaluation, direct = known
        if not evaluation.on_host:
            evaluation.check(values, out)
        elif known_before:  # numpy's products are others for its subclasses, such as masked arrays
            values = [a if a.__class__ is np.ndarray else np.asarray(a) for a in values]
        if scaling is not None:
            return evaluation.scaled(values, out, direct, scaling)
        found = evaluation.run(values, out, direct)
        if evaluation.quick is not None and key is not None and owner is None:
            self.quick = evaluation.quick
        return found

    def _check_backend(self, library: str | None) -> None:
        if self.how.backend not in ("auto", library):
            raise ValidationError(f"backend is '{self.how.backend}' but the operands are {library} arrays")

    def _queue(self) -> Any:
        last = self.last()
        return None if last is None else last.device.queue

    def prepared(self, values: Sequence[Any]) -> Evaluation:
        """The evaluation of operands like these."""
        operands = take_operands(values)
        return self._prepare(None, operands, None)[0]

    def last(self) -> Evaluation | None:
        """The evaluation prepared last; None before the first call."""
        return None if self._last is None else self._last[0]

    def like_last(self) -> list[Any] | None:
        """Arrays like those that the last evaluation was prepared for; None before the first call."""
        return None if self._last is None else [np.empty(shape, dtype) for shape, dtype in self._last[1]]

    def tune(self, values: Sequence[Any], seconds: float) -> None:
        """Tune the steps for operands like these, see :meth:`ContractExpression.tune`.

        :raises ValidationError: if `seconds` is no positive number.
        """
        from feinsum.contract.step_timing import tune_steps

        if not is_positive_seconds(seconds):
            raise ValidationError(f"seconds is {seconds!r}; it is how long to tune at most")
        operands = take_operands(values)
        evaluation, _ = prepare(self.text, operands, self.how, None, self._constants)
        tune_steps(evaluation, self.how, float(seconds))
        with self._lock:
            self._known.clear()
            self._forget_elsewhere()
            self._last = None

    def _prepare(self, key: Any, operands: Any, out: Any, scaling: Scaling | None = None) -> tuple[Evaluation, bool]:
        if self.how.tune != "never":
            from feinsum.contract.step_timing import tune_steps

            evaluation, _ = prepare(self.text, operands, self.how, None, self._constants)
            tune_steps(evaluation, self.how, _MISSING_S if isinstance(self.how.tune, str) else float(self.how.tune))
        found = prepare(self.text, operands, self.how, out, self._constants, "" if scaling is None else scaling.text)
        with self._lock:
            # Numbers of numpy's look like arrays of no axes, but have to be made arrays in every call.
            if key is not None and not any(issubclass(part[0], np.generic) for part in key if not isinstance(part, str)):
                self._known[key] = found
            self._last = found[0], tuple((a.shape, a.dtype) for a in operands.arrays)
        return found

    def _forget_elsewhere(self) -> None:
        self._known_elsewhere, self.quick = CallCache[Any](128), None

    def _look(self) -> None:
        """Forget the prepared evaluations if records were added since."""
        now = time.monotonic()
        if now < self._look_at_s:
            return
        glance = self._place.glance()
        self._look_at_s = now + (_UNSEEN_S if glance is None else _LOOK_AGAIN_S)
        if glance is not None and glance == self._glance:
            return
        with self._lock:
            self._glance = glance
            self._known.clear()
            self._forget_elsewhere()


def default_operands(shapes: Sequence[tuple[int, ...]], constants: Mapping[int, Any], dtype: Any) -> list[Any]:
    """Operands to plan with where only shapes are known: new arrays, and the constants themselves."""
    return [constants.get(k, np.empty(shape, np.float64 if dtype is None else dtype)) for k, shape in enumerate(shapes)]
