"""An emulator of thread scopes: all threads take a statement together, and what they touch is remembered until they meet.

Between two calls of `sync` threads run in any order.  So two of them race where they touch the same element and one of them
writes it, whatever the emulator's own order is: each access is compared with those since the last `sync`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import SCALARS
from feinsum.languages.declarative.interpreting.forms import FormInterpreter
from feinsum.languages.declarative.interpreting.values import IndexedValue
from feinsum.languages.declarative.syntax import FormCall, SyntaxNode
from feinsum.languages.source import Span

_NOBODY, _SEVERAL = -1, -2


@dataclass
class Storage:
    """Memory that a scope changes, with an axis for each index that was open and, if it is private, one for the threads.

    :ivar data: its numbers; `written` whether they are any.
    :ivar lead: how many axes stand in front of its own.
    :ivar writer: of each element the thread that wrote it since the last `sync`, `reader` that which read it, and where.
    """

    data: Any
    lead: int
    shared: bool
    written: Any
    writer: Any = field(init=False)
    reader: Any = field(init=False)
    places: Any = field(init=False)

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget who read and wrote what, as all threads have met."""
        self.writer = np.full(self.data.shape, _NOBODY)
        self.reader = np.full(self.data.shape, _NOBODY)
        self.places = np.full((2, *self.data.shape), _NOBODY)

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes of its own."""
        found: tuple[int, ...] = self.data.shape[self.lead :]
        return found


class ThreadInterpreter(FormInterpreter):
    """Executes thread scopes."""

    empty: set[str]
    threads: int | None = None
    """The position among the open indices of the thread's number."""

    def run_thread(self, node: FormCall) -> None:
        """Execute a thread scope, which redeclares what it shares."""
        number = node.argument("threads") or next(a.value for a in node.arguments if a.name != "shared")
        shared = syntax.shared_names(node)
        outer = tuple(self.lengths)
        stores: dict[str, Storage] = {}
        for name in shared:
            value = self.names[name]
            data = np.array(np.broadcast_to(value.at_depth(self.depth), (*outer, *value.shape)))
            unwritten = np.isnan(data) if data.dtype.kind == "f" and name in self.empty else np.zeros(data.shape, np.bool_)
            stores[name] = Storage(data, self.depth, True, ~unwritten)
        with self.over(node.binder, [self.integer(number)]):
            self.threads, self._spans = self.depth - 1, list[Span]()
            self.names.update(stores)
            self.names["shared"] = [stores[name] for name in shared]
            self.run(node.body)
            self.threads = None
        for name, store in stores.items():
            self.names[name] = IndexedValue(store.data, store.lead)
            if store.written.all():
                self.empty.discard(name)

    def allocate(self, node: syntax.TensorType) -> Storage:
        """Shared or private memory."""
        lengths = [self.integer(extent) for extent in node.extents]
        dtype = SCALARS.get(node.dtype or "f64") or self.names.get(f"dtype {node.dtype}", np.dtype(np.float64))
        shared = node.memory == "Shared"
        lead = self.lengths[: self.threads] if shared else self.lengths[: (self.threads or 0) + 1]
        shape = (*lead, *lengths)
        return Storage(np.zeros(shape, dtype), len(lead), shared, np.zeros(shape, np.bool_))

    def sync(self) -> None:
        """Let all threads meet."""
        for store in self.names.values():
            if isinstance(store, Storage):
                store.forget()

    def storage(self, node: SyntaxNode) -> Storage | None:
        """The memory that an expression names, if it names some."""
        if isinstance(node, syntax.Member):
            found: Storage = self.names["shared"][node.number]
            return found
        known = self.names.get(node.name) if isinstance(node, syntax.NameUse) else None
        return known if isinstance(known, Storage) else None

    def element(self, node: syntax.Element) -> IndexedValue:
        """Elements, those of memory too, whose reading is remembered."""
        store = self.storage(node.base)
        if store is None:
            return super().element(node)
        place = self._place(store, node)
        self._remember(store, place, node.span, writes=False)
        missing = ~store.written[place]
        if self.wanted(missing).any():
            raise self.fail("run-undefined", node.span, "this was not written before it is read")
        return IndexedValue(store.data[place], self.depth)

    def _place(self, store: Storage, node: syntax.Element) -> tuple[Any, ...]:
        """Arrays of indices for all axes of a storage, for every thread."""
        _, picks, _ = self.picked(node, None, store.shape)
        full = np.broadcast_shapes(tuple(self.lengths), *(pick.shape for pick in picks))
        leads = []
        for axis in range(store.lead):
            places = [1] * self.depth
            places[axis] = self.lengths[axis]
            leads.append(np.broadcast_to(np.arange(self.lengths[axis]).reshape(places), full))
        return (*leads, *(np.broadcast_to(pick, full) for pick in picks))

    def assign(self, node: syntax.Assignment) -> None:
        """Write an element, by every thread for which the statement is wanted."""
        assert isinstance(node.target, syntax.Element)
        store = self.storage(node.target.base)
        assert store is not None
        value = self.evaluate(node.value).at_depth(self.depth)
        place = self._place(store, node.target)
        self._remember(store, place, node.span, writes=True)
        wanted = np.broadcast_to(self.wanted(np.ones((1,) * self.depth, np.bool_)), place[0].shape)
        value = np.broadcast_to(value, wanted.shape)
        chosen = tuple(axis[wanted] for axis in place)
        store.data[chosen] = value[wanted]
        store.written[chosen] = True

    def _remember(self, store: Storage, place: tuple[Any, ...], span: Span, *, writes: bool) -> None:
        """Compare an access with what was touched since the last `sync`."""
        if not store.shared or self.threads is None:
            return
        wanted = np.broadcast_to(self.wanted(np.ones((1,) * self.depth, np.bool_)), place[0].shape)
        positions = [1] * self.depth
        positions[self.threads] = self.lengths[self.threads]
        thread = np.broadcast_to(np.arange(self.lengths[self.threads]).reshape(positions), wanted.shape)[wanted]
        chosen = tuple(axis[wanted] for axis in place)
        self._spans.append(span)
        self._compare(store.writer, store.places[0], chosen, thread, span)
        if writes:
            self._compare(store.reader, store.places[1], chosen, thread, span)
            store.writer[chosen] = thread
            store.places[0][chosen] = len(self._spans) - 1
            self._compare(store.writer, store.places[0], chosen, thread, span)  # of threads that write one element
        else:
            before = store.reader[chosen]
            store.reader[chosen] = thread
            again = store.reader[chosen]
            several = ((before != _NOBODY) & (before != thread)) | (again != thread)
            store.reader[tuple(axis[several] for axis in chosen)] = _SEVERAL
            store.places[1][chosen] = len(self._spans) - 1

    def _compare(self, who: Any, places: Any, chosen: tuple[Any, ...], thread: Any, span: Span) -> None:
        other = who[chosen]
        clash = np.flatnonzero((other != _NOBODY) & (other != thread))
        if not len(clash):
            return
        first = int(clash[0])
        where = tuple(int(axis[first]) for axis in chosen)
        before = self._spans[places[where]]
        line = self.source.place(before).line
        whom = f"thread {other[first]}" if other[first] >= 0 else "others"
        message = (
            f"thread {thread[first]} and {whom}, in line {line}, touch element {list(where)} between two calls of sync"
        )
        raise self.fail("run-race", span, message, *self.pointing(before, span))

    def pointing(self, before: Span, span: Span) -> list[Any]:
        """A note on the other place of a race."""
        from feinsum.languages.diagnostics import Findings

        return [Findings(self.source).note("the other access", before)] if before != span else []
