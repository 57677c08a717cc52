"""Random programs of the declarative language that are right, and what they compute by plain arithmetic of numpy's scalars.

Arrays hold multiples of an eighth, so that sums and products are exact as long as an expression is small; where one is not,
or a function has rounded it, no condition looks at it, as another order of summing would decide otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import feinsum as fe

Names = Mapping[str, Any]
Evaluate = Callable[[Names], Any]

FLOATS = ("f32", "f64")
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64")
_NUMPY = {
    "bool": np.bool_, "f32": np.float32, "f64": np.float64, "i8": np.int8, "u8": np.uint8, "i16": np.int16,
    "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64,
}  # fmt: skip
_WEAK = ("int", "float")
_INTEGER_BITS = 24
"""Of integers at most, so that none overflows 32 bits on its way."""


@dataclass(frozen=True)
class Expression:
    """A text and what it is.

    :ivar dtype: a type of the language; "int" and "float" are those of literals.
    :ivar bits: before the point and behind it; None if the value is rounded.
    """

    text: str
    dtype: str
    value: Evaluate
    bits: tuple[int, int] | None = None

    @property
    def is_integer(self) -> bool:
        return self.dtype == "int" or self.dtype in INTEGERS


def numpy_type(dtype: str) -> Any:
    """The type of an array, or of a result."""
    return _NUMPY.get(dtype, np.int64 if dtype == "int" else np.float64)


def common(*dtypes: str) -> str:
    """The type of what is computed from others."""
    strong = [np.dtype(_NUMPY[d]) for d in dtypes if d not in _WEAK]
    if not strong:
        return "float" if "float" in dtypes else "int"
    found = np.result_type(*strong)
    if "float" in dtypes and found.kind != "f":
        return "f64"
    return next(name for name, known in _NUMPY.items() if np.dtype(known) == found)


def converted(value: Any, dtype: str) -> Any:
    """A value of a type; those of literals are Python's."""
    if dtype in _WEAK:
        return int(value) if dtype == "int" else float(value)
    return np.asarray(value).astype(_NUMPY[dtype])[()]


def exact(dtype: str, before: int, behind: int) -> tuple[int, int] | None:
    """The bits of a number, if its type has as many."""
    room = {"f32": 23, "f64": 50, "float": 50}.get(dtype, _INTEGER_BITS)
    return (before, behind) if before + behind <= room else None


@dataclass(frozen=True)
class Given:
    """A program in place of a function of a tensor and a number, of a type that is put in, and the same by numpy.

    :ivar is_tensor: whether it makes a tensor, of as many elements.
    :ivar grows: whether the bits of what it makes grow with their number.
    """

    text: str
    value: Callable[..., Any]
    is_tensor: bool = True
    grows: bool = False


FUNCTIONS: Mapping[str, Given] = {
    "scaled": Given(
        "x: Tensor<n; TYPE>\nw: TYPE\ny = compute (shape = [n]) |k| x[n - 1 - k] * w + 1", lambda x, w: x[::-1] * w + 1
    ),
    "running": Given(
        "x: Tensor<n; dtype>\nw: TYPE\nr = scan (shape = [n], op = sum) |k| x[k]\nr * w",
        lambda x, w: np.cumsum(x, dtype=x.dtype) * w,
        grows=True,
    ),
    "centred": Given(
        "x: Tensor<n>\nw: TYPE\nm = reduce (shape = [n], op = max) |k| x[k]\ny = (x - m) * w",
        lambda x, w: (x - x.max()) * w,
    ),
    "summed": Given(
        "x: Tensor<n; TYPE>\nw: TYPE\nreduce (shape = [n], op = sum) |k| x[k] * w",
        lambda x, w: np.sum(x * w, dtype=x.dtype),
        is_tensor=False,
        grows=True,
    ),
}


