"""Whether what a transformation returns is the kernel that it was given: one that takes no other arguments."""

from __future__ import annotations

from typing import Any

import loopy as lp

from feinsum.match.match import Match


def why_another(result: Any, given: lp.TranslationUnit, match: Match) -> str | None:
    """Why something is not the kernel of a match, transformed, as in ``"an int"``; None if it may be."""
    if not isinstance(result, lp.TranslationUnit):
        return "nothing" if result is None else f"an object of type '{type(result).__name__}'"
    if match.kernel_name not in result.callables_table:
        return f"a translation unit without kernel '{match.kernel_name}'"
    ours, own = _argument_infos(given, match), _argument_infos(result, match)
    # Sums of which one output is made are arguments before, and none after.
    differing = sorted(name for name, argument in own.items() if ours.get(name) != argument)
    if not own:
        return "a kernel without arguments"
    return f"a kernel with another argument '{differing[0]}'" if differing else None


def _argument_infos(t_unit: lp.TranslationUnit, match: Match) -> dict[str, Any]:
    """The facts that a caller has to know about each argument."""
    arguments = t_unit[match.kernel_name].args
    return {a.name: (a.dtype, getattr(a, "shape", ()), getattr(a, "is_output", False)) for a in arguments}
