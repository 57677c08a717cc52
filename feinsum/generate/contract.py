"""`contract`: an einsum of arrays, evaluated on a device: a drop-in for :func:`numpy.einsum` and opt_einsum's ``contract``.

Nothing is described beforehand: equation, shapes and types of the arrays are the description.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from feinsum.errors import ShapeError, SubscriptError, ValidationError
from feinsum.generate.evaluate import How, evaluate
from feinsum.generate.plan import make_plan
from feinsum.subscripts import from_names


def contract(
    subscripts: Any,
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
    optimize: Any = True,
    memory_limit: Any = None,
    device: Any = None,
    database: Any = None,
) -> Any:
    """Evaluate an einsum of arrays on a device.

    :param subscripts: in the grammar of :func:`numpy.einsum`, with ellipses and implicit output; or the first operand of
        the interleaved form.  Axes of length one broadcast.  Where letters are not enough, indices are any characters from
        U+00C0 on, integers of any size, or names, as in opt_einsum.
    :param operands: all numpy arrays (numbers and lists become such), or all :class:`pyopencl.array.Array` (and numbers).
    :param out: an array for the result, of the same library.
    :param dtype: the type to compute in; by default the result type of the operands.
    :param order: the layout of the result in memory: ``"F"``, ``"A"`` (``"F"`` if that is the layout of all operands), or
        ``"C"`` and ``"K"``, which give C-contiguous results.
    :param casting: which conversions to `dtype` and to the type of `out` are allowed, as in numpy.
    :param optimize: True for one kernel up to three operands and opt_einsum's order beyond; False for one kernel; or a
        strategy, path or optimizer as in numpy and opt_einsum.
    :param memory_limit: how many elements a result in between may have, as in opt_einsum.
    :param device: see :func:`feinsum.device`; by default that of the device arrays.
    :param database: see :func:`feinsum.generate`.
    :returns: a new array, never a view; for numpy operands, a number where the result has no axes, as in numpy.
    :raises SubscriptError, ShapeError, DTypeError, ValidationError: naming the operand, index or argument at fault.

    Booleans and float16 are computed in wider types, of numpy arrays only.
    """
    text, values = _equation(subscripts, operands)
    return evaluate(text, values, How(dtype, order, casting, _limited(optimize, memory_limit), device, database), out)


class ContractExpression:
    """An einsum of arrays whose shapes are known and of which some may be constant; made by :func:`contract_expression`.

    Calls from several threads are safe.
    """

    def __init__(self, text: str, shapes: Sequence[Any], constants: Mapping[int, Any], how: How) -> None:
        self._text = text
        self._shapes = tuple(shapes)
        self._constants = dict(constants)
        self._how = how
        self._known: dict[Any, Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return make_plan(self._text, self._all_shapes(), False).shape

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Evaluate it for the operands that are not constant.

        :raises ShapeError: if there are too many or too few, or one has another shape than was said.
        """
        free = [k for k in range(len(self._shapes)) if k not in self._constants]
        if len(arrays) != len(free):
            raise ShapeError(f"'{self._text}' takes {len(free)} arrays besides its constants, not {len(arrays)}")
        given = dict(zip(free, arrays, strict=True)) | self._constants
        for k in free:
            if np.shape(given[k]) != self._shapes[k]:
                raise ShapeError(f"operand {k} of '{self._text}' has shape {np.shape(given[k])}, not {self._shapes[k]}")
        values = [given[k] for k in range(len(given))]
        return evaluate(self._text, values, self._how, out, frozenset(self._constants), self._known)

    def _all_shapes(self) -> list[tuple[int, ...]]:
        return [np.shape(self._constants[k]) if k in self._constants else shape for k, shape in enumerate(self._shapes)]

    def _repr_html_(self) -> str:
        from feinsum.report.displays import expression_html

        return expression_html(self._text, self._all_shapes(), sorted(self._constants), self.shape)

    def __repr__(self) -> str:
        constants = f", constant {sorted(self._constants)}" if self._constants else ""
        return f"<ContractExpression {self._text} of {', '.join(map(str, self._all_shapes()))}{constants}>"


def contract_expression(
    subscripts: Any,
    *shapes: Any,
    constants: Collection[int] | None = None,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
    optimize: Any = True,
    memory_limit: Any = None,
    device: Any = None,
    database: Any = None,
) -> ContractExpression:
    """An einsum to be evaluated many times, as in opt_einsum.

    :param shapes: one an operand; or, where an operand is the same in every call, the array itself.
    :param constants: which operands are arrays; those with a type are without being named.
    :raises SubscriptError, ShapeError: if subscripts and shapes do not fit.

    What depends on constants alone is computed once, in the first call.

    >>> contract_expression("ij,jk->ik", (2, 3), (3, 4)).shape
    (2, 4)
    """
    text, operands = _equation(subscripts, shapes)
    if not isinstance(constants, Collection | None):
        raise ShapeError(f"constants is {constants!r}; it is a list of numbers of operands, as [{constants!r}]")
    constants = constants or ()
    held = {k: value for k, value in enumerate(operands) if k in constants or hasattr(value, "dtype")}
    missing = [k for k in constants if k not in held]
    if missing:
        raise ShapeError(f"constants has {missing[0]}, but the {len(operands)} operands are numbered from 0")
    sizes = [None if k in held else _shape(k, shape) for k, shape in enumerate(operands)]
    optimize = _limited(optimize, memory_limit)
    expression = ContractExpression(text, sizes, held, How(dtype, order, casting, optimize, device, database))
    make_plan(text, expression._all_shapes(), optimize)
    return expression


def _shape(k: int, shape: Any) -> tuple[int, ...]:
    """The shape of an operand, as numbers of Python.

    :raises ShapeError: if it is none.
    """
    try:
        lengths = tuple(map(operator.index, shape))
    except TypeError:
        lengths = (-1,)
    if min(lengths, default=0) < 0:
        raise ShapeError(f"operand {k} is {shape!r}; give its shape, as in (3, 4), or an array that is constant")
    return lengths


def _limited(optimize: Any, memory_limit: Any) -> Any:
    """What :func:`make_plan` takes for both keywords.

    :raises ValidationError: if `memory_limit` is none.
    """
    number = isinstance(memory_limit, (int, float, np.integer)) and (memory_limit >= 1 or memory_limit == -1)
    if memory_limit not in (None, "max_input") and not number:
        raise ValidationError(
            f"memory_limit is {memory_limit!r}; it is a number of elements, -1 or None for no limit, or 'max_input'"
        )
    return optimize if memory_limit is None else (optimize, memory_limit)


def _equation(subscripts: Any, operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """The text and the operands of either form."""
    if isinstance(subscripts, bytes):
        subscripts = subscripts.decode()
    if isinstance(subscripts, str):
        return subscripts, list(operands)
    terms = (subscripts, *operands)
    if len(terms) < 2:
        raise SubscriptError("contract takes subscripts and operands, or operands each followed by a list of indices")
    paired = len(terms) // 2 * 2
    text = from_names([terms[k] for k in range(1, paired, 2)], terms[-1] if len(terms) > paired else None)
    return text, [terms[k] for k in range(0, paired, 2)]
