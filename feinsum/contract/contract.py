"""`contract`: an einsum of arrays, evaluated on a device: a drop-in for :func:`numpy.einsum` and opt_einsum's ``contract``.

You describe nothing beforehand: the equation and the arrays' shapes and types are the description.
"""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.build.freshness import place_key, variable
from feinsum.contract.contraction_plan import make_plan
from feinsum.contract.evaluate import How
from feinsum.contract.expression import PreparedEquation, default_operands
from feinsum.devices.device_choice import VARIABLE as DEVICE_VARIABLE
from feinsum.errors import ArgumentError, ShapeError, SubscriptError, ValidationError
from feinsum.kernel.array_adapter import library_name, shape_of
from feinsum.kernel.epilogue_scalars import scaling_of
from feinsum.subscripts import from_names

if TYPE_CHECKING:
    from feinsum.contract.evaluation import Evaluation
    from feinsum.kernel.kernel import Kernel

_LIBRARIES = ("auto", "numpy", "pyopencl", "torch", "jax", "cupy")
_MOST_EQUATIONS = 512


def contract(
    *operands: Any,
    out: Any = None,
    alpha: Any = 1,
    beta: Any = 0,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
    use_blas: bool = True,
    optimize: Any = True,
    memory_limit: Any = None,
    backend: str = "auto",
    device: Any = None,
    database: Any = None,
    tune: str | float = "never",
    library: bool = True,
    like: Any = None,
    stream: Any = None,
) -> Any:
    """Evaluate an einsum of arrays on a device.

    :param operands: subscripts in the grammar of :func:`numpy.einsum`, with ellipses and implicit output, and then the
        arrays; or the interleaved form.  All are of one library, besides numbers: numpy (lists become such),
        :class:`pyopencl.array.Array`, torch, JAX, CuPy, or another that speaks DLPack.  Axes of length one broadcast.
        Where letters are not enough, indices are any characters from U+00C0 on, integers of any size, or names, as in
        opt_einsum.  Axes of an ellipsis that the output leaves out are summed, as there.
    :param out: an array for the result, of the same library.
    :param alpha: a number that the result is multiplied by.
    :param beta: a number by which the content of `out` is multiplied before it is added:
        ``out := alpha*result + beta*out``. If it is 0, the content is not read.  Both are applied as the result is stored.
    :param dtype: the type to compute in; by default the result type of the operands.
    :param order: the layout of the result in memory: ``"F"``, ``"A"`` (``"F"`` if that is the layout of all operands), or
        ``"C"`` and ``"K"``, which give C-contiguous results.
    :param casting: which conversions to `dtype` and to the type of `out` are allowed, as in numpy.
    :param use_blas: opt_einsum's name for `library`; if either is False, no BLAS is used.
    :param optimize: True for one kernel up to three operands, unless steps are expected to be faster, and opt_einsum's
        order beyond; False for one kernel; or a strategy, path or optimizer as in numpy and opt_einsum.
    :param memory_limit: the most elements of an intermediate result, as in opt_einsum.
    :param backend: ``"auto"``, or the library of the operands: ``"numpy"``, ``"pyopencl"``, ``"torch"`` and so on.
    :param device: see :func:`feinsum.device`; by default that of the device arrays.
    :param database: see :func:`feinsum.generate`.
    :param tune: ``"never"``; ``"missing"`` to tune steps without an exact record first, for a minute at most; or the
        seconds to tune at most.  See :meth:`ContractExpression.tune`.
    :param library: whether numpy's BLAS may compute steps on a CPU that are matrix products, where it was measured or is
        expected to be faster than a kernel.
    :param like: an array, or the name of a library, that the result is to be of; by default that of the operands.
    :param stream: for CUDA arrays, see :meth:`Kernel.__call__ <feinsum.Kernel.__call__>`.
    :returns: a new array, never a view; for numpy operands, a number where the result has no axes, as in numpy.
    :raises SubscriptError, ShapeError, DTypeError, ValidationError: naming the operand, index or argument at fault.

    The plan for arrays of these shapes, types and layouts is remembered until the store has other records.  Booleans and
    float16 are computed in wider types, for numpy arrays only.
    """
    options = (dtype, order, casting, use_blas, optimize, memory_limit, backend, device, database, tune, library)
    if operands and isinstance(operands[0], str):
        equation = _known_equation(operands[0], options)
        return equation.evaluate(operands[1:], out, like, stream, scaling_of(alpha, beta, out))
    text, values = _equation(operands)
    return _known_equation(text, options).evaluate(values, out, like, stream, scaling_of(alpha, beta, out))


