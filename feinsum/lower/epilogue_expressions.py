"""Epilogues as expressions of loopy: ω of a value, whatever the value is made of.

``alpha*v + beta*out`` of a sum becomes ``alpha*sum(k, ...) + (0 if beta == 0 else beta*out[i, j])``: where a scalar of the
call is zero, its factor is not read (the rule of the BLAS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
import numpy as np
from constantdict import constantdict
from loopy.kernel.function_interface import ScalarCallable
from loopy.target.opencl import get_opencl_callables
from loopy.types import NumpyType
from pymbolic import primitives as p
from pytools.tag import Tag, tag_dataclass

from feinsum.arrays import Array
from feinsum.einsum import BatchedEinsum
from feinsum.elementwise import COMPARISONS, MATH
from feinsum.epilogue import Epilogue, computed_in, tree

Reading = Callable[[Array, tuple[int, ...]], Any]
"""The expression that reads an array at some positions of the output's indices."""
# loopy 2025.2 has three more, without their types.
_TYPED = get_opencl_callables().keys() - {"asinh", "acosh", "atanh"}
IN_LOOPY = {row.name: row.opencl if row.opencl in _TYPED else f"real_{row.opencl}" for row in MATH.values()}
"""Functions of reals by their names in loopy's expressions, which are new ones where loopy does not know the types."""
_UNKNOWN_TO_LOOPY = {IN_LOOPY[row.name]: row for row in MATH.values() if IN_LOOPY[row.name] != row.opencl}
_BUILT_IN: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: p.Sum((a, b)),
    "-": lambda a, b: p.Sum((a, p.Product((-1, b)))),
    "*": lambda a, b: p.Product((a, b)),
    "/": p.Quotient,
    "**": p.Power,
    "and": lambda a, b: p.LogicalAnd((a, b)),
    "or": lambda a, b: p.LogicalOr((a, b)),
}


@dataclass(frozen=True)
class OutputEpilogue:
    """A writer of the epilogue of one output.

    :ivar epilogue: None where the sum is stored as it is.
    :ivar dtype: the type of the output.
    :ivar scalars: the type of every scalar of the call.
    """

    epilogue: Epilogue | None
    dtype: np.dtype[Any]
    scalars: Mapping[str, np.dtype[Any]]

    @staticmethod
    def of_output(e: BatchedEinsum, output: int) -> OutputEpilogue:
        """The epilogue of an output of an einsum, which is of one row or of all."""
        return OutputEpilogue(e.epilogues[output] if e.epilogues else None, e.dtypes[output], e.scalars)

    @property
    def chooses(self) -> bool:
        """Whether the sum stands in a choice, where loopy 2025.2 would sum as far as the unfinished sum lets it."""
        return self.epilogue is not None and any(
            isinstance(node, tree.EpilogueCall)
            and (node.function in ("where", "min", "max", "abs") or tree.vanishing_factor(node) is not None)
            and any(isinstance(part, tree.Sum) for part in tree.walk_tree(node))
            for node in tree.walk_tree(self.epilogue.expression)
        )

    def write(self, values: Sequence[Any], present: Any, reading: Reading, named: Callable[[str], str] = str) -> Any:
        """The expression that is to be stored.

        :param values: the finished sum of the row, which stands wherever the epilogue has ``v``; or of all rows.
        :param present: what reads the output at the same entry.
        :param reading: makes what reads an array of the epilogue.
        :param named: the name in the kernel of a number that is given at the call.
        """
        if self.epilogue is None:
            return values[0]
        return _EpilogueWriter(self.dtype, self.scalars, values, present, reading, named).rec(self.epilogue.expression)


