"""Normal form of a program: a text that does not depend on how things in it are called, nor on blanks and comments.

Tuned numbers, alternatives and their ways keep their names, in which configurations are written; everything else that a
program names is called by the order in which it is met, and type variables are the types that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import SCALARS
from feinsum.languages.declarative.open_choices import choices_of
from feinsum.languages.declarative.printing import show
from feinsum.languages.declarative.syntax import DeclarativeFunction, SyntaxNode
from feinsum.languages.trees import with_changed_children

_WORDS: Final = ("op", "dtype", "layout", "type")
"""Arguments whose values are words of the language."""


def normal_text(function: DeclarativeFunction, types: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The normal form of a program, and its names by those of the program.

    :param types: what type variables stand for, and parameters without one: by the name of the parameter.
    """
    names = _normal_names(function)
    body = _renamed_node(function.body, names, types)
    assert isinstance(body, syntax.StatementBlock)
    typed = tuple(_typed(statement, old.name, types) if isinstance(old, syntax.Declaration) else statement
                  for statement, old in zip(body.statements, function.body.statements, strict=True))  # fmt: skip
    text = show([DeclarativeFunction("program", replace(body, statements=typed))])
    return "\n".join(line.strip() for line in text.splitlines()), names


def _typed(statement: Any, name: str, types: Mapping[str, str]) -> Any:
    """A declaration with its type written out."""
    if isinstance(statement.type, syntax.TensorType) and statement.type.dtype is None and name in types:
        return replace(statement, type=replace(statement.type, dtype=types[name]))
    return statement


def _normal_names(function: DeclarativeFunction) -> dict[str, str]:
    """The names of a program, and what they are in its normal form."""
    kept = {choice.name for choice in choices_of(function)} | {way for c in choices_of(function) for way in c.ways}
    bound: dict[str, None] = {}
    for node in syntax.walk_nodes(function.body):
        if isinstance(node, (syntax.Declaration, syntax.Let, syntax.DeclarativeParameter)):
            bound.setdefault(node.name)
        if isinstance(node, syntax.CallArgument) and node.type is not None:
            bound.setdefault(node.name)
        if isinstance(node, syntax.Declaration):
            for name in syntax.walk_nodes(node.type):
                if isinstance(name, syntax.NameUse):
                    bound.setdefault(name.name)
    fresh = (name for name in map("n{}".format, count()) if name not in kept)
    return {name: next(fresh) for name in bound if name not in kept} | {name: name for name in kept}


def _renamed_node(node: Any, names: Mapping[str, str], types: Mapping[str, str]) -> Any:
    if isinstance(node, syntax.CallArgument) and node.name in _WORDS and isinstance(node.value, syntax.NameUse):
        return replace(node, value=syntax.NameUse(types.get(node.value.name, node.value.name)))
    changes: dict[str, Any] = {}
    node = with_changed_children(node, SyntaxNode, lambda child: _renamed_node(child, names, types))
    declares = isinstance(node, syntax.CallArgument) and node.type is not None
    if declares or isinstance(node, (syntax.NameUse, syntax.Let, syntax.Declaration, syntax.DeclarativeParameter)):
        changes["name"] = names.get(node.name, node.name)
    elif isinstance(node, syntax.DeclarativeCall):
        changes["function"] = names.get(node.function, node.function)
    elif isinstance(node, syntax.TensorType) and node.dtype not in SCALARS:
        changes["dtype"] = types.get(node.dtype or "", node.dtype)
    elif isinstance(node, syntax.ScalarType) and node.name not in SCALARS:
        changes["name"] = types.get(node.name, node.name)
    return replace(node, **changes)
