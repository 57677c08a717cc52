"""Moves that give an operand memory of its own: private to a work-item, or local to a work-group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import islpy as isl
import loopy as lp
from loopy.kernel.data import Iname
from loopy.symbolic import (
    CoefficientCollector,
    IdentityMapper,
    SubstitutionMapper,
    SubstitutionRuleExpander,
    aff_from_expr,
    get_dependencies,
)
from loopy.translation_unit import make_clbl_inf_ctx
from loopy.type_inference import TypeInferenceMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Min, Subscript, Variable, flattened_product, flattened_sum

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.match.expression_uses import find_uses
from feinsum.rewrites.loops import axis_length, fixed_length, iname_of

_SPACES = {"private": lp.AddressSpace.PRIVATE, "local": lp.AddressSpace.LOCAL}


@dataclass(frozen=True)
class Kept:
    """The copy of an operand.

    :ivar insn_ids: its instructions, one for each rule.
    :ivar loops: index letter -> iname of the loop that fills it.
    """

    insn_ids: tuple[str, ...]
    loops: Mapping[str, str]


def materialize(
    t_unit: lp.TranslationUnit,
    match: Match,
    operand: int,
    sweep: Mapping[str, Sequence[str]],
    memory: str,
    *,
    outer: Sequence[str],
    lanes: int | None = None,
) -> tuple[lp.TranslationUnit, Kept]:
    """Compute the values of an operand over some loops once, keep them, and read them from there.

    Before::

        for j: out[e, i] += D(i, j) * u(e, j)

    After ``operand=1, sweep={"j": ["j"]}, outer=["e"]``::

        for j: kept[j] = u(e, j)
        for j: out[e, i] += D(i, j) * kept[j]

    The copy has the full length of the loops.  Where a tile sticks out of an axis, it reads the last element again.

    :param operand: which operand of the match; every distinct rule in its column is kept, all copied in one loop nest.
    :param sweep: the axes of the memory, outermost first: an index letter of the operand, and the loops (index letters
        or inames) of fixed length that run along it.
    :param memory: ``"private"`` to a work-item, or ``"local"`` to a work-group.
    :param outer: the loops around the copy.
    :param lanes: how many work-items along axis 0 share the copy into local memory.
    :returns: the kernel, and the instructions and loops of the copy.
    :raises TransformError: if the memory is neither, the loops do not run through the axes evenly from one place, or
        no instruction in them reads the operand.

    ``compute_at`` in Halide, ``cache_read`` in TVM, ``stage_mem`` in Exo, ``precompute`` in loopy.
    """
    if memory not in _SPACES:
        raise TransformError(f"memory is {memory!r}; it is 'private' or 'local'")
    kernel = t_unit[match.kernel_name]
    letters = match.einsum.indexing.inputs[operand]
    axes = {letter: [iname_of(t_unit, match, loop) for loop in loops] for letter, loops in sweep.items()}
    ends = {letter: axis_length(match, letter) for letter in letters}
    around = frozenset(iname_of(t_unit, match, loop) for loop in outer)
    fresh = kernel.get_var_name_generator()
    copies = {letter: fresh(f"{letter}_copy") for letter in sweep}
    lengths: dict[str, int] = {}
    insn_ids = []
    for rule in dict.fromkeys(row[operand] for row in match.rules):
        reads = _OperandReads(kernel, rule, letters, ends, axes)
        kernel = reads.redirected(kernel, fresh(f"{rule}_kept"), copies, around, _SPACES[memory])
        insn_ids.append(reads.insn_id)
        lengths |= reads.lengths
    bounds = {name: f"0 <= {name} < {lengths[letter]}" for letter, name in copies.items()}
    domains = [isl.BasicSet(f"{{[{name}]: {bound}}}") for name, bound in bounds.items()]
    if lanes is not None:  # loops that are to be joined must share a domain
        domains = [isl.BasicSet(f"{{[{', '.join(bounds)}]: {' and '.join(bounds.values())}}}")]
    kernel = kernel.copy(
        domains=[*kernel.domains, *domains],
        inames={**kernel.inames, **{name: Iname(name, frozenset()) for name in copies.values()}},
    )
    if lanes is not None:
        kernel = _share_copy(kernel, list(copies.values()), lanes)
    return _with_array_types(t_unit.with_kernel(kernel), match.kernel_name, insn_ids), Kept(tuple(insn_ids), copies)


def _with_array_types(t_unit: lp.TranslationUnit, name: str, insn_ids: Sequence[str]) -> lp.TranslationUnit:
    """The kernel with the types of the arrays that some instructions fill.

    Types are inferred now: once the copy is an accumulator that reads itself, loopy would take it for float64.  What loopy
    does for whole kernels takes ten times as long as to ask for one expression, which does where it calls no function.
    """
    kernel = t_unit[name]
    expand = SubstitutionRuleExpander(kernel.substitutions)
    infer = TypeInferenceMapper(kernel, make_clbl_inf_ctx(t_unit.callables_table, t_unit.entrypoints))
    arrays = dict(kernel.temporary_variables)
    for insn in (kernel.id_to_insn[insn_id] for insn_id in insn_ids):
        expression = expand(insn.expression)
        found = [] if find_uses(expression).calls else infer(expression, return_dtype_set=True)
        if len(found) != 1:
            return lp.infer_unknown_types(t_unit)
        arrays[insn.assignee_name] = arrays[insn.assignee_name].copy(dtype=found[0])
    return t_unit.with_kernel(kernel.copy(temporary_variables=arrays))


class _Coefficients(CoefficientCollector):  # type: ignore[misc]
    """Takes quotients for constants: pymbolic 2025.1 refuses them even where nothing in them is a variable."""

    def map_floor_div(self, expr: Any) -> Any:
        if get_dependencies(expr) & set(self.target_names):
            raise TransformError(f"'{expr}' does not go evenly along {self.target_names}")
        return {1: expr}


class _OperandReads(IdentityMapper):  # type: ignore[misc]
    """The reads of one operand inside some loops: the begin and the extent of each along every axis."""

    def __init__(
        self, kernel: lp.LoopKernel, rule: str, letters: str, ends: Mapping[str, Any], axes: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__()
        self.kernel, self.rule, self.letters, self.ends, self.axes = kernel, rule, letters, ends, axes
        self.inames = frozenset(iname for inames in axes.values() for iname in inames)
        self.begin: dict[str, Any] = {}
        self.lengths: dict[str, int] = {}
        self.insn_id = ""
        self._memory = ""

    def redirected(
        self, kernel: lp.LoopKernel, name: str, copies: Mapping[str, str], around: frozenset[str], space: Any
    ) -> lp.LoopKernel:
        """The kernel with the reads going to an array of its own, and the instruction that fills it."""
        self._memory = name
        self.insn_id = kernel.get_instruction_id_generator()(f"keep_{self.rule}")
        instructions, needed = [], frozenset[str]()
        for insn in kernel.instructions:
            if isinstance(insn, lp.Assignment) and self.inames & (insn.within_inames | insn.reduction_inames()):
                changed = insn.with_transformed_expressions(self)
                if changed.expression != insn.expression:
                    needed |= insn.depends_on
                    insn = changed.copy(depends_on=insn.depends_on | {self.insn_id})
            instructions.append(insn)
        if not self.begin:
            raise TransformError(f"no instruction in loops {sorted(self.inames)} reads operand '{self.rule}'")
        definition = kernel.substitutions[self.rule]
        at = tuple(self._source(copies, letter) for letter in self.letters)
        value = SubstitutionMapper(make_subst_func(dict(zip(definition.arguments, at, strict=True))))(definition.expression)
        private = {t.name for t in kernel.temporary_variables.values() if t.address_space == lp.AddressSpace.PRIVATE}
        copy = lp.Assignment(
            Subscript(Variable(name), tuple(Variable(copies[letter]) for letter in self.axes)),
            value,
            id=self.insn_id,
            within_inames=around | set(copies.values()),
            within_inames_is_final=True,
            depends_on=frozenset(d for d in needed if not private & set(kernel.id_to_insn[d].assignee_var_names())),
            depends_on_is_final=True,
        )
        kept = lp.TemporaryVariable(
            name, dtype=None, shape=tuple(self.lengths[letter] for letter in self.axes), address_space=space
        )
        return kernel.copy(
            instructions=[*instructions, copy], temporary_variables={**kernel.temporary_variables, name: kept}
        )

    def map_call(self, expr: Any) -> Any:
        if expr.function != Variable(self.rule):
            return super().map_call(expr)
        index = []
        for letter, argument in zip(self.letters, expr.parameters, strict=True):
            if letter in self.axes and isinstance(argument, Min) and argument.children[1] == self.ends[letter] - 1:
                argument = argument.children[0]  # the copy stops at the end of the axis in the same way
            begin, offset, length = self._split(argument, self.axes.get(letter, ()))
            if self.begin.setdefault(letter, begin) != begin or self.lengths.setdefault(letter, length) != length:
                raise TransformError(f"operand '{self.rule}' is read at several places along '{letter}'")
            index.append(offset)
        order = [self.letters.index(letter) for letter in self.axes]
        return Subscript(Variable(self._memory), tuple(index[k] for k in order))

    def _split(self, argument: Any, inames: Sequence[str]) -> tuple[Any, Any, int]:
        """An index as its value at the beginning of the loops, the way from there, and the length of the way."""
        coefficients = _Coefficients(list(inames))(argument)
        begin = coefficients.pop(1, 0)
        steps = []
        length = 1
        for variable, coefficient in coefficients.items():
            if not isinstance(coefficient, int):
                raise TransformError(f"'{argument}' does not go evenly along '{variable}'")
            steps.append(flattened_product((coefficient, variable)))
            length += coefficient * (fixed_length(self.kernel, variable.name) - 1)
        return begin, flattened_sum(tuple(steps)), length

    def _source(self, copies: Mapping[str, str], letter: str) -> Any:
        """Where the copy reads along an axis: not beyond its end."""
        position, last = self.begin[letter], self.begin[letter]
        if letter in self.axes:
            last = position + self.lengths[letter] - 1
            position = flattened_sum((position, Variable(copies[letter])))
        return Min((position, self.ends[letter] - 1)) if self._may_pass(last, self.ends[letter]) else position

    def _may_pass(self, position: Any, end: Any) -> bool:
        """Whether a position may be at or beyond the end of its axis, by the domains of the kernel."""
        inames = get_dependencies(position) & self.kernel.all_inames()
        domain = self.kernel.get_inames_domain(frozenset(inames)) if inames else isl.BasicSet("{[]}")
        parameters = (get_dependencies(position) | get_dependencies(end)) - inames
        for name in sorted(parameters - set(domain.get_var_names(isl.dim_type.param))):
            domain = domain.add_dims(isl.dim_type.param, 1)
            domain = domain.set_dim_name(isl.dim_type.param, domain.dim(isl.dim_type.param) - 1, name)
        beyond = aff_from_expr(domain.space, position - end)
        return not domain.to_set().intersect(isl.PwAff.from_aff(beyond).nonneg_set()).is_empty()


def _share_copy(kernel: lp.LoopKernel, copies: list[str], lanes: int) -> lp.LoopKernel:
    """Let `lanes` work-items along axis 0 do the iterations of a copy together, the last loop fastest."""
    joined = kernel.get_var_name_generator()("copy")
    kernel = lp.join_inames(kernel, copies, joined) if len(copies) > 1 else lp.rename_iname(kernel, copies[0], joined)
    return lp.split_iname(kernel, joined, lanes, inner_tag="l.0")
