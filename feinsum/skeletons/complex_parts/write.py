"""The move that contracts complex numbers as pairs of reals, so that vectors multiply them.

A complex number is a row of two reals, or the matrix that such a row is multiplied with::

    (a + ib)(c + id)  =  [a b] [ c d]          out[i, k, p] = Σ_jq A[i, j, q] B[j, q, k, p]
                               [-d c]

so a product of complex matrices is one of real matrices, with two numbers for one of A and four for one of B, in which the
two parts of a result are neighbours.  It takes the four products of reals that the definition asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from string import ascii_letters
from typing import Any

import islpy as isl
import loopy as lp
from loopy.kernel.data import Iname
from loopy.kernel.instruction import CInstruction
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction
from pymbolic.primitives import Call, Product, Variable

from feinsum.contraction import ContractionSchedule, Step
from feinsum.einsum import Array, BatchedEinsum
from feinsum.errors import TransformError
from feinsum.lower.same_bytes import SameBytes, runs_through
from feinsum.lower.steps import fresh_name, read
from feinsum.match import Match
from feinsum.rewrites.reads import with_rules
from feinsum.rewrites.vectors.access import NAMES
from feinsum.skeletons.complex_parts.copies import Copy, matrix_code, on_groups
from feinsum.subscripts import Subscripts


def contract_in_parts(
    t_unit: lp.TranslationUnit, match: Match, schedule: ContractionSchedule, sizes: Mapping[str, int], width: int
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

    Matrices are made of the operand that has the last index of the result, so that lanes run along their rows.

    :param sizes: lengths of the indices, by which the copies are spread over groups.
    :param width: the complex numbers of a vector that copies: 1, 2, 4 or 8.
    :returns: the kernel, and the match of each step, whose einsum is one of reals.
    :raises SubscriptError: if the schedule does not evaluate the einsum of the match.
    :raises TransformError: if operands and outputs are not complex numbers of one kind, a step has three operands, or an
        instruction has a predicate.
    """
    e, kernel = match.einsum, t_unit[match.kernel_name]
    schedule.check(e.indexing)
    rows = [kernel.id_to_insn[insn_id] for insn_id in match.insn_ids]
    if any(insn.predicates for insn in rows):
        raise TransformError(f"instruction '{rows[0].id}' has a predicate, which the steps of a schedule cannot have")
    if not of_complex(e):
        raise TransformError(f"operands and outputs of '{e}' are not complex numbers of one kind")
    if any(len(step.operands) > 2 for step in schedule.steps):
        raise TransformError(f"a step of '{e}' has more than two operands; contract them in pairs")
    taken = set(kernel.all_variable_names()) | set(kernel.id_to_insn) | set(kernel.substitutions)
    after = frozenset[str]().union(*(insn.depends_on for insn in rows)) - set(match.insn_ids)
    launches = _Launches(kernel, match, sizes, width, taken, after)
    for step in schedule.steps:
        launches.contract(step)
    launches.join()
    domains = [isl.BasicSet(domain) for domain in launches.domains]
    inames = [name for domain in domains for name in domain.get_var_dict(isl.dim_type.set)]
    kernel = kernel.copy(
        domains=[*kernel.domains, *domains],
        inames={**kernel.inames, **{name: Iname(name, frozenset()) for name in inames}},
        instructions=[insn for insn in kernel.instructions if insn.id not in match.insn_ids] + launches.instructions,
        substitutions={**kernel.substitutions, **{rule.name: rule for rule in launches.rules}},
        temporary_variables={**kernel.temporary_variables, **{t.name: t for t in launches.temporaries}},
    )
    for copy in launches.copies:
        kernel = on_groups(kernel, copy)
    return t_unit.with_kernel(lp.remove_unused_inames(kernel)), tuple(launches.matches)


def of_complex(e: BatchedEinsum) -> bool:
    """Whether operands and outputs are complex numbers of one kind."""
    kinds = {dtype.name for dtype in (*e.dtypes, *(a.dtype for a in e.arrays))}
    return len(kinds) == 1 and kinds <= {"complex64", "complex128"}


