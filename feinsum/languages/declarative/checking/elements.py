"""Elements and slices, whose indices are looked at under the conditions that hold around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.checking.scopes import CheckedScope, Scopes, describe_value, shown_shape
from feinsum.languages.declarative.extents import Extent, plain_name
from feinsum.languages.declarative.index_bounds import Surroundings, look
from feinsum.languages.declarative.syntax import OperatorCall, SyntaxNode
from feinsum.languages.declarative.types import Typed
from feinsum.languages.diagnostics import Findings, Note, counted

COMPARISONS: Final = ("<", ">", "<=", ">=", "==", "!=")


class Elements(Scopes):
    """Checks elements and slices."""

    @contextmanager
    def assuming(self, condition: SyntaxNode, wanted: bool) -> Iterator[CheckedScope]:
        """A block where a condition holds, or does not."""
        with self.block() as scope:
            known = self._holds(condition, wanted)
            scope.conditions = (*scope.conditions, *(extent for extent in known if extent is not None))
            scope.exact = scope.exact and None not in known
            yield scope

    def _holds(self, node: SyntaxNode, wanted: bool) -> tuple[Extent | None, ...]:
        """The expressions that are not negative where a condition holds, or where it does not; None for one that cannot be
        written so."""
        if not isinstance(node, OperatorCall):
            return (None,)
        if node.operator == "not":
            return self._holds(node.operands[0], not wanted)
        if node.operator == ("and" if wanted else "or"):
            return self._holds(node.operands[0], wanted) + self._holds(node.operands[1], wanted)
        if node.operator not in COMPARISONS:
            return (None,)
        a, b = (self._quietly(operand) for operand in node.operands)
        if a is None or b is None:
            return (None,)
        operator = node.operator if wanted else _OPPOSITE[node.operator]
        one = Extent.of(1)
        return {
            "<": (b - a - one,), "<=": (b - a,), ">": (a - b - one,), ">=": (a - b,), "==": (a - b, b - a), "!=": (None,),
        }[operator]  # fmt: skip

    def _quietly(self, node: SyntaxNode) -> Extent | None:
        """The integer that an expression is, if it is one; what is wrong with it is said elsewhere."""
        findings, self.findings = self.findings, Findings(self.findings.source)
        try:
            value = self.expression(node)
        finally:
            self.findings = findings
        return value.integer if value is not None else None

    def element(self, node: syntax.Element) -> Typed | None:
        """An element or a slice, whose indices are looked at."""
        base = self.expression(node.base)
        indices = [
            index if isinstance(index, syntax.DeclarativeSlice) else self.expression(index) for index in node.indices
        ]
        if base is None:
            return None
        name = node.base.name if isinstance(node.base, syntax.NameUse) else "this"
        if len(indices) != len(base.shape):
            axes = counted(len(base.shape), "axis").replace("axiss", "axes")
            message = f"{name} has {axes}, {shown_shape(base.shape)}, and {counted(len(indices), 'index')} here"
            self.error("rank", node, message, Note("a whole axis is written ':'"))
            return None
        shape: list[Extent] = []
        varies, tuned = base.varies, base.tuned
        for index, written, extent in zip(indices, node.indices, base.shape, strict=True):
            if isinstance(index, syntax.DeclarativeSlice):
                length = self._slice(index, extent, node)
                shape.append(length if length is not None else Extent.of(f"({node.span.start})"))
            elif index is not None:
                varies = varies or index.varies
                if index.shape or not index.is_integer:
                    self.error("index", written, f"an index is an integer, and this is {describe_value(index)}")
                elif index.integer is not None:
                    self._inside(index.integer, extent, node, name, written)
        return Typed(tuple(shape), base.dtype, None, varies, tuned, base.writable)

    def _slice(self, node: syntax.DeclarativeSlice, extent: Extent, around: SyntaxNode) -> Extent | None:
        if node.start is None or node.stop is None:
            return extent
        start, stop = self.extent(node.start), self.extent(node.stop)
        if start is None or stop is None:
            return None
        self._inside(start, extent + Extent.of(1), around, "this")
        self._inside(stop, extent + Extent.of(1), around, "this")
        return stop - start

    def _inside(
        self, index: Extent, extent: Extent, node: SyntaxNode, name: str, written: SyntaxNode | None = None
    ) -> None:
        scope = self.scope
        known_here = Surroundings(scope.ranges, scope.conditions, tuple(self.whole), scope.exact)
        if look(index, extent, known_here) == "outside":
            known = ", ".join(f"0 <= {plain_name(atom)} < {e}" for atom, e in scope.ranges if atom in index.atoms)
            where = f" where {known}" if known else ""
            holds = " and ".join(f"{condition} >= 0" for condition in scope.conditions)
            under = f" and {holds}" if holds else ""
            message = f"index {index} reaches out of an axis of length {extent} of {name}{where}{under}"
            notes = []
            if written is not None:
                source, one = self.findings.source, Extent.of(1)
                text = source.quoted(written.span)
                below, above = look(index, index + one, known_here), look(extent - one - index, extent - index, known_here)
                sides = [f"{text} >= 0"] * (below != "inside") + [f"{text} < {extent}"] * (above != "inside")
                notes = [Note(f"guard it: `if {' and '.join(sides)} then {source.quoted(node.span)} else 0`")]
            self.error("bounds", node, message, *notes)


_OPPOSITE: Final = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
