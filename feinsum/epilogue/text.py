"""Epilogues as text: Python's grammar of expressions, of which nothing is evaluated, and back.

``v`` is the sum, or ``v0``, ``v1``, ... are those of several rows of which one output is made, ``out`` is the present
content of the output, ``b[j]`` an entry of an array at indices of the output, a name alone a scalar that is given at the
call, or an array of no axes.  Operators are ``+ - * / **``, comparisons, ``and``,
``or``, ``not`` and ``a if c else b``, which is ``where(c, a, b)``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from feinsum.arrays import Array, is_identifier
from feinsum.elementwise import COMPARISONS, EXPANDED, FUNCTIONS, NAMED
from feinsum.epilogue.tree import (
    EpilogueCall,
    EpilogueNumber,
    EpilogueScalar,
    Node,
    Present,
    Read,
    Sum,
    rebuild_tree,
    walk_tree,
)
from feinsum.errors import SubscriptError

SUM, PRESENT = "v", "out"

_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_DEPTH = 100
"""The deepest nesting of operators; deeper nesting is refused, as Python might not be able to walk it."""
_SIZE = 1000
"""The most operations of an argument that an expansion repeats."""
_LENGTH = 10_000
"""The most characters of a text."""


def parse_tree(text: str, output: str, arrays: Mapping[str, Array], rows: int = 1) -> Node:
    """The tree of a text, as it is written.

    :param output: the indices of the output.
    :param arrays: the arrays that may be read, by the names in the text.
    :param rows: how many rows there are of whose sums one output may be made, as of ``v0`` and ``v1``.
    :raises SubscriptError: saying what in the text has no meaning.
    """
    if not isinstance(text, str):
        raise SubscriptError(f"an epilogue is text, such as 'alpha*v + beta*out', not {text!r}")
    if len(text) > _LENGTH:
        raise SubscriptError(f"an epilogue has {len(text)} characters; {_LENGTH} are the most")
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise SubscriptError(f"the epilogue '{text}' is no expression: {message}") from None
    reader = _EpilogueParser(text, output, arrays, rows)
    node = reader.read(body, 0)
    reader.check_rows(node)
    if _is_condition(node):
        raise SubscriptError(f"the epilogue '{text}' is a truth value; make a number of it with where(condition, 1, 0)")
    return node


def read_at(text: str) -> dict[str, tuple[str, ...]]:
    """The names that are read at indices in a text, and the indices of the first such place; empty for no expression."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval"))) if len(text) <= _LENGTH else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id not in (SUM, PRESENT):
            index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            found.setdefault(node.value.id, tuple(x.id for x in index if isinstance(x, ast.Name)))
    return found


def _is_condition(node: Node) -> bool:
    return isinstance(node, EpilogueCall) and FUNCTIONS[node.function].condition


