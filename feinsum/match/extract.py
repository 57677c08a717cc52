"""Extraction: compilers' kernels become einsums, with the factors of each sum as substitution rules.

    y[e, i] = sum(j, 2*a[i, j] * (u[e, j] + 3*v[e, j]))

    a_0(i0, i1) := 2*a[i0, i1]
    u_v_1(i0, i1) := u[i0, i1] + 3*v[i0, i1]
    y[e, i] = sum(j, a_0(i, j) * u_v_1(e, j))

Sequential kernels of one element are normalized first (:mod:`feinsum.match.normalize`), sums that are part of an expression
get instructions of their own (:mod:`feinsum.match.sums`), and their factors become rules (:mod:`feinsum.match.factors`).
The value is the same but for rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import Any

import islpy as isl
import loopy as lp

from feinsum.errors import MatchError
from feinsum.match.domain import write_cube
from feinsum.match.einsum_grammar import refuse_guarded
from feinsum.match.epilogues import match_einsum
from feinsum.match.factors import Factors
from feinsum.match.group import RowReader
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.match import choose_instructions
from feinsum.match.normalize import normalize_kernel
from feinsum.match.sums import Rewritten, Sums, find_reductions

_log = logging.getLogger(__name__)


def extract_operands(
    t_unit: lp.TranslationUnit,
    kernel_name: str | None = None,
    insn_match: Any = None,
    *,
    reasons: MutableMapping[str, str] | None = None,
    changes: MutableMapping[str, str] | None = None,
    epilogues: bool = False,
) -> lp.TranslationUnit:
    """Turn the sums of instructions into einsums: accumulations into sums, and their factors into substitution rules.

    A factor is a part of the product under the sum: an array read, or any expression.  Reads at one tuple of inames, with
    any arithmetic of them, become a rule of that tuple, which matches as the set of the arrays; any other factor a rule of
    the inames it depends on, which matches as one opaque array.  Numbers and value arguments are multiplied into a factor
    that has a floating-point array.  Invocations of rules stay as they are.

    A factor before a sum is taken into it if that is all of the expression.  Any other sum that is a part of an expression
    is stored in an array of its own, in global memory, from which the instruction computes the rest; so is a sum whose
    result has a flat index, ``A[9*i + 3*j + k]``.

    Loops that add to an element (``A[j] = A[j] + ...``) and the temporaries in them, as form compilers write them for one
    element, are normalized before: see :mod:`feinsum.match.normalize`, and :func:`feinsum.add_loop` for the loop over all
    elements.  Instructions that share loops or temporaries are normalized together or not at all, each keeps its id, and
    each gets loops of its own.

    :param kernel_name: an entry point or a kernel that others call; None for the only entry point.
    :param insn_match: the instructions, as :func:`loopy.match.parse_match` takes them.  None for those whose sum can become
        an einsum; the others are left alone.
    :param reasons: takes, by its id, why an instruction that reduces or accumulates is left alone; the log has it, too.
    :param changes: takes, by its id, the change of an instruction.
    :param epilogues: whether the last sum of an expression stays where it is, so that ``y[i] + sum(...)`` is an einsum with
        an epilogue, for :func:`feinsum.match_einsum` and the others with the keyword of the same name.  If all its sums are
        rows of one batched einsum, all stay.
    :raises MatchError: saying why an instruction chosen by `insn_match` is no einsum even so.
    """
    given, refused, done = SourceKernel.of(t_unit, kernel_name), dict[str, str](), dict[str, str]()
    chosen = {insn.id for insn in choose_instructions(given, insn_match)}
    source = SourceKernel.of(
        normalize_kernel(given, None if insn_match is None else chosen, done, refused), given.kernel.name
    )
    wanted = insn_match is not None
    found, rules = _rewrite_instructions(source, chosen, done, wanted, epilogues=epilogues)
    rewritten, used = _accept(source, found, rules, refused, wanted)
    if reasons is not None:
        reasons.update(refused)
    instructions = source.kernel.id_to_insn
    changed = {name: made for name, made in rewritten.items() if made.instructions != (instructions[name],)}
    if not changed and not (done and rewritten):
        return t_unit
    if changes is not None:
        changes.update(done | {name: _describe_change(made, done.get(name)) for name, made in changed.items()})
    rules = {name: rule for name, rule in rules.items() if name in used or source.is_rule(name)}
    return source.t_unit.with_kernel(_replace_instructions(source.kernel.copy(substitutions=rules), rewritten))


def _rewrite_instructions(
    source: SourceKernel, chosen: set[str], made: Collection[str], wanted: bool, *, epilogues: bool
) -> tuple[dict[str, Rewritten], dict[str, lp.SubstitutionRule]]:
    """The replacements of instructions, and all rules; of sums and statements `made` here if not all are `wanted`."""
    factors = Factors(source)
    sums = Sums(source, factors)
    found = {}
    for insn in choose_instructions(source, None):
        sums_up = insn.id in made or find_reductions(getattr(insn, "expression", None))
        if insn.id in chosen and (wanted or sums_up):
            whole = sums.rewrite_whole(insn) if epilogues else None
            if whole is not None and _is_finished(source, whole, factors):
                found[insn.id] = whole
                continue
            found[insn.id] = sums.rewrite(insn, epilogues=epilogues)
            if found[insn.id].finished and not _is_finished(source, found[insn.id], factors):
                found[insn.id] = sums.rewrite(insn, epilogues=False)
    return found, {**source.kernel.substitutions, **factors.rules}


def _is_finished(source: SourceKernel, made: Rewritten, factors: Factors) -> bool:
    """Whether the rest of an instruction is an epilogue."""
    rules = {**source.kernel.substitutions, **factors.rules}
    ids = {insn.id for insn in source.kernel.instructions}
    kernel = source.kernel.copy(substitutions=rules, domains=_domains(source.kernel, [made]))
    kernel = _replace_instructions(kernel, {insn.id: made for insn in made.rest if insn.id in ids})
    try:
        match_einsum(source.t_unit.with_kernel(kernel), kernel.name, f"id:{made.rest[0].id}", epilogues=True)
    except MatchError as error:
        _log.info("%s", error)
        return False
    return True


def _accept(
    source: SourceKernel,
    found: Mapping[str, Rewritten],
    rules: Mapping[str, lp.SubstitutionRule],
    refused: MutableMapping[str, str],
    wanted: bool,
) -> tuple[dict[str, Rewritten], set[str]]:
    """The instructions whose sums are einsums, and the rules that these use; `refused` takes the reasons of the others.

    :raises MatchError: for the first that is not, if all are `wanted`.
    """
    changed = _replace_instructions(source.kernel.copy(substitutions=dict(rules)), found)
    t_unit = source.t_unit.with_kernel(changed)
    reader = RowReader(SourceKernel.of(t_unit, source.kernel.name))
    accepted, used = dict[str, Rewritten](), set[str]()
    for insn_id, made in found.items():
        try:
            if wanted and insn_id in refused:
                raise MatchError(refused[insn_id])
            if not wanted:
                refuse_guarded(source.kernel.id_to_insn[insn_id])
            calls = [rule for einsum in made.einsums for rule, _ in reader.read(einsum).row.calls]
            for insn in made.rest if made.finished else ():
                seen = match_einsum(t_unit, changed.name, f"id:{insn.id}", epilogues=True)
                calls += [rule for row in seen.rules for rule in row]
        except MatchError as error:
            if wanted:
                raise
            _log.info("%s", error)
            if find_reductions(source.kernel.id_to_insn[insn_id].expression):
                refused.setdefault(insn_id, str(error))
            continue
        accepted[insn_id] = made
        used.update(calls)
    return accepted, used


def _describe_change(made: Rewritten, before: str | None) -> str:
    """The change of an instruction."""
    text = "its factors are substitution rules"
    if made.finished and not made.einsums:
        count = len(find_reductions(made.rest[0].expression))
        text += f", and what is made of {'the sum' if count == 1 else 'the sums'} is an epilogue"
    elif made.rest:
        text = f"its sum is '{made.einsums[0].id}'" if len(made.einsums) == 1 else "its sums are instructions of their own"
    return f"{before}; {text}" if before else text


def _replace_instructions(kernel: lp.LoopKernel, rewritten: Mapping[str, Rewritten]) -> lp.LoopKernel:
    """The kernel with the instructions, arrays and loops that take the place of its own."""
    instructions: list[Any] = []
    for insn in kernel.instructions:
        instructions.extend(rewritten[insn.id].instructions if insn.id in rewritten else (insn,))
    new = {t.name: t for made in rewritten.values() for t in made.temporaries}
    return kernel.copy(
        instructions=instructions,
        temporary_variables={**kernel.temporary_variables, **new},
        domains=_domains(kernel, rewritten.values()),
    )


def _domains(kernel: lp.LoopKernel, rewritten: Iterable[Rewritten]) -> list[Any]:
    """The domains of a kernel and those of new loops."""
    cubes = [isl.BasicSet(write_cube({iname: n})) for made in rewritten for iname, n in made.lengths.items()]
    known = kernel.all_inames()
    return [*kernel.domains, *(cube for cube in cubes if not known & set(cube.get_var_names(isl.dim_type.set)))]
