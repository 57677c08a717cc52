"""The launches of a plan of complex parts: operands as rows or matrices of reals, contractions of these, and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from string import ascii_letters
from typing import Any

import loopy as lp
from loopy.kernel.instruction import CInstruction
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction
from pymbolic.primitives import Call, Product, Variable

from feinsum.contraction import ContractionStep
from feinsum.einsum import Array, BatchedEinsum
from feinsum.errors import TransformError
from feinsum.lower.schedule_steps import read_element
from feinsum.match import Match
from feinsum.rewrites.reads import with_rules
from feinsum.rewrites.vectors.access import NAMES
from feinsum.skeletons.complex_parts.copies import PartsCopy, matrix_code
from feinsum.skeletons.complex_parts.launches import LaunchDraft
from feinsum.skeletons.complex_parts.plan import PARTS, ComplexParts, matrix_of, of_complex, rows_einsum
from feinsum.subscripts import Subscripts


def write(
    t_unit: lp.TranslationUnit, match: Match, plan: ComplexParts, sizes: Mapping[str, int]
) -> tuple[lp.TranslationUnit, tuple[Match, ...]]:
    """Contract complex operands along a schedule of steps of one or two, each in real numbers.

    Before::

        out[i, k] = sum(j, A(i, j) * B(j, k))

    After::

        A_row[i, j, :] = real(A(i, j)), imag(A(i, j))
        ... gbarrier
        B_matrix[j, :, k, :] = (real(B(j, k)), imag(B(j, k))), (-imag(B(j, k)), real(B(j, k)))
        ... gbarrier
        out_row[i, k, p] = sum([j, q], A_row(i, j, q) * B_matrix(j, q, k, p))
        ... gbarrier
        out[i, k] = out_row[i, k, 0] + 1j * out_row[i, k, 1]

    The contractions are left as they are, for a space that multiplies reals; the copies are spread over groups.

    :param sizes: lengths of the indices, by which the copies are spread over groups.
    :returns: the kernel, and the match of each step, whose einsum is one of reals.
    :raises SubscriptError: if the schedule does not evaluate the einsum of the match.
    :raises TransformError: if operands and outputs are not complex numbers of one kind, or an instruction has a predicate.

    CUTLASS calls the kernels of this kind planar or interleaved complex; BLIS has the method 1m, which makes the same
    matrices of one operand as it packs it.
    """
    e, kernel = match.einsum, t_unit[match.kernel_name]
    plan.order.check(e.indexing)
    rows = [kernel.id_to_insn[insn_id] for insn_id in match.insn_ids]
    if any(insn.predicates for insn in rows):
        raise TransformError(f"instruction '{rows[0].id}' has a predicate, which the steps of a schedule cannot have")
    if not of_complex(e):
        raise TransformError(f"operands and outputs of '{e}' are not complex numbers of one kind")
    launches = _Launches.of(kernel, match, sizes, plan.width)
    for step in plan.order.steps:
        launches.contract(step)
    launches.join()
    return t_unit.with_kernel(launches.draft.finish(match.insn_ids)), tuple(launches.matches)


@dataclass(frozen=True)
class _ComplexTerm:
    """A remaining operand: a rule of complex numbers, or an array whose last axis holds their parts."""

    name: str
    letters: str
    is_rule: bool

    def parts(self, loops: Mapping[str, str]) -> tuple[Any, Any]:
        """The real and the imaginary part at some loops."""
        at = tuple(Variable(loops[x]) for x in self.letters)
        if self.is_rule:
            value = Call(Variable(self.name), at)
            return Call(Variable("real"), (value,)), Call(Variable("imag"), (value,))
        return read_element(self.name, (*at, 0)), read_element(self.name, (*at, 1))


@dataclass
class _Launches:
    """The launches of one einsum.

    :ivar sizes: lengths expected of its indices.
    :ivar width: the complex numbers of a vector that copies.
    :ivar letters: two that the einsum has not, for the parts of results and of operands.
    :ivar draft: the launches so far.
    :ivar terms: for each output, the remaining operands.
    :ivar made: operands that were copied or contracted before, and the names of their arrays.
    """

    match: Match
    sizes: Mapping[str, int]
    width: int
    letters: str
    draft: LaunchDraft
    terms: list[dict[int, _ComplexTerm]]
    made: dict[Any, str] = field(default_factory=dict)
    matches: list[Match] = field(default_factory=list)

    @classmethod
    def of(cls, kernel: lp.LoopKernel, match: Match, sizes: Mapping[str, int], width: int) -> _Launches:
        e = match.einsum
        letters = "".join([x for x in ascii_letters if x not in e.indexing.indices][:2])
        lengths: dict[str, Any] = dict.fromkeys(letters, PARTS)
        for x, length in e.index_sizes.items():
            lengths[x] = length if isinstance(length, int) else match.names[str(length)]
        taken = set(kernel.all_variable_names()) | set(kernel.id_to_insn) | set(kernel.substitutions)
        before = frozenset[str]().union(*(kernel.id_to_insn[insn_id].depends_on for insn_id in match.insn_ids))
        draft = LaunchDraft(kernel, lengths, e.dtypes[0].type(0).real.dtype, taken, before - set(match.insn_ids))
        terms = [
            {k: _ComplexTerm(*term, is_rule=True) for k, term in enumerate(zip(row, e.indexing.inputs, strict=True))}
            for row in match.rules
        ]
        return cls(match, sizes, width, letters, draft, terms)

    def contract(self, step: ContractionStep) -> None:
        """Copy the operands of a step for all outputs, then contract them."""
        number, real = len(self.matches), rows_einsum(step.indexing, self.letters)
        operands = [
            [
                self._operand(terms.pop(k), letters, is_matrix=len(real.inputs) == 2 and n == matrix_of(step.indexing))
                for n, (k, letters) in enumerate(zip(step.operands, real.inputs, strict=True))
            ]
            for terms in self.terms
        ]
        self.draft.wait()
        loops = self.draft.nest(real.indices)
        results: dict[tuple[str, ...], tuple[str, str]] = {}
        for terms, rules in zip(self.terms, operands, strict=True):
            if tuple(rules) not in results:
                results[tuple(rules)] = self._product(real, loops, tuple(rules))
            result, _ = results[tuple(rules)]
            terms[self.match.einsum.n + number] = _ComplexTerm(result, real.output[:-1], is_rule=False)
        args = tuple(
            tuple(
                (Array(rule, tuple(map(self._axis, letters)), self.draft.real),)
                for rule, letters in zip(rules, real.inputs, strict=True)
            )
            for rules in results
        )
        self.matches.append(
            replace(
                self.match,
                einsum=BatchedEinsum(real, args),
                insn_ids=tuple(insn_id for _, insn_id in results.values()),
                rules=tuple(results),
                loops=(loops,) * len(results),
                outputs=tuple(output for output, _ in results.values()),
            )
        )

    def join(self) -> None:
        """Write the results as complex numbers, by the instructions that wrote them before."""
        draft, output = self.draft, self.match.einsum.indexing.output
        for terms, name, insn_id in zip(self.terms, self.match.outputs, self.match.insn_ids, strict=True):
            draft.wait()
            loops = draft.nest(output)
            (term,) = terms.values()
            real, imag = term.parts(loops)
            draft.assign(name, [loops[x] for x in output], real + 1j * imag, loops, insn_id)
            draft.tag_bytes(1, draft.instructions[-1].assignee, term.name, loops)
            draft.copies.append(PartsCopy({loops[x]: self.sizes[x] for x in output}, vectors=False, along=True))

    def _axis(self, letter: str) -> Any:
        return self.match.einsum.index_sizes.get(letter, PARTS)

    def _operand(self, term: _ComplexTerm, letters: str, *, is_matrix: bool) -> str:
        """The rule that reads an operand as rows or as matrices, with its axes in this order."""
        rows = self.made[term] if term in self.made else self._rows(term)
        self.made[term] = name = rows
        if is_matrix:
            self.made[rows, letters] = name = self.made.get((rows, letters)) or self._matrices(rows, term.letters, letters)
        if f"{name}[]" not in self.made:
            formal = tuple(f"i{axis}" for axis in range(len(letters)))
            self.made[f"{name}[]"] = self.draft.fresh(f"{name}_")
            value = read_element(name, tuple(map(Variable, formal)))
            self.draft.rules.append(lp.SubstitutionRule(self.made[f"{name}[]"], formal, value))
        return self.made[f"{name}[]"]

    def _rows(self, term: _ComplexTerm) -> str:
        """The array with the parts of an operand; complex numbers are copied by a launch."""
        if not term.is_rule:
            return term.name
        draft = self.draft
        draft.wait()
        loops = draft.nest(term.letters)
        name = draft.array(f"{term.name}_row", term.letters + self.letters[0])
        for number, value in enumerate(term.parts(loops)):
            draft.assign(name, [*loops.values(), number], value, loops, draft.fresh(f"{name}_{number}"))
        call = Call(Variable(term.name), tuple(map(Variable, loops.values())))
        draft.tag_bytes(PARTS, with_rules(draft.kernel, call), name, loops)
        draft.copies.append(PartsCopy({loops[x]: self.sizes[x] for x in term.letters}, vectors=False, along=True))
        return name

    def _matrices(self, rows: str, own: str, letters: str) -> str:
        """A launch that copies rows, whose axes are `own`, as matrices, a vector of numbers in each iteration."""
        draft = self.draft
        draft.wait()
        part, inner = self.letters[0], self.letters[1]
        name = draft.array(f"{rows}_matrix", letters)
        kept = "".join(x for x in letters if x not in self.letters)
        lane = kept[-1:]
        width = self.width if letters.endswith(lane + part) else 1
        loops = draft.nest(kept, **({lane: width} if lane else {}))
        at = {x: Variable(loop) * (width if x == lane else 1) for x, loop in loops.items()} | {part: 0, inner: 0}
        sources, targets = draft.strides(own + part), draft.strides(letters)
        step = sources.get(lane, PARTS)
        length = draft.lengths[lane] if lane else 1
        positions = (
            ("first", sum(at[x] * sources[x] for x in own)),
            ("to", sum(at[x] * targets[x] for x in letters)),
            ("step", step),
            ("below", targets[inner]),
            ("room", (Variable(length) if isinstance(length, str) else length) - at[lane] if lane else 1),
        )
        draft.instructions.append(
            CInstruction(
                positions,
                matrix_code(NAMES[draft.real.name], width, rows, name, in_row=step == PARTS),
                read_variables=frozenset([rows]),
                assignees=(read_element(name, tuple(at[x] for x in letters)),),
                id=draft.fresh(f"{name}_made"),
                within_inames=frozenset(loops.values()),
                within_inames_is_final=True,
                depends_on=draft.after,
                depends_on_is_final=True,
            )
        )
        lengths = {loops[x]: -(-self.sizes[x] // (width if x == lane else 1)) for x in kept}
        draft.copies.append(PartsCopy(lengths, vectors=True, along=step == PARTS))
        return name

    def _product(self, real: Subscripts, loops: Mapping[str, str], rules: tuple[str, ...]) -> tuple[str, str]:
        """One output of a step: its array and its instruction."""
        calls = tuple(
            Call(Variable(rule), tuple(Variable(loops[x]) for x in letters))
            for rule, letters in zip(rules, real.inputs, strict=True)
        )
        value = calls[0] if len(calls) == 1 else Product(calls)
        if real.summed:
            value = Reduction(SumReductionOperation(), tuple(loops[x] for x in real.summed), value)
        name = self.draft.array("result_row", real.output)
        insn_id = self.draft.fresh(f"step_{len(self.matches)}")
        kept = {x: loops[x] for x in real.output}
        self.draft.assign(name, list(kept.values()), value, kept, insn_id)
        return name, insn_id