@dataclass(frozen=True)
class _EpilogueParser:
    """Reads one text.

    :ivar text: for errors.
    :ivar rows: see :func:`parse_tree`.
    """

    text: str
    output: str
    arrays: Mapping[str, Array]
    rows: int = 1

    def refuse(self, reason: str) -> SubscriptError:
        return SubscriptError(f"the epilogue '{self.text}' {reason}")

    def check_rows(self, node: Node) -> None:
        """Refuse an epilogue of some rows' sums, or of the own row's and others'."""
        read = {part.row for part in walk_tree(node) if isinstance(part, Sum)}
        if read <= {None}:
            return
        if None in read:
            first = min(row for row in read if row is not None)
            raise self.refuse(f"has 'v', the sum of each row, and 'v{first}', that of one; write v0, v1, ... or v alone")
        missing = sorted(set(range(self.rows)) - read)
        if missing:
            raise self.refuse(f"makes one output of {self.rows} rows, but has no 'v{missing[0]}'; leave that row out")

    def read(self, at: ast.expr, depth: int, *, condition: bool = False) -> Node:
        """The node of an expression.

        :param condition: whether a truth value is wanted.
        """
        if depth > _DEPTH:
            raise self.refuse(f"has more than {_DEPTH} operators within each other")
        node = self._node(at, depth + 1)
        if condition != _is_condition(node) and depth:
            wanted = "a condition, such as v > 0, is needed" if condition else "a number is needed, not a truth value"
            raise self.refuse(f"has '{ast.unparse(at)}' where {wanted}")
        return node

    def _node(self, at: ast.expr, depth: int) -> Node:
        match at:
            case ast.Constant():
                return self._constant(at)
            case ast.Name():
                return self._name(at.id)
            case ast.Subscript(value=ast.Name()):
                return self._entry(at)
            case ast.BinOp() if type(at.op) in _BINARY:
                return EpilogueCall(_BINARY[type(at.op)], (self.read(at.left, depth), self.read(at.right, depth)))
            case ast.UnaryOp(op=ast.USub()):
                return EpilogueCall("neg", (self.read(at.operand, depth),))
            case ast.UnaryOp(op=ast.UAdd()):
                return self.read(at.operand, depth)
            case ast.UnaryOp(op=ast.Not()):
                return EpilogueCall("not", (self.read(at.operand, depth, condition=True),))
            case ast.BoolOp():
                name = "and" if isinstance(at.op, ast.And) else "or"
                return _chain_text(name, [self.read(value, depth, condition=True) for value in at.values])
            case ast.Compare():
                return self._comparison(at, depth)
            case ast.IfExp():
                return self._choice((at.test, at.body, at.orelse), depth)
            case ast.Call(func=ast.Name()):
                return self._call(at, depth)
        raise self.refuse(f"has '{ast.unparse(at)}', which has no meaning there; see feinsum.BatchedEinsum.then")

    def _constant(self, at: ast.Constant) -> Node:
        value = at.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
            raise self.refuse(f"has the constant {value!r}; constants are finite real numbers")
        return EpilogueNumber(value)

    def _name(self, name: str) -> Node:
        if name == SUM:
            return Sum()
        if name == PRESENT:
            return Present()
        if name in self.arrays and not (self._is_row(name) and self.arrays[name].shape):
            return self._read(name, ())
        if name in FUNCTIONS or name in EXPANDED:
            raise self.refuse(f"names the function '{name}' without calling it; write {name}(v)")
        if name[:1] == SUM and name[1:].isdigit():
            return self._row(name)
        if not is_identifier(name):
            raise self.refuse(f"names a scalar {name!r}; use an identifier of C that is no keyword")
        return EpilogueScalar(name)

    def _is_row(self, name: str) -> bool:
        """Whether a name is that of the sum of one of several rows."""
        return self.rows > 1 and name[:1] == SUM and name[1:] in map(str, range(self.rows))

    def _row(self, name: str) -> Sum:
        if self._is_row(name):
            return Sum(int(name[1:]))
        if self.rows > 1:
            raise self.refuse(f"has '{name}', but the sums of the {self.rows} rows are v0 to v{self.rows - 1}")
        raise self.refuse(f"has '{name}'; an epilogue is of the sum of its own row, v, or one text of those of all rows")

    def _entry(self, at: ast.Subscript) -> Node:
        name = at.value.id if isinstance(at.value, ast.Name) else ""
        index = at.slice.elts if isinstance(at.slice, ast.Tuple) else [at.slice]
        letters = [x.id for x in index if isinstance(x, ast.Name)]
        if name in (SUM, PRESENT) or (self._is_row(name) and name not in self.arrays):
            if len(letters) < len(index) or "".join(letters) != self.output:
                own = f"{name}[{', '.join(self.output)}]"
                raise self.refuse(f"reads '{ast.unparse(at)}'; it is of {own}, the entry that it is worked out for, alone")
            return self._name(name)
        if len(letters) < len(index) or any(x not in self.output for x in letters):
            own = f"of the output, {', '.join(self.output)}" if self.output else "of the output, which has none"
            raise self.refuse(f"reads '{ast.unparse(at)}'; arrays are read at indices {own}")
        return self._read(name, tuple(self.output.index(x) for x in letters))

    def _read(self, name: str, axes: tuple[int, ...]) -> Node:
        if name not in self.arrays:
            letters = ", ".join(self.output[k] for k in axes)
            raise self.refuse(f"reads '{name}[{letters}]', an array that was not given; pass {name}=feinsum.array(...)")
        array = self.arrays[name]
        if len(axes) != len(array.shape):
            raise self.refuse(f"reads '{name}' at {len(axes)} indices, but {array} has {len(array.shape)} axes")
        return Read(array, axes)

    def _comparison(self, at: ast.Compare, depth: int) -> Node:
        terms = [self.read(x, depth) for x in (at.left, *at.comparators)]
        names = [_COMPARED.get(type(op)) for op in at.ops]
        if None in names:
            raise self.refuse(f"compares by '{ast.unparse(at)}'; comparisons are {', '.join(COMPARISONS)}")
        pairs = zip(names, terms, terms[1:], strict=False)
        return _chain_text("and", [EpilogueCall(str(name), (a, b)) for name, a, b in pairs])

    def _choice(self, parts: tuple[ast.expr, ast.expr, ast.expr], depth: int) -> Node:
        test, *values = parts
        return EpilogueCall("where", (self.read(test, depth, condition=True), *(self.read(x, depth) for x in values)))

    def _call(self, at: ast.Call, depth: int) -> Node:
        name = at.func.id if isinstance(at.func, ast.Name) else ""
        letters, body = EXPANDED.get(name, ("", ""))
        arity = len(letters) or (NAMED[name].arity if name in NAMED else None)
        if arity is None:
            raise self.refuse(f"calls '{name}'; it may call {', '.join(sorted([*EXPANDED, *NAMED]))}")
        if at.keywords or len(at.args) != arity or any(isinstance(x, ast.Starred) for x in at.args):
            raise self.refuse(f"has '{ast.unparse(at)}', but {name} takes {arity} argument{'s' if arity > 1 else ''}")
        if name == "where":
            return self._choice((at.args[0], at.args[1], at.args[2]), depth)
        arguments = tuple(self.read(x, depth) for x in at.args)
        if not letters:
            return EpilogueCall(name, arguments)
        if sum(1 for x in arguments for _ in walk_tree(x)) > _SIZE:
            raise self.refuse(
                f"has more than {_SIZE} operations in the argument of '{name}', which stands in it repeatedly"
            )
        expression = _EpilogueParser(body, "", {}).read(ast.parse(body, mode="eval").body, 0)
        return rebuild_tree(expression, lambda x: arguments[letters.index(x.name)] if isinstance(x, EpilogueScalar) else x)