class Writer:
    """Writes a program whose arrays have the lengths N and M."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.n, self.m = self.number(1, 9), self.choose([1, 3, 5, 8, 17, 32])
        self.count = 0
        self.arrays: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.made: dict[str, tuple[str, tuple[int, int] | None]] = {}
        self.functions: dict[str, tuple[str, str]] = {}

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def choose(self, choices: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def fresh(self, word: str) -> str:
        self.count += 1
        return f"{word}{self.count}"

    # arrays

    def array(self, dtype: str, axes: tuple[str, ...]) -> str:
        """A parameter of a type and lengths, a new one or one that there is."""
        name = f"{'abc'[len(axes)]}_{dtype}_{''.join(axes)}"
        self.arrays[name] = (dtype, axes)
        return name

    def length(self, axis: str) -> int:
        return {"N": self.n, "M": self.m}[axis]

    def index(self, axis: str, scope: Mapping[str, str]) -> tuple[str, Evaluate] | None:
        """An index that is within an axis: one of those that go along it, as it is or turned around."""
        own = [name for name, along in scope.items() if along == axis]
        if not own:
            return "0", lambda v: 0
        name, length = self.choose(own), self.length(axis)
        shift = self.number(0, length)
        return self.choose(
            [
                (name, lambda v: v[name]),
                (name, lambda v: v[name]),
                (f"{axis} - 1 - {name}", lambda v: length - 1 - v[name]),
                (f"({name} + {shift}) % {axis}", lambda v: (v[name] + shift) % length),
                (f"floordiv({name}, 2)", lambda v: v[name] // 2),
            ]
        )

    def load(self, dtype: str, scope: Mapping[str, str]) -> Expression:
        """An element of a parameter, or of an array that the program made before."""
        made = [name for name, (own, _) in self.made.items() if own == dtype]
        if made and self.number(0, 2) == 0:
            name, axes = self.choose(made), ("N", "M")
            bits = self.made[name][1]
        else:
            axes = self.choose([("N",), ("M",), ("N", "M"), ("M", "N")])
            name = self.array(dtype, axes)
            bits = (0, 0) if dtype == "bool" else (3, 3) if dtype in FLOATS else (3, 0)
        picks = [self.index(axis, scope) for axis in axes]
        text = f"{name}[{', '.join(pick[0] for pick in picks)}]"
        return Expression(text, dtype, lambda v: v[name][tuple(pick[1](v) for pick in picks)], bits)

    # numbers

    def numeric(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """An expression of any type but truth."""
        if depth == 0:
            return self.leaf(scope)
        kinds = [
            self.arithmetic, self.arithmetic, self.arithmetic, self.function, self.choice, self.guarded, self.reduction,
            self.reduction, self.conversion, self.named, self.tensor, self.loop, self.counted, self.rounding,
            self.sliced, self.called, self.gathered, self.remainder,
        ]  # fmt: skip
        return self.choose(kinds)(depth - 1, scope)

    def leaf(self, scope: Mapping[str, str]) -> Expression:
        kind = self.number(0, 9)
        if kind == 0:
            value = self.number(0, 7)
            return Expression(str(value), "int", lambda v: value, (3, 0))
        if kind == 1:
            half = self.number(0, 15) / 4
            return Expression(f"{half!r}", "float", lambda v: half, (2, 2))
        if kind == 2 and scope:
            name = self.choose(list(scope))
            return Expression(name, "int", lambda v: v[name], (6, 0))
        return self.load(self.choose([*FLOATS, *FLOATS, *INTEGERS]), scope)

    def arithmetic(self, depth: int, scope: Mapping[str, str]) -> Expression:
        symbol = self.choose("+-*")
        x, y = self.signed(self.numeric(depth, scope)), self.signed(self.numeric(depth, scope))
        f = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}[symbol]
        return self.together(f"({x.text} {symbol} {y.text})", f, [x, y], symbol == "*")

    def signed(self, x: Expression) -> Expression:
        """An expression that may be negative: differences of unsigned numbers are left to another test."""
        if x.dtype not in ("u8", "u16", "u32"):
            return x
        return Expression(f"i64({x.text})", "i64", lambda v: np.int64(x.value(v)), x.bits)

    def together(self, text: str, f: Callable[..., Any], parts: Sequence[Expression], product: bool = False) -> Expression:
        """What a function makes of numbers of their common type; a product needs the bits of all of them."""
        dtype = common(*(p.dtype for p in parts))
        bits = None
        if all(p.bits is not None for p in parts):
            own = [p.bits or (0, 0) for p in parts]
            gathered = sum if product else max
            more = 0 if product else 1
            bits = exact(dtype, gathered(b for b, _ in own) + more, gathered(b for _, b in own))
        if bits is None and all(p.is_integer for p in parts):  # too many: take one of them instead
            return parts[0]
        return Expression(text, dtype, lambda v: converted(f(*(converted(p.value(v), dtype) for p in parts)), dtype), bits)

    def function(self, depth: int, scope: Mapping[str, str]) -> Expression:
        x = self.signed(self.numeric(depth, scope))
        name = self.choose(["tanh", "sin", "exp", "sqrt", "erf", "abs", "neg", "min", "max", "pow"])
        if name in ("min", "max"):
            y = self.signed(self.numeric(depth, scope))
            f = min if name == "min" else max
            return self.together(f"{name}({x.text}, {y.text})", f, [x, y])
        if name in ("abs", "neg"):
            text = f"abs({x.text})" if name == "abs" else f"(-{x.text})"
            f = abs if name == "abs" else lambda a: -a
            return self.together(text, f, [x])
        dtype = x.dtype if x.dtype in (*FLOATS, "float") else "float" if x.dtype == "int" else "f64"
        texts = {
            "exp": f"exp(tanh({x.text}))",
            "sqrt": f"sqrt(abs({x.text}))",
            "pow": f"pow(abs(sin({x.text})) + 1.0, 1.5)",
        }
        functions: dict[str, Callable[[Any], Any]] = {
            "tanh": np.tanh, "sin": np.sin, "exp": lambda a: np.exp(np.tanh(a)), "sqrt": lambda a: np.sqrt(abs(a)),
            "erf": math.erf, "pow": lambda a: np.power(abs(np.sin(a)) + 1.0, 1.5),
        }  # fmt: skip
        f = functions[name]
        small = x if name != "sin" or x.bits is not None else None
        if small is None:  # of a large number a sine says nothing
            return x
        return Expression(
            texts.get(name, f"{name}({x.text})"), dtype, lambda v: converted(f(converted(x.value(v), dtype)), dtype)
        )

    def conversion(self, depth: int, scope: Mapping[str, str]) -> Expression:
        x = self.numeric(depth, scope)
        dtype = self.choose([*FLOATS, "i32", "i64"])
        if dtype not in FLOATS and x.bits is None:
            return x
        if dtype in FLOATS and x.bits is not None:
            bits = exact(dtype, *x.bits)
        else:
            bits = None if x.bits is None else exact(dtype, x.bits[0], 0)
        if bits is None and dtype not in FLOATS:
            return x
        return Expression(f"{dtype}({x.text})", dtype, lambda v: converted(x.value(v), dtype), bits)

    def rounding(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """Of exact numbers, as a last bit decides."""
        x = self.numeric(depth, scope)
        if x.bits is None:
            return x
        by = self.number(1, 5)
        if x.is_integer and x.dtype not in ("u8", "u16", "u32"):
            text, f = self.choose(
                [
                    (f"({x.text} % {by})", lambda a: a % by),
                    (f"floordiv({x.text}, {by})", lambda a: a // by),
                    (f"cdiv({x.text}, {by})", lambda a: -(-a // by)),
                ]
            )
            return Expression(text, x.dtype, lambda v: converted(f(x.value(v)), x.dtype), x.bits)
        text, f = self.choose([(f"floor({x.text})", np.floor), (f"ceil({x.text})", np.ceil)])
        return Expression(text, x.dtype, lambda v: converted(f(x.value(v)), x.dtype), (x.bits[0] + 1, 0))

    # conditions

    def condition(self, depth: int, scope: Mapping[str, str]) -> Expression:
        kind = self.number(0, 6)
        if kind == 0:
            return self.load("bool", scope)
        if kind == 1 and depth > 0:
            x = self.condition(depth - 1, scope)
            return Expression(f"(not {x.text})", "bool", lambda v: not x.value(v))
        if kind in (2, 3) and depth > 0:
            x, y, word = self.condition(depth - 1, scope), self.condition(depth - 1, scope), self.choose(["and", "or"])
            f = (lambda a, b: a() and b()) if word == "and" else (lambda a, b: a() or b())
            return Expression(f"({x.text} {word} {y.text})", "bool", lambda v: f(lambda: x.value(v), lambda: y.value(v)))
        if kind == 4 and depth > 0:
            return self.quantified(depth - 1, scope)
        x, y = self.comparable(depth, scope), self.comparable(depth, scope)
        symbol = self.choose(["<", ">", "<=", ">=", "==", "!="])
        g = {
            "<": lambda a, b: a < b, ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
            "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
        }[symbol]  # fmt: skip
        dtype = common(x.dtype, y.dtype)
        return Expression(
            f"({x.text} {symbol} {y.text})", "bool", lambda v: g(converted(x.value(v), dtype), converted(y.value(v), dtype))
        )

    def comparable(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """An exact number."""
        for d in (max(depth, 0), 0):
            x = self.signed(self.numeric(d, scope))
            if x.bits is not None:
                return x
        return Expression("1", "int", lambda v: 1, (1, 0))

    def choice(self, depth: int, scope: Mapping[str, str]) -> Expression:
        c, x, y = self.condition(depth, scope), self.numeric(depth, scope), self.numeric(depth, scope)
        dtype = common(x.dtype, y.dtype)
        bits = None
        if x.bits is not None and y.bits is not None:
            bits = exact(dtype, max(x.bits[0], y.bits[0]), max(x.bits[1], y.bits[1]))
        form = self.choose(["(if {} then {} else {})", "(if {} {{ {} }} else {{ {} }})"])
        text = form.format(c.text, x.text, y.text)
        return Expression(text, dtype, lambda v: converted(x.value(v) if c.value(v) else y.value(v), dtype), bits)

    def guarded(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """An element that only exists where a condition holds."""
        along = [name for name, axis in scope.items() if axis == "N"]
        if not along:
            return self.numeric(depth, scope)
        name, dtype, y = self.choose(along), self.choose(FLOATS), self.numeric(depth, scope)
        array = self.array(dtype, ("N",))
        back = self.number(1, 2)
        type_ = common(dtype, y.dtype)
        text = f"(if {name} >= {back} then {array}[{name} - {back}] else {y.text})"
        bits = None if y.bits is None else exact(type_, max(3, y.bits[0]), max(3, y.bits[1]))
        return Expression(
            text, type_, lambda v: converted(v[array][v[name] - back] if v[name] >= back else y.value(v), type_), bits
        )

    def gathered(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """An element whose index is data, which a guard or a clamp keeps inside."""
        axis, dtype, j = self.choose(["N", "M"]), self.choose(FLOATS), self.load(self.choose(INTEGERS), scope)
        array, length = self.array(dtype, (axis,)), self.length(axis)
        if self.number(0, 1):
            text = f"{array}[min(max({j.text}, 0), {axis} - 1)]"
            return Expression(text, dtype, lambda v: v[array][min(max(int(j.value(v)), 0), length - 1)], exact(dtype, 3, 3))
        y = self.numeric(depth, scope)
        form = self.choose(
            ["(if {0} >= 0 and {0} < {1} then {2} else {3})", "(if {0} < 0 or {1} <= {0} then {3} else {2})"]
        )
        text, type_ = form.format(j.text, axis, f"{array}[{j.text}]", y.text), common(dtype, y.dtype)
        bits = None if y.bits is None else exact(type_, max(3, y.bits[0]), max(3, y.bits[1]))

        def value(v: Names) -> Any:
            at = int(j.value(v))
            return converted(v[array][at] if 0 <= at < length else y.value(v), type_)

        return Expression(text, type_, value, bits)

    def remainder(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """Of what is exact: a remainder of what is rounded may be next to nothing, or next to the divisor."""
        x, divisor = self.numeric(depth, scope), self.choose([2.5, -0.75, 4.0])
        if x.bits is None or x.dtype not in FLOATS:
            return x
        bits = exact(x.dtype, 2, max(2, x.bits[1]))
        return Expression(f"({x.text} % {divisor!r})", x.dtype, lambda v: converted(x.value(v) % divisor, x.dtype), bits)

    # forms

    def binding(self) -> tuple[dict[str, str], str, str]:
        """New indices: along which axes, their shape and their binder."""
        axes = self.choose([("M",), ("N",), ("M",), ("N", "M")])
        names = [self.fresh("k") for _ in axes]
        return dict(zip(names, axes, strict=True)), ", ".join(axes), ", ".join(names)

    def places(self, bound: Mapping[str, str]) -> list[dict[str, int]]:
        ranges = [range(self.length(axis)) for axis in bound.values()]
        return [dict(zip(bound, values, strict=True)) for values in itertools.product(*ranges)]

    def inner(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """The body of a reduction, whose own reductions have none in them: plain arithmetic takes long."""
        return self.numeric(min(depth, 1), scope)

    def reduction(self, depth: int, scope: Mapping[str, str]) -> Expression:
        bound, shape, names = self.binding()
        x = self.inner(depth, {**scope, **bound})
        operator = self.choose(["sum", "sum", "sum", "prod", "min", "max", "argmin", "argmax"])
        places = self.places(bound)
        if operator.startswith("arg") and x.bits is None:
            operator = operator[3:]
        if operator == "prod" and x.is_integer:
            operator = "max"
        dtype = "i64" if x.dtype == "int" else x.dtype
        more = len(places).bit_length()
        bits = None if x.bits is None else exact(dtype, x.bits[0] + more * (operator == "sum"), x.bits[1])
        if operator == "prod":
            bits = None
        if operator == "sum" and x.is_integer and (bits is None or bits[0] >= 8 * np.dtype(numpy_type(dtype)).itemsize - 1):
            operator = "min"
            bits = x.bits
        text = f"(reduce (shape = [{shape}], op = {operator}) |{names}| {x.text})"

        def values(v: Names) -> Any:
            return np.array([converted(x.value({**v, **place}), dtype) for place in places], numpy_type(dtype))

        if operator.startswith("arg"):
            f = np.argmin if operator == "argmin" else np.argmax
            return Expression(text, "i64", lambda v: np.int64(f(values(v))), (9, 0))
        along = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}[operator]
        own = {"dtype": numpy_type(dtype)} if operator in ("sum", "prod") else {}
        return Expression(text, dtype, lambda v: converted(along(values(v), **own), dtype), bits)

    def quantified(self, depth: int, scope: Mapping[str, str]) -> Expression:
        bound, shape, names = self.binding()
        x, operator = self.condition(min(depth, 1), {**scope, **bound}), self.choose(["any", "all"])
        places, f = self.places(bound), {"any": any, "all": all}[operator]
        text = f"(reduce (shape = [{shape}], op = {operator}) |{names}| {x.text})"
        return Expression(text, "bool", lambda v: f(x.value({**v, **place}) for place in places))

    def named(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """A block with a name for what is used twice."""
        x, name = self.signed(self.numeric(depth, scope)), self.fresh("v")
        own = Expression(name, x.dtype, lambda v: v[name], x.bits)
        y = self.together(f"{name} + {name}", lambda a, b: a + b, [own, own])
        y = self.choose([own, y])
        text = f"(if true {{ {name} = {x.text}\n {y.text} }} else {{ {y.text.replace(name, '0')} }})"
        dtype = common(y.dtype, "int")
        return Expression(text, dtype, lambda v: converted(y.value({**v, name: x.value(v)}), dtype), y.bits)

    def tensor(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """An element of a tensor that is computed, summed up or cut out on the way."""
        axis, k = self.choose(["N", "M"]), self.fresh("k")
        x = self.signed(self.inner(depth, {**scope, k: axis}))
        name, length = self.fresh("t"), self.length(axis)
        dtype, bits = x.dtype, x.bits
        how = self.choose(["compute", "read", "scan"])
        head = f"{how} (shape = [{axis}]) |{k}|"
        if how == "scan":
            operator = self.choose(["sum", "min", "max"])
            dtype = "i64" if dtype == "int" else dtype
            sums = operator == "sum"
            bits = None if bits is None else exact(dtype, bits[0] + length.bit_length() * sums, bits[1])
            if sums and x.is_integer and (bits is None or bits[0] >= 8 * np.dtype(numpy_type(dtype)).itemsize - 1):
                operator, bits = "min", x.bits
            head = f"scan (shape = [{axis}], op = {operator}) |{k}|"
        pick = self.index(axis, scope)
        assert pick is not None
        text = f"(if true {{ {name} = {head} {x.text}\n {name}[{pick[0]}] }} else {{ 0 }})"
        dtype = common(dtype, "int")

        def value(v: Names) -> Any:
            at = pick[1](v)
            if how != "scan":
                return converted(x.value({**v, k: at}), dtype)
            combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[operator]
            found = [converted(x.value({**v, k: place}), dtype) for place in range(at + 1)]
            return converted(combine.accumulate(np.array(found, numpy_type(dtype)))[-1], dtype)

        return Expression(text, dtype, value, bits)

    def part(self, axis: str, scope: Mapping[str, str]) -> tuple[str, int, int]:
        """A part of an axis: its text, where it begins, and how long it is."""
        length = self.length(axis)
        begin = self.number(0, length - 1)
        end = self.number(begin + 1, length)
        return self.choose(
            [(":", 0, length), (f"{begin}:{axis}", begin, length - begin), (f"{begin}:{end}", begin, end - begin)]
        )

    def line(self, dtype: str, scope: Mapping[str, str]) -> tuple[str, Evaluate, int]:
        """A slice of a parameter with one axis: its text, its elements and its length."""
        along, other = self.choose([("N", "M"), ("M", "N")])
        text, begin, length = self.part(along, scope)
        stop = begin + length
        kind = self.number(0, 2)
        if kind == 0:
            name = self.array(dtype, (along,))
            return f"{name}[{text}]", lambda v: v[name][begin:stop], length
        index, place = self.index(other, scope) or ("0", lambda v: 0)
        if kind == 1:
            name = self.array(dtype, (along, other))
            return f"{name}[{text}, {index}]", lambda v: v[name][begin:stop, place(v)], length
        name = self.array(dtype, (other, along))
        return f"{name}[{index}, {text}]", lambda v: v[name][place(v), begin:stop], length

    def sliced(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """An element, or the sum, of a slice or of what is computed with all of its elements at once."""
        dtype = self.choose(FLOATS)
        line, values, length = self.line(dtype, scope)
        factor = self.choose(["", "2 * ", "0.5 * "])
        scale = {"": 1.0, "2 * ": 2.0, "0.5 * ": 0.5}[factor]
        name, index = self.fresh("s"), self.choose([*scope, "0"])
        place = (lambda v: v[index] % length) if index != "0" else lambda v: 0
        if self.number(0, 1):
            text = f"{name}[{index} % {length}]" if index != "0" else f"{name}[0]"
            bits = exact(dtype, 4, 4)
            value: Evaluate = lambda v: converted(values(v)[place(v)] * scale, dtype)  # noqa: E731
        else:
            k = self.fresh("k")
            text = f"reduce (shape = [{length}], op = sum) |{k}| {name}[{k}]"
            bits = exact(dtype, 4 + length.bit_length(), 4)
            value = lambda v: converted(np.sum(values(v) * scale, dtype=_NUMPY[dtype]), dtype)  # noqa: E731
        return Expression(f"(if true {{ {name} = {factor}{line}\n {text} }} else {{ 0 }})", dtype, value, bits)

    def called(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """An element of what a function makes that is an argument: of a whole array, or of a slice."""
        kind, dtype = self.choose(list(FUNCTIONS)), self.choose(FLOATS)
        axis, other = self.choose([("N", "M"), ("M", "N")])
        index, at = self.index(other, scope) or ("0", lambda v: 0)
        array = self.array(dtype, (other, axis))
        name = f"f_{kind}_{dtype}_{axis}"
        given, declared = FUNCTIONS[kind], f"Tensor<{axis}; {dtype}>"
        f = given.value
        self.functions[name] = (
            f"({declared}, {dtype}) -> {declared if given.is_tensor else dtype}",
            given.text.replace("TYPE", dtype),
        )
        factor = self.choose([0.5, 1.0, 2.0])
        call = f"{name}({array}[{index}, :], {factor})"
        pick, place = self.index(axis, scope) or ("0", lambda v: 0)
        bits = exact(dtype, 4 + (self.length(axis).bit_length() if given.grows else 1), 5)
        if not given.is_tensor:
            return Expression(call, dtype, lambda v: converted(f(v[array][at(v)], _NUMPY[dtype](factor)), dtype), bits)
        value = lambda v: converted(f(v[array][at(v)], _NUMPY[dtype](factor))[place(v)], dtype)  # noqa: E731
        return Expression(f"{call}[{pick}]", dtype, value, bits)

    def loop(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """Doubles until it is large."""
        x = self.comparable(min(depth, 1), scope)
        dtype = "i64" if x.dtype in ("int", "i8", "i16", "i32") else "f64"
        end, name = self.number(1, 30), self.fresh("x")
        text = f"(while (init = {dtype}(abs({x.text})), until = |{name}| {name} > {end}) |{name}| {name} * 2 + 1)"

        def value(v: Names) -> Any:
            found = converted(abs(x.value(v)), dtype)
            while not found > end:
                found = found * 2 + 1
            return found

        bits = None if x.bits is None else exact(dtype, max(x.bits[0], 6) + 1, x.bits[1])
        return Expression(text, dtype, value, bits)

    def counted(self, depth: int, scope: Mapping[str, str]) -> Expression:
        """A polynomial, by Horner's rule."""
        x, rounds = self.signed(self.inner(depth, scope)), self.number(0, 3)
        k, r = self.fresh("k"), self.fresh("r")
        half = self.choose(["0.5", "2.0"])
        dtype = common(x.dtype, "f64")
        text = f"(affine_for (end = {rounds}, init = f64({x.text})) |{k}, {r}| {r} * {half} + {k})"

        def value(v: Names) -> Any:
            found = converted(x.value(v), dtype)
            for round_ in range(rounds):
                found = found * float(half) + round_
            return found

        bits = None if x.bits is None else exact(dtype, x.bits[0] + 3 + rounds, x.bits[1] + rounds)
        return Expression(text, dtype, value, bits)

    # programs

    def statement(self, name: str, depth: int) -> tuple[str, Expression]:
        """A tensor of N rows and M columns: computed element by element, or as tiles of a grid."""
        x = self.numeric(depth, {"i": "N", "j": "M"})
        dtype = x.dtype if x.dtype not in _WEAK else {"int": "i64", "float": "f64"}[x.dtype]
        if self.number(0, 3):
            text = f"{name} = compute (shape = [N, M]) |i, j| {{ {dtype}({x.text}) }}"
        else:
            rows, columns = self.number(1, 4), self.number(1, 8)
            body = f"i = g * {rows} + p\n j = h * {columns} + q\n if i < N and j < M then {dtype}({x.text}) else {dtype}(0)"
            grid = f"grid (dim = [cdiv(N, {rows}), cdiv(M, {columns})]) |g, h|"
            inner = f"compute (shape = [{rows}, {columns}]) |p, q| {{ {body} }}"
            text = f"{name}: Tensor<N, M; {dtype}> = {grid} {inner}"
        return text, Expression(name, dtype, lambda v: converted(x.value(v), dtype), x.bits)


