"""The declarative language in Python: functions that are called once, with objects that note what is done with them.

>>> from feinsum.languages.declarative import tracing as decl
>>> @decl.kernel
... def product(A: decl.T["M", "K"], B: decl.T["K", "N"]):
...     (M, K), (_, N) = A.shape, B.shape
...     return decl.compute((M, N), lambda i, j: decl.reduce((K,), lambda k: A[i, k] * B[k, j]), name="y")
>>> print(product, end="")
A: Tensor<M, K; dtype>
B: Tensor<K, N; dtype>
y = compute (shape = [M, N]) |i, j| reduce (shape = [K], op = sum) |k| A[i, k] * B[k, j]

Nothing of Python's own is traced: a loop of Python is unrolled, and ``if`` has to be :func:`where`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final

import numpy as np

from feinsum.errors import FeinsumError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import FUNCTIONS, SCALARS
from feinsum.languages.declarative.printing import show
from feinsum.languages.declarative.syntax import (
    CallArgument,
    DeclarativeCall,
    DeclarativeFunction,
    FormCall,
    Let,
    NameUse,
    OperatorCall,
    StatementBlock,
)
from feinsum.languages.program import Program
from feinsum.languages.program import program as read_program

__all__ = [
    "T", "Traced", "affine_for", "alternative", "call", "compute", "full", "grid", "kernel", "read", "reduce", "scan",
    "tune", "where", "while_", "zeros",
]  # fmt: skip

_BLOCKS: ContextVar[list[list[Let]] | None] = ContextVar("blocks", default=None)
"""The statements of the blocks that are being traced, innermost last."""


class Traced:
    """An expression of the language; operators of Python make larger ones of it.

    :ivar shape: of a parameter, its lengths.
    """

    __array_ufunc__ = None  # or numpy would take it for an array of objects
    __hash__ = None  # type: ignore[assignment]  # as == makes an expression

    def __init__(self, node: syntax.Expression, shape: Sequence[Traced] = ()) -> None:
        self.node = node
        self.shape = tuple(shape)

    def __getitem__(self, indices: Any) -> Traced:
        found = indices if isinstance(indices, tuple) else (indices,)
        return Traced(syntax.Element(self.node, tuple(_traced_index(index) for index in found)))

    def __bool__(self) -> bool:
        raise FeinsumError("what a kernel computes is not known as it is traced; use where(condition, a, b), & and |")

    def __iter__(self) -> Iterator[Traced]:
        raise FeinsumError("a traced tensor is not gone through element by element; use compute or reduce")

    def __neg__(self) -> Traced:
        return Traced(OperatorCall("-", (self.node,)))

    def __invert__(self) -> Traced:
        return Traced(OperatorCall("not", (self.node,)))

    def __abs__(self) -> Traced:
        return call("abs", self)

    def __pow__(self, other: Any) -> Traced:
        return call("pow", self, other)

    def __floordiv__(self, other: Any) -> Traced:
        return call("floordiv", self, other)


def _operator(symbol: str, swapped: bool = False) -> Callable[[Traced, Any], Traced]:
    def method(self: Traced, other: Any) -> Traced:
        pair = (_node(other), self.node) if swapped else (self.node, _node(other))
        return Traced(OperatorCall(symbol, pair))

    return method


for _name, _symbol in {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "mod": "%", "and": "and", "or": "or"}.items():
    setattr(Traced, f"__{_name}__", _operator(_symbol))
    setattr(Traced, f"__r{_name}__", _operator(_symbol, swapped=True))
for _name, _symbol in {"lt": "<", "gt": ">", "le": "<=", "ge": ">=", "eq": "==", "ne": "!="}.items():
    setattr(Traced, f"__{_name}__", _operator(_symbol))


def _node(value: Any) -> Any:
    if isinstance(value, Traced):
        return value.node
    if isinstance(value, (bool, np.bool_)):
        return syntax.Literal(bool(value))
    if isinstance(value, (int, np.integer)):
        return syntax.Literal(int(value)) if value >= 0 else OperatorCall("-", (syntax.Literal(-int(value)),))
    if isinstance(value, (float, np.floating)):
        return syntax.Literal(float(value)) if value >= 0 else OperatorCall("-", (syntax.Literal(-float(value)),))
    if isinstance(value, (list, tuple)):
        return syntax.ListOf(tuple(_node(item) for item in value))
    raise FeinsumError(f"{value!r} is a {type(value).__name__}; kernels compute with their parameters and with numbers")


def _traced_index(index: Any) -> Any:
    if isinstance(index, slice):
        if index.step is not None:
            raise FeinsumError("a slice of the declarative language has no step; use compute")
        if index.start is None and index.stop is None:
            return syntax.DeclarativeSlice()
        if index.stop is None:
            raise FeinsumError("a slice says where it ends, or is ':' alone")
        return syntax.DeclarativeSlice(_node(index.start or 0), _node(index.stop))
    return _node(index)


class TensorAnnotation:
    """The annotation that ``T["M", "K"]`` makes: the type of a parameter."""

    def __init__(self, extents: Sequence[Any], dtype: str) -> None:
        self.type = syntax.TensorType("Tensor", tuple(_traced_extent(e) for e in extents), dtype)

    @property
    def shape(self) -> tuple[Traced, ...]:
        """The lengths, as a kernel sees them."""
        return tuple(Traced(extent) for extent in self.type.extents)


class _TensorOf:
    """Types of parameters: ``T["M", "K"]``, and ``T["M", 3, "f32"]`` or ``T["M", 3, np.float32]`` of one scalar type."""

    def __getitem__(self, items: Any) -> TensorAnnotation:
        extents = list(items) if isinstance(items, tuple) else [items]
        dtype = "dtype"
        last = extents[-1] if extents else None
        if isinstance(last, str) and last in SCALARS:
            dtype = extents.pop()
        elif isinstance(last, (type, np.dtype)):
            extents.pop()
            dtype = next(name for name, known in SCALARS.items() if known == np.dtype(last))
        return TensorAnnotation(extents, dtype)


T: Final = _TensorOf()


def _traced_extent(extent: Any) -> Any:
    return NameUse(extent) if isinstance(extent, str) else _node(extent)


def kernel(function: Callable[..., Any]) -> Program:
    """Trace a function: its parameters are annotated with ``T[...]``, ``int`` or ``float``; it returns what it computes.

    :raises FeinsumError: if a parameter has no such annotation.
    :raises LanguageError: if what it does is no program; lines are those of its text, ``str(program)``.
    """
    declared: list[syntax.Declaration] = []
    values: list[Traced] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        type_: Any = parameter.annotation
        if isinstance(type_, TensorAnnotation):
            declared.append(syntax.Declaration(name, type_.type))
            values.append(Traced(NameUse(name), type_.shape))
        elif type_ in (int, float):
            declared.append(syntax.Declaration(name, syntax.ScalarType("int" if type_ is int else "f64")))
            values.append(Traced(NameUse(name)))
        else:
            raise FeinsumError(f"parameter {name!r} of {function.__name__} has to be annotated: T['M', 'K'], int or float")
    token = _BLOCKS.set([])
    try:
        block = _traced(lambda: function(*values), many=True)
    finally:
        _BLOCKS.reset(token)
    text = show([DeclarativeFunction("main", StatementBlock((*declared, *block.statements), block.value))])
    return read_program(text, "declarative")


def _traced(body: Callable[[], Any], *, many: bool = False) -> StatementBlock:
    """The operations of a function, as a block."""
    blocks = _BLOCKS.get()
    if blocks is None:
        raise FeinsumError("forms are made in a function that is traced by feinsum.kernel")
    blocks.append([])
    try:
        value = body()
    finally:
        statements = blocks.pop()
    values = value if many and isinstance(value, tuple) else (value,)
    if many:
        return _traced_results(statements, values)
    node = _node(value)
    if statements and node == NameUse(statements[-1].name):
        return StatementBlock(tuple(statements[:-1]), statements[-1].value)
    return StatementBlock(tuple(statements), node)


def _traced_results(statements: list[Let], values: Sequence[Any]) -> StatementBlock:
    """A program whose results are values: names of what it computed, and names for what is none yet."""
    known = {statement.name for statement in statements}
    for number, value in enumerate(values):
        node = _node(value)
        if not (isinstance(node, NameUse) and node.name in known):
            statements.append(Let(f"result{number}" if len(values) > 1 else "y", node))
    return StatementBlock(tuple(statements))


def _name_value(value: syntax.Expression, name: str = "", type_: syntax.Type | None = None) -> Traced:
    """A name for a value in the block that is being traced."""
    blocks = _BLOCKS.get()
    if not blocks:
        raise FeinsumError("forms are made in a function that is traced by feinsum.kernel")
    taken = {statement.name for block in blocks for statement in block}
    word, number = name or "t", 0
    while (found := f"{word}{number}" if number or not name else word) in taken:
        number += 1
    blocks[-1].append(Let(found, value, type_))
    return Traced(NameUse(found))


def _binder(body: Callable[..., Any], count: int) -> tuple[tuple[syntax.DeclarativeParameter, ...], list[Traced]]:
    names = list(inspect.signature(body).parameters)
    if len(names) != count:
        raise FeinsumError(f"this function takes {len(names)} indices, for a shape of {count}")
    return tuple(syntax.DeclarativeParameter(name) for name in names), [Traced(NameUse(name)) for name in names]


def _over(
    kind: str,
    shape: Any,
    body: Callable[..., Any],
    name: str,
    *,
    lengths_as: str = "shape",
    type_: syntax.Type | None = None,
    **arguments: Any,
) -> Traced:
    lengths = shape if isinstance(shape, (tuple, list)) else (shape,)
    binder, indices = _binder(body, len(lengths))
    block = _traced(lambda: body(*indices))
    given = tuple(CallArgument(value, key) for key, value in arguments.items())
    first = CallArgument(_node(list(lengths)), lengths_as)
    return _name_value(FormCall(kind, (first, *given), binder, block), name, type_)


def compute(shape: Any, body: Callable[..., Any], *, name: str = "") -> Traced:
    """``compute (shape = ...) |i, j| body(i, j)``."""
    return _over("compute", shape, body, name)


def read(shape: Any, body: Callable[..., Any], *, name: str = "") -> Traced:
    """``read (shape = ...) |i| body(i)``."""
    return _over("read", shape, body, name)


def reduce(shape: Any, body: Callable[..., Any], op: str = "sum", *, name: str = "") -> Traced:
    """``reduce (shape = ..., op = ...) |k| body(k)``."""
    return _over("reduce", shape, body, name, op=NameUse(op))


def scan(shape: Any, body: Callable[..., Any], op: str = "sum", *, name: str = "") -> Traced:
    """``scan (shape = ..., op = ...) |k| body(k)``."""
    return _over("scan", shape, body, name, op=NameUse(op))


def grid(dim: Any, body: Callable[..., Any], shape: Any, *, name: str = "") -> Traced:
    """``grid (dim = ...) |i, j| body(i, j)``, of whose tiles the result is cut to a shape."""
    type_ = syntax.TensorType("Tensor", tuple(_node(n) for n in shape))
    return _over("grid", dim, body, name, lengths_as="dim", type_=type_)


def affine_for(end: Any, init: Any, body: Callable[..., Any], *, begin: Any = None, name: str = "") -> Traced:
    """``affine_for (end = ..., init = ...) |k, r| body(k, r)``."""
    binder, values = _binder(body, 2)
    block = _traced(lambda: body(*values))
    given = [CallArgument(_node(end), "end"), CallArgument(_node(init), "init")]
    first = [] if begin is None else [CallArgument(_node(begin), "begin")]
    return _name_value(FormCall("affine_for", (*first, *given), binder, block), name)


def while_(init: Any, until: Callable[[Any], Any], body: Callable[[Any], Any], *, name: str = "") -> Traced:
    """``while (init = ..., until = |x| until(x)) |x| body(x)``."""
    binder, values = _binder(body, 1)
    conditions, tested = _binder(until, 1)
    condition = syntax.Condition(conditions, _node(until(*tested)))
    block = _traced(lambda: body(*values))
    return _name_value(
        FormCall("while", (CallArgument(_node(init), "init"), CallArgument(condition, "until")), binder, block), name
    )


def where(condition: Any, then: Any, otherwise: Any) -> Traced:
    """``if condition {then} else {otherwise}``; functions without parameters are blocks, which only one of is evaluated."""
    ways = [_traced(way) if callable(way) else StatementBlock((), _node(way)) for way in (then, otherwise)]
    return Traced(syntax.Conditional(_node(condition), *ways))


def tune(length: Any, choices: Sequence[int] = (), *, name: str = "") -> Traced:
    """``tune(length, choices)``."""
    given = [CallArgument(_node(length))] + ([CallArgument(_node(list(choices)))] if choices else [])
    return _name_value(DeclarativeCall("tune", tuple(given)), name or "n")


def alternative(*, name: str = "", **ways: Any) -> Traced:
    """``alternative { a = ...  b = ... }``; ways are values, or functions without parameters that compute them."""
    found = []
    for word, way in ways.items():
        block = _traced(way) if callable(way) else StatementBlock((), _node(way))
        if block.statements:
            raise FeinsumError(f"way {word!r} of an alternative is one expression; make what it needs before")
        assert block.value is not None
        found.append(Let(word, block.value))
    return _name_value(syntax.Alternative(tuple(found)), name)


def zeros(shape: Any) -> Traced:
    """``zeros([...])``."""
    return Traced(DeclarativeCall("zeros", (CallArgument(_node(list(shape))),)))


def full(shape: Any, value: Any) -> Traced:
    """``full([...], value)``."""
    return Traced(DeclarativeCall("full", (CallArgument(_node(list(shape))), CallArgument(_node(value)))))


def call(function: str, *arguments: Any) -> Traced:
    """A function of numbers, such as ``exp``; each is a function of this module, too."""
    return Traced(DeclarativeCall(function, tuple(CallArgument(_node(a)) for a in arguments)))


def __getattr__(name: str) -> Any:
    """Functions of numbers by their names: ``decl.exp(x)``, ``decl.max(a, b)``."""
    if name in FUNCTIONS:
        return lambda *arguments: call(name, *arguments)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
