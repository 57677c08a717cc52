"""Parameters of plans: the meaning of a field, its word in the glossary, and its names in configurations.

    @dataclass(frozen=True)
    class WarpTiles:
        warps: int = described("sub-groups of a work-group", word="warps", parameter="sub_groups")

The prose of a parameter stands once, at the field of the plan that it decides; ``feinsum spaces``, the pages of doc/ and
the glossary read it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_type_hints

_KEY = "parameter"


@dataclass(frozen=True)
class PlanParameter:
    """The meaning of a field of a plan.

    :ivar prose: one or two sentences; with units, and what 0 or ``"none"`` stand for.
    :ivar word: the entry of ``doc/reference/glossary.rst`` under which other systems' names for it are found.
    :ivar names: the parameters of configurations that decide the field; none where it follows from the einsum alone.
    """

    prose: str
    word: str
    names: tuple[str, ...] = ()


def described(
    prose: str,
    *,
    word: str,
    parameter: str | tuple[str, ...] = (),
    default: Any = MISSING,
    default_factory: Callable[[], Any] | Any = MISSING,
) -> Any:
    """A field of a plan with its meaning; see :class:`PlanParameter`."""
    names = (parameter,) if isinstance(parameter, str) else parameter
    metadata = {_KEY: PlanParameter(" ".join(prose.split()), word, names)}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def described_fields(plan: type) -> dict[str, PlanParameter]:
    """Field of a plan -> its meaning, for the fields that state one."""
    return {f.name: f.metadata[_KEY] for f in fields(plan) if _KEY in f.metadata}


def parts_of(plan: type) -> tuple[type, ...]:
    """A plan and the frozen parts that its fields are made of, each once, from the outside in."""
    found = [plan]
    for hint in get_type_hints(plan).values():
        for kind in (hint, *get_args(hint)):
            if isinstance(kind, type) and is_dataclass(kind) and described_fields(kind):
                found += parts_of(kind)
    return tuple(dict.fromkeys(found))


def described_parameters(plan: type) -> Mapping[str, tuple[PlanParameter, ...]]:
    """Parameter of configurations -> the meanings of the fields that it decides, including those of the parts of a plan."""
    found: dict[str, tuple[PlanParameter, ...]] = {}
    for part in parts_of(plan):
        for meaning in described_fields(part).values():
            for name in meaning.names:
                found[name] = (*found.get(name, ()), meaning)
    return found