_equations: OrderedDict[Any, PreparedEquation] = OrderedDict()
_lock = threading.Lock()


def _known_equation(text: str, options: tuple[Any, ...]) -> PreparedEquation:
    """The equation that was evaluated before with the same keywords, or a new one."""
    key = (text, options, variable(DEVICE_VARIABLE), place_key(options[8]))
    try:
        known = _equations.get(key)
    except TypeError:  # a path is a list
        return PreparedEquation(text, _how(*options))
    if known is None:
        known = PreparedEquation(text, _how(*options))
        with _lock:
            _equations[key] = known
            while len(_equations) > _MOST_EQUATIONS:
                _equations.popitem(last=False)
    return known


def _how(
    dtype: Any,
    order: Any,
    casting: Any,
    use_blas: Any,
    optimize: Any,
    memory_limit: Any,
    backend: Any,
    device: Any,
    database: Any,
    tune: Any,
    library: Any,
) -> How:
    _check_backend(backend)
    by_library = bool(use_blas) and bool(library)
    return How(dtype, order, casting, _limited(optimize, memory_limit), device, database, by_library, backend, tune)


def _check_backend(backend: Any) -> None:
    if backend not in _LIBRARIES:
        raise ValidationError(
            f"backend is {backend!r}; arrays are those of {', '.join(map(repr, _LIBRARIES[1:]))}, or 'auto'"
        )


def _check_call(backend: Any, evaluate_constants: Any, arrays: Iterable[Any]) -> None:
    """Check the keywords that calls of opt_einsum's expressions have.

    :raises ValidationError: naming the one that does not fit.
    """
    _check_backend(backend)
    if evaluate_constants:
        raise ArgumentError("evaluate_constants is True; omit it, the first call evaluates what depends on constants alone")
    for library in set(map(library_name, arrays)) - {"numpy", backend}:
        if backend != "auto":
            raise ValidationError(f"backend is '{backend}' but the operands are {library} arrays")


