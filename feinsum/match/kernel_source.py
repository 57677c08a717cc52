"""A loopy kernel as the matcher reads it: the meanings of its names, and the reads of each substitution rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import loopy as lp
import numpy as np
from loopy.diagnostic import LoopyError
from loopy.kernel.array import ArrayBase
from loopy.kernel.data import ArrayArg, TemporaryVariable, ValueArg
from loopy.types import NumpyType

from feinsum.errors import MatchError
from feinsum.match.expression_uses import Uses, find_uses


@dataclass(frozen=True)
class RuleFacts:
    """A substitution rule with what it uses, the rules it calls included.

    :ivar uses: the uses in the right-hand side itself.
    :ivar reads: every array and scalar read by it or by a rule it calls.
    :ivar captured: the inames it takes from around the call instead of from its arguments.
    :ivar reduces: whether it or a rule it calls contains a reduction.
    """

    name: str
    arguments: tuple[str, ...]
    expression: Any
    uses: Uses
    reads: frozenset[str]
    captured: frozenset[str]
    reduces: bool


@dataclass
class SourceKernel:
    """One kernel of a translation unit."""

    t_unit: lp.TranslationUnit
    kernel: lp.LoopKernel
    known_rules: dict[str, RuleFacts] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(t_unit: lp.TranslationUnit, kernel_name: str | None) -> SourceKernel:
        """The kernel of that name; the entry point if None.

        :raises MatchError: if there is no such kernel, or the entry point is not unique.
        """
        if not isinstance(t_unit, lp.TranslationUnit):
            raise MatchError(f"a loopy TranslationUnit is needed, not {type(t_unit).__name__}; see loopy.make_kernel")
        kernels = [name for name, clbl in t_unit.callables_table.items() if isinstance(clbl, lp.CallableKernel)]
        if kernel_name is None:
            if len(t_unit.entrypoints) != 1:
                entries = sorted(t_unit.entrypoints)
                raise MatchError(f"the translation unit has the entry points {entries}; choose one with kernel_name=...")
            (kernel_name,) = t_unit.entrypoints
        if kernel_name not in kernels:
            raise MatchError(f"the translation unit has no kernel '{kernel_name}'; it has {sorted(map(str, kernels))}")
        return SourceKernel(t_unit, t_unit[kernel_name])

    @cached_property
    def inames(self) -> frozenset[str]:
        """Every iname of the kernel."""
        return frozenset(self.kernel.all_inames())

    def is_parameter(self, name: str) -> bool:
        """Whether a name is a value argument, fixed while the kernel runs."""
        return isinstance(self.kernel.arg_dict.get(name), ValueArg)

    def _variable(self, name: str) -> Any:
        return self.kernel.arg_dict.get(name) or self.kernel.temporary_variables.get(name)

    def is_array(self, name: str) -> bool:
        """Whether a name is an array or a scalar in memory, argument or temporary."""
        return isinstance(self._variable(name), ArrayBase)

    def is_global(self, name: str) -> bool:
        """Whether a name is an array in global memory that can be written, argument or temporary."""
        array = self._variable(name)
        return isinstance(array, (ArrayArg, TemporaryVariable)) and array.address_space == lp.AddressSpace.GLOBAL

    def storage(self, name: str) -> str:
        """The storage of an array: the memory that temporaries share, or the array itself."""
        temporary = self.kernel.temporary_variables.get(name)
        shared = None if temporary is None else temporary.base_storage
        return name if shared is None else f"storage {shared}"

    def dtype(self, name: str) -> np.dtype[Any]:
        """The element type of an array.

        :raises MatchError: if it is not given and loopy cannot infer it.
        """
        dtype = self._declared(self.kernel, name)
        if dtype is None and self._typed is not None:
            dtype = self._declared(self._typed, name)
        if dtype is None:
            raise MatchError(
                f"the type of '{name}' in kernel '{self.kernel.name}' is not known; give it one with loopy.add_dtypes"
            )
        return dtype

    @staticmethod
    def _declared(kernel: lp.LoopKernel, name: str) -> np.dtype[Any] | None:
        array = kernel.arg_dict.get(name) or kernel.temporary_variables.get(name)
        dtype = getattr(array, "dtype", None)
        return dtype.numpy_dtype if isinstance(dtype, NumpyType) else None

    @cached_property
    def _typed(self) -> lp.LoopKernel | None:
        """The kernel with the types that loopy infers, or None where it fails."""
        try:
            typed = lp.infer_unknown_types(self.t_unit)
            return typed[self.kernel.name]
        except (LoopyError, KeyError):
            return None

    def is_rule(self, name: str) -> bool:
        """Whether a name is a substitution rule."""
        return name in self.kernel.substitutions

    def rule(self, name: str) -> RuleFacts:
        """The facts of a substitution rule."""
        if name not in self.known_rules:
            rule = self.kernel.substitutions[name]
            uses = find_uses(rule.expression)
            bound = {iname for reduction in uses.reductions for iname in reduction.inames}
            free = uses.variables - set(rule.arguments) - bound
            called = [self.rule(other) for other in self.called_rules(uses)]
            self.known_rules[name] = RuleFacts(
                name=name,
                arguments=tuple(rule.arguments),
                expression=rule.expression,
                uses=uses,
                reads=frozenset(
                    n for n in (*free, *(n for n, _ in uses.reads)) if self.is_array(n) and n not in rule.arguments
                ).union(*(other.reads for other in called)),
                captured=(free & self.inames).union(*(other.captured for other in called)),
                reduces=bool(uses.reductions) or any(other.reduces for other in called),
            )
        return self.known_rules[name]

    def called_rules(self, uses: Uses) -> Iterator[str]:
        """The rules that are invoked; one without arguments may stand without parentheses."""
        return (name for name in dict.fromkeys((*(n for n, _ in uses.calls), *sorted(uses.values))) if self.is_rule(name))

    def reads(self, uses: Uses) -> frozenset[str]:
        """Every array read, those behind rules included."""
        named = frozenset(n for n in (*uses.variables, *(n for n, _ in uses.reads)) if self.is_array(n))
        return named.union(*(self.rule(name).reads for name in self.called_rules(uses)))

    def reduces(self, uses: Uses) -> bool:
        """Whether there is a reduction, behind a rule or not."""
        return bool(uses.reductions) or any(self.rule(name).reduces for name in self.called_rules(uses))

    def captured(self, uses: Uses) -> frozenset[str]:
        """The inames that rules take from around their call instead of from their arguments."""
        return frozenset[str]().union(*(self.rule(name).captured for name in self.called_rules(uses)))
