"""Scopes: which names can be seen, what they stand for, and whether they are what an instruction says they are."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count

from feinsum.languages.diagnostics import Note
from feinsum.languages.immediate.notation import ImmediateNotation
from feinsum.languages.immediate.syntax import ImmediateName
from feinsum.languages.immediate.types import UNKNOWN, ImmediateMemref, ImmediateScalar, MemrefGroup, Type
from feinsum.languages.immediate.views import ImmediateView, IntegerVariable, Meaning, Root
from feinsum.languages.source import Span


@dataclass
class ScopeEntry:
    """The meaning of a name, and the place of its definition."""

    meaning: Meaning
    span: Span
    type: Type


class NameScope:
    """The names that can be seen at one place.

    :param unknown: names that were defined in what could not be read.
    :ivar dead: allocas whose end was declared, and where.
    """

    def __init__(self, notation: ImmediateNotation, unknown: frozenset[str]) -> None:
        self._findings, self._notation = notation.findings, notation
        self.visible: dict[str, ScopeEntry] = {name: ScopeEntry(None, Span(0, 0), UNKNOWN) for name in unknown}
        self._left_out = set(unknown)
        self.dead: dict[Root, Span] = {}

    def define(self, name: ImmediateName, meaning: Meaning, type_: Type) -> None:
        """Let a name stand for something from here on."""
        if name.text in self.visible and name.text not in self._left_out:
            other = self._findings.note(f"the other {name}", self.visible[name.text].span)
            fix = Note(f"write {name}{next(k for k in count() if f'{name.text}{k}' not in self.visible)}")
            self._findings.error("name-redefined", name.span, f"{name} is defined already", [other, fix])
        self._left_out.discard(name.text)
        self.visible[name.text] = ScopeEntry(meaning, name.span, type_)

    def look_up(self, name: ImmediateName) -> ScopeEntry:
        """The meaning of a name; an undefined one is reported once."""
        entry = self.visible.get(name.text)
        if entry is None:
            close = get_close_matches(name.text, self.visible, 1)
            there = [self._findings.note(f"there is %{close[0]}", self.visible[close[0]].span)] if close else []
            notes = [*there, Note(f"write %{close[0]}" if close else f"define it: `{name} = ...`, or a parameter")]
            message = f"{name} is not defined, or not where it can be seen here"
            self._findings.error("name-undefined", name.span, message, notes)
            entry = self.visible[name.text] = ScopeEntry(None, name.span, UNKNOWN)
            self._left_out.add(name.text)
        return entry

    def view(self, name: ImmediateName) -> ImmediateView | None:
        """The tensor that a name stands for."""
        entry = self.look_up(name)
        if isinstance(entry.meaning, ImmediateView):
            died = self.dead.get(entry.meaning.root)
            if died is not None:
                note = self._findings.note("it ended here", died)
                self._findings.error("lifetime-use", name.span, f"{name} is used behind its end", [note])
            return entry.meaning
        if entry.meaning is not None:
            notes = [self._findings.note(f"{name} is defined here", entry.span)]
            if isinstance(entry.meaning, MemrefGroup):
                notes.append(Note(f"fetch its item: `%x = get_work_item {name} : {entry.type}`"))
            what = "a group" if isinstance(entry.meaning, MemrefGroup) else "a number"
            self._findings.error("operand-memref", name.span, f"{name} is {what}, not a memref", notes)
        return None

    def as_declared(self, name: ImmediateName, known: ImmediateMemref, declared: Type, span: Span) -> ImmediateMemref:
        """The type that counts, where an instruction repeats that of an operand."""
        if known == declared or not isinstance(declared, ImmediateMemref):
            return known
        entry = self.visible[name.text]
        note = self._findings.note(f"{name} is defined here", entry.span)
        message = f"{name} is {known}, not {declared}"
        fix = Note(f"write {known}")
        if known.element == declared.element and sorted(known.shape) == sorted(declared.shape):
            self._notation.lenient("lenient-type", span, message, [note, fix])
        else:
            self._findings.error("operand-type", span, message, [note, fix])
        return known

    def integer(self, name: ImmediateName, type_: ImmediateScalar | None, rule: str) -> IntegerVariable | None:
        """The integer that a name stands for, of the type that is written in front of it."""
        entry = self.look_up(name)
        if isinstance(entry.meaning, IntegerVariable):
            if entry.type != type_:
                note = self._findings.note(f"{name} is defined here", entry.span)
                fix = Note(f"`{entry.type} {name}` is what to write")
                self._findings.error(rule, name.span, f"{name} is {entry.type}, not {type_}", [note, fix])
            return entry.meaning
        if entry.meaning is not None:
            note = self._findings.note(f"{name} is defined here", entry.span)
            self._findings.error(rule, name.span, f"{name} is no integer", [note])
        return None