class ContractExpression:
    """An einsum of arrays whose shapes are known and of which some may be constant; made by :func:`contract_expression`.

    The first call for types and layouts of arrays plans the evaluation, and the plan is kept: records that are added later
    do not change it.  Calls from several threads are safe.  A copy, and what is restored from a pickle, is planned anew.
    """

    def __init__(self, text: str, shapes: Sequence[Any], constants: Mapping[int, Any], how: How) -> None:
        self._text = text
        self._shapes = tuple(shapes)
        self._constants = dict(constants)
        self._free = tuple(k for k in range(len(self._shapes)) if k not in self._constants)
        self._equation = PreparedEquation(text, how, frozenset(self._constants), lasting=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return make_plan(self._text, self._all_shapes(), False).shape

    @property
    def path(self) -> tuple[tuple[int, ...], ...]:
        """The operands that each step takes, in the convention of opt_einsum."""
        return tuple(task.step.positions for task in self._evaluation().tasks)

    @property
    def kernels(self) -> tuple[Kernel | None, ...]:
        """The kernel of each step; None where numpy's BLAS computes it."""
        return tuple(task.kernel for task in self._evaluation().tasks)

    @property
    def flops(self) -> int:
        """The floating-point operations of one evaluation, those on constants alone included."""
        return sum(task.flops for task in self._evaluation().tasks)

    def explain(self) -> str:
        """Whether kernel or library computes each step, why, and the expected time.

        This and the properties above are about the arrays of the last call; before one, about C-contiguous numpy arrays of
        the type asked for, or float64.
        """
        from feinsum.kernel.explanation import explain_steps

        return explain_steps(self._text, self._evaluation(), self._equation.copied)

    def tune(self, seconds: float = 60.0) -> None:
        """Tune the steps without an exact record, and time numpy's BLAS beside the kernels where it can compute a step.

        Later calls take the fastest way found, and so does :func:`contract` in every process.

        :param seconds: the most to take, shared by the steps; the first trial of each is finished, however late that is.
        :raises ValidationError: if `seconds` is no positive number.
        """
        self._equation.tune(self._last_operands(), seconds)

    def __call__(
        self,
        *arrays: Any,
        out: Any = None,
        alpha: Any = 1,
        beta: Any = 0,
        like: Any = None,
        stream: Any = None,
        backend: str = "auto",
        evaluate_constants: bool = False,
    ) -> Any:
        """Evaluate it for the operands that are not constant; for the keywords see :func:`contract`.

        :param backend: the library of the operands, or ``"auto"``.  As in opt_einsum, numpy arrays are accepted with any
            backend; their result is a numpy array.
        :param evaluate_constants: a keyword of opt_einsum; it must be False, as the first call evaluates whatever depends
            on constants alone.
        :raises ValidationError: if the operands are of another library than `backend`.
        :raises ShapeError: if there are too many or too few, or one has another shape than was declared.
        """
        if backend != "auto" or evaluate_constants:
            _check_call(backend, evaluate_constants, arrays)
        equation, free, shapes, scaling = self._equation, self._free, self._shapes, scaling_of(alpha, beta, out)
        plain = like is stream is scaling is None and not self._constants
        if plain and (quick := equation.quick) is not None and (known := quick(arrays, out)) is not None:
            equation.copied = ()
            return known
        if len(arrays) != len(free):
            raise ShapeError(f"'{self._text}' takes {len(free)} arrays besides its constants, not {len(arrays)}")
        for k, value in zip(free, arrays, strict=True):
            try:
                shape = value.shape
            except AttributeError:
                shape = shape_of(k, value)
            if shape != shapes[k]:
                raise ShapeError(f"operand {k} of '{self._text}' has shape {tuple(shape)}, not {shapes[k]}")
        if not self._constants:
            return equation.evaluate(arrays, out, like, stream, scaling)
        given = dict(zip(free, arrays, strict=True)) | self._constants
        return equation.evaluate([given[k] for k in range(len(given))], out, like, stream, scaling)

    def _evaluation(self) -> Evaluation:
        return self._equation.last() or self._equation.prepared(self._last_operands())

    def _last_operands(self) -> list[Any]:
        """Operands like those of the last call, or as described at :meth:`explain`."""
        return self._equation.like_last() or default_operands(self._all_shapes(), self._constants, self._equation.how.dtype)

    def _all_shapes(self) -> list[tuple[int, ...]]:
        return [np.shape(self._constants[k]) if k in self._constants else shape for k, shape in enumerate(self._shapes)]

    def _repr_html_(self) -> str:
        from feinsum.report.displays import expression_html

        return expression_html(self._text, self._all_shapes(), sorted(self._constants), self.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return ContractExpression, (self._text, self._shapes, self._constants, self._equation.how)

    def __repr__(self) -> str:
        constants = f", constant {sorted(self._constants)}" if self._constants else ""
        return f"<ContractExpression {self._text} of {', '.join(map(str, self._all_shapes()))}{constants}>"


def contract_expression(
    *shapes: Any,
    constants: Collection[int] | None = None,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
    use_blas: bool = True,
    optimize: Any = True,
    memory_limit: Any = None,
    backend: str = "auto",
    device: Any = None,
    database: Any = None,
    tune: str | float = "never",
    library: bool = True,
) -> ContractExpression:
    """An einsum to be evaluated many times, as in opt_einsum.

    :param shapes: as the operands of :func:`contract`, with shapes in place of arrays; or, where an operand is the same in
        every call, the array itself.
    :param constants: the numbers of the operands that are arrays; objects with a type need not be listed.
    :raises SubscriptError, ShapeError: if subscripts and shapes do not fit.

    Intermediate results that depend on constants alone are computed once, in the first call.  For the other keywords see
    :func:`contract`.

    >>> contract_expression("ij,jk->ik", (2, 3), (3, 4)).shape
    (2, 4)
    """
    text, operands = _equation(shapes)
    if not isinstance(constants, Collection | None):
        raise ShapeError(f"constants is {constants!r}; it is a list of numbers of operands, as [{constants!r}]")
    constants = constants or ()
    held = {k: value for k, value in enumerate(operands) if k in constants or hasattr(value, "dtype")}
    missing = [k for k in constants if k not in held]
    if missing:
        raise ShapeError(f"constants has {missing[0]}, but the {len(operands)} operands are numbered from 0")
    sizes = [None if k in held else _integer_shape(k, shape) for k, shape in enumerate(operands)]
    how = _how(dtype, order, casting, use_blas, optimize, memory_limit, backend, device, database, tune, library)
    expression = ContractExpression(text, sizes, held, how)
    make_plan(text, expression._all_shapes(), how.optimize)
    return expression


def contract_path(*operands: Any, use_blas: bool = True, optimize: Any = True, **keywords: Any) -> Any:
    """The order of contraction that opt_einsum finds, with its description: :func:`opt_einsum.contract_path`.

    :param operands: as those of :func:`contract`.
    :param keywords: ``memory_limit`` and ``shapes``, as there.
    :returns: the path, which `optimize` of :func:`contract` takes, and a description with costs and largest results.
    :raises SubscriptError: if subscripts and operands do not fit, or the strategy is unknown.
    """
    import opt_einsum

    text, values = _equation(operands)
    shapes = values if keywords.pop("shapes", False) else [np.shape(value) for value in values]
    limit = keywords.pop("memory_limit", None)
    try:
        return opt_einsum.contract_path(
            text, *shapes, shapes=True, use_blas=use_blas, optimize=optimize, memory_limit=limit, **keywords
        )
    except (KeyError, ValueError) as error:
        raise SubscriptError(f"opt_einsum finds no path for '{text}': {error}") from None


def _integer_shape(k: int, shape: Any) -> tuple[int, ...]:
    """The shape of an operand, as numbers of Python.

    :raises ShapeError: if it is no shape.
    """
    try:
        lengths = tuple(map(operator.index, shape))
    except TypeError:
        lengths = (-1,)
    if min(lengths, default=0) < 0:
        raise ShapeError(f"operand {k} is {shape!r}; give its shape, as in (3, 4), or an array that is constant")
    return lengths


def _limited(optimize: Any, memory_limit: Any) -> Any:
    """The argument of :func:`make_plan` for both keywords.

    :raises ValidationError: if `memory_limit` is no valid limit.
    """
    number = isinstance(memory_limit, (int, float, np.integer)) and (memory_limit >= 1 or memory_limit == -1)
    if memory_limit not in (None, "max_input") and not number:
        raise ValidationError(
            f"memory_limit is {memory_limit!r}; it is a number of elements, -1 or None for no limit, or 'max_input'"
        )
    return optimize if memory_limit is None else (optimize, memory_limit)


def _equation(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """The text and the operands of either form.

    :raises SubscriptError, ArgumentError: if there are no operands, or the indices of one are no list.
    """
    first, *others = operands or [None]
    if isinstance(first, bytes):
        first = first.decode()
    if isinstance(first, str):
        return first, others
    if len(operands) < 2:
        raise SubscriptError("contract takes subscripts and operands, or operands each followed by a list of indices")
    paired = len(operands) // 2 * 2
    axes = [operands[k] for k in range(1, paired, 2)]
    for k, indices in enumerate(axes):
        if not isinstance(indices, Iterable):
            raise ArgumentError(
                f"the indices of operand {k} are {indices!r}; the interleaved form takes a list of integers"
            )
    text = from_names(axes, operands[-1] if len(operands) > paired else None)
    return text, [operands[k] for k in range(0, paired, 2)]
