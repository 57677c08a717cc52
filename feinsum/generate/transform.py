"""`transform`: the best known transformation, applied to the user's own loopy kernel."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feinsum.canonicalization import canonicalize_einsum
from feinsum.database import Database, open_stores
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.errors import TransformError
from feinsum.generate import expected_sizes
from feinsum.generate.ladder import candidates
from feinsum.match import isolate, match_einsum

if TYPE_CHECKING:
    import loopy as lp

logger = logging.getLogger(__name__)


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

    The transformation moves operands, which are substitution rules, without looking inside them.

    :param t_unit: a kernel that follows the grammar of :func:`feinsum.match_einsum`.
    :param insn_match: the instructions, as loopy's ``within`` takes them; None for all.
    :param sizes: lengths expected of parameters of the kernel that are long axes.
    :raises MatchError: if the instructions do not form a batched einsum; the message says why.
    :raises TransformError: if no transformation applies.
    """
    chosen = choose_device(device)
    t_unit, match = isolate(t_unit, match_einsum(t_unit, kernel_name, insn_match))
    e = match.einsum
    canonical = canonicalize_einsum(e)
    known = {axis: (sizes or {})[name] for axis, name in match.axes.items() if name in (sizes or {})}
    expected = expected_sizes(e, known)
    lengths = canonical.renaming.lengths(e.resolve(expected))
    for choice in candidates(canonical, lengths, chosen.profile, open_stores(database)):
        problem = choice.space.problem(e, expected, chosen.profile)
        try:
            return choice.space.transform(t_unit, match, choice.configuration, problem)
        except TransformError as error:
            logger.warning("%s %s is passed over: %s", choice.space.name, dict(choice.configuration), error)
    raise TransformError(f"no transformation applies to '{e.subscripts}' in kernel '{match.kernel_name}'")