def _chain_text(name: str, terms: list[Node]) -> Node:
    result = terms[0]
    for term in terms[1:]:
        result = EpilogueCall(name, (result, term))
    return result


_LEVELS = {"or": 1, "and": 2, "not": 3, **dict.fromkeys(COMPARISONS, 4), "+": 5, "-": 5, "*": 6, "/": 6, "neg": 7, "**": 8}
_ATOM = 9


def write_tree(node: Node, output: str) -> str:
    """The text of a tree, which :func:`parse_tree` reads back.

    :param output: the indices of the output.
    """
    return _write_node(node, output, 0)


def _write_node(node: Node, output: str, least: int) -> str:
    """The text of a node, in parentheses where it binds less than `least`."""
    match node:
        case Sum():
            return SUM if node.row is None else f"{SUM}{node.row}"
        case Present():
            return PRESENT
        case EpilogueScalar():
            return node.name
        case Read():
            return f"{node.array.name}[{', '.join(output[k] for k in node.axes)}]" if node.axes else node.array.name
        case EpilogueNumber():
            text, level = repr(node.value), _LEVELS["neg"] if node.value < 0 else _ATOM
        case EpilogueCall():
            text, level = _write_call(node, output), _LEVELS.get(node.function, _ATOM)
    return text if level >= least else f"({text})"


def _write_call(node: EpilogueCall, output: str) -> str:
    name, level = node.function, _LEVELS.get(node.function, 0)
    if name in NAMED:
        return f"{name}({', '.join(_write_node(x, output, 0) for x in node.arguments)})"
    if name == "neg":
        return f"-{_write_node(node.arguments[0], output, level + 1)}"
    if name == "not":
        return f"not {_write_node(node.arguments[0], output, level)}"
    first, second = node.arguments
    # A power binds to the right and its base is an atom; others bind to the left, comparisons to neither side.
    left = _ATOM if name == "**" else level + (name in COMPARISONS)
    right = level if name == "**" else level + 1
    spaced = name if name in ("*", "/", "**") else f" {name} "
    return f"{_write_node(first, output, left)}{spaced}{_write_node(second, output, right)}"
