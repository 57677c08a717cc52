"""Parameters of plans: what a field of a plan means, in which word, and what configurations call it.

    @dataclass(frozen=True)
    class WarpTiles:
        warps: int = described("sub-groups of a work-group", word="warps", parameter="sub_groups")

The prose of a parameter stands once, at the field of the plan that it decides; ``feinsum spaces``, the pages of doc/ and
the glossary read it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

_KEY = "parameter"


@dataclass(frozen=True)
class Parameter:
    """What a field of a plan means.

    :ivar prose: one or two sentences; with units, and what 0 or ``"none"`` stand for.
    :ivar word: the entry of ``doc/glossary.rst`` under which other systems' names for it are found.
    :ivar names: the parameters of configurations that decide the field; none where it follows from the einsum alone.
    """

    prose: str
    word: str
    names: tuple[str, ...] = ()


def described(prose: str, *, word: str, parameter: str | tuple[str, ...] = (), default: Any = MISSING) -> Any:
    """A field of a plan with its meaning; see :class:`Parameter`."""
    names = (parameter,) if isinstance(parameter, str) else parameter
    return field(default=default, metadata={_KEY: Parameter(" ".join(prose.split()), word, names)})


def described_fields(plan: type) -> dict[str, Parameter]:
    """Field of a plan -> what it means, for those that say so."""
    return {f.name: f.metadata[_KEY] for f in fields(plan) if _KEY in f.metadata}


def described_parameters(plan: type) -> Mapping[str, tuple[Parameter, ...]]:
    """Parameter of configurations -> what the fields of a plan that it decides mean."""
    found: dict[str, tuple[Parameter, ...]] = {}
    for described_field in described_fields(plan).values():
        for name in described_field.names:
            found[name] = (*found.get(name, ()), described_field)
    return found
