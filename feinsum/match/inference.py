"""The element type of a substitution rule: what loopy infers for its right-hand side.

A number in an expression of loopy has no type of its own but takes that of its surroundings, as in numpy: ``0.1*u[i]`` is
float32 where ``u`` is.  (loopy's own inference calls 0.1 a float64, because float32 does not hold it exactly.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import loopy as lp
import numpy as np
from loopy.diagnostic import LoopyError
from loopy.symbolic import IdentityMapper, SubstitutionRuleExpander
from loopy.translation_unit import make_clbl_inf_ctx, resolve_callables
from loopy.type_inference import TypeInferenceMapper
from loopy.types import NumpyType
from pymbolic.primitives import Subscript

from feinsum.errors import MatchError
from feinsum.match.kernel_source import RuleFacts, SourceKernel


class Inference:
    """Infers the types of the substitution rules of one kernel; each once."""

    def __init__(self, source: SourceKernel) -> None:
        self._source = source
        self._known: dict[str, np.dtype[Any]] = {}
        self._resolved: lp.TranslationUnit | None = None

    def infer(self, facts: RuleFacts, target: np.dtype[Any]) -> np.dtype[Any]:
        """The type of a rule; one made of numbers alone takes `target`, the type of the row, where that holds them.

        :raises MatchError: naming the rule, if loopy cannot tell.
        """
        if facts.name not in self._known:
            expression = facts.expression
            if isinstance(expression, Subscript) and self._source.is_array(expression.aggregate.name):
                self._known[facts.name] = self._source.dtype(expression.aggregate.name)
            else:
                self._known[facts.name] = self._infer(facts)
        known = self._known[facts.name]
        return target if self._is_untyped(facts) and np.can_cast(known, target, "same_kind") else known

    def _is_untyped(self, facts: RuleFacts) -> bool:
        """Whether a rule consists of plain numbers and its arguments."""
        uses = facts.uses
        return not (uses.reads or uses.calls or uses.sized or uses.values - set(facts.arguments))

    def _infer(self, facts: RuleFacts) -> np.dtype[Any]:
        typed = {name: lp.ValueArg(name, dtype=self._source.dtype(name)) for name in facts.reads}
        typed.update({name: lp.ValueArg(name, dtype=self._source.kernel.index_dtype) for name in facts.arguments})
        try:
            found = self._ask_loopy(facts, typed)
        except (LoopyError, NotImplementedError) as error:
            raise MatchError(f"the type of substitution rule '{facts.name}' is not known: {error}") from None
        if not found and self._is_untyped(facts):
            return np.dtype(np.int32)
        if not found or not isinstance(found[0], NumpyType):
            raise MatchError(f"the type of substitution rule '{facts.name}' is not known; see loopy.add_dtypes")
        dtype: np.dtype[Any] = found[0].numpy_dtype
        return dtype

    def _ask_loopy(self, facts: RuleFacts, typed: dict[str, lp.ValueArg]) -> Any:
        """The type that loopy infers for the right-hand side, other rules put in; functions have to be resolved for
        that."""
        t_unit = self._source.t_unit
        if facts.uses.calls:
            t_unit = self._resolved = self._resolved or resolve_callables(t_unit)
        kernel = t_unit[self._source.kernel.name]
        mapper = _TypeInference(kernel, make_clbl_inf_ctx(t_unit.callables_table, frozenset()), typed)
        expand = SubstitutionRuleExpander(kernel.substitutions)
        return mapper(expand(kernel.substitutions[facts.name].expression), return_dtype_set=True)


class _TypeInference(TypeInferenceMapper):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    def map_constant(self, expr: Any) -> list[NumpyType]:
        if isinstance(expr, np.generic):
            return [NumpyType(expr.dtype)]
        if isinstance(expr, float):
            return [NumpyType(np.dtype(np.float32))]
        if isinstance(expr, complex):
            return [NumpyType(np.dtype(np.complex64))]
        return []

    def map_if(self, expr: Any) -> Any:
        return self.combine([self.rec(expr.then), self.rec(expr.else_)])


class _Stripper(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    def __init__(self, is_read: Callable[[Any], bool]) -> None:
        super().__init__()
        self.is_read = is_read
        self.casts: set[tuple[str, np.dtype[Any]]] = set()

    def map_type_cast(self, expr: Any) -> Any:
        if not self.is_read(expr.child):
            return super().map_type_cast(expr)
        array = expr.child.aggregate if isinstance(expr.child, Subscript) else expr.child
        self.casts.add((array.name, expr.type.numpy_dtype))
        return expr.child


def strip_casts(expression: Any, is_read: Callable[[Any], bool]) -> tuple[Any, frozenset[tuple[str, np.dtype[Any]]]]:
    """The expression without the conversions that stand directly around a read, and what is converted to what."""
    stripper = _Stripper(is_read)
    return stripper(expression), frozenset(stripper.casts)
