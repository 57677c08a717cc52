"""Chains: an einsum as einsums one after the other, each with a kernel of its own, written down as one text.

    [{"configuration":{"items":64,...},"operands":[1,2],"output":"bc","space":"generic","version":1},{...}]

The text is the value of one parameter of a configuration, so a record that has it says all that its kernel is made of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from feinsum.contraction import ContractionSchedule, ContractionStep
from feinsum.errors import SubscriptError, TransformError
from feinsum.subscripts import Subscripts

STEPS = "steps"
"""The one parameter of a configuration that is a chain."""


@dataclass(frozen=True)
class Link:
    """One step of a chain.

    :ivar operands: what it contracts, as in :class:`feinsum.contraction.ContractionStep`.
    :ivar output: the indices of its result, outer ones first.
    :ivar space: the name of the transform space, of version `version`, that makes its kernel.
    :ivar configuration: of that space, in the letters in which the space knows the einsum of the step.
    """

    operands: tuple[int, ...]
    output: str
    space: str
    version: int
    configuration: Mapping[str, Any]


def write_chain(links: Sequence[Link]) -> str:
    """The text of a chain; equal chains have equal texts."""
    data = [{**vars(link), "configuration": dict(link.configuration)} for link in links]
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def read_chain(text: Any) -> tuple[Link, ...]:
    """The chain that :func:`write_chain` wrote.

    :raises TransformError: if `text` is something else; the message says what.
    """
    try:
        data = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise TransformError(f"the steps of a chain are JSON, not {str(text)[:80]!r}: {error}") from None
    if not isinstance(data, list) or not data:
        raise TransformError(f"the steps of a chain are a list of objects, not {str(text)[:80]!r}")
    links = tuple(_read_link(f"step {s} of a chain", item) for s, item in enumerate(data))
    if write_chain(links) != text:
        raise TransformError(f"the steps of a chain are not written as they would be again: {write_chain(links)}")
    return links


_TYPES: Mapping[str, type] = {"operands": list, "output": str, "space": str, "version": int, "configuration": dict}


def _read_link(where: str, item: Any) -> Link:
    names = {f.name for f in fields(Link)}
    if not isinstance(item, dict) or set(item) != names:
        raise TransformError(f"{where} is {str(item)[:80]!r}; it is an object of {', '.join(sorted(names))}")
    for name, kind in _TYPES.items():
        if type(item[name]) is not kind:
            raise TransformError(f"{name} of {where} is {item[name]!r}; it is a {kind.__name__}")
    if not all(type(k) is int for k in item["operands"]):
        raise TransformError(f"operands of {where} are {item['operands']!r}; they are numbers")
    return Link(tuple(item["operands"]), item["output"], item["space"], item["version"], item["configuration"])


def schedule_of_links(links: Sequence[Link], indexing: Subscripts) -> ContractionSchedule:
    """The schedule of a chain.

    :raises SubscriptError: if the chain does not evaluate `indexing`.
    """
    terms = dict(enumerate(indexing.inputs))
    steps = []
    for s, link in enumerate(links):
        missing = [k for k in link.operands if k not in terms]
        if missing or not link.operands:
            raise SubscriptError(f"step {s} of the chain takes operands {list(link.operands)} of '{indexing}'")
        inputs = tuple(terms[k] for k in link.operands)
        steps.append(ContractionStep(link.operands, Subscripts(inputs, link.output)))
        terms[len(indexing.inputs) + s] = link.output
    schedule = ContractionSchedule(tuple(steps))
    schedule.check(indexing)
    return schedule