def in_rows(indexing: Subscripts, parts: str) -> Subscripts:
    """The real einsum of a step: rows times matrices, or rows alone.

    Rows keep the order of their axes; those of matrices stand as they are read.

    :param parts: two letters that the step has not; the first one is for the parts of the result.

    >>> from feinsum.subscripts import Subscripts
    >>> in_rows(Subscripts(("ji", "kj"), "ik"), "pq").inputs
    ('jiq', 'jqkp')
    """
    part, inner = parts[0], parts[1]
    output, summed = indexing.output, indexing.summed
    if len(indexing.inputs) == 1:
        return Subscripts((indexing.inputs[0] + part,), output + part)
    right = matrix_of(indexing)
    matrix, row = indexing.inputs[right], indexing.inputs[1 - right]
    common = "".join(x for x in output if x in matrix and x in row)
    kept = "".join(x for x in output if x in matrix and x not in row)
    own = "".join(x for x in summed if x in matrix)
    terms = (row + inner, common + own + inner + kept + part)
    return Subscripts(terms if right else terms[::-1], output + part)


def matrix_of(indexing: Subscripts) -> int:
    """Which of two operands is to be made matrices of: the one with the last index of the result, or else the second."""
    last = indexing.output[-1:]
    return 0 if last and last in indexing.inputs[0] and last not in indexing.inputs[1] else 1


@dataclass(frozen=True)
class _Term:
    """What is left to contract: a rule of complex numbers, or an array whose last axis are their parts."""

    name: str
    letters: str
    is_rule: bool

    def parts(self, loops: Mapping[str, str]) -> tuple[Any, Any]:
        """The real and the imaginary part at some loops."""
        at = tuple(Variable(loops[x]) for x in self.letters)
        if self.is_rule:
            value = Call(Variable(self.name), at)
            return Call(Variable("real"), (value,)), Call(Variable("imag"), (value,))
        return read(self.name, (*at, 0)), read(self.name, (*at, 1))