@dataclass(frozen=True)
class RandomProgram:
    """A program, its arguments, and what its results are by plain arithmetic."""

    text: str
    arguments: Mapping[str, Any]
    wanted: Mapping[str, Any]

    def __repr__(self) -> str:
        return self.text


@st.composite
def programs(draw: st.DrawFn, statements: int = 3) -> RandomProgram:
    """A program of a few tensors, of which later ones may read earlier ones."""
    writer = Writer(draw)
    lines, found = [], []
    for count in range(writer.number(1, statements)):
        line, expression = writer.statement(f"y{count}", writer.number(1, 3))
        lines.append(line)
        found.append(expression)
        writer.made[f"y{count}"] = (expression.dtype, expression.bits)
    rng = np.random.default_rng(writer.number(0, 1 << 30))
    arguments: dict[str, Any] = {}
    declared = []
    for name, (dtype, axes) in sorted(writer.arrays.items()):
        shape = tuple(writer.length(axis) for axis in axes)
        low = 0 if dtype[0] in "ub" else -32 if dtype in FLOATS else -4
        values = rng.integers(low, 33 if dtype in FLOATS else 2 if dtype == "bool" else 5, shape)
        arguments[name] = (values / 8 if dtype in FLOATS else values).astype(numpy_type(dtype))
        declared.append(f"{name}: Tensor<{', '.join(axes)}; {dtype}>")
    for name in ("N", "M"):  # whose length no array says
        if not any(name in axes for _, axes in writer.arrays.values()):
            arguments[f"l_{name}"] = np.zeros(writer.length(name), np.float32)
            declared.append(f"l_{name}: Tensor<{name}; f32>")
    for name, (type_, text) in sorted(writer.functions.items()):
        arguments[name] = fe.program(text, language="declarative")
        declared.append(f"{name}: {type_}")
    names: dict[str, Any] = dict(arguments)
    with np.errstate(all="ignore"):
        for expression in found:
            own = np.empty((writer.n, writer.m), numpy_type(expression.dtype))
            for i, j in np.ndindex(*own.shape):
                own[i, j] = expression.value({**names, "i": i, "j": j})
            names[expression.text] = own
    return RandomProgram("\n".join([*declared, *lines, ""]), arguments, {e.text: names[e.text] for e in found})
