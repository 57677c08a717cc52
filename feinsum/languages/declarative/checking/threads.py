"""Thread scopes: what may be changed there, and where all threads meet."""

from __future__ import annotations

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.checking.forms import FormChecker
from feinsum.languages.declarative.checking.scopes import shown_shape
from feinsum.languages.declarative.syntax import Assignment, DeclarativeCall, FormCall, GuardedBlock, SyntaxNode
from feinsum.languages.declarative.types import Typed
from feinsum.languages.diagnostics import Note


class ThreadChecker(FormChecker):
    """Checks thread scopes."""

    def in_thread(self, node: SyntaxNode) -> Typed | None:
        """The value of an allocation or a member."""
        if isinstance(node, syntax.Member):
            return self._member(node)
        assert isinstance(node, syntax.TensorType)
        typed = self.type_of(node)
        if not self.scope.thread or node.memory == "Tensor":
            where = (
                "a parameter is declared on a line of its own" if node.memory == "Tensor" else "it stands in a thread scope"
            )
            self.error("nesting", node, f"{node.memory}<...> is no value here: {where}")
        return typed and Typed(typed.shape, typed.dtype, None, node.memory == "Register", False, True)

    def _member(self, node: syntax.Member) -> Typed | None:
        names = self.scope.shared
        if not isinstance(node.base, syntax.NameUse) or node.base.name != "shared" or not self.scope.thread:
            self.error("name-undefined", node, "numbers behind a dot are for `shared`, in a thread scope")
            return None
        if node.number >= len(names):
            self.error(
                "name-undefined", node, f"this scope shares {', '.join(names) or 'nothing'}: there is no {node.number}"
            )
            return None
        known = self.scope.names[names[node.number]]
        return known if isinstance(known, Typed) else None

    def statement(self, node: FormCall) -> None:
        """A form whose value is not used: a thread scope, or a loop in one."""
        if node.kind == "affine_for" and self.scope.thread:
            self._loop(node)
        elif node.kind == "thread" and not self.scope.thread:
            self._thread(node)
        elif node.kind == "thread":
            self.error("nesting", node, "thread scopes are not nested, as work-groups are not")
        else:
            self.error("nesting", node, f"there is no {node.kind} in a thread scope, whose tensors change")

    def _loop(self, node: FormCall) -> None:
        end = node.argument("end")
        if len(node.binder) != 1 or end is None or isinstance(end, syntax.Condition) or node.argument("init") is not None:
            self.error("form", node, "a loop of a thread scope is affine_for (end = n) |k| {...}, without init")
            return
        value, extent = self.expression(end), self.extent(end)
        with self.block() as scope:
            scope.varies = scope.varies or bool(value and value.varies)
            if extent is not None:
                self.index(node.binder[0].name, extent, node.binder[0], varies=bool(value and value.varies))
            self.statements_only(node.body)

    def _thread(self, node: FormCall) -> None:
        if not self.arguments_fit(node):
            return
        threads = node.argument("threads") or next((a.value for a in node.arguments if a.name not in ("shared",)), None)
        if threads is None or isinstance(threads, syntax.Condition):
            self.error(
                "form", node, "a thread scope says how many threads it has", Note("thread (threads = 64, ...) |t| {...}")
            )
            return
        extent = self.extent(threads)
        shared = syntax.shared_names(node)
        with self.block() as scope:
            scope.thread, scope.shared = True, shared
            for name in shared:
                known = scope.names.get(name)
                if not isinstance(known, Typed) or not known.shape:
                    self.error("name-undefined", node, f"{name}, which is to be shared, is no tensor")
                    scope.names[name] = None
                else:
                    scope.names[name] = Typed(known.shape, known.dtype, writable=True)
            if len(node.binder) != 1:
                self.error("arity", node, "a thread scope binds one name: the number of the thread")
            elif extent is not None:
                self.index(node.binder[0].name, extent, node.binder[0], varies=True)
            self.statements_only(node.body)

    def statements_only(self, block: syntax.StatementBlock) -> None:
        """Check a block that has no value."""
        self.statements(block)
        if block.value is not None:
            self.error("block-value", block.value, "nothing is done with this value")

    def thread_statement(self, node: Assignment | GuardedBlock) -> None:
        """An assignment or a condition."""
        if not self.scope.thread:
            self.error("mutate", node, "nothing is changed outside of a thread scope", Note("`name = value` gives a name"))
            return
        if isinstance(node, GuardedBlock):
            condition = self.expression(node.condition)
            self.require_bool(condition, node.condition)
            with self.assuming(node.condition, True) as scope:
                scope.varies = scope.varies or bool(condition and condition.varies)
                self.statements_only(node.body)
            return
        self._assignment(node)

    def _assignment(self, node: Assignment) -> None:
        value = self.expression(node.value)
        if not isinstance(node.target, syntax.Element):
            self.error("mutate", node, "an assignment is to an element, as in y[i] = 1")
            return
        base = self.expression(node.target.base)
        if base is not None and not base.writable:
            name = node.target.base.name if isinstance(node.target.base, syntax.NameUse) else "this"
            shared = ", ".join(self.scope.shared) or "nothing"
            self.error("mutate", node, f"{name} lies outside of this scope, which shares {shared}")
            return
        target = self.expression(node.target)
        if target is not None and target.shape:
            self.error("shape", node, f"an assignment is to one element, not to {shown_shape(target.shape)}")
        if value is not None and value.shape:
            self.error("shape", node, f"one element is assigned, not {shown_shape(value.shape)}")

    def sync(self, node: DeclarativeCall) -> None:
        """A barrier."""
        if not self.scope.thread:
            self.error("nesting", node, "sync() stands in a thread scope")
        elif self.scope.varies:
            self.error("sync-uniform", node, "threads differ in whether they come to this sync()")
