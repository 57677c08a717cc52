"""Normal form: what is invariant is computed once, and what only one equation reads is computed there.

A reduction in an equation for ``y[i, j]`` that depends on ``i`` alone becomes an array with an equation of its own, without
which the softmax of a row would take its maximum once for each of its elements.  Only what is evaluated unconditionally is
moved, as what a condition guards may be out of range elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from feinsum.languages.declarative.lowering.tensor_loops import LoopScope, unchanging
from feinsum.languages.declarative.lowering.terms import (
    ArrayEquation,
    Load,
    Reduce,
    Select,
    Term,
    TermVariable,
    bound,
    rebuild_term,
    rename_variables,
    substitute,
    walk_terms,
)
from feinsum.languages.declarative.lowering.threads import ThreadScope
from feinsum.languages.declarative.lowering.tiles import TileScope

Definition: TypeAlias = ArrayEquation | LoopScope | ThreadScope | TileScope
"""The forms that make arrays."""


def normalize_equations(
    equations: Sequence[Definition], results: Sequence[str], fresh: Callable[[str], str]
) -> list[Definition]:
    """The equations with invariants hoisted, and elementwise ones put into the only equation that reads them.

    :param results: arrays that are wanted, and stay.
    :param fresh: makes names of arrays.
    """
    hoisted: list[Definition] = []
    for equation in equations:
        if isinstance(equation, ArrayEquation):
            hoisted += _hoist(equation, fresh)
        elif isinstance(equation, LoopScope):
            inside = normalize_equations(equation.body, equation.arrays, fresh)
            before, scope = unchanging(replace(equation, body=tuple(inside)))  # type: ignore[arg-type]
            hoisted += [*before, scope]
        else:
            hoisted.append(equation)
    return _needed_equations(_fuse_elementwise(hoisted, results), results)


def _hoist(equation: ArrayEquation, fresh: Callable[[str], str]) -> list[ArrayEquation]:
    """The equation, and before it those of reductions that do not depend on all of its variables."""
    if 0 in equation.shape:  # nothing of it is evaluated, and what it reads may not exist
        return [equation]
    own = frozenset(equation.variables)
    before: list[ArrayEquation] = []
    known: dict[Term, Term] = {}

    def change(term: Term, inner: frozenset[TermVariable]) -> Term:
        if isinstance(term, Select):
            return Select(term.dtype, change(term.condition, inner), term.then, term.otherwise)
        term = rebuild_term(term, lambda child: change(child, inner | set(bound(term))))
        if not isinstance(term, Reduce) or term.free & inner or term.free - own:
            return term
        if not inner and term.free == own:
            return term
        if term not in known:
            variables = tuple(v for v in equation.variables if v in term.free)
            name = fresh(f"{equation.array}_part")
            renamed = {v: TermVariable(v.dtype, f"{v.name}_{name}", v.extent) for v in variables}
            body = rename_variables(term, renamed)
            before.append(ArrayEquation(name, tuple(renamed.values()), body))
            known[term] = Load(term.dtype, name, variables)
        return known[term]

    # a reduction at the top of a scalar equation is the equation itself
    body = change(equation.body, frozenset()) if own or not isinstance(equation.body, Reduce) else equation.body
    # what was moved out of another reduction may stand beside it, too
    return [*before, ArrayEquation(equation.array, equation.variables, substitute(body, known), equation.scan)]


def _fuse_elementwise(equations: Sequence[Definition], results: Sequence[str]) -> list[Definition]:
    """The equations without those whose only reader takes each of their elements where it stands.

    A reduction goes only into what is elementwise around it: its reader must not evaluate it more than once.
    """
    left = list(equations)
    for equation in equations:
        if not isinstance(equation, ArrayEquation):
            continue
        readers = [other for other in left if equation.array in other.reads]
        if equation.array in results or equation.scan or len(readers) != 1 or readers[0].scan:
            continue
        (reader,) = readers
        if not isinstance(reader, ArrayEquation):
            continue
        loads = [t for t in walk_terms(reader.body) if isinstance(t, Load) and t.array == equation.array]
        if any(load.indices != reader.variables for load in loads) or equation.shape != reader.shape:
            continue
        if any(isinstance(t, Reduce) for t in walk_terms(equation.body)) and _has_reduction(reader):
            continue
        own = dict(zip(equation.variables, reader.variables, strict=True))
        body = substitute(reader.body, {loads[0]: rename_variables(equation.body, own)})
        left[left.index(reader)] = ArrayEquation(reader.array, reader.variables, body)
        left.remove(equation)
        return _fuse_elementwise(left, results)
    return left


def _has_reduction(equation: ArrayEquation) -> bool:
    return any(isinstance(term, Reduce) for term in walk_terms(equation.body))


def _needed_equations(equations: Sequence[Definition], results: Sequence[str]) -> list[Definition]:
    """The equations that results depend on."""
    wanted = set(results)
    found: list[Definition] = []
    for equation in reversed(equations):
        if wanted & set(equation.arrays):
            found.insert(0, equation)
            wanted |= equation.reads
    return found