@dataclass
class _Launches:
    """The launches while they are written down.

    :ivar after: what the next launch comes after.
    :ivar terms: for each output, what is left to contract.
    :ivar made: what was copied or contracted before, and the name of the array.
    """

    kernel: lp.LoopKernel
    match: Match
    sizes: Mapping[str, int]
    width: int
    taken: set[str]
    after: frozenset[str]
    terms: list[dict[int, _Term]] = field(default_factory=list)
    made: dict[Any, str] = field(default_factory=dict)
    domains: list[str] = field(default_factory=list)
    instructions: list[Any] = field(default_factory=list)
    temporaries: list[lp.TemporaryVariable] = field(default_factory=list)
    rules: list[lp.SubstitutionRule] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)

    def __post_init__(self) -> None:
        e = self.match.einsum
        self.terms = [
            {k: _Term(*term, is_rule=True) for k, term in enumerate(zip(row, e.indexing.inputs, strict=True))}
            for row in self.match.rules
        ]
        self.real = e.dtypes[0].type(0).real.dtype
        self.new_letters = "".join([x for x in ascii_letters if x not in e.indexing.indices][:2])
        self.lengths: dict[str, Any] = dict.fromkeys(self.new_letters, 2)
        for x, length in e.index_sizes.items():
            self.lengths[x] = length if isinstance(length, int) else self.match.names[str(length)]

    def contract(self, step: Step) -> None:
        """Copy the operands of a step for all outputs, then contract them."""
        number, real = len(self.matches), in_rows(step.indexing, self.new_letters)
        operands = [
            [
                self._operand(terms.pop(k), letters, is_matrix=len(real.inputs) == 2 and n == matrix_of(step.indexing))
                for n, (k, letters) in enumerate(zip(step.operands, real.inputs, strict=True))
            ]
            for terms in self.terms
        ]
        self._wait()
        loops = self._nest(real.indices)
        results: dict[tuple[str, ...], tuple[str, str]] = {}
        for terms, rules in zip(self.terms, operands, strict=True):
            if tuple(rules) not in results:
                results[tuple(rules)] = self._product(real, loops, tuple(rules))
            result, _ = results[tuple(rules)]
            terms[self.match.einsum.n + number] = _Term(result, real.output[:-1], is_rule=False)
        args = tuple(
            tuple(
                (Array(rule, tuple(map(self._axis, letters)), self.real),)
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
        output = self.match.einsum.indexing.output
        for terms, name, insn_id in zip(self.terms, self.match.outputs, self.match.insn_ids, strict=True):
            self._wait()
            loops = self._nest(output)
            (term,) = terms.values()
            real, imag = term.parts(loops)
            self._write(name, [loops[x] for x in output], real + 1j * imag, loops, insn_id)
            self._tag_bytes(1, self.instructions[-1].assignee, term.name, loops)
            self.copies.append(Copy({loops[x]: self.sizes[x] for x in output}, vectors=False, along=True))

    def _axis(self, letter: str) -> Any:
        return self.match.einsum.index_sizes.get(letter, 2)

    def _operand(self, term: _Term, letters: str, *, is_matrix: bool) -> str:
        """The rule that reads an operand as rows or as matrices, with its axes in this order."""
        rows = self.made[term] if term in self.made else self._rows(term)
        self.made[term] = name = rows
        if is_matrix:
            self.made[rows, letters] = name = self.made.get((rows, letters)) or self._matrices(rows, term.letters, letters)
        if f"{name}[]" not in self.made:
            formal = tuple(f"i{axis}" for axis in range(len(letters)))
            self.made[f"{name}[]"] = fresh_name(f"{name}_", self.taken)
            value = read(name, tuple(map(Variable, formal)))
            self.rules.append(lp.SubstitutionRule(self.made[f"{name}[]"], formal, value))
        return self.made[f"{name}[]"]

    def _rows(self, term: _Term) -> str:
        """The array with the parts of what is left; complex numbers are copied by a launch."""
        if not term.is_rule:
            return term.name
        self._wait()
        loops = self._nest(term.letters)
        name = self._array(f"{term.name}_row", term.letters + self.new_letters[0])
        for number, value in enumerate(term.parts(loops)):
            self._write(name, [*loops.values(), number], value, loops, fresh_name(f"{name}_{number}", self.taken))
        call = Call(Variable(term.name), tuple(map(Variable, loops.values())))
        self._tag_bytes(2, with_rules(self.kernel, call), name, loops)
        self.copies.append(Copy({loops[x]: self.sizes[x] for x in term.letters}, vectors=False, along=True))
        return name

    def _matrices(self, rows: str, own: str, letters: str) -> str:
        """A launch that copies rows, whose axes are `own`, as matrices, a vector of numbers in each iteration."""
        self._wait()
        part, inner = self.new_letters[0], self.new_letters[1]
        name = self._array(f"{rows}_matrix", letters)
        kept = "".join(x for x in letters if x not in self.new_letters)
        lane = kept[-1:]
        width = self.width if letters.endswith(lane + part) else 1
        loops = self._nest(kept, **({lane: width} if lane else {}))
        at = {x: Variable(loop) * (width if x == lane else 1) for x, loop in loops.items()} | {part: 0, inner: 0}
        sources, targets = self._strides(own + part), self._strides(letters)
        step = sources.get(lane, 2)
        length = self.lengths[lane] if lane else 1
        positions = (
            ("first", sum(at[x] * sources[x] for x in own)),
            ("to", sum(at[x] * targets[x] for x in letters)),
            ("step", step),
            ("below", targets[inner]),
            ("room", (Variable(length) if isinstance(length, str) else length) - at[lane] if lane else 1),
        )
        scalar = NAMES[self.real.name]
        self.instructions.append(
            CInstruction(
                positions,
                matrix_code(scalar, width, rows, name, in_row=step == 2),
                read_variables=frozenset([rows]),
                assignees=(read(name, tuple(at[x] for x in letters)),),
                id=fresh_name(f"{name}_made", self.taken),
                within_inames=frozenset(loops.values()),
                within_inames_is_final=True,
                depends_on=self.after,
                depends_on_is_final=True,
            )
        )
        lengths = {loops[x]: -(-self.sizes[x] // (width if x == lane else 1)) for x in kept}
        self.copies.append(Copy(lengths, vectors=True, along=step == 2))
        return name

    def _strides(self, letters: str) -> dict[str, Any]:
        """How far apart neighbours along each axis of an array are."""
        strides: dict[str, Any] = {}
        step: Any = 1
        for x in reversed(letters):
            strides[x] = step
            step = step * (Variable(self.lengths[x]) if isinstance(self.lengths[x], str) else self.lengths[x])
        return strides

    def _tag_bytes(self, count: int, element: Any, copy: str, loops: Mapping[str, str]) -> None:
        """Say of the last instructions that they copy the bytes of an argument to an array or back, if it is so."""
        if runs_through(self.kernel, element, {loop: self.lengths[x] for x, loop in loops.items()}):
            tag = SameBytes(element.aggregate.name, copy)
            self.instructions[-count:] = [insn.copy(tags=frozenset([tag])) for insn in self.instructions[-count:]]

    def _product(self, real: Subscripts, loops: Mapping[str, str], rules: tuple[str, ...]) -> tuple[str, str]:
        """One output of a step: its array and its instruction."""
        calls = tuple(
            Call(Variable(rule), tuple(Variable(loops[x]) for x in letters))
            for rule, letters in zip(rules, real.inputs, strict=True)
        )
        value = calls[0] if len(calls) == 1 else Product(calls)
        if real.summed:
            value = Reduction(SumReductionOperation(), tuple(loops[x] for x in real.summed), value)
        name = self._array("result_row", real.output)
        insn_id = fresh_name(f"step_{len(self.matches)}", self.taken)
        kept = {x: loops[x] for x in real.output}
        self._write(name, list(kept.values()), value, kept, insn_id)
        return name, insn_id

    def _array(self, stem: str, letters: str) -> str:
        name = fresh_name(stem, self.taken)
        shape = tuple(Variable(n) if isinstance(n, str) else n for n in (self.lengths[x] for x in letters))
        self.temporaries.append(
            lp.TemporaryVariable(name, dtype=self.real, shape=shape, address_space=lp.AddressSpace.GLOBAL)
        )
        return name

    def _nest(self, letters: str, **together: int) -> dict[str, str]:
        """New loops, each in a set of its own.

        :param together: how many of an index an iteration treats.
        """
        loops = {x: fresh_name(f"{x}_{len(self.domains)}", self.taken) for x in letters}
        for x, loop in loops.items():
            head = f"[{self.lengths[x]}] -> " if isinstance(self.lengths[x], str) else ""
            self.domains.append(f"{head}{{[{loop}]: 0 <= {loop} and {together.get(x, 1)} {loop} < {self.lengths[x]}}}")
        return loops

    def _wait(self) -> None:
        """A barrier after what was written down so far, if anything was."""
        if not self.instructions:
            return
        before = frozenset(insn.id for insn in self.instructions) | self.after
        barrier = lp.BarrierInstruction(fresh_name("barrier", self.taken), depends_on=before, synchronization_kind="global")
        self.instructions.append(barrier)
        self.after = frozenset([barrier.id])

    def _write(self, name: str, index: list[Any], value: Any, loops: Mapping[str, str], insn_id: str) -> None:
        self.instructions.append(
            lp.Assignment(
                read(name, tuple(Variable(x) if isinstance(x, str) else x for x in index)),
                value,
                id=insn_id,
                within_inames=frozenset(loops.values()),
                within_inames_is_final=True,
                depends_on=self.after,
                depends_on_is_final=True,
            )
        )
