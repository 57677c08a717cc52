"""`transform`: the best known transformation, applied to the user's own loopy kernel."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feinsum.candidates.ladder import candidates
from feinsum.canonicalization import canonicalize_einsum
from feinsum.compile.codegen import generate_program
from feinsum.compile.executable import build
from feinsum.compile.pause import deprecations_paused
from feinsum.database import Database, open_stores
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.errors import TransformError
from feinsum.generate import expected_sizes
from feinsum.match import Match, convert_operands, fence, isolate, match_einsum, without_others
from feinsum.match.domain import evaluate_lengths
from feinsum.match.expressions import is_arithmetic
from feinsum.space import Instance

if TYPE_CHECKING:
    import loopy as lp

logger = logging.getLogger(__name__)


def _is_opaque(t_unit: lp.TranslationUnit, match: Match) -> bool:
    """Whether a rule is more than arithmetic with array elements, which all spaces were proved with."""
    rules = t_unit[match.kernel_name].substitutions
    opaque = any(source in rules for source in match.arrays.values())
    return opaque or not all(is_arithmetic(rules[name].expression) for row in match.rules for name in row)


def transform(
    t_unit: lp.TranslationUnit,
    device: Device | str | Any = None,
    kernel_name: str | None = None,
    insn_match: Any = None,
    database: Database | str | os.PathLike[str] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
) -> lp.TranslationUnit:
    """Apply the best known transformation to some instructions of a loopy kernel and leave the rest of it alone.

    The transformation moves operands, which are substitution rules, without looking inside them; those of a narrower type
    than the result are converted to it.  Other instructions are kept apart by global barriers, which are added where there
    are none: what the einsum needs runs before it, the rest after, in loops of its own where a loop would go across.  Where
    a rule is more than arithmetic with array elements, a transformation is passed over if the einsum alone does not build
    with it.

    :param t_unit: a kernel that follows the grammar of :func:`feinsum.match_einsum`.
    :param insn_match: the instructions, as loopy's ``within`` takes them; None for all.
    :param sizes: lengths expected of parameters of the kernel, on which long axes depend.
    :raises MatchError: if the instructions do not form a batched einsum; the message says why.
    :raises ShapeError: if `sizes` names what no long axis depends on.
    :raises TransformError: if no transformation applies, or other instructions cannot be kept apart.
    """
    chosen = choose_device(device)
    match = match_einsum(t_unit, kernel_name, insn_match)
    t_unit, match = isolate(fence(t_unit, match), match)
    t_unit = convert_operands(t_unit, match)
    e = match.einsum
    canonical = canonicalize_einsum(e)
    expected = expected_sizes(e, evaluate_lengths(match.axes, sizes or {}))
    here = Instance.of_canonical(canonical, canonical.renaming.lengths(e.resolve(expected)), chosen.profile)
    unproved = None
    for choice in candidates(here, open_stores(database)):
        problem = choice.space.problem(e, expected, chosen.profile)
        try:
            with deprecations_paused:
                transformed = choice.space.transform(t_unit, match, choice.configuration, problem)
                unproved = unproved or transformed
                if _is_opaque(t_unit, match):
                    alone = without_others(t_unit, match)
                    alone = choice.space.transform(alone, match, choice.configuration, problem)
                    build(chosen.context, generate_program(alone))
            return transformed
        except TransformError as error:
            logger.warning("%s %s is passed over: %s", choice.space.name, dict(choice.configuration), error)
    if unproved is not None:
        return unproved  # what keeps every kernel from being built here may not do so where the compiler builds it
    raise TransformError(f"no transformation applies to '{e.subscripts}' in kernel '{match.kernel_name}'")