@dataclass(frozen=True)
class _EpilogueWriter:
    dtype: np.dtype[Any]
    scalars: Mapping[str, np.dtype[Any]]
    values: Sequence[Any]
    present: Any
    reading: Reading
    named: Callable[[str], str]

    def rec(self, node: tree.Node) -> Any:
        match node:
            case tree.Sum():
                return self._cast(self.values[node.row or 0], self.dtype)
            case tree.Present():
                return self._cast(self.present, self.dtype)
            case tree.Read():
                return self._cast(self.reading(node.array, node.axes), node.array.dtype)
            case tree.EpilogueScalar():
                return self._cast(p.Variable(self.named(node.name)), self.scalars[node.name])
            case tree.EpilogueNumber():
                return self._real.type(node.value)
        return self._call(node)

    @property
    def _real(self) -> np.dtype[Any]:
        return np.empty(0, self._computed).real.dtype

    @property
    def _computed(self) -> np.dtype[Any]:
        return computed_in(self.dtype)

    def _cast(self, value: Any, own: np.dtype[Any]) -> Any:
        """A value in the type that all is computed in; what is real stays so, which halves the work."""
        wanted = self._real if own.kind != "c" else self._computed
        # Multiplied by a one of that type, since loopy 2025.2 fails where a condition has a cast.
        return value if own == wanted else p.Product((wanted.type(1), value))

    def _call(self, node: tree.EpilogueCall) -> Any:
        factor = tree.vanishing_factor(node)
        arguments = [self.rec(argument) for argument in node.arguments]
        if factor is not None:
            return p.If(self._is_zero(self.rec(factor)), self._computed.type(0), _BUILT_IN["*"](*arguments))
        if node.function == "neg":
            return p.Product((self._minus_one, arguments[0]))
        if node.function == "not":
            return p.LogicalNot(arguments[0])
        if node.function == "where":
            return p.If(*arguments)
        if node.function in COMPARISONS:
            first, second = arguments
            if isinstance(second, np.unsignedinteger):
                # loopy 2025.2 asks for the type of the difference, and numpy warns where it takes the negative of a number.
                second = p.Product((self._real.type(1), second))
            return p.Comparison(first, node.function, second)
        if node.function == "-" and self.dtype.kind == "u":
            return p.Sum((arguments[0], p.Product((self._minus_one, arguments[1]))))
        if node.function in _BUILT_IN:
            return _BUILT_IN[node.function](*arguments)
        return self._function(node.function, arguments)

    @property
    def _minus_one(self) -> Any:
        """Of the type that all is computed in, as loopy 2025.2 makes a ``double`` of a ``ulong`` times one with a sign."""
        return np.array(-1).astype(self._real)[()]

    def _is_zero(self, factor: Any) -> Any:
        if self.dtype.kind != "c":
            return p.Comparison(factor, "==", self._real.type(0))
        parts = [p.Comparison(p.Variable(x)(factor), "==", self._real.type(0)) for x in ("real", "imag")]
        return p.LogicalAnd(tuple(parts))

    def _function(self, name: str, arguments: list[Any]) -> Any:
        if self.dtype.kind in "iu" and name in ("min", "max"):
            return p.If(p.Comparison(arguments[0], "<" if name == "min" else ">", arguments[1]), *arguments)
        if self.dtype.kind == "i" and name == "abs":
            return p.If(p.Comparison(arguments[0], "<", self._real.type(0)), p.Product((-1, arguments[0])), arguments[0])
        if self.dtype.kind != "c" and name == "conj":
            return arguments[0]
        return p.Variable(IN_LOOPY.get(name, name))(*arguments)


class _RealFunction(ScalarCallable):  # type: ignore[misc]  # loopy is not typed for strict checking
    """A function of reals of OpenCL C that loopy 2025.2 does not know."""

    def with_types(self, arg_id_to_dtype: Mapping[Any, Any], clbl_inf_ctx: Any) -> tuple[Any, Any]:
        """The function for arguments of one type, the result of which is of that type too."""
        row = _UNKNOWN_TO_LOOPY[self.name]
        given = [arg_id_to_dtype[k] for k in range(row.arity) if arg_id_to_dtype.get(k) is not None]
        if len(given) < row.arity:
            return self.copy(arg_id_to_dtype=arg_id_to_dtype), clbl_inf_ctx
        dtype = NumpyType(np.result_type(*(x.numpy_dtype for x in given)))
        types = constantdict(dict.fromkeys(range(-1, row.arity), dtype))
        return self.copy(arg_id_to_dtype=types, name_in_target=row.opencl), clbl_inf_ctx

    def generate_preambles(self, target: Any) -> Any:
        """None: the function is built in."""
        return ()


def with_functions(t_unit: lp.TranslationUnit, e: BatchedEinsum) -> lp.TranslationUnit:
    """The translation unit with the functions of epilogues that loopy does not know by itself."""
    called = {
        node.function
        for own in e.epilogues
        if own
        for node in tree.walk_tree(own.expression)
        if isinstance(node, tree.EpilogueCall)
    }
    for known, row in _UNKNOWN_TO_LOOPY.items():
        if row.name in called:
            t_unit = lp.register_callable(t_unit, known, _RealFunction(known))
    return t_unit


@tag_dataclass
class GivenAtCall(Tag):  # type: ignore[misc]  # pytools is not typed for strict checking
    """A tag of a value argument that is a scalar of an epilogue, and no length."""


def scalar_arguments(e: BatchedEinsum) -> list[lp.ValueArg]:
    """The arguments for the scalars of the call."""
    return [lp.ValueArg(name, dtype=dtype, tags=frozenset([GivenAtCall()])) for name, dtype in e.scalars.items()]
