"""Resolving: names become views and variables, with every rule about them; what is left is a list of updates and loops.

Checks know nothing of each other, and what is unknown is not checked, so that all that is wrong is said at once, and
nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from feinsum.languages.diagnostics import Note, counted
from feinsum.languages.immediate.notation import ImmediateNotation
from feinsum.languages.immediate.reading import Reading
from feinsum.languages.immediate.resolved import Action, Fence, Loop, Resolved, ViewUpdate
from feinsum.languages.immediate.scope import NameScope
from feinsum.languages.immediate.syntax import (
    Alloca,
    Fixed,
    For,
    GetWorkItem,
    ImmediateFunction,
    ImmediateName,
    ImmediateSlice,
    ImmediateUpdate,
    Instruction,
    LifetimeStop,
    OrderBarrier,
    Subview,
)
from feinsum.languages.immediate.types import UNKNOWN, ImmediateMemref, ImmediateScalar, MemrefGroup, Type
from feinsum.languages.immediate.updates import check_update
from feinsum.languages.immediate.views import Bounds, ImmediateView, IntegerVariable, Meaning, Root, whole_root
from feinsum.languages.source import Span

MOST_NESTED = 64
"""Loops in loops."""


def resolve_names(reading: Reading, notation: ImmediateNotation) -> Resolved:
    """Look up the names of a function; what is wrong is put into the findings of `notation`."""
    return _Resolver(notation, reading.unknown).function(reading.function)


class _Resolver:
    def __init__(self, notation: ImmediateNotation, unknown: frozenset[str]) -> None:
        self._findings, self._notation = notation.findings, notation
        self._scope = NameScope(notation, unknown)
        self._fetched: dict[str, tuple[IntegerVariable | None, Span]] = {}
        self._several: dict[str, tuple[Span, Span]] = {}
        self._written: dict[str, Span] = {}
        self._is_batched = False
        self._depth = 0

    def function(self, function: ImmediateFunction) -> Resolved:
        self._is_batched = any(isinstance(i, GetWorkItem) for i in function.walk())
        for parameter in function.parameters:
            self._scope.define(parameter.name, self._argument(parameter.name, parameter.type), parameter.type)
        body, actions = self._region(function.body)
        return Resolved(replace(function, body=body), actions, self._is_batched)

    def _argument(self, name: ImmediateName, type_: Type) -> Meaning:
        if isinstance(type_, ImmediateMemref):
            return whole_root(Root(name.text, "argument", type_, span=name.span))
        if isinstance(type_, ImmediateScalar) and type_.is_integer:
            return IntegerVariable(name.text, type_, span=name.span)
        if isinstance(type_, ImmediateScalar):
            self._findings.warn("parameter-unused", name.span, f"{name} is {type_}, and no instruction takes such a number")
        return type_ if isinstance(type_, (MemrefGroup, ImmediateScalar)) else None

    def _region(self, body: Sequence[Instruction]) -> tuple[tuple[Instruction, ...], tuple[Action, ...]]:
        outside = dict(self._scope.visible)
        actions: list[Action] = []
        kept = tuple([self._instruction(instruction, actions) for instruction in body])
        self._scope.visible = outside
        return kept, tuple(actions)

    def _instruction(self, instruction: Instruction, actions: list[Action]) -> Instruction:
        match instruction:
            case Alloca():
                self._alloca(instruction)
            case GetWorkItem():
                self._get_work_item(instruction)
            case Subview():
                self._subview(instruction)
            case ImmediateUpdate():
                instruction = self._update(instruction, actions)
            case For():
                return self._for(instruction, actions)
            case LifetimeStop():
                self._lifetime_stop(instruction)
            case OrderBarrier():
                actions.append(Fence())
        return instruction

    # --- values

    def _alloca(self, instruction: Alloca) -> None:
        name, type_ = instruction.result, instruction.type
        meaning: Meaning = None
        if isinstance(type_, ImmediateMemref):
            meaning = whole_root(Root(name.text, "alloca", type_, span=name.span, depth=self._depth))
        elif type_ is not UNKNOWN:
            message = f"memory is for a memref, not for {type_}"
            fix = type_.memref if isinstance(type_, MemrefGroup) else f"memref<{type_}>"
            self._findings.error("alloca-type", instruction.span, message, [Note(f"write {fix}")])
        self._scope.define(name, meaning, type_)

    def _get_work_item(self, instruction: GetWorkItem) -> None:
        name, entry = instruction.operand, self._scope.look_up(instruction.operand)
        meaning: Meaning = None
        if isinstance(entry.meaning, MemrefGroup):
            offset = self._offset(instruction)
            if instruction.type not in (entry.type, UNKNOWN):
                note = self._findings.note(f"{name} is defined here", entry.span)
                message = f"{name} is {entry.type}, not {instruction.type}"
                self._findings.error("operand-type", instruction.span, message, [note, Note(f"write {entry.type}")])
            root = Root(instruction.result.text, "item", entry.meaning.memref, name.text, offset, instruction.result.span)
            self._fetch(instruction, offset)
            meaning = whole_root(root)
        elif entry.meaning is not None:
            note = self._findings.note(f"{name} is defined here", entry.span)
            self._findings.error("work-item-operand", name.span, f"{name} is no group but {entry.type}", [note])
        self._scope.define(instruction.result, meaning, UNKNOWN)

    def _offset(self, instruction: GetWorkItem) -> IntegerVariable | None:
        if instruction.offset is None:
            return None
        type_, name = instruction.offset
        variable = self._scope.integer(name, type_, "work-item-offset")
        if variable is not None and variable.start is not None:
            message = f"the offset {name} changes from trip to trip; only an argument can be one"
            note = Note("fetch it before the loop, and let the memref have an index for what the loop goes over")
            self._findings.error("work-item-offset", name.span, message, [note])
        return variable

    def _fetch(self, instruction: GetWorkItem, offset: IntegerVariable | None) -> None:
        group = instruction.operand.text
        before = self._fetched.setdefault(group, (offset, instruction.span))
        if before[0] is not offset:
            self._fetched[group] = (offset, instruction.span)
            self._race(group, instruction.operand.span, before[1])

    def _race(self, group: str, span: Span, other: Span) -> None:
        written = self._written.get(group)
        if written is None:
            self._several[group] = (span, other)
            return
        notes = [self._findings.note("the other offset", other), self._findings.note("it is written here", written)]
        message = f"%{group} is written, and fetched with two offsets, so that work-items meet in an item"
        self._findings.error("item-race", span, message, notes)

    # --- views

    def _subview(self, instruction: Subview) -> None:
        view = self._scope.view(instruction.operand)
        made = None
        if view is not None:
            self._scope.as_declared(instruction.operand, view.type, instruction.source, instruction.operand.span)
            made = self._part(view, instruction)
        if made is not None and isinstance(instruction.type, ImmediateMemref) and made.type != instruction.type:
            message = f"the view is {made.type}, not {instruction.type}"
            self._findings.error("subview-type", instruction.type_span, message, [Note(f"write {made.type}")])
        self._scope.define(instruction.result, made, UNKNOWN if made is None else made.type)

    def _part(self, view: ImmediateView, instruction: Subview) -> ImmediateView | None:
        entries, shape = instruction.entries, view.shape
        if len(entries) != len(shape):
            message = f"{counted(len(entries), 'index')} for {instruction.operand}, which has {len(shape)}"
            self._findings.error("subview-count", instruction.span, message)
            return None
        bounds, axes = list(view.bounds), []
        for entry, length, axis in zip(entries, shape, view.axes, strict=True):
            found = self._slice(entry, length) if isinstance(entry, ImmediateSlice) else self._point(entry, length)
            if found is None:
                return None
            low = view.bounds[axis].low
            bounds[axis] = Bounds(found.low + low, found.high + low, found.variable, low)
            if isinstance(entry, ImmediateSlice):
                axes.append(axis)
        return ImmediateView(view.root, tuple(bounds), tuple(axes), instruction.result.span)

    def _slice(self, entry: ImmediateSlice, length: int) -> Bounds | None:
        low = 0 if entry.start is None else entry.start
        high = length if entry.stop is None else entry.stop
        if 0 <= low < high <= length:
            return Bounds(low, high)
        message = f"[{low}, {high}) is no part of [0, {length})"
        self._findings.error("subview-range", entry.span, message)
        return None

    def _point(self, entry: Fixed, length: int) -> Bounds | None:
        if isinstance(entry.at, int):
            if 0 <= entry.at < length:
                return Bounds(entry.at, entry.at + 1)
            self._findings.error("subview-range", entry.span, f"{entry.at} is outside of [0, {length})")
            return None
        variable = self._scope.integer(entry.at, entry.type, "subview-index")
        if variable is None:
            return None
        if variable.start is None or variable.stop is None:
            return Bounds(0, length, variable)
        if variable.start < variable.stop and not (variable.start >= 0 and variable.stop <= length):
            range_ = f"[{variable.start}, {variable.stop})"
            note = self._findings.note(f"%{variable.name} is in {range_}: let it end at {length}", variable.span)
            message = f"%{variable.name} may be outside of [0, {length})"
            self._findings.error("subview-index", entry.span, message, [note])
            return None
        return Bounds(variable.start, max(variable.stop, variable.start + 1), variable)

    # --- instructions

    def _update(self, update: ImmediateUpdate, actions: list[Action]) -> ImmediateUpdate:
        names = (*update.operands, update.result)
        views = [self._scope.view(name) for name in names]
        types = tuple(
            declared if view is None else self._scope.as_declared(name, view.type, declared, span)
            for name, view, declared, span in zip(names, views, update.types, update.type_spans, strict=True)
        )
        update = replace(update, types=types)
        check_update(update, self._findings)
        found = [view for view in views if view is not None]
        if len(found) == len(views):
            self._check_result(update, found)
            actions.append(ViewUpdate(update, tuple(found[:-1]), found[-1]))
        return update

    def _check_result(self, update: ImmediateUpdate, views: Sequence[ImmediateView]) -> None:
        *operands, result = views
        for name, view in zip(update.operands, operands, strict=True):
            if view.overlaps(result):
                message = f"{update.result} overlaps {name}, which is read"
                self._findings.error("overlap", update.result.span, message)
        root = result.root
        if root.kind == "argument" and self._is_batched:
            note = self._findings.note(f"%{root.name} is the same for all work-items", root.span)
            message = f"{update.result} is written by every work-item"
            self._findings.error("shared-write", update.result.span, message, [note])
        if root.kind == "item":
            self._write_item(update, root)

    def _write_item(self, update: ImmediateUpdate, root: Root) -> None:
        if root.group in self._written:
            return
        self._written[root.group] = update.result.span
        group = self._scope.visible[root.group].type
        assert isinstance(group, MemrefGroup)
        if group.distance is not None and group.distance < group.memref.extent:
            place = self._scope.visible[root.group].span
            note = self._findings.note(f"the distance is {group.distance}: write {group.memref.extent} or more", place)
            message = f"items of %{root.group} overlap, and are written: each takes {group.memref.extent} elements"
            self._findings.error("item-overlap", update.result.span, message, [note])
        if root.group in self._several:
            self._race(root.group, *self._several[root.group])

    def _for(self, loop: For, actions: list[Action]) -> For:
        if not loop.type.is_integer:
            fix = Note(f"write i64 {loop.variable} = {loop.start} to {loop.stop}")
            self._findings.error("for-type", loop.span, f"a loop variable is an integer, not {loop.type}", [fix])
        elif loop.start < loop.stop:
            for value in (loop.start, loop.stop - 1):
                if not loop.type.holds(value):
                    fix = Note(f"write i64 {loop.variable} = {loop.start} to {loop.stop}")
                    self._findings.error("for-range", loop.span, f"{value} is no value of {loop.type}", [fix])
        else:
            self._findings.warn("loop-empty", loop.span, f"there is no trip from {loop.start} to {loop.stop}")
        outside = dict(self._scope.visible)
        variable = IntegerVariable(loop.variable.text, loop.type, loop.start, loop.stop, loop.variable.span)
        self._scope.define(loop.variable, variable, loop.type)
        self._depth += 1
        if self._depth > MOST_NESTED:
            if self._depth == MOST_NESTED + 1:
                self._findings.error("nesting-depth", loop.span, f"loops in loops, more than {MOST_NESTED} deep")
            body, inside = loop.body, tuple[Action, ...]()
        else:
            body, inside = self._region(loop.body)
        self._depth -= 1
        self._scope.visible = outside
        actions.append(Loop(variable, inside))
        return replace(loop, body=body)

    def _lifetime_stop(self, instruction: LifetimeStop) -> None:
        name = instruction.operand
        view = self._scope.view(name)
        if view is None or view.root in self._scope.dead:
            return
        root = view.root
        if root.kind != "alloca" or root.name != name.text or root.depth != self._depth:
            message = f"{name} is no alloca of this region"
            note = self._findings.note(f"{name} is defined here", self._scope.visible[name.text].span)
            self._findings.error("lifetime-alloca", name.span, message, [note])
            return
        self._scope.dead[root] = name.span
